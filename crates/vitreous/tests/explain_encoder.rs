//! `vitreous explain MODEL --text` of encoders: its page, JSON and arrays say the same, for every head; and everything a user can get wrong.
//! That the numbers are right is tested where they are computed.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::page::{Element, close, parse, shares};
use common::texts::{assert_close, numbers, on, strings};
use common::training::tensors;
use common::{ON_CPU, vitreous};
use serde_json::Value;

const LAYERS: usize = 2;
const HEADS: usize = 2;
const TEXT: &str = "Ada Lovelace lived in London.";
const MASKED: &str = "The engine was [MASK] by Ada.";

/// An explanation: its page, its line of JSON, its arrays and its folder.
struct Explained {
    _folder: tempfile::TempDir,
    source: String,
    page: Element,
    line: Value,
    arrays: BTreeMap<String, Vec<f32>>,
    place: PathBuf,
}

fn explained(model: &str, arguments: &[&str]) -> Explained {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").to_str().expect("UTF-8").to_string();
    let more = [arguments, &["--arrays", "--json", "--out", &out]].concat();
    let line = on("explain", model, &more).succeeded().json_lines().remove(0);
    let place = PathBuf::from(line["page"].as_str().expect("a page"));
    let source = fs::read_to_string(&place).expect("a page");
    let arrays = tensors(&place.with_file_name("arrays.npz"));
    Explained { _folder: folder, page: parse(&source), source, line, arrays, place }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn floats(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|number| number as f32).collect()
}

fn names(value: &Value) -> Vec<String> {
    strings(value).into_iter().map(str::to_string).collect()
}

/// Every model of every head, with a text for it.
fn cases() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("bert_classes", vec!["--text", TEXT, "--class", "bad"]),
        ("bert_classes", vec!["--text", TEXT, "--pair", "The engine"]),
        ("bert_labels", vec!["--text", TEXT]),
        ("bert_number", vec!["--text", TEXT]),
        ("bert_one", vec!["--text", TEXT]),
        ("bert_tokens", vec!["--text", TEXT]),
        ("roberta_tokens", vec!["--text", TEXT, "--token", "2", "--class", "O"]),
        ("bert_masked", vec!["--text", MASKED]),
        ("roberta_masked", vec!["--text", "The engine was <mask> by [MASK].", "--class", "a"]),
        ("bert_answers", vec!["--question", "Who lived?", "--context", TEXT]),
        ("bert_plain", vec!["--text", TEXT]),
        ("sentence_mean", vec!["--text", TEXT]),
        ("sentence_cls", vec!["--text", TEXT, "--pair", "A man is eating."]),
    ]
}

/// The values of a method in the page, in the order of the targets.
fn coloured(page: &Element, method: &str) -> Vec<Vec<f32>> {
    let of = |element: &&&Element| element.get("data-method") == Some(method);
    let groups = page.of_class("tokens");
    let value = |token: &&Element| token.value("data-value").parse::<f32>().expect("a number");
    groups.iter().filter(of).map(|group| group.of_class("token").iter().map(value).collect()).collect()
}

