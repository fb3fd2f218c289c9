//! What the page of an image draws, read back from the page and compared with the arrays and the JSON of the same explanation:
//! attention of every layer, head and patch, rollout, relevance, components and similarity of patches, weights.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::chart::{Axes, assert_colours_follow, bars, places};
use common::page::{Element, Picture, close, floats, parse, parsed, unpack};
use common::training::tensors;
use common::{ON_CPU, fixtures, vitreous};
use serde_json::Value;
use vitreous_data::image::{Channels, Image};

/// An explanation: its page, its line of JSON, and its arrays.
struct Explained {
    _folder: tempfile::TempDir,
    page: Element,
    line: Value,
    arrays: BTreeMap<String, Vec<f32>>,
    place: PathBuf,
}

/// Explains an image in patches of 4 rows and 6 columns, so that what is transposed or shifted shows.
fn explained(model: &str, more: &[&str]) -> Explained {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let asked = ["explain", model, "pictures/noise.png", "--image", "32x48", "--arrays", "--json", "--out"];
    let words = [&asked[..], &[out.to_str().expect("UTF-8")], &ON_CPU, more].concat();
    let line = vitreous(&words).succeeded().json_lines().remove(0);
    let place = out.join("noise");
    let page = parse(&fs::read_to_string(place.join("explain.html")).expect("a page"));
    let arrays = tensors(&place.join("arrays.npz"));
    Explained { _folder: folder, page, line, arrays, place }
}

const ROWS: usize = 4;
const COLUMNS: usize = 6;
const PATCHES: usize = ROWS * COLUMNS;
/// The class token stands in front of the patches.
const TOKENS: usize = 1 + PATCHES;

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// The rows of weights that a page's script unpacks: those of the tokens in front, then those of the patches.
fn rows_of(packed: &Value) -> Vec<Vec<f64>> {
    let text = |key: &str| packed[key].as_str().expect("text");
    let (patches, largest, prefix) = (unpack(text("patches")), floats(text("largest")), floats(text("prefix")));
    assert_eq!((patches.len(), prefix.len()), (largest.len() * PATCHES, largest.len()));
    let row = |(place, bytes): (usize, &[u8])| {
        let weight = |&byte: &u8| f64::from(largest[place]) * (f64::from(byte) / 255.0).powi(2);
        std::iter::once(f64::from(prefix[place])).chain(bytes.iter().map(weight)).collect()
    };
    patches.chunks_exact(PATCHES).enumerate().map(row).collect()
}

/// Panics unless unpacked weights are those of a row, to one byte each.
#[track_caller]
fn assert_row(what: &str, shown: &[f64], expected: &[f64]) {
    let largest = expected[1..].iter().copied().fold(0.0, f64::max);
    assert_eq!(shown.len(), expected.len(), "{what}");
    for (token, (shown, expected)) in shown.iter().zip(expected).enumerate() {
        close(&format!("{what}, token {token}"), *shown, *expected, 0.004 * largest + 1e-7);
    }
}

