//! `vitreous explain`: its pages, pictures, JSON and arrays, and everything a user can get wrong. That the numbers are right is
//! tested where they are computed; here, that all doors give the same ones.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::training::tensors;
use common::{ON_CPU, fixtures, vitreous};
use serde_json::Value;
use vitreous_models::archive::Archive;

/// A folder to write to, and runs of the command that do.
struct OutputFolder {
    folder: tempfile::TempDir,
}

impl OutputFolder {
    fn new() -> OutputFolder {
        OutputFolder { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn out(&self) -> String {
        self.path("out").to_str().expect("text").to_string()
    }

    fn explain(&self, model: &str, arguments: &[&str]) -> common::Outcome {
        let out = self.out();
        vitreous(&[&["explain", model], arguments, &["--out", &out]].concat())
    }

    /// The JSON of one image.
    fn json(&self, model: &str, arguments: &[&str]) -> Value {
        let mut lines = self.explain(model, &[arguments, &["--json"]].concat()).succeeded().json_lines();
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    fn page(&self, image: &str) -> String {
        fs::read_to_string(self.path("out").join(image).join("explain.html")).expect("a page")
    }

    fn arrays(&self, image: &str) -> BTreeMap<String, Vec<f32>> {
        tensors(&self.path("out").join(image).join("arrays.npz"))
    }
}

/// A model of `vitreous-models`' fixtures.
fn model(name: &str) -> String {
    fixtures().join("../../../models/src/families/vit/tests/fixtures").join(name).to_str().expect("text").to_string()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// Nothing is fetched: no address but data inside the page, and links to parts of it and to pages beside it.
fn assert_self_contained(page: &str) {
    for word in ["http://", "https://", "//cdn", "<link", "@import", "<iframe"] {
        assert!(!page.contains(word), "{word} is in the page");
    }
    for (attribute, starts) in [("src=\"", &["data:image/png;base64,"][..]), ("url(", &["data:image/png;base64,"])] {
        for rest in page.split(attribute).skip(1) {
            let is_fine = starts.iter().any(|start| rest.starts_with(start));
            assert!(is_fine, "{attribute}{}", rest.chars().take(40).collect::<String>());
        }
    }
}

#[test]
fn a_page_and_its_pictures() {
    let place = OutputFolder::new();
    let outcome = place.explain("tiny_vit", &["pictures/noise.png"]).succeeded();
    let predicted = &vitreous(&["predict", "tiny_vit", "pictures/noise.png", "--json"]).json_lines()[0]["top"][0];
    let label = predicted["label"].as_str().expect("a label");
    assert_eq!(outcome.stdout.lines().count(), 1, "{}", outcome.stdout);
    assert!(outcome.stdout.contains("noise/explain.html\t") && outcome.stdout.contains(label), "{}", outcome.stdout);
    assert_eq!(names_in(&place.path("out")), ["filters.png", "noise", "position-table.png", "positions.png"]);
    let files = names_in(&place.path("out/noise"));
    for file in ["attention.png", "distance.svg", "entropy.svg", "explain.html", "flow.svg", "seen.png"] {
        assert!(files.iter().any(|name| name == file), "{file} is not among {files:?}");
    }
    let count = |start: &str| files.iter().filter(|name| name.starts_with(start)).count();
    assert_eq!((count("rollout-"), count("relevance-")), (6, 5), "{files:?}");
    for file in files.iter().filter(|name| name.ends_with(".png")) {
        vitreous_data::image::open(&place.path("out/noise").join(file), vitreous_data::image::Channels::Rgb)
            .expect("a picture");
    }

    let page = place.page("noise");
    assert_self_contained(&page);
    assert!(page.len() < 300_000, "{} bytes", page.len());
    for part in
        ["id=\"map\"", "id=\"layer\"", "id=\"head\"", "id=\"query-name\"", "<noscript>", "data-page=\"explain\""]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<img").count(), page.matches(" alt=\"").count(), "every picture has an alternative");
    // Attention comes first; the table of position embeddings is folded away; rollouts say where they are clipped.
    let first = page.split("<section id=\"").nth(1).expect("a section");
    assert!(first.starts_with("attention\""), "{}", &first[..40]);
    assert!(page.contains("<details class=\"table-of-positions\"><summary>All 17 x 24 values"), "17 tokens of 24");
    assert_eq!(page.matches("data-percentile=\"99\"").count(), 6);
    assert!(page.contains("above the 99th percentile of a map are clipped"));
    assert!(!page.contains("<section id=\"patches\""), "it has a head");
    // Again, over what is there.
    let again = || {
        place.explain("tiny_vit", &[&["pictures/noise.png"], &ON_CPU[..]].concat()).succeeded();
        place.page("noise")
    };
    assert_eq!(again(), again());
}

/// A GPU may run the plans of both commands by different kernels; the processor gives the same bits.
#[test]
fn on_any_device_logits_are_those_of_predict() {
    let place = OutputFolder::new();
    for (device, limit) in [("cpu", 0.0), ("auto", 1e-5)] {
        let arguments = ["pictures/noise.png", "--json", "--device", device];
        let logits = |outcome: common::Outcome| floats(&outcome.succeeded().json_lines()[0]["logits"]);
        let explained = logits(place.explain("tiny_vit", &arguments));
        let predicted = logits(vitreous(&[&["predict", "tiny_vit"], &arguments[..]].concat()));
        assert_eq!(explained.len(), predicted.len());
        for (ours, theirs) in explained.iter().zip(&predicted) {
            assert!((ours - theirs).abs() <= limit, "{device}: {explained:?} and {predicted:?}");
        }
    }
}

#[test]
fn json_arrays_and_predict_say_the_same() {
    let place = OutputFolder::new();
    let asked = ["pictures/noise.png", "--arrays", "--class", "dog", "--class", "6", "--top", "1"];
    let line = place.json("tiny_vit", &[&asked, &ON_CPU[..]].concat());
    let arrays = place.arrays("noise");
    let predict = ["predict", "tiny_vit", "pictures/noise.png", "--json"];
    let predicted = &vitreous(&[&predict, &ON_CPU[..]].concat()).json_lines()[0];
    assert_eq!(floats(&line["logits"]), floats(&predicted["logits"]));
    assert_eq!(floats(&line["logits"]), arrays["logits"]);
    assert_eq!(floats(&line["features"]), arrays["features"]);
    assert_eq!(line["top"][0], predicted["top"][0]);
    assert!(line["page"].as_str().expect("a page").ends_with("noise/explain.html"));

    let rollouts = line["rollout"].as_array().expect("a list");
    assert_eq!(rollouts.len(), 6);
    for rollout in rollouts {
        let name = rollout["array"].as_str().expect("a name");
        assert_eq!(floats(&rollout["patches"]), arrays[name], "{name}");
    }
    assert_eq!(rollouts[5]["array"], "rollout.min.0.9");
    // As it is written, and not as an f32 is in f64.
    assert_eq!(rollouts[5]["discard"].to_string(), "0.9");
    let classes: Vec<u64> = line["relevance"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["class"]["index"].as_u64().expect("a class"))
        .collect();
    let likeliest = predicted["top"][0]["index"].as_u64().expect("a class");
    let mut expected = vec![likeliest];
    expected.extend([1, 6].into_iter().filter(|class| *class != likeliest));
    assert_eq!(classes, expected);
    for relevance in line["relevance"].as_array().expect("a list") {
        let name = relevance["array"].as_str().expect("a name");
        assert_eq!(name, format!("relevance.{}", relevance["class"]["index"]));
        assert_eq!(floats(&relevance["patches"]), arrays[name], "{name}");
    }
}

#[test]
fn distances_and_entropies_are_those_of_the_weights() {
    let place = OutputFolder::new();
    let line = place.json("tiny_vit", &["pictures/noise.png", "--arrays"]);
    let arrays = place.arrays("noise");
    let (side, patch, tokens) = (4, 8.0, 17);
    for layer in line["layers"].as_array().expect("a list") {
        let weights = &arrays[&format!("attention.{}", layer["layer"])];
        assert_eq!(weights.len(), 3 * tokens * tokens);
        for (head, weights) in weights.chunks_exact(tokens * tokens).enumerate() {
            let (mut distance, mut entropy) = (0.0, 0.0);
            for (query, row) in weights.chunks_exact(tokens).enumerate().skip(1) {
                let row: Vec<f64> = row.iter().map(|&weight| f64::from(weight)).collect();
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5);
                entropy -= row.iter().map(|weight| weight * weight.ln()).sum::<f64>();
                let far = |one: usize, other: usize| {
                    let place = |patch: usize| ((patch / side) as f64, (patch % side) as f64);
                    let ((a, b), (c, d)) = (place(one - 1), place(other - 1));
                    patch * (a - c).hypot(b - d)
                };
                let sum: f64 = (1..tokens).map(|key| row[key] * far(query, key)).sum();
                distance += sum / row[1..].iter().sum::<f64>();
            }
            let of = |key: &str| layer[key][head].as_f64().expect("a number") * 16.0;
            assert!((of("distance") - distance).abs() < 1e-3, "{} and {distance}", of("distance"));
            assert!((of("entropy") - entropy).abs() < 1e-3, "{} and {entropy}", of("entropy"));
        }
    }
}

#[test]
fn layers_and_heads_can_be_chosen() {
    let place = OutputFolder::new();
    let asked = ["pictures/noise.png", "--layers", "last", "--heads", "2,0", "--arrays"];
    let line = place.json("tiny_vit", &[&asked, &ON_CPU[..]].concat());
    assert_eq!(line["layers"].as_array().expect("a list").len(), 1);
    assert_eq!(line["layers"][0]["layer"], 1);
    assert_eq!(line["layers"][0]["heads"], serde_json::json!([0, 2]));
    let archive = Archive::open(&place.path("out/noise/arrays.npz")).expect("an archive");
    assert_eq!(archive.tensor("attention.1").expect("a layer").shape, [2, 17, 17]);
    assert!(archive.get("attention.0").is_none());
    // Rollout is of all of the model, whatever is shown.
    let all = OutputFolder::new().json("tiny_vit", &[&["pictures/noise.png"], &ON_CPU[..]].concat());
    assert_eq!(line["rollout"], all["rollout"]);
    let page = place.page("noise");
    assert!(!page.contains("head 1<"));
    // A mean of some heads is not called one of all.
    assert!(page.contains(">mean of heads 0, 2</option>") && page.contains("\"mean\":\"mean of heads 0, 2\""));
    assert!(!page.contains("mean over heads</option>"));
}

#[test]
fn wrong_usage_says_what_to_do() {
    let place = OutputFolder::new();
    let refused = |arguments: &[&str], says: &[&str]| {
        place.explain("tiny_vit", &[&["pictures/noise.png"], arguments].concat()).failed(2, says);
    };
    refused(&["--layers", "2"], &["there is no layer 2", "0 to 1"]);
    refused(&["--layers", "first"], &["0,3-5,last"]);
    refused(&["--layers", "-1"], &["-1"]);
    refused(&["--heads", "0-99999999999"], &["there is no head 99999999999", "0 to 2"]);
    refused(&["--class", "7"], &["there is no class 7", "0 to 6"]);
    refused(&["--class", "cta"], &["`cta`", "did you mean `cat`?"]);
    refused(&["--discard", "1"], &["from 0 to below 1"]);
    refused(&["--top", "0"], &["at least 1"]);
    refused(&["--image", "30x32"], &["30x32", "8x8 patches"]);
    vitreous(&["explain", "vit_base_patch16_224", "pictures"]).failed(2, &["is a preset, which has no weights"]);
    assert!(!place.path("out").exists(), "nothing is written before all is known to be right");
}

#[test]
fn values_of_another_image_are_taken_over() {
    let place = OutputFolder::new();
    let logits = |arguments: &[&str]| floats(&place.json("tiny_vit", arguments)["logits"]);
    let (noise, smooth) = ("pictures/noise.png", "pictures/smooth.png");
    let (own, theirs) = (logits(&[noise]), logits(&[smooth]));
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(!close(&own, &theirs));
    assert!(close(&logits(&[noise, "--patch-from", smooth, "--at", "blocks.1"]), &theirs));
    assert!(close(&logits(&[noise, "--patch-from", noise, "--at", "blocks.0.attention.heads.1"]), &own));
    let part = logits(&[noise, "--patch-from", smooth, "--at", "blocks.0.mlp@0,2-3"]);
    assert!(!close(&part, &own) && !close(&part, &theirs));
    place.explain("tiny_vit", &[noise, "--patch-from", smooth]).failed(2, &["--at blocks.3.mlp"]);
    place.explain("tiny_vit", &[noise, "--patch-from", "missing.png", "--at", "blocks.1"]).failed(2, &["missing.png"]);
    place.explain("tiny_vit", &[noise, "--patch-from", smooth, "--at", "blocks.7"]).failed(2, &["`blocks.7`"]);
}

#[test]
fn what_cannot_be_read_is_named_and_the_others_go_on() {
    let place = OutputFolder::new();
    fs::write(place.path("text.png"), b"this is no image").expect("written");
    let broken = place.path("text.png").to_str().expect("text").to_string();
    let arguments = ["pictures/noise.png", &broken, "missing.png", "pictures/smooth.png"];
    let outcome =
        place.explain("tiny_vit", &arguments).failed(1, &["text.png: ", "missing.png: ", "2 paths gave no image"]);
    assert_eq!(outcome.stdout.lines().count(), 2, "{}", outcome.stdout);
    assert!(place.path("out/smooth/explain.html").is_file());
    let index = fs::read_to_string(place.path("out/index.html")).expect("an index");
    assert!(index.contains("2 paths gave no image") && index.contains("missing.png</span>: "), "what failed is named");
    let lines = place.explain("tiny_vit", &[&arguments[..], &["--json"]].concat()).json_lines();
    let has_error: Vec<bool> = lines.iter().map(|line| line["error"].is_string()).collect();
    assert_eq!(has_error, [false, true, true, false]);
}

#[test]
fn many_images_have_an_index_and_some_have_pages() {
    let place = OutputFolder::new();
    let outcome = place.explain("tiny_vit", &["pictures", "--pages", "2"]).succeeded();
    assert_eq!(outcome.stdout.lines().count(), 2, "{}", outcome.stdout);
    assert!(outcome.stderr.contains("1 image without pages"), "{}", outcome.stderr);
    let index = fs::read_to_string(place.path("out/index.html")).expect("an index");
    assert_self_contained(&index);
    for part in ["grey/explain.html", "noise/explain.html", "2 of 3 images have pages"] {
        assert!(index.contains(part), "{part} is missing");
    }
    assert!(!place.path("out/smooth").exists());

    // All count in the charts, whether they have pages or not, and whatever layers are shown.
    let charts = |arguments: &[&str]| {
        let place = OutputFolder::new();
        place.explain("tiny_vit", &[&["pictures"], arguments, &ON_CPU].concat()).succeeded();
        ["distance.svg", "entropy.svg"].map(|file| fs::read_to_string(place.path("out").join(file)).expect("a chart"))
    };
    let all = charts(&["--pages", "3"]);
    assert_eq!(all, charts(&["--pages", "0"]));
    let some = charts(&["--pages", "1", "--layers", "1", "--heads", "1"]);
    assert_eq!(some, charts(&["--pages", "3", "--layers", "1", "--heads", "1"]));
    assert_ne!(all, some);
    assert_ne!(all[0], fs::read_to_string(place.path("out/noise/distance.svg")).expect("a chart"));
    assert!(outcome.stderr.contains("3 images in ") && outcome.stderr.contains("; 2 pages in "), "{}", outcome.stderr);
}

#[test]
fn a_model_without_a_head_has_features_to_explain() {
    let place = OutputFolder::new();
    let bare = place.path("bare").to_str().expect("text").to_string();
    vitreous(&["convert", "tiny_vit", &bare, "--no-head"]).succeeded();
    let line = place.json(&bare, &["pictures/noise.png", "--arrays"]);
    assert!(line.get("logits").is_none() && line.get("top").is_none());
    assert_eq!(line["relevance"][0]["class"], Value::Null);
    assert_eq!(floats(&line["relevance"][0]["patches"]), place.arrays("noise")["relevance.features"]);
    assert!(place.page("noise").contains("This model has no head"));
    assert!(place.path("out/noise/relevance-features.png").is_file());
    // The tokens of its patches are its result: components as colours, and similarity to a chosen patch.
    let (page, arrays) = (place.page("noise"), place.arrays("noise"));
    assert!(
        page.contains("<section id=\"patches\"")
            && page.contains("id=\"similar\"")
            && page.contains("\"similarity\":\"")
    );
    assert!(place.path("out/noise/components.png").is_file());
    assert_eq!((arrays["patch_components"].len(), arrays["patch_tokens"].len() % 16), (48, 0));
    place.explain(&bare, &["pictures/noise.png", "--class", "1"]).failed(2, &["no head"]);
}

#[test]
fn images_need_not_be_square() {
    let place = OutputFolder::new();
    let line = place.json("tiny_vit", &["pictures/noise.png", "--image", "32x48", "--arrays"]);
    assert_eq!(line["layout"]["grid"], serde_json::json!([4, 6]));
    assert_eq!(line["rollout"][0]["patches"].as_array().expect("a list").len(), 24);
    let archive = Archive::open(&place.path("out/noise/arrays.npz")).expect("an archive");
    assert_eq!(archive.tensor("rollout.mean.0").expect("a rollout").shape, [4, 6]);
    let seen = vitreous_data::image::open(&place.path("out/noise/seen.png"), vitreous_data::image::Channels::Rgb)
        .expect("a picture");
    assert_eq!(seen.width() * 2, seen.height() * 3);
    assert!(place.page("noise").contains("--shape: 48 / 32"));
}

#[test]
fn registers_and_means_of_patches_can_be_asked() {
    let place = OutputFolder::new();
    place.explain(&model("timm_registers"), &["pictures/noise.png", "--image", "16"]).succeeded();
    let page = place.page("noise");
    assert!(page.contains("data-query=\"2\" aria-pressed=\"false\">register 1</button>"));
    let line = place.json(&model("timm_avg"), &["pictures/noise.png", "--image", "16"]);
    assert_eq!(line["layout"]["reader"], "mean_of_patches");
    let page = place.page("noise");
    assert!(page.contains("<strong id=\"query-name\">mean of patches</strong>"));
    // What the identity adds to the relevance of every patch is said.
    assert!(page.contains("averages all 16 patches, so each of them starts with 0.0625"), "timm_avg has 16");
}

#[test]
fn names_cannot_leave_their_place() {
    let place = OutputFolder::new();
    let hostile = "a<script>alert(1)<_script>\"'&.png";
    fs::copy(fixtures().join("pictures/noise.png"), place.path(hostile)).expect("copied");
    fs::copy(fixtures().join("pictures/noise.png"), place.path("index.html.png")).expect("copied");
    let paths =
        [place.path(hostile), place.path("index.html.png")].map(|path| path.to_str().expect("text").to_string());
    let outcome = place.explain("tiny_vit", &[&paths[0], &paths[1], &paths[0]]).succeeded();
    assert_eq!(outcome.stdout.lines().count(), 3);
    let folders: Vec<String> =
        names_in(&place.path("out")).into_iter().filter(|name| place.path("out").join(name).is_dir()).collect();
    assert_eq!(folders, ["a_script_alert_1___script____", "a_script_alert_1___script____-2", "index.html-2"]);
    for page in [place.page(&folders[0]), fs::read_to_string(place.path("out/index.html")).expect("an index")] {
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("a&lt;script&gt;alert(1)"));
    }
}

