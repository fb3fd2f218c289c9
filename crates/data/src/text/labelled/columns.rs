//! Which columns of a table, or keys of JSON objects, are the text, its pair and the label.

use super::OpenLabelled;
use crate::dataset::some_of;

/// Names of texts that come in pairs.
const COUPLES: [(&str, &str); 10] = [
    ("text", "text_pair"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "context"),
    ("query", "document"),
];
/// Names of texts, the usual one first.
const TEXT_NAMES: [&str; 15] = [
    "text",
    "sentence",
    "review",
    "content",
    "premise",
    "sentence1",
    "question",
    "question1",
    "comment_text",
    "comment",
    "tweet",
    "document",
    "body",
    "message",
    "title",
];
const PAIR_NAMES: [&str; 4] = ["text_pair", "sentence2", "hypothesis", "question2"];
const LABEL_NAMES: [&str; 12] = [
    "label",
    "labels",
    "class",
    "classes",
    "category",
    "categories",
    "sentiment",
    "score",
    "target",
    "targets",
    "rating",
    "stars",
];

/// The indices of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub text: usize,
    pub pair: Option<usize>,
    pub label: Option<usize>,
}

impl Columns {
    /// Finds the columns by the options, or else by their usual names; the error says what is missing and which columns there are.
    /// `needs_label` is false for test files.
    pub(super) fn find<S: AsRef<str>>(
        names: &[S],
        options: &OpenLabelled,
        needs_label: bool,
    ) -> Result<Columns, String> {
        let place = |wanted: &str| names.iter().position(|name| is_called(name.as_ref(), wanted));
        let chosen = |option: &str, wanted: &str| match wanted {
            "" => Ok(None),
            wanted => place(wanted).map(Some).ok_or_else(|| {
                format!("there is no column `{wanted}`, which data.{option} names; the columns are: {}", shown(names))
            }),
        };
        let (mut text, mut pair) = (chosen("text", &options.text)?, chosen("pair", &options.pair)?);
        let label = match chosen("label", &options.label) {
            Ok(None) => LABEL_NAMES.into_iter().find_map(place),
            Err(reason) if needs_label => return Err(reason),
            chosen => chosen.unwrap_or(None),
        };
        if needs_label && label.is_none() {
            return Err(format!(
                "no column is called label, class, sentiment or the like: rename the column of the labels, or name it with data.label=NAME; the columns are: {}",
                shown(names)
            ));
        }
        if text.is_none() && pair.is_none() {
            let couple = COUPLES.into_iter().find_map(|(one, two)| Some((place(one)?, place(two)?)));
            (text, pair) = (couple.map(|couple| couple.0), couple.map(|couple| couple.1));
        }
        let is_free = |place: &usize| Some(*place) != pair && Some(*place) != label;
        let text = text.or_else(|| TEXT_NAMES.into_iter().filter_map(place).find(is_free)).ok_or_else(|| {
            format!("no column is called text, sentence, review or the like: rename the column of the texts, or name it with data.text=NAME; the columns are: {}", shown(names))
        })?;
        // A text that was chosen stands alone, unless its pair has a usual name.
        let pair = pair.or_else(|| PAIR_NAMES.into_iter().filter_map(place).find(|&place| place != text));
        if pair == Some(text) || label == Some(text) || (label.is_some() && label == pair) {
            return Err("text, pair and label must be different columns".to_string());
        }
        for used in [Some(text), pair, label].into_iter().flatten() {
            let name = names[used].as_ref();
            if names.iter().filter(|other| is_called(other.as_ref(), name)).count() > 1 {
                return Err(format!("two columns are called `{}`: rename one of them", short(name)));
            }
        }
        Ok(Columns { text, pair, label })
    }
}

/// Whether a first row names columns: it has a usual or chosen name, and no cell that looks like a sentence.
pub(super) fn is_header<S: AsRef<str>>(cells: &[S], options: &OpenLabelled) -> bool {
    let chosen = [options.text.as_str(), &options.pair, &options.label];
    let chosen = chosen.into_iter().filter(|name| !name.is_empty() && name.parse::<usize>().is_err());
    let mut known = TEXT_NAMES.into_iter().chain(PAIR_NAMES).chain(LABEL_NAMES).chain(chosen);
    let is_name = |cell: &str| cell.len() <= 80 && cell.split_whitespace().count() <= 3;
    cells.iter().all(|cell| is_name(cell.as_ref()))
        && known.any(|name| cells.iter().any(|cell| is_called(cell.as_ref(), name)))
}

