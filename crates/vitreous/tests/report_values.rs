//! What the page of a run draws, read back from the page and compared with the run's files: curves, matrices, bars, pictures.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::chart::{Axes, BRIGHTEST, DARKEST, assert_colours_follow, assert_curves, cells, lightness};
use common::page::{Element, close, floats, parse, parsed};
use common::training::{metrics, tensors, train_tiny};
use common::translator::translator;
use common::{ON_CPU, vitreous};
use serde_json::Value;
use vitreous_data::dataset::builtin;
use vitreous_data::image::Channels;

/// A run for all tests of this file: three epochs on images of 4x4 patches. Nothing removes it at the end, so it lies in the
/// build's own folder.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let run = folder.path().join("run");
    train_tiny(&run, &["train.batch=500", "train.epochs=3", "model.patch=8"]).succeeded();
    (folder, run)
});

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The page of some runs.
fn page(runs: &[&Path]) -> Element {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("page.html");
    let runs: Vec<&str> = runs.iter().map(|run| text(run)).collect();
    vitreous(&[&["report"], &runs[..], &["--out", text(&out)]].concat()).succeeded();
    parse(&std::fs::read_to_string(&out).expect("a page"))
}

fn evaluation(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("evaluation.json")).expect("an evaluation")).expect("JSON")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn names(evaluation: &Value) -> Vec<&str> {
    list(&evaluation["classes"]).iter().map(|class| class["name"].as_str().expect("a name")).collect()
}

/// A number of the metrics over epochs.
fn logged(run: &Path, key: &str, factor: f64) -> Vec<(f64, f64)> {
    let lines = metrics(run).into_iter();
    lines.filter_map(|line| Some((line["epoch"].as_f64()?, factor * line[key].as_f64()?))).collect()
}

/// A copy of a run of which some lines of metrics are changed.
fn changed(run: &Path, to: &Path, change: impl Fn(&mut Value)) {
    std::fs::create_dir(to).expect("a folder");
    for file in ["evaluation.json", "recipe.toml", "machine.json"] {
        std::fs::copy(run.join(file), to.join(file)).expect("copied");
    }
    let mut lines = metrics(run);
    lines.iter_mut().for_each(change);
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(to.join("metrics.jsonl"), lines).expect("written");
}

/// The tiles under the title: name, value, note.
fn tiles(page: &Element) -> Vec<[String; 3]> {
    let tile = |tile: &Element| ["name", "value", "note"].map(|class| tile.of_class(class)[0].text());
    page.of_class("headline")[0].children().map(tile).collect()
}

#[test]
fn curves_are_those_of_the_metrics() {
    let run = RUN.1.as_path();
    let page = page(&[run]);
    let section = page.by_id("curves");
    let charts = [
        ("Accuracy", vec![("training", "top1", 100.0), ("validation", "val_top1", 100.0)]),
        ("Loss", vec![("training", "loss", 1.0), ("validation", "val_loss", 1.0)]),
        ("Top-5 accuracy", vec![("validation", "val_top5", 100.0)]),
        ("Learning rate", vec![("learning rate", "lr", 1.0)]),
        ("Speed", vec![("speed", "images_per_second", 1.0)]),
        ("Waiting for data", vec![("waiting", "data_wait", 100.0)]),
        ("Gradient norm", vec![("gradient norm", "grad_norm", 1.0)]),
    ];
    let titles: Vec<String> = section.figures().into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, charts.clone().map(|chart| chart.0));
    let units =
        ["accuracy, %", "loss", "top-5 accuracy, %", "learning rate", "images/s", "% of the time", "norm, logarithmic"];
    for ((title, series), unit) in charts.into_iter().zip(units) {
        let series: Vec<(&str, Vec<(f64, f64)>)> =
            series.into_iter().map(|(name, key, factor)| (name, logged(run, key, factor))).collect();
        assert!(series.iter().all(|(_, points)| points.len() >= 3), "{title}");
        assert_curves(title, section.figure(title), &series);
        let data = section.figure(title).json();
        assert_eq!((&data["x"]["title"], &data["y"]["title"]), (&"epoch".into(), &unit.into()), "{title}");
    }
}

