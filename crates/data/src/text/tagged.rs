//! Sentences whose words have tags: CoNLL files and JSON lines.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::PairsError;
use super::lines::Lines;
use super::split_files::{content_of, file_name, split_files, split_named};
use crate::dataset::{Split, counted, draw_texts, extension, name_hash, some_of};

/// The most words of a sentence; a file that has more between blank lines does not separate its sentences.
const MOST_WORDS: usize = 1 << 16;
/// More different tags than this, and more than half as many as words, are not tags.
const FEW_TAGS: usize = 200;
/// Extensions of tagged files in folders; `eng.train` and `eng.testa` are named as in CoNLL-2003.
const EXTENSIONS: [&str; 21] = [
    "txt",
    "conll",
    "conll03",
    "conll2003",
    "iob2",
    "iob",
    "bio",
    "bioes",
    "ner",
    "tsv",
    "tab",
    "jsonl",
    "ndjson",
    "json",
    "train",
    "testa",
    "testb",
    "dev",
    "valid",
    "val",
    "test",
];

/// A sentence with a tag for each word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaggedSentence {
    /// The words.
    pub words: Vec<String>,
    /// The index of each word's tag in [`TaggedSplits::tags`].
    pub tags: Vec<u32>,
}

/// Tagged sentences, split for training and evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaggedSplits {
    /// What a model is trained on; empty where there are only other parts.
    pub train: Vec<TaggedSentence>,
    /// What is evaluated during training, and chooses the best checkpoint; may be empty.
    pub validation: Vec<TaggedSentence>,
    /// The held-out test part; may be empty.
    pub test: Vec<TaggedSentence>,
    /// The tags: `O` first, the others by name.
    pub tags: Vec<String>,
    /// The name of the file or folder.
    pub name: String,
    /// What a user should know about how it was read.
    pub notes: Vec<String>,
}

/// Opens a file of tagged sentences, which is the training part, or a folder with `train`, `valid` (or `validation`, `val`, `dev`,
/// `testa`) and `test` (or `testb`) files, whatever their extensions.
///
/// CoNLL files have one word per line, first the word, last its tag, separated by spaces or tabs, and a blank line after each sentence;
/// JSON lines are `{"tokens": [..], "tags": [..]}` (or `ner_tags`). If there is no validation part, a share is drawn by the hash of each
/// sentence.
pub fn open_tagged(path: &Path, validation_share: f64) -> Result<TaggedSplits, PairsError> {
    if !(0.0..1.0).contains(&validation_share) {
        let reason = format!("validation_share must be at least 0 and under 1, but it is {validation_share}");
        return Err(PairsError::Option(reason));
    }
    let files = match path.is_dir() {
        true => split_files(path, split_of)?,
        false => vec![(Split::Train, path.to_path_buf())],
    };
    if files.is_empty() {
        let there = content_of(path)?;
        let reason = format!(
            "no tagged sentences were found here; {there}. Supported are train.conll (or .txt, .iob2, ..) and train.jsonl, with valid and \
             test files beside them"
        );
        return Err(PairsError::content(path, reason));
    }
    let mut splits = TaggedSplits { name: file_name(path), ..TaggedSplits::default() };
    let mut tags = Tags::default();
    for (split, file) in files {
        let sentences = read(&file, &mut tags)?;
        if sentences.is_empty() {
            return Err(PairsError::content(
                &file,
                "it has no sentences: there must be a word and its tag in each line",
            ));
        }
        let words: usize = sentences.iter().map(|sentence| sentence.words.len()).sum();
        let count = counted(sentences.len(), "sentence", "sentences");
        splits.notes.push(format!("{}: {count}, {}", file_name(&file), counted(words, "word", "words")));
        *splits.part(split) = sentences;
    }
    tags.check(path, &splits)?;
    splits.name_tags(tags);
    if splits.validation.is_empty() && validation_share > 0.0 && !splits.train.is_empty() {
        splits.draw(validation_share);
    }
    Ok(splits)
}

