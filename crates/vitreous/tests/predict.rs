//! `vitreous predict` against `transformers` (fixtures by make_predictions.py), and with everything a user can get wrong.

mod common;

use std::fs;
use std::path::Path;

use common::{ON_CPU, answered_line_by_line, changed_copy, fixtures, vitreous, vitreous_with_input};
use serde_json::Value;

fn expected() -> Value {
    expected_in("predictions.json")
}

fn expected_in(file: &str) -> Value {
    serde_json::from_slice(&fs::read(fixtures().join(file)).expect("a fixture")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn assert_close(ours: &[f64], theirs: &[f64], limit: f64) {
    assert_eq!(ours.len(), theirs.len());
    let largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest <= limit, "{largest:e}: {ours:?} and {theirs:?}");
}

/// All lines of a run over the folder of pictures, against what `transformers` said.
fn compare(arguments: &[&str], limit: f64) {
    let expected = expected();
    let mut all = vec!["predict", "tiny_vit", "pictures", "--json"];
    all.extend(arguments);
    let lines = vitreous(&all).succeeded().json_lines();
    let paths: Vec<&str> = lines.iter().map(|line| line["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["pictures/deeper/grey.BMP", "pictures/noise.png", "pictures/smooth.png"]);
    for (line, path) in lines.iter().zip(paths) {
        let theirs = &expected[path.strip_prefix("pictures/").expect("the folder")];
        if arguments.contains(&"--features") {
            assert_close(&numbers(&line["features"]), &numbers(&theirs["features"]), limit);
            continue;
        }
        assert_close(&numbers(&line["logits"]), &numbers(&theirs["logits"]), limit);
        let scores = numbers(&theirs["scores"]);
        let top = line["top"].as_array().expect("a list");
        assert_eq!(top.len(), 5);
        for pair in top.windows(2) {
            assert!(pair[0]["score"].as_f64() >= pair[1]["score"].as_f64());
        }
        for class in top {
            let index = class["index"].as_u64().expect("an index") as usize;
            assert_close(&[class["score"].as_f64().expect("a score")], &[scores[index]], limit);
        }
    }
}

#[test]
fn logits_scores_and_features_are_those_of_transformers() {
    compare(&[], 1e-4);
    compare(&["--features"], 1e-4);
    for batch in ["1", "2", "64"] {
        compare(&["--batch", batch, "--threads", "3"], 1e-4);
    }
}

#[test]
fn bf16_is_near() {
    compare(&["--precision", "bf16"], 0.15);
}

#[test]
fn labels_are_the_models_own() {
    let line =
        &vitreous(&["predict", "tiny_vit", "pictures/noise.png", "--json", "--top", "99"]).succeeded().json_lines()[0];
    let mut labels: Vec<&str> =
        line["top"].as_array().expect("a list").iter().map(|class| class["label"].as_str().expect("a label")).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["a \"quoted\" thing", "cat", "dog", "fifth", "seventh", "sixth", "tüte, bag"]);
    let text = vitreous(&["predict", "tiny_vit", "pictures/noise.png", "--top", "2"]).succeeded();
    assert_eq!(text.stdout.lines().count(), 3, "{}", text.stdout);
    assert!(text.stderr.starts_with("1 image in "), "{}", text.stderr);
}

#[test]
fn files_folders_patterns_and_lists_name_images() {
    let one = |arguments: &[&str], input: &str| -> Vec<String> {
        let mut all = vec!["predict", "tiny_vit", "--json"];
        all.extend(arguments);
        let lines = vitreous_with_input(&all, input).succeeded().json_lines();
        lines.iter().map(|line| line["path"].as_str().expect("a path").to_string()).collect()
    };
    assert_eq!(one(&["pictures/*.png"], ""), ["pictures/noise.png", "pictures/smooth.png"]);
    assert_eq!(one(&["pictures/**/grey*"], ""), ["pictures/deeper/grey.BMP"]);
    assert_eq!(
        one(&["-"], "pictures/smooth.png\n\npictures/deeper\r\n"),
        ["pictures/smooth.png", "pictures/deeper/grey.BMP"]
    );
    assert_eq!(
        one(&["pictures/noise.png", "-", "pictures/noise.png"], "pictures/smooth.png"),
        ["pictures/noise.png", "pictures/smooth.png", "pictures/noise.png"]
    );
}

#[test]
fn what_cannot_be_read_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    fs::write(path("empty.png"), b"").expect("written");
    fs::write(path("text.jpg"), b"this is no image").expect("written");
    let whole = fs::read(fixtures().join("pictures/noise.png")).expect("a fixture");
    fs::write(path("cut.png"), &whole[..whole.len() / 2]).expect("written");
    let good = "pictures/noise.png";
    let arguments = ["predict", "tiny_vit", &path(""), good, "missing.png", "none*.png", "--json"];
    let outcome = vitreous(&arguments);
    assert_eq!(outcome.code, 1);
    let lines = outcome.json_lines();
    assert_eq!(lines.len(), 6);
    for (line, name) in lines.iter().zip(["cut.png", "empty.png", "text.jpg", good, "missing.png", "none*.png"]) {
        assert!(line["path"].as_str().expect("a path").ends_with(name), "{line}");
        assert_eq!(line["error"].is_string(), name != good, "{line}");
        assert_eq!(line["logits"].is_array(), name == good, "{line}");
    }
    let text = vitreous(&arguments[..6]).failed(1, &["cut.png: ", "empty.png: ", "missing.png: "]);
    assert!(text.stdout.starts_with(good), "{}", text.stdout);
}

#[test]
fn wrong_usage_says_what_to_do() {
    vitreous(&["predict", "no_such_model", "pictures"]).failed(2, &["no_such_model", "no such file or directory"]);
    vitreous(&["predict", "vit_base_patch16_224", "pictures"]).failed(2, &["is a preset, which has no weights"]);
    vitreous(&["predict", "pictures", "pictures"]).failed(2, &["pictures"]);
    vitreous(&["predict", "tiny_vit"]).failed(2, &["PATH"]);
    vitreous(&["predict", "tiny_vit", "pictures", "--batch", "0"]).failed(2, &["at least 1"]);
    vitreous(&["predict", "tiny_vit", "pictures", "--threads", "100000"]).failed(2, &["at most 1024 threads"]);
    vitreous(&["predict", "tiny_vit", "pictures", "--image", "30x32"]).failed(2, &["30x32", "8x8 patches"]);
    vitreous(&["predict", "tiny_vit", "pictures", "--precision", "f64"]).failed(2, &["f32", "bf16"]);
}

/// The logits of a model for all pictures, against `transformers` at 48x48 with `interpolate_pos_encoding`.
fn compare_at_48(model: &str, arguments: &[&str]) {
    let expected = expected_in("predictions_at_48.json");
    let mut all = vec!["predict", model, "pictures", "--json"];
    all.extend(arguments);
    let lines = vitreous(&all).succeeded().json_lines();
    assert_eq!(lines.len(), 3);
    for line in lines {
        let path = line["path"].as_str().expect("a path").strip_prefix("pictures/").expect("the folder").to_string();
        assert_close(&numbers(&line["logits"]), &numbers(&expected[&path]["logits"]), 1e-4);
    }
}

#[test]
fn a_model_runs_at_the_size_that_its_preprocessor_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let larger = folder.path().join("larger");
    changed_copy("tiny_vit", &larger, "preprocessor_config.json", |preprocessor| {
        preprocessor["size"] = serde_json::json!({"height": 48, "width": 48});
    });
    compare_at_48(larger.to_str().expect("text"), &[]);
    compare_at_48("tiny_vit", &["--image", "48"]);
}

