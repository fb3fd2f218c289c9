//! Data that changes under a run, files that are edited, moved or made by strangers: a sentence and an exit code, and nothing is lost.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::training::{TINY, pictures, saved_step, start, train_tiny, wait_for_step};
use common::{fixtures, vitreous};

/// A finished run on pictures, which can be resumed with more epochs.
fn run_on_pictures(folder: &Path) -> (String, std::path::PathBuf) {
    let photos = folder.join("photos");
    pictures(&photos);
    let run = folder.join("run").to_str().expect("UTF-8").to_string();
    let data = photos.to_str().expect("UTF-8");
    let words = ["train", "small", "--data", data, "--out", &run, "train.batch=4", "model.image=32"];
    let mut child = start(&[&words[..], &TINY[..6], &["train.epochs=300", "output.checkpoint_steps=1"]].concat());
    wait_for_step(Path::new(&run), &mut child, 3);
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(saved_step(Path::new(&run)) >= 3);
    (run, photos)
}

/// Stops a resumed run as soon as it goes on.
fn resumes(run: &str, more: &[&str]) -> bool {
    let before = saved_step(Path::new(run));
    let mut child = start(&[&["train", "--resume", run], more].concat());
    wait_for_step(Path::new(run), &mut child, before + 1);
    let went_on = child.try_wait().expect("a child").is_none() || saved_step(Path::new(run)) > before;
    let _ = child.kill();
    child.wait().expect("ends");
    went_on
}

#[test]
fn a_run_notices_other_data_and_another_recipe() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, photos) = run_on_pictures(directory.path());
    let resume = || vitreous(&["train", "--resume", &run]);
    assert!(resumes(&run, &[]), "unchanged");

    // A class with another name.
    std::fs::rename(photos.join("train/red"), photos.join("train/rot")).expect("renamed");
    resume().failed(2, &["class names", "--accept-changes"]);
    std::fs::rename(photos.join("val/red"), photos.join("val/rot")).expect("renamed");
    resume().failed(2, &["class names", "--accept-changes"]);
    for part in ["train", "val"] {
        std::fs::rename(photos.join(part).join("rot"), photos.join(part).join("red")).expect("renamed");
    }

    // Files that change places between classes: same names, same sizes.
    let files = |class: &str| {
        let mut all: Vec<_> = std::fs::read_dir(photos.join("train").join(class))
            .expect("a folder")
            .map(|file| file.expect("one").path())
            .collect();
        all.sort();
        all
    };
    let from = files("red")[0].clone();
    let moved = photos.join("train/green").join("moved.bmp");
    std::fs::rename(&from, &moved).expect("moved");
    resume().failed(2, &["names of training images"]);
    std::fs::rename(&moved, &from).expect("moved back");
    // The seed.
    let recipe = Path::new(&run).join("recipe.toml");
    let text = std::fs::read_to_string(&recipe).expect("a recipe");
    let seed = text.lines().find(|line| line.starts_with("seed = ")).expect("a seed");
    std::fs::write(&recipe, text.replace(seed, "seed = 77")).expect("written");
    resume().failed(2, &["`train.seed`", "and is 77"]);

    // Nevertheless, and it is written down.
    assert!(resumes(&run, &["--accept-changes"]), "accepted");
    let machine = std::fs::read_to_string(Path::new(&run).join("machine.json")).expect("sessions");
    assert!(machine.contains("accepted_changes") && machine.contains("train.seed"), "{machine}");
    // From then on that is what the run is trained with.
    assert!(resumes(&run, &[]), "once accepted");
    vitreous(&["train", "small", "--accept-changes"]).failed(2, &["--resume"]);
}

#[test]
fn an_image_that_was_replaced_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, photos) = run_on_pictures(directory.path());
    let file =
        std::fs::read_dir(photos.join("train/blue")).expect("a folder").next().expect("one").expect("one").path();
    let mut bytes = std::fs::read(&file).expect("a picture");
    bytes.extend([0; 7]);
    std::fs::write(&file, bytes).expect("written");
    vitreous(&["train", "--resume", &run]).failed(2, &["contents of", "images"]);
}

