//! `vitreous eval` of an encoder of texts: classes, numbers, tags of words, answers to questions, or masked tokens.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use vitreous_data::text::{
    LabelKind, LabelledText, OpenLabelled, TaggedSentence, open_labelled, open_plain, open_tagged,
};
use vitreous_engine::Device;
use vitreous_models::encode::{EncoderOutput, EncoderRunner};
use vitreous_models::{Gives, Head, OpenOptions};
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::locate::no_head;
use vitreous_runtime::text::{TextInput, TextModel};
use vitreous_train::tasks::classify_text::{Predicted, classify, labelled_options, measure};
use vitreous_train::tasks::mask_tokens::evaluate_masks;
use vitreous_train::tasks::tag_tokens::evaluate_tags;
use vitreous_train::{Ranks, Scores};

use super::{Eval, Split, progress_bar, spread};
use crate::failure::Failure;

/// Tokens of a sequence in which tokens are masked, unless the run says otherwise.
const MASKED_LENGTH: usize = 128;
/// The most sequences in which tokens are masked.
const MOST_MASKED: usize = 10_000;

impl Eval {
    pub(super) fn evaluate_texts(&self) -> Result<(), Failure> {
        self.refuse(&self.of_images_and_pairs(), "does not apply to a text encoder")?;
        let model = self.interventions.apply(TextModel::open(&self.model, &OpenOptions::default())?)?;
        let name = self.model.to_string_lossy();
        let signature = model.model.architecture.signature();
        let is_head = |gives: &&Gives| !matches!(gives, Gives::Vector(_) | Gives::TokenVectors(_));
        let Some(&head) = signature.gives.iter().find(is_head) else {
            return Err(no_head(
                &name,
                &signature,
                "head that can be evaluated",
                &[Head::Classes(1), Head::TokenClasses(1)],
            )
            .into());
        };
        let data = self.text_data()?;
        let device = self.compute.device()?;
        let start = Instant::now();
        let bar = progress_bar(0, "texts");
        let mut progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let scores = match head {
            Gives::Span => self.evaluate_questions(&data, &model, &device, &mut progress)?,
            head => self.evaluate_head(head, &data, &model, &device, &mut progress)?,
        };
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        self.write_text_scores(&scores, &data.to_string_lossy(), seconds, &described(&device))
    }