#[test]
fn a_model_that_was_converted_to_another_size_has_a_preprocessor_of_that_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let larger = folder.path().join("larger").to_str().expect("text").to_string();
    vitreous(&["convert", "tiny_vit", &larger, "--image", "48"]).succeeded();
    let text = fs::read(format!("{larger}/preprocessor_config.json")).expect("a preprocessor");
    let preprocessor: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(preprocessor["size"], serde_json::json!({"height": 48, "width": 48}));
    compare_at_48(&larger, &[]);
}

#[test]
fn another_size_resizes_positions() {
    let outcome = vitreous(&["predict", "tiny_vit", "pictures", "--image", "64x40", "--json"]).succeeded();
    assert_eq!(outcome.json_lines().len(), 3);
}

#[test]
fn a_model_without_a_head_gives_features_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("bare");
    let bare = bare.to_str().expect("text");
    vitreous(&["convert", "tiny_vit", bare, "--no-head"]).succeeded();
    vitreous(&["predict", bare, "pictures"]).failed(2, &["no head", "--features"]);
    let ours = vitreous(&["predict", bare, "pictures/noise.png", "--features", "--json"]).succeeded().json_lines();
    assert_close(&numbers(&ours[0]["features"]), &numbers(&expected()["noise.png"]["features"]), 1e-4);
}

