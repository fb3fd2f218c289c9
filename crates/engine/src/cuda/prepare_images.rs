//! Converts the bytes of images to floats.

use super::launch::{Building, Launch, blocks, source};
use crate::ops::image_draws::{PLACES, box_length};
use crate::ops::{Op, PrepareImages};

const BLOCK: usize = 256;

/// One kernel: each thread computes adjacent pixels of a row, with all their channels.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    let Op::PrepareImages(op) = &building.node().op else { unreachable!("an op that prepares images") };
    let PrepareImages { channels, height, width, .. } = *op;
    let batch = building.output_type(0).shape.axes()[0];
    // Four values are stored at once, if rows are divisible by four.
    let vector = if width.is_multiple_of(4) { 4 } else { 1 };
    let units = batch * height * (width / vector);
    let mut constants = vec![
        ("BLOCK", BLOCK.to_string()),
        ("BATCH", batch.to_string()),
        ("CHANNELS", channels.to_string()),
        ("HEIGHT", height.to_string()),
        ("WIDTH", width.to_string()),
        ("VECTOR", vector.to_string()),
        ("UNITS", format!("{units}ull")),
        ("PIXEL_BYTES", format!("{}ull", 4 * op.pixel_words())),
        ("DRAWS_LENGTH", format!("{}ull", op.draws_length())),
        ("BOX_LENGTH", box_length(channels).to_string()),
        ("MOST_BOXES", op.most_boxes.to_string()),
        ("NOISE", u8::from(op.noise).to_string()),
    ];
    constants.extend(PLACES.map(|(name, word)| (name, word.to_string())));
    vec![Launch {
        source: source(&constants, "", include_str!("kernels/prepare_images.cu")),
        entry: "prepare_images",
        grid: [blocks(units, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments: vec![building.input(0), building.input(1), building.input(2), building.output(0)],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::norms::testing::check;
    use crate::graph::Graph;
    use crate::types::DType;

    #[test]
    fn it_compiles_for_every_form_of_pictures() {
        for [channels, height, width] in [[3, 224, 224], [1, 28, 28], [3, 5, 7], [1, 1, 1], [3, 32, 30]] {
            for (most_boxes, noise) in [(0, false), (1, false), (1, true), (100, true)] {
                let op = PrepareImages { channels, height, width, most_boxes, noise };
                let mut graph = Graph::for_training();
                let pixels = graph.input("pixels", [5, op.pixel_words()], DType::I32).unwrap();
                let draws = graph.input("draws", [5, op.draws_length()], DType::I32).unwrap();
                let table = graph.constant("table", [channels, 256], vec![0.0; channels * 256]).unwrap();
                let images = graph.prepare_images(pixels, draws, table, op).unwrap();
                let is_own = |op: &Op| matches!(op, Op::PrepareImages(_));
                assert_eq!(check(&graph, &[images], &is_own, &|_, _| 0, &build).launches, 1);
            }
        }
    }
}
