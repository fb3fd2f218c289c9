//! `vitreous eval` of a translator: pairs in, BLEU, chrF and perplexity out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::{Value, json};
use vitreous_data::text::{self, OpenPairs, Pair, PairSplits};
use vitreous_models::generate::SearchOptions;
use vitreous_pages::format;
use vitreous_pages::write::{check_new, write_new};
use vitreous_runtime::TranslatorModel;
use vitreous_train::tasks::translate::scores::{Chrf, chrf_plus_plus};
use vitreous_train::tasks::translate::{TranslatorScores, TranslatorTest, longest_side, pair_options};
use vitreous_train::{Ranks, RunRecord};

use super::{Eval, Split, progress_bar, spread};
use crate::commands::translate::check_length_penalty;
use crate::failure::Failure;

/// Tokens per side of a batch for the loss.
const TOKENS: usize = 1024;
/// How many translations are shown.
const SHOWN: usize = 3;

/// The pairs that are evaluated.
pub(super) struct EvaluatedPairs {
    pub(super) pairs: Vec<Pair>,
    /// What they are called: of a folder by their part.
    pub(super) name: String,
    pub(super) split: Option<&'static str>,
}

/// What was asked, and the result.
struct PairScores<'a> {
    evaluated: &'a EvaluatedPairs,
    search: SearchOptions,
    scores: TranslatorScores,
    chrf_plus_plus: Chrf,
    seconds: f64,
}

