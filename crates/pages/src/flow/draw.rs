//! The picture drawn.

use crate::chart::{Drawing, Ink, shorten, text_width};
use crate::colour::CATEGORIES;
use vitreous_engine::Shape;

use super::FlowNotes;
use super::place::{BOX, FRAME, Frame, JOINING, LINE, Link, Placed, SIDE, SMALL, Slot, TRUNK, WIDTH};
use super::steps::{Detail, Edge};
use super::words;
use crate::folding::name_inside;
use crate::format;

const MONO: &str = "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\"";

/// What all steps have together.
struct Totals {
    parameters: f64,
    flops: f64,
}

/// The picture of a model.
pub fn draw(notes: &FlowNotes, placed: &Placed) -> String {
    let totals = Totals {
        parameters: placed.slots.iter().map(|slot| (slot.count * slot.step.inside.parameters) as f64).sum(),
        flops: placed.slots.iter().map(|slot| slot.count as f64 * slot.step.inside.flops as f64).sum(),
    };
    let end = placed.bottom + 32.0;
    let title = "Data flow from images to the model's output";
    let mut drawing = Drawing::new(title, &description(placed), WIDTH, end + 42.0).class("flow");
    for frame in &placed.frames {
        draw_frame(&mut drawing, frame, &totals);
    }
    draw_links(&mut drawing, placed);
    for (index, slot) in placed.slots.iter().enumerate() {
        drawing.group(&step_values(index, slot), |drawing| match slot.step.inside.is_residual() {
            true => draw_sum(drawing, slot),
            false => draw_box(drawing, slot, &totals),
        });
        draw_joining(&mut drawing, notes, index, slot);
        draw_patches(&mut drawing, slot);
    }
    draw_end(&mut drawing, notes, placed, end);
    drawing.finish()
}

/// What is drawn, as data: the attributes of a step's group. Texts round and shorten; these do not.
fn step_values(index: usize, slot: &Slot) -> String {
    let inside = &slot.step.inside;
    format!(
        "class=\"step\" data-step=\"{index}\" data-stage=\"{}\" data-repeats=\"{}\" data-shape=\"{}\" data-parameters=\"{}\" \
         data-flops=\"{}\"",
        slot.step.stage,
        slot.count,
        shape_data(&inside.shape),
        inside.parameters,
        inside.flops
    )
}

/// The attributes of an arrow's group: from which step to which, and the shape of each value that it carries.
fn edge_values(from: usize, to: &str, shapes: &[&Shape]) -> String {
    let shapes: Vec<String> = shapes.iter().map(|shape| shape_data(shape)).collect();
    format!("class=\"edge\" data-from=\"{from}\" data-to=\"{to}\" data-shapes=\"{}\"", shapes.join(" "))
}

/// `1x197x768`.
fn shape_data(shape: &Shape) -> String {
    shape.axes().iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// The shapes of some edges, each as often as there are values of it.
fn shapes_of<'e>(edges: &[&'e Edge]) -> Vec<&'e Shape> {
    edges.iter().flat_map(|edge| std::iter::repeat_n(&edge.shape, edge.values)).collect()
}

/// The text alternative: each step with its shape.
fn description(placed: &Placed) -> String {
    let step = |slot: &Slot| {
        let name = name_inside(&slot.step.stage);
        let times = if slot.count > 1 { format!(" ({} times)", slot.count) } else { String::new() };
        format!("{name}{times}: {}", shape_text(&slot.step.inside.shape))
    };
    format!("From top to bottom: {}.", placed.slots.iter().map(step).collect::<Vec<_>>().join("; "))
}

fn shape_text(shape: &Shape) -> String {
    shape.axes().iter().map(usize::to_string).collect::<Vec<_>>().join(" \u{d7} ")
}

fn edge_text(edge: &Edge) -> String {
    match edge.values {
        1 => shape_text(&edge.shape),
        values => format!("{values} of {}", shape_text(&edge.shape)),
    }
}

