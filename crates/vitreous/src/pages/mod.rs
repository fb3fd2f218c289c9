//! The pages that commands write.

pub mod explain;
pub mod flow;
pub mod summary;
pub mod write;
