//! From what a client gives to what a model takes: a file, a text, or tokens.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use vitreous_data::audio::{AudioSource, Behind, FRAMES_PER_SECOND, Spectrogram, SpeechTask};
use vitreous_data::text::Encoding;
use vitreous_explain::TokenGrid;
use vitreous_explain::live::LiveInput;
use vitreous_models::Size;
use vitreous_runtime::ImageModel;
use vitreous_runtime::language::LanguageModel;
use vitreous_runtime::speech::SpeechModel;
use vitreous_runtime::text::TextModel;

use super::inputs::SpokenWords;
use super::{TokenSeen, Watched, WatchedInput, WatchedModel};
use crate::models::{Recording, SequenceFields, Served, Service, TranscribeOptions};
use crate::work::WorkError;

/// The most tokens of a text that is watched: what attention takes grows with their square.
pub const MOST_TOKENS: usize = 512;
/// A text with more bytes for each token is refused before it is tokenised.
const BYTES_PER_TOKEN: usize = 64;

/// What a client gives.
#[derive(Clone, Debug)]
pub enum GivenInput {
    /// An image or a recording.
    File(Bytes),
    /// A text, with what belongs to it: a second text that is read with it, or what the decoder writes.
    Text {
        /// The text.
        text: String,
        /// The second.
        pair: Option<String>,
        /// What the decoder writes; absent: what the model writes.
        target: Option<String>,
    },
    /// Tokens.
    Tokens(Vec<u32>),
}

impl GivenInput {
    fn parts(&self) -> Vec<Vec<u8>> {
        let text = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec()).unwrap_or_default();
        match self {
            GivenInput::File(bytes) => vec![b"file".to_vec(), bytes.to_vec()],
            GivenInput::Text { text: first, pair, target } => {
                let has = vec![u8::from(pair.is_some()), u8::from(target.is_some())];
                vec![b"text".to_vec(), first.as_bytes().to_vec(), has, text(pair), text(target)]
            }
            GivenInput::Tokens(ids) => vec![b"ids".to_vec(), ids.iter().flat_map(|id| id.to_le_bytes()).collect()],
        }
    }
}

impl Served {
    /// Takes an input to be watched. What was given before is known by its hash.
    pub async fn watch(&self, given: GivenInput) -> Result<Arc<WatchedInput>, WorkError> {
        let Some(watched) = &self.watched else {
            return Err(WorkError::Input(format!("`{}` cannot be watched", self.name)));
        };
        let parts = given.parts();
        let id = watched.store().id_of(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        if let Some(known) = watched.input(&id) {
            return Ok(known);
        }
        let input = watched.prepared(given, &self.service).await?;
        Ok(watched.store().put(WatchedInput { id, ..input }))
    }
}

impl Watched {
    async fn prepared(&self, given: GivenInput, service: &Service) -> Result<WatchedInput, WorkError> {
        let model = self.model.clone();
        match (&self.model, service, given) {
            (WatchedModel::Image(model), Service::Images(images), GivenInput::File(file)) => {
                Ok(image(model, images.prepare(file).await?.numbers))
            }
            (WatchedModel::ImageText(model), Service::ImagesAndTexts(both), GivenInput::File(file)) => {
                Ok(image(model, both.images.prepare(file).await?.numbers))
            }
            (WatchedModel::Speech(model), Service::Speech(speech), GivenInput::File(bytes)) => {
                let most_seconds = self.around.limits.audio_seconds;
                let recording = Recording { bytes, most_seconds };
                let options = TranscribeOptions { words: true, ..TranscribeOptions::default() };
                let transcript = speech.transcribe(recording.clone(), options).await?;
                let model = model.clone();
                blocking(move || speech_input(&model, &recording, &transcript)).await
            }
            (_, Service::Sequences(sequences), GivenInput::Text { text, pair: None, target }) => {
                check_bytes(&text, MOST_TOKENS)?;
                let target = match target {
                    Some(target) => target,
                    None => {
                        let writing = SequenceFields { max_tokens: Some(MOST_TOKENS / 2), ..SequenceFields::default() };
                        sequences.write(text.clone(), writing).await?.text
                    }
                };
                check_bytes(&target, MOST_TOKENS)?;
                blocking(move || pair_input(&model, text, target)).await
            }
            (WatchedModel::Text(model), _, GivenInput::Text { text, pair, target: None }) => {
                let model = model.clone();
                blocking(move || text_input(&model, text, pair)).await
            }
            (WatchedModel::Language(model), _, GivenInput::Text { text, pair: None, target: None }) => {
                let model = model.clone();
                blocking(move || language_input(&model, text)).await
            }
            (WatchedModel::Text(_) | WatchedModel::Language(_), _, GivenInput::Tokens(ids)) => self.tokens_input(ids),
            (_, _, given) => Err(WorkError::Input(refused(&self.model, &given))),
        }
    }

