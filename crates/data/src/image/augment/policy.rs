//! Policies: how operations are drawn for a picture, in `timm`'s notation.

use super::affine::Sampling;
use super::operation::{FULL_MAGNITUDE, Operation};
use super::picture::Picture;
use crate::image::error::ConfigError;
use crate::random::Random;

/// Standard deviations of a Gaussian blur, in pixels.
pub(super) const BLUR: [f64; 2] = [0.1, 2.0];

/// How operations are drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Policy {
    /// None.
    Nothing,
    /// RandAugment: a few of many, of about the same magnitude (Cubuk et al. 2019).
    RandAugment(RandAugment),
    /// 3-Augment: one of greyscale, solarize and blur ("DeiT III: Revenge of the ViT", 2022).
    ThreeAugment,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RandAugment {
    /// The operations to draw from.
    operations: Vec<Operation>,
    /// Their probabilities; with these, no operation is drawn twice for a picture.
    weights: Option<Vec<f64>>,
    increasing: bool,
    magnitude: f64,
    /// Standard deviation of the magnitude; infinite for uniform between 0 and the magnitude.
    deviation: f64,
    most: f64,
    /// Number of operations per picture.
    layers: usize,
    /// Probability that a drawn operation is applied.
    probability: f64,
}

const KNOWN: &str = "it must be \"\" for none, \"3a\", or \"rand\" and any of these parts, joined by dashes: m (magnitude, whole), \
                     n (operations a picture, whole), p (probability of each), mstd (deviation of the magnitude), \
                     mmax (highest magnitude, whole), inc1 (more magnitude is more change), \
                     tweights, t3a or t3aw (other sets of operations), e.g. \"rand-m9-mstd0.5-inc1\"";

impl Policy {
    /// Parses `timm`'s notation. What `timm` silently ignores is an error.
    pub fn parse(text: &str) -> Result<Policy, ConfigError> {
        let (kind, parts) = text.split_once('-').map_or((text, None), |(kind, parts)| (kind, Some(parts)));
        match (kind, parts) {
            ("", None) => Ok(Policy::Nothing),
            ("3a", None) => Ok(Policy::ThreeAugment),
            ("rand", parts) => {
                let read = RandAugment::parse(parts);
                Ok(Policy::RandAugment(read.map_err(|why| refused(text, &format!("{why}; {KNOWN}")))?))
            }
            _ => Err(refused(text, KNOWN)),
        }
    }

    /// Applies the policy to a picture. What moves in from outside has the colour `fill`.
    pub fn apply(&self, picture: &mut Picture, fill: &[u8], random: &mut Random) {
        match self {
            Policy::Nothing => {}
            Policy::RandAugment(rand_augment) => rand_augment.apply(picture, fill, random),
            Policy::ThreeAugment => match random.below(3) {
                0 => picture.solarize(128),
                1 => picture.grey(),
                _ => picture.gaussian_blur(random.between(BLUR[0], BLUR[1])),
            },
        }
    }
}

fn refused(text: &str, rule: &str) -> ConfigError {
    let got: String = text.chars().take(80).collect();
    ConfigError::Value { key: "policy".to_string(), rule: rule.to_string(), got: format!("{got:?}") }
}

/// The names of the parts. Longer names come first, because `m` is a prefix of some.
fn split_part(part: &str) -> Option<(&'static str, &str)> {
    const NAMES: [&str; 7] = ["mstd", "mmax", "inc", "m", "n", "p", "t"];
    NAMES.iter().find_map(|name| part.strip_prefix(name).map(|value| (*name, value)))
}

impl RandAugment {
    fn parse(parts: Option<&str>) -> Result<RandAugment, String> {
        let mut read = RandAugment {
            operations: Vec::new(),
            weights: None,
            increasing: false,
            magnitude: FULL_MAGNITUDE,
            deviation: 0.0,
            most: FULL_MAGNITUDE,
            layers: 2,
            probability: 0.5,
        };
        let (mut set, mut seen) = ("", Vec::new());
        for part in parts.into_iter().flat_map(|parts| parts.split('-')) {
            let Some((name, value)) = split_part(part) else { return Err(unknown(part)) };
            if seen.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            seen.push(name);
            let number = || {
                let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
                number.ok_or_else(|| format!("{part:?} needs a number after {name}"))
            };
            let whole = || match number()? {
                number if number.fract() == 0.0 && number <= 100.0 => Ok(number),
                _ => Err(format!("{part:?} needs a whole number up to 100 after {name}")),
            };
            match name {
                // Above 100, timm takes the deviation as infinite.
                "mstd" => read.deviation = Some(number()?).filter(|&number| number <= 100.0).unwrap_or(f64::INFINITY),
                "mmax" => read.most = Some(whole()?).filter(|&most| most > 0.0).unwrap_or(FULL_MAGNITUDE),
                "inc" => read.increasing = whole()? != 0.0,
                "m" => read.magnitude = whole()?,
                "n" => read.layers = whole()? as usize,
                "p" => read.probability = number()?,
                _ => set = value,
            }
        }
        if read.probability > 1.0 {
            return Err(format!("the probability p is {}, which is more than 1", read.probability));
        }
        read.take_set(set)?;
        match read.weights {
            Some(_) if read.layers > read.operations.len() => {
                Err(format!("n is {}, but this set has only {} operations", read.layers, read.operations.len()))
            }
            _ => Ok(read),
        }
    }

