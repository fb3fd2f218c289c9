//! Images with captions: a table (CSV, TSV) or JSON lines of image paths and texts, for models of images and texts.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::ReaderBuilder;
use serde_json::{Map, Value};

use super::files::{self, counted, extension, some_of};
use super::samples::{ImageLocation, Sample, Samples};
use super::split::{Split, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, is_drawn, name_hash};
use super::{CachedImages, Dataset, DatasetError, MemoryBudget};

/// Names of the columns or keys, the usual one first.
const IMAGE_NAMES: [&str; 9] =
    ["image", "path", "file", "file_name", "filename", "image_path", "filepath", "file_path", "img"];
const CAPTION_NAMES: [&str; 7] = ["caption", "text", "captions", "texts", "title", "sentence", "description"];
const LABEL_NAMES: [&str; 3] = ["label", "class", "category"];
const SPLIT_NAMES: [&str; 3] = ["split", "subset", "part"];
/// The maximum size of a file.
const MOST_BYTES: u64 = 4 << 30;

/// How pairs are opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenCaptions {
    /// The share of images for validation, where the data says no split.
    pub validation_share: f64,
    /// Memory for decoded images that are kept.
    pub keep_bytes: u64,
}

/// Images, each with a caption; an image with several captions is there several times.
#[derive(Clone)]
pub struct CaptionedImages {
    /// The images. Their labels are the classes that the data names; 0 where it names none.
    pub images: Arc<dyn Dataset>,
    /// The caption of each.
    pub captions: Vec<String>,
}

/// Pairs of images and captions, split for training and validation.
#[derive(Clone)]
pub struct CaptionSplits {
    /// What a model is trained on.
    pub train: CaptionedImages,
    /// What it is evaluated with; may be empty.
    pub validation: CaptionedImages,
    /// Names of the classes of the validation images, sorted; empty if not every one of them has a class.
    pub classes: Vec<String>,
    /// What a user should know about how it was read.
    pub notes: Vec<String>,
}

/// One row of a file.
struct Row {
    image: Vec<u8>,
    captions: Vec<String>,
    label: Option<String>,
    split: Option<Split>,
}

/// A row that was read.
struct Pair {
    path: PathBuf,
    hash: u64,
    caption: String,
    label: Option<String>,
    split: Option<Split>,
}

/// Opens a file of pairs, or a folder with one per split: `train.csv`, `validation.jsonl`.
pub fn open_captions(path: &Path, options: &OpenCaptions) -> Result<CaptionSplits, DatasetError> {
    let mut pairs = Vec::new();
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut empty = 0;
    for (of_file, file) in files_of(path)? {
        let folder = file.parent().unwrap_or(Path::new(""));
        for (number, row) in rows(&file)? {
            let row = row.map_err(|reason| DatasetError::row(&file, number, reason))?;
            let path = folder.join(files::path_of(&row.image));
            if !path.is_file() {
                missing.push(path);
                continue;
            }
            let hash = name_hash(&row.image);
            for caption in row.captions {
                if caption.trim().is_empty() {
                    empty += 1;
                    continue;
                }
                let (path, label, split) = (path.clone(), row.label.clone(), row.split.or(of_file));
                pairs.push(Pair { path, hash, caption, label, split });
            }
        }
    }
    let mut notes = Vec::new();
    if let Some(first) = missing.first() {
        let first = first.display();
        if pairs.is_empty() {
            let what = format!("none of its {} images is there; the first is {first}", missing.len());
            return Err(DatasetError::damaged(path, what));
        }
        notes.push(format!(
            "{} an image that is not there, and {} left out; the first is {first}",
            counted(missing.len(), "pair names", "pairs name"),
            if missing.len() == 1 { "is" } else { "are" },
        ));
    }
    if empty > 0 {
        notes.push(format!(
            "{} no words, and {} left out",
            counted(empty, "caption has", "captions have"),
            if empty == 1 { "is" } else { "are" }
        ));
    }
    if pairs.is_empty() {
        return Err(DatasetError::damaged(path, "there are no pairs of an image and a caption".to_string()));
    }
    Ok(split(pairs, options, notes))
}

