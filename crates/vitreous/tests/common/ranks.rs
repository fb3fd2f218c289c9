//! Runs the command as several ranks, under each `mpirun` that is installed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::training::{assert_same_results, metrics};
use super::{Outcome, vitreous};

/// A launcher, and what it needs to be told here: tests may run as root, and with fewer cores than ranks.
pub type Launcher = (&'static str, &'static [&'static str]);

const LAUNCHERS: [Launcher; 2] =
    [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]), ("mpirun.mpich", &[])];

/// The launchers that are installed. Without any, tests say so and pass.
pub fn launchers() -> Vec<Launcher> {
    let there = |launcher: &Launcher| Command::new(launcher.0).arg("--version").output().is_ok();
    let found: Vec<Launcher> = LAUNCHERS.into_iter().filter(there).collect();
    if found.is_empty() {
        eprintln!("skipped: no mpirun");
    }
    found
}

/// The command, to be run by so many ranks.
pub fn command(launcher: Launcher, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(launcher.0);
    command.args(launcher.1).args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_vitreous")]).args(arguments);
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn run(launcher: Launcher, ranks: usize, arguments: &[&str]) -> Outcome {
    let output = command(launcher, ranks, arguments).output().expect("mpirun starts");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Starts it.
pub fn start(launcher: Launcher, ranks: usize, arguments: &[&str]) -> Child {
    let mut command = command(launcher, ranks, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts")
}

/// The ranks of a launcher that was started, by their process numbers: its descendants that run this program.
pub fn processes(launcher: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut of = vec![launcher];
    while let Some(parent) = of.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            of.extend(children.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
        }
        let program = std::fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default();
        if program.file_name() == Path::new(env!("CARGO_BIN_EXE_vitreous")).file_name() {
            found.push(parent);
        }
    }
    found.sort_unstable();
    found
}

pub fn text_of(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Trains with one process that accumulates, and with ranks that do not: both leave the same bytes.
pub fn assert_same_as_one(launcher: Launcher, ranks: usize, words: &[&str], accumulate: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, many) = (directory.path().join("one"), directory.path().join("many"));
    let all = format!("train.accumulate={}", ranks * accumulate);
    vitreous(&[words, &["--out", text_of(&one), &all]].concat()).succeeded();
    let own = format!("train.accumulate={accumulate}");
    let outcome = run(launcher, ranks, &[words, &["--out", text_of(&many), &own]].concat()).succeeded();
    let told = format!("ranks   {ranks} on 1 host (");
    assert_eq!(outcome.stderr.matches(&told).count(), 1, "{}", outcome.stderr);
    assert_eq!(outcome.stdout.matches("Validation: ").count(), 1, "{}", outcome.stdout);
    assert_same_results(&one, &many);
    assert!(metrics(&many).iter().any(|line| line["rank_wait"].as_f64().is_some()), "nobody waited");
}
