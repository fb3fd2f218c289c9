//! `vitreous fill`: what a masked language model would write in the place of masks.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use vitreous_models::OpenOptions;
use vitreous_pages::format;
use vitreous_runtime::text::{Filler, Filling, TextModel, fillings_json};

use super::parse_count;
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use crate::texts::{AT_ONCE, TextFiles, TextTally, take_texts, text_input};

/// Fill the blanks of texts with a masked language model
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous fill MODEL 'The capital of France is [MASK].'
  vitreous fill MODEL --file texts.txt --top 3 --json

Write a blank as [MASK] or <mask>: both are understood, whichever the model uses itself.")]
pub struct Fill {
    /// A model directory
    model: PathBuf,
    /// Texts with blanks; without any, and without --file, they are read from standard input
    #[arg(value_name = "TEXT", conflicts_with = "files")]
    texts: Vec<String>,
    #[command(flatten)]
    files: TextFiles,
    /// How many tokens to show for each blank
    #[arg(long, value_name = "K", default_value = "5", value_parser = parse_count, allow_negative_numbers = true)]
    top: usize,
    /// Print one JSON object per line: text, and for each blank in `masks` the tokens with their scores in `top`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compute: ComputeOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
}

impl Fill {
    pub fn run(self) -> Result<(), Failure> {
        let model = self.interventions.apply(TextModel::open(&self.model, &OpenOptions::default())?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let device = self.compute.device()?;
        let mut filler = Filler::new(&model, &self.model.to_string_lossy(), self.compute.precision(), &device)?;
        let mut out = crate::say::stdout();
        let texts: &[String] = if self.texts == ["-"] { &[] } else { &self.texts };
        let mut tally = TextTally::new();
        take_texts(texts, &self.files.files, AT_ONCE, text_input, |inputs| {
            tally.texts += inputs.len();
            for (input, masks) in inputs.iter().zip(filler.fill(inputs, self.top)?) {
                let own = filler.with_own_mask(&input.text);
                match self.json {
                    true => writeln!(out, "{}", fillings_json(&input.text, &masks))?,
                    false => {
                        writeln!(out, "{}", format::one_line(&filled(&own, filler.mask(), &masks)))?;
                        for (number, top) in masks.iter().enumerate() {
                            for filling in top {
                                let which = if masks.len() > 1 { format!("{}  ", number + 1) } else { String::new() };
                                let token = format::one_line(filling.token.trim());
                                writeln!(out, "  {which}{:5.1} %  {token}", 100.0 * filling.score)?;
                            }
                        }
                    }
                }
            }
            // Whoever reads along sees them when they are there.
            Ok(out.flush()?)
        })?;
        tally.truncated = filler.truncated();
        tally.tell(model.longest, filler.runner().computing(), &device);
        Ok(())
    }
}

/// A text with the best token in each blank.
fn filled(text: &str, mask: &str, masks: &[Vec<Filling>]) -> String {
    let mut parts = text.split(mask);
    let mut filled = parts.next().unwrap_or_default().to_string();
    let mut best = masks.iter().map(|top| top.first().map_or(mask, |filling| filling.token.trim()));
    for part in parts {
        filled.push_str(best.next().unwrap_or(mask));
        filled.push_str(part);
    }
    filled
}