#[test]
fn images_are_not_written_over_and_pictures_of_explanations_are_no_images() {
    let place = OutputFolder::new();
    let photos = place.path("photos");
    fs::create_dir_all(&photos).expect("a folder");
    for name in ["a.png", "b.png"] {
        fs::copy("tests/fixtures/pictures/noise.png", photos.join(name)).expect("copied");
    }
    let photos = photos.to_str().expect("text").to_string();
    let out = format!("{photos}/explain");
    let explain = |image: &str, out: &str| vitreous(&["explain", "tiny_vit", image, "--out", out]);
    explain(&photos, &out).succeeded();
    // The model's own pictures lie where they would be written again.
    explain(&photos, &out).failed(2, &["would be written over", "another --out DIR"]);
    for own in ["filters.png", "positions.png", "position-table.png"] {
        fs::remove_file(format!("{out}/{own}")).expect("removed");
    }
    let again = explain(&photos, &out).succeeded();
    assert_eq!(again.stdout.lines().filter(|line| line.contains("explain.html")).count(), 2, "{}", again.stdout);
    assert!(again.stderr.contains("of an earlier explanation"), "{}", again.stderr);
    let mine = format!("{photos}/filters.png");
    fs::copy(format!("{photos}/a.png"), &mine).expect("copied");
    let before = fs::read(&mine).expect("a file");
    explain(&mine, &photos).failed(2, &["would be written over"]);
    assert_eq!(fs::read(&mine).expect("a file"), before);
}

