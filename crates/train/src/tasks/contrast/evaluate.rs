//! Evaluation of a model of images and texts on the validation pairs.

use std::borrow::Cow;
use std::sync::Arc;

use vitreous_data::dataset::CaptionSplits;
use vitreous_data::image::{ImageBatchOptions, ImageBatches, ImageForm, ImageTargets, Preparation};
use vitreous_data::loader::{BatchPosition, BatchSource, BrokenSample, Loader};
use vitreous_data::text::Encoding;
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Precision, State, Value};
use vitreous_models::families::clip::Towers;
use vitreous_models::{Architecture, Call, CaptionInput, OpenOptions, POOLED};

use super::measure::{ContrastReport, recalls, zero_shot};
use super::model::{ContrastModel, LARGEST_SCALE};
use super::settings::{ContrastSettings, PLACE};
use crate::error::TrainError;
use crate::ranks::{Parcel, Ranks};
use crate::scores::Scores;
use crate::stepper::fill_inputs;

/// The most pairs that are compared with each other.
const MOST_COMPARED: usize = 2000;
/// Captions that go through the text tower at once.
const CAPTIONS_AT_ONCE: usize = 64;

/// Evaluates the same model again and again, with other parameters.
pub(super) struct Evaluator {
    image_tower: Box<dyn Architecture>,
    text_tower: Box<dyn Architecture>,
    input: CaptionInput,
    precision: Precision,
    options: ImageBatchOptions,
    threads: usize,
    device: Device,
    captions: Vec<String>,
    encoded: Vec<Encoding>,
    /// The descriptions of each class, one class after the other.
    classes: Vec<Encoding>,
    templates: usize,
    batch: usize,
    unreadable: Vec<BrokenSample>,
}

impl Evaluator {
    pub fn new(
        settings: &ContrastSettings,
        precision: Precision,
        splits: &CaptionSplits,
        model: &ContrastModel,
        device: &Device,
    ) -> Result<Evaluator, TrainError> {
        let tower = |towers: Towers| {
            let one = OpenOptions::default().with("towers", towers);
            model.model.architecture.as_ref().with_settings(&one.settings)
        };
        let describe = |class: &String| {
            let put = |template: &String| template.replace(PLACE, class);
            settings.evaluation.templates.iter().map(put).collect::<Vec<_>>()
        };
        let descriptions: Vec<String> = splits.classes.iter().flat_map(describe).collect();
        let options = ImageBatchOptions {
            dataset: splits.validation.images.clone(),
            preparation: Preparation::Plain(model.preprocess.clone()),
            form: ImageForm::Prepared,
            mixer: None,
            shape: model.shape(),
            classes: splits.classes.len().max(1),
            targets: ImageTargets::Class,
            batch: settings.train.batch.min(splits.validation.images.len()).max(1),
            seed: 0,
            shuffle: false,
        };
        Ok(Evaluator {
            image_tower: tower(Towers::Image)?,
            text_tower: tower(Towers::Text)?,
            input: model.captions,
            precision,
            options,
            threads: settings.loader_threads(),
            device: device.clone(),
            captions: splits.validation.captions.clone(),
            encoded: model.encode(&splits.validation.captions)?,
            classes: model.encode(&descriptions)?,
            templates: settings.evaluation.templates.len(),
            batch: settings.train.batch,
            unreadable: Vec::new(),
        })
    }

    /// Images that could not be read.
    pub fn unreadable(&self) -> &[BrokenSample] {
        &self.unreadable
    }