/// The mean of rows of the same length.
fn mean(rows: &[&[f32]]) -> Vec<f64> {
    let sum = |place: usize| rows.iter().map(|row| f64::from(row[place])).sum::<f64>();
    (0..rows[0].len()).map(|place| sum(place) / rows.len() as f64).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

#[test]
fn attention_is_that_of_the_arrays_in_every_layer_head_and_patch() {
    let Explained { page, line, arrays, .. } = explained("tiny_vit", &[]);
    let data = page.by_id("explain-data").json();
    assert_eq!((&data["grid"], &data["kept"]), (&line["layout"]["grid"], &"all".into()));
    assert_eq!(data["grid"], serde_json::json!([ROWS, COLUMNS]));
    assert_eq!(list(&data["layers"]).len(), 2);
    for (place, layer) in list(&data["layers"]).iter().enumerate() {
        assert_eq!((&layer["layer"], &layer["heads"]), (&place.into(), &serde_json::json!([0, 1, 2])));
        let weights = &arrays[&format!("attention.{place}")];
        let row = |head: usize, query: usize| &weights[(head * TOKENS + query) * TOKENS..][..TOKENS];
        let (all, means, reader) = (rows_of(&layer["all"]), rows_of(&layer["mean"]), rows_of(&layer["reader"]));
        assert_eq!((all.len(), means.len(), reader.len()), (3 * TOKENS, TOKENS, 4));
        for query in 0..TOKENS {
            for head in 0..3 {
                let what = format!("layer {place}, head {head}, query {query}");
                assert_row(&what, &all[head * TOKENS + query], &wide(row(head, query)));
            }
            let what = format!("layer {place}, mean, query {query}");
            assert_row(&what, &means[query], &mean(&[0, 1, 2].map(|head| row(head, query))));
        }
        for head in 0..3 {
            assert_row(&format!("layer {place}, head {head}, reader"), &reader[head], &wide(row(head, 0)));
        }
        assert_row(&format!("layer {place}, reader's mean"), &reader[3], &mean(&[0, 1, 2].map(|head| row(head, 0))));
    }
    assert_eq!((&data["prefix"], &data["reader"]), (&serde_json::json!(["class token"]), &"class token".into()));
    assert_names(&page, &["0", "1"], &["0", "1", "2"]);
}

/// Panics unless everything that chooses a layer or a head is named as what it shows.
fn assert_names(page: &Element, layers: &[&str], heads: &[&str]) {
    let options = |id: &str| -> Vec<(String, String)> {
        let options = page.by_id(id).all("option").into_iter();
        options.map(|option| (option.value("value").to_string(), option.text())).collect()
    };
    let numbered = |names: &[&str], word: &str| -> Vec<(String, String)> {
        names.iter().enumerate().map(|(place, name)| (place.to_string(), format!("{word}{name}"))).collect()
    };
    assert_eq!(options("layer"), numbered(layers, ""));
    assert_eq!(options("head")[1..], numbered(heads, "head "));
    assert_eq!(options("head")[0].0, "-1");
    let cells = |id: &str, key: &str| -> Vec<(String, String)> {
        let cells = page.by_id(id).all("button").into_iter();
        cells.map(|cell| (cell.value(key).to_string(), cell.text())).collect()
    };
    assert_eq!(cells("layers", "data-layer"), numbered(layers, "layer "));
    assert_eq!(cells("heads", "data-head")[1..], numbered(heads, "head "));
    for cell in page.by_id("overview").all("button") {
        let (layer, head) = (cell.number("data-layer") as usize, cell.value("data-head"));
        let head = head.parse::<usize>().map_or("mean".to_string(), |place| format!("head {}", heads[place]));
        assert_eq!(cell.value("aria-label"), format!("layer {}, {head}", layers[layer]));
    }
}

#[test]
fn chosen_layers_and_heads_keep_their_numbers() {
    let Explained { page, arrays, .. } = explained("tiny_vit", &["--layers", "1", "--heads", "0,2"]);
    let data = page.by_id("explain-data").json();
    let layer = &data["layers"][0];
    assert_eq!((&layer["layer"], &layer["heads"]), (&1.into(), &serde_json::json!([0, 2])));
    assert_names(&page, &["1"], &["0", "2"]);
    for (place, (shown, expected)) in
        rows_of(&layer["all"]).iter().zip(arrays["attention.1"].chunks_exact(TOKENS)).enumerate()
    {
        assert_row(&format!("row {place}"), shown, &wide(expected));
    }
    // Dots stand at their layer and say their head.
    let notes: Vec<String> = dots(page.by_id("distance").all("svg")[0]).into_iter().map(|dot| dot.0).collect();
    assert_eq!(notes, ["layer 1, head 0", "layer 1, head 2"]);
}

/// The colours of a part of a picture.
fn part(picture: &Picture, [top, left]: [usize; 2], [height, width]: [usize; 2], step: usize) -> Vec<[u8; 3]> {
    let place = |at: usize| (top + at / width * step) * picture.width + left + at % width * step;
    let pixel = |at: usize| picture.pixels[place(at)];
    (0..height * width).map(|at| [pixel(at)[0], pixel(at)[1], pixel(at)[2]]).collect()
}

#[test]
fn the_overview_without_scripts_shows_each_layer_in_its_row_and_each_head_in_its_column() {
    let Explained { page, arrays, .. } = explained("tiny_vit", &[]);
    let pictures = page.by_id("attention").all("img");
    let [sheet] = pictures[..] else { panic!("one picture") };
    let sheet = sheet.picture();
    assert_eq!((sheet.width, sheet.height), (4 * (COLUMNS + 1) - 1, 2 * (ROWS + 1) - 1));
    for layer in 0..2 {
        let weights = &arrays[&format!("attention.{layer}")];
        let heads = [0, 1, 2].map(|head| &weights[head * TOKENS * TOKENS + 1..][..PATCHES]);
        for column in 0..4 {
            let values = if column < 3 { wide(heads[column]) } else { mean(&heads) };
            let corner = [layer * (ROWS + 1), column * (COLUMNS + 1)];
            let colours = part(&sheet, corner, [ROWS, COLUMNS], 1);
            assert_colours_follow(&format!("layer {layer}, column {column}"), &colours, &values);
        }
    }
}

/// Panics unless a figure shows these values: for the script, as a picture, and in the legend and the words about it.
fn assert_map(what: &str, figure: &Element, values: &[f32], percentile: f64) {
    let shown = figure.first("img");
    assert_eq!(floats(shown.value("data-map")), values, "{what}");
    assert_eq!(shown.number("data-percentile"), percentile, "{what}");
    let mut sorted = wide(values);
    sorted.sort_by(f64::total_cmp);
    let place = percentile / 100.0 * (PATCHES - 1) as f64;
    let next = sorted[(place as usize + 1).min(PATCHES - 1)];
    let (low, high) = (sorted[0], sorted[place as usize] + place.fract() * (next - sorted[place as usize]));
    let picture = shown.picture();
    assert_eq!((picture.width, picture.height), (COLUMNS, ROWS), "{what}");
    for (patch, (pixel, &value)) in picture.pixels.iter().zip(values).enumerate() {
        let share = ((f64::from(value) - low) / (high - low)).clamp(0.0, 1.0);
        close(&format!("{what}: opacity of patch {patch}"), f64::from(pixel[3]), 255.0 * share, 0.51);
    }
    let ends: Vec<f64> =
        figure.of_class("legend")[0].children().filter(|end| !end.is("scale")).map(|end| parsed(&end.text())).collect();
    for (end, expected) in ends.iter().zip([low, high]) {
        close(&format!("{what}: an end of its scale"), *end, expected, 0.06 * expected.abs());
    }
    let strongest = (0..PATCHES).max_by(|&a, &b| values[a].total_cmp(&values[b])).expect("patches");
    let said = format!(": strongest at row {}, column {}", strongest / COLUMNS, strongest % COLUMNS);
    assert!(shown.value("alt").ends_with(&said), "{what}: {}", shown.value("alt"));
}

#[test]
fn rollouts_stand_under_what_they_are() {
    let Explained { page, arrays, .. } = explained("tiny_vit", &[]);
    let section: Vec<&Element> = page.by_id("rollout").children().collect();
    let headings = section.iter().enumerate().filter(|(_, element)| element.name == "h3");
    let groups: Vec<(String, &Element)> = headings.map(|(at, heading)| (heading.text(), section[at + 1])).collect();
    let discards = [("All weights", "0"), ("The smallest 90 % of the weights discarded", "0.9")];
    assert_eq!(groups.len(), discards.len());
    for ((heading, group), (name, discard)) in groups.iter().zip(discards) {
        assert_eq!(heading, name);
        let figures = group.all("figure");
        for (figure, fusion) in figures.iter().zip(["mean", "max", "min"]) {
            assert!(figure.first("figcaption").text().starts_with(&format!("{fusion} over heads")), "{fusion}");
            let array = format!("rollout.{fusion}.{discard}");
            assert_map(&array, figure, &arrays[&array], 99.0);
            assert!(
                figure.first("img").value("alt").starts_with(&format!("Rollout by the {fusion} over heads, {name}"))
            );
        }
        assert_eq!(figures.len(), 3);
    }
}

#[test]
fn relevance_stands_under_its_class() {
    let Explained { page, line, arrays, .. } = explained("tiny_vit", &["--top", "3", "--class", "cat"]);
    let figures = page.by_id("relevance").all("figure");
    let classes = list(&line["relevance"]);
    assert!(classes.len() >= 3 && figures.len() == classes.len());
    let logits: Vec<f64> = list(&line["logits"]).iter().map(number).collect();
    let all: f64 = logits.iter().map(|logit| logit.exp()).sum();
    for (figure, one) in figures.iter().zip(classes) {
        let (index, label) =
            (one["class"]["index"].as_u64().expect("a class"), one["class"]["label"].as_str().expect("a name"));
        assert_map(label, figure, &arrays[&format!("relevance.{index}")], 100.0);
        let caption = figure.first("figcaption");
        assert_eq!(caption.first("strong").text(), label);
        let share = caption.text().split(", ").last().and_then(|rest| rest.split(" %").next()).map(parsed);
        close(label, share.expect("a share"), 100.0 * logits[index as usize].exp() / all, 0.051);
    }
}

#[test]
fn the_most_probable_classes_have_their_bars() {
    let Explained { page, line, .. } = explained("tiny_vit", &[]);
    let shown = bars(page.by_id("prediction").of_class("chart")[0]);
    let top = list(&line["top"]);
    assert_eq!(shown.len(), top.len());
    for ((label, text, length), class) in shown.iter().zip(top) {
        assert_eq!(label, class["label"].as_str().expect("a label"));
        close(label, parsed(text), 100.0 * number(&class["score"]), 0.051);
        close(label, *length, number(&class["score"]), 1e-3);
    }
    let lead = page.first("header").text();
    let best = format!("{}, {:.1} %", top[0]["label"].as_str().expect("a label"), 100.0 * number(&top[0]["score"]));
    assert!(lead.contains(&best), "{lead}");
}

/// The dots of a chart: what each is, its value, and where it stands.
fn dots(svg: &Element) -> Vec<(String, f64, (f64, f64))> {
    let dot = |group: &Element| {
        let note = group.first("title").text();
        let (what, value) = note.rsplit_once(": ").expect("a value");
        let disc = group.first("circle");
        (what.to_string(), parsed(value), (disc.number("cx"), disc.number("cy")))
    };
    svg.children().filter(|child| child.name == "g").map(dot).collect()
}

/// Panics unless the charts of distance and entropy show these numbers, by layer and head.
fn assert_spread(section: &Element, expected: [Vec<Vec<f64>>; 2]) {
    let charts = section.all("svg");
    assert_eq!(charts.len(), 2);
    for ((svg, title), layers) in charts.iter().zip(["Mean attention distance", "Entropy of attention"]).zip(expected) {
        assert_eq!(svg.value("aria-label"), title);
        let (axes, shown) = (Axes::of(svg, false), dots(svg));
        let heads = layers[0].len();
        assert_eq!(shown.len(), layers.len() * heads);
        for (place, (what, value, at)) in shown.iter().enumerate() {
            let (layer, head) = (place / heads, place % heads);
            assert_eq!(*what, format!("layer {layer}, head {head}"));
            close(&format!("{title}, {what}"), *value, layers[layer][head], 6e-4);
            axes.at(&format!("{title}, {what}"), *at, (layer as f64, layers[layer][head]));
        }
        let means = svg.children().find(|child| child.get("stroke") == Some("#d55e00")).expect("a line of means");
        for (layer, at) in places(means).into_iter().enumerate() {
            axes.at(&format!("{title}, mean"), at, (layer as f64, layers[layer].iter().sum::<f64>() / heads as f64));
        }
    }
}

/// A number of each layer and head.
fn of_layers(line: &Value, key: &str) -> Vec<Vec<f64>> {
    list(&line["layers"]).iter().map(|layer| list(&layer[key]).iter().map(number).collect()).collect()
}

#[test]
fn distances_and_entropies_stand_at_their_layer_and_head() {
    let Explained { page, line, .. } = explained("tiny_vit", &[]);
    assert_spread(page.by_id("distance"), ["distance", "entropy"].map(|key| of_layers(&line, key)));
}

#[test]
fn components_and_similarity_are_those_of_the_patch_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("bare").to_str().expect("UTF-8").to_string();
    vitreous(&["convert", "tiny_vit", &bare, "--no-head"]).succeeded();
    let Explained { page, arrays, .. } = explained(&bare, &[]);
    let picture = page.by_id("patches").first("img").picture();
    assert_eq!((picture.width, picture.height), (COLUMNS, ROWS));
    for channel in 0..3 {
        let scores: Vec<f64> =
            arrays["patch_components"].iter().skip(channel).step_by(3).map(|&v| f64::from(v)).collect();
        let (low, high) = scores.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        for (patch, (pixel, score)) in picture.pixels.iter().zip(&scores).enumerate() {
            let what = format!("component {channel} of patch {patch}");
            close(&what, f64::from(pixel[channel]), 255.0 * (score - low) / (high - low), 0.51);
        }
    }
    let data = page.by_id("explain-data").json();
    let cosines = unpack(data["similarity"].as_str().expect("text"));
    assert_eq!(cosines.len(), PATCHES * PATCHES);
    let tokens: Vec<Vec<f64>> = arrays["patch_tokens"].chunks_exact(24).map(wide).collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (one, a) in tokens.iter().enumerate() {
        for (other, b) in tokens.iter().enumerate() {
            let cosine = product(a, b) / (product(a, a) * product(b, b)).sqrt();
            let shown = f64::from(cosines[one * PATCHES + other]) / 127.5 - 1.0;
            close(&format!("similarity of patches {one} and {other}"), shown, cosine, 0.0045);
        }
    }
    let figure = page.by_id("relevance").first("figure");
    assert_map("relevance", figure, &arrays["relevance.features"], 100.0);
}