fn draw_box(drawing: &mut Drawing, slot: &Slot, totals: &Totals) {
    let inside = &slot.step.inside;
    let name = name_inside(&slot.step.stage);
    let fill = if matches!(name, "attention" | "mlp") { Ink::AccentSoft } else { Ink::Card };
    let [left, right] = BOX;
    let outline = format!("rx=\"8\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.2\"", Ink::Soft);
    drawing.rectangle([left, slot.top], [right - left, slot.height], &outline);
    let mut y = slot.top + 21.0;
    drawing.text([left + 12.0, y], &format!("{MONO} font-weight=\"700\""), Ink::Ink, name);
    y += 1.0;
    for line in &slot.caption {
        y += LINE;
        drawing.text([left + 12.0, y], &format!("font-size=\"{SMALL}\""), Ink::Ink, line);
    }
    y += 2.0;
    let measures = [
        ("parameters", inside.parameters as f64, totals.parameters, CATEGORIES[0]),
        ("FLOPs", inside.flops as f64, totals.flops, CATEGORIES[1]),
    ];
    for (label, value, total, colour) in measures.into_iter().filter(|measure| measure.1 > 0.0) {
        y += 18.0;
        draw_measure(drawing, y, slot.count, (label, value, total, colour));
    }
}

/// A number with its share of the model's: `parameters  ====  12 x 2.36 M  32.7%`.
fn draw_measure(drawing: &mut Drawing, y: f64, count: usize, measure: (&str, f64, f64, &str)) {
    let (label, value, total, colour) = measure;
    let size = format!("font-size=\"{SMALL}\"");
    let end = format!("{size} text-anchor=\"end\"");
    let (left, width) = (BOX[0] + 92.0, 56.0);
    let share = value * count as f64 / total;
    drawing.text([BOX[0] + 12.0, y], &size, Ink::Soft, label);
    drawing.rectangle([left, y - 7.0], [width, 5.0], &format!("rx=\"2.5\" fill=\"{}\"", Ink::Line));
    drawing.rectangle([left, y - 7.0], [(width * share).max(1.0), 5.0], &format!("rx=\"2.5\" fill=\"{colour}\""));
    let number = match count {
        1 => format::short(value),
        _ => format!("{count} \u{d7} {}", format::short(value)),
    };
    drawing.text([BOX[1] - 58.0, y], &end, Ink::Ink, &number);
    drawing.text([BOX[1] - 10.0, y], &end, Ink::Soft, &format::share(share));
}