#[test]
fn the_best_epoch_is_the_one_of_the_best_validation_value() {
    let folder = tempfile::tempdir().expect("a folder");
    for (best, values) in [(2, [0.3, 0.9, 0.5]), (1, [0.8, 0.2, 0.7]), (3, [0.1, 0.2, 0.4])] {
        let run = folder.path().join(format!("best-{best}"));
        changed(&RUN.1, &run, |line| {
            if line.get("val_top1").is_some() {
                line["val_top1"] = values[number(&line["epoch"]) as usize - 1].into();
            }
        });
        let page = page(&[&run]);
        let [name, value, note] = &tiles(&page)[0];
        assert_eq!((name.as_str(), parsed(value)), ("Validation accuracy", 100.0 * values[2]));
        let said = match best {
            3 => "the best, after epoch 3".to_string(),
            _ => format!("best {:.2} % after epoch {best}", 100.0 * values[best - 1]),
        };
        assert!(note.ends_with(&said), "{note} does not say {said}");
        let words = page.first("header").text();
        let change = 100.0 * (values[2] - values[1]);
        let said = format!(
            "Validation accuracy went from {:.1} % after epoch 1 to {:.1} % after epoch 3. The last evaluation changed it by {change:+.1} \
             points.",
            100.0 * values[0],
            100.0 * values[2]
        );
        assert!(words.contains(&said), "{words} does not say {said}");
        let lines = metrics(&run);
        let trained = lines.iter().rev().find_map(|line| line["epoch_top1"].as_f64()).expect("an epoch's mean");
        let gap = 100.0 * (trained - values[2]);
        let side = if gap > 0.0 { "above" } else { "below" };
        let said = format!("training images is {:.1} points {side} validation accuracy", gap.abs());
        assert!(words.contains(&said), "{words} does not say {said}");
        let last = lines.iter().rfind(|line| line.get("val_loss").is_some()).expect("an evaluation");
        close("validation loss", parsed(&tiles(&page)[1][1]), number(&last["val_loss"]), 5e-4);
    }
}

#[test]
fn the_confusion_matrix_is_that_of_the_evaluation() {
    let (page, kept) = (page(&[&RUN.1]), evaluation(&RUN.1));
    let section = page.by_id("confusion");
    let names = names(&kept);
    let svg = section.figure("Confusion matrix").first("svg");
    let drawn: BTreeMap<(String, String), _> =
        cells(svg).into_iter().map(|cell| ((cell.row.clone(), cell.column.clone()), cell)).collect();
    assert_eq!(drawn.len(), names.len() * names.len(), "one cell for each pair of classes");
    let axes: Vec<String> = svg.children().filter(|child| child.name == "text").take(2).map(Element::text).collect();
    assert_eq!(axes, ["true class \u{2193}", "prediction \u{2192}"]);
    let (mut shares, mut lights) = (Vec::new(), Vec::new());
    for (row, label) in list(&kept["confusion"]).iter().zip(&names) {
        let all: u64 = list(row).iter().filter_map(Value::as_u64).sum();
        for (count, answer) in list(row).iter().zip(&names) {
            let cell = &drawn[&(label.to_string(), answer.to_string())];
            let shown = if cell.text.is_empty() { 0.0 } else { parsed(&cell.text) };
            assert_eq!(shown, number(count), "{label} predicted as {answer}");
            assert_eq!(cell.note, format!("{label} predicted as {answer}: {count} of {all}"));
            assert!(*count != 0 || cell.colour == DARKEST, "{label} predicted as {answer}");
            shares.push(number(count) / all as f64);
            lights.push(lightness(cell.colour));
        }
    }
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    assert!(
        order.windows(2).all(|pair| lights[pair[0]] <= lights[pair[1]] + 0.5),
        "the larger the share, the brighter"
    );

    let rows = section.rows();
    let pairs: Vec<Vec<String>> = list(&kept["most_confused"])
        .iter()
        .take(12)
        .map(|pair| {
            let class = |key: &str| names[pair[key].as_u64().expect("a class") as usize].to_string();
            vec![class("label"), class("answer"), pair["samples"].to_string()]
        })
        .collect();
    assert_eq!(rows[1..], pairs);
}

