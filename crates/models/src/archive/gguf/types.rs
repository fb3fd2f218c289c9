//! The numbers by which ggml knows element types.

use vitreous_engine::BlockFormat;

use super::super::error::{Fault, Parsed};
use super::super::tensor::ElementType;

/// Element types that are read, with ggml's numbers.
const KNOWN: [(u32, ElementType); 16] = [
    (0, ElementType::F32),
    (1, ElementType::F16),
    (2, ElementType::Blocks(BlockFormat::Q4_0)),
    (3, ElementType::Blocks(BlockFormat::Q4_1)),
    (6, ElementType::Blocks(BlockFormat::Q5_0)),
    (7, ElementType::Blocks(BlockFormat::Q5_1)),
    (8, ElementType::Blocks(BlockFormat::Q8_0)),
    (12, ElementType::Blocks(BlockFormat::Q4K)),
    (13, ElementType::Blocks(BlockFormat::Q5K)),
    (14, ElementType::Blocks(BlockFormat::Q6K)),
    (24, ElementType::I8),
    (25, ElementType::I16),
    (26, ElementType::I32),
    (27, ElementType::I64),
    (28, ElementType::F64),
    (30, ElementType::Bf16),
];

/// Names of types that are not read.
const OTHERS: [(u32, &str); 19] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

/// The type with a number.
pub(super) fn element(number: u32) -> Parsed<ElementType> {
    if let Some((_, element)) = KNOWN.iter().find(|(known, _)| *known == number) {
        return Ok(*element);
    }
    let name = OTHERS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    let what = match name {
        Some(name) => format!("its values are quantised as {name}"),
        None => format!("its values are of ggml's type {number}, which is not supported"),
    };
    let remedy =
        "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K are read: use such a file of the same model";
    Err(Fault::unsupported(what, remedy))
}

/// The number of a type, if ggml has it.
pub(super) fn number(element: ElementType) -> Option<u32> {
    KNOWN.iter().find(|(_, known)| *known == element).map(|(number, _)| *number)
}