#[test]
fn what_is_not_ours_is_not_overwritten() {
    let place = OutputFolder::new();
    fs::create_dir_all(place.path("out/noise")).expect("a folder");
    let foreign = place.path("out/noise/explain.html");
    fs::write(&foreign, "my own notes").expect("written");
    place.explain("tiny_vit", &["pictures/noise.png"]).failed(2, &["explain.html", "not overwritten"]);
    assert_eq!(fs::read_to_string(&foreign).expect("a file"), "my own notes");
    fs::remove_file(&foreign).expect("removed");
    fs::write(place.path("out/index.html"), "my own site").expect("written");
    place.explain("tiny_vit", &["pictures/noise.png"]).succeeded();
    fs::remove_dir_all(place.path("out/noise")).expect("removed");
    place.explain("tiny_vit", &["pictures"]).failed(2, &["index.html", "not overwritten", "another --out DIR"]);
    assert!(!place.path("out/noise").exists(), "it is found before any work is done");
    assert_eq!(fs::read_to_string(place.path("out/index.html")).expect("a file"), "my own site");
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let place = OutputFolder::new();
    fs::write(place.path("out"), "a file").expect("written");
    place.explain("tiny_vit", &["pictures/noise.png"]).failed(1, &["out: this folder cannot be made"]);
}

