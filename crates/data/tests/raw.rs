//! Batches in raw form, with what the engine makes of them, are the prepared batches: to the bit on the processor, and on a GPU to what
//! its logarithm, sine and cosine differ by.

use std::sync::Arc;

use vitreous_data::dataset::Dataset;
use vitreous_data::image::augment::{Augment, AugmentSettings, CropKind, EraseMode, MixMode, Mixer};
use vitreous_data::image::{
    Channels, Crop, Image, ImageBatchOptions, ImageBatches, ImageError, ImageForm, ImageTargets, Placement,
    Preparation, Preprocess, Resize,
};
use vitreous_data::loader::{Batch, BatchPosition, Loader};
use vitreous_engine::ops::ImageDraws;
use vitreous_engine::ops::image_draws::{Laying, Mixing, draws_length};
use vitreous_engine::{Device, Executor, Graph, Run, State, cuda};

/// Images of several sizes.
struct Some {
    images: usize,
}

impl Dataset for Some {
    fn len(&self) -> usize {
        self.images
    }
    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let (height, width) = [(13, 18), (20, 11), (9, 30), (12, 15)][index % 4];
        let byte = |place: usize| ((place * 97 + place / 7 * 31 + index * 53) % 256) as u8;
        Image::new(width, height, channels, (0..height * width * channels.count()).map(byte).collect())
    }
    fn labels(&self, index: usize) -> &[u32] {
        &[[0], [1], [2]][index % 3]
    }
    fn name(&self, index: usize) -> String {
        format!("image {index}")
    }
}

const SIZE: [usize; 2] = [12, 15];

fn preprocess(channels: Channels) -> Preprocess {
    let mut preprocess = Preprocess::default_for(SIZE, channels);
    preprocess.mean = vec![0.485, 0.456, 0.406][..channels.count()].to_vec();
    preprocess.std = vec![0.229, 0.224, 0.225][..channels.count()].to_vec();
    preprocess
}

fn options(preparation: Preparation, channels: Channels, batch: usize) -> ImageBatchOptions {
    ImageBatchOptions {
        dataset: Arc::new(Some { images: 2 * batch }),
        preparation,
        form: ImageForm::Prepared,
        mixer: None,
        shape: [channels.count(), SIZE[0], SIZE[1]],
        classes: 3,
        targets: ImageTargets::Probabilities { smoothing: 0.1 },
        batch,
        seed: 5,
        shuffle: true,
    }
}

fn augmented(settings: &AugmentSettings, channels: Channels, batch: usize) -> ImageBatchOptions {
    let augment = Augment::new(settings, &preprocess(channels)).expect("sound settings");
    let options = options(Preparation::Augmented(Box::new(augment)), channels, batch);
    ImageBatchOptions { mixer: Mixer::new(settings).expect("sound settings"), ..options }
}

fn batches(options: &ImageBatchOptions, form: ImageForm) -> Vec<Batch> {
    let options = ImageBatchOptions { form, ..options.clone() };
    let source = Arc::new(ImageBatches::new(options));
    Loader::start(source, BatchPosition::default(), 2, 1).map(|batch| batch.expect("loads")).collect()
}

/// The processor, and a GPU if there is one.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::Cpu { threads: 1 }];
    match cuda::Device::open(0) {
        Ok(gpu) => devices.push(Device::Cuda(gpu)),
        Err(error) => eprintln!("skipped on the GPU: {error}"),
    }
    devices
}

/// What a device makes of raw batches.
fn images_of(options: &ImageBatchOptions, batches: &[Batch], device: &Device) -> Vec<Vec<f32>> {
    let mut graph = Graph::for_inference();
    let images = options.images_of_raw(&mut graph).expect("a graph");
    let plan = device.plan(&graph, &[images]).expect("a plan");
    let mut executor = Executor::new(plan, device).expect("an executor");
    let mut state = State::new(&graph).expect("a state");
    let mut made = |batch: &Batch| {
        executor.input_i32("pixels").expect("an input").copy_from_slice(batch.i32("pixels").expect("pixels"));
        executor.input_i32("draws").expect("an input").copy_from_slice(batch.i32("draws").expect("draws"));
        executor.run(&mut state, Run::default()).expect("a run");
        executor.output(images).expect("a result")
    };
    batches.iter().map(&mut made).collect()
}

/// Compares both forms of all batches of two epochs on some devices, and gives the raw ones.
fn compare_on(devices: &[Device], options: &ImageBatchOptions, what: &str) -> Vec<Batch> {
    let (prepared, raw) = (batches(options, ImageForm::Prepared), batches(options, ImageForm::Raw));
    assert_eq!(prepared.len(), raw.len());
    for (prepared, raw) in prepared.iter().zip(&raw) {
        assert_eq!(prepared.array("targets"), raw.array("targets"), "{what}");
        assert_eq!((&prepared.samples, prepared.units), (&raw.samples, raw.units), "{what}");
        let names = |batch: &Batch| batch.arrays.iter().map(|array| array.name).collect::<Vec<_>>();
        assert_eq!((names(prepared), names(raw)), (vec!["images", "targets"], vec!["pixels", "draws", "targets"]));
    }
    let floats: usize = options.shape.iter().product();
    for device in devices {
        let limit = if device.is_gpu() { 1e-5 } else { 0.0 };
        for (prepared, made) in prepared.iter().zip(images_of(options, &raw, device)) {
            let images = prepared.f32("images").expect("images");
            for (place, (expected, got)) in images[..prepared.count() * floats].iter().zip(&made).enumerate() {
                let (sample, at) = (place / floats, place % floats);
                assert!(
                    (expected - got).abs() <= limit,
                    "{what} on {device:?}, sample {sample} of {}, place {at}: {got}, not {expected}",
                    prepared.count()
                );
            }
        }
    }
    raw
}

