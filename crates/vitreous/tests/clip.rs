//! Models of images and texts on the command line: classes that are only named, one space for both, training, and what is refused.

mod common;

use std::fs;
use std::path::Path;

use common::training::killed_and_whole_are_the_same;
use common::{ON_CPU, vitreous};
use serde_json::Value;

/// A folder with pictures.
struct Place {
    folder: tempfile::TempDir,
}

const SIDE: u32 = 24;

/// A model that learns a step in some milliseconds.
const TINY: [&str; 19] = [
    "model.image=16",
    "model.patch=8",
    "model.dim=24",
    "model.depth=1",
    "model.heads=2",
    "model.mlp_dim=32",
    "model.text_dim=16",
    "model.text_depth=1",
    "model.text_heads=2",
    "model.text_mlp_dim=32",
    "model.projection=12",
    "text.vocabulary=600",
    "train.batch=12",
    "train.epochs=30",
    "train.init=xavier",
    "optimizer.lr=5e-3",
    "schedule.warmup_epochs=1",
    "evaluation.templates=[\"a photo of a {} thing\", \"something {}\"]",
    "augment.flip=0.5",
];

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().expect("a folder") };
        for (index, colour) in [[220, 30, 30], [30, 200, 40], [40, 60, 220]].into_iter().enumerate() {
            place.picture(&format!("{index}.png"), colour);
        }
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_string()
    }

    fn picture(&self, name: &str, [r, g, b]: [u8; 3]) {
        let noisy = |x: u32, y: u32| ((x * 7 + y * 13) % 23) as u8;
        let picture = image::RgbImage::from_fn(SIDE, SIDE, |x, y| {
            let noise = noisy(x, y);
            image::Rgb([r.saturating_add(noise), g.saturating_add(noise), b.saturating_add(noise)])
        });
        picture.save(self.path(name)).expect("written");
    }

    /// Pairs of pictures and captions with classes: three colours.
    fn pairs(&self) -> String {
        let mut rows = vec!["image,caption,label,split".to_string()];
        let colours = [("red", [210, 40, 30]), ("green", [40, 190, 50]), ("blue", [40, 50, 210])];
        for index in 0..48_usize {
            let (name, [r, g, b]) = colours[index % 3];
            let shade = (index / 3 * 2) as u8;
            let file = format!("p{index:02}.png");
            self.picture(&file, [r - shade.min(r), g - shade.min(g), b - shade.min(b)]);
            let split = if index >= 36 { "validation" } else { "train" };
            let phrase = ["a photo of a {} thing", "something {}", "one {} picture"][index / 3 % 3];
            rows.push(format!("{file},{},{name},{split}", phrase.replace("{}", name)));
        }
        fs::write(self.folder.path().join("pairs.csv"), rows.join("\n")).expect("written");
        self.path("pairs.csv")
    }

    /// Trains a tiny model.
    fn train(&self, out: &str, more: &[&str]) -> common::Outcome {
        let (pairs, out) = (self.path("pairs.csv"), self.path(out));
        vitreous(&[&["train", "clip", "--data", &pairs, "--out", &out, "--json"], &ON_CPU[..], &TINY, more].concat())
    }
}

#[test]
fn ranks_share_out_its_test() {
    let Some(&launcher) = common::ranks::launchers().last() else { return };
    let place = Place::new();
    let pairs = place.pairs();
    let more = ["train.batch=4", "train.chunk=0", "train.epochs=1"];
    let words = [&["train", "clip", "--data", &pairs], &TINY[..], &more, &ON_CPU].concat();
    common::ranks::assert_same_as_one(launcher, 2, &words, 1);
}