/// Of a model at its own size, so that no position embedding is interpolated.
#[test]
fn the_image_and_the_position_embeddings_are_the_models_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, out) = (folder.path().join("known.png"), folder.path().join("out"));
    let pixels: Vec<u8> = (0..32 * 32 * 3).map(|at| (at * 37 % 251) as u8).collect();
    let known = Image::new(32, 32, Channels::Rgb, pixels).expect("an image");
    known.save_png(&file).expect("saved");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    vitreous(&["explain", "tiny_vit", &text(&file), "--out", &text(&out)]).succeeded();
    let page = parse(&fs::read_to_string(out.join("known/explain.html")).expect("a page"));
    let seen = page.of_class("seen-image")[0];
    let picture = seen.picture();
    let shown: Vec<u8> = picture.pixels.iter().flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    assert!(shown == known.pixels(), "the image is another one");
    let style: String = page.all("style").iter().map(|style| style.text()).collect();
    assert!(style.contains(&format!("--seen: url({})", seen.value("src"))), "maps lie over the same image");

    let weights = tensors(&fixtures().join("tiny_vit/model.safetensors"));
    let positions: Vec<Vec<f64>> = weights["vit.embeddings.position_embeddings"].chunks_exact(24).map(wide).collect();
    let section = page.by_id("model");
    let similarity = section.of_class("similarity")[0].picture();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = |a: &[f64], b: &[f64]| product(a, b) / (product(a, a) * product(b, b)).sqrt();
    // 16 grids of 16 patches: each as many pixels wide as fit into 700, and a gap of four.
    let times = 700 / 20;
    let side = 4 * times + 4;
    assert_eq!(similarity.width, 4 * side - 4);
    let (mut colours, mut values) = (Vec::new(), Vec::new());
    for one in 0..16 {
        let corner = [one / 4 * side + times / 2, one % 4 * side + times / 2];
        colours.extend(part(&similarity, corner, [4, 4], times));
        values.extend((0..16).map(|other| cosine(&positions[1 + one], &positions[1 + other])));
    }
    // Sixteen cosines are 1, so that the brightest is any of them.
    values.iter_mut().filter(|value| **value > 1.0 - 1e-6).for_each(|value| *value = 1.0);
    assert_colours_follow("similarity of position embeddings", &colours, &values);
    let table = section.of_class("table")[0].picture();
    assert_eq!((table.width, table.height), (24, 17));
    for (pixel, value) in table.pixels.iter().zip(positions.iter().flatten()).filter(|(_, value)| value.abs() > 0.05) {
        assert_eq!(pixel[0] > pixel[2], *value > 0.0, "{value} is orange where it is positive, else blue: {pixel:?}");
    }
}

