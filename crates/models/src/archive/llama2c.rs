//! The models of llama2.c (its version 0): seven sizes, then all tensors in f32, each kind for all layers.
//!
//! Such a file is seen as the GGUF file that llama.cpp's converter makes of it, with the same names and metadata: whoever opens a LLaMA
//! from GGUF opens it too. Its rotary pairs are neighbours in both.

use super::Contents;
use super::error::{Fault, Parsed};
use super::gguf::{MetaValue, Metadata};
use super::tensor::{ByteRange, ElementType, Tensor};

const HEADER: usize = 7 * 4;
/// Far above any model of this format; products of the sizes stay far from overflow.
const LARGEST_SIZE: usize = 1 << 24;
const MOST_LAYERS: usize = 1000;
/// llama2.c has it in its code.
const NORM_EPS: f64 = 1e-5;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    dim: usize,
    mlp_dim: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocabulary: usize,
    max_length: usize,
    /// Whether the output matrix is that of the word embeddings.
    tied: bool,
}

/// The sizes at the beginning of a file, if its length is exactly that of such a model.
pub(super) fn header(file: &[u8]) -> Option<Header> {
    let (numbers, _) = file.get(..HEADER)?.as_chunks::<4>();
    let numbers: Vec<i32> = numbers.iter().map(|raw| i32::from_le_bytes(*raw)).collect();
    let &[dim, mlp_dim, layers, heads, kv_heads, vocabulary, max_length] = numbers.as_slice() else { return None };
    let size = |number: i32| usize::try_from(number).ok().filter(|size| (1..=LARGEST_SIZE).contains(size));
    let header = Header {
        dim: size(dim)?,
        mlp_dim: size(mlp_dim)?,
        layers: size(layers).filter(|layers| *layers <= MOST_LAYERS)?,
        heads: size(heads)?,
        kv_heads: size(kv_heads)?,
        vocabulary: size(vocabulary.checked_abs()?)?,
        max_length: size(max_length)?,
        tied: vocabulary > 0,
    };
    let divides = header.dim.is_multiple_of(header.heads) && header.heads.is_multiple_of(header.kv_heads);
    let even = divides && (header.dim / header.heads).is_multiple_of(2);
    let bytes = header.kinds().iter().try_fold(HEADER as u128, |sum, kind| sum.checked_add(4 * kind.elements()))?;
    (even && bytes == file.len() as u128).then_some(header)
}

/// Tensors of one kind: one, or one per layer.
struct Kind {
    /// `#` is the number of the layer; `None` for tables that follow from the sizes.
    name: Option<&'static str>,
    copies: usize,
    shape: Vec<usize>,
}

impl Kind {
    fn elements(&self) -> u128 {
        self.shape.iter().fold(self.copies as u128, |product, &size| product.saturating_mul(size as u128))
    }
}

impl Header {
    /// All tensors in the order of the file.
    fn kinds(&self) -> Vec<Kind> {
        let Header { dim, mlp_dim, layers, heads, vocabulary, max_length, .. } = *self;
        let head_dim = dim / heads;
        let kv_dim = self.kv_heads * head_dim;
        let one = |name, shape: &[usize]| Kind { name: Some(name), copies: 1, shape: shape.to_vec() };
        let each = |name, shape: &[usize]| Kind { name: Some(name), copies: layers, shape: shape.to_vec() };
        // Cosines and sines.
        let table = || Kind { name: None, copies: 1, shape: vec![max_length, head_dim / 2] };
        let mut kinds = vec![
            one("token_embd.weight", &[vocabulary, dim]),
            each("blk.#.attn_norm.weight", &[dim]),
            each("blk.#.attn_q.weight", &[dim, dim]),
            each("blk.#.attn_k.weight", &[kv_dim, dim]),
            each("blk.#.attn_v.weight", &[kv_dim, dim]),
            each("blk.#.attn_output.weight", &[dim, dim]),
            each("blk.#.ffn_norm.weight", &[dim]),
            each("blk.#.ffn_gate.weight", &[mlp_dim, dim]),
            each("blk.#.ffn_down.weight", &[dim, mlp_dim]),
            each("blk.#.ffn_up.weight", &[mlp_dim, dim]),
            one("output_norm.weight", &[dim]),
            table(),
            table(),
        ];
        if !self.tied {
            kinds.push(one("output.weight", &[vocabulary, dim]));
        }
        kinds
    }