#[test]
fn scores_per_class_are_those_of_the_evaluation() {
    let (page, kept) = (page(&[&RUN.1]), evaluation(&RUN.1));
    let rows = page.by_id("classes").first("table").all("tr");
    let heads: Vec<String> = rows[0].children().map(Element::text).collect();
    assert_eq!(heads, ["class", "precision", "recall", "F1", "images"]);
    let mut classes: Vec<&Value> = list(&kept["classes"]).iter().collect();
    // A class that was never predicted has no F1, and stands at the end.
    let f1 = |class: &Value| class["f1"].as_f64().unwrap_or(f64::INFINITY);
    classes.sort_by(|a, b| f1(a).total_cmp(&f1(b)));
    assert_eq!(rows.len() - 1, classes.len());
    for (row, class) in rows[1..].iter().zip(classes) {
        let shown: Vec<&Element> = row.children().collect();
        assert_eq!(shown[0].text(), class["name"].as_str().expect("a name"));
        for (cell, key) in shown[1..].iter().zip(["precision", "recall", "f1"]) {
            let (what, share) = (format!("{key} of {}", class["name"]), class[key].as_f64());
            let percent = 100.0 * share.unwrap_or(0.0);
            close(&what, parsed(cell.value("style").strip_prefix("--share:").expect("a bar")), percent, 0.051);
            match share {
                Some(_) => close(&what, parsed(&cell.text()), percent, 0.0051),
                None => assert_eq!(cell.text(), "\u{2013}", "{what}"),
            }
        }
        assert_eq!(shown[4].text(), class["support"].to_string());
    }
}

#[test]
fn the_calibration_is_that_of_the_evaluation() {
    let (page, kept) = (page(&[&RUN.1]), evaluation(&RUN.1));
    let svg = page.by_id("calibration").figure("Reliability").first("svg");
    let bins: Vec<&Value> = list(&kept["reliability"]).iter().filter(|bin| bin["samples"] != 0).collect();
    let drawn: Vec<&Element> = svg.children().filter(|child| child.name == "g").collect();
    assert_eq!(drawn.len(), bins.len());
    let axes = Axes::of(svg, false);
    let most = bins.iter().map(|bin| number(&bin["samples"])).fold(0.0, f64::max);
    for (group, bin) in drawn.iter().zip(bins) {
        let percent = |key: &str| 100.0 * number(&bin[key]);
        let [low, high, confidence, accuracy] = ["above", "up_to", "confidence", "accuracy"].map(percent);
        let note = group.first("title").text();
        let said: Vec<f64> = note.split([' ', ':', ',']).filter(|word| word.ends_with('%')).map(parsed).collect();
        for (said, percent) in said.iter().zip([low, high, confidence, accuracy]) {
            close(&note, *said, percent, 0.051);
        }
        assert!(said.len() == 4 && note.ends_with(&format!(", {} samples", bin["samples"])), "{note}");
        let [accurate, counted] = group.all("rect")[..] else { panic!("two bars in {note}") };
        let top = |bar: &Element| (bar.number("x") - 1.0, bar.number("y"));
        axes.at(&format!("accuracy, {note}"), top(accurate), (low, accuracy));
        close(&note, accurate.number("x") + accurate.number("width") + 1.0, 52.0 + 3.0 * high, 0.2);
        let line = common::chart::places(group.first("path"));
        axes.at(&format!("confidence, {note}"), (line[0].0 - 1.0, line[0].1), (low, confidence));
        close(&note, counted.number("height"), (60.0 * number(&bin["samples"]) / most).max(1.0), 0.06);
    }
    let words = page.by_id("calibration").text();
    let error = 100.0 * number(&kept["expected_calibration_error"]);
    assert!(words.contains(&format!("calibration error is {error:.2} %")), "{words}");
}

