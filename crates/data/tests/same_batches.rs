//! Batches are, to the bit, those of earlier versions, so that runs that were begun with these resume where they were. The hashes were
//! computed by version 0.1, which had a loader of its own for images and another for pairs.

use std::sync::Arc;

use vitreous_data::dataset::builtin;
use vitreous_data::image::augment::{Augment, AugmentSettings, CropKind, MixMode, Mixer};
use vitreous_data::image::{
    Channels, ImageBatchOptions, ImageBatches, ImageForm, ImageTargets, Preparation, Preprocess,
};
use vitreous_data::loader::{ArrayValues, Batch, BatchPosition, Loader};
use vitreous_data::text::{EncodedPairs, PairBatches};

/// FNV-1a of samples and arrays.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u32) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn batch(&mut self, batch: &Batch) {
        batch.samples.iter().for_each(|&sample| self.add(sample as u32));
        for array in &batch.arrays {
            match &array.values {
                ArrayValues::F32(values) => values.iter().for_each(|value| self.add(value.to_bits())),
                ArrayValues::I32(values) => values.iter().for_each(|&value| self.add(value as u32)),
            }
        }
    }
}

fn image_batches(preparation: Preparation, targets: ImageTargets) -> ImageBatchOptions {
    ImageBatchOptions {
        dataset: builtin().validation,
        preparation,
        form: ImageForm::Prepared,
        mixer: None,
        shape: [1, 28, 28],
        classes: 10,
        targets,
        batch: 96,
        seed: 11,
        shuffle: false,
    }
}

fn hash(options: ImageBatchOptions, first: BatchPosition, epochs: u64) -> u64 {
    let mut hash = Hash::new();
    for batch in Loader::start(Arc::new(ImageBatches::new(options)), first, epochs, 2) {
        hash.batch(&batch.expect("loads"));
    }
    hash.0
}

#[test]
fn of_images_for_validation() {
    let preprocess = Preprocess::default_for([28, 28], Channels::Grey);
    let options = image_batches(Preparation::Plain(preprocess), ImageTargets::Class);
    assert_eq!(hash(options, BatchPosition::default(), 1), 0xe18f_753d_2497_145b);
}

/// Mixing draws from a Beta distribution, whose logarithms differ by a bit from one system's mathematical library to another's.
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")),
    ignore = "another mathematical library"
)]
#[test]
fn of_augmented_and_mixed_images() {
    let settings = AugmentSettings {
        crop: CropKind::Resized,
        flip: 0.5,
        policy: "rand-m9-mstd0.5-inc1".to_string(),
        erase: 0.25,
        mixup: 0.8,
        cutmix: 1.0,
        mix_mode: MixMode::Batch,
        ..AugmentSettings::default()
    };
    let preprocess = Preprocess::default_for([28, 28], Channels::Grey);
    let augment = Augment::new(&settings, &preprocess).expect("sound settings");
    let preparation = Preparation::Augmented(Box::new(augment));
    let options = image_batches(preparation, ImageTargets::Probabilities { smoothing: 0.1 });
    let mixer = Mixer::new(&settings).expect("sound settings");
    let options = ImageBatchOptions { mixer, shuffle: true, ..options };
    let resumed = BatchPosition { epoch: 1, index: 17 };
    let of_form = |form| hash(ImageBatchOptions { form, ..options.clone() }, resumed, 3);
    assert_eq!(of_form(ImageForm::Prepared), 0x67e3_949e_51e1_7574);
    assert_eq!(of_form(ImageForm::Raw), 0xd930_7a23_fa80_905a);
}

#[test]
fn of_sentence_pairs() {
    let row = |tokens: u32| (3..4 + tokens).collect::<Vec<u32>>();
    let rows: Vec<_> = (0..3000u32).map(|number| (row(number * 7 % 41), row(number * 5 % 37))).collect();
    let pairs = EncodedPairs::from_tokens(rows.iter().map(|(source, target)| (&source[..], &target[..])));
    let source = Arc::new(PairBatches::new(pairs, 512, 9).expect("short pairs"));
    let mut hash = Hash::new();
    for batch in Loader::start(source, BatchPosition::default(), 2, 2) {
        let batch = batch.expect("loads");
        hash.batch(&batch);
        hash.add(batch.units as u32);
    }
    assert_eq!(hash.0, 0xe14b_1b70_f172_796f);
}