/// Names the splits, or draws validation images by their names: all captions of an image are in one split.
fn split(pairs: Vec<Pair>, options: &OpenCaptions, mut notes: Vec<String>) -> CaptionSplits {
    let is_split = pairs.iter().any(|pair| matches!(pair.split, Some(Split::Validation | Split::Test)));
    let of = |pair: &Pair| match (is_split, pair.split) {
        (true, Some(Split::Validation)) => Split::Validation,
        (true, Some(Split::Test)) => Split::Test,
        (true, _) => Split::Train,
        (false, _) if is_drawn(pair.hash, options.validation_share) => Split::Validation,
        (false, _) => Split::Train,
    };
    // A test part is used where there is no other to validate with.
    let has_validation = pairs.iter().any(|pair| of(pair) == Split::Validation);
    let held_out = if has_validation { Split::Validation } else { Split::Test };
    if !is_split && has_validation {
        notes.push(format!(
            "{} % of the images, drawn by their names, are for validation",
            100.0 * options.validation_share
        ));
    }
    let validation: Vec<&Pair> = pairs.iter().filter(|pair| of(pair) == held_out).collect();
    let labels: Option<Vec<&String>> = validation.iter().map(|pair| pair.label.as_ref()).collect();
    let mut classes: Vec<String> = labels.unwrap_or_default().into_iter().cloned().collect();
    classes.sort();
    classes.dedup();
    let places: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let budget = MemoryBudget::new(options.keep_bytes);
    let chosen = |split: Split| {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| of(pair) == split).collect();
        let sample = |pair: &&Pair| {
            let class = pair.label.as_deref().and_then(|label| places.get(label)).copied().unwrap_or(0);
            Sample { location: ImageLocation::File(pair.path.clone()), labels: vec![class].into() }
        };
        let samples: Arc<dyn Dataset> = Arc::new(Samples(own.iter().map(sample).collect()));
        let images = Arc::new(CachedImages::new(samples, budget.clone()));
        CaptionedImages { images, captions: own.iter().map(|pair| pair.caption.clone()).collect() }
    };
    CaptionSplits { train: chosen(Split::Train), validation: chosen(held_out), classes, notes }
}

/// The files of a data set with their splits.
fn files_of(path: &Path) -> Result<Vec<(Option<Split>, PathBuf)>, DatasetError> {
    if !path.is_dir() {
        return match is_pairs_file(path) {
            true => Ok(vec![(None, path.to_path_buf())]),
            false => Err(DatasetError::damaged(path, format!("this is no file of pairs: {WANTED}"))),
        };
    }
    let listing = files::list(path)?;
    let names =
        [(Split::Train, &TRAIN_NAMES[..]), (Split::Validation, &VALIDATION_NAMES[..]), (Split::Test, &TEST_NAMES[..])];
    let mut found = Vec::new();
    for file in listing.files.iter().filter(|file| is_pairs_file(file)) {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_ascii_lowercase();
        if let Some((split, _)) = names.iter().find(|(_, names)| names.contains(&stem.as_str())) {
            found.push((Some(*split), file.clone()));
        } else if ["pairs", "captions", "metadata", "data"].contains(&stem.as_str()) {
            found.push((None, file.clone()));
        }
    }
    if found.is_empty() {
        return Err(DatasetError::damaged(path, format!("this folder has no file of pairs: {WANTED}")));
    }
    Ok(found)
}

const WANTED: &str =
    "give a .csv, .tsv or .jsonl of images and captions, or a folder with pairs.csv, or train.csv and validation.csv";

fn is_pairs_file(path: &Path) -> bool {
    matches!(extension(path).as_deref(), Some("csv" | "tsv" | "jsonl" | "ndjson"))
}

type Rows = Vec<(usize, Result<Row, String>)>;

