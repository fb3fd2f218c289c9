//! The formats in which weights are written, and which tensor of a GGUF file gets which, as llama.cpp chooses.

use vitreous_engine::BlockFormat;

use crate::archive::ElementType;

/// A format of weights, by the names that llama.cpp has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// 32-bit floats.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of 32-bit floats.
    Bf16,
    /// Blocks of 8 bits.
    Q8_0,
    /// Blocks of 4 bits.
    Q4_0,
    /// Blocks of 4 bits with scales and offsets, and of 6 bits where it matters most.
    Q4KM,
}

impl WeightType {
    /// All of them.
    pub const ALL: [WeightType; 6] =
        [WeightType::F32, WeightType::F16, WeightType::Bf16, WeightType::Q8_0, WeightType::Q4_0, WeightType::Q4KM];

    /// Its name: `q4_k_m`.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::F32 => "f32",
            WeightType::F16 => "f16",
            WeightType::Bf16 => "bf16",
            WeightType::Q8_0 => "q8_0",
            WeightType::Q4_0 => "q4_0",
            WeightType::Q4KM => "q4_k_m",
        }
    }

    /// The element type of most matrices.
    pub(super) fn element(self) -> ElementType {
        match self {
            WeightType::F32 => ElementType::F32,
            WeightType::F16 => ElementType::F16,
            WeightType::Bf16 => ElementType::Bf16,
            WeightType::Q8_0 => ElementType::Blocks(BlockFormat::Q8_0),
            WeightType::Q4_0 => ElementType::Blocks(BlockFormat::Q4_0),
            WeightType::Q4KM => ElementType::Blocks(BlockFormat::Q4K),
        }
    }

    /// llama.cpp's number of it: `general.file_type`.
    pub(super) fn file_type(self) -> u64 {
        match self {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::Q4_0 => 2,
            WeightType::Q8_0 => 7,
            WeightType::Q4KM => 15,
            WeightType::Bf16 => 32,
        }
    }
}

/// What the choice of a tensor's type depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture {
    pub(super) weights: WeightType,
    /// Number of layers.
    pub(super) layers: usize,
    /// Whether there is an output matrix of its own.
    pub(super) has_output: bool,
    /// Whether it has 80 layers and fewer heads of keys than of queries, as LLaMA-2-70B: its values are small, and worth more bits.
    pub(super) is_70b: bool,
}

/// Whether a tensor of a GGUF file is a matrix that may be narrower than f32.
pub(super) fn is_narrowed(name: &str, shape: &[usize]) -> bool {
    let is_matrix = shape.len() >= 2 && name.ends_with("weight");
    is_matrix && !name.ends_with("_norm.weight") && name != "position_embd.weight"
}

impl Mixture {
    /// The type of a tensor: see `llama_tensor_get_type` of llama.cpp.
    pub(super) fn element(&self, name: &str, shape: &[usize]) -> ElementType {
        if !is_narrowed(name, shape) {
            return ElementType::F32;
        }
        let ElementType::Blocks(usual) = self.weights.element() else { return self.weights.element() };
        let columns = shape.last().copied().unwrap_or_default();
        let layer = || name.split('.').nth(1).and_then(|layer| layer.parse::<usize>().ok()).unwrap_or_default();
        let is_output = name == "output.weight" || (!self.has_output && name == "token_embd.weight");
        let mixed = self.weights == WeightType::Q4KM;
        let is_value = name.ends_with("attn_v.weight") || name.ends_with("attn_qkv.weight");
        let is_down = name.contains("ffn_down");
        let six_bits = match is_output {
            true => usual != BlockFormat::Q8_0,
            false => mixed && (is_value || is_down) && self.more_bits(layer()),
        };
        let five_bits = mixed && is_value && self.is_70b;
        let format = match (six_bits, five_bits) {
            _ if is_output && !columns.is_multiple_of(usual.values()) => BlockFormat::Q8_0,
            (true, _) => BlockFormat::Q6K,
            (false, true) => BlockFormat::Q5K,
            (false, false) => usual,
        };
        fitting(format, columns)
    }

