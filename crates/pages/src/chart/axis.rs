//! Axes: what range they show, where their ticks stand, and the frame that two of them make.

use serde_json::{Value, json};

use super::drawing::{Drawing, Ink, number};
use super::{TEXT, WIDTH, text_width};

/// An axis: its title, and how its range follows from the numbers.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it measures, with the unit.
    pub title: String,
    /// Whether each step multiplies. Numbers of 0 and below are then left out.
    pub log: bool,
    /// The range to show; without one, that of the numbers.
    pub range: Option<(f64, f64)>,
    /// Whether the range reaches down to 0.
    pub from_zero: bool,
    /// Whether only whole numbers can be meant, as with epochs.
    pub whole: bool,
    /// Whether a little room is left beyond the outermost numbers, so that marks are not cut.
    pub room: bool,
}

/// A range of numbers that becomes a range of places.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    places: (f64, f64),
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Whether a number can be shown.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// The scale for these numbers; none where there are none.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>, places: (f64, f64), most: usize) -> Option<Scale> {
        let found = values.filter(|&value| self.shows(value)).fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        })?;
        let (mut low, mut high) =
            self.range.filter(|r| self.shows(r.0) && self.shows(r.1) && r.0 < r.1).unwrap_or(found);
        if self.room && self.range.is_none() {
            (low, high) = self.with_room(low, high);
        }
        if self.from_zero && !self.log {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if self.log {
            return Some(log_scale(low, high, places, most));
        }
        // Whole numbers tell a place only if there are two of them.
        if self.whole && high.floor() - low.ceil() < 1.0 {
            (low, high) = (low.floor(), high.ceil());
        }
        // A range of one number, or one so narrow that numbers can hardly tell its ends apart, is made wider.
        let least = low.abs().max(high.abs()) * 1e-9;
        if high - low <= least {
            let room = if self.whole { 1.0 } else { (low.abs() * 0.1).max(f64::MIN_POSITIVE * 1e9) };
            (low, high) = if low == 0.0 { (0.0, 1.0) } else { (low - room, high + room) };
        }
        // Halved first: the difference of two large numbers must not overflow.
        let step = nice_step((high / 2.0 - low / 2.0) / most as f64 * 4.0);
        let step = if self.whole { step.max(1.0) } else { step };
        let largest = low.abs().max(high.abs());
        let ticks = linear_ticks(low, high, step, most).map(|tick| (tick, tick_text(tick, step, largest))).collect();
        Some(Scale { low, high, log: false, places, ticks })
    }
}

impl Axis {
    fn with_room(&self, low: f64, high: f64) -> (f64, f64) {
        const SHARE: f64 = 0.04;
        let (wider_low, wider_high) = if self.log {
            let factor = (high / low).powf(SHARE);
            (low / factor, high * factor)
        } else {
            let room = SHARE * (high / 2.0 - low / 2.0) * 2.0;
            // What has no value below 0 gets no place there.
            (if low >= 0.0 { (low - room).max(0.0) } else { low - room }, high + room)
        };
        if self.shows(wider_low) && self.shows(wider_high) { (wider_low, wider_high) } else { (low, high) }
    }
}

impl Scale {
    /// For scripts, which place values as [`Scale::place`] does.
    pub(super) fn json(&self) -> Value {
        let (from, to) = self.places;
        json!({ "low": self.low, "high": self.high, "log": self.log, "from": from, "to": to })
    }

    /// The place of a number.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.log {
            // Differences of logarithms: the quotient of the largest and the smallest f64 would overflow.
            true => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
            false => (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0),
        };
        self.places.0 + share.clamp(-0.001, 1.001) * (self.places.1 - self.places.0)
    }
}