/// A picture of a component is right if the share of the filters' variance along it is the one that stands below.
#[test]
fn filters_explain_the_variance_that_they_say() {
    let Explained { page, .. } = explained("tiny_vit", &[]);
    let weights = tensors(&fixtures().join("tiny_vit/model.safetensors"));
    let filters: Vec<&[f32]> = weights["vit.embeddings.patch_embeddings.projection.weight"].chunks_exact(192).collect();
    let centre = mean(&filters);
    let centred: Vec<Vec<f64>> =
        filters.iter().map(|row| wide(row).iter().zip(&centre).map(|(value, mean)| value - mean).collect()).collect();
    let all: f64 = centred.iter().flatten().map(|value| value * value).sum();
    let figures = page.of_class("filters")[0].all("figure");
    assert!(figures.len() >= 10);
    let mut before = 100.0;
    for figure in figures {
        let picture = figure.first("img").picture();
        assert_eq!((picture.width, picture.height), (8, 8));
        // Grey is 0; pixels have three channels, and weights three planes.
        let component: Vec<f64> = (0..192).map(|at| f64::from(picture.pixels[at % 64][at / 64]) - 127.5).collect();
        let length = component.iter().map(|value| value * value).sum::<f64>();
        let along = |row: &Vec<f64>| row.iter().zip(&component).map(|(a, b)| a * b).sum::<f64>().powi(2) / length;
        let share = parsed(&figure.first("figcaption").text());
        close("the variance of a component", share, 100.0 * centred.iter().map(along).sum::<f64>() / all, 0.1);
        assert!(share <= before, "the largest come first");
        before = share;
    }
}

