//! The layout of the drawing: where each step is drawn.

use crate::chart::text_width;

use super::FlowNotes;
use super::steps::{Edge, FlowStep};
use super::words::caption;
use crate::folding::{Fold, fold};

/// The picture's width. A phone shows it at eight tenths, and its smallest text can still be read.
pub const WIDTH: f64 = 440.0;
/// The left and right sides of boxes, and the line that the data follows.
pub const BOX: [f64; 2] = [42.0, 334.0];
/// See [`BOX`].
pub const TRUNK: f64 = 188.0;
/// The left and right sides of the frame around a block.
pub const FRAME: [f64; 2] = [6.0, 344.0];
/// The left and right sides of what is drawn beside boxes.
pub const SIDE: [f64; 2] = [352.0, 438.0];
/// The height of small text.
pub const SMALL: f64 = 12.5;
/// The distance of its lines.
pub const LINE: f64 = 16.0;
/// The height of something that joins from the side, and of the room between two of them.
pub const JOINING: [f64; 2] = [54.0, 6.0];

/// Between two steps: room for an arrow and a shape.
const GAP: f64 = 32.0;
/// Above the first step in a block: room for the block's name too.
const HEADER: f64 = 32.0;

/// Below the last step in a block.
const FOOTER: f64 = 14.0;

/// A step in its place.
pub struct Slot<'a> {
    pub step: &'a FlowStep,
    /// How many blocks it stands for.
    pub count: usize,
    /// The lines under its name.
    pub caption: Vec<String>,
    pub top: f64,
    pub height: f64,
}

/// A frame around the slots of a block.
pub struct Frame<'a> {
    pub fold: Fold<'a, FlowStep>,
    pub top: f64,
    pub bottom: f64,
}

/// An edge between slots.
pub struct Link<'a> {
    pub from: usize,
    pub to: usize,
    pub edge: &'a Edge,
}

/// All of the picture.
pub struct Placed<'a> {
    pub slots: Vec<Slot<'a>>,
    pub frames: Vec<Frame<'a>>,
    pub links: Vec<Link<'a>>,
    pub bottom: f64,
}

/// Folds the steps and places them.
pub fn place<'a>(notes: &FlowNotes, steps: &'a [FlowStep]) -> Placed<'a> {
    let mut placed = Placed { slots: Vec::new(), frames: Vec::new(), links: Vec::new(), bottom: 2.0 };
    // Which slot stands for a step: those of blocks that are folded away share the first block's.
    let mut slot_of = Vec::with_capacity(steps.len());
    for fold in fold(steps, |step| &step.stage, |step| &step.inside) {
        let first_slot = placed.slots.len();
        let frame_top = placed.bottom + GAP - 10.0;
        if fold.block.is_some() {
            placed.bottom += HEADER;
        }
        for repeat in &fold.repeats {
            slot_of.extend((0..repeat.len()).map(|offset| first_slot + offset));
        }
        for step in fold.first() {
            placed.add(notes, step, fold.repeats.len());
        }
        if fold.block.is_some() {
            placed.bottom += FOOTER;
            placed.frames.push(Frame { fold, top: frame_top, bottom: placed.bottom });
        }
    }
    placed.link(steps, &slot_of);
    placed
}

impl<'a> Placed<'a> {
    fn add(&mut self, notes: &FlowNotes, step: &'a FlowStep, count: usize) {
        let caption = wrapped(&caption(notes, step), BOX[1] - BOX[0] - 22.0);
        let top = if self.slots.is_empty() { self.bottom } else { self.bottom + GAP };
        let height = if step.inside.is_residual() { 26.0 } else { box_height(step, caption.len()) };
        self.bottom = top + height;
        self.slots.push(Slot { step, count, caption, top, height });
    }

    fn link(&mut self, steps: &'a [FlowStep], slot_of: &[usize]) {
        for (index, step) in steps.iter().enumerate() {
            // Steps that are folded away have the links of the one that is drawn.
            if !std::ptr::eq(self.slots[slot_of[index]].step, step) {
                continue;
            }
            for edge in &step.inside.inputs {
                self.links.push(Link { from: slot_of[index - edge.back], to: slot_of[index], edge });
            }
        }
    }
}

fn box_height(step: &FlowStep, caption_lines: usize) -> f64 {
    let measures = usize::from(step.inside.parameters > 0) + usize::from(step.inside.flops > 0);
    let text = 28.0 + LINE * caption_lines as f64 + 18.0 * measures as f64 + 8.0;
    let joining = step.inside.joining.len() as f64;
    text.max(joining * JOINING[0] + (joining - 1.0) * JOINING[1])
}

/// A text in as few lines of at most this width as can be, and those of about the same length.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let fewest = filled(text, width);
    let narrower = (1..40).map(|step| filled(text, width - 4.0 * f64::from(step)));
    narrower.take_while(|lines| lines.len() == fewest.len()).last().unwrap_or(fewest)
}

/// Lines filled one after the other.
fn filled(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if text_width(line, SMALL) + text_width(word, SMALL) + 5.0 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_all_words() {
        let text = "each token looks at all the others, and a-word-that-is-much-longer-than-a-line-can-be is kept too";
        let lines = wrapped(text, 120.0);
        assert_eq!(lines.join(" "), text);
        let too_wide: Vec<&String> = lines.iter().filter(|line| text_width(line, SMALL) > 120.0).collect();
        assert_eq!((lines.len(), too_wide), (5, vec![&lines[3]]), "{lines:?}");
    }
}
