//! `predict`, `embed`, `generate --file` and `transcribe` whose inputs several processes share out: the answers of one process, in its
//! order, whoever computed them, and after any of them was killed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::ranks::{Launcher, command, launchers};
use common::{Outcome, fixtures, vitreous, vitreous_with_input};
use vitreous_engine::{Graph, State};
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Call, Model, OpenOptions, SaveOptions, preset};

/// A process of a run, with variables of its own.
fn start(arguments: &[&str], variables: &[(&str, String)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .current_dir(fixtures())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vitreous starts")
}

fn outcome(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("vitreous ends");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// What one launcher sets for a rank of several that run together.
fn together(rank: usize, count: usize) -> Vec<(&'static str, String)> {
    let address = ("MASTER_ADDR", "localhost".to_string());
    vec![("RANK", rank.to_string()), ("WORLD_SIZE", count.to_string()), address, ("MASTER_PORT", "1".to_string())]
}

/// Runs so many ranks at once; what rank 0 said, after all have succeeded.
fn ranks(count: usize, arguments: &[&str]) -> Outcome {
    let children: Vec<Child> = (0..count).map(|rank| start(arguments, &together(rank, count))).collect();
    let mut outcomes: Vec<Outcome> = children.into_iter().map(outcome).collect();
    for (rank, outcome) in outcomes.iter().enumerate().skip(1) {
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "rank {rank}: {}", outcome.stderr);
    }
    outcomes.remove(0)
}

/// Under a real `mpirun`.
fn under(launcher: Launcher, count: usize, arguments: &[&str]) -> Outcome {
    let output = command(launcher, count, arguments).current_dir(fixtures()).output().expect("mpirun runs");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// One rank of a job array, which runs when it may.
fn array(rank: usize, count: usize, arguments: &[&str]) -> Outcome {
    let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", count.to_string())];
    outcome(start(arguments, &variables))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A file of different lines of several lengths.
fn lines(folder: &Path, count: usize) -> PathBuf {
    const WORDS: [&str; 8] = ["a man", "is eating", "some food", "while", "two dogs", "run", "on the beach", "."];
    let line = |number: usize| {
        let words = (0..=number % 11).map(|place| WORDS[(number * 7 + place * (number % 5 + 1)) % WORDS.len()]);
        format!("{} {number}\n", words.collect::<Vec<_>>().join(" "))
    };
    let path = folder.join("lines.txt");
    fs::write(&path, (0..count).map(line).collect::<String>()).expect("written");
    path
}

fn is_empty_of_parts(folder: &Path) {
    let names = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".parts")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn ten_thousand_lines_have_the_vectors_of_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lines(folder.path(), 10_000);
    let embed = |out: &str| {
        let out = text(&folder.path().join(out)).to_string();
        ["embed", "texts/sentence_mean", "--file", text(&file), "--device", "cpu", "--threads", "1", "--out", &out]
            .map(str::to_string)
    };
    let run = |count: usize, out: &str| {
        let arguments = embed(out);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match count {
            1 => vitreous(&arguments),
            count => ranks(count, &arguments),
        }
        .succeeded()
    };
    for ending in ["npy", "parquet"] {
        run(1, &format!("one.{ending}"));
        let said = run(3, &format!("three.{ending}")).stderr;
        assert!(said.contains("10,000 inputs in 10 chunks put together, by 3 ranks"), "{said}");
        let bytes = |name: &str| fs::read(folder.path().join(format!("{name}.{ending}"))).expect("a file");
        assert!(bytes("one") == bytes("three"), "{ending}");
    }
    is_empty_of_parts(folder.path());
    let arguments = embed("mpi.npy");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for launcher in launchers() {
        under(launcher, 2, &arguments).succeeded();
        let bytes = |name: &str| fs::read(folder.path().join(name)).expect("a file");
        assert!(bytes("one.npy") == bytes("mpi.npy"), "{launcher:?}");
        fs::remove_file(folder.path().join("mpi.npy")).expect("removed");
    }
}

/// A run of each command, and a name for it. Chunks are small, so that every rank has some.
fn commands(folder: &Path) -> Vec<(&'static str, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let file = lines(folder, 23);
    let file = text(&file);
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate/llama");
    let speaker = speech_model(folder);
    let audio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/audio");
    let (one, other) = (audio.join("mono.wav"), audio.join("mono.mp3"));
    let sampled = ["--max-tokens", "12", "--temperature", "0.9", "--seed", "5", "--n", "2"];
    vec![
        ("images", owned(&["predict", "tiny_vit", "pictures", "--json", "--chunk", "1"])),
        ("texts", owned(&["predict", "texts/bert_classes", "--file", file, "--chunk", "4"])),
        ("entities", owned(&["predict", "texts/bert_tokens", "--file", file, "--json", "--chunk", "5"])),
        ("vectors", owned(&["embed", "texts/sentence_mean", "--file", file, "--json", "--chunk", "4"])),
        ("search", owned(&["embed", "texts/sentence_mean", "--file", file, "--search", "two dogs", "--chunk", "4"])),
        ("image vectors", owned(&["embed", "tiny_vit", "pictures", "--chunk", "1"])),
        ("prompts", [owned(&["generate", text(&generator), "--file", file, "--chunk", "3"]), owned(&sampled)].concat()),
        ("recordings", owned(&["transcribe", &speaker, text(&one), text(&other), text(&one), "--format", "srt"])),
    ]
    .into_iter()
    .map(|(name, words)| (name, [words, owned(&["--device", "cpu", "--threads", "1"])].concat()))
    .map(|(name, words)| match name {
        "recordings" => (name, [words, owned(&HEARD_ONCE)].concat()),
        _ => (name, words),
    })
    .collect()
}

/// What a random model writes is unlikely: without these, every window would be tried at all temperatures.
const HEARD_ONCE: [&str; 8] = [
    "--temperature",
    "0",
    "--logprob-threshold",
    "-1000",
    "--no-speech-threshold",
    "1",
    "--compression-ratio-threshold",
    "1000",
];

/// A speech model of the smallest sizes, with random weights.
fn speech_model(folder: &Path) -> String {
    let mut sizes = OpenOptions::default();
    for key in ["dim", "mlp_dim", "decoder_mlp_dim"] {
        sizes = sizes.with(key, 16);
    }
    for key in ["heads", "decoder_heads", "encoder_layers", "decoder_layers"] {
        sizes = sizes.with(key, 1);
    }
    let architecture = preset("whisper_tiny_en").expect("known").with_settings(&sizes.settings).expect("fits");
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).expect("builds");
    let mut state = State::new(&graph).expect("memory");
    initialise(&mut state, Initialisation::PyTorch, 1, &|_| true).expect("initialised");
    let target = folder.join("speech");
    let options = SaveOptions { state: Some(&state), ..SaveOptions::default() };
    Model::new(architecture, Vec::new()).expect("a model").save(&target, &options).expect("saved");
    text(&target).to_string()
}

#[test]
fn every_command_gives_the_answers_of_one_process_in_its_order() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, words) in commands(folder.path()) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let one = vitreous(&words).succeeded().stdout;
        assert!(!one.is_empty(), "{name}");
        for count in [2, 3] {
            // Parts of all runs go to one place, one after the other.
            let parts = folder.path().join("parts");
            let kept = [&words[..], &["--parts", text(&parts)]].concat();
            assert_eq!(ranks(count, &kept).succeeded().stdout, one, "{name}, {count} ranks");
            assert!(!parts.exists(), "{name}: parts are removed when they are put together");
        }
        for launcher in launchers() {
            let parts = folder.path().join("parts");
            let kept = [&words[..], &["--parts", text(&parts)]].concat();
            assert_eq!(under(launcher, 2, &kept).succeeded().stdout, one, "{name}, {launcher:?}");
        }
    }
}

