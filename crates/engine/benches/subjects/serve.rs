//! A line protocol that lets another program run a benchmark in turns with its own.
//!
//! | request | answer |
//! |---|---|
//! | (none) | `ready THREADS` once the benchmark is built |
//! | `run N` | the seconds that N runs took |
//! | `write PATH` | the number of f32s, the results of the last run, that were written to the file |
//! | `plan` | the plan, terminated by an empty line |
//!
//! Between requests the process sleeps: it reads its input, and the engine's threads wait for work.

use std::io::{self, BufRead, Write};

/// Serves one benchmark until the input ends.
pub fn serve(name: &str) -> io::Result<()> {
    let threads = super::all_cores();
    let mut subject = super::build(name, threads);
    answer(&format!("ready {threads}"))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let reply = match line.split_once(' ') {
            Some(("run", count)) => {
                let runs = count.parse().map_err(|_| wrong(&line))?;
                format!("{:e}", subject.seconds(runs))
            }
            Some(("write", path)) => {
                let results = subject.work.results().map_err(io::Error::other)?;
                std::fs::write(path, bytemuck::cast_slice::<f32, u8>(&results))?;
                results.len().to_string()
            }
            None if line == "plan" => format!("{}\n", subject.work.plan_text()),
            _ => return Err(wrong(&line)),
        };
        answer(&reply)?;
    }
    Ok(())
}

fn wrong(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("`{line}` is neither `run N`, `write PATH` nor `plan`"))
}

fn answer(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")?;
    output.flush()
}
