//! `vitreous chat`: a conversation in the terminal.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use signal_hook::consts::SIGINT;
use vitreous_data::text::Lines;
use vitreous_pages::format;
use vitreous_runtime::language::{Chat as Conversation, LanguageModel};

use crate::failure::Failure;
use crate::generation_options::{MachineOptions, WritingOptions, tell_speed};
use crate::intervention_options::InterventionOptions;

/// The temperature of answers, if none is given.
const USUAL_TEMPERATURE: f32 = 0.7;
/// Tokens of a conversation, if no number is given: keys and values take memory.
const USUAL_CONTEXT: usize = 4096;

/// Talk with a language model in the terminal
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous chat MODEL
  vitreous chat MODEL --system 'Answer in one sentence.' --temperature 0
  printf 'Hello!\\nWho are you?\\n' | vitreous chat MODEL        one message per line

Ctrl-C stops an answer; twice, or where a message is expected, it ends the program, as Ctrl-D does. /reset forgets the
conversation.")]
pub struct Chat {
    /// A model directory
    model: PathBuf,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    writing: WritingOptions,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        let options = self.writing.text_options(USUAL_TEMPERATURE)?;
        let model = self.interventions.apply(LanguageModel::open(&self.model)?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let device = self.machine.open_device()?;
        let context = self.machine.context.unwrap_or(USUAL_CONTEXT).min(model.longest);
        let generate = self.machine.generate_options(1, context);
        let system = self.system.as_deref();
        let mut chat = Conversation::new(&model, system, options, generate, &device)?;
        let stop = StopSignal::new()?;
        let is_terminal = std::io::stdin().is_terminal();
        if is_terminal {
            say!("a message and Enter; Ctrl-C stops an answer, Ctrl-D ends, /reset forgets the conversation");
        }
        let mut out = crate::say::stdout();
        let mut lines = Lines::of(Box::new(std::io::stdin()), Path::new("standard input"));
        loop {
            if is_terminal {
                // Behind the last line of an answer, whatever stderr is.
                eprint!("> ");
            }
            let Some(line) = lines.next_line().map_err(Failure::input)? else { break };
            let message = line.trim();
            match message {
                "" => continue,
                "/reset" => {
                    chat.reset();
                    say!("the conversation is forgotten");
                    continue;
                }
                _ => {}
            }
            stop.begin_answer();
            let mut failed = None;
            let answered = chat.say(message, |piece| {
                let written = write!(out, "{piece}").and_then(|()| out.flush());
                failed = written.err();
                Ok(failed.is_none() && !stop.is_asked_for())
            });
            stop.end_answer();
            if let Some(error) = failed {
                return Err(error.into());
            }
            let (_, forgotten) = match answered {
                Ok(answered) => answered,
                // Somebody who sits there can say something shorter.
                Err(error) if is_terminal => {
                    say!("error: {error}");
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            writeln!(out)?;
            out.flush()?;
            if forgotten > 0 {
                let messages = format::count(forgotten, "message", "messages");
                say!("note: the context is full: the oldest {messages} were left out");
            }
        }
        if is_terminal {
            eprintln!();
        }
        tell_speed(&chat.tally(), &device);
        Ok(())
    }
}

/// Ctrl-C: the first one during an answer stops it, any other ends the program.
struct StopSignal {
    stop: Arc<AtomicBool>,
    ends_program: Arc<AtomicBool>,
}

impl StopSignal {
    fn new() -> Result<StopSignal, Failure> {
        let (stop, ends_program) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        // In this order: the program ends only if it was so before this signal.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, ends_program.clone()).map_err(Failure::work)?;
        signal_hook::flag::register(SIGINT, stop.clone()).map_err(Failure::work)?;
        signal_hook::flag::register(SIGINT, ends_program.clone()).map_err(Failure::work)?;
        Ok(StopSignal { stop, ends_program })
    }

    fn begin_answer(&self) {
        self.stop.store(false, Ordering::SeqCst);
        self.ends_program.store(false, Ordering::SeqCst);
    }

    fn end_answer(&self) {
        self.ends_program.store(true, Ordering::SeqCst);
    }

    fn is_asked_for(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
