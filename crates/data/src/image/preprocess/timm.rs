//! `timm`'s `config.json`: what its `create_transform(is_training=False)` does with the `pretrained_cfg` inside.

use serde_json::Value;

use super::settings::{LONGEST_SIDE, Numbers, Settings, side, wrong};
use crate::image::decode::Channels;
use crate::image::error::ConfigError;
use crate::image::geometry::{Crop, Placement, Resize};
use crate::image::preprocess::Preprocess;
use crate::image::resample::Interpolation;

const DEFAULT_CROP_FRACTION: f64 = 0.875;
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

impl Preprocess {
    /// Reads `timm`'s `config.json`: its `pretrained_cfg`, or, in old files, the same settings without it.
    ///
    /// ```
    /// use vitreous_data::image::{Preprocess, Resize};
    ///
    /// let config = br#"{"pretrained_cfg": {"input_size": [3, 224, 224], "crop_pct": 0.9, "interpolation": "bicubic"}}"#;
    /// let preprocess = Preprocess::from_timm(config)?;
    /// assert_eq!(preprocess.resize, Resize::ShorterSide(248));
    /// assert_eq!(preprocess.output_size(), Some([224, 224]));
    /// # Ok::<(), vitreous_data::image::ConfigError>(())
    /// ```
    pub fn from_timm(config_json: &[u8]) -> Result<Preprocess, ConfigError> {
        let settings = Settings::parse(config_json)?.inner("pretrained_cfg");
        let (channels, size) = input_size(&settings)?;
        let fraction = crop_fraction(&settings, size)?;
        let interpolation = match settings.text("interpolation")?.filter(|name| !name.is_empty()) {
            Some(name) => by_name(name).ok_or_else(|| {
                wrong("interpolation", "nearest, box, bilinear, hamming, bicubic or lanczos", &Value::from(name))
            })?,
            None => Interpolation::Bicubic,
        };
        let mean = channel_numbers(&settings, "mean", IMAGENET_MEAN, channels)?;
        let std = channel_numbers(&settings, "std", IMAGENET_STD, channels)?;
        if std.contains(&0.0) {
            return Err(wrong("std", "other than zero", &Value::from(std)));
        }
        match settings.text("crop_mode")?.filter(|name| !name.is_empty()) {
            None | Some("center") => Ok(center(size, fraction, interpolation, mean, std, channels)),
            Some("squash") => {
                let resize = Resize::Exact(before_crop(size, fraction));
                Ok(cropped(resize, size, vec![0; channels.count()], interpolation, mean, std, channels))
            }
            Some("border") => {
                let fill = mean.iter().map(|&mean| (255.0 * f64::from(mean)).round_ties_even() as u8).collect();
                let resize = Resize::Fit(before_crop(size, fraction));
                Ok(cropped(resize, size, fill, interpolation, mean, std, channels))
            }
            Some(other) => Err(wrong("crop_mode", "center, squash or border", &Value::from(other))),
        }
    }
}

/// Crop mode "center": the aspect ratio is kept, the centre is cropped.
pub(crate) fn center(
    size: [usize; 2],
    fraction: f64,
    interpolation: Interpolation,
    mean: Vec<f32>,
    std: Vec<f32>,
    channels: Channels,
) -> Preprocess {
    let target = before_crop(size, fraction);
    let fill = vec![0; channels.count()];
    if target[0] == target[1] {
        cropped(Resize::ShorterSide(target[0]), size, fill, interpolation, mean, std, channels)
    } else {
        // `timm` passes the interpolation on to every resize but this one, which stays at its default.
        cropped(Resize::Cover(target), size, fill, Interpolation::Bilinear, mean, std, channels)
    }
}

fn cropped(
    resize: Resize,
    size: [usize; 2],
    fill: Vec<u8>,
    interpolation: Interpolation,
    mean: Vec<f32>,
    std: Vec<f32>,
    channels: Channels,
) -> Preprocess {
    let crop = Some(Crop { size, placement: Placement::Torchvision, fill });
    Preprocess { resize, interpolation, crop, rescale_factor: 1.0 / 255.0, rescale_offset: 0.0, mean, std, channels }
}

/// The size to resize to, of which the crop keeps `fraction` on each side.
fn before_crop(size: [usize; 2], fraction: f64) -> [usize; 2] {
    size.map(|side| ((side as f64 / fraction).floor() as usize).max(1))
}

fn by_name(name: &str) -> Option<Interpolation> {
    Some(match name {
        "nearest" => Interpolation::Nearest,
        "box" => Interpolation::Box,
        "bilinear" => Interpolation::Bilinear,
        "hamming" => Interpolation::Hamming,
        "bicubic" => Interpolation::Bicubic,
        "lanczos" => Interpolation::Lanczos,
        _ => return None,
    })
}

fn input_size(settings: &Settings) -> Result<(Channels, [usize; 2]), ConfigError> {
    let Some(value) = settings.get("input_size") else { return Ok((Channels::Rgb, [224, 224])) };
    let rule = "1 or 3 channels, a height and a width";
    let Some([channels, height, width]) = value.as_array().map(Vec::as_slice) else {
        return Err(wrong("input_size", rule, value));
    };
    let count = channels.as_u64().and_then(|count| usize::try_from(count).ok());
    let channels = count.and_then(Channels::from_count).ok_or_else(|| wrong("input_size", rule, value))?;
    Ok((channels, [side("input_size", height)?, side("input_size", width)?]))
}

fn crop_fraction(settings: &Settings, size: [usize; 2]) -> Result<f64, ConfigError> {
    // Zero means the default in `timm`, too.
    let fraction = settings.number("crop_pct")?.filter(|&fraction| fraction != 0.0).unwrap_or(DEFAULT_CROP_FRACTION);
    let longest = size[0].max(size[1]) as f64 / fraction;
    if fraction > 0.0 && longest <= LONGEST_SIDE as f64 && size[0].min(size[1]) as f64 / fraction >= 1.0 {
        return Ok(fraction);
    }
    let rule = format!("a fraction that gives a side from 1 to {LONGEST_SIDE} of {size:?}");
    Err(wrong("crop_pct", &rule, &Value::from(fraction)))
}

fn channel_numbers(
    settings: &Settings,
    key: &str,
    default: [f32; 3],
    channels: Channels,
) -> Result<Vec<f32>, ConfigError> {
    let numbers = settings.numbers(key)?.unwrap_or(Numbers::Each(default.to_vec()));
    // A model for one channel often keeps the three equal values of the model that it was derived from.
    let numbers = match numbers {
        Numbers::Each(values) if values.iter().all(|value| *value == values[0]) => Numbers::One(values[0]),
        numbers => numbers,
    };
    numbers.for_channels(key, channels.count())
}
