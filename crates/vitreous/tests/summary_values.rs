//! What the page of `vitreous summary` draws and lists, read back from the page and compared with the model's graph: steps, arrows,
//! shapes, parameters and FLOPs.

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};

use common::chart::bars;
use common::page::{Element, close, parse, parsed};
use common::vitreous;
use serde_json::Value as Json;
use vitreous_engine::ops::Op;
use vitreous_engine::{Graph, Shape};
use vitreous_models::stages::stage_of;
use vitreous_models::{Call, preset};

/// Models whose drawings differ: an ordinary one, one with its norms behind the residual sums, one with two heads, one with registers.
const MODELS: [&str; 4] =
    ["vit_base_patch16_224", "vit_cifar", "deit_tiny_distilled_patch16_224", "vit_small_patch14_reg4_dinov2"];

/// The page of a preset, and what the command says about it.
fn page(model: &str) -> (Element, Json) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let json = vitreous(&["summary", model, "--json", "--html", path.to_str().expect("UTF-8")]).succeeded();
    (parse(&std::fs::read_to_string(&path).expect("a page")), json.json_lines().remove(0))
}

fn graph(model: &str) -> Graph {
    let mut graph = Graph::for_inference();
    preset(model).expect(model).build(&mut graph, &Call::whole(1)).expect("builds");
    graph
}

fn axes(shape: &Shape) -> Vec<usize> {
    shape.axes().to_vec()
}

/// `1x197x768`, or with spaces and the sign of a product, as a reader sees it.
fn shape(text: &str) -> Vec<usize> {
    text.split(['x', '\u{d7}'])
        .map(|axis| axis.trim().parse().unwrap_or_else(|_| panic!("{text} is no shape")))
        .collect()
}

/// A step of the graph: neighbouring nodes of one stage.
#[derive(Debug, Default, Clone, PartialEq)]
struct Step {
    stage: String,
    shape: Vec<usize>,
    parameters: usize,
    flops: u64,
}

/// Shapes of values by the steps that they go from and to.
type Arrows = BTreeMap<(usize, usize), Vec<Vec<usize>>>;

/// Parameters and constants that are no weight of an op, by step and name: shape, and whether it is trained.
type Joins = BTreeMap<(usize, String), (Vec<usize>, bool)>;

/// The steps of a graph, and what goes between them.
fn steps(graph: &Graph) -> (Vec<Step>, Arrows, Joins) {
    let (mut steps, mut arrows, mut joins) = (Vec::<Step>::new(), Arrows::new(), Joins::new());
    let (mut step_of, mut counted, mut carried) = (HashMap::new(), HashSet::new(), HashSet::new());
    for (index, node) in graph.nodes().iter().enumerate() {
        if matches!(node.op, Op::Parameter(_) | Op::Constant(_)) {
            continue;
        }
        let is_input = matches!(node.op, Op::Input(_));
        let stage = if is_input { &node.path } else { stage_of(&node.path) };
        if is_input || steps.last().is_none_or(|last| last.stage != stage) {
            steps.push(Step { stage: stage.to_string(), ..Step::default() });
        }
        let here = steps.len() - 1;
        step_of.insert(node.path.as_str(), here);
        steps[here].shape = axes(&node.outputs[0].shape);
        steps[here].flops += graph.node_flops(index);
        for &input in &node.inputs {
            let (path, shape) = (graph.path(input), axes(graph.shape_of(input)));
            if let Some(&from) = step_of.get(path) {
                if from != here && carried.insert((path, here)) {
                    arrows.entry((from, here)).or_default().push(shape);
                }
                continue;
            }
            let trained = graph.parameters().iter().any(|parameter| parameter.name == path);
            if trained && counted.insert(path) {
                steps[here].parameters += graph.shape_of(input).elements();
            }
            // `blocks.0.layer_scale1` and `class_token` join; `head.weight` is a weight.
            let name = path.rsplit('.').next().expect("a name");
            if stage_of(path) == path
                || path.rsplit_once('.').is_some_and(|(scope, _)| scope.ends_with(char::is_numeric))
            {
                joins.insert((here, name.to_string()), (shape, trained));
            }
        }
    }
    (steps, arrows, joins)
}

/// `blocks.3` of `blocks.3.attention`.
fn block(stage: &str) -> Option<usize> {
    stage.strip_prefix("blocks.")?.split('.').next()?.parse().ok()
}

/// Which of the graph's steps is drawn as which: those of the first block stand for all.
fn drawn(steps: &[Step]) -> Vec<usize> {
    (0..steps.len()).filter(|&step| block(&steps[step].stage).is_none_or(|block| block == 0)).collect()
}

fn number(element: &Element, attribute: &str) -> u64 {
    element.value(attribute).parse().unwrap_or_else(|_| panic!("{attribute} of {element:?}"))
}