/// A residual sum: a plus on the line.
fn draw_sum(drawing: &mut Drawing, slot: &Slot) {
    let (y, radius) = (slot.top + slot.height / 2.0, slot.height / 2.0);
    let outline = format!("fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"", Ink::Card, Ink::Ink);
    drawing.disc([TRUNK, y], radius, &outline);
    let stroke = format!("stroke=\"{}\" stroke-width=\"2\"", Ink::Ink);
    drawing.line([TRUNK - 6.0, y], [TRUNK + 6.0, y], &stroke);
    drawing.line([TRUNK, y - 6.0], [TRUNK, y + 6.0], &stroke);
    let room = FRAME[1] - TRUNK - radius - 16.0;
    let lines = two_lines(&slot.caption.join(" "), room);
    let first = y + 4.5 - LINE / 2.0 * (lines.len() - 1) as f64;
    for (index, line) in lines.iter().enumerate() {
        let at = [TRUNK + radius + 8.0, first + LINE * index as f64];
        drawing.text(at, &format!("font-size=\"{SMALL}\""), Ink::Soft, line);
    }
}

/// A short text in one line, or cut at its comma.
fn two_lines(text: &str, width: f64) -> Vec<String> {
    match text.split_once(", ") {
        Some((first, second)) if text_width(text, SMALL) > width => vec![format!("{first},"), second.to_string()],
        _ => vec![text.to_string()],
    }
}

/// The frame of a block, with its name.
fn draw_frame(drawing: &mut Drawing, frame: &Frame, totals: &Totals) {
    let outline = format!("rx=\"12\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"", Ink::Paper, Ink::Line);
    drawing.rectangle([FRAME[0], frame.top], [FRAME[1] - FRAME[0], frame.bottom - frame.top], &outline);
    let (block, count) = (frame.fold.block.unwrap_or_default(), frame.fold.repeats.len());
    let (scope, first) = block.rsplit_once('.').unwrap_or((block, "0"));
    let last = first.parse::<usize>().unwrap_or(0) + count - 1;
    let name = if count > 1 { format!("{scope}.{first} \u{2026} {last}") } else { block.to_string() };
    drawing.text([FRAME[0] + 12.0, frame.top + 19.0], &format!("{MONO} font-size=\"13\""), Ink::Soft, &name);
    if count == 1 {
        return;
    }
    let values = format!("class=\"block\" data-block=\"{block}\" data-repeats=\"{count}\"");
    drawing.group(&values, |drawing| draw_repeats(drawing, frame, count, totals));
}

/// How often the block repeats, and what one and all of them have.
fn draw_repeats(drawing: &mut Drawing, frame: &Frame, count: usize, totals: &Totals) {
    let parameters: f64 = frame.fold.first().iter().map(|step| step.inside.parameters as f64).sum();
    let flops: f64 = frame.fold.first().iter().map(|step| step.inside.flops as f64).sum();
    let share = |one: f64, total: f64| format::share(one * count as f64 / total);
    let bracket = format!("M{0} {1}h1q4 0 4 4V{2}q0 4 -4 4h-1", SIDE[0] - 5.0, frame.top + 4.0, frame.bottom - 8.0);
    drawing.path(&bracket, &format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"", Ink::Soft));
    let x = SIDE[0] + 6.0;
    let mut y = (frame.top + frame.bottom) / 2.0 - 70.0;
    drawing.text([x, y], "font-size=\"22\" font-weight=\"700\"", Ink::Accent, &format!("\u{d7} {count}"));
    let lines = [
        ("each", 26.0),
        (&format::short(parameters), 17.0),
        ("parameters", 15.0),
        (&format::short(flops), 20.0),
        ("FLOPs", 15.0),
        ("all", 28.0),
        (&share(parameters, totals.parameters), 17.0),
        ("parameters", 15.0),
        (&share(flops, totals.flops), 20.0),
        ("FLOPs", 15.0),
    ];
    for (text, step) in lines {
        y += step;
        let is_number = text.starts_with(|letter: char| letter.is_ascii_digit());
        let (ink, weight) = if is_number { (Ink::Ink, " font-weight=\"600\"") } else { (Ink::Soft, "") };
        drawing.text([x, y], &format!("font-size=\"{SMALL}\"{weight}"), ink, text);
    }
}

/// Arrows: down the trunk with the shapes that they carry, and around the side where steps are passed over.
fn draw_links(drawing: &mut Drawing, placed: &Placed) {
    let stroke = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"", Ink::Ink);
    for to in 1..placed.slots.len() {
        let direct: Vec<&Link> = placed.links.iter().filter(|link| link.to == to && link.from + 1 == to).collect();
        if direct.is_empty() {
            continue;
        }
        let mut edges: Vec<&Edge> = direct.iter().map(|link| link.edge).collect();
        edges.sort_by_key(|edge| std::cmp::Reverse(edge.shape.elements()));
        let values = edge_values(to - 1, &to.to_string(), &shapes_of(&edges));
        let (from, to) = (&placed.slots[to - 1], &placed.slots[to]);
        let bottom = from.top + from.height;
        let text = edges.into_iter().map(edge_text).collect::<Vec<_>>().join(" and ");
        // Where a frame ends in between, the shape is written below it.
        let ends = placed.frames.iter().map(|frame| frame.bottom).find(|&end| end > bottom && end < to.top);
        drawing.group(&values, |drawing| {
            drawing.line([TRUNK, bottom], [TRUNK, to.top - 4.0], &stroke);
            arrow_head(drawing, [TRUNK, to.top], [0.0, 1.0]);
            draw_shape(drawing, ends.unwrap_or(bottom), &text);
        });
    }
    let mut lanes: Vec<usize> = Vec::new();
    let around: Vec<&Link> = placed.links.iter().filter(|link| link.from + 1 < link.to).collect();
    for link in around {
        // The first lane that is free again where this one begins.
        let lane = lanes.iter().position(|&busy_until| busy_until <= link.from).unwrap_or(lanes.len());
        match lanes.get_mut(lane) {
            Some(busy_until) => *busy_until = link.to,
            None => lanes.push(link.to),
        }
        let values = edge_values(link.from, &link.to.to_string(), &shapes_of(&[link.edge]));
        drawing.group(&values, |drawing| draw_around(drawing, placed, link, lane, &stroke));
    }
}

