//! A text, a pair of texts, a question with its context, or a sentence with its translation, as the page that `vitreous explain` writes
//! or as JSON.

use vitreous_engine::Device;
use vitreous_explain::encoder::EncoderSettings;
use vitreous_explain::text::{TextChoice, TextStructure};
use vitreous_explain::{Choice, Structure};
use vitreous_pages::explained::encoder::{EncoderAsked, EncoderTexts, gives_vectors, read_question, read_text};
use vitreous_pages::explained::language::{LanguageAsked, LanguageTexts};
use vitreous_pages::explained::pair::{PairModel, Sentences, read_sentence};
use vitreous_pages::explained::{encoder, language, pair};
use vitreous_pages::{explain_encoder, explain_language, explain_text};
use vitreous_runtime::language::LanguageModel;
use vitreous_runtime::text::TextModel;

use super::{Explained, Shown, failed};
use crate::http::Input;
use crate::models::watched::WatchedModel;
use crate::refusal::Refusal;
use crate::work::WorkError;

/// What is explained.
pub struct Given {
    text: String,
    /// The second text, or the context of a question.
    pair: Option<String>,
    /// What a translator is to be asked about, if not its own translation.
    target: Option<String>,
}

impl Given {
    /// The texts of a request.
    pub fn of(input: &mut Input) -> Result<Given, Refusal> {
        let (pair, target) = (input.pair.take(), input.target.take());
        Ok(Given { text: input.take_text()?, pair, target })
    }
}

/// What the model does with a text.
pub fn explained(model: &WatchedModel, device: &Device, given: &Given, shown: &Shown) -> Result<Explained, WorkError> {
    let takes_pairs = matches!(model, WatchedModel::Text(_));
    let takes_targets = matches!(model, WatchedModel::Translator(_) | WatchedModel::Sequence(_));
    for (name, given, taken) in [("pair", &given.pair, takes_pairs), ("target", &given.target, takes_targets)] {
        if given.is_some() && !taken {
            return Err(WorkError::Input(format!("`{}` takes no `{name}`", shown.name)));
        }
    }
    match model {
        WatchedModel::Text(model) => of_encoder(model, device, given, shown),
        WatchedModel::Language(model) => of_language_model(model, device, given, shown),
        WatchedModel::Translator(model) => of_pair(PairModel::Own(model), device, given, shown),
        WatchedModel::Sequence(model) => of_pair(PairModel::Sequence(model), device, given, shown),
        WatchedModel::Image(_) | WatchedModel::ImageText(_) | WatchedModel::Speech(_) => {
            Err(WorkError::Input(format!("`{}` takes no text", shown.name)))
        }
    }
}

fn of_encoder(model: &TextModel, device: &Device, given: &Given, shown: &Shown) -> Result<Explained, WorkError> {
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(failed)?;
    let usual = EncoderSettings::usual(structure, vitreous_runtime::threads());
    let settings = EncoderSettings { pooling: model.sentence.pooling(), ..usual };
    let answers_questions = model.model.architecture.signature().is_span();
    let text = match (&given.pair, answers_questions) {
        (Some(context), true) => read_question(model, &given.text, context)?,
        (None, true) => {
            let what = "this model answers questions about a text: send `question` and `context`";
            return Err(WorkError::Input(what.to_string()));
        }
        (pair, false) => {
            let pair = pair.as_deref().filter(|_| !gives_vectors(model));
            read_text(model, "the text", &given.text, pair)?
        }
    };
    let mut texts = EncoderTexts::new(model, settings, device)?;
    if let Some(pair) = given.pair.as_ref().filter(|_| gives_vectors(model)) {
        texts.compare_with(pair)?;
    }
    let (mut page, logits) = texts.explain(&text, &EncoderAsked { top: shown.top, ..EncoderAsked::default() })?;
    page.model = shown.name.clone();
    Ok(match shown.as_json {
        true => Explained::Json(encoder::object(&page, &logits, &text.encoding)),
        false => Explained::Page(explain_encoder::page(&page)),
    })
}

fn of_language_model(
    model: &LanguageModel,
    device: &Device,
    given: &Given,
    shown: &Shown,
) -> Result<Explained, WorkError> {
    let ids = language::read_text(model, "the text", &given.text)?;
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(failed)?;
    let choice = Choice::of(structure, None, None).map_err(failed)?;
    let texts = LanguageTexts::new(model, choice, false, device)?;
    let asked = LanguageAsked { top: shown.top, ..LanguageAsked::default() };
    let mut page = texts.explain(&given.text, &ids, &asked)?;
    page.text.model = shown.name.clone();
    Ok(match shown.as_json {
        true => Explained::Json(language::object(&page)),
        false => Explained::Page(explain_language::page(&page)),
    })
}

fn of_pair(model: PairModel, device: &Device, given: &Given, shown: &Shown) -> Result<Explained, WorkError> {
    let languages = [None, None];
    let names = ["the text", "the target"];
    let sentence = read_sentence(model, names, &given.text, given.target.as_deref(), &languages)?;
    let choice = TextChoice::all(TextStructure::of(model.architecture()).map_err(failed)?);
    let mut sentences = Sentences::new(model, choice, &languages, device)?;
    let explained = sentences.explain(&sentence)?;
    let page = sentences.page(&explained, Some(&shown.name));
    Ok(match shown.as_json {
        true => Explained::Json(pair::object(&page)),
        false => Explained::Page(explain_text::page(&page)),
    })
}