/// The texts of an element.
fn texts(element: &Element) -> Vec<String> {
    element.all("text").iter().map(|text| text.text()).collect()
}

/// `2.36 M`, `12 × 2.36 M`: how many, and of what size to three digits.
fn assert_short(what: &str, shown: &str, count: usize, value: f64) {
    let (times, one) = match shown.split_once(" \u{d7} ") {
        Some((times, one)) => (times.parse().expect("a count"), one),
        None => (1, shown),
    };
    assert_eq!(times, count, "{what}: {shown}");
    let one = parsed(&one.replace(" T", "e12").replace(' ', ""));
    close(what, one, value, 0.0051 * value);
}

#[test]
fn boxes_have_the_numbers_of_their_stage() {
    for model in MODELS {
        let (page, graph) = (page(model).0, graph(model));
        let (steps, ..) = steps(&graph);
        let blocks = steps.iter().filter_map(|step| block(&step.stage)).max().expect("blocks") + 1;
        let figure = page.by_id("flow");
        let groups = figure.of_class("step");
        let drawn = drawn(&steps);
        assert_eq!(groups.len(), drawn.len(), "{model}");
        let all: usize = graph.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
        for (place, (group, &step)) in groups.iter().zip(&drawn).enumerate() {
            let step = &steps[step];
            let what = format!("{model}, {}", step.stage);
            let repeats = if block(&step.stage).is_some() { blocks } else { 1 };
            assert_eq!((number(group, "data-step"), group.value("data-stage")), (place as u64, &*step.stage), "{what}");
            assert_eq!(shape(group.value("data-shape")), step.shape, "{what}");
            assert_eq!(number(group, "data-parameters"), step.parameters as u64, "{what}");
            assert_eq!(
                (number(group, "data-flops"), number(group, "data-repeats")),
                (step.flops, repeats as u64),
                "{what}"
            );
            // A sum of the block itself is a plus without numbers.
            if block(&step.stage).is_some_and(|block| step.stage == format!("blocks.{block}")) {
                continue;
            }
            let inside = step.stage.strip_prefix("blocks.0.").unwrap_or(&step.stage);
            assert_eq!(texts(group)[0], inside, "{what}");
            let measures = [
                ("parameters", step.parameters as f64, all as f64),
                ("FLOPs", step.flops as f64, graph.flops() as f64),
            ];
            assert_measures(&what, group, repeats, &measures);
        }
    }
}

/// Panics unless a box has these numbers, each with its share of the whole model as text and as a bar; a number of 0 is left out.
fn assert_measures(what: &str, group: &Element, repeats: usize, measures: &[(&str, f64, f64)]) {
    let texts = texts(group);
    let bars: Vec<&Element> = group.all("rect").into_iter().skip(1).collect();
    let shown: Vec<&(&str, f64, f64)> = measures.iter().filter(|measure| measure.1 > 0.0).collect();
    assert_eq!(bars.len(), 2 * shown.len(), "{what}");
    for (&&(label, value, all), bars) in shown.iter().zip(bars.chunks(2)) {
        let at =
            texts.iter().position(|text| text == label).unwrap_or_else(|| panic!("{what}: no {label} in {texts:?}"));
        assert_short(&format!("{what}, {label}"), &texts[at + 1], repeats, value);
        let share = value * repeats as f64 / all;
        match texts[at + 2].strip_prefix('<') {
            Some(limit) => assert!(100.0 * share < parsed(limit), "{what}, {label}: {}", texts[at + 2]),
            None => close(&format!("{what}, share of {label}"), parsed(&texts[at + 2]), 100.0 * share, 0.0501),
        }
        let full = bars[0].number("width");
        close(&format!("{what}, bar of {label}"), bars[1].number("width"), (full * share).max(1.0), 0.0501);
    }
}

