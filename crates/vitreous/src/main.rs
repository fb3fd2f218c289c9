//! The `vitreous` command. Data goes to stdout, talk to stderr.
//!
//! Exit codes: 0 done, 1 the work failed, 2 wrong usage or bad input.

#[macro_use]
mod say;

mod classes;
mod commands;
mod device;
mod failure;
mod images;
mod page_facts;
mod prepared;
mod progress;
mod run_report;
mod runner;
mod samples;
mod scores;
mod source;
mod step;
mod text_source;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vitreous_pages::{folding, format};

/// Transformers you can see through: train, test, run, look at and convert Vision Transformers
#[derive(Parser)]
#[command(name = "vitreous", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 the work failed (or a part of it), 2 wrong usage or bad input")]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(commands::train::Train),
    Predict(commands::predict::Predict),
    Explain(commands::explain::Explain),
    Report(commands::report::Report),
    Summary(commands::summary::Summary),
    Translate(commands::translate::Translate),
    Convert(commands::convert::Convert),
    Data(commands::data::Data),
    Eval(commands::eval::Eval),
    Bench(commands::bench::Bench),
    Doctor(commands::doctor::Doctor),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(train) => train.run(),
        Command::Predict(predict) => predict.run(),
        Command::Explain(explain) => explain.run(),
        Command::Report(report) => report.run(),
        Command::Summary(summary) => summary.run(),
        Command::Translate(translate) => translate.run(),
        Command::Convert(convert) => convert.run(),
        Command::Data(data) => data.run(),
        Command::Eval(eval) => eval.run(),
        Command::Bench(bench) => bench.run(),
        Command::Doctor(doctor) => doctor.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
