//! Evaluation on recordings: the loss of their texts, and what the model writes.

use std::sync::Arc;

use vitreous_data::audio::{SpeechBatches, SpeechClips, SpeechTargets};
use vitreous_data::loader::{BatchSource, BrokenSample};
use vitreous_engine::{Device, Executor, Graph, Mode, Parameter, Precision, State, WeightView};
use vitreous_models::generate::{SpeechWriter, TextSlot};

use super::measure::{ShownTranscript, TranscribeReport};
use super::model::SpeechModel;
use super::settings::TranscribeTestSettings;
use crate::error::TrainError;
use crate::ranks::{Parcel, Ranks};
use crate::scores::Scores;
use crate::stepper::fill_inputs;

/// Recordings that are written at once.
const WRITTEN_AT_ONCE: usize = 8;

/// Recordings to evaluate on.
pub(super) struct Evaluation {
    pub clips: Arc<SpeechClips>,
    pub targets: Arc<SpeechTargets>,
    pub batch: usize,
    pub test: TranscribeTestSettings,
    pub precision: Precision,
    pub device: Device,
    pub unreadable: Vec<BrokenSample>,
}

impl Evaluation {
    /// The scores of a state's parameters; `None` without recordings.
    pub fn scores(
        &mut self,
        model: &SpeechModel,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.clips.is_empty() {
            return Ok(None);
        }
        let loss = self.loss(model, state, ranks)?;
        let most = if self.test.recordings == 0 { usize::MAX } else { self.test.recordings };
        let written = self.write(model, (state, ranks), self.clips.len().min(most), progress)?;
        let recordings = self.clips.recordings();
        let transcripts: Vec<(&str, String)> =
            recordings.iter().zip(&written).map(|(recording, text)| (recording.text.as_str(), text.clone())).collect();
        // Spread over the data, the same ones after every epoch.
        let (count, shown) = (written.len(), self.test.shown.min(written.len()));
        let shown = (0..shown).map(|index| index * count / shown).map(|index| ShownTranscript {
            path: recordings[index].path.display().to_string(),
            reference: recordings[index].text.clone(),
            transcript: written[index].clone(),
        });
        Ok(Some(TranscribeReport::new(loss, &transcripts, shown.collect()).into_scores()))
    }

    /// The mean loss per token, and the number of tokens.
    fn loss(&mut self, model: &SpeechModel, state: &State, ranks: &Ranks) -> Result<(f64, u64), TrainError> {
        let rows = self.batch.min(self.clips.len());
        let batches = SpeechBatches::in_order(self.clips.clone(), self.targets.clone(), rows)
            .with_longest(model.input.target.longest);
        let length = batches.groups()[0][1].shape[1];
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let loss = model.loss(&mut graph, (rows, length), None)?;
        let plan = self.device.plan_with_fixed_weights(&graph, &[loss])?;
        let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(WeightView::from);
        let mut executor = Executor::with_weights(plan, &self.device, lend)?;
        let order = batches.order(0);
        let (mut sum, mut tokens) = (0.0, 0u64);
        let work = |index: usize| {
            let batch = batches.batch(&order, index)?;
            if batch.units == 0 {
                return Ok(Parcel::default());
            }
            fill_inputs(&mut executor, &batch, |_| true)?;
            executor.infer()?;
            Ok(Parcel::of_sum(f64::from(executor.number(loss)?) * batch.units as f64, batch.units as u64))
        };
        let take = |_: usize, parcel: &Parcel| {
            let (of_batch, count) = parcel.sum();
            sum += of_batch;
            tokens += count;
            Ok(())
        };
        ranks.share_out(order.len(), work, take)?;
        self.unreadable = batches.broken();
        Ok((sum / tokens as f64, tokens))
    }

    /// What the model writes for the first so many recordings: at each place the likeliest token, without timestamps.
    fn write(
        &self,
        model: &SpeechModel,
        (state, ranks): (&State, &Ranks),
        count: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<String>, TrainError> {
        let weights = Box::new(|name: &str| state.parameter(name).map(WeightView::from));
        let architecture = model.model.architecture.as_ref();
        let mut writer = SpeechWriter::new(architecture, self.precision, &self.device, weights)?;
        let never = model.vocabulary.suppressed()?;
        let never_first = model.vocabulary.blank()?;
        let mut written: Vec<String> = Vec::with_capacity(count);
        let work = |part: usize| {
            let first = part * WRITTEN_AT_ONCE;
            let some = first..count.min(first + WRITTEN_AT_ONCE);
            let mut windows = vec![vec![0.0; model.input.frames * model.input.bins]; some.len()];
            for (index, window) in some.zip(&mut windows) {
                // One that can no longer be read is silent: its words are missing.
                if self.clips.window(index, window).is_err() {
                    window.fill(0.0);
                }
            }
            Ok(Parcel::of_tokens(self.write_some(model, &mut writer, &windows, (&never, &never_first))?))
        };
        let take = |_: usize, parcel: &Parcel| {
            for tokens in parcel.tokens() {
                written.push(model.vocabulary.decode(&tokens)?.trim().to_string());
            }
            progress(written.len(), count);
            Ok(())
        };
        ranks.share_out(count.div_ceil(WRITTEN_AT_ONCE), work, take)?;
        Ok(written)
    }

    fn write_some(
        &self,
        model: &SpeechModel,
        writer: &mut SpeechWriter,
        windows: &[Vec<f32>],
        (never, never_first): (&[u32], &[u32]),
    ) -> Result<Vec<Vec<u32>>, TrainError> {
        let (end, vocabulary) = (model.vocabulary.end, model.input.target.vocabulary);
        // As long as OpenAI lets a window's text be.
        let most = (model.input.target.longest / 2).min(model.input.target.longest.saturating_sub(model.prompt.len()));
        let windows: Vec<&[f32]> = windows.iter().map(Vec::as_slice).collect();
        writer.listen(&windows, 1)?;
        let mut texts: Vec<Vec<u32>> = vec![Vec::new(); windows.len()];
        let mut ended = vec![false; windows.len()];
        for step in 0..most {
            let last: Vec<Vec<u32>> = match step {
                0 => vec![model.prompt.clone(); windows.len()],
                _ => texts.iter().map(|text| vec![text.last().copied().unwrap_or(end)]).collect(),
            };
            let place = if step == 0 { 0 } else { model.prompt.len() + step - 1 };
            let slots: Vec<TextSlot> = last.iter().map(|tokens| TextSlot { tokens, place }).collect();
            let logits = writer.read(0, &slots)?;
            for ((text, ended), logits) in texts.iter_mut().zip(&mut ended).zip(logits.chunks_exact(vocabulary)) {
                if *ended {
                    continue;
                }
                let is_allowed =
                    |token: u32| never.binary_search(&token).is_err() && (step > 0 || !never_first.contains(&token));
                let allowed = (0..).zip(logits).filter(|(token, _)| is_allowed(*token));
                let best = allowed.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
                match best.map(|(token, _)| token) {
                    Some(token) if token != end => text.push(token),
                    _ => *ended = true,
                }
            }
            if ended.iter().all(|&ended| ended) {
                break;
            }
        }
        Ok(texts)
    }
}
