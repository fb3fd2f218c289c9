//! A text as an encoder sees it: one text, a pair of texts, or a question and its context.

mod json;
mod prediction;
mod target;

use vitreous_data::text::Encoding;
use vitreous_engine::Device;
use vitreous_explain::Structure;
use vitreous_explain::encoder::{EncoderExplainer, EncoderSettings, LayerFillings};
use vitreous_models::encode::TextTokens;
use vitreous_models::{Gives, Pooling};
use vitreous_runtime::text::{Purpose, TextInput, TextModel};

use super::{ExplainedError, MOST_TOKENS};
use crate::explain_encoder::{NamedFillings, TextPage};
pub use json::object;
pub use prediction::fields;

/// A text as the model reads it.
pub struct ReadText {
    /// What was given, for the page: `Text`, `Second text`, `Question`, `Context`.
    shown: Vec<(&'static str, String)>,
    /// Its tokens.
    pub encoding: Encoding,
    /// Tokens that are masked.
    masked: Vec<usize>,
}

impl ReadText {
    /// What was given first.
    pub fn first(&self) -> &str {
        self.shown.first().map_or("", |(_, text)| text)
    }
}

/// What is asked of every text.
#[derive(Clone, Debug, Default)]
pub struct EncoderAsked {
    /// How many classes, answers or fillings are named.
    pub top: usize,
    /// Outputs whose relevance is shown besides that of the most probable one; of a masked language model, tokens.
    pub outputs: Vec<usize>,
    /// The token whose class or filling is explained, if it is not the usual one.
    pub token: Option<usize>,
}

/// Explains texts one after the other.
pub struct EncoderTexts<'m> {
    model: &'m TextModel,
    explainer: EncoderExplainer<'m>,
    device: Device,
    structure: Structure,
    pooling: Pooling,
    /// The other text of an embedding model, and its vector.
    other: Option<(String, Vec<f32>)>,
}

/// Whether the model gives vectors alone: then a pair is two texts to compare, and not one input.
pub fn gives_vectors(model: &TextModel) -> bool {
    let signature = model.model.architecture.signature();
    signature.named_outputs() == 0 && !signature.is_span() && signature.masked_tokens().is_none()
}

fn is_head(gives: &&Gives) -> bool {
    !matches!(gives, Gives::Vector(_) | Gives::TokenVectors(_))
}

/// A text as tokens, with the second one of a model that takes two. What names it is told where something is wrong with it.
pub fn read_text(
    model: &TextModel,
    name: &'static str,
    text: &str,
    pair: Option<&str>,
) -> Result<ReadText, ExplainedError> {
    let pair = pair.map(str::to_string);
    let shown = [(name, text.to_string())].into_iter().chain(pair.clone().map(|pair| ("Second text", pair)));
    read(model, shown.collect(), TextInput { text: text.to_string(), pair })
}

/// A question and the text in which its answer is looked for, as tokens.
pub fn read_question(model: &TextModel, question: &str, context: &str) -> Result<ReadText, ExplainedError> {
    let shown = vec![("Question", question.to_string()), ("Context", context.to_string())];
    read(model, shown, TextInput { text: question.to_string(), pair: Some(context.to_string()) })
}

fn read(model: &TextModel, shown: Vec<(&'static str, String)>, input: TextInput) -> Result<ReadText, ExplainedError> {
    if let Some((name, _)) = shown.iter().find(|(_, text)| text.trim().is_empty()) {
        return Err(ExplainedError::input(format!("{name}: this text is empty; give one with words")));
    }
    let mut input = match gives_vectors(model) {
        true => model.sentence.prepared(&input, Purpose::Any),
        false => input,
    };
    if model.model.architecture.signature().masked_tokens().is_some() {
        input = TextInput {
            text: model.with_own_mask(&input.text),
            pair: input.pair.map(|pair| model.with_own_mask(&pair)),
        };
    }
    let most = MOST_TOKENS.min(model.longest);
    let encoding = model.tokenizer.encode(&input.text, input.pair.as_deref(), most)?;
    if encoding.truncated {
        let name = shown[0].0;
        return Err(ExplainedError::input(format!(
            "{name}: this text has more than {most} tokens, and at most so many can be explained: give a shorter one"
        )));
    }
    model.check(&encoding)?;
    let mask = model.mask().map(|(mask, _)| mask);
    let masked = (0..encoding.len()).filter(|&at| Some(encoding.ids[at]) == mask).collect();
    Ok(ReadText { shown, encoding, masked })
}

fn tokens(text: &ReadText) -> TextTokens<'_> {
    TextTokens { ids: &text.encoding.ids, types: &text.encoding.token_types, masked: &text.masked }
}