#[test]
fn mistakes_have_the_images_of_the_data() {
    let (page, kept) = (page(&[&RUN.1]), evaluation(&RUN.1));
    let (data, names) = (builtin(), names(&kept));
    let figures = page.by_id("mistakes").all("figure");
    let mistakes = list(&kept["mistakes"]);
    assert!(mistakes.len() >= 10 && figures.len() == mistakes.len());
    for (figure, mistake) in figures.iter().zip(mistakes) {
        for key in ["sample", "label", "answer"] {
            assert_eq!(figure.value(&format!("data-{key}")), mistake[key].to_string(), "{mistake}");
        }
        let sample = mistake["sample"].as_u64().expect("an index") as usize;
        assert_eq!(mistake["label"], data.validation.labels(sample)[0]);
        let class = |key: &str| names[mistake[key].as_u64().expect("a class") as usize];
        let strong: Vec<String> = figure.all("strong").iter().map(|name| name.text()).collect();
        assert_eq!(strong, [class("label"), class("answer")], "{mistake}");
        assert_eq!(figure.first("span").text(), mistake["name"].as_str().expect("a name"));
        let said = figure.first("figcaption").text();
        let said = said.split("</strong>").last().and_then(|rest| rest.rsplit_once(" %")?.0.rsplit_once(", "));
        close("confidence", parsed(said.expect("a confidence").1), 100.0 * number(&mistake["confidence"]), 0.1);
        let picture = figure.first("img").picture();
        let image = data.validation.image(sample, Channels::Grey).expect("an image");
        assert_eq!((picture.width, picture.height), (image.width(), image.height()));
        let grey: Vec<u8> = picture.pixels.iter().map(|pixel| pixel[0]).collect();
        assert!(grey == image.pixels(), "{mistake} is shown with another image");
        assert!(figure.first("img").value("alt") == format!("{}, predicted as {}", class("label"), class("answer")));
    }
}

/// The same images are explained by the other command, whose arrays are the reference.
#[test]
fn attention_in_images_is_that_of_the_explanation() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = ["explain", text(&RUN.1), "--samples", "6", "--arrays", "--json", "--out", text(folder.path())];
    let lines = vitreous(&[&asked, &ON_CPU[..]].concat()).succeeded().json_lines();
    let page = page(&[&RUN.1]);
    let figures = page.by_id("attention").all("figure");
    assert_eq!((figures.len(), lines.len()), (6, 6));
    for (figure, line) in figures.iter().zip(&lines) {
        let explained = Path::new(line["page"].as_str().expect("a page"));
        let arrays = tensors(&explained.with_file_name("arrays.npz"));
        let other = parse(&std::fs::read_to_string(explained).expect("a page"));
        assert_eq!(line["layout"]["grid"], serde_json::json!([4, 4]));
        // The reader is the mean of the 16 patches; attention is of two heads.
        let mut last = [0.0f64; 16];
        for row in arrays["attention.1"].chunks_exact(16) {
            last.iter_mut().zip(row).for_each(|(sum, &weight)| *sum += f64::from(weight) / 32.0);
        }
        let rollout: Vec<f64> = arrays["rollout.mean.0"].iter().map(|&value| f64::from(value)).collect();
        let parts: Vec<&Element> = figure.of_class("maps")[0].children().collect();
        let called: Vec<String> = parts.iter().map(|part| part.first("span").text()).collect();
        assert_eq!(called, ["image", "last layer", "rollout"]);
        let image = parts[0].first("img");
        assert!(image.value("src") == other.of_class("seen-image")[0].value("src"), "another image");
        for (part, expected) in parts[1..].iter().zip([&last[..], &rollout]) {
            let (what, shown) = (part.first("span").text(), floats(part.value("data-map")));
            assert_eq!(shown.len(), 16);
            for (shown, expected) in shown.iter().zip(expected) {
                close(&what, f64::from(*shown), *expected, 1e-6);
            }
            assert_overlay(&what, part.first("img"), image, expected);
        }
        let top = &line["top"][0];
        let caption = figure.first("figcaption").text();
        let (truth, answer) = caption.split_once("; predicted: ").expect("a prediction");
        assert!(
            line["path"].as_str().expect("a name").ends_with(&truth.replace([' ', '/'], "_")),
            "{line} and {truth}"
        );
        let (class, share) = answer.rsplit_once(", ").expect("a share");
        assert_eq!(class, top["label"].as_str().expect("a label"));
        close(&caption, parsed(share), 100.0 * number(&top["score"]), 0.1001);
    }
}

