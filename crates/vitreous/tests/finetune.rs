//! `vitreous train` on data of one's own, and from a model that was trained before.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::training::{COLOURS, checkpoints, metrics, picture, pictures, tensors};
use common::{Outcome, fixtures, vitreous};
use serde_json::Value;

/// A run directory beside the pictures that it learns from.
struct FineTuning {
    directory: tempfile::TempDir,
}

impl FineTuning {
    fn new() -> FineTuning {
        let directory = tempfile::tempdir().expect("a directory");
        pictures(&directory.path().join("photos"));
        FineTuning { directory }
    }

    fn photos(&self) -> PathBuf {
        self.directory.path().join("photos")
    }

    fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Fine-tunes the fixture's model on the pictures, in 15 steps.
    fn finetune(&self, more: &[&str]) -> Outcome {
        self.finetune_on(&self.photos(), &fixtures().join("tiny_vit"), more)
    }

    fn finetune_on(&self, data: &Path, model: &Path, more: &[&str]) -> Outcome {
        let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
        let (data, model, run) = (text(data), text(model), text(&self.run()));
        let words = ["train", "finetune", "--init", &model, "--data", &data, "--out", &run, "model.image=32"];
        let settings = ["train.batch=4", "train.epochs=3", "optimizer.lr=3e-3", "augment.scale=[0.9,1.0]"];
        let settings = [&settings[..], &["model.stochastic_depth=0", "output.log_steps=1"]].concat();
        vitreous(&[&words[..], &settings, more].concat())
    }

    /// The parameters of the trained model that differ from those of the fixture's, and those that do not.
    fn changed(&self) -> (Vec<String>, Vec<String>) {
        let before = tensors(&fixtures().join("tiny_vit/model.safetensors"));
        let after = tensors(&self.run().join("model/model.safetensors"));
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        before.keys().cloned().partition(|name| before[name] != after[name])
    }
}

fn learned(run: &Path, key: &str) -> Vec<f64> {
    metrics(run).iter().filter_map(|line| line.get(key)?.as_f64()).collect()
}

#[test]
fn a_model_learns_new_classes_and_says_what_to_try() {
    let place = FineTuning::new();
    let outcome = place.finetune(&["train.epochs=6"]).succeeded();
    let model = place.run().join("model");
    let shown = format!("eval {} --data {}", model.display(), place.photos().display());
    assert!(outcome.stdout.contains(&shown), "{}", outcome.stdout);
    assert_eq!(learned(&place.run(), "val_top1").last(), Some(&1.0));
    // Six images in batches of four: what fills the last one up does not count. `eval` finds the same.
    let photos = place.photos();
    let words = ["eval", model.to_str().expect("UTF-8"), "--data", photos.to_str().expect("UTF-8"), "--json"];
    let found = vitreous(&words).succeeded().json_lines()[0]["loss"].as_f64().expect("a loss");
    let told = *learned(&place.run(), "val_loss").last().expect("a test");
    assert!((found - told).abs() < 1e-5, "{found} and {told}");

    // Everything has moved.
    assert_eq!(place.changed().1, Vec::<String>::new());
    let config: Value =
        serde_json::from_slice(&std::fs::read(model.join("config.json")).expect("a file")).expect("JSON");
    assert_eq!(config["id2label"], serde_json::json!({"0": "blue", "1": "green", "2": "red"}));
    // The new head starts at zero: the first loss is that of a guess.
    assert!((learned(&place.run(), "loss")[0] - 3f64.ln()).abs() < 1e-4);
    // Where all classes are alike, none is found first.
    assert_eq!(learned(&place.run(), "top1")[0], 0.0);

    let images: Vec<String> = COLOURS
        .iter()
        .map(|(class, _)| place.photos().join(format!("val/{class}/8.bmp")).display().to_string())
        .collect();
    let words = ["predict", model.to_str().expect("UTF-8"), "--json", &images[0], &images[1], &images[2]];
    let answers = vitreous(&words).succeeded().json_lines();
    let first: Vec<&Value> = answers.iter().map(|answer| &answer["top"][0]["label"]).collect();
    assert_eq!(first, COLOURS.map(|(class, _)| class));
}