    fn tokens_input(&self, ids: Vec<u32>) -> Result<WatchedInput, WorkError> {
        let signature = self.model.model().architecture.signature();
        let input = signature.tokens().ok_or_else(|| WorkError::Input("this model reads no tokens".to_string()))?;
        check_count(ids.len(), MOST_TOKENS.min(input.longest))?;
        if ids.is_empty() {
            return Err(WorkError::Input("there is no token".to_string()));
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= input.vocabulary) {
            let what = format!("token {id} is not in the model's vocabulary of {}", input.vocabulary);
            return Err(WorkError::Input(what));
        }
        let count = ids.len();
        let (special, sequence) = (vec![false; count], vec![Some(0); count]);
        let offsets = vec![(0, 0); count];
        let encoding = Encoding { token_types: vec![0; count], ids, special, sequence, offsets, ..Encoding::default() };
        let mut input = of_encoding(&self.model, encoding, Vec::new());
        input.tokens.iter_mut().for_each(|token| token.place = None);
        Ok(input)
    }
}

/// What a model cannot be given, and what it can.
fn refused(model: &WatchedModel, given: &GivenInput) -> String {
    let takes = match model {
        WatchedModel::Image(_) | WatchedModel::ImageText(_) => "an image: send the file, with `Content-Type: image/..`",
        WatchedModel::Text(_) => "a text: send JSON with `text`, and perhaps `pair`; or `ids`",
        WatchedModel::Language(_) => "a text: send JSON with `text`, or `ids`",
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) => {
            "a text: send JSON with `text`, and perhaps `target`"
        }
        WatchedModel::Speech(_) => "a recording: send the file, with `Content-Type: audio/..`",
    };
    let got = match given {
        GivenInput::File(_) => "a file",
        GivenInput::Text { .. } => "a text",
        GivenInput::Tokens(_) => "tokens",
    };
    format!("this model is given {takes}; this is {got} that it does not take")
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkError> + Send + 'static,
) -> Result<T, WorkError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| WorkError::Failed(error.to_string()))?
}

fn check_bytes(text: &str, most: usize) -> Result<(), WorkError> {
    let (bytes, most_bytes) = (text.len(), most * BYTES_PER_TOKEN);
    match bytes > most_bytes {
        true => Err(WorkError::TooLarge(format!(
            "the text has {bytes} bytes, more than {most_bytes}: at most {most} tokens are watched at once, so give a shorter one"
        ))),
        false => Ok(()),
    }
}

fn check_count(count: usize, most: usize) -> Result<(), WorkError> {
    match count > most {
        true => Err(WorkError::TooLarge(format!(
            "the text has {count} tokens, more than {most}, the most that are watched at once: give a shorter one"
        ))),
        false => Ok(()),
    }
}

fn image(model: &ImageModel, numbers: Vec<f32>) -> WatchedInput {
    let layout = TokenGrid::of(&model.input);
    let size = |Size { height, width }: Size| json!([height, width]);
    let grid = json!({
        "rows": layout.grid.height, "cols": layout.grid.width, "prefix": layout.prefix,
        "patch": size(layout.patch), "image": size(layout.image),
    });
    let names = model.input.prefix.iter().map(|name| format!("[{name}]"));
    let patches = (0..layout.patches()).map(|at| format!("{},{}", at / layout.grid.width, at % layout.grid.width));
    let token = |(id, text): (usize, String)| TokenSeen {
        id: id as u32,
        text,
        place: None,
        sequence: 0,
        special: id < layout.prefix,
    };
    let tokens = names.chain(patches).enumerate().map(token).collect();
    WatchedInput { tokens, grid: Some(grid), ..WatchedInput::new("image", LiveInput::Image(numbers.into())) }
}

