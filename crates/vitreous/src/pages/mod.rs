//! The pages that commands write.

pub mod explain;
pub mod explain_text;
pub mod flow;
pub mod report;
pub mod summary;
pub mod write;