/// Panics unless a map of 4x4 patches lies over an image of 32x32 pixels: full colour over its largest value, none over its smallest.
fn assert_overlay(what: &str, map: &Element, image: &Element, values: &[f64]) {
    let (map, image) = (map.picture(), image.picture());
    assert_eq!((map.width, map.height, image.width), (32, 32, 32));
    let place = |patch: usize| (patch / 4 * 8 + 3) * 32 + patch % 4 * 8 + 5;
    let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
    let largest = place((0..16).max_by(by_value).expect("patches"));
    let smallest = place((0..16).min_by(by_value).expect("patches"));
    assert_eq!(map.pixels[smallest], image.pixels[smallest], "{what}: where it is smallest");
    for channel in 0..3 {
        let expected = 0.15 * f64::from(image.pixels[largest][channel]) + 0.85 * f64::from(BRIGHTEST[channel]);
        close(&format!("{what}: where it is largest"), f64::from(map.pixels[largest][channel]), expected, 1.0);
    }
}

#[test]
fn gradients_are_those_of_the_metrics() {
    let run = RUN.1.as_path();
    let page = page(&[run]);
    let drawn = cells(page.by_id("gradients").figure("Gradient norm by layer").first("svg"));
    let lines: Vec<Value> = metrics(run).into_iter().filter(|line| line.get("gradient_norms").is_some()).collect();
    assert_eq!(lines.len(), 3);
    let layers = drawn.len() / 3;
    assert!(layers >= 4 && drawn.iter().any(|cell| cell.row == "layer 1"));
    let mut norms = Vec::new();
    for (place, cell) in drawn.iter().enumerate() {
        let epoch = place % 3 + 1;
        assert_eq!(cell.column, epoch.to_string(), "{}", cell.note);
        let line = lines.iter().find(|line| line["step"] == 20 * epoch).expect("an epoch");
        let belongs = |name: &str| match cell.row.strip_prefix("layer ") {
            Some(layer) => name.starts_with(&format!("blocks.{layer}.")),
            None => name.split('.').next().expect("a word").replace('_', " ") == cell.row,
        };
        let parameters = line["gradient_norms"].as_object().expect("norms").iter().filter(|(name, _)| belongs(name));
        let norm = parameters.map(|(_, norm)| number(norm).powi(2)).sum::<f64>().sqrt();
        assert!(norm > 0.0, "{} has no parameters", cell.row);
        let (said, value) = cell.note.rsplit_once(": ").expect("a value");
        assert_eq!(said, format!("{}, epoch {epoch}", cell.row));
        close(&cell.note, parsed(value), norm, 6e-4 * norm);
        close(&cell.note, parsed(&cell.text), norm, (0.06 * norm).max(0.0051));
        norms.push(norm);
    }
    let colours: Vec<[u8; 3]> = drawn.iter().map(|cell| cell.colour).collect();
    assert_colours_follow("gradient norms", &colours, &norms);
}

/// A comparison's rows by name: for each run its text, and whether it has the star.
fn compared(page: &Element) -> BTreeMap<String, Vec<(String, bool)>> {
    let rows = page.by_id("numbers").first("table").all("tr").into_iter().skip(1);
    let cell = |cell: &Element| (cell.text(), cell.is("best"));
    rows.map(|row| (row.first("th").text(), row.all("td").into_iter().map(cell).collect())).collect()
}

