//! `vitreous train` as a user runs it: a tiny model on the built-in data.

mod common;

use common::training::{TINY, metrics, picture, train_tiny};
use common::vitreous;
use serde_json::Value;

#[test]
fn a_run_leaves_a_model_metrics_and_checkpoints() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let outcome = train_tiny(&run, &["output.keep=3"]).succeeded();
    let result = &outcome.json_lines()[0];
    assert_eq!(result["step"], 80);
    assert!(result["val_top1"].as_f64().expect("a share") > 0.3, "{result}");

    let lines = metrics(&run);
    let learning: Vec<&Value> = lines.iter().filter(|line| line.get("loss").is_some()).collect();
    assert_eq!(learning.len(), 20);
    for key in ["step", "epoch", "lr", "grad_norm", "images_per_second", "data_wait", "peak_share"] {
        assert!(learning.iter().all(|line| line[key].is_number()), "{key}");
    }
    let share = |line: &&Value| line["peak_share"].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0);
    assert!(learning.iter().all(share), "{learning:?}");
    assert!(learning[0]["loss"].as_f64() > learning[19]["loss"].as_f64());
    let tests: Vec<&Value> = lines.iter().filter(|line| line.get("val_loss").is_some()).collect();
    assert_eq!(tests.iter().map(|line| line["step"].as_u64()).collect::<Vec<_>>(), [Some(40), Some(80)]);
    assert_eq!(tests[1]["val_top1"], result["val_top1"]);
    // The second test is better than the first, so it is the best.
    assert!(tests[1]["val_top1"].as_f64() > tests[0]["val_top1"].as_f64(), "{tests:?}");
    assert_eq!(result["best"], tests[1]["val_top1"]);
    let weights = |folder: &str| std::fs::read(run.join(folder).join("model.safetensors")).expect("a model");
    assert!(weights("best") == weights("model"));
    assert!(tests[1]["val_top5"].as_f64() >= tests[1]["val_top1"].as_f64());

    assert_eq!(std::fs::read_dir(run.join("checkpoints")).expect("a folder").count(), 3);
    let recipe = std::fs::read_to_string(run.join("recipe.toml")).expect("a recipe");
    assert!(recipe.contains("classes = 10") && recipe.contains("epochs = 2"), "{recipe}");
    // Without a terminal: one line per epoch, and no bar.
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("epoch ")).count(), 2, "{}", outcome.stderr);

    // The model is one that the other commands open.
    let model = run.join("model");
    vitreous(&["summary", model.to_str().expect("UTF-8")]).succeeded();
    vitreous(&["predict", model.to_str().expect("UTF-8"), "pictures"]);
}

#[test]
fn the_loss_of_an_epoch_is_its_mean_everywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    // Forty steps, a line every third: the last line is of one step alone.
    let out = run.to_str().expect("UTF-8");
    let words = [&["train", "small", "--out", out], &TINY[..], &["output.log_steps=3"]].concat();
    let outcome = vitreous(&words).succeeded();
    let lines = metrics(&run);
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"));
    let printed: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("epoch ")).collect();
    for (epoch, printed) in printed.iter().enumerate() {
        let (first, last) = (40 * epoch as u64, 40 * (epoch as u64 + 1));
        let of_epoch = lines.iter().filter(|line| line.get("loss").is_some());
        let of_epoch: Vec<&Value> =
            of_epoch.filter(|line| (first + 1..=last).contains(&line["step"].as_u64().expect("a step"))).collect();
        let (mut before, mut sum) = (first as f64, 0.0);
        for line in &of_epoch {
            sum += number(line, "loss") * (number(line, "step") - before);
            before = number(line, "step");
        }
        let told = number(of_epoch.last().expect("a line"), "epoch_loss");
        assert!((told - sum / 40.0).abs() < 1e-9, "{told} and {}", sum / 40.0);
        assert!(printed.contains(&format!("  loss {told:.3}  ")), "{printed} has not {told}");
        assert!(number(of_epoch.last().expect("a line"), "loss") != told);
    }
    let report = vitreous(&["report", out, "--json"]).succeeded().json_lines().remove(0);
    let last = lines.iter().rfind(|line| line.get("epoch_loss").is_some()).expect("an epoch");
    assert_eq!(report["loss"], last["epoch_loss"]);
    let page = std::fs::read_to_string(run.join("report.html")).expect("a report");
    assert!(page.contains(&format!(">{:.3}</span>", number(last, "epoch_loss"))));
}

#[test]
fn recipes_are_listed_and_shown() {
    let listed = vitreous(&["train", "--list"]).succeeded().stdout;
    for name in ["small", "cifar10", "cifar10-strong", "imagenet-s16", "imagenet-b16", "finetune"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name} is not in {listed}");
        let shown = vitreous(&["train", "--show", name]).succeeded().stdout;
        assert!(shown.starts_with("# ") && shown.contains("[optimizer]"), "{shown}");
    }
    let changed = vitreous(&["train", "--show", "small", "optimizer.lr=0.25"]).succeeded().stdout;
    assert!(changed.contains("lr = 0.25"), "{changed}");
}