#[test]
fn page_json_and_arrays_say_the_same_for_every_head() {
    for (model, arguments) in cases() {
        let Explained { page, line, arrays, .. } = explained(model, &arguments);
        let tokens = names(&line["tokens"]);
        let data = page.by_id("explain-data").json();
        assert_eq!(names(&data["tokens"]), tokens, "{model}");
        assert_eq!(floats(&line["ids"]), arrays["ids"], "{model}");
        // Attention.
        assert_eq!((list(&data["layers"]).len(), list(&line["attention"]).len()), (LAYERS, LAYERS), "{model}");
        for (place, layer) in list(&data["layers"]).iter().enumerate() {
            let weights = &arrays[&format!("attention.{place}")];
            let size = tokens.len().pow(2);
            assert_eq!(weights.len(), HEADS * size, "{model}");
            for row in weights.chunks_exact(tokens.len()) {
                close("a row", f64::from(row.iter().sum::<f32>()), 1.0, 1e-5);
            }
            let shown = shares(layer["heads"].as_str().expect("heads"));
            let mean = shares(layer["mean"].as_str().expect("a mean"));
            let of_json: Vec<f32> = list(&line["attention"][place]["mean"]).iter().flat_map(floats).collect();
            for at in 0..size {
                let expected = (0..HEADS).map(|head| f64::from(weights[head * size + at])).sum::<f64>() / HEADS as f64;
                close(model, f64::from(mean[at]), expected, 1.1 / 65535.0);
                close(model, f64::from(of_json[at]), expected, 1e-6);
            }
            for (shown, expected) in shown.iter().zip(weights) {
                close(model, f64::from(*shown), f64::from(*expected), 1.1 / 65535.0);
            }
        }
        // Relevance.
        let relevance = list(&line["relevance"]);
        let (attention, integrated) = (coloured(&page, "gradient-attention"), coloured(&page, "integrated"));
        assert_eq!((attention.len(), integrated.len()), (relevance.len(), relevance.len()), "{model}");
        assert!(!relevance.is_empty(), "{model}");
        for (place, of) in relevance.iter().enumerate() {
            let key = of["array"].as_str().expect("a name");
            let array = |method: &str| &arrays[&format!("{method}.{key}")];
            assert_eq!(&attention[place], array("gradient_attention"), "{model}");
            assert_eq!(&integrated[place], array("integrated_gradients"), "{model}");
            assert_eq!(&floats(&of["gradient_attention"]), array("gradient_attention"), "{model}");
            let json = &of["integrated_gradients"];
            assert_eq!(&floats(&json["tokens"]), array("integrated_gradients"), "{model}");
            let number = |key: &str| json[key].as_f64().expect("a number");
            let sum: f64 = array("integrated_gradients").iter().map(|&value| f64::from(value)).sum();
            assert_close(&[number("sum")], &[sum], 1e-9);
            let missed = (sum - number("value") + number("baseline")).abs();
            assert_close(&[number("error")], &[missed], 1e-9);
            // The page says how nearly the contributions add up, and they do.
            let said: Vec<&Element> =
                page.inside().into_iter().filter(|element| element.get("data-error").is_some()).collect();
            for (key, attribute) in [("value", "data-value"), ("baseline", "data-baseline"), ("error", "data-error")] {
                assert_eq!(said[place].number(attribute), number(key), "{model}");
            }
            let difference = (number("value") - number("baseline")).abs();
            assert!(missed <= 0.02 * difference.max(0.05), "{model}: {missed} of {difference} is missed");
        }
    }
}

/// The map of what happens without each head is that of switching the head off: in JSON, in arrays, on the page.
#[test]
fn without_a_head_is_what_the_map_says() {
    let log_probability = |line: &Value, class: u64| {
        let is_class = |one: &&Value| one["index"].as_u64() == Some(class);
        let of_text = list(&line["top"]).iter().find(is_class).expect("the class");
        of_text["score"].as_f64().expect("a score").ln()
    };
    let Explained { source, line, arrays, .. } = explained("bert_classes", &["--text", TEXT]);
    let effects = &line["relevance"][0]["effects"];
    let class = line["top"][0]["index"].as_u64().expect("a class");
    assert_close(&[effects["log_probability"].as_f64().expect("a number")], &[log_probability(&line, class)], 1e-5);
    for (layer, head) in [(0, 1), (1, 0)] {
        let without = format!("blocks.{layer}.attention.heads.{head}");
        let edited = explained("bert_classes", &["--text", TEXT, "--without", &without, "--top", "9"]).line;
        let change = log_probability(&edited, class) - log_probability(&line, class);
        let told = effects["heads"][layer][head].as_f64().expect("a number");
        assert!((told - change).abs() < 1e-4 * change.abs().max(1.0), "{without}: {told}, not {change}");
        assert_eq!(arrays["effects.heads"][layer * HEADS + head], told as f32);
    }
    assert_eq!((arrays["effects.heads"].len(), arrays["effects.mlps"].len()), (LAYERS * HEADS, LAYERS));
    assert!(source.contains("Without each head"));
    // Labels and numbers are not one of several: they have no such map.
    for model in ["bert_labels", "bert_number"] {
        let line = explained(model, &["--text", TEXT]).line;
        assert!(line["relevance"][0]["effects"].is_null(), "{model}");
    }
    for (model, text) in [("bert_tokens", TEXT), ("bert_masked", MASKED)] {
        let effects = &explained(model, &["--text", text]).line["relevance"][0]["effects"];
        let largest = list(&effects["heads"]).iter().flat_map(floats).fold(0.0, |most: f32, x| most.max(x.abs()));
        assert!(largest > 1e-4, "{model}: {effects}");
    }
}

