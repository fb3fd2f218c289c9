//! The tables of images and texts with several labels, read back from the page of a run and from what `vitreous eval` prints, and
//! compared with the numbers of the evaluation.

mod common;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::page::{Element, close, parse, parsed};
use common::texts::on;
use common::training::{COLOURS, TINY, pictures};
use common::vitreous;
use serde_json::{Value, json};

/// A run on images of two labels, of which the tests change the evaluation.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (photos, run) = (folder.path().join("photos"), folder.path().join("run"));
    pictures(&photos);
    let mut table = "file,labels\n".to_string();
    for class in ["red", "green", "blue"] {
        let labels = if class == "red" { "red;warm" } else { class };
        (0..7).for_each(|picture| table.push_str(&format!("train/{class}/{picture}.bmp,{labels}\n")));
    }
    let manifest = photos.join("labels.csv");
    std::fs::write(&manifest, table).expect("written");
    let words = ["train", "small", "--out", text(&run), "--data", text(&manifest), "data.validation_share=0.3"];
    vitreous(&[&words[..], &TINY[..6], &["train.batch=4", "train.epochs=1"]].concat()).succeeded();
    (folder, run)
});

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Scores of which no two are alike. Every fifth class was never predicted, and the last one never occurred.
fn classes(count: usize, seed: usize) -> Value {
    let class = |class: usize| {
        let share =
            |column: usize| ((class * 37 + column * 211 + seed * 97) % 997) as f64 / 1000.0 + class as f64 * 1e-5;
        let (predicted, occurred) = (class % 5 != 4, class + 1 != count);
        json!({
            "name": format!("class {class} <&>"),
            "average_precision": occurred.then(|| share(0)),
            "precision": predicted.then(|| share(1)),
            "recall": occurred.then(|| share(2)),
            "f1": (predicted && occurred).then(|| share(3)),
            "support": if occurred { 1000 + 13 * class } else { 0 },
        })
    };
    (0..count).map(class).collect()
}

/// A copy of the run with another evaluation.
fn with_classes(to: &Path, classes: &Value) -> Value {
    std::fs::create_dir(to).expect("a folder");
    for file in ["evaluation.json", "recipe.toml", "machine.json", "metrics.jsonl"] {
        std::fs::copy(RUN.1.join(file), to.join(file)).expect("copied");
    }
    let mut kept: Value =
        serde_json::from_slice(&std::fs::read(to.join("evaluation.json")).expect("an evaluation")).expect("JSON");
    assert!(
        kept["mean_average_precision"].is_number() && kept["classes"][0]["average_precision"].is_number(),
        "{kept}"
    );
    kept["classes"] = classes.clone();
    (kept["mean_average_precision"], kept["micro_f1"], kept["macro_f1"]) =
        (0.4321.into(), 0.8765.into(), 0.1234.into());
    std::fs::write(to.join("evaluation.json"), kept.to_string()).expect("written");
    kept
}

fn page(runs: &[&Path]) -> Element {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("page.html");
    let runs: Vec<&str> = runs.iter().map(|run| text(run)).collect();
    vitreous(&[&["report"], &runs[..], &["--out", text(&out)]].concat()).succeeded();
    parse(&std::fs::read_to_string(&out).expect("a page"))
}

/// A share of a cell in percent; `None` of a dash.
fn share(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    (!["-", "\u{2013}"].contains(&cell)).then(|| parsed(cell))
}

/// Panics unless a cell has a number of the evaluation, or a dash for one that there is not.
fn assert_share(what: &str, cell: &str, value: &Value) {
    match (share(cell), value.as_f64()) {
        (Some(shown), Some(value)) => close(what, shown, 100.0 * value, 0.00501),
        (None, None) => {}
        _ => panic!("{what}: {cell} is not {value}"),
    }
}

const COLUMNS: [&str; 4] = ["average_precision", "precision", "recall", "f1"];