#[test]
fn answers_go_to_files_that_appear_when_they_are_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lines(folder.path(), 12);
    let out = folder.path().join("answers.txt");
    let words = ["predict", "texts/bert_classes", "--file", text(&file), "--device", "cpu", "--chunk", "5"];
    let printed = vitreous(&words).succeeded().stdout;
    let words = [&words[..], &["--out", text(&out)]].concat();
    ranks(2, &words).succeeded();
    assert_eq!(fs::read_to_string(&out).expect("a file"), printed);
    is_empty_of_parts(folder.path());
    vitreous(&words).failed(2, &["exists", "--force"]);
    fs::write(&out, "old").expect("written");
    vitreous(&[&words[..], &["--force"]].concat()).succeeded();
    assert_eq!(fs::read_to_string(&out).expect("a file"), printed);

    // Of recordings a file each.
    let speaker = speech_model(folder.path());
    let audio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/audio");
    let (one, other) = (audio.join("mono.wav"), audio.join("stereo.flac"));
    let transcribe = |to: &str| {
        let to = folder.path().join(to);
        let files = [text(&one), text(&other), "--out", text(&to)].map(str::to_string);
        let words = ["transcribe", &speaker, "--device", "cpu"].map(str::to_string);
        [&words[..], &files[..], &HEARD_ONCE.map(str::to_string)[..]].concat()
    };
    let run = |words: Vec<String>, count: usize| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if count == 1 { vitreous(&words).succeeded() } else { ranks(count, &words).succeeded() }
    };
    run(transcribe("alone"), 1);
    run(transcribe("shared"), 2);
    let files = |to: &str| {
        let entries = fs::read_dir(folder.path().join(to)).expect("a folder").flatten();
        let mut all: Vec<_> =
            entries.map(|entry| (entry.file_name(), fs::read(entry.path()).expect("a file"))).collect();
        all.sort();
        all
    };
    assert_eq!(files("alone").len(), 2);
    assert!(files("alone") == files("shared"));
}

