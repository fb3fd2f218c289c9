//! `vitreous eval` of an encoder-decoder with its own tokenizer: pairs in, BLEU, chrF and ROUGE out.

use std::io::Write;
use std::time::Instant;

use serde_json::json;
use vitreous_models::generate::Hypothesis;
use vitreous_pages::format;
use vitreous_pages::write::{check_new, write_new};
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter};
use vitreous_train::tasks::seq2seq::rouge::rouge;
use vitreous_train::tasks::translate::one_line;
use vitreous_train::tasks::translate::scores::{bleu, chrf};

use super::{Eval, progress_bar, spread};
use crate::commands::translate::check_length_penalty;
use crate::failure::Failure;

/// Texts that are written at a time, so that progress can be shown.
const AT_ONCE: usize = 256;
/// How many texts are shown.
const SHOWN: usize = 3;

impl Eval {
    pub(super) fn evaluate_sequences(&self) -> Result<(), Failure> {
        let of_images = [("--batch", self.batch.is_some()), ("--heads", self.heads.is_some()), ("--all", self.all)];
        self.refuse(&of_images, "is for images, but this is an encoder-decoder")?;
        if let Some(penalty) = self.length_penalty {
            check_length_penalty(penalty)?;
        }
        if let Some(path) = &self.translations {
            check_new(path)?;
        }
        let model = self.interventions.apply(SequenceModel::open(&self.model)?)?;
        let mut tested = self.pairs()?;
        let places = spread(tested.pairs.len(), self.limit);
        tested.pairs = places.into_iter().map(|place| tested.pairs[place].clone()).collect();
        let device = self.compute.device()?;
        let start = Instant::now();
        let options = SequenceOptions {
            beam: self.beam,
            length_penalty: self.length_penalty,
            from: self.from.clone(),
            to: self.to.clone(),
            truncate: true,
            ..SequenceOptions::default()
        };
        let mut writer = SequenceWriter::new(&model, &options, self.compute.precision(), &device)?;
        let progress = progress_bar(tested.pairs.len(), "texts");
        let mut written = Vec::new();
        for pairs in tested.pairs.chunks(AT_ONCE) {
            let sources: Vec<String> = pairs.iter().map(|pair| pair.source.clone()).collect();
            for hypotheses in writer.write(&sources)? {
                let best = hypotheses.first().map(|Hypothesis { tokens, .. }| tokens.as_slice()).unwrap_or_default();
                written.push(one_line(&model.text(best)?));
            }
            progress.set_position(written.len() as u64);
        }
        progress.finish_and_clear();
        let references: Vec<&str> = tested.pairs.iter().map(|pair| pair.target.as_str()).collect();
        let (bleu, chrf) = (bleu(&written, &references), chrf(&written, &references));
        let (bleu, chrf) = (bleu.map_err(Failure::work)?, chrf.map_err(Failure::work)?);
        let rouge = rouge(&written, &references);
        let seconds = start.elapsed().as_secs_f64();
        if let Some(path) = &self.translations {
            let lines: String = written.iter().map(|line| format!("{line}\n")).collect();
            write_new(path, lines.as_bytes())?;
            say!("{} written", path.display());
        }
        if writer.truncated() > 0 {
            let texts = format::count(writer.truncated(), "text was", "texts were");
            say!("note: {texts} longer than the model can read, {} tokens, and truncated", model.source.longest);
        }
        let mut out = crate::say::stdout();
        if self.json {
            let object = json!({
                "model": self.model.display().to_string(),
                "data": tested.name,
                "split": tested.split,
                "pairs": written.len(),
                "seconds": seconds,
                "beam": writer.beam(),
                "bleu": {"score": bleu.score, "signature": bleu.signature()},
                "chrf": {"score": chrf.score, "signature": chrf.signature()},
                "rouge1": rouge.rouge1,
                "rouge2": rouge.rouge2,
                "rouge_l": rouge.rouge_l,
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        let part = tested.split.map_or(String::new(), |split| format!(", {split}"));
        writeln!(out, "{}{part}: {} in {seconds:.2} s", tested.name, format::count(written.len(), "pair", "pairs"))?;
        writeln!(out, "{bleu}\n{chrf}")?;
        writeln!(out, "ROUGE-1 {:.2}   ROUGE-2 {:.2}   ROUGE-L {:.2}\n", rouge.rouge1, rouge.rouge2, rouge.rouge_l)?;
        for place in spread(written.len(), Some(SHOWN)) {
            let short = |text: &str| format::one_line(&text.chars().take(200).collect::<String>());
            writeln!(out, "  {}", short(&tested.pairs[place].source))?;
            writeln!(out, "  -> {}", short(&written[place]))?;
            writeln!(out, "   = {}", short(&tested.pairs[place].target))?;
        }
        Ok(())
    }
}
