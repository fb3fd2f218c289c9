//! Runs that are cut, in every way, and taken up again.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::training::{
    TINY, assert_same_results, checkpoints, killed_and_whole_are_the_same, metrics, pictures, saved_step, start,
    tensors, train_tiny, wait_for_step,
};
use common::vitreous;

#[test]
fn a_run_that_is_killed_ten_times_ends_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = [&["train", "small"], &TINY[..]].concat();
    // Steps that are spread over the run, some within an epoch, some at its end.
    killed_and_whole_are_the_same(directory.path(), &words, &[1, 9, 17, 25, 39, 40, 41, 55, 62, 79]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let mut child = start(&[&["train", "small", "--out", out, "output.checkpoint_steps=0"], &TINY[..10]].concat());
    while !run.join("metrics.jsonl").exists() || metrics(&run).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(child.try_wait().expect("a child").is_none(), "it ended too soon");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let ended = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains(&format!("train --resume {out}")), "{said}");
    let step = saved_step(&run);
    assert!(step > 0 && step < 80, "{step}");
    let outcome = vitreous(&["train", "--resume", out, "--json"]).succeeded();
    assert!(outcome.stderr.contains(&format!("resumed after step {step} of 80")), "{}", outcome.stderr);
    // Once more: nothing is left to do, and that is no error.
    vitreous(&["train", "--resume", out, "--json"]).succeeded();
}

#[cfg(unix)]
#[test]
fn a_second_ctrl_c_stops_without_saving() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    // A step of this batch takes seconds: both signals come within the first.
    let child = start(&["train", "small", "train.batch=5000", "--out", run.to_str().expect("UTF-8")]);
    // Signals are heeded before the recipe is written.
    while !run.join("recipe.toml").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.wait_with_output().expect("ends").status.code(), Some(130));
    assert_eq!(saved_step(&run), 0);
}

#[test]
fn a_second_run_in_a_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let mut child = start(&[&["train", "small", "--out", out, "train.epochs=1000"], &TINY[..7]].concat());
    wait_for_step(&run, &mut child, 1);
    while !run.join("recipe.toml").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    vitreous(&["train", "--resume", out]).failed(1, &["in use by another run", &child.id().to_string()]);
    vitreous(&["train", "small", "--out", out]).failed(1, &["in use by another run"]);
    child.kill().expect("killed");
    child.wait().expect("ends");
    // The lock went with the process, but the run is still there.
    vitreous(&["train", "small", "--out", out]).failed(2, &["there is a run in it already", "--resume"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    // The first checkpoint fits, then no file may grow beyond a kilobyte: the system refuses as it does on a full disk.
    let out = run.to_str().expect("UTF-8");
    let mut child = start(&[&["train", "small", "--out", out], &TINY[..]].concat());
    wait_for_step(&run, &mut child, 3);
    child.kill().expect("killed");
    child.wait().expect("ends");
    let before = checkpoints(&run);
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" train --resume \"$1\"";
    let ended = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_vitreous"), out]).output().expect("a shell");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("What was saved before is whole"), "{said}");
    assert_eq!(checkpoints(&run), before);
    vitreous(&["train", "--resume", out]).succeeded();
}

#[test]
fn accumulation_with_a_partial_group_mixing_and_an_average_resume_to_the_bit() {
    let directory = tempfile::tempdir().expect("a directory");
    // Ten batches of 1000: groups of four, four and two. Logged every second step, so that a kill falls into an interval.
    let more = ["train.batch=1000", "train.accumulate=4", "augment.mixup=0.8", "augment.cutmix=1.0"];
    let more = [&more[..], &["train.epochs=3", "output.eval_epochs=2", "output.log_steps=2"]].concat();
    let words = [&["train", "small"], &TINY[..], &more].concat();
    killed_and_whole_are_the_same(directory.path(), &words, &[1, 3, 4, 7]);

    let lines = metrics(&directory.path().join("whole"));
    let tested: Vec<_> = lines.iter().filter(|line| line.get("val_loss").is_some()).map(|line| &line["step"]).collect();
    assert_eq!(tested, [6, 9], "every second epoch, and the last");
    let learned: Vec<_> = lines.iter().filter(|line| line.get("loss").is_some()).map(|line| &line["step"]).collect();
    assert_eq!(learned, [2, 3, 4, 6, 8, 9]);
    assert!(lines.iter().all(|line| line.get("top1").is_none()), "mixed images have no right class");
    // The mean over updates of a mean over classes: at the start about ln 10, whatever a line is the mean of.
    for line in lines.iter().filter(|line| line.get("loss").is_some()) {
        let loss = line["loss"].as_f64().expect("a number");
        assert!((1.8..2.8).contains(&loss), "{line}");
    }
}

#[test]
fn adapters_of_a_fine_tuned_model_resume_to_the_bit_from_another_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    pictures(&directory.path().join("photos"));
    let model = common::fixtures().join("tiny_vit");
    // The data is named relative to where the run starts; it is taken up from elsewhere.
    let words = ["train", "finetune", "--init", model.to_str().expect("UTF-8"), "--data", "photos", "--out", "run"];
    let settings = ["model.image=32", "train.batch=4", "train.epochs=3", "train.ema=0.9", "finetune.lora_rank=2"];
    let settings = [&settings[..], &["output.checkpoint_steps=1", "optimizer.lr=1e-2"]].concat();
    let begin = |out: &str| {
        let mut words = words;
        words[7] = out;
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitreous"));
        command.current_dir(directory.path()).args(words).args(&settings).stderr(Stdio::null()).stdout(Stdio::null());
        command
    };
    assert!(begin("whole").output().expect("runs").status.success());
    let mut child = begin("cut").spawn().expect("starts");
    let cut = directory.path().join("cut");
    for step in [2, 5, 7] {
        wait_for_step(&cut, &mut child, step);
        child.kill().expect("killed");
        child.wait().expect("ends");
        child = start(&["train", "--resume", cut.to_str().expect("UTF-8")]);
    }
    assert!(child.wait().expect("ends").success());
    assert_same_results(&directory.path().join("whole"), &cut);
}