/// The split that a word in a file's name names.
fn split_of(path: &Path) -> Option<Split> {
    let is_supported = extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()));
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    name.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|_| is_supported).find_map(|word| match word {
        "testa" => Some(Split::Validation),
        "testb" => Some(Split::Test),
        word => split_named(word),
    })
}

/// The tags in the order in which they are met.
#[derive(Default)]
struct Tags {
    indices: HashMap<String, u32>,
    names: Vec<String>,
}

impl Tags {
    fn index(&mut self, tag: &str) -> u32 {
        if let Some(&index) = self.indices.get(tag) {
            return index;
        }
        let index = self.names.len() as u32;
        self.indices.insert(tag.to_string(), index);
        self.names.push(tag.to_string());
        index
    }

    fn check(&self, path: &Path, splits: &TaggedSplits) -> Result<(), PairsError> {
        let count = self.names.len();
        let words: usize = splits.train.iter().map(|sentence| sentence.words.len()).sum();
        if splits.train.is_empty() {
            return Ok(());
        }
        if count == 1 {
            let reason = format!("every word has the tag `{}`, so there is nothing to learn", short(&self.names[0]));
            return Err(PairsError::content(path, reason));
        }
        if count > FEW_TAGS && count > words / 2 {
            let some: Vec<String> = self.names.iter().take(3).map(|tag| short(tag)).collect();
            let reason = format!(
                "it has {count} tags for {words} words ({}, ...): the last column of a line must be the word's tag",
                some.join(", ")
            );
            return Err(PairsError::content(path, reason));
        }
        Ok(())
    }
}

fn read(path: &Path, tags: &mut Tags) -> Result<Vec<TaggedSentence>, PairsError> {
    let lines = Lines::open_regular(path)?;
    match extension(path).as_deref() {
        Some("jsonl" | "ndjson" | "json") => read_json_lines(lines, path, tags),
        _ => read_conll(lines, path, tags),
    }
}

fn read_conll(mut lines: Lines, path: &Path, tags: &mut Tags) -> Result<Vec<TaggedSentence>, PairsError> {
    let (mut sentences, mut sentence) = (Vec::new(), TaggedSentence::default());
    // The columns of the first word.
    let mut expected = None;
    loop {
        let number = lines.number() + 1;
        let Some(line) = lines.next_line()? else { break };
        // Only these separate columns: a word may be another kind of space.
        let line = line.trim_matches([' ', '\t']);
        let separator: &[char] = if line.contains('\t') { &['\t'] } else { &[' '] };
        let columns: Vec<&str> = line.split(separator).map(|cell| cell.trim_matches(' ')).collect();
        let columns: Vec<&str> = columns.into_iter().filter(|cell| !cell.is_empty()).collect();
        if columns.is_empty() {
            if !sentence.words.is_empty() {
                sentences.push(std::mem::take(&mut sentence));
            }
            continue;
        }
        if columns[0] == "-DOCSTART-" || (sentence.words.is_empty() && is_comment(&columns)) {
            continue;
        }
        let refused = |reason: String| Err(PairsError::line(path, number, reason));
        let count = columns.len();
        let (word, tag) = match columns[..] {
            [word, .., tag] if count == *expected.get_or_insert(count) => (word, tag),
            [word] => return refused(format!("`{}` has no tag: write the word, a space and its tag", short(word))),
            _ => {
                let expected = expected.unwrap_or_default();
                return refused(format!(
                    "it has {count} columns, but the first word has {expected}: give each word as many"
                ));
            }
        };
        if sentence.words.len() == MOST_WORDS {
            return refused(format!(
                "the sentence has more than {MOST_WORDS} words: put a blank line after each sentence"
            ));
        }
        sentence.words.push(word.to_string());
        sentence.tags.push(tags.index(tag));
    }
    if !sentence.words.is_empty() {
        sentences.push(sentence);
    }
    Ok(sentences)
}

/// `# id 7 domain=en`, before a sentence; but `# O` is a word.
fn is_comment(columns: &[&str]) -> bool {
    let is_tag = |tag: &str| tag == "O" || tag.starts_with(['B', 'I', 'E', 'S', 'L', 'U']) && tag[1..].starts_with('-');
    columns[0] == "#" && columns.len() > 2 && columns.last().is_some_and(|last| !is_tag(last))
}

