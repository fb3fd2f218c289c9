//! A window of a recording as a drawing: a time axis, the spectrogram, and a row for each word.

use vitreous_data::image::{Channels, Image, ImageError};

use super::WindowShown;
use crate::chart::{Drawing, Ink, shorten, text_width};
use crate::{colour, png_uri};

/// Frames of a spectrogram, and positions of attention, per second.
const FRAMES: f64 = 100.0;
const POSITIONS: f64 = 50.0;
/// Height of the spectrogram, of a row, and of the axis.
const SPECTROGRAM: f64 = 160.0;
const ROW: f64 = 20.0;
const AXIS: f64 = 22.0;
/// The room for the words' names.
const MOST_NAME: f64 = 130.0;
const NAME_TEXT: f64 = 13.0;
/// The width that short recordings are stretched to, and the least pixels per second of long ones.
const USUAL_WIDTH: f64 = 900.0;
const LEAST_SECOND: f64 = 60.0;

/// The drawing, in a box that scrolls where it is wide.
pub(super) fn drawing(window: &WindowShown, bins: usize) -> Result<String, ImageError> {
    let frames = window.mel.len() / bins.max(1);
    if frames == 0 {
        return Ok(String::new());
    }
    let seconds = frames as f64 / FRAMES;
    let scale = (USUAL_WIDTH / seconds).max(LEAST_SECOND);
    let names = window.words.iter().map(|word| text_width(word.text.trim(), NAME_TEXT)).fold(20.0, f64::max);
    let left = names.min(MOST_NAME) + 12.0;
    let (width, height) = (scale * seconds, AXIS + SPECTROGRAM + ROW * window.words.len() as f64 + 6.0);
    let place = |time: f64| left + scale * (time - window.start).clamp(0.0, seconds);
    let said: Vec<&str> = window.words.iter().map(|word| word.text.trim()).collect();
    let title = format!("From {:.1} to {:.1} s", window.start, window.start + seconds);
    let description = format!("A spectrogram, and where the decoder listened for each word: {}", said.join(" "));
    let mut drawing = Drawing::new(&title, &description, left + width + 20.0, height);
    axis(&mut drawing, window.start, seconds, height, &place);
    drawing.picture(&spectrogram(&window.mel, frames, bins)?, [left, AXIS], [width, SPECTROGRAM]);
    if window.words.is_empty() {
        return Ok(format!("<h3>{title}</h3><div class=\"scroll\">{}</div>", drawing.finish()));
    }
    let top = AXIS + SPECTROGRAM + 4.0;
    let positions = window.words.iter().map(|word| word.attention.len()).max().unwrap_or(0).max(1);
    let (rows, long) = (ROW * window.words.len() as f64, positions as f64 / POSITIONS * scale);
    drawing.picture(&attention(window, positions)?, [left, top], [long.min(width), rows]);
    for (index, word) in window.words.iter().enumerate() {
        let y = top + ROW * index as f64;
        let (from, to) = (place(word.start), place(word.end));
        let note =
            format!("{}: {:.2} to {:.2} s, {:.0} %", word.text.trim(), word.start, word.end, 100.0 * word.probability);
        drawing.noted(&note, |drawing| {
            let name = shorten(word.text.trim(), MOST_NAME, NAME_TEXT);
            let attributes = format!("text-anchor=\"end\" font-size=\"{NAME_TEXT}\"");
            drawing.text([left - 8.0, y + ROW * 0.72], &attributes, Ink::Ink, &name);
            // Dark under light, so that it is seen on every ground.
            let size = [(to - from).max(2.0), ROW - 3.0];
            drawing.rectangle([from, y + 1.5], size, "fill=\"none\" stroke=\"#00000090\" stroke-width=\"3\" rx=\"2\"");
            drawing.rectangle([from, y + 1.5], size, "fill=\"none\" stroke=\"#ffffff\" stroke-width=\"1.2\" rx=\"2\"");
        });
    }
    Ok(format!("<h3>{title}</h3><div class=\"scroll\">{}</div>", drawing.finish()))
}

/// Seconds above the spectrogram, with lines through the gaps between the pictures.
fn axis(drawing: &mut Drawing, start: f64, seconds: f64, height: f64, place: &dyn Fn(f64) -> f64) {
    let step = match seconds {
        0.0..2.0 => 0.2,
        2.0..6.0 => 0.5,
        6.0..15.0 => 1.0,
        _ => 2.0,
    };
    let first = (start / step).ceil() as i64;
    for tick in (first..).map(|count| count as f64 * step).take_while(|&tick| tick <= start + seconds + 1e-9) {
        let x = place(tick);
        drawing.line([x, AXIS - 5.0], [x, height - 2.0], &format!("stroke=\"{}\"", Ink::Line));
        let text = if step < 1.0 { format!("{tick:.1} s") } else { format!("{tick:.0} s") };
        drawing.text([x, AXIS - 9.0], "text-anchor=\"middle\" font-size=\"12\"", Ink::Soft, &text);
    }
}

/// Low frequencies at the bottom; the range of colours is that of the values.
fn spectrogram(mel: &[f32], frames: usize, bins: usize) -> Result<String, ImageError> {
    let (low, high) = mel.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
    let range = (high - low).max(1e-6);
    let mut pixels = Vec::with_capacity(frames * bins * 3);
    for bin in (0..bins).rev() {
        pixels.extend((0..frames).flat_map(|frame| colour::sequential((mel[frame * bins + bin] - low) / range)));
    }
    png_uri(&Image::new(frames, bins, Channels::Rgb, pixels)?)
}

/// A row for each word, relative to its largest value.
fn attention(window: &WindowShown, positions: usize) -> Result<String, ImageError> {
    let mut pixels = Vec::with_capacity(window.words.len() * positions * 3);
    for word in &window.words {
        let most = word.attention.iter().copied().fold(1e-12, f32::max);
        let share = |place: usize| word.attention.get(place).map_or(0.0, |weight| weight / most);
        pixels.extend((0..positions).flat_map(|place| colour::sequential(share(place))));
    }
    png_uri(&Image::new(positions, window.words.len(), Channels::Rgb, pixels)?)
}