/// The tokens of one text, or of two that are read together.
fn of_encoding(model: &WatchedModel, encoding: Encoding, texts: Vec<String>) -> WatchedInput {
    let mask = match model {
        WatchedModel::Text(text) if model.model().architecture.signature().masked_tokens().is_some() => text.mask(),
        _ => None,
    };
    let fills = model.model().architecture.signature().masked_tokens().is_some();
    let of_mask = |at: &usize| mask.as_ref().is_some_and(|(mask, _)| encoding.ids[*at] == *mask);
    let mut masked: Vec<usize> = (0..encoding.len()).filter(of_mask).collect();
    if fills && masked.is_empty() {
        // What would stand in place of a word is asked of the first that is none of the tokenizer's.
        masked.push(encoding.special.iter().position(|special| !special).unwrap_or(0));
    }
    let token = |at: usize| TokenSeen {
        id: encoding.ids[at],
        text: model.piece(encoding.ids[at], true),
        place: encoding.offsets.get(at).filter(|_| !encoding.special[at]).map(|&(start, end)| [start, end]),
        sequence: encoding.sequence.get(at).copied().flatten().unwrap_or_default().into(),
        special: encoding.special[at],
    };
    let tokens = (0..encoding.len()).map(token).collect();
    let (ids, types) = (encoding.ids.clone(), encoding.token_types.clone());
    let live = LiveInput::Text { ids, types, masked };
    WatchedInput { tokens, texts, encoding: Some(encoding), ..WatchedInput::new("text", live) }
}

fn text_input(model: &Arc<TextModel>, text: String, pair: Option<String>) -> Result<WatchedInput, WorkError> {
    let most = MOST_TOKENS.min(model.longest);
    check_bytes(&text, MOST_TOKENS)?;
    pair.as_deref().map_or(Ok(()), |pair| check_bytes(pair, MOST_TOKENS))?;
    let fills = model.model.architecture.signature().masked_tokens().is_some();
    let own = |text: String| if fills { model.with_own_mask(&text) } else { text };
    let (text, pair) = (own(text), pair.map(own));
    let encoding = model.tokenizer.encode(&text, pair.as_deref(), most).map_err(vitreous_runtime::Error::from)?;
    if encoding.truncated {
        return Err(WorkError::TooLarge(format!(
            "the text has more than {most} tokens, the most that are watched at once: give a shorter one"
        )));
    }
    model.check(&encoding)?;
    let texts = [Some(text), pair].into_iter().flatten().collect();
    Ok(of_encoding(&WatchedModel::Text(model.clone()), encoding, texts))
}

fn language_input(model: &Arc<LanguageModel>, text: String) -> Result<WatchedInput, WorkError> {
    check_bytes(&text, MOST_TOKENS)?;
    // An empty text is the token that a text begins with.
    let ids = model.encode(&text)?;
    check_count(ids.len(), MOST_TOKENS.min(model.longest))?;
    let mut encoding = model.tokenizer.encode(&text, None, usize::MAX).map_err(vitreous_runtime::Error::from)?;
    if encoding.ids != ids {
        let count = ids.len();
        let (special, offsets) = (vec![true; count], vec![(0, 0); count]);
        encoding = Encoding { ids, token_types: vec![0; count], special, offsets, ..Encoding::default() };
    }
    Ok(of_encoding(&WatchedModel::Language(model.clone()), encoding, vec![text]))
}