    /// The first and last eighth of the layers, and a third of the others.
    fn more_bits(&self, layer: usize) -> bool {
        let eighth = self.layers / 8;
        layer < eighth || layer >= 7 * self.layers / 8 || (layer - eighth) % 3 == 2
    }
}

/// A format for rows of so many values: with smaller blocks where they are no whole ones, or f16.
fn fitting(format: BlockFormat, columns: usize) -> ElementType {
    if columns.is_multiple_of(format.values()) {
        return ElementType::Blocks(format);
    }
    let smaller = match format {
        BlockFormat::Q4K => BlockFormat::Q5_0,
        BlockFormat::Q5K => BlockFormat::Q5_1,
        BlockFormat::Q6K => BlockFormat::Q8_0,
        BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q8_0 => format,
    };
    match columns.is_multiple_of(smaller.values()) {
        true => ElementType::Blocks(smaller),
        false => ElementType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of llama.cpp (`llama_tensor_get_type`) for SmolLM2-135M (30 layers, rows of 576 and 1536) and LLaMA-2-7B (32 layers,
    /// rows of 4096 and 11008). `scripts/compare_gguf.py quantise` compares them with what llama.cpp itself writes.
    #[test]
    fn types_are_llama_cpps() {
        let element = |mixture: Mixture, name: &str, columns: usize| mixture.element(name, &[8, columns]).name();
        let smol = Mixture { weights: WeightType::Q4KM, layers: 30, has_output: false, is_70b: false };
        assert_eq!(element(smol, "token_embd.weight", 576), "Q8_0");
        assert_eq!(element(smol, "blk.0.attn_q.weight", 576), "Q5_0");
        assert_eq!(element(smol, "blk.0.attn_v.weight", 576), "Q8_0");
        assert_eq!(element(smol, "blk.3.attn_v.weight", 576), "Q5_0");
        assert_eq!(element(smol, "blk.0.ffn_down.weight", 1536), "Q6_K");
        assert_eq!(element(smol, "blk.4.ffn_down.weight", 1536), "Q4_K");
        assert_eq!(smol.element("blk.0.attn_norm.weight", &[576]), ElementType::F32);
        let seven = Mixture { weights: WeightType::Q4KM, layers: 32, has_output: true, is_70b: false };
        assert_eq!(element(seven, "output.weight", 4096), "Q6_K");
        assert_eq!(element(seven, "token_embd.weight", 4096), "Q4_K");
        let more: Vec<usize> =
            (0..32).filter(|layer| element(seven, &format!("blk.{layer}.attn_v.weight"), 4096) == "Q6_K").collect();
        assert_eq!(more, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
        // Fused projections contain the values, and get their bits.
        let qkv = |layer: usize| element(seven, &format!("blk.{layer}.attn_qkv.weight"), 3072);
        assert_eq!((qkv(3), qkv(4), qkv(6)), ("Q6_K", "Q4_K", "Q6_K"));
        let large = Mixture { layers: 80, is_70b: true, ..seven };
        assert_eq!(element(large, "blk.10.attn_v.weight", 8192), "Q5_K");
        let four = Mixture { weights: WeightType::Q4_0, ..seven };
        assert_eq!((element(four, "output.weight", 4096), element(four, "output.weight", 288)), ("Q6_K", "Q8_0"));
        assert_eq!(
            (element(four, "blk.0.ffn_down.weight", 11008), element(four, "blk.0.attn_q.weight", 36)),
            ("Q4_0", "f16")
        );
        let floats = Mixture { weights: WeightType::Bf16, ..seven };
        assert_eq!(
            (element(floats, "output.weight", 31), element(floats, "position_embd.weight", 32)),
            ("bf16", "f32")
        );
    }
}
