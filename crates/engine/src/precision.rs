//! The precision that matrix products and attention are computed in.

/// The precision of matrix products. Everything else (norms, softmax, loss, optimiser) is f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// 32-bit floats throughout.
    #[default]
    F32,
    /// Operands are rounded to bf16 and products accumulated in f32; parameters stay f32. Products of a few rows, and
    /// machines without bf16 dot products, gain nothing from rounding and leave it out.
    Bf16,
}
