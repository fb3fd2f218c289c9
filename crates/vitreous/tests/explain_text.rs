//! `vitreous explain MODEL --text`: its page, drawings, JSON and arrays, and everything a user can get wrong. That the numbers are
//! right is tested where they are computed; here, that all doors give the same ones.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::training::tensors;
use common::translator::{DECODER_LAYERS, ENCODER_LAYERS, HEADS, translator};
use common::{ON_CPU, vitreous};
use serde_json::Value;

const TEXT: &str = "one two three";

/// A folder to write to, and runs of the command that do.
struct OutputFolder {
    folder: tempfile::TempDir,
}

impl OutputFolder {
    fn new() -> OutputFolder {
        OutputFolder { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    fn explain(&self, arguments: &[&str]) -> common::Outcome {
        let out = self.path("").to_str().expect("text").to_string();
        vitreous(&[&["explain", translator()], arguments, &["--out", &out]].concat())
    }

    /// The JSON of one sentence.
    fn json(&self, arguments: &[&str]) -> Value {
        let mut lines = self.explain(&[arguments, &["--json"]].concat()).succeeded().json_lines();
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    fn page(&self, name: &str) -> String {
        fs::read_to_string(self.path(name).join("explain.html")).expect("a page")
    }

    fn arrays(&self, name: &str) -> BTreeMap<String, Vec<f32>> {
        tensors(&self.path(name).join("arrays.npz"))
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn floats(value: &Value) -> Vec<f32> {
    list(value).iter().map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn data_of(page: &str) -> Value {
    let data = page.split("id=\"explain-data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("data")).expect("JSON")
}

fn assert_self_contained(page: &str) {
    for word in ["http://", "https://", "//cdn", "<link", "@import", "<iframe", "src="] {
        assert!(!page.contains(word), "{word} is in the page");
    }
}

#[test]
fn a_page_and_its_drawings() {
    let place = OutputFolder::new();
    let outcome = place.explain(&["--text", TEXT]).succeeded();
    let translated = vitreous(&["translate", translator(), TEXT]).succeeded().stdout;
    let (path, translation) = outcome.stdout.split_once('\t').expect("a path, a tab, a translation");
    assert!(path.ends_with("one-two-three/explain.html"), "{path}");
    assert_eq!(translation, translated);
    let mut files: Vec<String> = fs::read_dir(place.path("one-two-three"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    files.sort();
    assert_eq!(
        files,
        ["alignment.svg", "cross-attention-0.svg", "cross-attention-1.svg", "cross-attention-2.svg", "explain.html"]
    );
    let drawing = fs::read_to_string(place.path("one-two-three/cross-attention-1.svg")).expect("a drawing");
    assert!(drawing.contains(">three<") && !drawing.contains("var(--"));

    let page = place.page("one-two-three");
    assert_self_contained(&page);
    assert!(page.len() < 500_000, "{} bytes", page.len());
    for part in ["kind", "layer", "head", "map", "align-layer", "links", "source-words", "target-words", "readout"] {
        assert_eq!(page.matches(&format!("id=\"{part}\"")).count(), 1, "{part}");
    }
    assert!(page.contains("data-page=\"explain-text\""));
    assert!(page.contains("<button type=\"button\" class=\"word\" data-side=\"source\" data-word=\"2\" aria-pressed=\"false\">three</button>"));
    // Of a shallow decoder the last layer aligns best.
    assert!(page.contains("<option value=\"2\" selected>2</option>"));
    // Again, over what is there.
    let again = || {
        place.explain(&[&["--text", TEXT], &ON_CPU[..]].concat()).succeeded();
        place.page("one-two-three")
    };
    assert_eq!(again(), again());
}

#[test]
fn json_arrays_and_page_say_the_same() {
    let place = OutputFolder::new();
    let line = place.json(&["--text", TEXT, "--arrays"]);
    let arrays = place.arrays("one-two-three");
    let (sources, targets) = (arrays["source"].len(), arrays["written"].len());
    assert_eq!(floats(&line["source"]["tokens"]), arrays["source"]);
    assert_eq!(floats(&line["target"]["tokens"]), arrays["written"]);
    assert_eq!((arrays["read"][0], arrays["written"][targets - 1], arrays["source"][sources - 1]), (1.0, 2.0, 2.0));
    assert_eq!(arrays["read"][1..], arrays["written"][..targets - 1]);
    assert_eq!(floats(&line["target"]["probability"]), arrays["probability"]);
    let log_probability: f64 = arrays["probability"].iter().map(|&share| f64::from(share).ln()).sum();
    assert!((line["log_probability"].as_f64().expect("a number") - log_probability).abs() < 1e-9);

    let kinds = [
        ("encoder", ENCODER_LAYERS, sources, sources),
        ("decoder", DECODER_LAYERS, targets, targets),
        ("cross", DECODER_LAYERS, targets, sources),
    ];
    for (kind, layers, rows, columns) in kinds {
        assert_eq!(list(&line["attention"][kind]).len(), layers);
        for layer in list(&line["attention"][kind]) {
            let weights = &arrays[&format!("{kind}.{}", layer["layer"])];
            assert_eq!(weights.len(), HEADS * rows * columns);
            for (index, row) in weights.chunks_exact(columns).enumerate() {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                if kind == "decoder" {
                    assert!(row[index % rows + 1..].iter().all(|&weight| weight == 0.0), "row {index} looks ahead");
                }
            }
            let mean: Vec<f32> = list(&layer["mean"]).iter().flat_map(floats).collect();
            let (first, second) = weights.split_at(rows * columns);
            for (mean, (a, b)) in mean.iter().zip(first.iter().zip(second)) {
                assert!((mean - (a + b) / 2.0).abs() < 1e-6);
            }
        }
    }

    // The alignment is of words, and the page has the same one.
    assert_eq!(line["alignment_layer"], 2);
    let words: Vec<&str> =
        list(&line["source"]["words"]).iter().map(|word| word["text"].as_str().expect("text")).collect();
    assert_eq!(words[..3], ["one", "two", "three"]);
    let data = data_of(&place.page("one-two-three"));
    for (layer, of_page) in list(&line["alignment"]).iter().zip(list(&data["links"])) {
        let links = list(&layer["links"]);
        assert_eq!(links.len(), list(&line["target"]["words"]).len() - 1);
        for (link, of_page) in links.iter().zip(list(of_page)) {
            assert_eq!((&link["target"], &link["source"]), (&of_page[0], &of_page[1]));
            assert!(link["source"].as_u64().expect("a word") < 3, "the end is no word");
        }
    }
}

#[test]
fn any_device_says_the_same() {
    let place = OutputFolder::new();
    let probabilities = |device: &str| {
        let line = place.json(&["--text", TEXT, "--device", device]);
        (line["translation"].to_string(), floats(&line["target"]["probability"]))
    };
    let ((translation, on_cpu), (other, on_any)) = (probabilities("cpu"), probabilities("auto"));
    assert_eq!(translation, other);
    assert!(on_cpu.iter().zip(&on_any).all(|(a, b)| (a - b).abs() < 1e-5), "{on_cpu:?} and {on_any:?}");
}

#[test]
fn a_target_can_be_given() {
    let place = OutputFolder::new();
    let line = place.json(&["--text", TEXT, "--target", "7 8"]);
    assert_eq!((&line["translation"], &line["given"]), (&Value::from("7 8"), &Value::from(true)));
    assert_eq!(place.json(&["--text", TEXT])["given"], false);
    // What the model holds likely is what it was given, and what it would have said is beside it.
    assert_eq!(list(&line["target"]["likeliest"]).len(), list(&line["target"]["probability"]).len());
    let page = {
        place.explain(&["--text", TEXT, "--target", "7 8"]).succeeded();
        place.page("one-two-three")
    };
    assert!(page.contains("Translation, as given") && page.contains("Where another token is more probable"));
    place.explain(&["--text", "a", "--text", "b", "--target", "c"]).failed(2, &["2 --text and 1 --target"]);
    place.explain(&["--target", "c"]).failed(2, &["--text"]);
}

#[test]
fn values_of_another_sentence_are_taken_over() {
    let place = OutputFolder::new();
    let (other, target) = ("three two one", "7 8");
    let words = |more: &[&str]| {
        let line = place.json(&[&["--target", target, "--text"], more].concat());
        floats(&line["target"]["probability"])
    };
    let (own, theirs) = (words(&[TEXT]), words(&[other]));
    assert_ne!(own, theirs);
    let patch = ["--patch-from", other, "--at"];
    // What the encoder says is all that the decoder has of a sentence.
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(&words(&[&[TEXT], &patch[..], &["encoder.1"]].concat()), &theirs));
    let last = words(&[&[TEXT], &patch[..], &["decoder.2@0"]].concat());
    assert!(close(&last[..1], &theirs[..1]) && close(&last[1..], &own[1..]), "{last:?}, {own:?}, {theirs:?}");
    assert!(close(&words(&[&[TEXT], &["--patch-from", TEXT, "--at"][..], &["encoder.0.mlp"]].concat()), &own));
    // The other sentence may be translated otherwise: from the second token on, the decoder has then read the other translation.
    let beside = |at| words(&[TEXT, "--patch-from", TEXT, "--patch-pair", "8 7", "--at", at]);
    let read = beside("decoder.0");
    assert!(close(&read[..1], &own[..1]) && !close(&read[1..], &own[1..]), "{read:?}, {own:?}");
    assert!(close(&read, &beside("decoder.2")));
    let refused = |more: &[&str], says: &[&str]| {
        place.explain(&[&["--text", TEXT], more].concat()).failed(2, says);
    };
    refused(&[&patch[..], &["encoder.1"]].concat(), &["--target"]);
    refused(&["--target", target, "--patch-from", other], &["--at"]);
    refused(&["--target", target, "--patch-from", "one", "--at", "encoder.1"], &["as many tokens"]);
    refused(&[&["--target", target], &patch[..], &["encoder.9"]].concat(), &["`encoder.9`"]);
    refused(&["--patch-pair", target], &["--patch-from"]);
}

#[test]
fn many_texts_have_folders_of_their_own() {
    let place = OutputFolder::new();
    let outcome = place.explain(&["--text", TEXT, "--text", TEXT, "--text", "../../up"]).succeeded();
    assert_eq!(outcome.stdout.lines().count(), 3);
    assert!(outcome.stderr.starts_with("3 sentences in "), "{}", outcome.stderr);
    for name in ["one-two-three", "one-two-three-2", "_.._up"] {
        assert!(place.path(name).join("explain.html").is_file(), "{name}");
    }
}

#[test]
fn layers_and_heads_can_be_chosen() {
    let place = OutputFolder::new();
    let asked = ["--text", TEXT, "--layers", "last", "--heads", "1", "--arrays"];
    let line = place.json(&[&asked, &ON_CPU[..]].concat());
    let layers = |kind: &str| -> Vec<Value> {
        list(&line["attention"][kind]).iter().map(|layer| layer["layer"].clone()).collect()
    };
    assert_eq!(
        (layers("encoder"), layers("decoder"), layers("cross")),
        (vec![1.into()], vec![2.into()], vec![2.into()])
    );
    let arrays = place.arrays("one-two-three");
    assert_eq!(arrays["cross.2"].len(), arrays["written"].len() * arrays["source"].len());
    // The alignment is of all layers and heads, whatever is shown.
    assert_eq!(line["alignment"], place.json(&[&["--text", TEXT], &ON_CPU[..]].concat())["alignment"]);
    // Only the decoder has a third layer.
    let line = place.json(&["--text", TEXT, "--layers", "2"]);
    assert!(list(&line["attention"]["encoder"]).is_empty());
    assert!(!place.page("one-two-three").contains("<option value=\"encoder\">"));
}

#[test]
fn text_of_any_script_stays_in_its_place() {
    let place = OutputFolder::new();
    let texts = [
        "</script><script>alert(1)</script> <img src=x onerror=alert(1)>",
        "\u{1f600} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} &amp; \"'",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{5e2}\u{5d5}\u{5dc}\u{5dd} \u{202e}abc",
        "\u{1b}[31m\tred\nline",
        "--layers",
    ];
    for text in texts {
        let line = place.json(&["--text", text, "--target", text]);
        assert_eq!(line["text"], text.trim());
        let page = fs::read_to_string(line["page"].as_str().expect("a page")).expect("a page");
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{text}");
        assert_eq!(page.matches("</script>").count(), 2);
        let data = data_of(&page);
        for side in ["source", "written"] {
            let words = list(&data[side]["words"]);
            let pieces: u64 = words.iter().map(|word| word[2].as_u64().unwrap() - word[1].as_u64().unwrap()).sum();
            assert_eq!(pieces as usize, list(&data[side]["pieces"]).len());
        }
    }
    let outcome = place.explain(&["--text", texts[3], "--target", texts[3]]).succeeded();
    assert_eq!(outcome.stdout.lines().count(), 1);
    assert!(!outcome.stdout.contains('\u{1b}'));
}

#[test]
fn long_texts_are_bounded() {
    let place = OutputFolder::new();
    let long = "one ".repeat(300);
    place.explain(&["--text", &long]).failed(2, &["--text has", "at most 256", "a sentence at a time"]);
    place.explain(&["--text", "one", "--target", &long]).failed(2, &["--target has", "at most 256"]);
    assert!(!place.path("").exists(), "nothing is written before all is known to be right");
    let fits = "one ".repeat(200);
    let line = place.json(&["--text", &fits, "--target", &fits]);
    assert_eq!(list(&line["source"]["words"]).len(), 201);
}

#[test]
fn wrong_usage_says_what_to_do() {
    let place = OutputFolder::new();
    place.explain(&["--text", ""]).failed(2, &["--text is empty"]);
    place.explain(&["--text", " \t\n"]).failed(2, &["--text is empty"]);
    place.explain(&["--text", TEXT, "--target", " "]).failed(2, &["--target is empty"]);
    place.explain(&["--text", TEXT, "--layers", "3"]).failed(2, &["there is no layer 3", "0 to 2"]);
    place.explain(&["--text", TEXT, "--heads", "2"]).failed(2, &["there is no head 2", "0 to 1"]);
    place.explain(&["pictures/noise.png"]).failed(2, &["this is a translator", "--text"]);
    place.explain(&[]).failed(2, &["this is a translator", "--text"]);
    place.explain(&["pictures/noise.png", "--text", TEXT]).failed(2, &["--text", "cannot be used with", "IMAGE"]);
    place.explain(&["--text", TEXT, "--class", "cat"]).failed(2, &["--class", "cannot be used with"]);
    vitreous(&["explain", "tiny_vit", "--text", TEXT]).failed(2, &["tiny_vit: this is no translator"]);
    vitreous(&["explain", "tiny_vit"]).failed(2, &["no image was named", "--text"]);
    vitreous(&["explain", "missing", "--text", TEXT]).failed(2, &["missing: no such file"]);
    assert!(!place.path("").exists(), "nothing is written before all is known to be right");
}

#[test]
fn what_is_not_ours_is_not_overwritten() {
    let place = OutputFolder::new();
    fs::create_dir_all(place.path("one-two-three")).expect("a folder");
    let foreign = place.path("one-two-three/explain.html");
    fs::write(&foreign, "my own notes").expect("written");
    place.explain(&["--text", TEXT]).failed(2, &["explain.html", "not overwritten"]);
    assert_eq!(fs::read_to_string(&foreign).expect("a file"), "my own notes");
}