/// The shape of the value that an arrow carries.
fn draw_shape(drawing: &mut Drawing, bottom: f64, text: &str) {
    let text = shorten(text, WIDTH - TRUNK - 10.0, SMALL);
    drawing.text([TRUNK + 10.0, bottom + 15.0], &format!("font-size=\"{SMALL}\""), Ink::Soft, &text);
}

fn draw_around(drawing: &mut Drawing, placed: &Placed, link: &Link, lane: usize, stroke: &str) {
    let (source, target) = (&placed.slots[link.from], &placed.slots[link.to]);
    let leaves = placed.slots[link.from + 1].top - 12.5;
    let arrives = target.top + target.height / 2.0;
    let x = 26.0 - 10.0 * lane as f64;
    let side = if target.step.inside.is_residual() { TRUNK - target.height / 2.0 } else { BOX[0] };
    let path = format!(
        "M{TRUNK} {0:.1}V{leaves:.1}H{1:.1}q-8 0 -8 8V{2:.1}q0 8 8 8H{3:.1}",
        source.top + source.height,
        x + 8.0,
        arrives - 8.0,
        side - 5.0
    );
    drawing.path(&path, &format!("class=\"around\" {stroke}"));
    drawing.disc([TRUNK, leaves], 3.0, &format!("fill=\"{}\"", Ink::Ink));
    arrow_head(drawing, [side, arrives], [1.0, 0.0]);
}

/// The head of an arrow, with its point here and in this direction (along an axis).
fn arrow_head(drawing: &mut Drawing, [x, y]: [f64; 2], [right, down]: [f64; 2]) {
    let (back_x, back_y) = (x - 8.0 * right, y - 8.0 * down);
    let (side_x, side_y) = (4.5 * down, 4.5 * right);
    let path = format!(
        "M{x:.1} {y:.1}L{:.1} {:.1}L{:.1} {:.1}Z",
        back_x + side_x,
        back_y + side_y,
        back_x - side_x,
        back_y - side_y
    );
    drawing.path(&path, &format!("fill=\"{}\"", Ink::Ink));
}

/// Tables and tokens that join from the side.
fn draw_joining(drawing: &mut Drawing, notes: &FlowNotes, step: usize, slot: &Slot) {
    let inside = &slot.step.inside;
    if inside.is_residual() {
        return;
    }
    let all = inside.joining.len() as f64 * (JOINING[0] + JOINING[1]) - JOINING[1];
    let mut top = slot.top + (slot.height - all) / 2.0;
    for value in &inside.joining {
        let values = format!(
            "class=\"joining\" data-step=\"{step}\" data-name=\"{}\" data-shape=\"{}\" data-trained=\"{}\"",
            value.name,
            shape_data(&value.shape),
            value.trained
        );
        drawing.group(&values, |drawing| draw_side(drawing, words::joining(notes, value), &value.shape, top));
        top += JOINING[0] + JOINING[1];
    }
}