#[test]
fn the_index_has_each_image_with_its_page_and_means_over_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").to_str().expect("UTF-8").to_string();
    let asked = ["explain", "tiny_vit", "pictures", "--image", "32x48", "--json", "--out", &out];
    let lines = vitreous(&[&asked, &ON_CPU[..]].concat()).succeeded().json_lines();
    assert_eq!(lines.len(), 3);
    let index = parse(&fs::read_to_string(Path::new(&out).join("index.html")).expect("an index"));
    let entries = index.of_class("image");
    assert_eq!(entries.len(), lines.len());
    for (entry, line) in entries.iter().zip(&lines) {
        let page = Path::new(&out).join(entry.value("href"));
        assert_eq!(page, Path::new(line["page"].as_str().expect("a page")));
        let texts: Vec<String> = entry.all("span").iter().map(|span| span.text()).collect();
        let path = line["path"].as_str().expect("a path");
        assert!(path.ends_with(&texts[0]), "{path} is called {}", texts[0]);
        let top = &line["top"][0];
        let said = format!("{}, {:.1} %", top["label"].as_str().expect("a label"), 100.0 * number(&top["score"]));
        assert_eq!(texts[1], said, "{path}");
        // 48x32 pixels become 160x106; of the image as its own page has it, every pixel some times.
        let own = parse(&fs::read_to_string(&page).expect("a page")).of_class("seen-image")[0].picture();
        let small = entry.first("img").picture();
        assert_eq!((small.width, small.height), (160, 106));
        for (place, pixel) in own.pixels.iter().enumerate() {
            let (row, column) = (place / 48, place % 48);
            let at = ((2 * row + 1) * 106 / 64) * 160 + (2 * column + 1) * 160 / 96;
            assert_eq!(small.pixels[at], *pixel, "{path}, row {row}, column {column}");
        }
    }
    let means = ["distance", "entropy"].map(|key| {
        let each: Vec<Vec<Vec<f64>>> = lines.iter().map(|line| of_layers(line, key)).collect();
        let mean = |layer: usize, head: usize| each.iter().map(|one| one[layer][head]).sum::<f64>() / 3.0;
        (0..2).map(|layer| (0..3).map(|head| mean(layer, head)).collect()).collect()
    });
    assert_spread(index.by_id("distance"), means);
}

