//! Every kind of chart on one page, on stdout: `cargo run -p vitreous-pages --example charts > charts.html`.

use vitreous_pages::Document;
use vitreous_pages::chart::{Bars, Cell, ConfidenceBin, Dots, Lines, Matrix, Reliability};

const CLASSES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

fn main() {
    let mut page = Document::new("Charts");
    page.lead("<p>Numbers made up to try every kind of chart.</p>");
    page.section("lines", "Lines", &format!("<div class=\"columns\">{}{}{}{}</div>", loss(), rate(), many(), point()));
    page.section("bars", "Bars", &bars());
    page.section("dots", "Dots", &dots());
    page.section(
        "matrix",
        "Matrix",
        &format!("<div class=\"columns\">{}{}{}</div>", matrix(10), matrix(100), gradients()),
    );
    page.section("reliability", "Reliability", &reliability());
    page.section("empty", "Nothing", &Lines::new("nothing").svg());
    print!("{}", page.finish());
}

fn curve(from: f64, to: f64, points: usize, noise: f64) -> Vec<(f64, f64)> {
    let value = |i: usize| {
        let share = i as f64 / points as f64;
        to + (from - to) * (-4.0 * share).exp() + noise * ((i * 7919 % 1000) as f64 / 1000.0 - 0.5)
    };
    (1..=points).map(|i| (i as f64, value(i))).collect()
}

fn loss() -> String {
    let chart = Lines::new("Loss").x("epoch").y("loss (cross-entropy, nats)").whole_x();
    chart.series("train", &curve(2.3, 0.5, 30, 0.02)).series("validation", &curve(2.2, 0.7, 30, 0.1)).svg()
}

fn rate() -> String {
    Lines::new("Learning rate")
        .x("step")
        .y("learning rate")
        .log_y()
        .series("rate", &curve(1e-3, 1e-6, 100_000, 0.0))
        .svg()
}

fn many() -> String {
    let chart = Lines::new("Gradient norm").x("step").y("gradient norm").log_y();
    (0..9)
        .fold(chart, |chart, layer| {
            chart.series(&format!("blocks.{layer}"), &curve(2.0 + layer as f64, 0.1 * (layer + 1) as f64, 2000, 0.05))
        })
        .svg()
}

fn point() -> String {
    Lines::new("Accuracy")
        .x("epoch")
        .y("accuracy (%)")
        .whole_x()
        .series("test", &[(1.0, 43.2)])
        .series("train", &[])
        .svg()
}

fn bars() -> String {
    let chart = Bars::new("Scores").full(1.0).strong_bar("cat", 0.713, "71.3%").bar("dog", 0.2, "20.0%");
    chart
        .bar("an animal with quite a long name, in Latin and in English", 0.08, "8.0%")
        .bar("ship", 0.001, "0.1%")
        .svg()
}

fn dots() -> String {
    let chart = Dots::new("Mean attention distance").x("layer").y("mean attention distance (pixels)").dot("head");
    (0..12)
        .fold(chart.with_means(), |chart, layer| {
            let heads: Vec<f64> =
                (0..12).map(|head| 20.0 + 7.0 * f64::from(layer.max(head)) + f64::from(head)).collect();
            chart.column(&heads)
        })
        .svg()
}

fn matrix(classes: usize) -> String {
    let name = |class: usize| CLASSES.get(class).map_or_else(|| format!("class {class}"), ToString::to_string);
    let names: Vec<String> = (0..classes).map(name).collect();
    let count = |row: usize, column: usize| if row == column { 850 - 3 * row } else { (row * 37 + column * 91) % 40 };
    let chart =
        Matrix::new("Confusion").axes("true class", "predicted class").columns(&names).scale("0%", "100% of a row");
    let row = |row: usize| {
        let cell = |column: usize| {
            let count = count(row, column);
            let note = format!("{} taken for {}: {count}", names[row], names[column]);
            Cell::new(count as f32 / 1000.0).text(&count.to_string()).note(&note)
        };
        (0..classes).map(cell).collect()
    };
    (0..classes).fold(chart, |chart, index| chart.row(&names[index], row(index))).svg()
}

fn gradients() -> String {
    let names: Vec<String> = (1..=30).map(|epoch| epoch.to_string()).collect();
    let chart = Matrix::new("Gradient norms").axes("layer", "epoch").columns(&names).flat().scale("1e-3", "10");
    (0..12)
        .fold(chart, |chart, layer| {
            let cells = (0..30).map(|epoch| Cell::new((layer * epoch) as f32 / 330.0)).collect();
            chart.row(&format!("blocks.{layer}"), cells)
        })
        .svg()
}

fn reliability() -> String {
    (0..15)
        .fold(Reliability::new("Calibration"), |chart, index| {
            let (low, high) = (f64::from(index) / 15.0, f64::from(index + 1) / 15.0);
            let confidence = (low + high) / 2.0;
            chart.bin(ConfidenceBin {
                low,
                high,
                confidence,
                accuracy: confidence.powf(1.3),
                count: 10 + 9 * (index * index) as u64,
            })
        })
        .svg()
}