#[test]
fn predictions_are_those_of_the_other_commands() {
    let predicted = |model: &str, command: &str, arguments: &[&str]| {
        on(command, model, &[arguments, &["--json"]].concat()).succeeded().json_lines().remove(0)
    };
    for (model, keys) in [
        ("bert_classes", ["top", "logits"]),
        ("bert_labels", ["top", "logits"]),
        ("bert_number", ["numbers", "logits"]),
    ] {
        let (ours, theirs) = (explained(model, &["--text", TEXT]).line, predicted(model, "predict", &["--text", TEXT]));
        for key in keys {
            common::texts::assert_same(&ours[key], &theirs[key], 1e-5);
        }
    }
    let ours = explained("bert_masked", &["--text", MASKED]).line;
    let theirs = predicted("bert_masked", "fill", &[MASKED]);
    let scores = |masks: &Value| -> Vec<f64> {
        list(&masks[0]["top"]).iter().map(|one| one["score"].as_f64().expect("a score")).collect()
    };
    assert_close(&scores(&ours["masks"]), &scores(&theirs["masks"]), 1e-5);
    let asked = ["--question", "Who described the engine?", "--context", "The engine was described by Ada."];
    let same = [&asked[..], &["--patch-from", asked[1], "--at", "blocks.0"]].concat();
    common::texts::assert_same(
        &explained("bert_answers", &same).line["answers"],
        &explained("bert_answers", &asked).line["answers"],
        1e-5,
    );
    let (ours, theirs) = (explained("bert_answers", &asked).line, predicted("bert_answers", "predict", &asked));
    for (ours, theirs) in list(&ours["answers"]).iter().zip(list(&theirs["answers"])) {
        assert_eq!(ours["answer"], theirs["answer"]);
        assert_close(&[ours["score"].as_f64().unwrap()], &[theirs["score"].as_f64().unwrap()], 1e-5);
    }
}

#[test]
fn relevance_is_for_the_predicted_class_and_those_that_are_named() {
    let line = explained("bert_classes", &["--text", TEXT]).line;
    let best = line["top"][0]["index"].as_u64().expect("a class");
    assert_eq!((list(&line["relevance"]).len(), &line["relevance"][0]["target"]["output"]), (1, &best.into()));
    // The number that is explained is the logit itself.
    let value = line["relevance"][0]["integrated_gradients"]["value"].as_f64().expect("a number");
    assert_close(&[value], &[numbers(&line["logits"])[best as usize]], 1e-5);
    // It is the sum of what the parts of the model add to it.
    let parts = &line["relevance"][0]["attribution"];
    let sum = parts["sum"].as_f64().expect("a sum");
    assert_close(&[sum], &[value], 1e-4);
    assert!(!list(&parts["layers"]).is_empty() && parts["bias"].as_f64() != Some(sum), "{parts}");
    let line = explained("bert_classes", &["--text", TEXT, "--class", "so so", "--class", "0"]).line;
    let classes: Vec<u64> =
        list(&line["relevance"]).iter().map(|one| one["target"]["output"].as_u64().expect("a class")).collect();
    assert_eq!(classes[0], best);
    assert!([0, 1].iter().all(|class| classes.contains(class)), "{classes:?}");
    // A mask: the most probable token in its place, of the first of them.
    let Explained { line, page, .. } = explained("bert_masked", &["--text", "[MASK] is lovely [MASK]"]);
    let first = &line["masks"][0];
    assert_eq!(line["relevance"][0]["target"], serde_json::json!({"token": 1, "output": first["top"][0]["id"]}));
    assert_eq!(names(&line["tokens"])[1], "[MASK]");
    assert!(page.by_id("relevance").text().contains("in the place of token 1"));
    // Without one there is nothing to explain, which the page says; the rest is there.
    let Explained { line, page, .. } = explained("bert_masked", &["--text", TEXT]);
    assert!(
        list(&line["relevance"]).is_empty() && line["relevance_note"].as_str().expect("a note").contains("no [MASK]")
    );
    assert!(page.by_id("relevance").text().contains("The text has no [MASK]"));
    assert_eq!(list(&line["fillings"]).len(), LAYERS + 1);
    let line = explained("bert_masked", &["--text", TEXT, "--token", "2"]).line;
    assert_eq!(line["relevance"][0]["target"]["token"], 2);
}