    /// Its tensors, and its sizes as metadata.
    pub(super) fn contents(&self) -> Parsed<Contents> {
        let mut contents = Contents { gguf: Some(self.metadata()), ..Contents::default() };
        let mut at = HEADER;
        for Kind { name, copies, shape } in self.kinds() {
            let bytes = 4 * shape.iter().product::<usize>();
            for layer in 0..copies {
                let location = ByteRange::Stored(at..at + bytes);
                at += bytes;
                let Some(name) = name else { continue };
                let tensor = Tensor {
                    element: ElementType::F32,
                    shape: shape.clone(),
                    strides: None,
                    big_endian: false,
                    location,
                };
                contents.note(name.replace('#', &layer.to_string()), Ok::<_, Fault>(tensor))?;
            }
        }
        Ok(contents)
    }

    fn metadata(&self) -> Metadata {
        let sizes = [
            ("llama.block_count", self.layers),
            ("llama.context_length", self.max_length),
            ("llama.embedding_length", self.dim),
            ("llama.feed_forward_length", self.mlp_dim),
            ("llama.attention.head_count", self.heads),
            ("llama.attention.head_count_kv", self.kv_heads),
            ("llama.vocab_size", self.vocabulary),
        ];
        let architecture = ("general.architecture".to_string(), MetaValue::Text("llama".to_string()));
        let sizes = sizes.map(|(key, size)| (key.to_string(), MetaValue::U64(size as u64)));
        let eps = ("llama.attention.layer_norm_rms_epsilon".to_string(), MetaValue::F64(NORM_EPS));
        Metadata::new(std::iter::once(architecture).chain(sizes).chain([eps]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(numbers: [i32; 7], floats: usize) -> Vec<u8> {
        let header = numbers.iter().flat_map(|number| number.to_le_bytes());
        header.chain((0..floats).flat_map(|number| (number as f32).to_le_bytes())).collect()
    }

    /// dim 4, mlp 6, two layers, two heads of which one has keys, 5 words, 3 positions.
    const SIZES: [i32; 7] = [4, 6, 2, 2, 1, 5, 3];
    /// Words, norms and matrices of each layer, the last norm, two tables of positions.
    const FLOATS: usize = 5 * 4 + 2 * (4 + 16 + 8 + 8 + 16 + 4 + 3 * 24) + 4 + 2 * 3;

    #[test]
    fn a_file_is_known_by_its_length() {
        assert!(header(&file(SIZES, FLOATS)).expect("a model").tied);
        assert!(header(&file(SIZES, FLOATS - 1)).is_none() && header(&file(SIZES, FLOATS + 1)).is_none());
        let untied = [4, 6, 2, 2, 1, -5, 3];
        assert!(!header(&file(untied, FLOATS + 20)).expect("a model").tied);
        for wrong in [[i32::MIN; 7], [i32::MAX; 7], [0; 7], [4, 6, 2, 3, 1, 5, 3], [4, 6, 2, 4, 1, 5, 3]] {
            assert!(header(&file(wrong, FLOATS)).is_none());
        }
    }

    #[test]
    fn tensors_lie_one_kind_after_another() {
        let contents = header(&file(SIZES, FLOATS)).expect("a model").contents().expect("tensors");
        let start = |name: &str| {
            let (_, tensor) = contents.tensors.iter().find(|(known, _)| known == name).expect("there");
            match &tensor.location {
                ByteRange::Stored(range) => (range.start - HEADER) / 4,
                ByteRange::Deflated(..) => panic!("not deflated"),
            }
        };
        assert_eq!((start("token_embd.weight"), start("blk.0.attn_norm.weight")), (0, 20));
        assert_eq!((start("blk.1.attn_norm.weight"), start("blk.1.attn_q.weight")), (24, 28 + 16));
        assert_eq!(start("output_norm.weight") + 4 + 6, FLOATS);
    }
}