#[test]
fn a_checkpoint_holds_all_that_a_run_needs_and_a_damaged_one_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    train_tiny(&run, &["train.batch=1000", "train.epochs=1", "output.keep=3"]).succeeded();
    let kept = checkpoints(&run);
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    let of = |step: u64| format!("step-{step:010}.safetensors");
    assert_eq!(names, [of(8), of(9), of(10)]);
    let last = run.join("checkpoints").join(of(10));
    let values = tensors(&last);
    for section in ["parameters", "first", "second", "average"] {
        let weight = &values[&format!("{section}/head.weight")];
        assert!(weight.iter().any(|&value| value != 0.0), "{section}");
    }
    assert_ne!(values["parameters/head.weight"], values["average/head.weight"]);
    // It follows by a decay that rises from 1 / 10: after the tenth step by 10 / 19.
    let before = tensors(&run.join("checkpoints").join(of(9)));
    let decay = 10.0 / 19.0;
    for (index, average) in values["average/head.weight"].iter().enumerate() {
        let [then, now] = [before["average/head.weight"][index], values["parameters/head.weight"][index]];
        assert!((decay * then + (1.0 - decay) * now - average).abs() < 1e-6, "{index}: {then}, {now}, {average}");
    }
    // The average is what is tested and saved.
    let model = tensors(&run.join("model/model.safetensors"));
    assert!(model.values().any(|tensor| *tensor == values["average/head.weight"]));

    // Cut off, and with a tensor too few.
    let whole = std::fs::read(&last).expect("a file");
    std::fs::write(&last, &whole[..whole.len() - 100]).expect("written");
    vitreous(&["train", "--resume", out]).failed(1, &[&of(10), "remove it to go on from the one before, of step 9"]);
    let at = whole.windows(16).position(|bytes| bytes == b"second/head.bias").expect("its name");
    let mut lacking = whole.clone();
    lacking[at..at + 16].copy_from_slice(b"second/head.bios");
    std::fs::write(&last, &lacking).expect("written");
    vitreous(&["train", "--resume", out]).failed(1, &["second/head.bias", "step 9"]);
    // A bit that flipped on the disk.
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    std::fs::write(&last, &flipped).expect("written");
    vitreous(&["train", "--resume", out]).failed(1, &["the checksum differs", "step 9"]);
    // What was advised works, and ends in the same bytes.
    std::fs::remove_file(&last).expect("removed");
    vitreous(&["train", "--resume", out]).succeeded();
    assert_eq!(checkpoints(&run), kept);
}

#[test]
fn a_run_that_changed_underneath_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, photos) = (directory.path().join("run"), directory.path().join("photos"));
    pictures(&photos);
    let out = run.to_str().expect("UTF-8");
    let words = ["train", "small", "--out", out, "--data", photos.to_str().expect("UTF-8"), "train.batch=4"];
    vitreous(&[&words, &TINY[..6], &["train.epochs=1"]].concat()).succeeded();
    std::fs::remove_file(photos.join("train/red/0.bmp")).expect("removed");
    vitreous(&["train", "--resume", out]).failed(2, &["has 20 samples", "had 21", "same data"]);
    // Checkpoints whose recipe is gone are not taken for those of a new run.
    std::fs::remove_file(run.join("recipe.toml")).expect("removed");
    vitreous(&[&words, &TINY[..6]].concat()).failed(2, &["there is a run in it already"]);
    vitreous(&["train", "--resume", out]).failed(2, &["no run directory"]);
}

#[cfg(unix)]
#[test]
fn a_run_directory_that_vanishes_stops_the_run_and_is_not_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let mut child = start(&[&["train", "small", "--out", out], &TINY[..], &["train.epochs=1000"]].concat());
    wait_for_step(&run, &mut child, 2);
    std::fs::rename(&run, directory.path().join("elsewhere")).expect("moved");
    let ended = child.wait_with_output().expect("ends");
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!run.exists());
}
