//! What charts show, read from their ticks, names and marks.

use super::page::{Element, close, parsed};

/// The colours of the smallest and the largest value of a map.
pub const DARKEST: [u8; 3] = [68, 1, 84];
pub const BRIGHTEST: [u8; 3] = [253, 231, 37];

/// An axis as its ticks tell it: a straight line through the outermost of them.
struct Ticks {
    ends: [(f64, f64); 2],
    is_log: bool,
}

impl Ticks {
    /// Of places and the texts beside them.
    fn new(ticks: Vec<(f64, String)>, is_log: bool) -> Ticks {
        let ticks: Vec<(f64, f64)> = ticks.iter().map(|(place, text)| (*place, parsed(text))).collect();
        assert!(ticks.len() >= 2, "an axis with {} ticks cannot be read", ticks.len());
        Ticks { ends: [ticks[0], ticks[ticks.len() - 1]], is_log }
    }

    /// Where a value belongs.
    fn place(&self, value: f64) -> f64 {
        let size = |value: f64| if self.is_log { value.ln() } else { value };
        let [(from, low), (to, high)] = self.ends;
        from + (to - from) * (size(value) - size(low)) / (size(high) - size(low))
    }
}

/// A chart with two axes.
pub struct Axes {
    x: Ticks,
    y: Ticks,
}

impl Axes {
    /// Reads the ticks of an `svg` element: those of the vertical axis end before it, those of the horizontal one stand under it.
    pub fn of(svg: &Element, log_y: bool) -> Axes {
        let ticks = |anchor: &str, place: fn(&Element) -> f64| -> Vec<(f64, String)> {
            let is_tick =
                |text: &&Element| text.get("fill") == Some("var(--soft)") && text.get("text-anchor") == Some(anchor);
            svg.all("text").into_iter().filter(is_tick).map(|text| (place(text), text.text())).collect()
        };
        let x = Ticks::new(ticks("middle", |text| text.number("x")), false);
        // A text stands five units below the middle of its tick.
        Axes { x, y: Ticks::new(ticks("end", |text| text.number("y") - 5.0), log_y) }
    }

    /// Panics unless a mark stands where the axes say that a point belongs.
    #[track_caller]
    pub fn at(&self, what: &str, mark: (f64, f64), point: (f64, f64)) {
        close(&format!("{what}, x of {point:?}"), mark.0, self.x.place(point.0), 0.6);
        close(&format!("{what}, y of {point:?}"), mark.1, self.y.place(point.1), 0.6);
    }
}

/// The places of a path of `M` and `L`.
pub fn places(path: &Element) -> Vec<(f64, f64)> {
    let pair = |text: &str| {
        let (x, y) = text.trim().split_once(' ').expect("two numbers");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    path.value("d").split(['M', 'L']).filter(|part| !part.is_empty()).map(pair).collect()
}

/// Panics unless a chart of curves has these series, in this order, each with its points: in its data, drawn on its axes, and
/// named beside a piece of line of the same colour.
#[track_caller]
pub fn assert_curves(title: &str, figure: &Element, expected: &[(&str, Vec<(f64, f64)>)]) {
    let (svg, data) = (figure.first("svg"), figure.json());
    assert_eq!(svg.value("aria-label"), title);
    let series = data["series"].as_array().expect("series");
    assert_eq!(series.iter().map(|one| one["name"].as_str().expect("a name")).collect::<Vec<_>>(), names(expected));
    let is_log = data["y"]["log"].as_bool().expect("a flag");
    let axes = Axes::of(svg, is_log);
    for (index, (one, (name, points))) in series.iter().zip(expected).enumerate() {
        let what = format!("{title}, {name}");
        let of = |axis: &str| one[axis].as_array().expect("numbers").iter().map(|n| n.as_f64().expect("a number"));
        let shown: Vec<(f64, f64)> = of("x").zip(of("y")).collect();
        assert_eq!(shown.len(), points.len(), "{what}");
        for (shown, point) in shown.iter().zip(points) {
            close(&format!("{what}, x"), shown.0, point.0, 1e-5 * point.0.abs());
            close(&format!("{what}, y"), shown.1, point.1, 1e-5 * point.1.abs());
        }
        let paths: Vec<&Element> = svg.all("path");
        let drawn = paths.iter().find(|path| path.get("data-series") == Some(&index.to_string()));
        let colour = one["colour"].as_str().expect("a colour");
        if points.len() > 1 {
            let drawn = drawn.unwrap_or_else(|| panic!("{what} is not drawn"));
            assert_eq!(drawn.value("stroke"), colour, "{what}");
            let places = places(drawn);
            assert_eq!(places.len(), points.len(), "{what}");
            for (place, point) in places.iter().zip(points) {
                axes.at(&what, *place, *point);
                close(&format!("{what}, for the script"), place.1, scripted(&data["y"], point.1), 0.11);
                close(&format!("{what}, for the script"), place.0, scripted(&data["x"], point.0), 0.11);
            }
        }
        if expected.len() > 1 {
            assert_eq!(key_of(svg, name), colour, "{what}: its colour in the key");
        }
    }
}

fn names<'n>(series: &[(&'n str, Vec<(f64, f64)>)]) -> Vec<&'n str> {
    series.iter().map(|one| one.0).collect()
}