/// With a batch in chunks, too.
#[test]
fn a_killed_run_ends_with_the_same_bytes() {
    let place = Place::new();
    let pairs = place.pairs();
    for (folder, chunk) in [("at_once", "train.chunk=0"), ("in_chunks", "train.chunk=4")] {
        let folder = place.folder.path().join(folder);
        fs::create_dir(&folder).expect("a folder");
        let more = [chunk, "train.epochs=3", "output.log_steps=1", "output.checkpoint_steps=1"];
        let words = [&["train", "clip", "--data", &pairs], &TINY[..], &more, &ON_CPU].concat();
        killed_and_whole_are_the_same(&folder, &words, &[2, 5]);
    }
}

/// A run learns; its model names classes, and finds pictures by words and words by pictures.
#[test]
fn a_model_learns_from_pairs_and_is_used() {
    let place = Place::new();
    place.pairs();
    let whole = place.train("whole", &[]).succeeded();
    let last = whole.json_lines().pop().expect("a line");
    assert!(last.to_string().contains("zero_shot"), "{last}");
    let model = place.path("whole");
    let all = [place.path("p36.png"), place.path("p37.png"), place.path("p38.png")];
    let paths: Vec<&str> = all.iter().map(String::as_str).collect();
    let labels =
        ["--labels", "red,green,blue", "--template", "a photo of a {} thing", "--template", "something {}", "--json"];
    let answers = vitreous(&[&["predict", &model], &paths[..], &labels, &ON_CPU].concat()).succeeded().json_lines();
    let right: Vec<&str> = answers.iter().map(|answer| answer["top"][0]["label"].as_str().expect("a label")).collect();
    assert_eq!(right, ["red", "green", "blue"], "{answers:?}");
    for answer in &answers {
        assert_eq!(answer["logits"].as_array().map(Vec::len), Some(3));
        let sum: f64 = answer["top"].as_array().expect("a list").iter().filter_map(|top| top["score"].as_f64()).sum();
        assert!((sum - 1.0).abs() < 1e-6 && answer["path"].is_string(), "{answer}");
    }
    let list = place.path("labels.txt");
    fs::write(&list, "red\n\ngreen\nblue\n").expect("written");
    let by_file =
        ["--labels-file", &list, "--template", "a photo of a {} thing", "--template", "something {}", "--json"];
    let again = vitreous(&[&["predict", &model], &paths[..], &by_file, &ON_CPU].concat()).succeeded().json_lines();
    assert_eq!(again, answers);

    // One space: the vectors have length 1, and a text finds its picture.
    let both = [&["embed", &model, "a photo of a red thing"], &paths[..], &["--json"], &ON_CPU].concat();
    let vectors = vitreous(&both).succeeded().json_lines();
    assert!(vectors[0]["text"].is_string() && vectors[1]["path"].is_string(), "{vectors:?}");
    for vector in &vectors {
        let numbers: Vec<f64> =
            vector["embedding"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        assert_eq!(numbers.len(), 12);
        assert!((numbers.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    }
    let search = |query: &str| {
        let asked = [&["embed", &model], &paths[..], &["--search", query, "--json", "--top", "1"], &ON_CPU].concat();
        vitreous(&asked).succeeded().json_lines()[0]["path"].as_str().expect("a path").to_string()
    };
    assert!(search("a photo of a green thing").ends_with("p37.png"));
    assert!(search(&place.path("p45.png")).ends_with("p36.png"), "by a picture of the same colour");

    // Where pictures support captions and their words.
    let captions = ["a photo of a red thing", "a photo of a blue thing"];
    let out = place.path("explained");
    let asked = ["--text", captions[0], "--text", captions[1], "--out", &out, "--json"];
    let explained = vitreous(&[&["explain", &model], &paths[..], &asked, &ON_CPU].concat()).succeeded().json_lines();
    assert_eq!(explained.len(), 3);
    let embedded = |line: &Value| -> Vec<f64> { serde_json::from_value(line["embedding"].clone()).expect("numbers") };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (index, line) in explained.iter().enumerate() {
        assert_eq!(line["path"], paths[index]);
        let shown = line["captions"].as_array().expect("captions");
        let cosine = shown[0]["cosine"].as_f64().expect("a number");
        assert!((cosine - dot(&embedded(&vectors[0]), &embedded(&vectors[index + 1]))).abs() < 1e-4, "{line}");
        for (caption, text) in shown.iter().zip(captions) {
            assert_eq!(caption["text"], text);
            // Patches of 8 in a picture of 16.
            assert_eq!(caption["patches"].as_array().map(Vec::len), Some(4), "{caption}");
            let words: Vec<&str> =
                caption["words"].as_array().expect("words").iter().filter_map(|word| word["word"].as_str()).collect();
            assert_eq!(words, text.split(' ').collect::<Vec<_>>());
            assert!(caption["words"].as_array().expect("words").iter().all(|word| {
                word["effect"].is_number() && word["patches"].as_array().is_some_and(|patches| patches.len() == 4)
            }));
            assert!(!caption["tokens"].as_array().expect("tokens").is_empty());
        }
        // The page has all captions, and the matrix all pictures.
        let page = fs::read_to_string(line["page"].as_str().expect("a page")).expect("a file");
        for part in captions.into_iter().chain(["p36.png", "p37.png", "p38.png"]) {
            assert!(page.contains(part), "{part} is not on the page");
        }
    }
    // Of the red picture the word red holds the caption up; of the blue one blue does.
    let effect = |picture: usize, caption: usize| {
        explained[picture]["captions"][caption]["words"][4]["effect"].as_f64().expect("a number")
    };
    assert!(effect(0, 0) > 0.0 && effect(2, 1) > 0.0, "{} {}", effect(0, 0), effect(2, 1));
    assert!(effect(0, 0) > effect(2, 0) && effect(2, 1) > effect(0, 1));
    vitreous(&["explain", &model, paths[0]]).failed(2, &["--text"]);
    vitreous(&["explain", &model, paths[0], "--text", "a", "--layers", "0"]).failed(2, &["--layers"]);
    edits_reach_their_tower(&place, &model);
}

/// An edit of the text tower changes vectors of texts and what comes of them; those of pictures are the same.
fn edits_reach_their_tower(place: &Place, model: &str) {
    let (text, picture) = ("a photo of a red thing", place.path("p36.png"));
    let embed =
        |inputs: &[&str], edits: &[&str]| vitreous(&[&["embed", model], inputs, &["--json"], edits, &ON_CPU].concat());
    let vectors = |edits: &[&str]| -> Vec<Value> {
        let lines = embed(&[text, &picture], edits).succeeded().json_lines();
        lines.into_iter().map(|line| line["embedding"].clone()).collect()
    };
    let plain = vectors(&[]);
    for (path, changed) in [("text.blocks.0.mlp", [true, false]), ("image.blocks.0.mlp", [false, true])] {
        let edited = vectors(&["--without", path]);
        assert_eq!([edited[0] != plain[0], edited[1] != plain[1]], changed, "{path}");
        let labels = ["--labels", "red,green", "--json"];
        let logits = |edits: &[&str]| {
            let asked = [&["predict", model, &picture], &labels[..], edits, &ON_CPU].concat();
            vitreous(&asked).succeeded().json_lines()[0]["logits"].clone()
        };
        assert_ne!(logits(&["--without", path]), logits(&[]), "{path}");
        let out = place.path("pages");
        let cosine = |edits: &[&str]| {
            let asked = [&["explain", model, &picture, "--text", text, "--json", "--out", &out], edits, &ON_CPU];
            vitreous(&asked.concat()).succeeded().json_lines()[0]["captions"][0]["cosine"].clone()
        };
        assert_ne!(cosine(&["--without", path]), cosine(&[]), "{path}");
    }
    embed(&[text], &["--without", "image.blocks.0.mlp"]).failed(2, &["there is no image to embed", "`text.`"]);
    embed(&[&picture], &["--scale", "text.blocks.0=2"]).failed(2, &["there is no text to embed", "`image.`"]);
    embed(&[text], &["--without", "text.blocks.7.mlp"]).failed(2, &["text.blocks.7.mlp", "text.blocks.0.mlp"]);
}

#[test]
fn labels_and_pairs_that_make_no_sense_are_refused_in_a_sentence() {
    let place = Place::new();
    place.pairs();
    place.train("model", &["train.epochs=1"]).succeeded();
    let (model, picture) = (place.path("model"), place.path("0.png"));
    let predict = |more: &[&str]| vitreous(&[&["predict", &model, &picture], more, &ON_CPU].concat());
    predict(&[]).failed(2, &["say which with --labels"]);
    predict(&["--labels", "a cat, ,a dog"]).failed(2, &["--labels: label 2 has no words"]);
    predict(&["--labels", ""]).failed(2, &["label 1 has no words"]);
    predict(&["--labels", "a,a"]).failed(2, &["given twice"]);
    predict(&["--labels", "a", "--template", "a photo"]).failed(2, &["no {} where the label belongs"]);
    predict(&["--template", "a photo of {}"]).failed(2, &["--template needs labels"]);
    let empty = place.path("empty.txt");
    fs::write(&empty, "\n \n").expect("written");
    predict(&["--labels-file", &empty])
        .failed(2, &["empty.txt", "there are no labels in this file: write one per line"]);
    predict(&["--labels-file", "nowhere.txt"]).failed(2, &["nowhere.txt"]);
    // A label longer than what the model reads is cut, and told.
    let long = "word ".repeat(200);
    let said = predict(&["--labels", &format!("{long},short"), "--json"]).succeeded().stderr;
    assert!(said.contains("longer than the 32 tokens that the model reads"), "{said}");
    vitreous(&["embed", &model, "missing.jpg"]).failed(2, &["missing.jpg: no such file"]);
    vitreous(&["embed", &model, " "]).failed(2, &["a text has no words"]);
    vitreous(&["embed", &model, "a", "--pooling", "mean"]).failed(2, &["--pooling"]);
    vitreous(&["eval", &model, "--data", &picture]).failed(2, &["a model of images and texts"]);
    let vit = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_vit");
    let vit = vit.to_str().expect("UTF-8");
    vitreous(&["predict", vit, &picture, "--labels", "a,b"])
        .failed(2, &["an image classifier, no model that takes --labels"]);

    let pairs = |name: &str, text: &str| {
        let path = place.path(name);
        fs::write(&path, text).expect("written");
        vitreous(&[&["train", "clip", "--data", &path, "--out", &place.path("none")], &ON_CPU[..]].concat())
    };
    pairs("gone.csv", "image,caption\nnone.png,a cat\n").failed(2, &["none of its 1 images is there; the first is"]);
    pairs("columns.csv", "a,b\n1,2\n").failed(2, &["its first row must name the columns"]);
    pairs("empty.csv", "image,caption\n").failed(2, &["there are no pairs of an image and a caption"]);
    pairs("split.jsonl", "{\"image\": \"0.png\", \"caption\": \"x\", \"split\": \"middle\"}\n")
        .failed(2, &["`middle` is not a split"]);
    pairs("broken.jsonl", "{\"image\": \"0.png\"\n").failed(2, &["broken.jsonl", "this is not a JSON object"]);
    pairs("text.jsonl", "{\"image\": \"0.png\", \"caption\": 7}\n").failed(2, &["the caption is not a text"]);
    pairs("few.csv", "image,caption\n0.png,a cat\n1.png,a dog\n").failed(2, &["is more than the"]);
    vitreous(&["train", "clip"]).failed(2, &["--data PAIRS"]);
    // Some images are missing: they are left out, and told.
    let mut text = fs::read_to_string(place.path("pairs.csv")).expect("pairs");
    text.push_str("\nnowhere.png,a red thing,red,train\n");
    fs::write(place.path("pairs.csv"), text).expect("written");
    let said = place.train("some", &["train.epochs=1"]).succeeded().stderr;
    assert!(said.contains("1 pair names an image that is not there, and is left out"), "{said}");
}