    /// Evaluates a head for masked tokens, classes of tokens, or classes, labels or numbers of texts.
    fn evaluate_head(
        &self,
        head: Gives,
        data: &Path,
        model: &TextModel,
        device: &Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, Failure> {
        let architecture = model.model.architecture.as_ref();
        let output = if matches!(head, Gives::MaskedTokens(_)) { EncoderOutput::Masked } else { EncoderOutput::Logits };
        let mut runner = EncoderRunner::new(architecture, output, self.compute.precision(), device, model.weights())
            .map_err(Failure::work)?;
        let alone = Ranks::default();
        Ok(match head {
            Gives::MaskedTokens(_) => {
                let texts = open_plain(data).map_err(Failure::input)?;
                let sizes = (MASKED_LENGTH.min(model.longest), self.limit.unwrap_or(MOST_MASKED));
                let vocabulary = model.input.vocabulary;
                evaluate_masks(&mut runner, &alone, &model.tokenizer, vocabulary, &texts, sizes, progress)
                    .map_err(Failure::input)?
                    .into_scores()
            }
            Gives::TokenClasses(_) => {
                let sentences = self.tagged(data, model)?;
                let tags = &model.model.assets.labels;
                evaluate_tags(&mut runner, &alone, &model.tokenizer, tags, &sentences, model.longest, progress)
                    .map_err(Failure::work)?
                    .into_scores()
            }
            _ => {
                let predicted = match head {
                    Gives::Labels(_) => Predicted::Labels,
                    Gives::Numbers(_) => Predicted::Number,
                    _ => Predicted::Class,
                };
                let texts = self.labelled(data, model, predicted)?;
                let inputs: Vec<TextInput> =
                    texts.iter().map(|text| TextInput { text: text.text.clone(), pair: text.pair.clone() }).collect();
                let encoded = model.encode_all(&inputs)?;
                let logits = classify(&mut runner, &alone, &encoded, progress).map_err(Failure::work)?;
                measure(predicted, &class_names(model, head), &texts, &logits).into_scores()
            }
        })
    }

    /// The data that was named, or that of the run.
    pub(super) fn text_data(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.data {
            return Ok(path.clone());
        }
        match self.recipe_of_run()? {
            Some(recipe) if !recipe.data.path.is_empty() => Ok(PathBuf::from(recipe.data.path)),
            _ => Err(Failure::input(anyhow!("{}: name the data: --data PATH", self.model.display()))),
        }
    }

    /// Which share of the data is drawn for validation, where it has no such part: all of a file that was named.
    fn drawn(&self, usual: f64) -> f64 {
        match (&self.data, self.validation_share) {
            (_, Some(share)) => share,
            (Some(path), None) if path.is_file() => 0.0,
            _ => usual,
        }
    }

    /// The part of the data that was asked for; by default validation, or what there is.
    pub(super) fn texts_of_split<T>(&self, parts: [Vec<T>; 3]) -> Result<Vec<T>, Failure> {
        let named = ["train", "validation", "test"].into_iter().zip(&parts).filter(|(_, part)| !part.is_empty());
        let there: Vec<&str> = named.map(|(name, _)| name).collect();
        let [train, validation, test] = parts;
        let chosen = match self.split {
            Some(Split::Train) => train,
            Some(Split::Validation) => validation,
            Some(Split::Test) => test,
            None if !validation.is_empty() => validation,
            None if !test.is_empty() => test,
            None => train,
        };
        if chosen.is_empty() {
            let hint = match there[..] {
                [] => "it has no texts".to_string(),
                _ => format!("it has --split {}", there.join(", --split ")),
            };
            return Err(Failure::input(anyhow!("the data has no such split; {hint}")));
        }
        let places = spread(chosen.len(), self.limit);
        let mut chosen: Vec<Option<T>> = chosen.into_iter().map(Some).collect();
        Ok(places.into_iter().filter_map(|place| chosen[place].take()).collect())
    }

    fn labelled(&self, data: &Path, model: &TextModel, kind: Predicted) -> Result<Vec<LabelledText>, Failure> {
        let own = self.recipe_of_run()?.filter(|recipe| recipe.task.name() == "text-classification");
        let usual = OpenLabelled { validation_share: 0.1, ..OpenLabelled::default() };
        let options = own.map_or(usual, |recipe| labelled_options(&recipe, &[]));
        let options = OpenLabelled {
            validation_share: self.drawn(options.validation_share),
            kind: match kind {
                Predicted::Class => LabelKind::Class,
                Predicted::Labels => LabelKind::Several,
                Predicted::Number => LabelKind::Number,
            },
            classes: if kind == Predicted::Number { Vec::new() } else { model.model.assets.labels.clone() },
            ..options
        };
        let splits = open_labelled(data, &options).map_err(Failure::input)?;
        let texts = self.texts_of_split([splits.train, splits.validation, splits.test])?;
        let has_label = |text: &LabelledText| match kind {
            Predicted::Class => !text.labels.is_empty(),
            Predicted::Labels => true,
            Predicted::Number => text.number.is_some(),
        };
        match texts.iter().all(has_label) {
            true => Ok(texts),
            false => Err(Failure::input(anyhow!("{}: some texts have no label", data.display()))),
        }
    }

    /// Sentences with the indices of the model's tags.
    fn tagged(&self, data: &Path, model: &TextModel) -> Result<Vec<TaggedSentence>, Failure> {
        let splits = open_tagged(data, self.drawn(0.1)).map_err(Failure::input)?;
        let own = &model.model.assets.labels;
        let place = |tag: &String| {
            let place = own.iter().position(|known| known == tag).map(|place| place as u32);
            let known = own.join(", ");
            place.ok_or_else(|| {
                Failure::input(anyhow!("{}: the model does not know the tag {tag:?}; it has {known}", data.display()))
            })
        };
        let places: Vec<u32> = splits.tags.iter().map(place).collect::<Result<_, _>>()?;
        let mut sentences = self.texts_of_split([splits.train, splits.validation, splits.test])?;
        for tag in sentences.iter_mut().flat_map(|sentence| &mut sentence.tags) {
            *tag = places[*tag as usize];
        }
        Ok(sentences)
    }

    fn write_text_scores(&self, scores: &Scores, data: &str, seconds: f64, device: &str) -> Result<(), Failure> {
        let mut out = crate::say::stdout();
        let (count, what) = scores.any_report().samples();
        let report = scores.any_report().to_json();
        if self.json {
            let mut report = report;
            for score in scores.numbers() {
                report[score.metric.key] = if score.value.is_finite() { json!(score.value) } else { Json::Null };
            }
            report["data"] = json!(data);
            writeln!(out, "{report}")?;
            return Ok(out.flush()?);
        }
        for score in scores.numbers() {
            writeln!(out, "{:<28}{}", score.metric.label, score.metric.text(score.value))?;
        }
        let rows = report.get("labels").or_else(|| report.get("types")).and_then(Json::as_array);
        if let Some(rows) = rows.filter(|rows| !rows.is_empty()) {
            writeln!(out, "\n{:<28}{:>10}{:>10}{:>10}{:>10}", "", "precision", "recall", "F1", what)?;
            for row in rows {
                let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
                let texts = row.get("texts").or_else(|| row.get("entities")).and_then(Json::as_u64).unwrap_or(0);
                let name: String = format::shortened(&format::one_line(row["name"].as_str().unwrap_or_default()), 26);
                let (precision, recall, f1) = (number("precision"), number("recall"), number("f1"));
                writeln!(out, "{name:<28}{precision:>10.4}{recall:>10.4}{f1:>10.4}{texts:>10}")?;
            }
        }
        let what = if count == 1 { what.trim_end_matches('s') } else { what };
        say!("{} {what} of {data} in {seconds:.2} s on {device}", format::thousands(count));
        Ok(out.flush()?)
    }
}

/// The names of the classes; their numbers where the model has none.
fn class_names(model: &TextModel, head: Gives) -> Vec<String> {
    let count = match head {
        Gives::Classes(count) | Gives::Labels(count) | Gives::Numbers(count) => count,
        _ => 0,
    };
    (0..count).map(|class| model.label(class)).collect()
}