#[test]
fn arrows_carry_the_shapes_of_the_graph() {
    for model in MODELS {
        let (page, graph) = (page(model).0, graph(model));
        let (steps, arrows, _) = steps(&graph);
        let drawn = drawn(&steps);
        let place = |step: usize| drawn.iter().position(|&one| one == step);
        let mut expected: BTreeMap<(usize, String), Vec<Vec<usize>>> = BTreeMap::new();
        for (&(from, to), shapes) in &arrows {
            // An arrow into the first block comes from before it; one out of the last leaves the one that is drawn.
            let Some(to) = place(to) else { continue };
            let same = |step: &usize| {
                let inside = |stage: &str| stage.splitn(3, '.').nth(2).unwrap_or("").to_string();
                inside(&steps[*step].stage) == inside(&steps[from].stage)
            };
            let from = place(from).unwrap_or_else(|| {
                let of_block: Vec<usize> =
                    drawn.iter().copied().filter(|&s| block(&steps[s].stage) == Some(0)).collect();
                place(of_block.into_iter().rfind(same).expect("a step of the block")).expect("drawn")
            });
            expected.insert((from, to.to_string()), shapes.clone());
        }
        let last = steps.last().expect("steps");
        expected.insert((drawn.len() - 1, "output".to_string()), vec![last.shape.clone()]);
        let mut shown = BTreeMap::new();
        for group in page.by_id("flow").of_class("edge") {
            let shapes: Vec<Vec<usize>> = group.value("data-shapes").split(' ').map(shape).collect();
            let (from, to) = (number(group, "data-from") as usize, group.value("data-to").to_string());
            let around = group.of_class("around").len() == 1;
            assert_eq!(around, to.parse::<usize>().is_ok_and(|to| to > from + 1), "{model}, {from} to {to}");
            // What a reader sees: `1 × 196 × 192 and 2 of 1 × 192`.
            if !around {
                let text = &texts(group)[0];
                let read = text.split(" and ").flat_map(|part| match part.split_once(" of ") {
                    Some((count, one)) => vec![shape(one); count.parse().expect("a count")],
                    None => vec![shape(part)],
                });
                assert_eq!(read.collect::<Vec<_>>(), shapes, "{model}, {from} to {to}");
            }
            assert!(shown.insert((from, to), shapes).is_none(), "{model}: an arrow is drawn twice");
        }
        let sorted = |mut shapes: Vec<Vec<usize>>| {
            shapes.sort();
            shapes
        };
        let both =
            [shown, expected].map(|all| all.into_iter().map(|(at, shapes)| (at, sorted(shapes))).collect::<Vec<_>>());
        assert_eq!(both[0], both[1], "{model}");
    }
}

#[test]
fn what_joins_has_its_shape_and_says_whether_it_is_learned() {
    for model in MODELS {
        let (page, graph) = (page(model).0, graph(model));
        let (steps, _, joins) = steps(&graph);
        let drawn = drawn(&steps);
        let of_sum = |step: usize| block(&steps[step].stage).is_some();
        let expected: BTreeMap<(usize, String), (Vec<usize>, bool)> = joins
            .into_iter()
            // The scale of a residual sum is named in its caption, not drawn.
            .filter(|((step, _), _)| !of_sum(*step))
            .map(|((step, name), value)| ((drawn.iter().position(|&one| one == step).expect("drawn"), name), value))
            .collect();
        let groups = page.by_id("flow").of_class("joining");
        let shown: BTreeMap<(usize, String), (Vec<usize>, bool)> = groups
            .iter()
            .map(|group| {
                let (axes, trained) = (shape(group.value("data-shape")), group.value("data-trained") == "true");
                let texts: Vec<String> = group.all("title").iter().map(|title| title.text()).collect();
                assert_eq!((shape(&texts[1]), texts[2] == "learned"), (axes.clone(), trained), "{model}: {texts:?}");
                ((number(group, "data-step") as usize, group.value("data-name").to_string()), (axes, trained))
            })
            .collect();
        assert_eq!(shown, expected, "{model}");
    }
}

#[test]
fn a_frame_says_how_often_its_block_repeats_and_what_it_has() {
    for model in MODELS {
        let (page, graph) = (page(model).0, graph(model));
        let (steps, ..) = steps(&graph);
        let blocks = steps.iter().filter_map(|step| block(&step.stage)).max().expect("blocks") + 1;
        let one: Vec<&Step> = steps.iter().filter(|step| block(&step.stage) == Some(0)).collect();
        let all: usize = graph.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
        let (parameters, flops) =
            (one.iter().map(|s| s.parameters).sum::<usize>(), one.iter().map(|s| s.flops).sum::<u64>());
        let figure = page.by_id("flow");
        let groups = figure.of_class("block");
        assert_eq!(groups.len(), 1, "{model}");
        assert_eq!((groups[0].value("data-block"), number(groups[0], "data-repeats")), ("blocks.0", blocks as u64));
        let said = texts(groups[0]);
        assert_eq!(said[0], format!("\u{d7} {blocks}"), "{model}");
        assert!(texts(figure).contains(&format!("blocks.0 \u{2026} {}", blocks - 1)), "{model}");
        assert_eq!(
            [&*said[1], &*said[3], &*said[5], &*said[6], &*said[8], &*said[10]],
            ["each", "parameters", "FLOPs", "all", "parameters", "FLOPs"]
        );
        assert_short(&format!("{model}, parameters of a block"), &said[2], 1, parameters as f64);
        assert_short(&format!("{model}, FLOPs of a block"), &said[4], 1, flops as f64);
        let share = |one: f64, of: f64| 100.0 * one * blocks as f64 / of;
        close("parameters of all blocks", parsed(&said[7]), share(parameters as f64, all as f64), 0.0501);
        close("FLOPs of all blocks", parsed(&said[9]), share(flops as f64, graph.flops() as f64), 0.0501);
    }
}

