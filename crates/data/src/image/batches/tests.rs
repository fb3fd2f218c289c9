use super::*;
use crate::image::Resize;
use crate::image::augment::AugmentSettings;
use crate::loader::{BatchPosition, Loader};

/// Images of one pixel whose value is their number; some are broken.
struct Numbers {
    labels: Vec<u32>,
    broken: Vec<usize>,
}

impl Dataset for Numbers {
    fn len(&self) -> usize {
        self.labels.len()
    }
    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        if self.broken.contains(&index) {
            return Err(ImageError::Empty);
        }
        Image::new(1, 1, channels, vec![index as u8; channels.count()])
    }
    fn labels(&self, index: usize) -> &[u32] {
        &self.labels[index..=index]
    }
    fn name(&self, index: usize) -> String {
        format!("number {index}")
    }
}

fn options(samples: u32, broken: &[usize]) -> ImageBatchOptions {
    let labels = (0..samples).map(|index| index % 3).collect();
    let mut preprocess = Preprocess::default_for([1, 1], Channels::Grey);
    (preprocess.resize, preprocess.crop) = (Resize::Exact([1, 1]), None);
    (preprocess.mean, preprocess.std, preprocess.rescale_factor) = (vec![0.0], vec![1.0], 1.0);
    ImageBatchOptions {
        dataset: Arc::new(Numbers { labels, broken: broken.to_vec() }),
        preparation: Preparation::Plain(preprocess),
        form: ImageForm::Prepared,
        mixer: None,
        shape: [1, 1, 1],
        classes: 3,
        targets: ImageTargets::Class,
        batch: 4,
        seed: 7,
        shuffle: true,
    }
}

fn loader(options: ImageBatchOptions, epoch: u64, index: usize, epochs: u64, threads: usize) -> Loader {
    Loader::start(Arc::new(ImageBatches::new(options)), BatchPosition { epoch, index }, epochs, threads)
}

/// The batches of one epoch.
fn batches(options: ImageBatchOptions) -> Vec<Batch> {
    loader(options, 0, 0, 1, 2).map(|batch| batch.expect("loads")).collect()
}

fn images_of(batch: &Batch) -> Vec<f32> {
    batch.f32("images").expect("images").to_vec()
}

fn targets_of(batch: &Batch) -> Vec<f32> {
    batch.f32("targets").expect("targets").to_vec()
}

fn images(options: ImageBatchOptions, epoch: u64, index: usize, epochs: u64, threads: usize) -> Vec<Vec<f32>> {
    loader(options, epoch, index, epochs, threads).map(|batch| images_of(&batch.expect("loads"))).collect()
}

#[test]
fn each_epoch_has_all_samples_in_an_order_of_its_own_whatever_the_threads() {
    let two = images(options(12, &[]), 0, 0, 2, 2);
    assert_eq!(two.len(), 6);
    let epoch = |range: std::ops::Range<usize>| {
        let mut all: Vec<f32> = two[range].concat();
        let order = all.clone();
        all.sort_by(f32::total_cmp);
        assert_eq!(all, (0..12).map(|number| number as f32).collect::<Vec<_>>());
        order
    };
    assert_ne!(epoch(0..3), epoch(3..6));
    assert_eq!(images(options(12, &[]), 0, 0, 2, 5), two);
    assert_ne!(images(ImageBatchOptions { seed: 8, ..options(12, &[]) }, 0, 0, 2, 2), two);
}

#[test]
fn it_goes_on_at_any_batch() {
    let all = images(options(14, &[3]), 0, 0, 3, 2);
    assert_eq!(all.len(), 9);
    for start in 0..9 {
        assert_eq!(images(options(14, &[3]), start as u64 / 3, start % 3, 3, 2), all[start..]);
    }
}

