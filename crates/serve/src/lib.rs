//! Models over HTTP: OpenAI's API, the Open Inference Protocol, and plain requests for people with curl.
//!
//! Layers, each of which knows only those above it in this list:
//!
//! - [`work`]: threads that own a model. One computes requests of a moment together ([`work::Collector`]), one writes texts with continuous
//!   batching ([`work::Writer`]). They know nothing of HTTP.
//! - [`models`]: what a served model can do, by its signature; the set of models, which can be swapped while requests are under way.
//! - [`training`]: training runs of a folder, and what they write while they train.
//! - `http`: endpoints, limits, keys, formats of answers and errors; [`Server`] accepts connections and ends in an orderly way.
#![deny(unsafe_code)]

mod connection;
mod http;
mod labelled;
mod log;
mod metrics;
pub mod models;
mod options;
mod refusal;
mod server;
mod slow_writer;
pub mod training;
pub mod work;

pub use http::openapi::openapi;
pub use log::LogFormat;
pub use options::{ApiKeys, Limits, ModelSettings, NamedModel, ServeOptions, TlsFiles};
pub use server::{Handle, Loader, ServeError, Server, runtime};