#[test]
fn the_size_of_images_is_checked_with_the_pretrained_model_alone() {
    // Patches of 14, as DINOv2 has them, where the recipe has 16: 42 is three of them.
    let place = FineTuning::new();
    let first = place.directory.path().join("first");
    let photos = place.photos();
    let words = ["train", "small", "--data", photos.to_str().expect("UTF-8"), "--out", first.to_str().expect("UTF-8")];
    let model =
        ["model.image=28", "model.patch=14", "model.dim=16", "model.depth=1", "model.heads=2", "model.mlp_dim=16"];
    vitreous(&[&words[..], &model, &["train.batch=4", "train.epochs=1"]].concat()).succeeded();
    place.finetune_on(&photos, &first, &["model.image=42", "train.epochs=1"]).succeeded();
    let recipe = std::fs::read_to_string(place.run().join("recipe.toml")).expect("a recipe");
    assert!(recipe.contains("\nimage = 42\n") && recipe.contains("\npatch = 14\n"), "{recipe}");

    let place = FineTuning::new();
    place.finetune_on(&photos, &first, &["model.image=48"]).failed(2, &["48x48", "14x14 patches"]);
    // Nothing but these settings is the recipe's.
    place.finetune_on(&photos, &first, &["model.patch=7"]).failed(2, &["`model.patch`", "model.image"]);
    assert!(!place.run().exists());
}

#[test]
fn images_that_no_step_sees_are_told_once() {
    // 21 images in batches of four.
    let place = FineTuning::new();
    let outcome = place.finetune(&[]).succeeded();
    let notes: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("not seen in each epoch")).collect();
    assert_eq!(notes.len(), 1, "{}", outcome.stderr);
    assert!(notes[0].starts_with("note: 1 of 21 training images are not seen"), "{}", notes[0]);
    assert!(outcome.stderr.contains("21 training images, 6 validation images, 3 classes"), "{}", outcome.stderr);

    let place = FineTuning::new();
    let outcome = place.finetune(&["train.batch=7"]).succeeded();
    assert!(!outcome.stderr.contains("not seen"), "{}", outcome.stderr);
}

#[test]
fn a_run_is_evaluated_on_its_own_data_and_top_5_needs_six_classes() {
    let place = FineTuning::new();
    let outcome = place.finetune(&[]).succeeded();
    let run = place.run();
    let run = run.to_str().expect("UTF-8");
    // Without --data: the run's three classes, and not the built-in ones.
    for model in [run.to_string(), format!("{run}/model")] {
        let report = vitreous(&["eval", &model, "--json"]).succeeded().json_lines().remove(0);
        assert_eq!((&report["samples"], &report["split"]), (&Value::from(6), &Value::from("validation")));
        assert_eq!(report.get("top5"), None);
    }
    let lines = metrics(&place.run());
    assert!(lines.iter().all(|line| line.get("val_top5").is_none()));
    let page = std::fs::read_to_string(place.run().join("report.html")).expect("a report");
    let printed = vitreous(&["eval", run]).succeeded().stdout;
    for text in [&outcome.stderr, &outcome.stdout, &printed, &page] {
        assert!(!text.contains("top-5"), "{text}");
    }
    std::fs::remove_dir_all(place.photos()).expect("removed");
    vitreous(&["eval", run]).failed(2, &["the run's data", "--data PATH"]);
}

#[test]
fn a_frozen_backbone_keeps_its_bytes() {
    let place = FineTuning::new();
    let outcome = place.finetune(&["finetune.freeze=true"]).succeeded();
    assert!(outcome.stderr.contains("75 of them learn"), "{}", outcome.stderr);
    assert_eq!(place.changed().0, ["classifier.bias", "classifier.weight"]);
}

#[test]
fn parts_that_have_no_rate_do_not_move() {
    let place = FineTuning::new();
    place.finetune(&["finetune.backbone_lr=0"]).succeeded();
    assert_eq!(place.changed().0, ["classifier.bias", "classifier.weight"]);

    let place = FineTuning::new();
    place.finetune(&["finetune.head_lr=0", "train.epochs=1"]).succeeded();
    // It starts at zero, and stays there.
    let after = tensors(&place.run().join("model/model.safetensors"));
    assert!(after["classifier.weight"].iter().all(|&value| value == 0.0));

    let place = FineTuning::new();
    place.finetune(&["finetune.head_lr=0", "finetune.backbone_lr=0"]).failed(2, &["nothing would learn"]);
    assert!(!place.run().exists());
}

