//! What all crates share about files and terminals: [`partial`]: files that appear whole or not at all; [`open`]: files that
//! are looked at before they are read; [`printable`]: text from files, without control characters.

pub mod open;
pub mod partial;
pub mod printable;
