//! What the scripts of pages compute and paint, compared with the arrays of the same explanation. They run in Node; where there is
//! none, these tests say so and pass.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::chart::places;
use common::page::{close, parse};
use common::training::{tensors, train_tiny};
use common::translator::{DECODER_LAYERS, HEADS, translator};
use common::{ON_CPU, vitreous};
use serde_json::Value;

/// An explanation in a folder: its page, its line of JSON, and its arrays.
struct Explained {
    _folder: tempfile::TempDir,
    page: PathBuf,
    line: Value,
    arrays: BTreeMap<String, Vec<f32>>,
}

fn explained(arguments: &[&str]) -> Explained {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let words = [&["explain"], arguments, &["--arrays", "--json", "--out", out], &ON_CPU].concat();
    let line = vitreous(&words).succeeded().json_lines().remove(0);
    let page = PathBuf::from(line["page"].as_str().expect("a page"));
    let arrays = tensors(&page.with_file_name("arrays.npz"));
    Explained { _folder: folder, page, line, arrays }
}

/// The value of an expression in the page's script; none without Node.
fn ask(page: &Path, question: &str) -> Option<Value> {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/run_script.js");
    let ran = Command::new("node").arg(harness).arg(page).arg(question).output();
    let Ok(output) = ran else {
        eprintln!("skipped: there is no node to run the page's script");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn list(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
}

/// Panics unless the opacity of a painted map follows its values, from their smallest to their largest. `step` is how exactly the
/// page holds the values, each in one byte.
fn assert_painted(what: &str, painted: &Value, expected: &[f64], step: f64) {
    let (low, high) = expected.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    let (shown, limit) = (list(painted), 1.0 + 2.0 * 255.0 * step / (high - low));
    assert_eq!(shown.len(), expected.len(), "{what}");
    assert!(limit < 40.0, "{what}: this map cannot tell its patches apart");
    for (place, (alpha, value)) in shown.iter().zip(expected).enumerate() {
        close(&format!("{what}, opacity of patch {place}"), *alpha, 255.0 * (value - low) / (high - low), limit);
    }
}

const PATCHES: usize = 24;
const TOKENS: usize = 25;

#[test]
fn maps_of_every_layer_head_and_query_are_painted_where_they_belong() {
    let one = explained(&["tiny_vit", "pictures/noise.png", "--image", "32x48"]);
    let question = "(() => {
        const alpha = (canvas) => [...canvas.painted.data].filter((_, at) => at % 4 === 3);
        const views = [];
        for (const layer of [0, 1]) for (const head of [-1, 0, 1, 2]) for (let query = -1; query < 25; query++) {
            show({ layer, head, query });
            const { patches, prefix } = weights(layer, head, query);
            views.push({ layer, head, query, patches: [...patches], prefix: [...prefix], painted: alpha(map),
                         size: [map.painted.height, map.painted.width], says: byId('says').textContent });
        }
        const overview = overviewCells.map((cell) => ({ ...cell.dataset, painted: alpha(cell.querySelector('canvas')) }));
        location.hash = '#layer=1&head=2&patch=2,5';
        return { views, overview, addressed: addressed() };
    })()";
    let Some(found) = ask(&one.page, question) else { return };
    let expected = |layer: u64, head: i64, query: i64| -> Vec<f64> {
        let weights = &one.arrays[&format!("attention.{layer}")];
        // The class token is the reader; without a head, the mean of the three.
        let heads = if head < 0 { 0..3 } else { head as usize..head as usize + 1 };
        let row = |head: usize| &weights[(head * TOKENS + query.max(0) as usize) * TOKENS..][..TOKENS];
        let count = heads.len() as f64;
        (0..TOKENS).map(|token| heads.clone().map(|head| f64::from(row(head)[token])).sum::<f64>() / count).collect()
    };
    let views = found["views"].as_array().expect("views");
    assert_eq!(views.len(), 2 * 4 * 26);
    for view in views {
        let (layer, head, query) =
            (view["layer"].as_u64().unwrap(), view["head"].as_i64().unwrap(), view["query"].as_i64().unwrap());
        let (what, row) = (format!("layer {layer}, head {head}, query {query}"), expected(layer, head, query));
        let largest = row[1..].iter().copied().fold(0.0, f64::max);
        for (shown, weight) in list(&view["patches"]).iter().zip(&row[1..]) {
            close(&what, *shown, *weight, 0.004 * largest);
        }
        close(&what, list(&view["prefix"])[0], row[0], 1e-6);
        assert_eq!(view["size"], serde_json::json!([4, 6]));
        assert_painted(&what, &view["painted"], &row[1..], 0.004 * largest);
        let says = view["says"].as_str().expect("text");
        assert!(
            says.starts_with(&format!(
                "Layer {layer}, {}",
                if head < 0 { "mean over heads".to_string() } else { format!("head {head}") }
            )),
            "{says}"
        );
        let whose = if query < 1 {
            "class token".to_string()
        } else {
            format!("patch row {}, column {}", (query - 1) / 6, (query - 1) % 6)
        };
        assert!(says.contains(&format!("{whose}: ")), "{says} is not about the {whose}");
        let (row_of, column_of) = says
            .split("patch at row ")
            .nth(1)
            .and_then(|rest| rest.split(':').next()?.split_once(", column "))
            .expect("a patch");
        let strongest = row_of.parse::<usize>().unwrap() * 6 + column_of.parse::<usize>().unwrap();
        close(&format!("{what}, strongest"), row[1 + strongest], largest, 0.004 * largest);
    }
    let overview = found["overview"].as_array().expect("cells");
    assert_eq!(overview.len(), 8);
    for cell in overview {
        let of = |key: &str| cell[key].as_str().expect("a number").parse::<i64>().expect("a number");
        let row = expected(of("layer") as u64, of("head"), -1);
        assert_painted(
            &format!("overview, layer {}, head {}", of("layer"), of("head")),
            &cell["painted"],
            &row[1..],
            0.004 * row[1..].iter().copied().fold(0.0, f64::max),
        );
    }
    let addressed = &found["addressed"];
    assert_eq!(
        (&addressed["layer"], &addressed["head"], &addressed["query"]),
        (&1.into(), &2.into(), &(1 + 2 * 6 + 5).into())
    );
}