#[test]
fn the_table_of_a_run_is_that_of_its_evaluation() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let kept = with_classes(&run, &classes(47, 1));
    let page = page(&[&run]);
    let section = page.by_id("classes");
    let said = section.text();
    for part in ["Mean average precision is 0.4321", "micro F1 is 87.65 % and macro F1 12.34 %"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The worst forty, and the others folded away.
    let tables = section.all("table");
    let rows = |table: &&&Element| table.all("tr").len() - 1;
    assert_eq!(tables.iter().map(|table| rows(&table)).collect::<Vec<_>>(), [40, 7]);
    let (mut seen, mut before) = (Vec::new(), f64::NEG_INFINITY);
    for table in tables {
        let rows = table.all("tr");
        let head: Vec<String> = rows[0].children().map(Element::text).collect();
        assert_eq!(head, ["class", "average precision", "precision", "recall", "F1", "images"]);
        for row in &rows[1..] {
            let cells: Vec<&Element> = row.children().collect();
            let name = cells[0].text();
            let class = kept["classes"]
                .as_array()
                .expect("classes")
                .iter()
                .find(|class| class["name"] == *name)
                .expect("a class");
            for (column, cell) in COLUMNS.iter().zip(&cells[1..]) {
                let what = format!("{column} of {name}");
                assert_share(&what, &cell.text(), &class[column]);
                // The bar behind the number.
                let width = cell.value("style").strip_prefix("--share:").expect("a bar");
                close(&what, parsed(width), 100.0 * class[column].as_f64().unwrap_or(0.0), 0.0501);
            }
            assert_eq!(parsed(&cells[5].text()), class["support"].as_f64().expect("a number"), "{name}");
            let average = class["average_precision"].as_f64().unwrap_or(f64::INFINITY);
            assert!(average >= before, "{name} is not in its place");
            before = average;
            seen.push(name);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 47, "each class once");
}

#[test]
fn compared_runs_keep_their_recall() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = ["one", "other"].map(|name| folder.path().join(name));
    let kept: Vec<Value> = runs.iter().enumerate().map(|(seed, run)| with_classes(run, &classes(9, seed))).collect();
    let page = page(&[&runs[0], &runs[1]]);
    let rows = page.by_id("classes").rows();
    assert_eq!((rows.len(), &rows[0][1..3]), (10, &["one".to_string(), "other".to_string()][..]));
    for row in &rows[1..] {
        for (kept, cell) in kept.iter().zip(&row[1..]) {
            let class = kept["classes"]
                .as_array()
                .expect("classes")
                .iter()
                .find(|class| class["name"] == *row[0])
                .expect("a class");
            assert_share(&format!("recall of {}", row[0]), cell, &class["recall"]);
        }
    }
}

/// The words of a table's line: the class, which may have spaces, then as many columns as there are.
fn cells(line: &str, columns: usize) -> (String, Vec<String>) {
    let joined = line.replace(" %", "%");
    let words: Vec<&str> = joined.split_whitespace().collect();
    let (name, rest) = words.split_at(words.len() - columns);
    (name.join(" "), rest.iter().map(ToString::to_string).collect())
}

