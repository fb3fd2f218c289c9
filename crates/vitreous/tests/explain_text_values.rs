//! What the page of a sentence draws, read back from the page and compared with the arrays and the JSON of the same explanation:
//! attention of every layer and head, cross-attention between words, alignment lines, probabilities.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::chart::{assert_colours_follow, bars, cells};
use common::page::{Element, close, parse, parsed, shares};
use common::training::tensors;
use common::translator::{DECODER_LAYERS, ENCODER_LAYERS, HEADS, translator};
use common::{ON_CPU, vitreous};
use serde_json::Value;

/// An explanation: its page, its line of JSON, its arrays and its folder.
struct Explained {
    _folder: tempfile::TempDir,
    page: Element,
    line: Value,
    arrays: BTreeMap<String, Vec<f32>>,
    place: PathBuf,
}

/// Explains a sentence with a translation of other length, so that what is transposed shows.
fn explained(more: &[&str]) -> Explained {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let asked = [
        "explain",
        translator(),
        "--text",
        "one zebras three four",
        "--target",
        "7 xyz 9",
        "--arrays",
        "--json",
        "--out",
    ];
    let words = [&asked[..], &[out.to_str().expect("UTF-8")], &ON_CPU, more].concat();
    let line = vitreous(&words).succeeded().json_lines().remove(0);
    let place = out.join("one-zebras-three-four");
    let page = parse(&fs::read_to_string(place.join("explain.html")).expect("a page"));
    let arrays = tensors(&place.join("arrays.npz"));
    Explained { _folder: folder, page, line, arrays, place }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// The words of a side of the JSON: text, first token, last token and one.
fn words(side: &Value) -> Vec<(String, usize, usize)> {
    let word = |word: &Value| {
        let of = |key: &str| word[key].as_u64().expect("a count") as usize;
        (word["text"].as_str().expect("text").to_string(), of("first"), of("first") + of("pieces"))
    };
    list(&side["words"]).iter().map(word).collect()
}

/// Panics unless packed weights are these.
#[track_caller]
fn assert_weights(what: &str, packed: &Value, expected: &[f64]) {
    let shown = shares(packed.as_str().unwrap_or_else(|| panic!("{what} is not in the page")));
    assert_eq!(shown.len(), expected.len(), "{what}");
    for (place, (shown, expected)) in shown.iter().zip(expected).enumerate() {
        close(&format!("{what}, place {place}"), f64::from(*shown), *expected, 1.1 / 65535.0);
    }
}

/// The mean over heads of a layer's weights.
fn mean(weights: &[f32], heads: usize) -> Vec<f64> {
    let size = weights.len() / heads;
    let of = |place: usize| (0..heads).map(|head| f64::from(weights[head * size + place])).sum::<f64>();
    (0..size).map(|place| of(place) / heads as f64).collect()
}

/// Cross-attention between words: the mean over the tokens of a word of the translation of what they give to all tokens of a word
/// of the source.
fn between(line: &Value, weights: &[f64]) -> Vec<Vec<f64>> {
    let (source, written) = (words(&line["source"]), words(&line["target"]));
    assert!(source[1].2 > source[1].1 + 1 && written[1].2 > written[1].1 + 1, "words of several tokens");
    let columns = list(&line["source"]["tokens"]).len();
    let weight = |row: &(String, usize, usize), column: &(String, usize, usize)| {
        let sum: f64 =
            (row.1..row.2).map(|y| weights[y * columns + column.1..y * columns + column.2].iter().sum::<f64>()).sum();
        sum / (row.2 - row.1) as f64
    };
    written.iter().map(|row| source.iter().map(|column| weight(row, column)).collect()).collect()
}

#[test]
fn attention_is_that_of_the_arrays_in_every_layer_and_head() {
    let Explained { page, line, arrays, .. } = explained(&[]);
    let data = page.by_id("explain-data").json();
    let (sources, targets) = (arrays["source"].len(), arrays["written"].len());
    assert_ne!(sources, targets, "what is transposed must show");
    for (kind, layers, size) in [
        ("encoder", ENCODER_LAYERS, sources * sources),
        ("decoder", DECODER_LAYERS, targets * targets),
        ("cross", DECODER_LAYERS, targets * sources),
    ] {
        assert_eq!(list(&data[kind]).len(), layers);
        for (place, layer) in list(&data[kind]).iter().enumerate() {
            assert_eq!(layer["layer"], place);
            let weights = &arrays[&format!("{kind}.{place}")];
            assert_eq!(weights.len(), HEADS * size);
            let each: Vec<f64> = weights.iter().map(|&weight| f64::from(weight)).collect();
            assert_weights(&format!("{kind}, layer {place}"), &layer["heads"], &each);
            assert_weights(&format!("{kind}, layer {place}, mean"), &layer["mean"], &mean(weights, HEADS));
        }
    }
    // What the rows and columns of these are: the decoder reads one token before what it writes.
    for (side, of) in [("source", &line["source"]), ("written", &line["target"])] {
        let expected: Vec<String> = words(of).into_iter().map(|word| word.0).collect();
        let shown: Vec<&str> = list(&data[side]["words"]).iter().map(|word| word[0].as_str().expect("text")).collect();
        let last = expected.len() - 1;
        assert_eq!(
            (&shown[..last], shown[last]),
            (&expected.iter().map(String::as_str).collect::<Vec<_>>()[..last], "‹end›")
        );
        for (shown, (_, first, end)) in list(&data[side]["words"]).iter().zip(words(of)) {
            assert_eq!((&shown[1], &shown[2]), (&first.into(), &end.into()));
        }
        assert_eq!(list(&data[side]["pieces"]).len(), list(&of["tokens"]).len());
    }
    assert_eq!(data["read"]["pieces"][0], "‹start›");
    assert_eq!(list(&data["read"]["pieces"])[1..], list(&data["written"]["pieces"])[..targets - 1]);
    let heads: Vec<(String, String)> = page
        .by_id("head")
        .all("option")
        .iter()
        .map(|option| (option.value("value").to_string(), option.text()))
        .collect();
    let expected = [("-1", "mean over heads"), ("0", "head 0"), ("1", "head 1")];
    assert_eq!(heads, expected.map(|(value, name)| (value.to_string(), name.to_string())));
}

#[test]
fn chosen_layers_and_heads_keep_their_numbers() {
    let Explained { page, arrays, .. } = explained(&["--layers", "2", "--heads", "1"]);
    let data = page.by_id("explain-data").json();
    assert_eq!((&data["cross"][0]["layer"], &data["heads"]), (&2.into(), &serde_json::json!([1])));
    let weights: Vec<f64> = arrays["cross.2"].iter().map(|&weight| f64::from(weight)).collect();
    assert_weights("cross, layer 2, head 1", &data["cross"][0]["heads"], &weights);
    let whole = explained(&[]);
    let size = weights.len();
    assert!(arrays["cross.2"] == whole.arrays["cross.2"][size..], "head 1 is the second of both");
    let names: Vec<String> = page.by_id("heads").all("button").iter().map(|button| button.text()).collect();
    assert_eq!(names, ["mean", "head 1"]);
}

#[test]
fn words_are_joined_by_their_cross_attention() {
    let Explained { page, line, arrays, .. } = explained(&[]);
    let data = page.by_id("explain-data").json();
    assert_eq!(list(&data["between"]).len(), DECODER_LAYERS);
    for layer in 0..DECODER_LAYERS {
        let expected = between(&line, &mean(&arrays[&format!("cross.{layer}")], HEADS));
        assert_weights(&format!("between words, layer {layer}"), &data["between"][layer], &expected.concat());
        // The end token is no word, on either side.
        let links = list(&data["links"][layer]);
        assert_eq!(links.len(), 3);
        for (target, link) in links.iter().enumerate() {
            let row = &expected[target][..4];
            let source = (0..4).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("words");
            assert_eq!((&link[0], &link[1]), (&target.into(), &source.into()), "layer {layer}");
            close(&format!("link {target} of layer {layer}"), number(&link[2]), row[source], 1e-6);
        }
    }
    for (id, side, expected) in
        [("source-words", "source", words(&line["source"])), ("target-words", "target", words(&line["target"]))]
    {
        let buttons = page.by_id(id).all("button");
        assert_eq!(buttons.len(), expected.len());
        for (place, (button, word)) in buttons.iter().zip(expected).enumerate() {
            assert_eq!((button.value("data-side"), button.number("data-word")), (side, place as f64));
            assert!(button.text() == word.0 || button.text() == "‹end›", "{} is not {}", button.text(), word.0);
        }
    }
    let chosen: Vec<String> = page
        .by_id("align-layer")
        .all("option")
        .into_iter()
        .filter(|option| option.get("selected").is_some())
        .map(|option| option.value("value").to_string())
        .collect();
    assert_eq!((chosen, &data["layer"]), (vec![line["alignment_layer"].to_string()], &line["alignment_layer"]));
}

/// Panics unless a drawing has a line from each word of the translation to the word that it is aligned with.
fn assert_lines(drawing: &Element, line: &Value, layer: usize) {
    assert_eq!(drawing.value("aria-label"), format!("Word alignment by layer {layer}"));
    let links = list(&line["alignment"][layer]["links"]);
    let drawn = drawing.by_id("links").all("path");
    assert_eq!(drawn.len(), links.len());
    // A word stands five units below the end of its lines; those of the source end left of them.
    let height = |text: &str, is_source: bool| {
        let word = drawing
            .all("text")
            .into_iter()
            .find(|word| word.text() == text && (word.get("text-anchor") == Some("end")) == is_source);
        word.unwrap_or_else(|| panic!("no {text}")).number("y") - 5.0
    };
    let (sources, targets) = (words(&line["source"]), words(&line["target"]));
    for (path, link) in drawn.iter().zip(links) {
        let [target, source] = ["target", "source"].map(|key| link[key].as_u64().expect("a word") as usize);
        assert_eq!((path.number("data-target"), path.number("data-source")), (target as f64, source as f64));
        let numbers: Vec<f64> = path.value("d").split(['M', 'C', ' ']).filter(|n| !n.is_empty()).map(parsed).collect();
        assert!(numbers[0] < numbers[6], "a line goes from left to right");
        close("where a line begins", numbers[1], height(&sources[source].0, true), 0.11);
        close("where a line ends", numbers[7], height(&targets[target].0, false), 0.11);
        close("how strong a line is", path.number("stroke-width"), 1.0 + 4.0 * number(&link["weight"]), 0.051);
    }
}

#[test]
fn lines_join_the_words_that_are_aligned() {
    let one = explained(&[]);
    let layer = one.line["alignment_layer"].as_u64().expect("a layer") as usize;
    assert_lines(one.page.by_id("alignment").first("svg"), &one.line, layer);
    let file = parse(&fs::read_to_string(one.place.join("alignment.svg")).expect("a drawing"));
    assert_lines(file.first("svg"), &one.line, layer);
}

#[test]
fn heat_maps_have_the_translation_in_rows_and_the_source_in_columns() {
    let one = explained(&[]);
    let usual = one.line["alignment_layer"].as_u64().expect("a layer") as usize;
    let assert_cells = |drawing: &Element, layer: usize| {
        assert_eq!(drawing.value("aria-label"), format!("Cross-attention of layer {layer}, mean over heads"));
        let expected = between(&one.line, &mean(&one.arrays[&format!("cross.{layer}")], HEADS));
        let drawn = cells(drawing);
        let name = |(text, ..): (String, usize, usize)| text;
        let [mut source, mut written] =
            ["source", "target"].map(|side| words(&one.line[side]).into_iter().map(name).collect::<Vec<_>>());
        for names in [&mut source, &mut written] {
            *names.last_mut().expect("an end") = "‹end›".to_string();
        }
        assert_eq!(drawn.len(), written.len() * source.len());
        for cell in &drawn {
            let row = written.iter().position(|word| *word == cell.row).expect("a word of the translation");
            let column = source.iter().position(|word| *word == cell.column).expect("a word of the source");
            let (what, percent) = (format!("{} to {}", cell.row, cell.column), 100.0 * expected[row][column]);
            close(&what, parsed(&cell.text), percent, 0.51);
            let (said, value) = cell.note.rsplit_once(": ").expect("a value");
            assert_eq!(said, format!("{} attends to {}", cell.row, cell.column));
            close(&what, parsed(value), percent, 0.051);
        }
        // Colours start at 0, which may be smaller than every weight.
        let (mut colours, mut values): (Vec<_>, Vec<f64>) =
            (drawn.iter().map(|cell| cell.colour).collect(), expected.concat());
        colours.push(common::chart::DARKEST);
        values.push(0.0);
        assert_colours_follow(&format!("layer {layer}"), &colours, &values);
    };
    assert_cells(one.page.by_id("attention").first("svg"), usual);
    for layer in 0..DECODER_LAYERS {
        let file = fs::read_to_string(one.place.join(format!("cross-attention-{layer}.svg"))).expect("a drawing");
        assert_cells(parse(&file).first("svg"), layer);
    }
}

#[test]
fn each_token_has_the_bar_of_its_probability() {
    let Explained { page, line, .. } = explained(&[]);
    let section = page.by_id("sure");
    let shown = bars(section.first("svg"));
    let target = &line["target"];
    let (pieces, probabilities) = (list(&target["pieces"]), list(&target["probability"]));
    assert_eq!(shown.len(), pieces.len());
    for (place, (label, text, length)) in shown.iter().enumerate() {
        let is_end = place == pieces.len() - 1;
        assert!(is_end || label == pieces[place].as_str().expect("a piece"), "{label} is not {}", pieces[place]);
        close(label, parsed(text), 100.0 * number(&probabilities[place]), 0.051);
        // A value that is not 0 is seen, however small it is.
        close(label, *length, number(&probabilities[place]), 6e-3);
    }
    let log: f64 = probabilities.iter().map(|share| number(share).ln()).sum();
    let words = section.text();
    let said = format!("translation is {log:.2}, its perplexity {:.2} per token", (-log / pieces.len() as f64).exp());
    assert!(words.contains(&said), "{words} does not say {said}");
    let others: Vec<Vec<String>> = section.rows()[1..].to_vec();
    let likeliest = list(&target["likeliest"]);
    let better: Vec<usize> = (0..pieces.len())
        .filter(|&place| number(&likeliest[place]["probability"]) > number(&probabilities[place]))
        .collect();
    assert_eq!(others.len(), better.len());
    for (row, place) in others.iter().zip(better) {
        close("probability", parsed(&row[1]), 100.0 * number(&probabilities[place]), 0.051);
        close("the most probable", parsed(&row[3]), 100.0 * number(&likeliest[place]["probability"]), 0.051);
        let piece = likeliest[place]["piece"].as_str().expect("a piece");
        assert!(row[2] == piece || row[2].starts_with('‹'), "{row:?} and {piece}");
    }
}