#[test]
fn adapters_are_all_that_a_backbone_gains() {
    let place = FineTuning::new();
    place.finetune(&["finetune.lora_rank=2", "finetune.lora_alpha=6", "--watch=gradients"]).succeeded();
    let (changed, _) = place.changed();
    let expected =
        |name: &String| name.starts_with("classifier.") || (name.contains(".attention.") && name.ends_with(".weight"));
    assert!(changed.iter().all(expected), "{changed:?}");
    // Query, key, value and output of two layers, and the head.
    assert_eq!(changed.len(), 2 * 4 + 2, "{changed:?}");

    // The weights of the model are the fixture's and 6 / 2 · B A.
    let (_, newest) = checkpoints(&place.run()).pop().expect("a checkpoint");
    let path = place.directory.path().join("newest.safetensors");
    std::fs::write(&path, newest).expect("written");
    let saved = tensors(&path);
    let (a, b) =
        (&saved["parameters/blocks.1.attention.output.lora_a"], &saved["parameters/blocks.1.attention.output.lora_b"]);
    let before = tensors(&fixtures().join("tiny_vit/model.safetensors"));
    let after = tensors(&place.run().join("model/model.safetensors"));
    let name = changed.iter().find(|name| name.contains("layer.1.attention.output")).expect("the output's weight");
    for row in 0..24 {
        for column in 0..24 {
            let change: f32 = (0..2).map(|inner| 3.0 * b[row * 2 + inner] * a[inner * 24 + column]).sum();
            let (before, after) = (before[name][row * 24 + column], after[name][row * 24 + column]);
            assert!((before + change - after).abs() < 1e-6, "{row} {column}: {before} + {change} and {after}");
        }
    }
    assert!(
        saved
            .keys()
            .filter(|name| name.starts_with("first/"))
            .all(|name| { name.contains("lora_") || name.contains("head.") })
    );
    let image = place.photos().join("val/red/8.bmp");
    let model = place.run().join("model");
    vitreous(&["predict", model.to_str().expect("UTF-8"), image.to_str().expect("UTF-8")]).succeeded();

    // A line of gradients for every step, with every parameter that learns.
    let lines = metrics(&place.run());
    let norms: Vec<&Value> = lines.iter().filter_map(|line| line.get("gradient_norms")).collect();
    assert_eq!(norms.len(), 15);
    let names: Vec<&String> = norms[14].as_object().expect("an object").keys().collect();
    assert_eq!(names.len(), 2 * 2 * 2 + 2, "{names:?}");
    // Together they are as long as the whole gradient.
    for (norms, whole) in norms.iter().zip(learned(&place.run(), "grad_norm")) {
        let squares: f64 =
            norms.as_object().expect("an object").values().filter_map(Value::as_f64).map(|x| x * x).sum();
        assert!((squares.sqrt() - whole).abs() < 1e-5 * whole.max(1.0), "{} and {whole}", squares.sqrt());
    }
}

