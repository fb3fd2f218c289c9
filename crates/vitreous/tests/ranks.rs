//! Training by several processes: the same bytes as one process, whatever MPI carries the messages; and what happens when one of them
//! is killed or hangs.

#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::ranks::{Launcher, assert_same_as_one, launchers, processes, run, start, text_of};
use common::training::{TINY, assert_same_results, checkpoints, saved_step};
use common::vitreous;
use vitreous_data::image::{Channels, Image};

/// A model and data that train in a second, with everything random switched on.
fn tiny<'w>(more: &[&'w str]) -> Vec<&'w str> {
    let common = ["train", "small", "output.checkpoint_steps=4", "train.batch=500", "optimizer.clip=0.5"];
    [&common[..], &TINY[..6], &TINY[7..10], more, &["--device", "cpu"]].concat()
}

#[test]
fn ranks_learn_images_to_the_bytes_of_one_process() {
    for launcher in launchers() {
        assert_same_as_one(launcher, 2, &tiny(&[]), 1);
        // The last update of an epoch has fewer batches than ranks.
        assert_same_as_one(launcher, 3, &tiny(&["train.precision=bf16"]), 1);
    }
    if let Some(&launcher) = launchers().last() {
        assert_same_as_one(launcher, 2, &tiny(&["optimizer.name=lamb"]), 3);
        assert_same_as_one(launcher, 4, &tiny(&["optimizer.name=muon", "loss.label_smoothing=0.1"]), 1);
    }
}

fn prose(directory: &Path) -> String {
    let line = |index: usize| format!("the cat number {} sat on the mat and looked at {index} dogs\n", index % 10);
    let path = directory.join("prose.txt");
    std::fs::write(&path, (0..300).map(line).collect::<String>()).expect("written");
    text_of(&path).to_string()
}

const GPT: [&str; 12] = [
    "train",
    "characters",
    "model.dim=32",
    "model.heads=4",
    "model.depth=2",
    "model.mlp_dim=64",
    "text.max_tokens=48",
    "train.batch=8",
    "train.epochs=2",
    "optimizer.lr=0.005",
    "--device",
    "cpu",
];

#[test]
fn ranks_learn_text_to_the_bytes_of_one_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let words = [&GPT[..], &["--data", &data, "model.dropout=0.1"]].concat();
    for launcher in launchers() {
        assert_same_as_one(launcher, 3, &words, 1);
    }
    if let Some(&launcher) = launchers().last() {
        let words = |more: &[&'static str]| [&words[..], &["train.epochs=1"], more].concat();
        assert_same_as_one(launcher, 2, &words(&["train.precision=bf16"]), 2);
        assert_same_as_one(launcher, 4, &words(&["train.precision=f32", "optimizer.clip=0.5"]), 1);
    }
}

#[test]
fn moments_that_are_shared_out_are_those_of_one_process() {
    for launcher in launchers() {
        let directory = tempfile::tempdir().expect("a directory");
        let (one, many) = (directory.path().join("one"), directory.path().join("many"));
        vitreous(&tiny(&["--out", text_of(&one), "train.accumulate=4"])).succeeded();
        // Many small buckets, on their way at the same time.
        let words = tiny(&["--out", text_of(&many), "train.shard=optimizer", "train.bucket=0.01"]);
        let child = start(launcher, 4, &words);
        wait_for_step(&many, 4);
        signal(processes(child.id())[0], "-TERM");
        assert!(!child.wait_with_output().expect("ends").status.success());
        // Its checkpoint is that of any number of ranks.
        run(launcher, 3, &["train", "--resume", text_of(&many), "--device", "cpu"]).succeeded();
        assert_same_results(&one, &many);
    }
}

#[test]
fn moments_of_every_optimizer_and_precision_can_be_shared_out() {
    let Some(&launcher) = launchers().last() else { return };
    let sharded = |more: &[&'static str]| {
        tiny(&[&["train.shard=optimizer", "train.bucket=0.01", "train.epochs=1"], more].concat())
    };
    assert_same_as_one(launcher, 2, &sharded(&["optimizer.name=lamb"]), 2);
    // Matrices that are a piece each.
    assert_same_as_one(launcher, 3, &sharded(&["optimizer.name=muon"]), 1);
    assert_same_as_one(launcher, 2, &sharded(&["optimizer.name=muon", "train.ema=0", "train.precision=bf16"]), 1);
    assert_same_as_one(launcher, 3, &sharded(&["optimizer.name=sgd", "train.precision=bf16"]), 1);
    assert_same_as_one(launcher, 2, &sharded(&["train.ema=0"]), 3);
}