    fn executor(&self, tower: &dyn Architecture, call: &Call, state: &State) -> Result<(Executor, Value), TrainError> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let features = tower.build(&mut graph, call)?.need("features")?;
        let features = graph.cast(features, DType::F32)?;
        let plan = self.device.plan_with_fixed_weights(&graph, &[features])?;
        let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(Cow::Borrowed);
        Ok((Executor::with_weights(plan, &self.device, lend)?, features))
    }

    /// The vectors of texts.
    fn texts(&self, state: &State, ranks: &Ranks, texts: &[Encoding]) -> Result<Vec<Vec<f32>>, TrainError> {
        let longest = texts.iter().map(Encoding::len).max().unwrap_or(1);
        let length = self.input.padded_length(longest);
        let rows = texts.len().clamp(1, CAPTIONS_AT_ONCE);
        let call = Call::whole(rows).tokens(length);
        let (mut executor, features) = self.executor(self.text_tower.as_ref(), &call, state)?;
        let mut vectors = Vec::with_capacity(texts.len());
        let parts: Vec<&[Encoding]> = texts.chunks(rows).collect();
        let work = |part: usize| {
            let some = parts[part];
            let to = executor.input_i32("tokens")?;
            to.fill(self.input.padding() as i32);
            for (row, text) in to.chunks_exact_mut(length).zip(some) {
                row.iter_mut().zip(&text.ids).for_each(|(to, &id)| *to = id as i32);
            }
            if self.input.has_pooled() {
                let to = executor.input_i32(POOLED)?;
                to.fill(0);
                for (row, (to, text)) in to.iter_mut().zip(some).enumerate() {
                    *to = (row * length + self.input.place(&text.ids)) as i32;
                }
            }
            executor.infer()?;
            executor.finish()?;
            let all = executor.output_slice(features)?;
            Ok(Parcel { floats: all[..all.len() / rows * some.len()].to_vec(), ..Parcel::default() })
        };
        let take = |part: usize, parcel: &Parcel| {
            let width = parcel.floats.len() / parts[part].len();
            vectors.extend(parcel.floats.chunks_exact(width.max(1)).map(<[f32]>::to_vec));
            Ok(())
        };
        ranks.share_out(parts.len(), work, take)?;
        Ok(vectors)
    }

    /// Evaluates the state's parameters; `None` without validation pairs.
    pub fn run(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        let total = self.options.dataset.len();
        if total == 0 {
            return Ok(None);
        }
        let call = Call::whole(self.options.batch);
        let (mut executor, features) = self.executor(self.image_tower.as_ref(), &call, state)?;
        let mut images: Vec<(usize, u32, Vec<f32>)> = Vec::with_capacity(total);
        let source = Arc::new(ImageBatches::new(self.options.clone()));
        let (batches, own) = (source.batches_per_epoch(), ranks.clone());
        let is_own = move |index: usize| index % own.size() == own.rank();
        let mut loader = Loader::of_some(source, BatchPosition::default(), 1, self.threads, is_own);
        let work = |_: usize| {
            let Some(batch) = loader.next() else { return Ok(Parcel::default()) };
            let batch = batch?;
            fill_inputs(&mut executor, &batch, |name| name != "targets")?;
            executor.infer()?;
            executor.finish()?;
            let all = executor.output_slice(features)?;
            let samples: Vec<u64> = batch.samples.iter().map(|&sample| sample as u64).collect();
            let floats = all[..all.len() / self.options.batch * samples.len()].to_vec();
            loader.give_back(batch);
            Ok(Parcel { counts: samples, floats, ..Parcel::default() })
        };
        let take = |_: usize, parcel: &Parcel| {
            let width = parcel.floats.len() / parcel.counts.len().max(1);
            for (vector, &sample) in parcel.floats.chunks_exact(width.max(1)).zip(&parcel.counts) {
                let sample = sample as usize;
                let class = self.options.dataset.labels(sample).first().copied().unwrap_or(0);
                images.push((sample, class, vector.to_vec()));
            }
            progress(images.len(), total);
            Ok(())
        };
        ranks.share_out(batches, work, take)?;
        self.unreadable = loader.broken();
        if images.is_empty() {
            return Ok(None);
        }
        let compared: Vec<&(usize, u32, Vec<f32>)> = images.iter().take(MOST_COMPARED).collect();
        let chosen: Vec<Encoding> = compared.iter().map(|(sample, ..)| self.encoded[*sample].clone()).collect();
        let texts = self.texts(state, ranks, &chosen)?;
        let rows: Vec<&[f32]> = compared.iter().map(|(.., vector)| &vector[..]).collect();
        let columns: Vec<&[f32]> = texts.iter().map(Vec::as_slice).collect();
        let captions: Vec<&str> = compared.iter().map(|(sample, ..)| self.captions[*sample].as_str()).collect();
        let scale = state.parameter("logit_scale")?[0].min(LARGEST_SCALE).exp();
        let loss = loss(&rows, &columns, scale, state.parameter("logit_bias").ok().map(|bias| bias[0]), self.batch);
        let zero_shot = match self.classes.is_empty() {
            true => None,
            false => {
                let described = self.texts(state, ranks, &self.classes)?;
                let classes: Vec<Vec<f32>> = described.chunks_exact(self.templates).map(mean).collect();
                let own: Vec<u32> = images.iter().map(|(_, class, _)| *class).collect();
                let all: Vec<&[f32]> = images.iter().map(|(.., vector)| &vector[..]).collect();
                Some(zero_shot(&all, &classes, &own))
            }
        };
        let recall = zero_shot.is_none().then(|| recalls(&rows, &columns, &captions));
        Ok(Some(ContrastReport { image_text_pairs: images.len() as u64, loss, zero_shot, recall }.into_scores()))
    }
}

/// The mean of vectors, of length 1.
fn mean(vectors: &[Vec<f32>]) -> Vec<f32> {
    let width = vectors.first().map_or(0, Vec::len);
    let sum: Vec<f32> = (0..width).map(|at| vectors.iter().map(|vector| vector[at]).sum()).collect();
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt().max(1e-12);
    sum.into_iter().map(|number| number / length).collect()
}

/// The mean loss of batches of so many pairs, each pair its own.
fn loss(images: &[&[f32]], texts: &[&[f32]], scale: f32, bias: Option<f32>, batch: usize) -> f64 {
    let logit = |a: &[f32], b: &[f32]| {
        let cosine: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum();
        f64::from(scale) * cosine + f64::from(bias.unwrap_or(0.0))
    };
    let mut sum = 0.0;
    for (images, texts) in images.chunks(batch).zip(texts.chunks(batch)) {
        for index in 0..images.len() {
            let row: Vec<f64> = texts.iter().map(|text| logit(images[index], text)).collect();
            sum += match bias {
                Some(_) => {
                    let of = |(column, logit): (usize, &f64)| {
                        let signed = if column == index { -logit } else { *logit };
                        signed.max(0.0) + (-signed.abs()).exp().ln_1p()
                    };
                    row.iter().enumerate().map(of).sum::<f64>()
                }
                None => {
                    let column: Vec<f64> = images.iter().map(|image| logit(image, texts[index])).collect();
                    (cross_entropy(&row, index) + cross_entropy(&column, index)) / 2.0
                }
            };
        }
    }
    sum / images.len() as f64
}

fn cross_entropy(logits: &[f64], own: usize) -> f64 {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + logits.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln() - logits[own]
}