#[test]
fn everything_in_a_checkpoint_is_covered_by_its_checksum() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &[]).succeeded();
    let out = run.to_str().expect("UTF-8");
    let step = saved_step(&run);
    let file = run.join(format!("checkpoints/step-{step:010}.safetensors"));
    let bytes = std::fs::read(&file).expect("a checkpoint");
    let changed = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let place = bytes.windows(from.len()).position(|some| some == from.as_bytes());
        let place = place.unwrap_or_else(|| panic!("{from} is not in the checkpoint"));
        let mut bytes = bytes.clone();
        bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&file, bytes).expect("written");
        vitreous(&["train", "--resume", out])
    };
    let step_text = format!("\\\"step\\\":{step}");
    changed(&step_text, &step_text.replace(&step.to_string(), "11")).failed(1, &["its name says", "step 11"]);
    changed("\\\"right\\\":0", "\\\"right\\\":7").failed(1, &["checksum differs"]);
    changed("labels of training", "labels of draining").failed(1, &["checksum differs"]);
    std::fs::write(&file, &bytes).expect("written");
    vitreous(&["train", "--resume", out]).succeeded();
    // Under another step's name.
    std::fs::rename(&file, run.join("checkpoints/step-0000009999.safetensors")).expect("renamed");
    vitreous(&["train", "--resume", out]).failed(1, &["its name says 9999"]);
}

#[test]
fn a_run_directory_that_is_moved_or_removed_is_not_made_anew() {
    for how in ["moved", "removed", "recipe"] {
        let directory = tempfile::tempdir().expect("a directory");
        let run = directory.path().join("run");
        let out = run.to_str().expect("UTF-8");
        let words = ["train", "small", "--out", out, "train.epochs=1000", "output.checkpoint_steps=1"];
        let mut child = start(&[&words[..], &TINY[..7]].concat());
        wait_for_step(&run, &mut child, 2);
        match how {
            "moved" => std::fs::rename(&run, directory.path().join("elsewhere")).expect("moved"),
            // It may write while its folders are removed.
            "removed" => {
                while run.exists() {
                    let _ = std::fs::remove_dir_all(&run);
                }
            }
            _ => std::fs::remove_file(run.join("recipe.toml")).expect("removed"),
        }
        let ended = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{how}: {said}");
        assert!(said.contains("error: "), "{how}: {said}");
        assert_eq!(run.exists(), how == "recipe", "{how}: {said}");
        assert!(!run.join("recipe.toml").exists(), "{how}");
        if how == "moved" {
            let moved = directory.path().join("elsewhere");
            assert!(resumes(moved.to_str().expect("UTF-8"), &[]), "what was moved");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_lost_connection_saves() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let words = ["train", "small", "--out", out, "train.epochs=1000", "output.checkpoint_steps=0"];
    let child = start(&[&words[..], &TINY[..7]].concat());
    while !run.join("recipe.toml").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().expect("kill").success());
    let ended = child.wait_with_output().expect("ends");
    assert_eq!(ended.status.code(), Some(130));
    assert!(saved_step(&run) > 0);
}

/// Runs the command under `ulimit` and other settings of a shell.
#[cfg(unix)]
fn in_shell(script: &str) -> (Option<i32>, String) {
    let script = script.replace("vitreous", env!("CARGO_BIN_EXE_vitreous"));
    let ended = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (ended.status.code(), said)
}

#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_files_is_an_error_like_a_full_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let words = [&["vitreous train small --out", out], &TINY[..]].concat().join(" ");
    let (code, said) = in_shell(&format!("ulimit -f 8; {words} output.checkpoint_steps=0"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("error: ") && said.contains("make room, then start again"), "{said}");
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert_eq!(error.matches("File too large").count(), 1, "{error}");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = fixtures().join("tiny_fashion");
    let model = model.to_str().expect("UTF-8");
    let place = |name: &str| directory.path().join(name);
    assert!(Command::new("mkfifo").arg(place("pipe.png")).status().expect("mkfifo").success());
    std::os::unix::fs::symlink("/dev/zero", place("zero.png")).expect("a link");
    let sparse = std::fs::File::create(place("sparse.png")).expect("a file");
    sparse.set_len(30 << 30).expect("a sparse file");
    let mut claimed = std::fs::File::create(place("claimed.png")).expect("a file");
    std::io::Write::write_all(&mut claimed, b"\x89PNG\r\n\x1a\n").expect("written");
    claimed.set_len(30 << 30).expect("a sparse file");
    for (name, says) in
        [("pipe.png", "not a file"), ("zero.png", "not a file"), ("sparse.png", "format"), ("claimed.png", "MiB")]
    {
        let file = place(name);
        vitreous(&["predict", model, file.to_str().expect("UTF-8")]).failed(1, &[name, says]);
    }
    assert!(Command::new("mkfifo").arg(place("pairs.tsv")).status().expect("mkfifo").success());
    let pairs = place("pairs.tsv");
    let pairs = pairs.to_str().expect("UTF-8");
    vitreous(&["train", "translation", "--data", pairs]).failed(2, &["pairs.tsv", "not a file"]);
}

#[test]
fn labels_decide_how_many_images_are_unpacked() {
    use std::io::Write;
    let directory = tempfile::tempdir().expect("a directory");
    let pack = |name: &str, head: &[u8], zeros: usize| {
        let file = std::fs::File::create(directory.path().join(name)).expect("a file");
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        packed.write_all(head).expect("written");
        let some = vec![0; 1 << 20];
        (0..zeros >> 20).for_each(|_| packed.write_all(&some).expect("written"));
        packed.finish().expect("packed");
    };
    // 300 MB of zeros: too few to harm a test, and enough to be told from three images.
    pack("train-images-idx3-ubyte.gz", &[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28], 300 << 20);
    pack("train-labels-idx1-ubyte.gz", &[0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2], 0);
    vitreous(&["data", directory.path().to_str().expect("UTF-8")]).failed(2, &["3, 28, 28", "it has more"]);
}

#[test]
fn names_of_any_length_and_content_are_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let escape = "\u{1b}[31mred\u{7}";
    let manifest = directory.path().join("list.csv");
    pictures(&directory.path().join("photos"));
    let picture = std::fs::read_dir(directory.path().join("photos/train/red")).expect("a folder").next();
    let picture = picture.expect("one").expect("one").path();
    let long = "x".repeat(70_000);
    let line = |label: &str| format!("{},\"{label}\"\n", picture.display());
    std::fs::write(&manifest, format!("path,label\n{}{}{}", line(&long), line(escape), line("cat\u{202e}god")))
        .expect("written");
    let outcome = vitreous(&["data", manifest.to_str().expect("UTF-8")]).succeeded();
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() < 1000));
    }
    assert!(outcome.stdout.contains("[31mred") && outcome.stdout.contains("202e"), "{}", outcome.stdout);
    // Arguments, too, which may be names of files.
    let outcome = vitreous(&["predict", &format!("--{escape}")]);
    assert!(!outcome.stderr.contains(['\u{1b}', '\u{7}']), "{:?}", outcome.stderr);
    outcome.failed(2, &["unexpected argument"]);
}