impl<'m> EncoderTexts<'m> {
    /// Gets ready to explain texts with a model.
    pub fn new(
        model: &'m TextModel,
        settings: EncoderSettings,
        device: &Device,
    ) -> Result<EncoderTexts<'m>, ExplainedError> {
        let structure = Structure::of(model.model.architecture.as_ref())?;
        let pooling = settings.pooling;
        let explainer = EncoderExplainer::new(&model.model, settings, device)?;
        Ok(EncoderTexts { model, explainer, device: device.clone(), structure, pooling, other: None })
    }

    /// From now on the similarity with another text is explained, which a model of vectors can.
    pub fn compare_with(&mut self, text: &str) -> Result<(), ExplainedError> {
        let read = read_text(self.model, "Second text", text, None)?;
        let pass = self.explainer.read(tokens(&read))?;
        self.other = Some((text.to_string(), pass.vector()?));
        Ok(())
    }

    /// Everything about one text, and the logits of its head.
    pub fn explain(&mut self, text: &ReadText, asked: &EncoderAsked) -> Result<(TextPage, Vec<f32>), ExplainedError> {
        let EncoderTexts { model, explainer, device, structure, pooling, other } = self;
        let setting = Setting { model, device, pooling: *pooling, other: other.as_ref(), asked };
        let signature = model.model.architecture.signature();
        let mut pass = explainer.read(tokens(text))?;
        let attention = pass.attention()?;
        let logits = pass.logits()?.unwrap_or_default();
        let vector = pass.vector()?;
        let fillings = match signature.masked_tokens() {
            Some(_) => named(model, pass.fillings(asked.top)?),
            None => Vec::new(),
        };
        let prediction = prediction::of(&setting, text, &logits, &vector);
        let (relevance, relevance_note) = target::relevance(&setting, text, &mut pass, &logits, &fillings)?;
        let name = |&id: &u32| model.tokenizer.token(id).unwrap_or_else(|| id.to_string());
        let page = TextPage {
            texts: text.shown.clone(),
            model: model.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            layers: structure.layers,
            heads: structure.heads,
            tokens: text.encoding.ids.iter().map(name).collect(),
            ids: text.encoding.ids.clone(),
            special: text.encoding.special.clone(),
            prediction,
            attention,
            relevance,
            relevance_note,
            fillings,
            masked: text.masked.clone(),
        };
        Ok((page, logits))
    }
}

/// What the parts of an explanation need to know.
struct Setting<'s> {
    model: &'s TextModel,
    device: &'s Device,
    pooling: Pooling,
    other: Option<&'s (String, Vec<f32>)>,
    asked: &'s EncoderAsked,
}

/// Fillings with the names of tokens.
fn named(model: &TextModel, layers: Vec<LayerFillings>) -> Vec<NamedFillings> {
    let name = |(id, score): (u32, f32)| (id, model.tokenizer.token(id).unwrap_or_else(|| id.to_string()), score);
    let one = |LayerFillings { layer, tokens }: LayerFillings| {
        let tokens = tokens.into_iter().map(|top| top.into_iter().map(name).collect()).collect();
        NamedFillings { layer, tokens }
    };
    layers.into_iter().map(one).collect()
}