#[test]
fn gradients_of_added_batches_are_told_as_their_mean() {
    let place = FineTuning::new();
    // Five batches: a group of three and one of two.
    let more = ["train.accumulate=3", "optimizer.lr=1e-9", "train.ema=0.9", "--watch=gradients"];
    place.finetune(&[&more[..], &["model.stochastic_depth=0.25", "model.dropout=0.125"]].concat()).succeeded();
    let recipe = std::fs::read_to_string(place.run().join("recipe.toml")).expect("a recipe");
    assert!(recipe.contains("stochastic_depth = 0.25") && recipe.contains("\ndropout = 0.125"), "{recipe}");
    let lines = metrics(&place.run());
    assert_eq!(learned(&place.run(), "loss").len(), 6);
    let norms: Vec<BTreeMap<String, f64>> =
        lines.iter().filter_map(|line| serde_json::from_value(line.get("gradient_norms")?.clone()).ok()).collect();
    for (norms, whole) in norms.iter().zip(learned(&place.run(), "grad_norm")) {
        let together = norms.values().map(|norm| norm * norm).sum::<f64>().sqrt();
        assert!((together - whole).abs() < 1e-5 * whole.max(1.0), "{together} and {whole}");
    }
    // Nothing moves at such a rate: each loss is that of a guess, whatever the size of the group.
    for loss in learned(&place.run(), "loss") {
        assert!((loss - 3f64.ln()).abs() < 1e-4, "{loss}");
    }
    assert!(learned(&place.run(), "top1").iter().all(|share| (0.0..=1.0).contains(share)));
    // Nor does the average, which starts where the model does.
    let before = tensors(&fixtures().join("tiny_vit/model.safetensors"));
    let after = tensors(&place.run().join("model/model.safetensors"));
    for (name, before) in before.iter().filter(|(name, _)| !name.starts_with("classifier.")) {
        let apart = before.iter().zip(&after[name]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-5, "{name}: {apart}");
    }
    // A line for TensorBoard, too.
    let entries = std::fs::read_dir(place.run()).expect("a folder").flatten();
    let events = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("events.out.tfevents."));
    let bytes: Vec<u8> = events.flat_map(|entry| std::fs::read(entry.path()).expect("a file")).collect();
    for tag in ["loss/train", "loss/validation", "accuracy/validation", "gradients/blocks.0.mlp.fc1.weight"] {
        assert!(bytes.windows(tag.len()).any(|part| part == tag.as_bytes()), "{tag}");
    }
}

#[test]
fn several_labels_an_image() {
    let place = FineTuning::new();
    let manifest = place.directory.path().join("train.jsonl");
    let mut rows = String::new();
    for part in ["train", "val"] {
        for number in 0..9 {
            for (class, _) in COLOURS {
                let path = place.photos().join(part).join(class).join(format!("{number}.bmp"));
                let labels = if class == "red" { vec![] } else { vec![class, "cold"] };
                if path.exists() {
                    rows += &format!("{}\n", serde_json::json!({"path": path, "labels": labels, "split": part}));
                }
            }
        }
    }
    std::fs::write(&manifest, rows).expect("written");
    let model = fixtures().join("tiny_vit");
    let outcome = place.finetune_on(&manifest, &model, &["train.epochs=6", "--json"]).succeeded();
    let result = &outcome.json_lines()[0];
    assert!(result["val_map"].as_f64() > Some(0.9), "{result}");
    assert_eq!(result["val_top1"], Value::Null);
    // A head of zeros says one half of each class: ln 2.
    assert!((learned(&place.run(), "loss")[0] - 2f64.ln()).abs() < 1e-4);
    assert!(learned(&place.run(), "top1").is_empty(), "no class is the right one");

    let place = FineTuning::new();
    place.finetune_on(&manifest, &model, &["loss.kind=cross_entropy"]).failed(2, &["several labels", "loss.kind"]);
}

#[test]
fn test_images_without_any_label_have_no_score_and_do_not_stop_the_run() {
    let place = FineTuning::new();
    let mut rows = Vec::new();
    for (class, _) in COLOURS {
        for (part, number) in [("train", 0), ("train", 1), ("val", 7)] {
            let path = place.photos().join(part).join(class).join(format!("{number}.bmp"));
            let labels = if part == "val" { vec![] } else { vec![class] };
            rows.push((part, serde_json::json!({"path": path, "labels": labels}).to_string()));
        }
    }
    let folder = place.directory.path().join("manifests");
    std::fs::create_dir(&folder).expect("a folder");
    for part in ["train", "val"] {
        let of_part: Vec<&str> = rows.iter().filter(|row| row.0 == part).map(|row| row.1.as_str()).collect();
        std::fs::write(folder.join(format!("{part}.jsonl")), of_part.join("\n")).expect("written");
    }
    let model = fixtures().join("tiny_vit");
    place.finetune_on(&folder, &model, &[]).succeeded();
    let run = place.run();
    vitreous(&["train", "--resume", run.to_str().expect("UTF-8"), "--json"]).succeeded();
    assert_eq!(learned(&run, "val_loss").len(), 3);
    assert!(learned(&run, "val_map").is_empty());
    assert!(run.join("best/model.safetensors").exists());
}