#[test]
fn what_gives_no_image_leaves_nothing_behind() {
    let place = OutputFolder::new();
    fs::create_dir(place.path("empty")).expect("a folder");
    let empty = place.path("empty").to_str().expect("text").to_string();
    let outcome = place.explain("tiny_vit", &[&empty]).failed(1, &["no image in this folder", "1 path gave no image"]);
    assert!(outcome.stdout.is_empty());
    place.explain("tiny_vit", &["missing.png"]).failed(1, &["missing.png: "]);
    let out = place.out();
    let list = common::vitreous_with_input(&["explain", "tiny_vit", "-", "--out", &out], "");
    list.failed(2, &["no image was named", "standard input is empty"]);
    assert!(!place.path("out").exists());
}

#[test]
fn what_an_earlier_run_left_does_not_mix_with_this_one() {
    let place = OutputFolder::new();
    place.explain("tiny_vit", &["pictures", "--top", "7", "--discard", "0.5", "--arrays"]).succeeded();
    assert!(place.path("out/index.html").is_file() && place.path("out/noise/rollout-min-0.5.png").is_file());
    let own = place.path("out/noise/relevance.txt");
    fs::write(&own, "my own notes").expect("written");
    place.explain("tiny_vit", &["pictures/noise.png", "--top", "1"]).succeeded();
    let files = names_in(&place.path("out/noise"));
    assert_eq!(files.iter().filter(|name| name.starts_with("relevance-")).count(), 1, "{files:?}");
    assert!(!place.path("out/noise/rollout-min-0.5.png").exists() && !place.path("out/noise/arrays.npz").exists());
    assert!(own.is_file(), "what is not called as ours stays");
    for file in ["index.html", "distance.svg", "entropy.svg"] {
        assert!(!place.path("out").join(file).exists(), "{file} is of three images");
    }
    assert!(place.path("out/smooth/explain.html").is_file(), "pages of other images stay");
}