/// Where the page's script puts a value.
fn scripted(axis: &serde_json::Value, value: f64) -> f64 {
    let of = |key: &str| axis[key].as_f64().expect("a number");
    let (low, high) = (of("low"), of("high"));
    let share = match axis["log"].as_bool().expect("a flag") {
        true => (value / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    };
    of("from") + share * (of("to") - of("from"))
}

/// The colour of the piece of line before a name in the key of a chart.
fn key_of<'s>(svg: &'s Element, name: &str) -> &'s str {
    let elements = svg.inside();
    let text = elements.iter().position(|element| element.name == "text" && element.text() == name).expect("a name");
    let is_line = |element: &&&Element| element.name == "path" && element.get("stroke-width") == Some("2");
    elements[..text].iter().rev().find(is_line).expect("a line").value("stroke")
}

/// A cell of a heat map: the names of its row and column by where it stands, its tooltip, its text and its colour.
pub struct DrawnCell {
    pub row: String,
    pub column: String,
    pub note: String,
    pub text: String,
    pub colour: [u8; 3],
}

/// The cells of a heat map of few cells.
pub fn cells(svg: &Element) -> Vec<DrawnCell> {
    let name = |is_row: bool| -> Vec<&Element> {
        let is_name = |text: &&Element| match text.get("text-anchor") {
            Some("end") => is_row,
            Some("middle") => !is_row,
            _ => !is_row && text.get("transform").is_some(),
        };
        let names = svg.children().filter(|child| child.name == "text" && child.get("font-size") == Some("12"));
        names.filter(is_name).collect()
    };
    let (rows, columns) = (name(true), name(false));
    let nearest = |names: &[&Element], axis: &str, place: f64| {
        let far = |name: &&&Element| (name.number(axis) - place).abs();
        names.iter().min_by(|a, b| far(a).total_cmp(&far(b))).expect("names").text()
    };
    let groups = svg.children().filter(|child| child.name == "g");
    let cell = |group: &Element| {
        let rectangle = group.first("rect");
        let middle = |axis: &str, size: &str| rectangle.number(axis) + rectangle.number(size) / 2.0;
        DrawnCell {
            row: nearest(&rows, "y", middle("y", "height") + 4.0),
            column: nearest(&columns, "x", middle("x", "width")),
            note: group.first("title").text(),
            text: group.all("text").first().map(|text| text.text()).unwrap_or_default(),
            colour: colour(rectangle.value("fill")),
        }
    };
    groups.map(cell).collect()
}

/// A colour as CSS writes it.
pub fn colour(hex: &str) -> [u8; 3] {
    [1, 3, 5].map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour"))
}

/// How light a colour of a map is. It grows with the value.
pub fn lightness([red, green, blue]: [u8; 3]) -> f64 {
    0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue)
}

/// Panics unless colours grow with values, from the darkest at the smallest to the brightest at the largest.
#[track_caller]
pub fn assert_colours_follow(what: &str, colours: &[[u8; 3]], values: &[f64]) {
    assert_eq!(colours.len(), values.len(), "{what}");
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let light: Vec<f64> = order.iter().map(|&place| lightness(colours[place])).collect();
    assert!(light.is_sorted_by(|a, b| a <= &(b + 0.5)), "{what}: {light:?} for {values:?}");
    let (low, high) = (order[0], order[order.len() - 1]);
    assert_eq!((colours[low], colours[high]), (DARKEST, BRIGHTEST), "{what}: at the ends");
}

/// The bars of a chart: label, text, and length as a share of the full length.
pub fn bars(svg: &Element) -> Vec<(String, String, f64)> {
    let bar = |group: &Element| {
        let (rectangles, texts) = (group.all("rect"), group.all("text"));
        let length = rectangles[1].number("width") / rectangles[0].number("width");
        let text = texts[texts.len() - 1].text();
        let label = texts[..texts.len() - 1].iter().map(|text| text.text()).collect::<Vec<_>>().join(" ");
        (label, text, length)
    };
    svg.children().filter(|child| child.name == "g").map(bar).collect()
}