fn log_scale(mut low: f64, mut high: f64, places: (f64, f64), most: usize) -> Scale {
    if low == high {
        (low, high) = ((low / 2.0).max(f64::MIN_POSITIVE), (high * 2.0).min(f64::MAX));
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let digits = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let inside = |tick: &f64| *tick >= low * 0.999 && *tick <= high * 1.001;
    let mut ticks: Vec<(f64, f64)> = digits.filter(inside).map(|tick| (tick, tick)).collect();
    if ticks.len() > most {
        // Decades, and not all of them where there are very many.
        let every = (last - first) / most as i32 + 1;
        let decades = (first..=last).filter(|power| power % every == 0).map(|power| 10f64.powi(power));
        ticks = decades.filter(|tick| tick.is_normal()).map(|tick| (tick, tick)).collect();
        low = low.min(ticks.first().map_or(low, |tick| tick.0));
        high = high.max(ticks.last().map_or(high, |tick| tick.0));
    } else if ticks.len() < 3 {
        // Within one decade round numbers are as even as on a linear axis.
        let step = nice_step((high - low) / most as f64 * 2.0);
        ticks = linear_ticks(low, high, step, most).map(|tick| (tick, step)).collect();
    }
    let ticks = ticks.into_iter().map(|(tick, step)| (tick, tick_text(tick, step, tick))).collect();
    Scale { low, high, log: true, places, ticks }
}

fn linear_ticks(low: f64, high: f64, step: f64, most: usize) -> impl Iterator<Item = f64> {
    let first = (low / step).ceil();
    let ticks = (0..=2 * most).map(move |index| (first + index as f64) * step);
    ticks.take_while(move |&tick| tick <= high + step * 1e-6)
}

/// The next of 1, 2 and 5 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    let rough = rough.max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| digit <= nice * 1.000_001).unwrap_or(10.0);
    nice * power
}