/// A box at the side, with its arrow: a name, a shape, and what kind of value it is.
fn draw_side(drawing: &mut Drawing, [name, kind]: [String; 2], shape: &Shape, top: f64) {
    let outline = format!("rx=\"8\" fill=\"{}\" stroke=\"{}\" stroke-dasharray=\"4 3\"", Ink::Card, Ink::Soft);
    let width = SIDE[1] - SIDE[0];
    drawing.rectangle([SIDE[0], top], [width, JOINING[0]], &outline);
    let middle = SIDE[0] + width / 2.0;
    let lines = [(name, Ink::Ink, " font-weight=\"600\""), (shape_text(shape), Ink::Ink, ""), (kind, Ink::Soft, "")];
    for (index, (text, ink, weight)) in lines.iter().enumerate() {
        let attributes = format!("text-anchor=\"middle\" font-size=\"12\"{weight}");
        let at = [middle, top + 16.0 + 16.0 * index as f64];
        drawing.noted(text, |drawing| drawing.text(at, &attributes, *ink, &shorten(text, width, 12.0)));
    }
    let y = top + JOINING[0] / 2.0;
    drawing.line([SIDE[0], y], [BOX[1] + 5.0, y], &format!("stroke=\"{}\" stroke-width=\"1.5\"", Ink::Ink));
    arrow_head(drawing, [BOX[1], y], [-1.0, 0.0]);
}

/// The image as it is cut, beside the step that cuts it, where its patches can be told apart.
fn draw_patches(drawing: &mut Drawing, slot: &Slot) {
    let cut = slot.step.inside.details.iter().find_map(|detail| match detail {
        Detail::Patches { grid, patch } => Some((*grid, *patch)),
        _ => None,
    });
    let Some(([rows, columns], patch)) = cut else { return };
    let image = [rows * patch[0], columns * patch[1]].map(|side| side as f64);
    let longest = image[0].max(image[1]);
    if rows.max(columns) > 24 {
        return;
    }
    let (height, width) = (66.0 * image[0] / longest, 66.0 * image[1] / longest);
    let left = (SIDE[0] + SIDE[1] - width) / 2.0;
    let top = slot.top + (slot.height - height) / 2.0;
    let mut lines = String::new();
    for row in 0..=rows {
        lines.push_str(&format!("M{left:.1} {:.1}h{width:.1}", top + height * row as f64 / rows as f64));
    }
    for column in 0..=columns {
        lines.push_str(&format!("M{:.1} {top:.1}v{height:.1}", left + width * column as f64 / columns as f64));
    }
    drawing.rectangle([left, top], [width, height], &format!("fill=\"{}\"", Ink::AccentSoft));
    let thickness = if rows.max(columns) > 10 { 0.5 } else { 1.0 };
    drawing.path(&lines, &format!("stroke=\"{}\" stroke-width=\"{thickness}\"", Ink::Accent));
}

/// The output.
fn draw_end(drawing: &mut Drawing, notes: &FlowNotes, placed: &Placed, top: f64) {
    let Some(last) = placed.slots.last() else { return };
    let shape = &last.step.inside.shape;
    drawing.group(&edge_values(placed.slots.len() - 1, "output", &[shape]), |drawing| {
        let stroke = format!("stroke=\"{}\" stroke-width=\"1.5\"", Ink::Ink);
        drawing.line([TRUNK, placed.bottom], [TRUNK, top - 4.0], &stroke);
        arrow_head(drawing, [TRUNK, top], [0.0, 1.0]);
        draw_shape(drawing, placed.bottom, &shape_text(shape));
    });
    drawing.rectangle([TRUNK - 70.0, top], [140.0, 34.0], &format!("rx=\"17\" fill=\"{}\"", Ink::Accent));
    let name = notes.output;
    let attributes = "text-anchor=\"middle\" font-weight=\"700\"";
    drawing.text([TRUNK, top + 22.0], attributes, Ink::Card, name);
}
