//! Endpoints for people with curl: send an image or a text, get an answer.

pub mod classify;
pub mod explain;