fn read_json_lines(mut lines: Lines, path: &Path, tags: &mut Tags) -> Result<Vec<TaggedSentence>, PairsError> {
    let mut sentences = Vec::new();
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let sentence = json_sentence(line, tags);
        let sentence = sentence.map_err(|reason| PairsError::line(path, lines.number(), reason))?;
        if !sentence.words.is_empty() {
            sentences.push(sentence);
        }
    }
    Ok(sentences)
}

fn json_sentence(line: &str, tags: &mut Tags) -> Result<TaggedSentence, String> {
    let mut object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("this is not a JSON object: {error}"))?;
    let words = strings(&mut object, &["tokens", "words"])?;
    let own = strings(&mut object, &["tags", "ner_tags", "pos_tags", "labels"])?;
    if words.len() != own.len() {
        return Err(format!("it has {} words, but {} tags: each word has one", words.len(), own.len()));
    }
    if words.len() > MOST_WORDS {
        return Err(format!("the sentence has more than {MOST_WORDS} words: write one sentence per line"));
    }
    Ok(TaggedSentence { words, tags: own.iter().map(|tag| tags.index(tag)).collect() })
}

fn strings(object: &mut Map<String, Value>, names: &[&str]) -> Result<Vec<String>, String> {
    let Some((name, value)) = names.iter().find_map(|name| object.remove(*name).map(|value| (*name, value))) else {
        let keys = some_of(object.keys().map(String::as_str), 6);
        return Err(format!("there is none of {}; the keys are: {}", names.join(", "), short(&keys)));
    };
    let refused = || format!("`{name}` must be a list of strings; of tags as numbers, write the names instead (B-PER)");
    let Value::Array(values) = value else { return Err(refused()) };
    let one = |value| if let Value::String(text) = value { Ok(text) } else { Err(refused()) };
    values.into_iter().map(one).collect()
}

/// The beginning of a text, for a message.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

impl TaggedSplits {
    fn part(&mut self, split: Split) -> &mut Vec<TaggedSentence> {
        match split {
            Split::Train => &mut self.train,
            Split::Validation => &mut self.validation,
            Split::Test => &mut self.test,
        }
    }

    /// Sorts the tags.
    fn name_tags(&mut self, tags: Tags) {
        let mut order: Vec<usize> = (0..tags.names.len()).collect();
        order.sort_by_key(|&index| (tags.names[index] != "O", &tags.names[index]));
        let mut places = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&index, place)| places[index] = place);
        let parts = [&mut self.train, &mut self.validation, &mut self.test];
        for tag in parts.into_iter().flatten().flat_map(|sentence| &mut sentence.tags) {
            *tag = places[*tag as usize];
        }
        let seen: HashSet<u32> = self.train.iter().flat_map(|sentence| sentence.tags.iter().copied()).collect();
        self.tags = order.into_iter().map(|index| tags.names[index].clone()).collect();
        let unseen = self.tags.iter().zip(0..).filter(|(_, index)| !seen.contains(index));
        let unseen: Vec<&str> = unseen.map(|(tag, _)| tag.as_str()).collect();
        if !unseen.is_empty() && !seen.is_empty() {
            let tags = some_of(unseen.into_iter(), 6);
            self.notes.push(format!("no training word has these tags, which cannot be learnt: {tags}"));
        }
    }

    fn draw(&mut self, share: f64) {
        let all = std::mem::take(&mut self.train);
        let hashes: Vec<(u64, u32)> =
            all.iter().map(|sentence| (name_hash(sentence.words.join(" ").as_bytes()), 0)).collect();
        let total = all.len();
        for (sentence, is_drawn) in all.into_iter().zip(draw_texts(&hashes, share)) {
            if is_drawn { self.validation.push(sentence) } else { self.train.push(sentence) }
        }
        let were = counted(self.validation.len(), "sentence was", "sentences were");
        self.notes.push(format!(
            "there is no validation part: {were} drawn for it by their hashes (a share of {share} of {total})"
        ));
    }
}