#[test]
fn compared_runs_keep_their_curves_and_the_best_has_the_star() {
    let folder = tempfile::tempdir().expect("a folder");
    let [slow, quick] = ["slow", "quick"].map(|name| folder.path().join(name));
    // Each is the best in something: the first in accuracy, though not at its end, the second in loss.
    let give = |values: [[f64; 3]; 3]| {
        move |line: &mut Value| {
            let epoch = line["epoch"].as_f64().unwrap_or(1.0) as usize;
            let keys = ["val_top1", "val_loss", "val_top5"].into_iter().zip(values);
            for (key, values) in keys.filter(|(key, _)| line.get(*key).is_some()).collect::<Vec<_>>() {
                line[key] = values[epoch - 1].into();
            }
        }
    };
    changed(&RUN.1, &slow, give([[0.5, 0.8, 0.6], [2.0, 1.5, 1.4], [0.91, 0.92, 0.93]]));
    let faster = give([[0.4, 0.6, 0.7], [1.9, 1.3, 1.1], [0.85, 0.86, 0.87]]);
    changed(&RUN.1, &quick, |line| {
        faster(line);
        for key in ["loss", "lr", "grad_norm", "images_per_second"] {
            if let Some(value) = line[key].as_f64() {
                line[key] = (1.25 * value).into();
            }
        }
    });
    let page = page(&[&slow, &quick]);
    let section = page.by_id("curves");
    let charts = [
        ("Validation accuracy", "val_top1", 100.0),
        ("Validation loss", "val_loss", 1.0),
        ("Validation top-5 accuracy", "val_top5", 100.0),
        ("Training loss", "loss", 1.0),
        ("Learning rate", "lr", 1.0),
        ("Speed", "images_per_second", 1.0),
        ("Gradient norm", "grad_norm", 1.0),
    ];
    let titles: Vec<String> = section.figures().into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, charts.map(|chart| chart.0));
    for (title, key, factor) in charts {
        let series = [("slow", logged(&slow, key, factor)), ("quick", logged(&quick, key, factor))];
        assert_ne!(series[0].1, series[1].1, "{title} cannot tell the runs apart");
        assert_curves(title, section.figure(title), &series);
    }

    let heads: Vec<String> = page.by_id("numbers").first("table").first("tr").children().map(Element::text).collect();
    assert_eq!(heads, ["", "slow", "quick"]);
    let rows = compared(&page);
    let of = |name: &str| rows.get(name).unwrap_or_else(|| panic!("no row {name} in {:?}", rows.keys()));
    let expect = |name: &str, texts: [&str; 2], stars: [bool; 2]| {
        let expected: Vec<(String, bool)> = texts.map(str::to_string).into_iter().zip(stars).collect();
        assert_eq!(*of(name), expected, "{name}");
    };
    expect("best validation accuracy", ["80.00 %", "70.00 %"], [true, false]);
    expect("last validation accuracy", ["60.00 %", "70.00 %"], [false, true]);
    expect("validation loss", ["1.400", "1.100"], [false, true]);
    expect("validation top-5 accuracy", ["93.00 %", "87.00 %"], [true, false]);
    expect("steps", ["60", "60"], [false, false]);
    let median = |run: &Path| {
        let mut speeds: Vec<f64> = logged(run, "images_per_second", 1.0).into_iter().map(|point| point.1).collect();
        speeds.sort_by(f64::total_cmp);
        speeds[speeds.len() / 2]
    };
    let speeds = of("images per second");
    for ((shown, star), (run, is_best)) in speeds.iter().zip([(&slow, false), (&quick, true)]) {
        close("speed", parsed(shown), median(run), 1.0);
        assert_eq!(*star, is_best);
    }
    assert_recall(&page, &[&slow, &quick]);
}

/// Panics unless the table of recall has that of each run's evaluation in the run's column.
fn assert_recall(page: &Element, runs: &[&Path]) {
    let kept: Vec<Value> = runs.iter().map(|run| evaluation(run)).collect();
    let rows = page.by_id("classes").rows();
    assert_eq!(rows.len() - 1, list(&kept[0]["classes"]).len());
    let mut before = f64::INFINITY;
    for row in &rows[1..] {
        let recall = |kept: &Value| {
            let class = list(&kept["classes"]).iter().find(|class| class["name"] == row[0].as_str()).expect("a class");
            100.0 * number(&class["recall"])
        };
        let recalls: Vec<f64> = kept.iter().map(recall).collect();
        for (shown, recall) in row[1..].iter().zip(&recalls) {
            close(&format!("recall of {}", row[0]), parsed(shown), *recall, 0.0051);
        }
        let apart = recalls.iter().copied().fold(0.0, f64::max) - recalls.iter().copied().fold(100.0, f64::min);
        close(&format!("points apart of {}", row[0]), parsed(&row[runs.len() + 1]), apart, 0.051);
        assert!(apart <= before, "{} is not in its place", row[0]);
        before = apart;
    }
}