#[test]
fn moments_of_text_models_can_be_shared_out() {
    let Some(&launcher) = launchers().first() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let words = [&GPT[..], &["--data", &data, "train.epochs=1", "train.shard=optimizer", "train.bucket=0.01"]].concat();
    assert_same_as_one(launcher, 3, &[&words[..], &["train.precision=f32"]].concat(), 1);
    assert_same_as_one(launcher, 2, &[&words[..], &["train.precision=bf16", "optimizer.name=muon"]].concat(), 2);
}

#[test]
fn gradients_that_travel_as_bf16_are_the_same_on_every_repetition() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut runs = Vec::new();
    for launcher in launchers() {
        let out = directory.path().join(launcher.0);
        run(launcher, 2, &tiny(&["--out", text_of(&out), "train.wire=bf16"])).succeeded();
        runs.push(out);
    }
    let [first, .., last] = &runs[..] else { return };
    assert_same_results(first, last);
    // They are rounded, which shows.
    let exact = directory.path().join("exact");
    vitreous(&tiny(&["--out", text_of(&exact), "train.accumulate=2"])).succeeded();
    assert!(checkpoints(&exact) != checkpoints(first), "nothing was rounded");
}

/// Waits until a checkpoint of this step or a later one is there.
fn wait_for_step(directory: &Path, step: u64) {
    let began = Instant::now();
    while saved_step(directory) < step {
        assert!(began.elapsed() < Duration::from_secs(120), "no checkpoint of step {step}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(process: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.expect("kill").success(), "{process} is gone");
}

#[test]
fn a_killed_run_goes_on_with_other_numbers_of_ranks_to_the_same_bytes() {
    let Some(&launcher) = launchers().last() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, cut) = (directory.path().join("whole"), directory.path().join("cut"));
    let words = tiny(&["output.checkpoint_steps=1"]);
    vitreous(&[&words[..], &["--out", text_of(&whole), "train.accumulate=4"]].concat()).succeeded();
    let mut child = start(launcher, 4, &[&words[..], &["--out", text_of(&cut)]].concat());
    for (step, victim, ranks) in [(1, 3, 2), (3, 0, 3), (5, 1, 4)] {
        wait_for_step(&cut, step);
        // The moment within a step is chance.
        std::thread::sleep(Duration::from_micros(700 * step % 5000));
        let all = processes(child.id());
        if let Some(&process) = all.get(victim % all.len().max(1)) {
            signal(process, "-KILL");
        }
        let ended = child.wait_with_output().expect("ends");
        assert!(!ended.status.success(), "step {step}");
        child = start(launcher, ranks, &["train", "--resume", text_of(&cut), "--device", "cpu"]);
    }
    let ended = child.wait_with_output().expect("ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_same_results(&whole, &cut);
}

#[test]
fn a_rank_that_is_asked_to_end_saves_on_all() {
    for launcher in launchers() {
        let directory = tempfile::tempdir().expect("a directory");
        let run_directory = directory.path().join("run");
        let words = tiny(&["output.checkpoint_steps=2", "train.epochs=200"]);
        let child = start(launcher, 2, &[&words[..], &["--out", text_of(&run_directory)]].concat());
        wait_for_step(&run_directory, 2);
        let all = processes(child.id());
        assert_eq!(all.len(), 2, "{all:?}");
        signal(all[1], "-TERM");
        let ended = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && said.contains("stopped after step"), "{}: {said}", launcher.0);
        assert!(said.contains(&format!("stopped after step {}, saved", saved_step(&run_directory))), "{said}");
    }
}

#[test]
fn ctrl_c_at_the_launcher_saves() {
    for launcher in launchers() {
        let directory = tempfile::tempdir().expect("a directory");
        let run_directory = directory.path().join("run");
        // An epoch has 250 updates: nothing else saves before its end.
        let words =
            ["train.batch=20", "output.checkpoint_steps=0", "train.epochs=200", "--out", text_of(&run_directory)];
        let child = start(launcher, 2, &tiny(&words));
        let began = Instant::now();
        while std::fs::read_to_string(run_directory.join("metrics.jsonl")).unwrap_or_default().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(120), "no step was made");
            std::thread::sleep(Duration::from_millis(2));
        }
        signal(child.id(), "-INT");
        let ended = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        // MPICH's launcher itself ends with 0 when it was interrupted.
        assert!(said.contains("saving and stopping") && said.contains(", saved."), "{}: {said}", launcher.0);
        let step = saved_step(&run_directory);
        assert!(step > 0 && !step.is_multiple_of(250), "{}: saved at step {step}: {said}", launcher.0);
    }
}

