//! Inputs that were given once and are then named.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use vitreous_data::text::Encoding;
use vitreous_explain::live::{Lengths, LiveInput};

/// Bytes of inputs that are kept.
const MOST_BYTES: usize = 64 << 20;

/// A token as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSeen {
    /// Its number.
    pub id: u32,
    /// How it is written.
    pub text: String,
    /// Where it is in its text, in bytes.
    pub place: Option<[usize; 2]>,
    /// Of two texts that are read together the one that it is in, from 0.
    pub sequence: usize,
    /// Whether the tokenizer added it.
    pub special: bool,
}

impl TokenSeen {
    fn json(&self) -> Json {
        let [start, end] = self.place.map_or([Json::Null, Json::Null], |place| place.map(|at| json!(at)));
        json!({"id": self.id, "text": self.text, "start": start, "end": end, "sequence": self.sequence, "special": self.special})
    }
}

/// What was said in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpokenWords {
    /// All of it.
    pub text: String,
    /// The language's code.
    pub language: String,
    /// Each word: start and end in seconds, text, probability.
    pub words: Vec<(f64, f64, String, f64)>,
}

/// An input.
#[derive(Clone, Debug)]
pub struct WatchedInput {
    /// Its name.
    pub id: String,
    /// `image`, `text`, `pair` or `audio`.
    pub kind: &'static str,
    /// What the model takes.
    pub live: LiveInput,
    /// Its tokens; of models with two sides those that the decoder reads.
    pub tokens: Vec<TokenSeen>,
    /// The tokens of the source.
    pub source: Vec<TokenSeen>,
    /// What the decoder is to write behind each token that it reads.
    pub written: Vec<u32>,
    /// The texts that were given.
    pub texts: Vec<String>,
    /// The tokens of an encoder with what is known of them.
    pub encoding: Option<Encoding>,
    /// What was said.
    pub spoken: Option<SpokenWords>,
    /// Where the patches are.
    pub grid: Option<Json>,
    /// Seconds of a recording.
    pub seconds: Option<f64>,
}

impl WatchedInput {
    /// An input without anything but what the model takes.
    pub(super) fn new(kind: &'static str, live: LiveInput) -> WatchedInput {
        WatchedInput {
            id: String::new(),
            kind,
            live,
            tokens: Vec::new(),
            source: Vec::new(),
            written: Vec::new(),
            texts: Vec::new(),
            encoding: None,
            spoken: None,
            grid: None,
            seconds: None,
        }
    }

    /// What a client is told of it.
    pub fn json(&self) -> Json {
        let list = |tokens: &[TokenSeen]| tokens.iter().map(TokenSeen::json).collect::<Json>();
        let Lengths { tokens, target, masked } = self.live.lengths();
        let mut object = json!({"input": self.id, "kind": self.kind, "tokens": list(&self.tokens), "lengths": [tokens, target, masked]});
        if !self.source.is_empty() {
            object["source_tokens"] = list(&self.source);
        }
        if let Some(grid) = &self.grid {
            object["grid"] = grid.clone();
        }
        if let Some(seconds) = self.seconds {
            object["seconds"] = json!(seconds);
        }
        if let [_, target] = &self.texts[..]
            && self.kind == "pair"
        {
            object["target"] = json!(target);
        }
        if let Some(spoken) = &self.spoken {
            object["text"] = json!(spoken.text);
        }
        object
    }

    fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(String::len).sum();
        self.live.bytes() + texts + 96 * (self.tokens.len() + self.source.len()) + 1024
    }
}

/// The last inputs of a model.
#[derive(Default)]
pub(super) struct InputStore {
    /// The last used one last.
    kept: VecDeque<Arc<WatchedInput>>,
    hashes: [RandomState; 2],
}

impl InputStore {
    /// The name of what was given: nobody can find another input of the same name, because the hash has a key of this process.
    pub fn id_of(&self, given: &[&[u8]]) -> String {
        self.hashes.iter().map(|hash| format!("{:016x}", hash.hash_one(given))).collect()
    }

    pub fn get(&mut self, id: &str) -> Option<Arc<WatchedInput>> {
        let at = self.kept.iter().position(|input| input.id == id)?;
        let input = self.kept.remove(at)?;
        self.kept.push_back(input.clone());
        Some(input)
    }

    pub fn put(&mut self, input: WatchedInput) -> Arc<WatchedInput> {
        let input = Arc::new(input);
        self.kept.retain(|known| known.id != input.id);
        self.kept.push_back(input.clone());
        while self.kept.len() > 1 && self.kept.iter().map(|input| input.bytes()).sum::<usize>() > MOST_BYTES {
            self.kept.pop_front();
        }
        input
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, floats: usize) -> WatchedInput {
        WatchedInput { id: id.to_string(), ..WatchedInput::new("image", LiveInput::Image(vec![0.0; floats].into())) }
    }

    #[test]
    fn the_last_used_inputs_are_kept() {
        let mut store = InputStore::default();
        let half = MOST_BYTES / 8 - 4096;
        store.put(image("a", half));
        store.put(image("b", half));
        assert!(store.get("a").is_some());
        store.put(image("c", half));
        assert!(store.get("b").is_none() && store.get("a").is_some() && store.get("c").is_some());
        // One that is larger than all room is there until the next comes.
        store.put(image("d", MOST_BYTES));
        assert!(store.get("d").is_some() && store.get("a").is_none());
    }

    #[test]
    fn names_follow_from_what_was_given() {
        let (store, other) = (InputStore::default(), InputStore::default());
        assert_eq!(store.id_of(&[b"a", b"b"]), store.id_of(&[b"a", b"b"]));
        assert_ne!(store.id_of(&[b"a", b"b"]), store.id_of(&[b"ab", b""]));
        assert_ne!(store.id_of(&[b"a"]), other.id_of(&[b"a"]));
        assert_eq!(store.id_of(&[]).len(), 32);
    }
}