/// A tick in as few characters as tell it from its neighbours. All ticks of an axis whose values go up to `largest` use the same
/// notation.
fn tick_text(tick: f64, step: f64, largest: f64) -> String {
    let large = largest.abs().max(step);
    if tick == 0.0 || tick.abs() < step * 1e-6 {
        return "0".to_string();
    }
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if large >= unit * 10.0 && large < 1e15 {
            return format!("{}{name}", tidy(tick / unit, step / unit));
        }
    }
    if !(2e-3..1e15).contains(&large) {
        let text = format!("{tick:.3e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    tidy(tick, step)
}

/// With the decimals that a step has.
fn tidy(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// The place between two axes.
pub(super) struct Frame {
    pub x: Scale,
    pub y: Scale,
    pub left: f64,
    pub right: f64,
    pub bottom: f64,
}

/// How high the plot itself is.
const PLOT: f64 = 220.0;

impl Frame {
    /// The frame for these numbers; none where there are none.
    pub(super) fn new(x: &Axis, y: &Axis, points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Frame> {
        let seen = points.filter(|&(a, b)| x.shows(a) && y.shows(b));
        let top = if y.title.is_empty() { 10.0 } else { 30.0 };
        let bottom = top + PLOT;
        let vertical = y.scale(seen.clone().map(|point| point.1), (bottom, top), 10)?;
        let widest = vertical.ticks.iter().map(|tick| text_width(&tick.1, TEXT)).fold(20.0, f64::max);
        let (left, right) = (widest + 14.0, WIDTH - 16.0);
        let horizontal = x.scale(seen.map(|point| point.0), (left, right), 12)?;
        Some(Frame { x: horizontal, y: vertical, left, right, bottom })
    }

    /// The vertical position below the axes and their titles.
    pub(super) fn below(&self, x: &Axis) -> f64 {
        self.bottom + if x.title.is_empty() { 30.0 } else { 50.0 }
    }

    /// The lines, ticks and titles.
    pub(super) fn draw(&self, drawing: &mut Drawing, x: &Axis, y: &Axis) {
        for (value, text) in &self.y.ticks {
            let place = self.y.place(*value);
            drawing.line([self.left, place], [self.right, place], &format!("stroke=\"{}\"", Ink::Line));
            drawing.text([self.left - 7.0, place + 5.0], "text-anchor=\"end\"", Ink::Soft, text);
        }
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in &self.x.ticks {
            let (place, half) = (self.x.place(*value), text_width(text, TEXT) / 2.0);
            drawing.line([place, self.bottom], [place, self.bottom + 5.0], &format!("stroke=\"{}\"", Ink::Soft));
            // Texts never touch: a tick without room keeps its line.
            if place - half > free_from && place + half < WIDTH {
                drawing.text([place, self.bottom + 20.0], "text-anchor=\"middle\"", Ink::Soft, text);
                free_from = place + half + 8.0;
            }
        }
        drawing.line([self.left, self.bottom], [self.right, self.bottom], &format!("stroke=\"{}\"", Ink::Soft));
        if !y.title.is_empty() {
            drawing.text([2.0, 16.0], "", Ink::Ink, &super::shorten(&y.title, WIDTH - 4.0, TEXT));
        }
        if !x.title.is_empty() {
            let title = super::shorten(&x.title, self.right - self.left, TEXT);
            let middle = [(self.left + self.right) / 2.0, self.bottom + 40.0];
            drawing.text(middle, "text-anchor=\"middle\"", Ink::Ink, &title);
        }
    }
}

/// The commands of a path from place to place.
pub(super) fn polyline(places: &[(f64, f64)]) -> String {
    let mut commands = String::with_capacity(places.len() * 10);
    for (index, (x, y)) in places.iter().enumerate() {
        commands.push_str(if index == 0 { "M" } else { "L" });
        commands.push_str(&number(*x));
        commands.push(' ');
        commands.push_str(&number(*y));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: Axis, values: &[f64]) -> Vec<String> {
        let scale = axis.scale(values.iter().copied(), (0.0, 100.0), 10).expect("numbers");
        scale.ticks.into_iter().map(|tick| tick.1).collect()
    }

    fn texts(ticks: &[&str]) -> Vec<String> {
        ticks.iter().map(|tick| tick.to_string()).collect()
    }

    #[test]
    fn the_smallest_and_the_largest_numbers_have_places() {
        let axis = Axis { log: true, ..Axis::default() };
        let scale = axis.scale([1e-320, 1e300].into_iter(), (0.0, 100.0), 10).expect("numbers");
        assert!((scale.place(1e-320) - 0.0).abs() < 0.2 && (scale.place(1e300) - 100.0).abs() < 0.2);
        assert!(scale.place(1.0) > 40.0 && scale.place(1.0) < 60.0);
    }

    #[test]
    fn ticks_stand_at_round_numbers() {
        assert_eq!(ticks(Axis::default(), &[0.0, 1.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let whole = |values: &[f64]| ticks(Axis { whole: true, ..Axis::default() }, values);
        assert_eq!((whole(&[1.0, 3.0]), whole(&[1.0, 2.0])), (texts(&["1", "2", "3"]), texts(&["1", "2"])));
        assert_eq!((whole(&[0.1, 0.9]), whole(&[1.0])), (texts(&["0", "1"]), texts(&["0", "1", "2"])));
        assert_eq!(ticks(Axis::default(), &[0.0, 50_000.0]), ["0", "10k", "20k", "30k", "40k", "50k"]);
        assert_eq!(ticks(Axis::default(), &[0.0, 5e-4]), ["0", "1e-4", "2e-4", "3e-4", "4e-4", "5e-4"]);
        assert_eq!(ticks(Axis { from_zero: true, ..Axis::default() }, &[90.0, 100.0]).first().expect("one"), "0");
    }

    #[test]
    fn log_ticks_are_decades_where_there_are_many() {
        let log = || Axis { log: true, ..Axis::default() };
        assert_eq!(
            ticks(log(), &[1e-5, 0.5, 3e3]),
            ["1e-5", "1e-4", "1e-3", "0.01", "0.1", "1", "10", "100", "1000", "10k"]
        );
        assert_eq!(ticks(log(), &[0.5, 3.0]), ["0.5", "1", "2"]);
        assert_eq!(ticks(log(), &[2.1, 2.4]), ["2.1", "2.2", "2.3", "2.4"]);
        assert!(!ticks(log(), &[2.3, 2.3]).is_empty());
        assert!(ticks(log(), &[1e-300, 1e300]).len() < 14);
    }

    #[test]
    fn ranges_that_cannot_be_divided_are_shown_all_the_same() {
        for values in [[0.0, 0.0], [5.0, 5.0], [-1e308, 1e308], [1e-310, 2e-310], [7.0, 7.0 + 1e-14]] {
            let scale = Axis::default().scale(values.into_iter(), (0.0, 100.0), 10).expect("numbers");
            for value in values {
                assert!((-1.0..=101.0).contains(&scale.place(value)), "{values:?}: {scale:?}");
            }
            assert!(scale.ticks.len() < 25, "{scale:?}");
        }
    }
}