/// Parts in a directory.
fn parts_in(directory: &Path) -> usize {
    let folders = fs::read_dir(directory).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let parts = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    parts.filter(|part| part.path().extension().is_some_and(|ending| ending == "part")).count()
}

#[test]
fn killed_ranks_are_resumed_by_any_number_without_computing_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lines(folder.path(), 3_000);
    let parts = folder.path().join("parts");
    let words = ["embed", "texts/sentence_mean", "--file", text(&file), "--json", "--device", "cpu", "--chunk", "10"];
    let one = vitreous(&words).succeeded().stdout;
    let kept = [&words[..], &["--threads", "1", "--parts", text(&parts)]].concat();
    for (wanted, again) in [(2, 3), (90, 1)] {
        let mut children: Vec<Child> = (0..2).map(|rank| start(&kept, &together(rank, 2))).collect();
        while parts_in(&parts) < wanted && children.iter_mut().all(|child| child.try_wait().expect("a child").is_none())
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        // As a launcher does when one of them dies.
        children.iter_mut().for_each(|child| child.kill().expect("killed"));
        children.into_iter().for_each(|child| drop(outcome(child)));
        let before = parts_in(&parts);
        assert!((wanted..300).contains(&before), "{before} of 300 chunks were done");
        let resumed = match again {
            1 => vitreous(&kept),
            count => ranks(count, &kept),
        }
        .succeeded();
        assert!(resumed.stdout == one, "killed after {before} chunks, resumed by {again}");
        if again == 1 {
            let said = format!("here {} were computed and {before} were there", 300 - before);
            assert!(resumed.stderr.contains(&said), "{said}: {}", resumed.stderr);
        }
        assert!(!parts.exists());
    }
}

#[test]
fn a_damaged_part_is_computed_again_or_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lines(folder.path(), 40);
    let parts = folder.path().join("parts");
    let words = ["embed", "texts/sentence_mean", "--file", text(&file), "--json", "--device", "cpu", "--chunk", "10"];
    let one = vitreous(&words).succeeded().stdout;
    let kept = [&words[..], &["--parts", text(&parts)]].concat();
    assert_eq!(array(0, 2, &kept).succeeded().stdout, "");
    let part = parts.join("0000/2.part");
    let bytes = fs::read(&part).expect("a part");
    // Cut short: computed again.
    fs::write(&part, &bytes[..bytes.len() / 2]).expect("written");
    assert_eq!(array(1, 2, &kept).succeeded().stdout, "", "it is not complete");
    assert_eq!(vitreous(&kept).succeeded().stdout, one);
    // The same length with other bytes: refused when it is put together.
    array(0, 2, &kept).succeeded();
    let mut bytes = fs::read(&part).expect("a part");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&part, bytes).expect("written");
    array(1, 2, &kept).failed(1, &["2.part", "damaged", "remove it"]);
    fs::remove_file(&part).expect("removed");
    assert_eq!(vitreous(&kept).succeeded().stdout, one);
}

