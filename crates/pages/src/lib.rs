//! Pages that open from disk: one file each, nothing fetched, readable in light and dark, on a phone and on paper.
//!
//! Parts of pages (charts, maps, sections) are functions from data to HTML or SVG, so that other programs can show them, too. The
//! modules [`explain`], [`explain_text`], [`explain_encoder`], [`explain_language`], [`explain_speech`], [`report`] and [`summary`] put them together; [`explained`] looks inside a
//! model for them.
//!
//! A [`Document`] is a title, a lead and sections of HTML. What users can name (files, classes) goes through [`escape`] before it
//! is put into HTML, and through [`Document::data`] before a script reads it.

pub mod chart;
pub mod colour;
mod document;
pub mod explain;
pub mod explain_encoder;
pub mod explain_image_text;
pub mod explain_language;
pub mod explain_speech;
pub mod explain_text;
pub mod explained;
pub mod facts;
pub mod flow;
pub mod folding;
pub mod format;
pub mod glass;
pub mod inside;
pub mod interval;
mod picture;
pub mod report;
pub mod summary;
mod token_map;
mod views;
pub mod write;

pub use document::{Document, GENERATOR, Section, escape};
pub use picture::{base64, image, png_uri, rgba_uri};