impl Eval {
    pub(super) fn evaluate_pairs(&self) -> Result<(), Failure> {
        let of_images = [("--batch", self.batch.is_some()), ("--heads", self.heads.is_some()), ("--all", self.all)];
        self.refuse(&of_images, "is for images, but this is a translator")?;
        let search = SearchOptions { beam: self.beam.unwrap_or(1), length_penalty: self.length_penalty.unwrap_or(0.6) };
        check_length_penalty(search.length_penalty)?;
        if let Some(path) = &self.translations {
            check_new(path)?;
        }
        let model = self.interventions.apply(TranslatorModel::open(&self.model)?)?;
        let mut tested = self.pairs()?;
        let places = spread(tested.pairs.len(), self.limit);
        tested.pairs = places.into_iter().map(|place| tested.pairs[place].clone()).collect();

        let device = self.compute.device()?;
        let start = Instant::now();
        let architecture = model.model.architecture.as_ref();
        let test = TranslatorTest {
            model: architecture,
            tokenisers: &model.tokenizers,
            weights: &|name| model.weight(name),
            search,
            tokens: TOKENS,
            max_tokens: longest_side(architecture),
            device: &device,
            precision: self.compute.precision(),
            ranks: &Ranks::default(),
        };
        let progress = progress_bar(tested.pairs.len(), "sentences");
        let scores = test.run(&tested.pairs, usize::MAX, &mut |done, _| progress.set_position(done as u64));
        progress.finish_and_clear();
        let scores = scores.map_err(Failure::work)?;
        let references: Vec<&str> = tested.pairs.iter().map(|pair| pair.target.as_str()).collect();
        let chrf_plus_plus = chrf_plus_plus(&scores.translations, &references).map_err(Failure::work)?;
        let seconds = start.elapsed().as_secs_f64();

        if let Some(path) = &self.translations {
            let lines: String = scores.translations.iter().map(|line| format!("{line}\n")).collect();
            write_new(path, lines.as_bytes())?;
            say!("{} written", path.display());
        }
        let found = PairScores { evaluated: &tested, search, scores, chrf_plus_plus, seconds };
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", self.json_of_translation(&found))?;
        } else {
            for line in found.lines() {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// The pairs that were named, or those of the run. A file is taken whole, unless a split of it is asked for.
    pub(super) fn pairs(&self) -> Result<EvaluatedPairs, Failure> {
        // Pairs that are named for a model alone are not opened as those of its run were.
        let asks_run = self.data.is_none() || RunRecord::is_run(&self.model);
        let recipe = if asks_run { self.recipe_of_run()? } else { None };
        let path = match (&self.data, &recipe) {
            (Some(path), _) => path.clone(),
            (None, Some(recipe)) if !recipe.data.path.is_empty() => PathBuf::from(&recipe.data.path),
            _ => {
                return Err(Failure::input(anyhow!(
                    "no data to evaluate on; name pairs: vitreous eval {} --data FILE (source, tab, target on each line)",
                    self.model.display()
                )));
            }
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let is_named = self.data.is_some();
        if is_named && !path.is_dir() && self.split.is_none() && self.validation_share.is_none() {
            let read = text::read(&path, self.languages.as_ref()).map_err(Failure::input)?;
            if read.empty > 0 {
                let empty = format::count(read.empty, "pair was", "pairs were");
                say!("note: {name}: {empty} left out because a side is empty");
            }
            return EvaluatedPairs::of(&path, read.pairs, name, None);
        }
        // A run's validation split is drawn as the run did.
        let of_run = recipe.as_ref().map(pair_options).unwrap_or_default();
        let validation_share = self.validation_share.unwrap_or(of_run.validation_share);
        let options = OpenPairs { languages: self.languages.clone().or(of_run.languages), validation_share };
        let splits = text::open(&path, &options).map_err(Failure::input)?;
        splits.notes.iter().for_each(|note| say!("note: {note}"));
        let PairSplits { train, validation, test, .. } = splits;
        let (pairs, split) = match self.split {
            Some(Split::Train) => (train, "train"),
            Some(Split::Test) => (test, "test"),
            None if !test.is_empty() && is_named => (test, "test"),
            Some(Split::Validation) | None => (validation, "validation"),
        };
        EvaluatedPairs::of(&path, pairs, name, Some(split))
    }

    fn json_of_translation(&self, found: &PairScores) -> Value {
        let PairScores { evaluated: tested, search, scores, chrf_plus_plus, seconds } = found;
        json!({
            "model": self.model.display().to_string(),
            "data": tested.name,
            "split": tested.split,
            "pairs": tested.pairs.len(),
            "seconds": seconds,
            "beam": search.beam,
            "length_penalty": search.length_penalty,
            "loss": scores.loss,
            "perplexity": scores.loss.exp(),
            "tokens": scores.tokens,
            "left_out_of_loss": scores.left_out,
            "bleu": signed(&scores.bleu, scores.bleu.signature()),
            "chrf": signed(&scores.chrf, scores.chrf.signature()),
            "chrf_plus_plus": signed(chrf_plus_plus, chrf_plus_plus.signature()),
        })
    }
}

impl EvaluatedPairs {
    fn of(path: &Path, pairs: Vec<Pair>, name: String, split: Option<&'static str>) -> Result<EvaluatedPairs, Failure> {
        if !pairs.is_empty() {
            return Ok(EvaluatedPairs { pairs, name, split });
        }
        let path = path.display();
        Err(Failure::input(match split {
            None => anyhow!("{path}: there are no pairs in it"),
            Some(part) => {
                anyhow!("{path}: there are no pairs in its {part} part; hint: --split test, validation or train")
            }
        }))
    }
}

impl PairScores<'_> {
    fn lines(&self) -> Vec<String> {
        let PairScores { evaluated: tested, search, scores, chrf_plus_plus, seconds } = self;
        let count = tested.pairs.len();
        let part = tested.split.map_or(String::new(), |split| format!(", {split}"));
        let how = match search.beam {
            1 => "greedily".to_string(),
            beam => format!("with a beam of {beam} and a length penalty of {}", search.length_penalty),
        };
        let left_out = match scores.left_out {
            0 => String::new(),
            pairs => format!("; {} too long for it", format::count(pairs, "pair is", "pairs are")),
        };
        let mut lines = vec![
            format!("{}{part}: {} in {seconds:.2} s, {how}", tested.name, format::count(count, "pair", "pairs")),
            scores.bleu.to_string(),
            format!("{}   {chrf_plus_plus}", scores.chrf),
            format!(
                "loss {:.4} per token, perplexity {:.2}, over {}{left_out}",
                scores.loss,
                scores.loss.exp(),
                format::count(scores.tokens as usize, "token", "tokens")
            ),
            String::new(),
        ];
        for place in spread(count, Some(SHOWN)) {
            let Pair { source, target } = &tested.pairs[place];
            lines.push(format!("  {}", format::one_line(source)));
            lines.push(format!("  -> {}", format::one_line(&scores.translations[place])));
            lines.push(format!("   = {}", format::one_line(target)));
        }
        lines.push(String::new());
        lines.push(format!("BLEU     {}", scores.bleu.signature()));
        lines.push(format!("chrF2    {}", scores.chrf.signature()));
        lines.push(format!("chrF2++  {}", chrf_plus_plus.signature()));
        lines
    }
}

/// A score with all its parts and how it was computed.
fn signed(score: &impl Serialize, signature: String) -> Value {
    let mut value = json!(score);
    value["signature"] = signature.into();
    value
}