#[test]
fn wrong_usage_is_refused_with_a_hint() {
    vitreous(&["train", "smal"]).failed(2, &["did you mean `small`?"]);
    vitreous(&["train", "small", "optimizer.lrr=1"]).failed(2, &["`optimizer.lrr`", "did you mean `optimizer.lr`?"]);
    vitreous(&["train", "small", "train.batch=many"]).failed(2, &["`train.batch`"]);
    vitreous(&["train", "small", "model.heads=5"]).failed(2, &["heads"]);
    vitreous(&["train", "small", "--data", "nowhere"]).failed(2, &["nowhere"]);
    vitreous(&["train", "cifar10"]).failed(2, &["data/cifar10", "vitreous data get cifar10"]);
    vitreous(&["train", "finetune", "--data", "pictures"]).failed(2, &["--init MODEL"]);
    let deeper = ["train", "finetune", "--init", "tiny_vit", "--data", "pictures", "model.depth=3"];
    vitreous(&deeper).failed(2, &["`model.depth`", "model.image"]);
    vitreous(&["train", "--init", "tiny_vit", "--data", "pictures"])
        .failed(2, &["--init needs a recipe", "vitreous train finetune --init tiny_vit --data pictures"]);
    let hub = ["train", "finetune", "--init", "google/vit-base", "--data", "pictures"];
    vitreous(&hub).failed(2, &["google/vit-base", "hf download google/vit-base --local-dir vit-base", "git clone"]);
    let path = ["train", "finetune", "--init", "no/such/model", "--data", "pictures"];
    let refused = vitreous(&path).failed(2, &["no/such/model: there is no such model"]);
    assert!(!refused.stderr.contains("hf download"), "{}", refused.stderr);
    vitreous(&["train", "small", "model.family=transformer"]).failed(2, &["model.family", "a translator"]);
    vitreous(&["train", "small", "model.family=vitt"]).failed(2, &["model.family", "vitt", "\"vit\""]);
    vitreous(&["train", "--resume", "pictures"]).failed(2, &["no run directory"]);
    vitreous(&["train", "small", "train.batch=20000", "--out", "unused"]).failed(2, &["20000", "10000"]);
    assert!(!common::fixtures().join("unused").exists(), "a refused run leaves nothing behind");
}

#[test]
fn images_of_one_class_are_scored_by_it_whatever_the_loss() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let more = ["loss.kind=binary_cross_entropy", "train.epochs=1", "train.batch=500"];
    let outcome = train_tiny(&run, &more).succeeded();
    let result = &outcome.json_lines()[0];
    assert!(result["val_top1"].is_number() && result["val_map"].is_null(), "{result}");
    // A run directory is as good as the model in it.
    let evaluated = vitreous(&["eval", run.to_str().expect("UTF-8"), "--json"]).succeeded();
    assert_eq!(evaluated.json_lines()[0]["top1"], result["val_top1"]);
    let (from, next) = (run.to_str().expect("UTF-8"), directory.path().join("next"));
    let words = ["train", "finetune", "--init", from, "data.path=builtin", "model.image=32", "train.epochs=1"];
    let more = ["train.batch=5000", "augment.scale=[0.9, 1.0]", "--out", next.to_str().expect("UTF-8")];
    vitreous(&[&words[..], &more].concat()).succeeded();
}

#[test]
fn a_preview_passes_over_broken_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let photos = directory.path().join("photos");
    for (class, colour) in [("red", [200, 30, 30]), ("blue", [30, 30, 200])] {
        std::fs::create_dir_all(photos.join(class)).expect("a folder");
        for number in 0..3 {
            picture(&photos.join(class).join(format!("{number}.bmp")), colour, number);
        }
        std::fs::write(photos.join(class).join("broken.bmp"), "no picture").expect("written");
    }
    let sheet = directory.path().join("sheet.png");
    let (photos, out) = (photos.to_str().expect("UTF-8"), sheet.to_str().expect("UTF-8"));
    for recipe in ["small", "cifar10-strong"] {
        vitreous(&["data", photos, "--preview", out, "--recipe", recipe]).succeeded();
        let sheet = vitreous_data::image::open(&sheet, vitreous_data::image::Channels::Rgb).expect("a picture");
        assert!(sheet.width() > 100 && sheet.height() > 100);
    }
    vitreous(&["data", photos, "--preview", out, "augment.flp=1"]).failed(2, &["augment.flip"]);
}

/// A watched run sees updates, attention and units, shows them in the report, and learns what it would learn unwatched.
#[test]
fn a_watched_run_is_the_same_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (plain, watched) = (directory.path().join("plain"), directory.path().join("watched"));
    train_tiny(&plain, &[]).succeeded();
    let outcome = train_tiny(&watched, &["--watch"]).succeeded();
    let weights = |run: &std::path::Path| std::fs::read(run.join("model/model.safetensors")).expect("a model");
    assert!(weights(&plain) == weights(&watched), "watching changes nothing");
    let lines = metrics(&watched);
    let seen: Vec<&Value> = lines.iter().filter(|line| line.get("update_ratios").is_some()).collect();
    assert_eq!(seen.len(), 20, "one for each line of training");
    for line in &seen {
        let ratios = line["update_ratios"].as_object().expect("ratios");
        assert!(ratios.keys().any(|name| name == "blocks.0.mlp"), "{ratios:?}");
        assert!(ratios.values().all(|ratio| ratio.as_f64().is_some_and(|ratio| ratio.is_finite() && ratio >= 0.0)));
        let entropy = line["attention_entropy"]["blocks.0.attention"].as_array().expect("heads");
        assert!(entropy.iter().all(|nats| nats.as_f64().is_some_and(|nats| nats > 0.0 && nats < 6.0)), "{entropy:?}");
        let dead = line["dead_units"]["blocks.0.mlp"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&dead));
        // It reads no tokens.
        assert!(line.get("induction").is_none() && line.get("loss_by_position").is_none());
    }
    assert!(outcome.stderr.contains("of the weights"), "{}", outcome.stderr);
    let report = std::fs::read_to_string(watched.join("report.html")).expect("a report");
    assert!(report.contains("Update-to-weight ratio") && report.contains("Attention entropy by head"));
    let report = std::fs::read_to_string(plain.join("report.html")).expect("a report");
    assert!(!report.contains("Update-to-weight ratio"));
}
