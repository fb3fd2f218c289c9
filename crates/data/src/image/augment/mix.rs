//! Mixup (Zhang et al. 2017) and CutMix (Yun et al. 2019) as `timm` does them: a batch is mixed with itself in reverse order.

use vitreous_engine::ops::ImageDrawsMut;
use vitreous_engine::ops::image_draws::Mixing;

use super::check::{at_least_zero, probability};
use super::crop::Rectangle;
use super::settings::{AugmentSettings, MixMode};
use crate::image::error::ConfigError;
use crate::random::Random;

/// Mixes the samples of a batch: Mixup and CutMix.
#[derive(Clone, Debug)]
pub struct Mixer {
    mixup: f64,
    cutmix: f64,
    probability: f64,
    switch: f64,
    mode: MixMode,
}

/// How a sample is mixed with its partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mix {
    /// Not at all.
    Nothing,
    /// Mixup, with this weight of the sample itself.
    Blend(f64),
    /// CutMix, with this box of its partner.
    Paste(Rectangle),
}

impl Mixer {
    /// None if the settings mix nothing.
    pub fn new(settings: &AugmentSettings) -> Result<Option<Mixer>, ConfigError> {
        at_least_zero("mixup", settings.mixup)?;
        at_least_zero("cutmix", settings.cutmix)?;
        probability("mix_probability", settings.mix_probability)?;
        probability("mix_switch", settings.mix_switch)?;
        let mixer = Mixer {
            mixup: settings.mixup,
            cutmix: settings.cutmix,
            probability: settings.mix_probability,
            switch: settings.mix_switch,
            mode: settings.mix_mode,
        };
        let mixes = (mixer.mixup > 0.0 || mixer.cutmix > 0.0) && mixer.probability > 0.0;
        Ok(mixes.then_some(mixer))
    }

    /// Mixes a batch of `[batch, channels, height, width]` and its targets, `[batch, classes]`: each row of the targets is mixed like its
    /// image. In a batch of odd size the middle sample is its own partner and does not change.
    pub fn mix(
        &self,
        images: &mut [f32],
        [batch, channels, height, width]: [usize; 4],
        targets: &mut [f32],
        random: &mut Random,
    ) {
        if batch == 0 || images.is_empty() {
            return;
        }
        debug_assert_eq!(images.len(), batch * channels * height * width);
        let mut draws = self.draws([height, width], random);
        mix_pairs(images, [batch, height, width], targets, |_| draws());
    }

    /// Mixes the targets as [`mix`](Self::mix) does, and records how each image is to be mixed: `rows` are the rows of
    /// [`ImageDraws`](vitreous_engine::ops::ImageDraws) of a batch of `[batch, channels, height, width]`.
    pub(crate) fn note(
        &self,
        rows: &mut [i32],
        [batch, channels, height, width]: [usize; 4],
        targets: &mut [f32],
        random: &mut Random,
    ) {
        if batch == 0 {
            return;
        }
        let length = rows.len() / batch;
        let mut draws = self.draws([height, width], random);
        mix_pairs(&mut [], [batch, height, width], targets, |first| {
            let both = draws();
            for (sample, mix) in [first, batch - 1 - first].into_iter().zip(both) {
                ImageDrawsMut::new(&mut rows[sample * length..][..length], channels).mix(mix.mixing());
            }
            both
        });
    }

    /// Draws how each pair is mixed, one pair after the other.
    fn draws(&self, size: [usize; 2], random: &mut Random) -> impl FnMut() -> [Mix; 2] {
        let for_all = (self.mode == MixMode::Batch).then(|| self.draw(size, random));
        move || {
            let of_first = for_all.unwrap_or_else(|| self.draw(size, random));
            let of_last = if self.mode == MixMode::Element { self.draw(size, random) } else { of_first };
            [of_first, of_last]
        }
    }

