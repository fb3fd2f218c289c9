//! A contact sheet of augmented images, to be looked at before training.

use super::{Augment, Mixer};
use crate::dataset::Dataset;
use crate::image::decode::{Channels, Image, MOST_PIXELS, check_size};
use crate::image::error::ImageError;
use crate::image::font;
use crate::image::preprocess::Scratch;
use crate::random::Random;

const BACKGROUND: [u8; 3] = [250, 250, 248];
const INK: [u8; 3] = [32, 34, 38];
const FAINT: [u8; 3] = [128, 130, 136];
/// The margin around pictures.
const GAP: usize = 10;
/// Small pictures are enlarged to about this width.
const WIDTH: usize = 128;
/// The height of a line of text, with the space below it.
const LINE: usize = font::HEIGHT + 3;
/// Lines of labels below each picture.
const LABEL_LINES: usize = 2;
/// Positions of random sequences that belong to no sample: for the choice of samples and for mixing.
const CHOICE: u64 = u64::MAX;
const MIXING: u64 = u64::MAX - 1;

/// Draws `rows` random samples of a data set: in the first column as they are prepared for validation, then as they are augmented in
/// `columns` epochs. With a mixer, each column is a batch. Labels are below.
pub fn contact_sheet(
    dataset: &dyn Dataset,
    classes: &[String],
    augment: &Augment,
    mixer: Option<&Mixer>,
    seed: u64,
    [rows, columns]: [usize; 2],
) -> Result<Image, ImageError> {
    let (samples, images) = choose(dataset, augment.preprocess().channels, rows, seed)?;
    let size = augment.output_size();
    let mut sheet = Sheet::new(size, samples.len(), columns.saturating_add(1))?;
    let mut scratch = Scratch::default();
    let numbers = augment.preprocess().channels.count() * size[0] * size[1];
    let mut batch = vec![0.0; samples.len() * numbers];
    for column in 0..=columns {
        // Epochs count from 0 in the random sequences, and from 1 on the sheet.
        let epoch = column.saturating_sub(1) as u64;
        sheet.title(column, &if column == 0 { "validation".to_string() } else { format!("epoch {column}") });
        for ((image, &sample), out) in images.iter().zip(&samples).zip(batch.chunks_exact_mut(numbers)) {
            if column == 0 {
                augment.preprocess().apply(image, &mut scratch, out)?;
            } else {
                augment.apply(image, &mut Random::new(seed, epoch, sample as u64), &mut scratch, out)?;
            }
        }
        let mut targets = one_hot(dataset, &samples, classes.len());
        if let (Some(mixer), true) = (mixer, column > 0) {
            let shape = [samples.len(), augment.preprocess().channels.count(), size[0], size[1]];
            mixer.mix(&mut batch, shape, &mut targets, &mut Random::new(seed, epoch, MIXING));
        }
        for (row, numbers) in batch.chunks_exact(numbers).enumerate() {
            sheet.picture(row, column, numbers, augment);
            let shares = &targets[row * classes.len()..][..classes.len()];
            sheet.label(row, column, &label(shares, classes));
        }
    }
    Image::new(sheet.width, sheet.height, Channels::Rgb, sheet.pixels)
}