#[test]
fn recall_stands_in_the_column_of_its_run_and_other_validation_sets_have_no_star() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    changed(&RUN.1, &other, |line| {
        if let Some(loss) = line.get("val_loss").and_then(Value::as_f64) {
            line["val_loss"] = (loss + 0.5).into();
        }
    });
    let mut kept = evaluation(&other);
    for (place, class) in kept["classes"].as_array_mut().expect("classes").iter_mut().enumerate() {
        class["recall"] = (0.05 + 0.04 * place as f64).into();
    }
    let write = |kept: &Value| std::fs::write(other.join("evaluation.json"), kept.to_string()).expect("written");
    write(&kept);
    let same = page(&[&RUN.1, &other]);
    assert_recall(&same, &[&RUN.1, &other]);
    let stars = |page: &Element| page.by_id("numbers").of_class("best").len();
    assert!(stars(&same) > 0);
    // What reads the same is no better.
    let twin = folder.path().join("twin");
    changed(&RUN.1, &twin, |_| {});
    assert_eq!(stars(&page(&[&RUN.1, &twin])), 0);
    // Of other data, everything else being equal.
    kept["data"] = "something else".into();
    write(&kept);
    assert_eq!(stars(&page(&[&RUN.1, &other])), 0);
}

#[test]
fn a_translators_curves_and_examples_are_its_own() {
    let run = Path::new(translator());
    let (page, kept) = (page(&[run]), evaluation(run));
    let section = page.by_id("curves");
    let bleu: Vec<(f64, f64)> = logged(run, "val_bleu", 1.0);
    assert!(bleu.len() == 2, "{bleu:?}");
    let loss = [("training", logged(run, "loss", 1.0)), ("validation", logged(run, "val_loss", 1.0))];
    assert_curves("Loss", section.figure("Loss"), &loss);
    let of_validation = |title: &str, key: &str| {
        let data = section.figure(title).json();
        let shown: Vec<f64> = list(&data["series"][0]["y"]).iter().map(number).collect();
        assert_eq!(data["series"][0]["name"], "validation");
        for (shown, (_, logged)) in shown.iter().zip(logged(run, key, 1.0)) {
            close(title, *shown, logged, 1e-5 * logged.abs());
        }
    };
    of_validation("BLEU", "val_bleu");
    of_validation("ChrF", "val_chrf");
    of_validation("Perplexity", "val_perplexity");
    let section = page.by_id("translations");
    let facts = |name: &str| {
        let list: Vec<&Element> = section.of_class("facts")[0].children().collect();
        let place = list.iter().position(|element| element.text() == name).unwrap_or_else(|| panic!("no {name}"));
        list[place + 1].text()
    };
    close("BLEU", parsed(&facts("BLEU")), number(&kept["bleu"]), 0.0051);
    close("chrF", parsed(&facts("chrF")), number(&kept["chrf"]), 0.0051);
    let precisions: Vec<f64> = facts("1- to 4-gram precision, %").split(" / ").map(parsed).collect();
    for (shown, kept) in precisions.iter().zip(list(&kept["precisions"])) {
        close("precision", *shown, number(kept), 0.051);
    }
    assert_eq!(precisions.len(), 4);
    close("brevity penalty", parsed(&facts("Brevity penalty")), number(&kept["brevity_penalty"]), 5.1e-4);
    let shown: Vec<String> = section.of_class("sentences")[0].children().map(Element::text).collect();
    let expected: Vec<String> = list(&kept["shown"])
        .iter()
        .flat_map(|one| {
            let text = |key: &str| one[key].as_str().expect("text").to_string();
            [text("source"), text("translation"), format!("reference: {}", text("reference"))]
        })
        .collect();
    assert!(!expected.is_empty() && shown == expected, "{shown:?} and {expected:?}");
}