#[test]
fn similarity_is_painted_for_the_chosen_patch() {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("bare").to_str().expect("UTF-8").to_string();
    vitreous(&["convert", "tiny_vit", &bare, "--no-head"]).succeeded();
    let one = explained(&[&bare, "pictures/noise.png", "--image", "32x48"]);
    let question = "[0, 7, 23].map((patch) => {
        show({ query: prefix + patch });
        return [...similar.painted.data].filter((_, at) => at % 4 === 3);
    })";
    let Some(found) = ask(&one.page, question) else { return };
    let tokens: Vec<&[f32]> = one.arrays["patch_tokens"].chunks_exact(24).collect();
    let product =
        |a: usize, b: usize| tokens[a].iter().zip(tokens[b]).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    for (place, patch) in [0, 7, 23].into_iter().enumerate() {
        let cosine = |other: usize| product(patch, other) / (product(patch, patch) * product(other, other)).sqrt();
        assert_painted(
            &format!("similarity to patch {patch}"),
            &found[place],
            &(0..PATCHES).map(cosine).collect::<Vec<_>>(),
            0.004,
        );
    }
}

#[test]
fn words_and_tokens_of_a_translation_have_their_weights() {
    let one = explained(&[translator(), "--text", "one zebras three four", "--target", "7 xyz 9"]);
    let question = "(() => {
        const maps = [];
        for (const whole of [false, true]) for (const kind of ['encoder', 'decoder', 'cross']) data[kind].forEach((_, place) => {
            for (const head of [-1, 0, 1]) {
                byId('whole').checked = whole;
                showMap({ kind, layer: place, head });
                const { rows, columns, values } = view.shown;
                maps.push({ whole, kind, place, head, rows, columns, values: [...values],
                            size: [map.height, map.width], opaque: [...map.painted.data].filter((_, at) => at % 4 === 3) });
            }
        });
        const lines = data.links.map((_, layer) => { showAlignment({ layer }); return byId('links').children.map((line) => [line.dataset, line.attributes.d]); });
        return { maps, lines, between: [0, 1, 2].map((layer) => { showAlignment({ layer }); return [between({ side: 'target', word: 1 }), between({ side: 'source', word: 2 })]; }) };
    })()";
    let Some(found) = ask(&one.page, question) else { return };
    let side = |key: &str| -> Vec<std::ops::Range<usize>> {
        let words = one.line[key]["words"].as_array().expect("words").iter();
        let of = |word: &Value, key: &str| word[key].as_u64().expect("a count") as usize;
        words.map(|word| of(word, "first")..of(word, "first") + of(word, "pieces")).collect()
    };
    let (source, written) = (side("source"), side("target"));
    assert!(source[1].len() > 1 && written[1].len() > 1, "words of several tokens");
    // The decoder reads the start, then all words that it has written.
    let last = written.len() - 1;
    let read: Vec<std::ops::Range<usize>> =
        std::iter::once(0..1).chain(written[..last].iter().map(|word| word.start + 1..word.end + 1)).collect();
    let tokens = |words: &[std::ops::Range<usize>]| words.last().expect("an end").end;
    let single = |words: &[std::ops::Range<usize>]| -> Vec<std::ops::Range<usize>> {
        (0..tokens(words)).map(|at| at..at + 1).collect()
    };
    let weights = |kind: &str,
                   layer: u64,
                   head: i64,
                   rows: &[std::ops::Range<usize>],
                   columns: &[std::ops::Range<usize>]|
     -> Vec<f64> {
        let array = &one.arrays[&format!("{kind}.{layer}")];
        let size = array.len() / HEADS;
        let width = tokens(columns);
        let heads = if head < 0 { 0..HEADS } else { head as usize..head as usize + 1 };
        let at = |y: usize, x: usize| {
            heads.clone().map(|head| f64::from(array[head * size + y * width + x])).sum::<f64>() / heads.len() as f64
        };
        let cell = |row: &std::ops::Range<usize>, column: &std::ops::Range<usize>| -> f64 {
            let masked = kind == "decoder" && column.start >= row.end;
            let sum: f64 = row.clone().flat_map(|y| column.clone().map(move |x| (y, x))).map(|(y, x)| at(y, x)).sum();
            if masked { f64::NAN } else { sum / row.len() as f64 }
        };
        rows.iter().flat_map(|row| columns.iter().map(|column| cell(row, column)).collect::<Vec<_>>()).collect()
    };
    let maps = found["maps"].as_array().expect("maps");
    assert_eq!(maps.len(), 2 * 3 * (2 + 2 * DECODER_LAYERS));
    for map in maps {
        let (kind, layer, head) =
            (map["kind"].as_str().unwrap(), map["place"].as_u64().unwrap(), map["head"].as_i64().unwrap());
        let (rows, columns) = match kind {
            "encoder" => (&source, &source),
            "decoder" => (&written, &read),
            _ => (&written, &source),
        };
        let expected = match map["whole"].as_bool().expect("a flag") {
            true => weights(kind, layer, head, rows, columns),
            false => weights(kind, layer, head, &single(rows), &single(columns)),
        };
        let (what, shown, opaque) =
            (format!("{kind}, layer {layer}, head {head}"), list(&map["values"]), list(&map["opaque"]));
        assert_eq!(shown.len(), expected.len(), "{what}");
        for ((shown, opaque), weight) in shown.iter().zip(&opaque).zip(&expected) {
            assert_eq!(
                (shown.is_nan(), *opaque == 0.0),
                (weight.is_nan(), weight.is_nan()),
                "{what}: what is masked has no colour"
            );
            if !weight.is_nan() {
                close(&what, *shown, *weight, 1e-4);
            }
        }
        if map["whole"] == true {
            let [down, across] = match kind {
                "encoder" => [["one", "zebras", "three", "four", "‹end›"]; 2].map(|names| names.to_vec()),
                "decoder" => [vec!["7", "xyz", "9", "‹end›"], vec!["‹start›", "7", "xyz", "9"]],
                _ => [vec!["7", "xyz", "9", "‹end›"], vec!["one", "zebras", "three", "four", "‹end›"]],
            };
            assert_eq!(
                (&map["rows"], &map["columns"]),
                (&serde_json::json!(down), &serde_json::json!(across)),
                "{what}"
            );
        }
        let size = [map["rows"].as_array().unwrap().len(), map["columns"].as_array().unwrap().len()];
        assert_eq!(map["size"], serde_json::json!(size), "{what}");
    }
    for layer in 0..DECODER_LAYERS {
        let between = weights("cross", layer as u64, -1, &written, &source);
        let width = source.len();
        for (shown, expected) in list(&found["between"][layer][0]).iter().zip(&between[width..]) {
            close("from a word of the translation", *shown, *expected, 1e-4);
        }
        for (row, shown) in list(&found["between"][layer][1]).iter().enumerate() {
            close("to a word of the source", *shown, between[row * width + 2], 1e-4);
        }
        // Lines are drawn again at the heights of their words: the first at 44, each 26 below the one before.
        let links = one.line["alignment"][layer]["links"].as_array().expect("links");
        for (line, link) in found["lines"][layer].as_array().expect("lines").iter().zip(links) {
            let height = |key: &str| 44 + 26 * link[key].as_u64().expect("a word");
            assert_eq!((&line[0]["target"], &line[0]["source"]), (&link["target"], &link["source"]));
            let path = line[1].as_str().expect("a path");
            let numbers: Vec<&str> = path.split(['M', 'C', ' ']).filter(|part| !part.is_empty()).collect();
            assert_eq!(
                (numbers[1], numbers[7]),
                (&*height("source").to_string(), &*height("target").to_string()),
                "{path}"
            );
        }
    }
}