    fn draw(&self, size: [usize; 2], random: &mut Random) -> Mix {
        if !random.chance(self.probability) {
            return Mix::Nothing;
        }
        let both = self.mixup > 0.0 && self.cutmix > 0.0;
        let cut = if both { random.chance(self.switch) } else { self.cutmix > 0.0 };
        if cut {
            let share = random.beta(self.cutmix);
            let centre = [random.below(size[0].max(1)), random.below(size[1].max(1))];
            Mix::Paste(cut_box(size, share, centre))
        } else {
            Mix::Blend(random.beta(self.mixup))
        }
    }
}

/// Mixes each sample of the first half with its partner in the second half; `mixes` says how for both.
pub(super) fn mix_pairs(
    images: &mut [f32],
    [batch, height, width]: [usize; 3],
    targets: &mut [f32],
    mut mixes: impl FnMut(usize) -> [Mix; 2],
) {
    let (image, classes, size) = (images.len() / batch, targets.len() / batch, [height, width]);
    let mut original = Vec::new();
    for first in 0..batch / 2 {
        let [of_first, of_last] = mixes(first);
        if of_first == Mix::Nothing && of_last == Mix::Nothing {
            continue;
        }
        let last = batch - 1 - first;
        let (one, other) = pair(images, image, first, last);
        original.clear();
        original.extend_from_slice(one);
        of_first.images(one, other, size);
        of_last.images(other, &original, size);
        let (one, other) = pair(targets, classes, first, last);
        original.clear();
        original.extend_from_slice(one);
        of_first.targets(one, other, size);
        of_last.targets(other, &original, size);
    }
}

/// Two rows of a matrix, the first before the last.
fn pair(rows: &mut [f32], length: usize, first: usize, last: usize) -> (&mut [f32], &mut [f32]) {
    let (before, from) = rows.split_at_mut(last * length);
    (&mut before[first * length..][..length], &mut from[..length])
}

/// The box around `centre` that leaves `share` of the area, clipped to the picture.
pub(super) fn cut_box([height, width]: [usize; 2], share: f64, centre: [usize; 2]) -> Rectangle {
    let ratio = (1.0 - share).max(0.0).sqrt();
    let span = |side: usize, centre: usize| {
        let length = (side as f64 * ratio) as usize;
        (centre.saturating_sub(length / 2), (centre + length.div_ceil(2)).min(side))
    };
    let ((top, bottom), (left, right)) = (span(height, centre[0]), span(width, centre[1]));
    Rectangle { top, left, height: bottom - top, width: right - left }
}

impl Mix {
    /// The weight of the sample itself: with a box, what is left of its area after clipping.
    pub fn own_share(self, [height, width]: [usize; 2]) -> f64 {
        match self {
            Mix::Nothing => 1.0,
            Mix::Blend(share) => share,
            Mix::Paste(part) => 1.0 - (part.height * part.width) as f64 / (height * width) as f64,
        }
    }

    /// The same for [`ImageDraws`](vitreous_engine::ops::ImageDraws).
    fn mixing(self) -> Mixing {
        match self {
            Mix::Nothing => Mixing::Nothing,
            Mix::Blend(share) => Mixing::Blend { own: share as f32, partner: (1.0 - share) as f32 },
            Mix::Paste(part) => Mixing::Paste(part.area()),
        }
    }

    fn images(self, own: &mut [f32], partner: &[f32], [height, width]: [usize; 2]) {
        match self {
            Mix::Nothing => {}
            Mix::Blend(share) => blend(own, partner, share),
            Mix::Paste(part) => {
                let planes = own.chunks_exact_mut(height * width).zip(partner.chunks_exact(height * width));
                for (own, partner) in planes {
                    for row in part.top..part.top + part.height {
                        let columns = row * width + part.left..row * width + part.left + part.width;
                        own[columns.clone()].copy_from_slice(&partner[columns]);
                    }
                }
            }
        }
    }

    fn targets(self, own: &mut [f32], partner: &[f32], size: [usize; 2]) {
        if self != Mix::Nothing {
            blend(own, partner, self.own_share(size));
        }
    }
}

fn blend(own: &mut [f32], partner: &[f32], share: f64) {
    let (kept, taken) = (share as f32, (1.0 - share) as f32);
    own.iter_mut().zip(partner).for_each(|(own, partner)| *own = *own * kept + *partner * taken);
}