fn rows(path: &Path) -> Result<Rows, DatasetError> {
    let mut bytes = files::read(path, MOST_BYTES)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    match extension(path).as_deref() {
        Some("jsonl" | "ndjson") => {
            let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
            Ok(lines.filter(|(_, line)| !line.is_empty()).map(|(index, line)| (index + 1, row_of_line(line))).collect())
        }
        Some("tsv") => table(path, &bytes, b"\t"),
        _ => table(path, &bytes, b",\t;"),
    }
}

fn row_of_line(line: &[u8]) -> Result<Row, String> {
    let object: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("this is not a JSON object: {error}"))?;
    let find = |names: &[&str]| names.iter().find_map(|name| object.get(*name));
    let text = |value: &Value| value.as_str().map(str::to_string);
    let image = find(&IMAGE_NAMES).ok_or_else(|| format!("there is no image: none of {}", IMAGE_NAMES.join(", ")))?;
    let image = text(image).filter(|image| !image.is_empty()).ok_or("the image is not a path")?.into_bytes();
    let caption =
        find(&CAPTION_NAMES).ok_or_else(|| format!("there is no caption: none of {}", CAPTION_NAMES.join(", ")))?;
    let captions = match caption {
        Value::Array(several) => several.iter().map(text).collect::<Option<Vec<String>>>(),
        one => text(one).map(|caption| vec![caption]),
    };
    let captions = captions.ok_or("the caption is not a text, or a list of texts")?;
    let label = find(&LABEL_NAMES).and_then(text);
    Ok(Row { image, captions, label, split: split_of(find(&SPLIT_NAMES).and_then(text))? })
}

fn split_of(name: Option<String>) -> Result<Option<Split>, String> {
    match name.as_deref().map(str::trim).filter(|name| !name.is_empty()) {
        None => Ok(None),
        Some(name) => match Split::named(name) {
            Some(split) => Ok(Some(split)),
            None => Err(format!("`{name}` is not a split: write train, validation or test")),
        },
    }
}

fn table(path: &Path, bytes: &[u8], separators: &[u8]) -> Result<Rows, DatasetError> {
    let reader =
        |separator: u8| ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(Cursor::new(bytes));
    let header = |separator: u8| -> Vec<String> {
        let mut reader = reader(separator);
        let names = reader.byte_headers().map(|header| {
            header.iter().map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase()).collect()
        });
        names.unwrap_or_default()
    };
    let place =
        |header: &[String], names: &[&str]| names.iter().find_map(|name| header.iter().position(|own| own == name));
    for &separator in separators {
        let header = header(separator);
        let (Some(image), Some(caption)) = (place(&header, &IMAGE_NAMES), place(&header, &CAPTION_NAMES)) else {
            continue;
        };
        let (label, split) = (place(&header, &LABEL_NAMES), place(&header, &SPLIT_NAMES));
        let row = |record: csv::ByteRecord| -> Result<Row, String> {
            let cell = |place: usize| record.get(place).map(<[u8]>::trim_ascii);
            let text = |place: usize| cell(place).map(|cell| String::from_utf8_lossy(cell).into_owned());
            Ok(Row {
                image: cell(image).filter(|image| !image.is_empty()).ok_or("there is no image")?.to_vec(),
                captions: vec![text(caption).ok_or("there is no caption: the row is too short")?],
                label: label.and_then(text).filter(|label| !label.is_empty()),
                split: split_of(split.and_then(text))?,
            })
        };
        let records = reader(separator).into_byte_records().enumerate();
        return Ok(records
            .map(|(index, record)| (index + 1, record.map_err(|error| error.to_string()).and_then(row)))
            .collect());
    }
    let names = header(separators[0]);
    Err(DatasetError::damaged(
        path,
        format!(
            "its first row must name the columns: one of {} for images and one of {} for captions, but it is: {}",
            IMAGE_NAMES.join(", "),
            CAPTION_NAMES.join(", "),
            some_of(names.iter().map(String::as_str), 12).chars().take(200).collect::<String>()
        ),
    ))
}