#[test]
fn tasks_of_an_array_are_put_together_by_the_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lines(folder.path(), 30);
    let out = folder.path().join("vectors.npy");
    let words = ["embed", "texts/sentence_mean", "--file", text(&file), "--device", "cpu", "--chunk", "4"];
    let alone = folder.path().join("alone.npy");
    vitreous(&[&words[..], &["--out", text(&alone)]].concat()).succeeded();
    let words = [&words[..], &["--out", text(&out)]].concat();
    for rank in [2, 0] {
        let said = array(rank, 3, &words).succeeded().stderr;
        assert!(said.contains(&format!("rank {rank} of 3 has done its part")), "{said}");
        assert!(!out.exists());
    }
    array(1, 3, &words).succeeded();
    assert!(fs::read(&out).expect("a file") == fs::read(&alone).expect("a file"));
    is_empty_of_parts(folder.path());
}

#[test]
fn a_rank_that_fails_is_named_and_what_was_done_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("questions.jsonl");
    let asked = |question: &str| format!("{{\"question\": \"{question}\", \"context\": \"Ada wrote it.\"}}\n");
    fs::write(&file, [asked("Who?"), asked(" "), asked("What?")].concat()).expect("written");
    let parts = folder.path().join("parts");
    let words = ["predict", "texts/bert_answers", "--file", text(&file), "--device", "cpu", "--chunk", "1"];
    let words = [&words[..], &["--parts", text(&parts)]].concat();
    let children: Vec<Child> = (0..2).map(|rank| start(&words, &together(rank, 2))).collect();
    let outcomes: Vec<Outcome> = children.into_iter().map(outcome).collect();
    let [first, second] = <[Outcome; 2]>::try_from(outcomes).ok().expect("two");
    second.failed(2, &["must not be empty"]);
    first.failed(1, &["rank 1 on ", "has failed", "1 chunk is missing", "run the same command again"]);
    assert_eq!(parts_in(&parts), 2);
    // The input was mended: what is the same stays.
    fs::write(&file, [asked("Who?"), asked("Where?"), asked("What?")].concat()).expect("written");
    let said = vitreous(&words).succeeded().stderr;
    assert!(said.contains("here 1 were computed and 2 were there"), "{said}");
}

#[test]
fn images_that_cannot_be_read_are_told_as_by_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let pictures = folder.path().join("pictures");
    fs::create_dir(&pictures).expect("a folder");
    for name in ["a.png", "c.png"] {
        fs::copy(fixtures().join("pictures/noise.png"), pictures.join(name)).expect("copied");
    }
    fs::write(pictures.join("b.png"), "no image").expect("written");
    for words in [["predict", "tiny_vit"], ["embed", "tiny_vit"]] {
        let words = [&words[..], &[text(&pictures), "--json", "--device", "cpu", "--chunk", "1"]].concat();
        let one = vitreous(&words).failed(1, &[]).stdout;
        assert!(one.contains("b.png"), "{one}");
        let parts = folder.path().join("parts");
        let shared = ranks(2, &[&words[..], &["--parts", text(&parts)]].concat());
        assert_eq!(shared.failed(1, &["1 input has no answer"]).stdout, one);
        assert!(!parts.exists());
    }
}

#[test]
fn what_cannot_be_shared_out_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = folder.path().join("parts");
    let words = ["embed", "texts/sentence_mean", "--device", "cpu", "--parts", text(&parts)];
    vitreous_with_input(&words, "a\n").failed(2, &["standard input is one process's", "name files"]);
    let file = lines(folder.path(), 3);
    let file = ["--file", text(&file)];
    let words = [&words[..], &file].concat();
    assert_eq!(array(0, 2, &[&words[..], &["--chunk", "2"]].concat()).succeeded().stdout, "");
    vitreous(&[&words[..], &["--pooling", "cls"]].concat()).failed(2, &["another command", "--parts"]);
    array(2, 2, &words).failed(2, &["RANK=2", "WORLD_SIZE=2"]);
    // A directory with other files is nobody's to fill.
    let other =
        [&["embed", "texts/sentence_mean", "--device", "cpu", "--parts", text(folder.path())][..], &file].concat();
    vitreous(&other).failed(2, &["has other files"]);
}