#[test]
fn folders_as_deep_as_paths_can_be_are_searched() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut deep = directory.path().join("photos");
    // As many levels as a path may have.
    let levels = (3500 - deep.as_os_str().len()) / 2;
    (0..levels).for_each(|_| deep.push("d"));
    std::fs::create_dir_all(&deep).expect("folders");
    vitreous(&["data", directory.path().join("photos").to_str().expect("UTF-8")]).failed(2, &["photos"]);
}

#[test]
fn sizes_beyond_any_machine_are_refused_before_anything_is_built() {
    let directory = tempfile::tempdir().expect("a directory");
    for dim in ["1073741824", "2147483648", "9223372036854775807", "1e300", "-1"] {
        let config = format!(
            "{{\"model_type\": \"transformer\", \"source_vocabulary\": 100, \"target_vocabulary\": 100, \"dim\": {dim}, \"heads\": 1, \
             \"encoder_layers\": 1, \"decoder_layers\": 1, \"mlp_dim\": 8, \"max_length\": 64}}"
        );
        std::fs::write(directory.path().join("config.json"), config).expect("written");
        vitreous(&["summary", directory.path().to_str().expect("UTF-8")]).failed(2, &["config.json"]);
    }
}

#[test]
fn labels_of_any_length_are_cut_in_explanations() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    std::fs::create_dir(&model).expect("a folder");
    for entry in std::fs::read_dir(fixtures().join("tiny_fashion")).expect("a folder").flatten() {
        std::fs::copy(entry.path(), model.join(entry.file_name())).expect("copied");
    }
    let config = model.join("config.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).expect("read")).expect("JSON");
    for class in ["0", "1", "2"] {
        json["id2label"][class] = serde_json::Value::from(class.repeat(200_000));
    }
    json.as_object_mut().expect("an object").remove("label2id");
    std::fs::write(&config, json.to_string()).expect("written");
    pictures(&directory.path().join("photos"));
    let picture = directory.path().join("photos/train/red/0.bmp");
    let out = directory.path().join("out");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let words = ["explain".to_string(), text(&model), text(&picture), "--out".to_string(), text(&out)];
    vitreous(&words.each_ref().map(String::as_str)).succeeded();
    let page = std::fs::read_to_string(out.join("0/explain.html")).expect("a page");
    assert!(["0", "1", "2"].iter().all(|class| !page.contains(&class.repeat(101))), "a whole label");
}
