//! The `vitreous` command: arguments in, words out. What it does with a model is in `vitreous-runtime`.
//!
//! Data goes to stdout, notes and progress to stderr. Exit codes: 0 done, 1 the work failed, 2 wrong usage or bad input.

#[macro_use]
mod say;
mod shared_out;

mod commands;
mod device_options;
mod failure;
mod format_options;
mod generation_options;
mod image_answers;
mod images;
mod intervention_options;
mod live_input;
mod live_report;
mod prepared;
mod progress;
mod ranks;
mod signals;
mod texts;
mod vectors;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use failure::Failure;

/// Version, commit and features.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("VITREOUS_BUILD"), ")");

/// Transformers you can see through: train, evaluate, run, explain, serve and convert the transformer family
#[derive(Parser)]
#[command(name = "vitreous", version = VERSION, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 the work failed (or a part of it), 2 wrong usage or bad input")]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    /// Print only results and errors: no notes, no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(commands::train::Train),
    Predict(commands::predict::Predict),
    Embed(commands::embed::Embed),
    Fill(commands::fill::Fill),
    Generate(commands::generate::Generate),
    Chat(commands::chat::Chat),
    Explain(commands::explain::Explain),
    Report(commands::report::Report),
    Summary(commands::summary::Summary),
    Transcribe(commands::transcribe::Transcribe),
    Translate(commands::translate::Translate),
    Convert(commands::convert::Convert),
    Data(commands::data::Data),
    Eval(commands::eval::Eval),
    Bench(commands::bench::Bench),
    #[cfg(feature = "serve")]
    Serve(commands::serve::Serve),
    #[cfg(not(feature = "serve"))]
    #[command(hide = true)]
    Serve(NoServer),
    Doctor(commands::doctor::Doctor),
    Completions(Completions),
}

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous completions bash > ~/.local/share/bash-completion/completions/vitreous
  vitreous completions fish > ~/.config/fish/completions/vitreous.fish")]
struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "vitreous", &mut script);
        Ok(std::io::stdout().write_all(&script)?)
    }
}

/// Serve models over HTTP; this build cannot
#[cfg(not(feature = "serve"))]
#[derive(Args)]
struct NoServer {
    /// Anything
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

#[cfg(not(feature = "serve"))]
impl NoServer {
    fn run(&self) -> Result<(), Failure> {
        Err(Failure::input(anyhow::anyhow!(
            "this program was built without its server: build it with `--features serve`"
        )))
    }
}

fn main() -> ExitCode {
    signals::explain_deadly_ones();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return say::show_usage(&answer),
    };
    if cli.quiet {
        say::be_quiet();
    }
    let result = match cli.command {
        Command::Train(train) => train.run(),
        Command::Predict(predict) => predict.run(),
        Command::Embed(embed) => embed.run(),
        Command::Fill(fill) => fill.run(),
        Command::Generate(generate) => generate.run(),
        Command::Chat(chat) => chat.run(),
        Command::Explain(explain) => explain.run(),
        Command::Report(report) => report.run(),
        Command::Summary(summary) => summary.run(),
        Command::Transcribe(transcribe) => transcribe.run(),
        Command::Translate(translate) => translate.run(),
        Command::Convert(convert) => convert.run(),
        Command::Data(data) => data.run(),
        Command::Eval(eval) => eval.run(),
        Command::Bench(bench) => bench.run(),
        #[cfg(feature = "serve")]
        Command::Serve(serve) => serve.run(),
        #[cfg(not(feature = "serve"))]
        Command::Serve(serve) => serve.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Completions(completions) => completions.run(),
    };
    ranks::leave(result)
}