/// `1.5 MiB`.
fn bytes(text: &str) -> f64 {
    let (digits, unit) = text.split_once(' ').expect("a unit");
    let power = ["B", "KiB", "MiB", "GiB"].iter().position(|one| *one == unit).expect("a unit");
    digits.parse::<f64>().expect("a number") * 1024f64.powi(power as i32)
}

#[test]
fn the_table_and_the_shares_are_those_of_the_printed_numbers() {
    for model in [MODELS[0], MODELS[3], "transformer_base"] {
        let (page, json) = page(model);
        let stages: BTreeMap<&str, &Json> = json["stages"]
            .as_array()
            .expect("stages")
            .iter()
            .map(|stage| (stage["name"].as_str().expect("a name"), stage))
            .collect();
        let rows = page.by_id("stages").rows();
        assert_eq!(rows[0], ["stage", "shape", "parameters", "FLOPs", "activations"], "{model}");
        let of = |key: &str, stage: &Json| stage[key].as_f64().expect("a number");
        let (mut scope, mut found) = (String::new(), 0);
        for row in &rows[1..] {
            // A block's row, and those of its stages below it.
            let first = row[0].split(" to ").next().expect("a name");
            if json["stages"]
                .as_array()
                .expect("stages")
                .iter()
                .any(|s| s["name"].as_str().expect("a name").starts_with(&format!("{first}.")))
            {
                scope = first.to_string();
            }
            let inside = if row[0] == "residual" { scope.clone() } else { format!("{scope}.{}", row[0]) };
            let Some(stage) = stages.get(&*row[0]).or_else(|| stages.get(&*inside)).filter(|_| row[0] != scope) else {
                continue;
            };
            found += 1;
            let what = format!("{model}, {}", row[0]);
            let expected: Vec<usize> = serde_json::from_value(stage["shape"].clone()).expect("a shape");
            assert_eq!(shape(&row[1]), expected, "{what}");
            let shown = |cell: &str| if cell == "-" { 0.0 } else { parsed(cell) };
            assert_eq!((shown(&row[2]), shown(&row[3])), (of("parameters", stage), of("flops", stage)), "{what}");
            let (activations, written) =
                (if row[4] == "-" { 0.0 } else { bytes(&row[4]) }, of("activation_bytes", stage));
            close(&what, activations, written, 0.0501 * 1024f64.powf(written.max(1.0).log(1024.0).floor()));
        }
        assert!(found >= 12, "{model}: {found} rows were compared");
        let total = rows.last().expect("a total");
        let sums = [&json["total_parameters"], &json["forward_flops"]].map(|sum| sum.as_f64().expect("a number"));
        assert_eq!([&total[2], &total[3]].map(|cell| parsed(cell)), sums, "{model}");
        assert_shares(model, &page, &stages, sums);
    }
}

/// Panics unless the bars are each stage's sum over all blocks, the largest first.
fn assert_shares(model: &str, page: &Element, stages: &BTreeMap<&str, &Json>, totals: [f64; 2]) {
    for ((title, key), total) in [("parameters", "parameters"), ("FLOPs", "flops")].into_iter().zip(totals) {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, stage) in stages {
            let parts: Vec<&str> = name.splitn(3, '.').collect();
            let inside = match parts[..] {
                [_, number, rest] if number.parse::<usize>().is_ok() => rest,
                [_, number] if number.parse::<usize>().is_ok() => "residual",
                _ => name,
            };
            *sums.entry(inside).or_default() += stage[key].as_f64().expect("a number");
        }
        sums.retain(|_, sum| *sum > 0.0);
        let is_chart = |svg: &&Element| svg.value("aria-label") == format!("Share of the {title}");
        let svgs = page.all("svg");
        let svg = svgs.iter().copied().find(|svg| is_chart(svg)).expect("a chart");
        let bars = bars(svg);
        assert_eq!(bars.len(), sums.len(), "{model}, {title}");
        let mut before = f64::INFINITY;
        for (label, text, length) in bars {
            let (what, sum) = (format!("{model}, {title} of {label}"), sums[&*label]);
            let (number, share) = text.split_once(" (").expect("a share");
            assert_short(&what, number, 1, sum);
            let share = share.trim_end_matches(')');
            match share.strip_prefix('<') {
                Some(limit) => assert!(100.0 * sum / total < parsed(limit), "{what}"),
                None => close(&what, parsed(share), 100.0 * sum / total, 0.0501),
            }
            // The shortest bar is 1.5 wide, so that it is seen.
            close(&what, length, sum / total, 0.0076);
            assert!(sum <= before, "{what} is not in its place");
            before = sum;
        }
    }
}
