//! One process, which has nobody to talk to.

use super::Collective;
use crate::error::Result;

/// The only rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn name(&self) -> String {
        "one process".to_string()
    }

    fn host(&self) -> String {
        super::launch::host_name()
    }

    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        _idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        debug_assert!(sends.is_empty() && receives.is_empty(), "there is nobody else");
        Ok(())
    }

    fn watch(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, _code: i32) {}

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
