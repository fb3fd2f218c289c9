//! Images with captions: files of pairs, their splits and classes, and batches of them.

use std::fs;
use std::path::Path;

use vitreous_data::dataset::{CaptionSplits, OpenCaptions, open_captions};
use vitreous_data::image::{
    CaptionBatches, CaptionTargets, CaptionTokens, Channels, ImageBatchOptions, ImageForm, ImageTargets, Preparation,
    Preprocess,
};
use vitreous_data::loader::BatchSource;

const OPTIONS: OpenCaptions = OpenCaptions { validation_share: 0.25, keep_bytes: 1 << 20 };

fn pictures(folder: &Path, count: usize) {
    for index in 0..count {
        let picture = image::RgbImage::from_pixel(4, 4, image::Rgb([index as u8, 7, 9]));
        picture.save(folder.join(format!("{index}.png"))).expect("written");
    }
}

fn open(folder: &Path, name: &str, text: &str) -> CaptionSplits {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    open_captions(&path, &OPTIONS).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn tables_and_lines_say_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    pictures(folder.path(), 4);
    let table = "caption,image,label,split\n\"a cat, asleep\",0.png,cat,train\na dog,1.png,dog,val\nthe dog,1.png,dog,val\n,2.png,cat,train\na bird,gone.png,bird,train\n";
    let lines = "{\"image\": \"0.png\", \"caption\": \"a cat, asleep\", \"label\": \"cat\", \"split\": \"train\"}\n\n{\"image\": \"1.png\", \"caption\": [\"a dog\", \"the dog\"], \"label\": \"dog\", \"split\": \"val\"}\n";
    for splits in [open(folder.path(), "pairs.csv", table), open(folder.path(), "pairs.jsonl", lines)] {
        assert_eq!(splits.train.captions, ["a cat, asleep"]);
        assert_eq!(splits.validation.captions, ["a dog", "the dog"]);
        assert_eq!(splits.classes, ["dog"]);
        assert_eq!(splits.validation.images.image(1, Channels::Rgb).expect("a picture").pixels()[0], 1);
    }
    let notes = open(folder.path(), "pairs.csv", table).notes.join("; ");
    assert!(
        notes.contains("1 pair names an image that is not there") && notes.contains("1 caption has no words"),
        "{notes}"
    );
}

/// All captions of an image are in one split; without labels of all validation pairs there are no classes.
#[test]
fn images_are_drawn_by_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    pictures(folder.path(), 40);
    let row = |index: usize| format!("{index}.png,first {index}\n{index}.png,second {index}\n");
    let splits = open(folder.path(), "pairs.csv", &format!("image,caption\n{}", (0..40).map(row).collect::<String>()));
    assert_eq!(splits.train.captions.len() + splits.validation.captions.len(), 80);
    assert!(splits.classes.is_empty() && !splits.validation.captions.is_empty());
    for caption in &splits.validation.captions {
        let other = caption.replace("first", "third").replace("second", "first").replace("third", "second");
        assert!(splits.validation.captions.contains(&other), "{caption}");
    }
}

#[test]
fn batches_have_the_captions_of_their_images() {
    let folder = tempfile::tempdir().expect("a folder");
    pictures(folder.path(), 6);
    let row = |index: usize| format!("{index}.png,caption {}\n", index % 3);
    let text = format!("image,caption,split\n{}", (0..6).map(|i| row(i).replace('\n', ",train\n")).collect::<String>());
    let splits = open(folder.path(), "pairs.csv", &text.replacen("5.png,caption 2,train", "5.png,caption 2,val", 1));
    let options = ImageBatchOptions {
        dataset: splits.train.images.clone(),
        preparation: Preparation::Plain(Preprocess::default_for([4, 4], Channels::Rgb)),
        form: ImageForm::Prepared,
        mixer: None,
        shape: [3, 4, 4],
        classes: 1,
        targets: ImageTargets::Class,
        batch: 4,
        seed: 3,
        shuffle: true,
    };
    // The first token is the caption's number, and the place of the end differs.
    let ids: Vec<Vec<u32>> = (0..5).map(|index| vec![index % 3 + 1; 1 + index as usize % 2]).collect();
    let tokens = CaptionTokens { places: ids.iter().map(|ids| ids.len() - 1).collect(), ids, padding: 9, length: 3 };
    let batches = CaptionBatches::new(options.clone(), tokens.clone(), CaptionTargets::SharedBySame);
    let names: Vec<&str> = batches.groups()[0].iter().map(|array| array.name).collect();
    assert_eq!(names, ["images", "tokens", "pooled", "targets"]);
    let batch = batches.batch(&batches.order(1), 0).expect("a batch");
    let (rows, pooled) = (batch.i32("tokens").expect("tokens"), batch.i32("pooled").expect("places"));
    let targets = batch.f32("targets").expect("targets");
    for (row, &sample) in batch.samples.iter().enumerate() {
        let length = 1 + sample % 2;
        assert_eq!(rows[row * 3] as usize, sample % 3 + 1);
        assert_eq!(rows[row * 3 + length..row * 3 + 3], vec![9; 3 - length][..]);
        assert_eq!(pooled[row] as usize, row * 3 + length - 1);
        let own = &targets[row * 4..row * 4 + 4];
        assert!((own.iter().sum::<f32>() - 1.0).abs() < 1e-6 && own[row] > 0.0, "{own:?}");
    }
    let same = CaptionBatches::new(options, tokens, CaptionTargets::Own);
    assert!(same.batch(&same.order(1), 0).expect("a batch").f32("targets").is_none());
}
