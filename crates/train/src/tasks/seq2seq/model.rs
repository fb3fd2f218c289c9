//! An encoder-decoder that is trained, with its tokenizer.

use std::path::Path;

use vitreous_data::loader::{Batch, BatchSource};
use vitreous_data::text::{IGNORED, PairSide, PairTokenizer};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, Graph, Mode, Parameter, Precision, Role, SharedWeights, State, Value,
    WeightView,
};
use vitreous_models::{
    Adapters, Call, Initialisation, Model, SaveOptions, Settings, SpecialTokens, Takes, WeightType, initialise,
};

use crate::error::TrainError;
use crate::finetuning::open_pretrained;
use crate::groups::block_count;
use crate::ranks::{Parcel, Ranks};
use crate::recipe::Recipe;

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
const KEPT_SETTINGS: [&str; 3] = ["dropout", "attention_dropout", "mlp_dropout"];

/// An encoder-decoder with its tokenizer.
pub(super) struct PairModel {
    pub model: Model,
    pub tokenizer: PairTokenizer,
    pub special: SpecialTokens,
    /// The most tokens of a source and of a target.
    pub longest: (usize, usize),
    /// Blocks of the model, for layer-wise learning rates.
    pub blocks: usize,
}

impl PairModel {
    /// A pretrained model with its tokenizer, or that of a run that is resumed.
    pub fn open(recipe: &mut Recipe, init: &str, resumed: Option<&Path>) -> Result<PairModel, TrainError> {
        let path = Path::new(init);
        let model = open_pretrained(path, recipe, &KEPT_SETTINGS, |_| None)?;
        let end = special_of(&model)?.end;
        let tokenizer = PairTokenizer::open(resumed.unwrap_or(path), end)?;
        PairModel::new(recipe, model, tokenizer)
    }

    /// A new model for a tokenizer.
    pub fn fresh(recipe: &mut Recipe, tokenizer: PairTokenizer) -> Result<PairModel, TrainError> {
        let known = recipe.architecture()?.settings();
        let size = tokenizer.vocabulary_size(PairSide::Source);
        let keys = ["vocabulary", "source_vocabulary", "target_vocabulary"];
        let sizes = keys.iter().filter(|key| known.contains_key(**key)).map(|key| (key.to_string(), size.into()));
        recipe.change_model(&sizes.collect::<Settings>())?;
        let model = Model::new(recipe.architecture()?, Vec::new())?;
        PairModel::new(recipe, model, tokenizer)
    }

    /// A model with its tokenizer. The recipe's model becomes this one.
    fn new(recipe: &mut Recipe, model: Model, tokenizer: PairTokenizer) -> Result<PairModel, TrainError> {
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let special = special_of(&model)?;
        let (source, target) = model.architecture.signature().pairs().ok_or_else(|| of_no_pairs(&model))?;
        for (side, vocabulary) in [(PairSide::Source, source.vocabulary), (PairSide::Target, target.vocabulary)] {
            let tokens = tokenizer.vocabulary_size(side);
            if tokens > vocabulary {
                return Err(TrainError::Data(format!(
                    "{}: its tokenizer has {tokens} tokens, but the model's vocabulary has {vocabulary}: they do not belong to one model",
                    model.path.as_deref().unwrap_or(Path::new("the model")).display(),
                )));
            }
        }
        let blocks = block_count(model.parameters());
        Ok(PairModel { longest: (source.longest, target.longest), model, tokenizer, special, blocks })
    }

    /// Sets initial values: those of a pretrained model, or random ones.
    pub fn initialise(&self, seed: u64, state: &mut State) -> Result<(), TrainError> {
        if self.model.path.is_some() {
            self.model.load(state)?;
        }
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        initialise(state, Initialisation::TruncatedNormal, seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    /// Writes a model directory with the tokenizer.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.tokenizer.files();
        let options =
            SaveOptions { state: Some(state), weights: Some(WeightType::F32), files: &files, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }

    /// The mean loss over the wanted tokens of a batch with arrays of these sizes.
    pub fn loss(
        &self,
        graph: &mut Graph,
        (rows, source, target): (usize, usize, usize),
        label_smoothing: f32,
        adapters: Option<&Adapters>,
    ) -> Result<Value, TrainError> {
        let call = Call::whole(rows).tokens(source).target(target).adapters(adapters);
        let logits = self.model.architecture.build(graph, &call)?.need("logits")?;
        let wanted = graph.input("wanted", [rows, target], DType::I32)?;
        let options = CrossEntropyOptions { label_smoothing, ignored_index: Some(IGNORED), ..Default::default() };
        Ok(graph.cross_entropy(logits, wanted, options)?)
    }

    /// The mean loss per token over all batches of an epoch, and the number of tokens; NaN without any.
    pub fn mean_loss(
        &self,
        batches: &dyn BatchSource,
        state: &State,
        (device, ranks, precision): (&Device, &Ranks, Precision),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(f64, u64), TrainError> {
        let order = batches.order(0);
        let (mut sum, mut tokens, mut done) = (0.0, 0u64, 0);
        let mut shared = SharedWeights::new(device);
        for (group, arrays) in batches.groups().iter().enumerate() {
            let indices: Vec<usize> = (0..order.len()).filter(|&index| order.group(index) == group).collect();
            if indices.is_empty() {
                continue;
            }
            let axis = |name: &str, axis: usize| {
                arrays.iter().find(|array| array.name == name).map_or(0, |array| array.shape[axis])
            };
            let mut graph = Graph::new(Mode::Inference, precision);
            let sizes = (axis("source", 0), axis("source", 1), axis("wanted", 1));
            let loss = self.loss(&mut graph, sizes, 0.0, None)?;
            let plan = device.plan_with_fixed_weights(&graph, &[loss])?;
            let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(WeightView::from);
            let mut executor = Executor::with_shared_weights(plan, device, &mut shared, lend)?;
            let work = |index: usize| {
                let batch: Batch = batches.batch(&order, indices[index])?;
                for array in &batch.arrays {
                    executor.input_i32(array.name)?.copy_from_slice(batch.i32(array.name).unwrap_or_default());
                }
                executor.infer()?;
                Ok(Parcel::of_sum(f64::from(executor.number(loss)?) * batch.units as f64, batch.units as u64))
            };
            let take = |_: usize, parcel: &Parcel| {
                let (of_batch, count) = parcel.sum();
                sum += of_batch;
                tokens += count;
                done += 1;
                progress(done, order.len());
                Ok(())
            };
            ranks.share_out(indices.len(), work, take)?;
        }
        Ok((sum / tokens as f64, tokens))
    }
}

fn special_of(model: &Model) -> Result<SpecialTokens, TrainError> {
    match model.architecture.signature().takes {
        Takes::Pairs { special: Some(special), .. } => Ok(special),
        Takes::Pairs { special: None, .. } => Err(TrainError::Data(
            "this translator has tokenizers of its own: train it with `vitreous train translation`".to_string(),
        )),
        Takes::Images(_) | Takes::Tokens(_) | Takes::ImagesAndTexts { .. } | Takes::Audio(_) => Err(of_no_pairs(model)),
    }
}

fn of_no_pairs(model: &Model) -> TrainError {
    let what = model.architecture.signature().what();
    TrainError::Data(format!("this is {what}, but sequences to sequences need an encoder and a decoder"))
}