#[test]
fn tokens_of_an_encoder_have_their_maps_and_lines() {
    let one = explained(&["texts/bert_masked", "--text", "The engine was [MASK] by Ada."]);
    let tokens = one.line["tokens"].as_array().expect("tokens").len();
    let question = "(() => {
        const views = [];
        for (const layer of [0, 1]) for (const heads of [[-1], [0], [1], [0, 1]]) {
            show({ layer, heads, side: null, token: null });
            const { rows, columns, values } = board.shown;
            views.push({ layer, heads, rows, columns, values: [...values], size: [map.height, map.width], says: byId('says').textContent,
                         lines: shownLines(null, null), from: shownLines('from', 3), to: shownLines('to', 2), drawn: byId('flow').children.map((path) => path.attributes) });
        }
        const overview = overviewCells.map((cell) => ({ ...cell.dataset, painted: [...cell.querySelector('canvas').painted.data] }));
        show({ layer: 1, heads: [0, 1], side: 'to', token: 2 });
        const [kept, said] = [address(), byId('lines-says').textContent];
        location.hash = kept;
        const again = addressed();
        location.hash = '#layer=9&heads=7,x&from=99';
        const odd = addressed();
        location.hash = '#relevance';
        const section = addressed();
        showFillings(2);
        const filled = byId('lens-rows').children.map((row) => row.children.slice(1).map((cell) => cell.children[0].textContent));
        return { views, overview, kept, said, again, odd, section, toggles: [toggled(0), toggled(-1)], filled };
    })()";
    let Some(found) = ask(&one.page, question) else { return };
    let weights = |layer: u64, heads: &[i64]| -> Vec<f64> {
        let all = &one.arrays[&format!("attention.{layer}")];
        let heads: Vec<usize> =
            if heads == [-1] { vec![0, 1] } else { heads.iter().map(|&head| head as usize).collect() };
        let size = tokens * tokens;
        let mean =
            |at: usize| heads.iter().map(|head| f64::from(all[head * size + at])).sum::<f64>() / heads.len() as f64;
        (0..size).map(mean).collect()
    };
    let views = found["views"].as_array().expect("views");
    assert_eq!(views.len(), 8);
    for view in views {
        let layer = view["layer"].as_u64().expect("a layer");
        let heads: Vec<i64> = list(&view["heads"]).iter().map(|&head| head as i64).collect();
        let (what, expected) = (format!("layer {layer}, heads {heads:?}"), weights(layer, &heads));
        for (shown, expected) in list(&view["values"]).iter().zip(&expected) {
            close(&what, *shown, *expected, 1e-4);
        }
        assert_eq!((&view["rows"], &view["columns"]), (&one.line["tokens"], &one.line["tokens"]), "{what}");
        assert_eq!(view["size"], serde_json::json!([tokens, tokens]));
        assert!(view["says"].as_str().expect("text").starts_with(&format!("Layer {layer}, ")), "{what}");
        // A line for every weight of one percent or more, of each head by itself.
        let mut all: Vec<(usize, usize, i64)> = Vec::new();
        for &head in &heads {
            let of_head = weights(layer, &[head]);
            let strong = (0..of_head.len()).filter(|&at| of_head[at] >= 0.01);
            all.extend(strong.map(|at| (at / tokens, at % tokens, head)));
        }
        let drawn = |key: &str| -> Vec<(usize, usize, i64)> {
            let lines = view[key].as_array().expect("lines").iter().map(list);
            lines.map(|line| (line[0] as usize, line[1] as usize, line[3] as i64)).collect()
        };
        let mut lines = drawn("lines");
        lines.sort_unstable_by_key(|line| (line.2, line.0, line.1));
        all.sort_unstable_by_key(|line| (line.2, line.0, line.1));
        assert_eq!(lines, all, "{what}");
        assert!(drawn("from").iter().all(|line| line.0 == 3) && drawn("to").iter().all(|line| line.1 == 2), "{what}");
        assert_eq!(drawn("from").len(), all.iter().filter(|line| line.0 == 3).count());
        assert_eq!(drawn("to").len(), all.iter().filter(|line| line.1 == 2).count());
        // Each is drawn, with an opacity that is its weight to 1/32.
        let weight = |from: usize, to: usize, head: i64| weights(layer, &[head])[from * tokens + to];
        let mut count = 0;
        for path in view["drawn"].as_array().expect("paths") {
            let opacity: f64 = path["stroke-opacity"].as_str().expect("an opacity").parse().expect("a number");
            for line in path["d"].as_str().expect("a path").split('M').skip(1) {
                count += 1;
                let (from, to) = line.split_once("L100 ").expect("a line");
                let place = |text: &str| (text.trim_start_matches("0 ").parse::<f64>().expect("a row") - 0.5) as usize;
                let (from, to) = (place(from), place(to));
                let near = heads.iter().any(|&head| (weight(from, to, head) - opacity).abs() <= 0.5 / 32.0 + 1e-3);
                assert!(near || opacity <= 1.0 / 32.0 + 1e-3, "{what}: {from} to {to} has an opacity of {opacity}");
            }
        }
        assert_eq!(count, all.len(), "{what}");
    }
    let overview = found["overview"].as_array().expect("cells");
    assert_eq!(overview.len(), 2 * 3);
    for cell in overview {
        let of = |key: &str| cell[key].as_str().expect("a number").parse::<i64>().expect("a number");
        let expected = weights(of("layer") as u64, &[of("head")]);
        let largest = expected.iter().copied().fold(0.0, f64::max);
        // Green grows with the weight, all along the scale.
        let green: Vec<f64> = list(&cell["painted"]).chunks_exact(4).map(|pixel| pixel[1]).collect();
        for (a, b) in (0..expected.len()).flat_map(|a| (0..expected.len()).map(move |b| (a, b))) {
            assert!(expected[a] <= expected[b] + 0.02 * largest || green[a] >= green[b], "{a} and {b} of {cell}");
        }
    }
    assert_eq!(found["kept"], "#layer=1&heads=0,1&to=2");
    assert_eq!(found["again"], serde_json::json!({"layer": 1, "heads": [0, 1], "side": "to", "token": 2}));
    assert_eq!(found["odd"], serde_json::json!({"layer": 1, "heads": [-1], "side": null, "token": null}));
    assert_eq!(found["section"], Value::Null);
    assert_eq!(found["toggles"], serde_json::json!([[1], [-1]]));
    assert!(found["said"].as_str().expect("text").contains("is attended to by"), "{}", found["said"]);
    let fillings = one.line["fillings"].as_array().expect("layers");
    for (row, layer) in found["filled"].as_array().expect("rows").iter().zip(fillings.iter().rev()) {
        let expected: Vec<&Value> =
            layer["tokens"][2].as_array().expect("a top").iter().map(|one| &one["token"]).collect();
        assert_eq!(row.as_array().expect("cells").iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_pointer_reads_curves_where_they_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    train_tiny(&run, &["train.batch=1000", "train.epochs=1"]).succeeded();
    let file = run.join("report.html");
    let page = parse(&std::fs::read_to_string(&file).expect("a page"));
    for (title, figure) in page.by_id("curves").figures() {
        let data = figure.json();
        let question = format!(
            "(() => {{ const of = {{ data: {data}, place: Curves.prototype.place }}; const {{ x, y }} = of.data.series[0];
             return [x.map((x, at) => [of.place('x', x), of.place('y', y[at])]), smoothed([1, 2, 4, 0, 1, 1, 1, 1, 1, 1, 8], 0.5)]; }})()"
        );
        let Some(found) = ask(&file, &question) else { return };
        let paths = figure.all("path");
        let drawn = paths.iter().find(|path| path.get("data-series") == Some("0"));
        for (shown, place) in
            found[0].as_array().expect("places").iter().zip(drawn.map(|path| places(path)).unwrap_or_default())
        {
            close(&title, list(shown)[0], place.0, 0.11);
            close(&title, list(shown)[1], place.1, 0.11);
        }
        // The weighted mean of all values so far: each counts half as much as the one behind it.
        let values = [1.0, 2.0, 4.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0];
        for (at, shown) in list(&found[1]).into_iter().enumerate() {
            let weight = |back: usize| 0.5f64.powi(back as i32);
            let sum: f64 = (0..=at).map(|back| weight(back) * values[at - back]).sum();
            close("a smoothed value", shown, sum / (0..=at).map(weight).sum::<f64>(), 1e-9);
        }
    }
}