/// Random samples with their images; broken ones are skipped, unless there are no others.
fn choose(
    dataset: &dyn Dataset,
    channels: Channels,
    wanted: usize,
    seed: u64,
) -> Result<(Vec<usize>, Vec<Image>), ImageError> {
    let mut order: Vec<usize> = (0..dataset.len()).collect();
    Random::new(seed, 0, CHOICE).shuffle(&mut order);
    let (mut samples, mut images, mut failure) = (Vec::new(), Vec::new(), None);
    for sample in order {
        if images.len() == wanted {
            break;
        }
        match dataset.image(sample, channels) {
            Ok(image) => {
                samples.push(sample);
                images.push(image);
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if images.is_empty() => Err(error),
        _ => Ok((samples, images)),
    }
}

fn one_hot(dataset: &dyn Dataset, samples: &[usize], classes: usize) -> Vec<f32> {
    let mut targets = vec![0.0; samples.len() * classes];
    for (&sample, row) in samples.iter().zip(targets.chunks_exact_mut(classes.max(1))) {
        for &label in dataset.labels(sample) {
            if let Some(target) = row.get_mut(label as usize) {
                *target = 1.0;
            }
        }
    }
    targets
}

/// The classes of a target, the most probable first, with their probabilities where these are not 1.
fn label(shares: &[f32], classes: &[String]) -> Vec<String> {
    let mut present: Vec<usize> = (0..shares.len()).filter(|&class| shares[class] > 0.0).collect();
    present.sort_by(|&one, &other| shares[other].total_cmp(&shares[one]));
    let text = |class: usize| match shares[class] {
        share if share > 0.995 => classes[class].clone(),
        share => format!("{} {share:.2}", classes[class]),
    };
    present.into_iter().map(text).collect()
}

struct Sheet {
    size: [usize; 2],
    /// The enlargement of pictures.
    scale: usize,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Sheet {
    fn new(size: [usize; 2], rows: usize, columns: usize) -> Result<Sheet, ImageError> {
        let scale = (WIDTH as f64 / size[1] as f64).round().max(1.0) as usize;
        let width = columns.saturating_mul(size[1] * scale + GAP).saturating_add(GAP);
        let height = rows.saturating_mul(Sheet::row_height(size, scale)).saturating_add(GAP + LINE);
        check_size(width as u64, height as u64, MOST_PIXELS)?;
        Ok(Sheet { size, scale, width, height, pixels: BACKGROUND.repeat(width * height) })
    }

    fn row_height(size: [usize; 2], scale: usize) -> usize {
        size[0] * scale + 4 + LABEL_LINES * LINE + GAP
    }

    /// Top and left of a picture.
    fn place(&self, row: usize, column: usize) -> (usize, usize) {
        (GAP + LINE + row * Sheet::row_height(self.size, self.scale), GAP + column * (self.size[1] * self.scale + GAP))
    }

    fn put(&mut self, row: usize, column: usize, colour: [u8; 3]) {
        if row < self.height && column < self.width {
            self.pixels[(row * self.width + column) * 3..][..3].copy_from_slice(&colour);
        }
    }

    fn text(&mut self, top: usize, left: usize, text: &str, colour: [u8; 3]) {
        let fits = (self.size[1] * self.scale + GAP / 2) / font::ADVANCE;
        let shown: String = if text.chars().count() > fits {
            text.chars().take(fits.saturating_sub(2)).chain("..".chars()).collect()
        } else {
            text.to_string()
        };
        font::draw(&shown, |row, column| self.put(top + row, left + column, colour));
    }

    fn title(&mut self, column: usize, text: &str) {
        let (_, left) = self.place(0, column);
        self.text(GAP / 2 + 1, left, text, FAINT);
    }

    fn label(&mut self, row: usize, column: usize, lines: &[String]) {
        let (top, left) = self.place(row, column);
        let top = top + self.size[0] * self.scale + 4;
        for (line, text) in lines.iter().take(LABEL_LINES).enumerate() {
            self.text(top + line * LINE, left, text, INK);
        }
    }

    fn picture(&mut self, row: usize, column: usize, numbers: &[f32], augment: &Augment) {
        let ([height, width], (top, left), scale) = (self.size, self.place(row, column), self.scale);
        let plane = height * width;
        for at in 0..plane {
            let byte = |channel: usize| {
                let channel = channel.min(numbers.len() / plane - 1);
                augment.preprocess().byte(numbers[channel * plane + at], channel)
            };
            let colour = [byte(0), byte(1), byte(2)];
            let (top, left) = (top + at / width * scale, left + at % width * scale);
            for row in top..top + scale {
                (left..left + scale).for_each(|column| self.put(row, column, colour));
            }
        }
    }
}