#[test]
fn images_of_the_same_name_can_be_told_apart() {
    let place = OutputFolder::new();
    for folder in ["left", "right"] {
        fs::create_dir(place.path(folder)).expect("a folder");
        fs::copy(fixtures().join("pictures/noise.png"), place.path(folder).join("noise.png")).expect("copied");
    }
    let [left, right] = ["left", "right"].map(|folder| place.path(folder).to_str().expect("text").to_string());
    place.explain("tiny_vit", &[&left, &right]).succeeded();
    let index = fs::read_to_string(place.path("out/index.html")).expect("an index");
    assert!(index.contains(">left/noise.png</span>") && index.contains(">right/noise.png</span>"));
}

/// A model directory as another one, with this in its `preprocessor_config.json`.
fn model_that_prepares(place: &OutputFolder, name: &str, preprocessing: &str) -> String {
    let folder = place.path(name);
    fs::create_dir_all(&folder).expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixtures().join("tiny_vit").join(file), folder.join(file)).expect("copied");
    }
    fs::write(folder.join("preprocessor_config.json"), preprocessing).expect("written");
    folder.to_str().expect("text").to_string()
}

#[test]
fn how_much_of_an_image_is_seen_is_said() {
    let place = OutputFolder::new();
    let crops = r#"{"do_resize": false, "do_center_crop": true, "crop_size": 32, "do_rescale": true, "do_normalize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "image_processor_type": "ViTImageProcessor"}"#;
    let model = model_that_prepares(&place, "crops", crops);
    let pixels = vec![100; 80 * 160 * 3];
    let large =
        vitreous_data::image::Image::new(160, 80, vitreous_data::image::Channels::Rgb, pixels).expect("an image");
    large.save_png(&place.path("large.png")).expect("saved");
    let path = place.path("large.png").to_str().expect("text").to_string();
    let outcome = place.explain(&model, &[&path, &path]).succeeded();
    let note = "the model sees only the middle 32x32 of 80x160 pixels, 8.0 % of the image";
    assert_eq!(outcome.stderr.matches(note).count(), 1, "{}", outcome.stderr);
    assert!(place.page("large").contains("the middle 32x32 of the image's 80x160 pixels, 8.0 % of its area"));
    let outcome = place.explain("tiny_vit", &["pictures/noise.png"]).succeeded();
    assert!(!outcome.stderr.contains("the model sees only"), "{}", outcome.stderr);
}

