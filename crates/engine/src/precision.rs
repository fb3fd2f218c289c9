//! How exactly matrix products are computed.

/// What a matrix product does with its operands. Sums are f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precision {
    /// Operands are multiplied as f32.
    #[default]
    F32,
    /// Operands may be rounded to bf16 where that is quicker; products are accumulated in f32.
    ///
    /// They are not rounded on machines without a bf16 dot product, nor in products of a few rows, which wait
    /// for memory anyway: there the result is more exact.
    Bf16,
}