#[test]
fn broken_samples_are_replaced_in_training_and_left_out_otherwise() {
    let mut training = loader(options(8, &[2, 5]), 0, 0, 1, 2);
    let seen: Vec<f32> = training.by_ref().flat_map(|batch| images_of(&batch.expect("loads"))).collect();
    assert_eq!(seen.len(), 8);
    assert!(!seen.contains(&2.0) && !seen.contains(&5.0));
    let broken: Vec<String> = training.broken().into_iter().map(|broken| broken.name).collect();
    assert_eq!(broken, ["number 2", "number 5"]);

    let batches = batches(ImageBatchOptions { shuffle: false, ..options(7, &[2, 5]) });
    assert_eq!(batches.iter().map(Batch::count).collect::<Vec<_>>(), [3, 2]);
    assert_eq!((&batches[1].samples[..], batches[1].units), (&[4, 6][..], 2));
    assert_eq!(images_of(&batches[0]), [0.0, 1.0, 3.0, 0.0]);
    assert_eq!(batches[1].i32("targets").expect("classes")[..2], [1, 0]);

    let error = loader(options(4, &[0, 1, 2, 3]), 0, 0, 1, 2).next().expect("an answer").unwrap_err();
    assert!(error.to_string().starts_with("none of the 4 samples can be read"), "{error}");
}

#[test]
fn only_full_batches_are_trained_on() {
    let left_over = options(14, &[]);
    assert_eq!((left_over.batches_per_epoch(), left_over.unseen_per_epoch()), (3, 2));
    let all = ImageBatchOptions { shuffle: false, ..left_over };
    assert_eq!((all.batches_per_epoch(), all.unseen_per_epoch()), (4, 0));
}

#[test]
fn targets_are_smoothed() {
    let targets = |targets| {
        let options = ImageBatchOptions { shuffle: false, targets, ..options(4, &[]) };
        targets_of(&batches(options)[0])
    };
    let shares = targets(ImageTargets::Probabilities { smoothing: 0.3 });
    assert!((shares[0] - 0.8).abs() < 1e-6 && (shares[1] - 0.1).abs() < 1e-6, "{shares:?}");
    let each = targets(ImageTargets::MultiLabel { smoothing: 0.2 });
    assert!((each[0] - 0.9).abs() < 1e-6 && (each[1] - 0.1).abs() < 1e-6, "{each:?}");
    assert_eq!(batches(options(4, &[]))[0].f32("targets"), None);
}

#[test]
fn each_sample_epoch_and_batch_has_randomness_of_its_own() {
    let settings = AugmentSettings { color_jitter: 0.9, mixup: 1.0, ..AugmentSettings::default() };
    let mut options = options(200, &[]);
    let Preparation::Plain(preprocess) = &options.preparation else { unreachable!("plain") };
    let augment = Augment::new(&settings, preprocess).expect("sound");
    options.preparation = Preparation::Augmented(Box::new(augment));
    // How bright a pixel became, relative to what it was.
    let change = |epoch: u64, sample: usize| {
        let source = ImageBatches::new(ImageBatchOptions { batch: 200, ..options.clone() });
        let batch = source.batch(&source.order(epoch), 0).expect("loads");
        let row = batch.samples.iter().position(|&there| there == sample).expect("every sample");
        images_of(&batch)[row] / sample as f32
    };
    assert_eq!(change(0, 100), change(0, 100));
    assert!((change(0, 100) - change(1, 100)).abs() > 0.02);
    assert!((change(0, 100) - change(0, 101)).abs() > 0.02);

    let mixer = Mixer::new(&settings).expect("sound");
    let targets = ImageTargets::Probabilities { smoothing: 0.0 };
    let options = ImageBatchOptions { mixer, targets, ..options };
    let smallest = |batch: Batch| targets_of(&batch).into_iter().filter(|share| *share > 0.0).fold(1.0, f32::min);
    let mixes: Vec<f32> = batches(options).into_iter().take(3).map(smallest).collect();
    assert!(mixes[0] != mixes[1] && mixes[1] != mixes[2], "{mixes:?}");
}

#[test]
fn a_used_batch_keeps_nothing_of_what_it_held() {
    let source = Arc::new(ImageBatches::new(ImageBatchOptions { shuffle: false, ..options(6, &[]) }));
    let mut loader = Loader::start(source, BatchPosition::default(), 3, 1);
    while let Some(batch) = loader.next() {
        let batch = batch.expect("loads");
        if batch.position.index == 1 {
            assert_eq!(images_of(&batch), [4.0, 5.0, 0.0, 0.0]);
            assert_eq!(batch.i32("targets"), Some(&[1, 2, 0, 0][..]));
        }
        loader.give_back(batch);
    }
}