#[test]
fn a_run_has_images_of_its_own() {
    let place = OutputFolder::new();
    let preprocessing = fs::read_to_string(fixtures().join("tiny_vit/preprocessor_config.json")).expect("read");
    model_that_prepares(&place, "run/model", &preprocessing);
    let recipe = vitreous(&["train", "--show", "small"]).succeeded().stdout;
    fs::write(place.path("run/recipe.toml"), recipe).expect("written");
    let run = place.path("run").to_str().expect("text").to_string();
    let paths = |arguments: &[&str]| -> Vec<String> {
        let lines = place.explain(&run, &[arguments, &["--json"]].concat()).succeeded().json_lines();
        lines.iter().map(|line| line["path"].as_str().expect("a name").to_string()).collect()
    };
    let four = paths(&[]);
    assert_eq!(four.len(), 4);
    assert!(four[0].starts_with("test-") && four[0].ends_with("-T-shirt_top"), "{four:?}");
    assert!(place.path("out").join(&four[3]).join("explain.html").is_file() && place.path("out/index.html").is_file());
    assert_eq!(paths(&["--samples", "12", "--pages", "0"]).len(), 12);
    place.explain("tiny_vit", &[]).failed(2, &["no image was named", "the directory of a run"]);
    place.explain(&run, &["pictures", "--samples", "3"]).failed(2, &["--samples"]);
}
