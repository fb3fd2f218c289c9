//! The pages that commands write.

pub mod explain;
pub mod report;