#[test]
fn broken_images_are_named_at_the_end_and_stop_nothing() {
    let place = FineTuning::new();
    for name in ["train/red/broken.png", "val/blue/empty.png"] {
        std::fs::write(place.photos().join(name), if name.contains("empty") { "" } else { "no image" })
            .expect("a file");
    }
    let outcome = place.finetune(&["--json"]).succeeded();
    assert_eq!(outcome.json_lines()[0]["broken_images"], 2);
    for part in ["2 images could not be read", "red/broken.png", "blue/empty.png"] {
        assert!(outcome.stderr.contains(part), "`{part}` is not in {}", outcome.stderr);
    }
}

#[test]
fn few_images_and_few_classes() {
    // One class, and nothing to test with.
    let place = FineTuning::new();
    let one = place.directory.path().join("one");
    (0..4).for_each(|number| picture(&one.join(format!("train/only/{number}.bmp")), [9, 9, 9], number));
    let model = fixtures().join("tiny_vit");
    let outcome = place.finetune_on(&one, &model, &["data.validation_share=0", "--json"]).succeeded();
    assert_eq!(outcome.json_lines()[0]["val_loss"], Value::Null);
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("epoch ")).count(), 3, "{}", outcome.stderr);
    assert!(place.run().join("model/model.safetensors").exists());

    // An epoch that has no whole batch.
    let place = FineTuning::new();
    place
        .finetune_on(&one, &model, &["train.batch=5", "data.validation_share=0"])
        .failed(2, &["a batch of 5", "4 training images"]);
    assert!(!place.run().exists());
    // More batches per update than an epoch has: one update per epoch.
    let huge = ["train.accumulate=1000000000000", "output.eval_epochs=9"];
    let outcome = place.finetune(&huge).succeeded();
    assert!(outcome.stderr.contains("a step of 20 images"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("after 3 steps"), "{}", outcome.stdout);
    // One line per epoch, though only the last is tested.
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("epoch ")).count(), 3, "{}", outcome.stderr);
    assert_eq!(learned(&place.run(), "val_loss").len(), 1);
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint() {
    let place = FineTuning::new();
    let wild = ["optimizer.lr=1e30", "optimizer.clip=0", "output.checkpoint_steps=1", "schedule.warmup_epochs=0"];
    let outcome =
        place.finetune(&wild).failed(1, &["step 2: ", "not finite", "blocks.", "step 1 is kept", "lower optimizer.lr"]);
    assert!(outcome.stderr.contains("step-0000000001.safetensors"), "{}", outcome.stderr);
    let names: Vec<String> = checkpoints(&place.run()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["step-0000000001.safetensors"]);

    // A parameter that is bad from the start is named.
    let place = FineTuning::new();
    let poisoned = place.directory.path().join("poisoned");
    common::changed_copy("tiny_vit", &poisoned, "preprocessor_config.json", |_| {});
    let file = poisoned.join("model.safetensors");
    let mut bytes = std::fs::read(&file).expect("a file");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let fields: Value = serde_json::from_slice(&bytes[8..8 + header]).expect("JSON");
    let start = fields["vit.encoder.layer.1.output.dense.bias"]["data_offsets"][0].as_u64().expect("a place") as usize;
    bytes[8 + header + start..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&file, bytes).expect("written");
    let outcome = place.finetune_on(&place.photos(), &poisoned, &[]);
    outcome.failed(1, &["step 1: the loss is NaN", "parameter `blocks.1.mlp.fc2.bias`"]);
}

#[cfg(unix)]
#[test]
fn a_run_directory_may_have_any_name_and_one_that_cannot_be_made_is_said() {
    use std::os::unix::ffi::OsStrExt;
    let place = FineTuning::new();
    let name = std::ffi::OsStr::from_bytes(b"r\xFFn");
    let photos = place.photos();
    let train = |out: &Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vitreous"));
        command.args(["train", "finetune", "--json", "model.image=32", "train.batch=4", "train.epochs=1", "--init"]);
        command.arg(fixtures().join("tiny_vit")).arg("--data").arg(&photos).arg("--out").arg(out);
        let output = command.output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = train(&place.directory.path().join(name));
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let (code, said) = train(&photos.join("train/red/0.bmp/run"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot create the run directory"), "{said}");
}