fn compare(options: &ImageBatchOptions, what: &str) -> Vec<Batch> {
    compare_on(&devices(), options, what)
}

#[test]
fn every_augmentation_is_the_same_in_both_forms() {
    let crops = [CropKind::Center, CropKind::Padded, CropKind::Resized];
    let erasings = [
        (0.0, EraseMode::Pixel, 1),
        (0.9, EraseMode::Constant, 2),
        (0.9, EraseMode::Random, 3),
        (0.9, EraseMode::Pixel, 1),
        (0.9, EraseMode::Pixel, 4),
    ];
    let mixes = [
        (0.0, 0.0, MixMode::Batch),
        (0.8, 0.0, MixMode::Batch),
        (0.0, 1.0, MixMode::Pair),
        (0.8, 1.0, MixMode::Batch),
        (0.8, 1.0, MixMode::Pair),
        (0.8, 1.0, MixMode::Element),
    ];
    let (devices, mut number) = (devices(), 0);
    for crop in crops {
        for policy in ["", "rand-m9-mstd0.5-inc1", "3a"] {
            for (erase, erase_mode, erase_count) in erasings {
                for (mixup, cutmix, mix_mode) in mixes {
                    let settings = AugmentSettings {
                        crop,
                        flip: 0.5,
                        vertical_flip: 0.5,
                        policy: policy.to_string(),
                        erase,
                        erase_mode,
                        erase_count,
                        mixup,
                        cutmix,
                        mix_mode,
                        mix_probability: 0.8,
                        ..AugmentSettings::default()
                    };
                    let channels = [Channels::Rgb, Channels::Grey][number % 2];
                    let batch = [4, 5, 1][number / 2 % 3];
                    // Each would be compiled anew for a GPU: some are enough.
                    let devices = if number % 7 == 0 { &devices[..] } else { &devices[..1] };
                    let options = augmented(&settings, channels, batch);
                    compare_on(devices, &options, &format!("{settings:?} for {channels:?}"));
                    number += 1;
                }
            }
        }
    }
}

#[test]
fn changes_of_colour_are_the_same_in_both_forms() {
    for channels in [Channels::Rgb, Channels::Grey] {
        let settings = AugmentSettings {
            crop: CropKind::Padded,
            flip: 0.5,
            color_jitter: 0.4,
            grey: 0.3,
            blur: 0.3,
            erase: 0.5,
            cutmix: 1.0,
            ..AugmentSettings::default()
        };
        compare(&augmented(&settings, channels, 6), "changes of colour");
    }
}

#[test]
fn testing_is_the_same_in_both_forms() {
    for channels in [Channels::Rgb, Channels::Grey] {
        let mut filled = preprocess(channels);
        filled.resize = Resize::None;
        let fill = vec![7, 120, 255][..channels.count()].to_vec();
        filled.crop = Some(Crop { size: SIZE, placement: Placement::HuggingFace, fill });
        for preprocess in [preprocess(channels), filled.clone()] {
            let mut options = options(Preparation::Plain(preprocess), channels, 7);
            // The last batch has one image only.
            (options.shuffle, options.targets) = (false, ImageTargets::Class);
            options.dataset = Arc::new(Some { images: 15 });
            let raw = compare(&options, "testing");
            assert_eq!(raw.iter().map(Batch::count).collect::<Vec<_>>(), [7, 7, 1, 7, 7, 1]);
            assert!(raw.iter().all(|batch| batch.i32("draws").expect("draws").iter().all(|&word| word == 0)));
        }
        // Augmentation of pictures that do not cover the output.
        let settings = AugmentSettings { crop: CropKind::Padded, flip: 0.5, ..AugmentSettings::default() };
        let augment = Augment::new(&settings, &filled).expect("sound settings");
        compare(&options(Preparation::Augmented(Box::new(augment)), channels, 4), "filled");
    }
}

#[test]
fn shifts_flips_and_mixes_are_left_to_the_device() {
    let settings = AugmentSettings {
        crop: CropKind::Padded,
        flip: 0.5,
        vertical_flip: 0.5,
        mixup: 0.5,
        cutmix: 0.5,
        mix_mode: MixMode::Element,
        ..AugmentSettings::default()
    };
    let rows = |settings: &AugmentSettings| -> Vec<(Laying, Mixing)> {
        let raw = compare(&augmented(settings, Channels::Rgb, 20), "draws");
        let rows = raw.iter().flat_map(|batch| batch.i32("draws").expect("draws").chunks(draws_length(3, 0)));
        rows.map(|row| ImageDraws::new(row, 3)).map(|row| (row.laying(), row.mixing())).collect()
    };
    let drawn = rows(&settings);
    let some =
        |has: &dyn Fn(&(Laying, Mixing)) -> bool| (10..70).contains(&drawn.iter().filter(|row| has(row)).count());
    assert_eq!(drawn.len(), 80);
    assert!(some(&|(laying, _)| laying.mirrored) && some(&|(laying, _)| laying.upside_down));
    assert!(some(&|(laying, _)| laying.top > 0) && some(&|(laying, _)| laying.left < 0));
    assert!(some(&|(_, mixing)| matches!(mixing, Mixing::Blend { .. })));
    assert!(some(&|(_, mixing)| matches!(mixing, Mixing::Paste(_))));
    // A policy needs the picture as it is shown, so that is done when it reaches the device.
    let drawn = rows(&AugmentSettings { policy: "3a".to_string(), ..settings });
    assert!(drawn.iter().all(|(laying, _)| *laying == Laying::default()));
}