#[test]
fn whoever_stops_reading_is_not_complained_to() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(["predict", "tiny_vit", "pictures", "pictures", "pictures", "--json", "--batch", "1"])
        .current_dir(fixtures())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vitreous starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("vitreous ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn weights_of_a_directory_are_that_model() {
    let of = |model: &str| {
        let words = ["predict", model, "pictures", "--json"];
        vitreous(&[&words, &ON_CPU[..]].concat()).succeeded().stdout
    };
    assert_eq!(of("tiny_vit/model.safetensors"), of("tiny_vit"));
}

#[test]
fn more_threads_than_a_system_starts_are_refused() {
    vitreous(&["predict", "tiny_vit", "pictures", "--threads", "100000"]).failed(2, &["at most 1024 threads"]);
}

#[test]
fn options_forgive_capitals_and_explain_negative_numbers() {
    vitreous(&["predict", "tiny_vit", "pictures/noise.png", "--precision", "F32"]).succeeded();
    vitreous(&["predict", "tiny_vit", "pictures", "--top", "-1"]).failed(2, &["`-1` is not a whole number"]);
    vitreous(&["predict", "tiny_vit", "pictures", "--image", "-8"]).failed(2, &["`-8` is no size"]);
}

#[test]
fn a_model_of_the_hub_is_not_downloaded_but_explained() {
    for command in ["predict", "summary"] {
        let arguments = [command, "google/vit-base-patch16-224", "pictures"];
        let count = if command == "predict" { 3 } else { 2 };
        vitreous(&arguments[..count]).failed(2, &["hf download google/vit-base-patch16-224"]);
    }
}

/// Whoever names an image and waits for its answer before naming the next gets it.
#[test]
fn answers_do_not_wait_for_a_whole_batch_of_a_slow_list() {
    let names = ["pictures/noise.png", "pictures/missing.png", "pictures/smooth.png"];
    let (answers, code) = answered_line_by_line(&["predict", "tiny_vit", "-", "--json", "--batch", "64"], &names);
    assert!(answers.iter().zip(names).all(|(answer, name)| answer["path"] == name), "{answers:?}");
    assert_eq!(code, Some(1));
}

#[test]
fn blank_lines_of_a_list_are_no_images() {
    let lines = vitreous_with_input(&["predict", "tiny_vit", "-", "--json"], "  \r\n\npictures/noise.png\r\n");
    assert_eq!(lines.succeeded().json_lines().len(), 1);
}

/// What a phone writes, as far as it is recognised.
const HEIC: &[u8] = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";