#[test]
fn samples_that_another_rank_cannot_read_are_told_of() {
    let Some(&launcher) = launchers().last() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    pictures(&data);
    for class in ["cat", "cow"] {
        std::fs::write(data.join(class).join("5.png"), "no picture").expect("written");
    }
    let out = directory.path().join("run");
    let words = tiny(&["--data", text_of(&data), "--out", text_of(&out), "train.batch=2", "train.epochs=1"]);
    let said = run(launcher, 2, &words).succeeded().stderr;
    assert!(said.contains("cat/5.png") && said.contains("cow/5.png"), "{said}");
}

#[test]
fn a_rank_that_hangs_ends_the_run_with_its_name() {
    let Some(&launcher) = launchers().first() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let run_directory = directory.path().join("run");
    let words = tiny(&["output.checkpoint_steps=2", "train.epochs=200"]);
    let child = start(launcher, 2, &[&words[..], &["--out", text_of(&run_directory)]].concat());
    wait_for_step(&run_directory, 2);
    let all = processes(child.id());
    signal(all[1], "-STOP");
    let ended = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("has given no sign of life"), "{said}");
    assert!(said.contains("rank 1 (host ") || said.contains("rank 0 (host "), "{said}");
    // What was saved is whole.
    let outcome = vitreous(&["train", "--resume", text_of(&run_directory), "train.epochs=1"]);
    assert!(outcome.code != 0, "a run takes no other settings");
    assert!(saved_step(&run_directory) >= 2);
}

#[test]
fn a_rank_that_is_killed_ends_the_run_and_is_named() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_string();
    for launcher in launchers() {
        let directory = tempfile::tempdir().expect("a directory");
        let run_directory = directory.path().join("run");
        let words = tiny(&["output.checkpoint_steps=2", "train.epochs=200"]);
        let child = start(launcher, 3, &[&words[..], &["--out", text_of(&run_directory)]].concat());
        wait_for_step(&run_directory, 2);
        signal(processes(child.id())[1], "-KILL");
        let killed = Instant::now();
        let ended = child.wait_with_output().expect("ends");
        assert!(!ended.status.success() && killed.elapsed() < Duration::from_secs(30), "{}", launcher.0);
        // MPICH's launcher may be faster than the ranks: then its banner, on standard output, is all that is said.
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let by_rank = (0..3).any(|rank| said.contains(&format!("rank {rank} (host {host})")));
        let by_launcher = said.contains(&host) && (said.contains("signal 9") || said.contains("EXIT CODE: 9"));
        assert!(by_rank || by_launcher, "{}: {said}", launcher.0);
        assert!(saved_step(&run_directory) >= 2);
    }
}

/// Pictures of two classes.
fn pictures(directory: &Path) {
    for class in ["cat", "cow"] {
        std::fs::create_dir_all(directory.join(class)).expect("a folder");
        for index in 0..12 {
            let picture = Image::new(28, 28, Channels::Grey, vec![index * 20; 28 * 28]).expect("a picture");
            picture.save_png(&directory.join(class).join(format!("{index}.png"))).expect("saved");
        }
    }
}

/// Starts two ranks with command lines of their own, which must be refused. What is said.
fn refused(launcher: Launcher, first: &[&str], other: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_vitreous");
    let mut command = std::process::Command::new(launcher.0);
    command.args(launcher.1).args(["-n", "1", program]).args(first).args([":", "-n", "1", program]).args(other);
    let ended = command.output().expect("mpirun starts");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!ended.status.success(), "{other:?}: {said}");
    said
}

