//! Runs the command as a user would.
#![allow(dead_code)] // each test binary uses its part

pub mod chart;
pub mod page;
pub mod ranks;
pub mod texts;
pub mod training;
pub mod translation;
pub mod translator;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Arguments for runs of two commands that are compared to the bit. On a GPU their plans may have different kernels, which add in another order.
pub const ON_CPU: [&str; 2] = ["--device", "cpu"];

/// What a run left behind.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Each line of the output as JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// Panics unless the run succeeded.
    pub fn succeeded(self) -> Outcome {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// Panics unless the run failed with this code and said all of this, and nothing of panics.
    pub fn failed(self, code: i32, says: &[&str]) -> Outcome {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        for text in says {
            assert!(self.stderr.contains(text), "`{text}` is not in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// Runs `vitreous` with these arguments.
pub fn vitreous(arguments: &[&str]) -> Outcome {
    vitreous_with_input(arguments, "")
}

/// Runs `vitreous` with these arguments and this standard input.
pub fn vitreous_with_input(arguments: &[&str], input: &str) -> Outcome {
    run(arguments, input.as_bytes(), &[])
}

/// Runs `vitreous` with these arguments and a standard input that is no text.
pub fn vitreous_with_bytes(arguments: &[&str], input: &[u8]) -> Outcome {
    run(arguments, input, &[])
}

/// Runs `vitreous` with these arguments and environment variables.
pub fn vitreous_within(arguments: &[&str], variables: &[(&str, &Path)]) -> Outcome {
    run(arguments, b"", variables)
}

/// Writes one line after the other to `vitreous`, and waits for the answer to each before the next. Gives the answers and the exit code.
pub fn answered_line_by_line(arguments: &[&str], lines: &[&str]) -> (Vec<Value>, Option<i32>) {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(arguments)
        .current_dir(fixtures())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("vitreous starts");
    let mut input = child.stdin.take().expect("an input");
    let (send, answers) = std::sync::mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("an output"));
    std::thread::spawn(move || output.lines().try_for_each(|line| send.send(line.expect("text"))));
    let mut answer_to = |line: &&str| {
        writeln!(input, "{line}").expect("written");
        // Far longer than it takes: without an answer this would be for ever.
        let answer = answers.recv_timeout(std::time::Duration::from_secs(120));
        if answer.is_err() {
            child.kill().expect("killed");
        }
        serde_json::from_str(&answer.expect("an answer")).expect("JSON")
    };
    let all = lines.iter().map(&mut answer_to).collect();
    drop(input);
    (all, child.wait().expect("vitreous ends").code())
}

fn run(arguments: &[&str], input: &[u8], variables: &[(&str, &Path)]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(fixtures())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vitreous starts");
    // It may end before it has read everything.
    let _ = child.stdin.take().expect("an input").write_all(input);
    let output = child.wait_with_output().expect("vitreous ends");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// The folder of this package's fixtures, in which runs take place.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A copy of a model directory in which the preprocessor or the configuration was changed.
pub fn changed_copy(model: &str, to: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(fixtures().join(model)).expect("a fixture") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
    let mut value = serde_json::from_slice(&std::fs::read(to.join(file)).expect("a file")).expect("JSON");
    change(&mut value);
    std::fs::write(to.join(file), value.to_string()).expect("written");
}

/// A file of `vitreous-models`' fixtures, alone in a folder, so that no configuration lies beside it.
pub fn bare(file: &str, to: &Path) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/src/families/vit/tests/fixtures");
    std::fs::copy(fixtures.join(file), to).expect("copied");
}