#[test]
fn every_layer_fills_in() {
    let Explained { page, line, arrays, .. } = explained("bert_masked", &["--text", MASKED, "--top", "3"]);
    let tokens = names(&line["tokens"]);
    let layers = list(&line["fillings"]);
    assert_eq!((layers.len(), &layers[0]["layer"], &layers[2]["layer"]), (LAYERS + 1, &Value::Null, &1.into()));
    let (ids, scores) = (&arrays["fillings.ids"], &arrays["fillings.scores"]);
    assert_eq!(ids.len(), (LAYERS + 1) * tokens.len() * 3);
    let data = page.by_id("explain-data").json();
    // The last layer's row comes first in the page.
    let rows: Vec<&Element> = page.by_id("fillings").of_class("all")[0].first("tbody").all("tr");
    for (layer, of_json) in layers.iter().enumerate() {
        let cells = rows[LAYERS - layer].all("td");
        for (place, top) in list(&of_json["tokens"]).iter().enumerate() {
            for rank in 0..3 {
                let at = (layer * tokens.len() + place) * 3 + rank;
                assert_eq!(top[rank]["id"].as_f64().expect("an id") as f32, ids[at]);
                assert_eq!(top[rank]["score"].as_f64().expect("a score") as f32, scores[at]);
                let of_page = &data["fillings"]["layers"][layer]["top"][place][rank];
                assert_eq!(
                    (&of_page[0], of_page[1].as_f64().map(|score| score as f32)),
                    (&top[rank]["token"], Some(scores[at]))
                );
            }
            assert_eq!(
                cells[place].value("data-score").parse::<f32>().expect("a score"),
                scores[(layer * tokens.len() + place) * 3]
            );
            assert_eq!(cells[place].text(), top[0]["token"].as_str().expect("a token"));
        }
    }
    // The table that is shown first is that of the mask.
    let mask = tokens.iter().position(|token| token == "[MASK]").expect("a mask");
    let shown = page.by_id("lens-rows").all("tr");
    for (row, layer) in shown.iter().zip(layers.iter().rev()) {
        let cells: Vec<String> = row.all("bdi").iter().map(|cell| cell.text()).collect();
        let expected: Vec<String> =
            (0..3).map(|rank| layer["tokens"][mask][rank]["token"].as_str().unwrap().to_string()).collect();
        assert_eq!(cells, expected);
    }
}

#[test]
fn embeddings_are_explained_by_their_length_or_a_similarity() {
    let Explained { line, page, .. } = explained("sentence_mean", &["--text", TEXT]);
    let length = line["vector"]["length"].as_f64().expect("a length");
    let value = line["relevance"][0]["integrated_gradients"]["value"].as_f64().expect("a number");
    assert_close(&[value], &[length * length / 2.0], 1e-4);
    assert!(page.by_id("prediction").text().contains("has no head"));
    for model in ["sentence_mean", "sentence_cls", "bert_plain"] {
        let other = "A man is eating.";
        let line = explained(model, &["--text", TEXT, "--pair", other]).line;
        let vectors = on("embed", model, &[TEXT, other, "--json"]).succeeded().json_lines();
        let [a, b] = [0, 1].map(|at: usize| numbers(&vectors[at]["embedding"]));
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt();
        assert_close(&[line["similarity"]["score"].as_f64().unwrap()], &[cosine], 1e-5);
        let value = line["relevance"][0]["integrated_gradients"]["value"].as_f64().expect("a number");
        assert_close(&[value], &[cosine], 1e-5);
    }
}

#[test]
fn a_page_is_one_file_of_bounded_size() {
    let Explained { source, page, place, .. } = explained("bert_masked", &["--text", MASKED]);
    for word in ["http://", "https://", "//cdn", "<link", "@import", "<iframe", "src="] {
        assert!(!source.contains(word), "{word} is in the page");
    }
    assert!(source.len() < 300_000, "{} bytes", source.len());
    assert!(place.ends_with("The-engine-was-_MASK_-by/explain.html"), "{}", place.display());
    for part in
        ["layer", "heads", "overview", "map", "flow", "from", "to", "lines-says", "readout", "place", "lens-rows"]
    {
        page.by_id(part);
    }
    assert!(source.contains("data-page=\"explain-encoder\""));
    assert_eq!(page.by_id("overview").all("canvas").len(), LAYERS * (HEADS + 1));
    // Chosen layers and heads, and nothing else.
    let Explained { page, line, arrays, .. } =
        explained("bert_classes", &["--text", TEXT, "--layers", "last", "--heads", "1"]);
    assert_eq!(page.by_id("overview").all("canvas").len(), 2);
    assert_eq!((&line["attention"][0]["layer"], &line["attention"][0]["heads"]), (&1.into(), &serde_json::json!([1])));
    assert_eq!(arrays["attention.1"].len(), names(&line["tokens"]).len().pow(2));
    assert!(!arrays.contains_key("attention.0"));
}

