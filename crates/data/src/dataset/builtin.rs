//! The data set inside the binary: a class-balanced part of Fashion-MNIST (see NOTICE).

use std::sync::Arc;

use flate2::read::GzDecoder;

use super::memory::InMemory;
use super::{Splits, ValidationFrom, idx};
use crate::image::Channels;

const TRAIN: [&[u8]; 2] = [
    include_bytes!("../../builtin/train-images-idx3-ubyte.gz"),
    include_bytes!("../../builtin/train-labels-idx1-ubyte.gz"),
];
const TEST: [&[u8]; 2] = [
    include_bytes!("../../builtin/t10k-images-idx3-ubyte.gz"),
    include_bytes!("../../builtin/t10k-labels-idx1-ubyte.gz"),
];

/// The classes of Fashion-MNIST.
pub(crate) const FASHION: [&str; 10] =
    ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];

/// 10,000 training and 2,000 validation images, 28x28, greyscale, of ten kinds of clothing. Validation images are of Fashion-MNIST's test
/// part.
pub fn builtin() -> Splits {
    let part = |[images, labels]: [&[u8]; 2], name: &str| {
        let unpack =
            |bytes: &[u8], rank| idx::read(GzDecoder::new(bytes), rank, None).expect("the built-in data is valid");
        let (images, labels) = (unpack(images, 3), unpack(labels, 1));
        Arc::new(InMemory {
            name: format!("built-in {name} image"),
            size: [images.axes[1], images.axes[2]],
            channels: Channels::Grey,
            pixels: images.values.into(),
            labels: labels.values.into_iter().map(u32::from).collect(),
        })
    };
    Splits {
        train: part(TRAIN, "training"),
        validation: part(TEST, "validation"),
        test: None,
        validation_from: ValidationFrom::TestPart,
        classes: FASHION.map(str::to_string).to_vec(),
        several_labels: false,
        kind: "built-in (a part of Fashion-MNIST)".to_string(),
        notes: Vec::new(),
    }
}