#[test]
fn images_in_other_formats_are_never_skipped_silently() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("text");
    fs::create_dir(folder.path().join("deep")).expect("a folder");
    for name in ["IMG_1.HEIC", "deep/IMG_2.heic"] {
        fs::write(folder.path().join(name), HEIC).expect("a file");
    }
    fs::write(folder.path().join("notes.txt"), "x").expect("a file");
    let only = vitreous(&["predict", "tiny_vit", path]).failed(1, &["no images in supported formats"]);
    assert!(only.stderr.contains("2 HEIC images were skipped") && only.stderr.contains("magick"), "{}", only.stderr);

    fs::copy(fixtures().join("pictures/noise.png"), folder.path().join("noise.png")).expect("copied");
    let beside = vitreous(&["predict", "tiny_vit", path]).succeeded();
    assert_eq!(beside.stderr.matches("2 HEIC images were skipped").count(), 1, "{}", beside.stderr);

    let file = folder.path().join("IMG_1.HEIC");
    let named = vitreous(&["predict", "tiny_vit", file.to_str().expect("text")]);
    named.failed(1, &["IMG_1.HEIC", "HEIC is not supported", "`magick IMG_1.HEIC IMG_1.jpg`"]);
}

#[test]
fn tiff_images_are_classified() {
    let folder = tempfile::tempdir().expect("a folder");
    let tiff = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/tiff/rgb_lzw.tif");
    fs::copy(tiff, folder.path().join("scan.tif")).expect("copied");
    let run = vitreous(&["predict", "tiny_vit", folder.path().to_str().expect("text")]).succeeded();
    assert!(run.stdout.contains("scan.tif"), "{}", run.stdout);
}

#[cfg(unix)]
mod on_unix {
    use std::ffi::OsStr;
    use std::fs;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Stdio};

    use super::common::{fixtures, vitreous};

    fn command(arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitreous"));
        command.args(["predict", "tiny_vit"]).args(arguments).current_dir(fixtures());
        command
    }

    #[test]
    fn a_pipe_in_a_folder_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = Command::new("mkfifo").arg(folder.path().join("pipe.png")).status().expect("mkfifo runs");
        assert!(made.success());
        let text = folder.path().to_str().expect("text");
        vitreous(&["predict", "tiny_vit", text]).failed(1, &["no image in this folder"]);
    }

    #[test]
    fn names_need_not_be_utf8() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(OsStr::from_bytes(b"caf\xe9.png"));
        if fs::copy(fixtures().join("pictures/noise.png"), &path).is_err() {
            return; // this file system knows only UTF-8
        }
        let named = command(&[path.as_os_str()]).output().expect("vitreous runs");
        assert_eq!(named.status.code(), Some(0), "{}", String::from_utf8_lossy(&named.stderr));
        let mut child = command(&[OsStr::new("-")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("vitreous starts");
        let list = [path.as_os_str().as_bytes(), b"\npictures/smooth.png\n"].concat();
        child.stdin.take().expect("an input").write_all(&list).expect("written");
        let listed = child.wait_with_output().expect("vitreous ends");
        assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stderr));
        assert!(String::from_utf8_lossy(&listed.stdout).contains("smooth.png"));
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::copy(fixtures().join("pictures/noise.png"), folder.path().join("\u{1b}[2J\n.png")).expect("copied");
        let text = vitreous(&["predict", "tiny_vit", folder.path().to_str().expect("text"), "--top", "1"]).succeeded();
        assert!(text.stdout.contains("\\u{1b}[2J\\n.png"), "{:?}", text.stdout);
        assert_eq!(text.stdout.lines().count(), 2, "{:?}", text.stdout);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn talk_that_nobody_can_hear_ends_no_work() {
        let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").expect("the full device"));
        let picture = OsStr::new("pictures/noise.png");
        let good = command(&[picture]).stdout(Stdio::null()).stderr(full()).status().expect("vitreous runs");
        assert_eq!(good.code(), Some(0));
        let missing = command(&[OsStr::new("missing.png")]).stderr(full()).status().expect("vitreous runs");
        assert_eq!(missing.code(), Some(1));
    }
}
