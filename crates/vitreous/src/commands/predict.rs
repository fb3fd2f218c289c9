//! `vitreous predict`.

use clap::Args;

use crate::failure::Failure;

/// Stub
#[derive(Args)]
pub struct Predict {}

impl Predict {
    pub fn run(self) -> Result<(), Failure> {
        Ok(())
    }
}
