//! `vitreous convert`.

use clap::Args;

use crate::failure::Failure;

/// Stub
#[derive(Args)]
pub struct Convert {}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        Ok(())
    }
}