#[test]
fn what_eval_prints_of_images_is_what_its_json_says() {
    let folder = tempfile::tempdir().expect("a folder");
    // Labels of which some are predicted and some are not, so that no two columns are alike.
    let all = ["cat", "dog", "t\u{fc}te, bag", "fifth", "sixth", "seventh"];
    pictures(folder.path());
    let mut rows = Vec::new();
    for (index, (class, number)) in
        COLOURS.iter().flat_map(|(class, _)| (0..7).map(move |number| (class, number))).enumerate()
    {
        let labels = all.into_iter().enumerate().filter(|(label, _)| (index + label) % 3 != 0).map(|(_, name)| name);
        let labels: Vec<&str> = labels.collect();
        rows.push(json!({"path": format!("train/{class}/{number}.bmp"), "labels": labels, "split": "val"}).to_string());
    }
    let data = folder.path().join("manifest.jsonl");
    std::fs::write(&data, rows.join("\n")).expect("written");
    let asked = ["eval", "tiny_vit", "--data", text(&data), "--device", "cpu"];
    let report = vitreous(&[&asked[..], &["--json"]].concat()).succeeded().json_lines().remove(0);
    let printed = vitreous(&asked).succeeded().stdout;
    let sums = printed.lines().nth(1).expect("sums").replace(" %", "%");
    for (label, key) in
        [("mean average precision", "mean_average_precision"), ("micro F1", "micro_f1"), ("macro F1", "macro_f1")]
    {
        let shown =
            sums.split(&format!("{label} ")).nth(1).and_then(|rest| rest.split_whitespace().next()).expect(label);
        assert_share(label, shown, &report[key]);
    }
    let loss = sums.split("loss ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a loss");
    close("loss", parsed(loss), report["loss"].as_f64().expect("a loss"), 5.1e-5);
    let lines: Vec<&str> = printed.lines().skip_while(|line| !line.starts_with("class ")).collect();
    assert_eq!(
        cells(&lines[0].replace("average precision", "average-precision"), 5).1,
        ["average-precision", "precision", "recall", "F1", "images"]
    );
    let classes = report["classes"].as_array().expect("classes");
    let mut different = 0;
    for line in &lines[1..] {
        let (name, cells) = cells(line, 5);
        let class = classes.iter().find(|class| class["name"] == *name).unwrap_or_else(|| panic!("{name}: {line}"));
        for (column, cell) in COLUMNS.iter().zip(&cells) {
            assert_share(&format!("{column} of {name}"), cell, &class[column]);
        }
        assert_eq!(cells[4], class["support"].to_string(), "{name}");
        different += usize::from(cells[0] != cells[1] && cells[1] != cells[2] && cells[2] != cells[3]);
    }
    assert!(lines.len() > 6 && different > 0, "columns cannot be told apart: {printed}");
}

#[test]
fn what_eval_prints_of_texts_is_what_its_json_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = std::fs::read(common::fixtures().join("texts/bert_labels/config.json")).expect("a configuration");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let names: Vec<&str> =
        config["id2label"].as_object().expect("labels").values().map(|name| name.as_str().expect("a name")).collect();
    let words = ["Ada Lovelace", "London", "the engine", "a good day", "was described", "so so"];
    let rows = (0..12).map(|index| {
        let labels: Vec<&str> =
            names.iter().enumerate().filter(|(label, _)| (index * (label + 2)) % 3 != 1).map(|one| *one.1).collect();
        json!({"text": format!("{} {}", words[index % 6], words[index / 2 % 6]), "labels": labels}).to_string()
    });
    let data = folder.path().join("test.jsonl");
    std::fs::write(&data, rows.collect::<Vec<_>>().join("\n")).expect("written");
    let asked = ["--data", text(&data)];
    let report = on("eval", "bert_labels", &[&asked[..], &["--json"]].concat()).succeeded().json_lines().remove(0);
    let printed = on("eval", "bert_labels", &asked).succeeded().stdout;
    let lines: Vec<&str> = printed.lines().skip_while(|line| !line.contains("precision")).collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["precision", "recall", "F1", "texts"], "{printed}");
    let labels = report["labels"].as_array().expect("labels");
    assert_eq!((lines.len() - 1, labels.len()), (names.len(), names.len()), "{printed}");
    let mut different = 0;
    for (line, label) in lines[1..].iter().zip(labels) {
        let (name, cells) = cells(line, 4);
        assert_eq!(label["name"], *name);
        for (column, cell) in ["precision", "recall", "f1"].iter().zip(&cells) {
            close(&format!("{column} of {name}"), parsed(cell), label[column].as_f64().expect("a number"), 5.1e-5);
        }
        assert_eq!(cells[3], label["texts"].to_string(), "{name}");
        different += usize::from(cells[0] != cells[1] && cells[1] != cells[2]);
    }
    assert!(different > 0, "columns cannot be told apart: {printed}");
}