    fn take_set(&mut self, name: &str) -> Result<(), String> {
        let weighted: &[(Operation, f64)] = match name {
            "" => {
                self.operations = Operation::USUAL.to_vec();
                return Ok(());
            }
            "3a" => {
                self.operations = vec![Operation::Solarize, Operation::Desaturate, Operation::GaussianBlur];
                self.increasing = true;
                return Ok(());
            }
            "weights" => &WEIGHTED,
            "3aw" => &WEIGHTED_3A,
            other => return Err(format!("there is no set of operations {other:?}")),
        };
        self.operations = weighted.iter().map(|(operation, _)| *operation).collect();
        self.weights = Some(weighted.iter().map(|(_, weight)| *weight).collect());
        self.increasing = true;
        Ok(())
    }

    fn apply(&self, picture: &mut Picture, fill: &[u8], random: &mut Random) {
        let mut left = self.weights.clone();
        for _ in 0..self.layers {
            let operation = match &mut left {
                None => self.operations[random.below(self.operations.len())],
                Some(left) => self.operations[draw_without_return(left, random)],
            };
            if random.chance(self.probability) {
                let magnitude = self.draw_magnitude(random);
                let argument = operation.argument(magnitude, self.increasing, || random.chance(0.5));
                let cubic = operation.is_geometric() && random.chance(0.5);
                let sampling = if cubic { Sampling::Bicubic } else { Sampling::Bilinear };
                operation.apply(picture, argument, sampling, fill);
            }
        }
    }

    pub(super) fn draw_magnitude(&self, random: &mut Random) -> f64 {
        let drawn = if self.deviation == f64::INFINITY {
            random.between(0.0, self.magnitude)
        } else if self.deviation > 0.0 {
            self.magnitude + self.deviation * random.normal()
        } else {
            self.magnitude
        };
        drawn.min(self.most).max(0.0)
    }
}

fn unknown(part: &str) -> String {
    match part {
        "w0" => "timm no longer knows w0; tweights is the set of operations with weights".to_string(),
        part => format!("the part {part:?} is not known"),
    }
}

/// An index drawn with probability proportional to its weight, which is then set to 0.
pub(super) fn draw_without_return(weights: &mut [f64], random: &mut Random) -> usize {
    let mut left = random.uniform() * weights.iter().sum::<f64>();
    let mut drawn = 0;
    for (place, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        drawn = place;
        if left < weight {
            break;
        }
        left -= weight;
    }
    weights[drawn] = 0.0;
    drawn
}

/// `timm`'s "weights": mostly geometry.
const WEIGHTED: [(Operation, f64); 15] = [
    (Operation::Rotate, 3.0),
    (Operation::ShearX, 2.0),
    (Operation::ShearY, 2.0),
    (Operation::TranslateX, 1.0),
    (Operation::TranslateY, 1.0),
    (Operation::Colour, 0.25),
    (Operation::Sharpness, 0.25),
    (Operation::AutoContrast, 0.25),
    (Operation::Solarize, 0.05),
    (Operation::SolarizeAdd, 0.05),
    (Operation::Contrast, 0.05),
    (Operation::Brightness, 0.05),
    (Operation::Equalize, 0.05),
    (Operation::Posterize, 0.05),
    (Operation::Invert, 0.05),
];

/// `timm`'s "3aw": mostly 3-Augment.
const WEIGHTED_3A: [(Operation, f64); 14] = [
    (Operation::Solarize, 6.0),
    (Operation::Desaturate, 6.0),
    (Operation::GaussianBlur, 6.0),
    (Operation::Rotate, 3.0),
    (Operation::ShearX, 2.0),
    (Operation::ShearY, 2.0),
    (Operation::Posterize, 1.0),
    (Operation::AutoContrast, 1.0),
    (Operation::Colour, 1.0),
    (Operation::Sharpness, 1.0),
    (Operation::Contrast, 1.0),
    (Operation::Brightness, 1.0),
    (Operation::Equalize, 1.0),
    (Operation::Invert, 1.0),
];