#[test]
fn tokens_of_any_text_stay_in_their_place() {
    let texts = [
        "</script><script>alert(1)",
        "<img src=x onerror=a> & \"'",
        "\u{1f600} \u{5e9}\u{5dc} \u{202e}abc",
        "--layers",
    ];
    for model in ["bert_classes", "roberta_masked", "sentence_mean"] {
        for text in texts {
            let Explained { source, line, page, .. } = explained(model, &["--text", text]);
            assert_eq!(line["text"], text);
            assert!(!source.contains("<script>alert") && !source.contains("<img"), "{text}");
            assert_eq!(source.matches("</script>").count(), 2);
            assert_eq!(page.by_id("from").all("button").len(), names(&line["tokens"]).len());
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let said = on("explain", "bert_classes", &["--text", "\u{1b}[31m\tred\nline", "--out", out]).succeeded();
    assert!(!said.stdout.contains('\u{1b}') && said.stdout.lines().count() == 1, "{}", said.stdout);
    assert_eq!(said.stdout.matches('\t').count(), 2, "path, class and score: {}", said.stdout);
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").to_str().expect("UTF-8").to_string();
    let refused = |model: &str, arguments: &[&str], says: &[&str]| {
        on("explain", model, &[arguments, &["--out", &out]].concat()).failed(2, says);
    };
    let long = "one ".repeat(300);
    refused("bert_classes", &["--text", " "], &["Text", "empty"]);
    refused("bert_classes", &["--text", &long], &["more than 64 tokens", "shorter"]);
    refused("bert_classes", &["--text", TEXT, "--text", &long], &["more than 64 tokens"]);
    refused("bert_classes", &["--text", TEXT, "--pair", &long], &["more than 64 tokens"]);
    refused("bert_classes", &["--text", TEXT, "--layers", "2"], &["no layer 2", "0 to 1"]);
    refused("bert_classes", &["--text", TEXT, "--heads", "5"], &["no head 5"]);
    refused("bert_classes", &["--text", TEXT, "--class", "goood"], &["no class `goood`", "`good`"]);
    refused("bert_classes", &["--text", TEXT, "--class", "7"], &["no class 7"]);
    refused(
        "bert_classes",
        &["--text", TEXT, "--token", "1"],
        &["--token is for models with an output for each token"],
    );
    refused("bert_classes", &["--text", TEXT, "--target", "x"], &["--target", "translators"]);
    refused("bert_classes", &["--text", TEXT, "--steps", "0"], &["--steps"]);
    refused("bert_classes", &["--question", "Who?", "--context", TEXT], &["no head for questions"]);
    refused("bert_classes", &["--question", "Who?"], &["--context"]);
    refused("bert_answers", &["--text", TEXT], &["--question Q --context C"]);
    refused("bert_answers", &["--question", "Who?", "--context", ""], &["Context", "empty"]);
    refused("bert_masked", &["--text", MASKED, "--class", "nosuchtoken"], &["is no token of the vocabulary"]);
    refused("bert_masked", &["--text", MASKED, "--token", "99"], &["--token 99", "tokens, 0 to"]);
    refused("bert_plain", &["--text", TEXT, "--class", "a"], &["has no classes"]);
    refused("bert_classes", &["pictures/noise.png"], &["a text classifier", "--text"]);
    refused("bert_classes", &[], &["a text classifier", "--text"]);
    refused("bert_classes", &["--text", TEXT, "--image", "32"], &["--text", "cannot be used with"]);
    assert!(!std::path::Path::new(&out).exists(), "nothing is written before all is known to be right");
}

#[test]
fn what_is_not_ours_is_not_overwritten_and_what_is_old_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let explain = |more: &[&str]| on("explain", "bert_classes", &[&["--text", "a", "--out", out], more].concat());
    explain(&["--arrays"]).succeeded();
    assert!(folder.path().join("a/arrays.npz").is_file());
    explain(&[]).succeeded();
    assert!(!folder.path().join("a/arrays.npz").exists(), "arrays of an earlier run");
    fs::write(folder.path().join("a/explain.html"), "my own notes").expect("written");
    explain(&[]).failed(2, &["explain.html", "not overwritten"]);
    assert_eq!(fs::read_to_string(folder.path().join("a/explain.html")).expect("a file"), "my own notes");
    let said = on("explain", "bert_classes", &["--text", TEXT, "--text", TEXT, "--out", out]).succeeded();
    assert_eq!(said.stdout.lines().count(), 2);
    assert!(said.stderr.contains("2 texts in "), "{}", said.stderr);
    assert!(folder.path().join("Ada-Lovelace-lived-in-London-2/explain.html").is_file());
}

#[test]
fn a_model_of_texts_is_told_that_it_can_be_explained() {
    let told = vitreous(&[&["predict", "texts/bert_plain", "--text", TEXT], &ON_CPU[..]].concat());
    told.failed(2, &["vitreous explain texts/bert_plain --text TEXT"]);
}