fn pair_input(model: &WatchedModel, text: String, target: String) -> Result<WatchedInput, WorkError> {
    let failed = |error: vitreous_data::text::TokeniserError| WorkError::from(vitreous_runtime::Error::from(error));
    let (source, start, written) = match model {
        WatchedModel::Translator(model) => {
            let end = |tokens: Vec<u32>| tokens.into_iter().chain([model.special().end]).collect::<Vec<u32>>();
            let source = end(model.tokenizers.source.encode(text.trim()).map_err(failed)?);
            let target = end(model.tokenizers.target.encode(target.trim()).map_err(failed)?);
            (source, model.special().start, target)
        }
        WatchedModel::Sequence(model) => {
            let source = model.tokenizer.encode_source(&text, None, None).map_err(failed)?;
            let written = model.tokenizer.encode_target(&target, None).map_err(failed)?;
            let start = model.tokenizer.start(None).map_err(failed)?.unwrap_or(model.special.start);
            (source, start, written)
        }
        _ => return Err(WorkError::Input("this model takes no pairs of texts".to_string())),
    };
    let signature = model.model().architecture.signature();
    let (of_source, of_target) = signature.pairs().ok_or(WorkError::Input("this model takes no pairs".to_string()))?;
    check_count(source.len(), MOST_TOKENS.min(of_source.longest))?;
    check_count(written.len(), MOST_TOKENS.min(of_target.longest))?;
    if written.is_empty() || source.is_empty() {
        return Err(WorkError::Input("the text is empty".to_string()));
    }
    let read: Vec<u32> = [start].into_iter().chain(written[..written.len() - 1].iter().copied()).collect();
    let seen = |ids: &[u32], of_source: bool| -> Vec<TokenSeen> {
        let token =
            |&id: &u32| TokenSeen { id, text: model.piece(id, of_source), place: None, sequence: 0, special: false };
        ids.iter().map(token).collect()
    };
    let (tokens, source_seen) = (seen(&read, false), seen(&source, true));
    let live = LiveInput::Pair { source, read };
    let texts = vec![text, target];
    Ok(WatchedInput { tokens, source: source_seen, written, texts, ..WatchedInput::new("pair", live) })
}

/// The first window of a recording, and what was written of it.
fn speech_input(
    model: &Arc<SpeechModel>,
    recording: &Recording,
    transcript: &vitreous_runtime::speech::Transcript,
) -> Result<WatchedInput, WorkError> {
    let refused = |error: vitreous_data::audio::AudioError| WorkError::Input(format!("the recording: {error}"));
    let input = model.input;
    let source = AudioSource::Bytes(Arc::from(&recording.bytes[..]));
    let mut spectrogram = Spectrogram::open(&source, input.bins).map_err(refused)?;
    let known = spectrogram.read_to(input.frames).map_err(refused)?;
    let mut mel = vec![0.0; input.frames * input.bins];
    spectrogram.window(0, known.min(input.frames), Behind::Zero, &mut mel).map_err(refused)?;
    let window = input.frames as f64 / FRAMES_PER_SECOND as f64;
    let failed = |error: vitreous_data::text::TokeniserError| WorkError::from(vitreous_runtime::Error::from(error));
    let language = Some(transcript.language.as_str()).filter(|code| !code.is_empty());
    let beginning = model.vocabulary.beginning(language, SpeechTask::Transcribe).map_err(failed)?;
    let in_window = transcript.segments.iter().filter(|segment| segment.start < window);
    let mut text: Vec<u32> = in_window.clone().flat_map(|segment| segment.tokens.iter().copied()).collect();
    text.truncate(input.target.longest.saturating_sub(beginning.len() + 1));
    let read: Vec<u32> = beginning.iter().chain(&text).copied().collect();
    // Behind the last token the text ends.
    let end = model.vocabulary.end;
    let written: Vec<u32> = read.iter().skip(1).copied().chain([end]).collect();
    let vocabulary = WatchedModel::Speech(model.clone());
    let token = |(at, &id): (usize, &u32)| TokenSeen {
        id,
        text: vocabulary.piece(id, false),
        place: None,
        sequence: 0,
        special: at < beginning.len() || model.vocabulary.is_timestamp(id),
    };
    let tokens = read.iter().enumerate().map(token).collect();
    let word = |word: &vitreous_runtime::speech::Word| (word.start, word.end, word.text.clone(), word.probability);
    let spoken = SpokenWords {
        text: in_window.clone().map(|segment| segment.text.as_str()).collect(),
        language: transcript.language.clone(),
        words: in_window.flat_map(|segment| segment.words.iter().map(word)).collect(),
    };
    let live = LiveInput::Audio { mel: mel.into(), read };
    let seconds = transcript.seconds.max(known as f64 / FRAMES_PER_SECOND as f64);
    Ok(WatchedInput {
        tokens,
        written,
        spoken: Some(spoken),
        seconds: Some(seconds),
        ..WatchedInput::new("audio", live)
    })
}