#[test]
fn ranks_that_differ_are_refused_before_the_first_step() {
    // MPICH's launcher sometimes ends before it has passed on what ranks said last.
    let Some(&launcher) = launchers().first() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let run_directory = directory.path().join("run");
    let words = tiny(&["--out", text_of(&run_directory)]);
    for (other, difference) in [
        ("optimizer.lr=0.1", "`optimizer.lr` is 0.1, and 0.002 on rank 0"),
        // What changes nothing in what is learned decides what ranks wait for.
        ("train.shard=optimizer", "`train.shard` is \"optimizer\", and \"none\" on rank 0"),
        ("train.bucket=0.5", "`train.bucket` is 0.5, and 25"),
        ("output.eval_epochs=2", "`output.eval_epochs` is 2, and 1 on rank 0"),
        ("--watch=gradients", "--watch=gradients is on, and off on rank 0"),
    ] {
        let said = refused(launcher, &words, &[&words[..], &[other]].concat());
        assert!(said.contains("was started with something else than rank 0"), "{other}: {said}");
        assert!(said.contains(difference), "{other}: {said}");
        assert!(!run_directory.exists(), "a run was begun");
    }
}

#[test]
fn ranks_that_begin_with_other_parameters_are_refused() {
    // MPICH's launcher sometimes ends before it has passed on what ranks said last.
    let Some(&launcher) = launchers().first() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other, out] = ["one", "other", "out"].map(|name| directory.path().join(name));
    for (run_directory, seed) in [(&one, "train.seed=1"), (&other, "train.seed=2")] {
        vitreous(&tiny(&["--out", text_of(run_directory), "train.epochs=1", seed])).succeeded();
    }
    let data = directory.path().join("data");
    pictures(&data);
    let from = |init| {
        let words = ["train", "finetune", "--init", init, "--data", text_of(&data), "--out", text_of(&out)];
        [&words[..], &["train.epochs=1", "train.batch=2", "train.accumulate=2", "--device", "cpu"]].concat()
    };
    let said = refused(launcher, &from(text_of(&one)), &from(text_of(&other)));
    assert!(said.contains("begins with other parameters than rank 0"), "{said}");
    assert!(said.contains("rank 1 (host "), "{said}");
}

/// The number behind a text.
fn number_behind(text: &str, what: &str) -> u64 {
    let rest = text.split(what).nth(1).unwrap_or_else(|| panic!("`{what}` is not in {text}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn the_ranks_of_a_host_have_its_memory_between_them() {
    let Some(&launcher) = launchers().last() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let words =
        ["train", "small", "model.preset=vit_base_patch16_384", "train.batch=10000", "--device", "cpu", "--out"];
    let words = [&words[..], &[text_of(&out)]].concat();
    let one = vitreous(&[&words[..], &["train.accumulate=2"]].concat()).stderr;
    let two = run(launcher, 2, &words).stderr;
    assert!(two.contains("train.batch=10000 on each of 2 ranks of this host, which share its memory, needs "), "{two}");
    let [one, two] = [one, two].map(|said| number_behind(&said, "take a smaller batch: train.batch="));
    // Half as many, and fewer: each has parameters and moments of its own.
    assert!(two <= one * 6 / 10, "{one} images alone, {two} each of two");
}

#[test]
fn ranks_that_have_nothing_to_do_are_told_of() {
    let Some(&launcher) = launchers().last() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let run_directory = directory.path().join("run");
    let words = tiny(&["--out", text_of(&run_directory), "train.batch=10000", "train.epochs=1"]);
    let outcome = run(launcher, 2, &words).succeeded();
    assert!(outcome.stderr.contains("note: 1 rank has nothing to do"), "{}", outcome.stderr);
}

#[test]
fn variables_of_torchrun_without_gpus_are_refused_with_advice() {
    let variables = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")];
    let variables = variables.map(|(name, value)| (name, Path::new(value)));
    let outcome = common::vitreous_within(&tiny(&[]), &variables);
    outcome.failed(1, &["mpirun -n N vitreous"]);
}
