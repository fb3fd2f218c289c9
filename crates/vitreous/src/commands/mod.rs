//! One file a command: its arguments, its work, its output.

pub mod bench;
pub mod chat;
pub mod convert;
pub mod data;
pub mod doctor;
pub mod embed;
pub mod eval;
pub mod explain;
pub mod fill;
pub mod generate;
pub mod predict;
pub mod report;
pub mod sequences;
#[cfg(feature = "serve")]
pub mod serve;
pub mod summary;
pub mod train;
pub mod transcribe;
pub mod translate;

use clap::ValueEnum;
use vitreous_engine::Precision;
use vitreous_models::Size;

/// A precision as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// 32-bit floats throughout
    F32,
    /// Products of bf16, summed in f32
    Bf16,
}

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Precision {
        match name {
            PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::Bf16,
        }
    }
}

/// Reads `224` or `224x288` (height x width).
fn parse_size(text: &str) -> Result<Size, String> {
    let side = |text: &str| text.trim().parse::<usize>().ok().filter(|&side| side > 0);
    let size = match text.split_once(['x', 'X']) {
        Some((height, width)) => side(height).zip(side(width)).map(|(height, width)| Size { height, width }),
        None => side(text).map(Size::square),
    };
    size.ok_or_else(|| format!("`{text}` is no size; write HEIGHTxWIDTH, as in 224x288, or one number for a square"))
}

/// Far more than any machine has cores, and few enough that every system starts them.
const MOST_THREADS: usize = 1024;

/// Reads a number of threads.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        count if count <= MOST_THREADS => Ok(count),
        _ => Err(format!("at most {MOST_THREADS} threads are started; the default is one a core")),
    }
}

/// Reads how many hypotheses are followed at once. Beyond this many, time and memory grow and translations do not get better.
fn parse_beam(text: &str) -> Result<usize, String> {
    const MOST_BEAM: usize = 256;
    match parse_count(text)? {
        count if count <= MOST_BEAM => Ok(count),
        _ => Err(format!("a beam is at most {MOST_BEAM} wide; 4 to 10 are usual")),
    }
}

/// Reads a number that is at least 1.
pub fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| format!("`{text}` is not a whole number of at least 1"))
}