fn is_called(name: &str, wanted: &str) -> bool {
    name.trim().eq_ignore_ascii_case(wanted.trim())
}

/// Names for a message, of bounded length.
pub(super) fn shown<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<String> = names.iter().take(13).map(|name| short(name.as_ref())).collect();
    if names.is_empty() { "none".to_string() } else { some_of(names.iter().map(String::as_str), 12) }
}

/// The beginning of a text, for a message.
pub(super) fn short(text: &str) -> String {
    let mut letters = text.trim().chars();
    let start: String = letters.by_ref().take(40).collect();
    if letters.next().is_some() { format!("{start}...") } else { start }
}

/// The columns of a table without a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    /// How many columns the table has.
    count: usize,
    columns: Columns,
}

impl Positions {
    /// Text first and label last, or label first if only the first column looks like labels. Numbers in the options choose columns,
    /// from 1.
    pub(super) fn find(rows: &[&[String]], options: &OpenLabelled) -> Result<Positions, String> {
        let count = rows.first().map_or(0, |row| row.len());
        let chosen = |option: &str, wanted: &str| match wanted {
            "" => Ok(None),
            wanted => match wanted.parse::<usize>() {
                Ok(number) if (1..=count).contains(&number) => Ok(Some(number - 1)),
                _ => Err(format!(
                    "there is no column `{}`, which data.{option} names: the first row does not name the columns (it is: {}), so give a number from 1 to {count}",
                    short(wanted),
                    shown(rows.first().copied().unwrap_or_default()),
                )),
            },
        };
        let (text, label) = (chosen("text", &options.text)?, chosen("label", &options.label)?);
        let pair = chosen("pair", &options.pair)?;
        let is_label_first = count > 1 && looks_like_labels(rows, 0) && !looks_like_labels(rows, count - 1);
        let label = label.or_else(|| if is_label_first { Some(0) } else { count.checked_sub(1) });
        let is_free = |place: &usize| Some(*place) != label && Some(*place) != pair;
        let Some(text) = text.or_else(|| (0..count).find(is_free)) else {
            return Err("it has one column only: there must be a text and a label in each row".to_string());
        };
        if pair == Some(text) || label == Some(text) || label == pair {
            return Err("text, pair and label must be different columns".to_string());
        }
        Ok(Positions { count, columns: Columns { text, pair, label } })
    }

    /// The columns of another file of the same data set, which may lack the labels.
    pub(super) fn of_columns(&self, count: usize) -> Option<Columns> {
        let label = self.columns.label?;
        let moved = |place: usize| if place > label { place - 1 } else { place };
        match count {
            count if count == self.count => Some(self.columns),
            count if count + 1 == self.count => {
                Some(Columns { text: moved(self.columns.text), pair: self.columns.pair.map(moved), label: None })
            }
            _ => None,
        }
    }

    /// What is taken from which column.
    pub(super) fn note(&self) -> String {
        let Columns { text, pair, label } = self.columns;
        let pair = pair.map(|pair| format!(", the pair in column {}", pair + 1)).unwrap_or_default();
        let label = label.map(|label| format!(", the label in column {}", label + 1)).unwrap_or_default();
        let used = 2 + usize::from(!pair.is_empty());
        let unused = match self.count.saturating_sub(used) {
            0 => String::new(),
            unused => format!(" ({unused} of {} columns are not used)", self.count),
        };
        format!("the first row does not name the columns: the text is in column {}{pair}{label}{unused}", text + 1)
    }
}

/// Whether a column has single words or numbers that repeat.
fn looks_like_labels(rows: &[&[String]], column: usize) -> bool {
    let cells: Vec<&str> = rows.iter().map(|row| row[column].trim()).collect();
    let is_word = |cell: &&str| cell.len() <= 40 && !cell.contains(char::is_whitespace);
    let distinct: std::collections::HashSet<&str> = cells.iter().copied().collect();
    cells.iter().all(is_word) && (cells.len() < 4 || distinct.len() * 2 <= cells.len())
}