#[test]
fn pictures_beside_the_page_show_the_same_maps() {
    let one = explained("tiny_vit", &[]);
    let (place, arrays) = (&one.place, &one.arrays);
    let seen = vitreous_data::image::open(&place.join("seen.png"), Channels::Grey).expect("a picture");
    for (file, array) in [
        ("rollout-mean.png", "rollout.mean.0"),
        ("rollout-max-0.9.png", "rollout.max.0.9"),
        ("relevance-dog.png", "relevance.1"),
    ] {
        let picture = vitreous_data::image::open(&place.join(file), Channels::Rgb).expect("a picture");
        let (values, step) = (&arrays[array], picture.width() / COLUMNS);
        let centre =
            |patch: usize| (patch / COLUMNS * step + step / 2) * picture.width() + patch % COLUMNS * step + step / 2;
        let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let largest = centre((0..PATCHES).max_by(by_value).expect("patches"));
        let pixel = &picture.pixels()[3 * largest..][..3];
        for (channel, full) in common::chart::BRIGHTEST.into_iter().enumerate() {
            // A picture is written over the image in grey, which may differ by its rounding.
            let expected = 0.85 * f64::from(full) + 0.15 * f64::from(seen.pixels()[largest]);
            close(&format!("{file}, where it is largest"), f64::from(pixel[channel]), expected, 2.0);
        }
    }
}
