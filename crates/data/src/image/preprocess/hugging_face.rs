//! `transformers`' `preprocessor_config.json`, read and written.
//!
//! A setting that is absent has the default of the processor that the file names; processors differ in most of them.

use serde::Serialize;
use serde_json::{Map, Value};

use super::settings::{LONGEST_SIDE, Numbers, Settings, side, sides, wrong};
use crate::image::decode::Channels;
use crate::image::error::ConfigError;
use crate::image::geometry::{Crop, Placement, Resize};
use crate::image::preprocess::Preprocess;
use crate::image::resample::Interpolation;

const HALF: [f32; 3] = [0.5; 3];
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f32; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f32; 3] = [0.26862954, 0.261_302_6, 0.275_777_1];

/// The key for crops that are placed by another rule than `transformers`'; `transformers` ignores it.
const PLACEMENT_KEY: &str = "crop_placement";

/// The defaults of a processor.
struct Defaults {
    size: Resize,
    /// Whether a single number as the size means a square, or the shorter side.
    to_square: bool,
    crop: [usize; 2],
    do_center_crop: bool,
    interpolation: Interpolation,
    mean: [f32; 3],
    std: [f32; 3],
}

/// Processors that do more than the settings say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    None,
    /// Resizes to more than `size` and crops, below 384; from 384 on resizes to a square.
    ConvNext,
    /// Resizes to 256/224 of `size`.
    Levit,
    /// May shift to -1..1, and divides by the standard deviation twice.
    EfficientNet,
}

fn defaults(family: &str) -> Option<(Defaults, Habit)> {
    let square = Defaults {
        size: Resize::Exact([224; 2]),
        to_square: true,
        crop: [224; 2],
        do_center_crop: false,
        interpolation: Interpolation::Bicubic,
        mean: HALF,
        std: HALF,
    };
    let clip = Defaults {
        size: Resize::ShorterSide(224),
        to_square: false,
        do_center_crop: true,
        mean: CLIP_MEAN,
        std: CLIP_STD,
        ..square
    };
    let bilinear = Interpolation::Bilinear;
    let imagenet = |defaults| Defaults { mean: IMAGENET_MEAN, std: IMAGENET_STD, ..defaults };
    Some(match family {
        "ViT" => (Defaults { interpolation: bilinear, ..square }, Habit::None),
        "DeiT" => (Defaults { size: Resize::Exact([256; 2]), do_center_crop: true, ..square }, Habit::None),
        "Beit" => (square, Habit::None),
        "Siglip" => (Defaults { to_square: false, ..square }, Habit::None),
        "Pvt" => (imagenet(square), Habit::None),
        "DINOv3ViT" => (imagenet(Defaults { interpolation: bilinear, ..square }), Habit::None),
        "Bit" | "CLIP" | "ViTHybrid" => (clip, Habit::None),
        "VideoMAE" => (Defaults { interpolation: bilinear, mean: HALF, std: HALF, ..clip }, Habit::None),
        "Levit" => (imagenet(clip), Habit::Levit),
        "ConvNext" => {
            let size = Resize::ShorterSide(384);
            (Defaults { size, to_square: false, ..square }, Habit::ConvNext)
        }
        "EfficientNet" => (Defaults { size: Resize::Exact([346; 2]), crop: [289; 2], ..square }, Habit::EfficientNet),
        _ => return None,
    })
}

/// `ViT` of `ViTImageProcessor`, `ViTImageProcessorFast`, `ViTImageProcessorPil` and `ViTFeatureExtractor`.
fn family(name: &str) -> &str {
    let name = name.strip_suffix("Fast").or_else(|| name.strip_suffix("Pil")).unwrap_or(name);
    name.strip_suffix("ImageProcessor").or_else(|| name.strip_suffix("FeatureExtractor")).unwrap_or(name)
}

impl Preprocess {
    /// Reads a `preprocessor_config.json`, also that of an older feature extractor, or the `image_processor` in a
    /// `processor_config.json`.
    ///
    /// A file that names no processor is read as `ViTImageProcessor`'s. `DINOv3ViTImageProcessor` resizes floats instead
    /// of bytes; here it resizes bytes like the others, which differs by rounding and where a bicubic filter overshoots.
    pub fn from_hugging_face(json: &[u8]) -> Result<Preprocess, ConfigError> {
        let settings = Settings::parse(json)?.inner("image_processor");
        let name = match settings.text("image_processor_type")? {
            Some(name) => name,
            None => settings.text("feature_extractor_type")?.unwrap_or("ViTImageProcessor"),
        };
        if family(name) == "TimmWrapper" {
            return Preprocess::from_timm(json);
        }
        let (defaults, habit) = defaults(family(name)).ok_or_else(|| {
            ConfigError::Unsupported(format!(
                "`{}` is not a processor that is known here; known are those of ViT, DeiT, BEiT, SigLIP, PVT, DINOv3, BiT \
                 (DINOv2), CLIP, VideoMAE, LeViT, ConvNeXT and EfficientNet",
                name.chars().take(80).collect::<String>()
            ))
        })?;
        if settings.flag("do_pad", false)? {
            return Err(ConfigError::Unsupported("`do_pad`: padding to a common size is not done here".to_string()));
        }
        let (channels, mean, mut std) = normalisation(&settings, &defaults)?;
        let (resize, crop) = sizes(&settings, &defaults, habit)?;
        let mut rescale_offset = 0.0;
        if habit == Habit::EfficientNet {
            rescale_offset = if settings.flag("rescale_offset", false)? { -1.0 } else { 0.0 };
            if settings.flag("include_top", true)? {
                if !settings.flag("do_normalize", true)? {
                    return Err(ConfigError::Unsupported("`include_top` without `do_normalize`".to_string()));
                }
                std.iter_mut().for_each(|std| *std *= *std);
                usable(&std)?;
            }
        }
        let rescale_factor = settings.number("rescale_factor")?.unwrap_or(1.0 / 255.0);
        let fill = vec![0; channels.count()];
        let placement = placement(&settings)?;
        Ok(Preprocess {
            resize,
            interpolation: interpolation(&settings, defaults.interpolation)?,
            crop: crop.map(|size| Crop { size, placement, fill }),
            rescale_factor: if settings.flag("do_rescale", true)? { rescale_factor } else { 1.0 },
            rescale_offset,
            mean,
            std,
            channels,
        })
    }

    /// Writes a `preprocessor_config.json` that `transformers` opens, and that reads back equal.
    ///
    /// `timm`'s crops can be one pixel off `transformers`'; a key that `transformers` ignores keeps that. What no processor of
    /// `transformers` does is an error: resizing to cover an input that is not square, or padding with a colour.
    pub fn to_hugging_face(&self) -> Result<String, ConfigError> {
        let unsupported = |what: &str| Err(ConfigError::Unsupported(format!("no processor of transformers {what}")));
        let (name, size) = match (self.resize, &self.crop) {
            (Resize::None, _) => ("DeiT", None),
            (Resize::Exact([height, width]), None) => ("ViT", Some(named([("height", height), ("width", width)]))),
            (Resize::Exact([height, width]), Some(_)) => ("DeiT", Some(named([("height", height), ("width", width)]))),
            (Resize::ShorterSide(side), _) => ("Bit", Some(named([("shortest_edge", side)]))),
            (Resize::ShorterSideWithin { shorter, longer }, _) => {
                ("Bit", Some(named([("shortest_edge", shorter), ("longest_edge", longer)])))
            }
            (Resize::Within([height, width]), _) => {
                ("Bit", Some(named([("max_height", height), ("max_width", width)])))
            }
            (Resize::Cover(_), _) => return unsupported("resizes an image to cover an input that is not square"),
            (Resize::Fit(_), _) => return unsupported("pads with a colour"),
        };
        let (name, size) = match self.rescale_offset {
            0.0 => (name, size),
            -1.0 => ("EfficientNet", size),
            _ => return unsupported("adds another offset than -1"),
        };
        if self.crop.as_ref().is_some_and(|crop| crop.fill.iter().any(|&byte| byte != 0)) {
            return unsupported("pads with a colour");
        }
        let shifted = self.rescale_offset != 0.0;
        let normalised = self.mean.iter().any(|&mean| mean != 0.0) || self.std.iter().any(|&std| std != 1.0);
        let torchvision = self.crop.as_ref().is_some_and(|crop| crop.placement == Placement::Torchvision);
        let written = Written {
            image_processor_type: format!("{name}ImageProcessor"),
            // Some processors convert greyscale to colour by default, and some do not.
            do_convert_rgb: self.channels == Channels::Rgb,
            do_resize: size.is_some(),
            size,
            resample: code(self.interpolation),
            do_center_crop: self.crop.is_some(),
            crop_size: self.crop.as_ref().map(|crop| named([("height", crop.size[0]), ("width", crop.size[1])])),
            crop_placement: torchvision.then_some("torchvision"),
            do_rescale: self.rescale_factor != 1.0 || shifted,
            rescale_factor: self.rescale_factor,
            rescale_offset: shifted.then_some(true),
            include_top: shifted.then_some(false),
            do_normalize: normalised,
            image_mean: &self.mean,
            image_std: &self.std,
        };
        serde_json::to_string_pretty(&written).map_err(|error| ConfigError::Json(error.to_string()))
    }
}

/// The file as it is written: numbers stay `f32`, so that 0.485 is written as that.
#[derive(Serialize)]
struct Written<'a> {
    image_processor_type: String,
    do_convert_rgb: bool,
    do_resize: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Map<String, Value>>,
    resample: u64,
    do_center_crop: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    crop_size: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crop_placement: Option<&'static str>,
    do_rescale: bool,
    rescale_factor: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rescale_offset: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_top: Option<bool>,
    do_normalize: bool,
    image_mean: &'a [f32],
    image_std: &'a [f32],
}

fn named<const COUNT: usize>(sides: [(&str, usize); COUNT]) -> Map<String, Value> {
    sides.into_iter().map(|(name, side)| (name.to_string(), Value::from(side))).collect()
}

/// Mean and standard deviation; their number is the number of channels of the model.
fn normalisation(settings: &Settings, defaults: &Defaults) -> Result<(Channels, Vec<f32>, Vec<f32>), ConfigError> {
    let mean = settings.numbers("image_mean")?;
    let std = settings.numbers("image_std")?;
    let told = [&mean, &std].into_iter().find_map(|numbers| numbers.as_ref().and_then(Numbers::count));
    let channels = Channels::from_count(told.unwrap_or(3)).ok_or_else(|| {
        ConfigError::Unsupported(format!("`image_mean` is of {} channels, but images have 1 or 3", told.unwrap_or(3)))
    })?;
    let count = channels.count();
    if !settings.flag("do_normalize", true)? {
        return Ok((channels, vec![0.0; count], vec![1.0; count]));
    }
    let mean = mean.unwrap_or(Numbers::Each(defaults.mean.to_vec())).for_channels("image_mean", count)?;
    let std = std.unwrap_or(Numbers::Each(defaults.std.to_vec())).for_channels("image_std", count)?;
    usable(&std)?;
    Ok((channels, mean, std))
}

/// A divisor must not be zero, nor infinite, as a square can be.
fn usable(std: &[f32]) -> Result<(), ConfigError> {
    if std.iter().all(|std| *std != 0.0 && std.is_finite()) {
        return Ok(());
    }
    Err(wrong("image_std", "other than zero and not too large", &Value::from(std.to_vec())))
}

/// Pillow's numbers for its filters.
const CODES: [(u64, Interpolation); 6] = [
    (0, Interpolation::Nearest),
    (1, Interpolation::Lanczos),
    (2, Interpolation::Bilinear),
    (3, Interpolation::Bicubic),
    (4, Interpolation::Box),
    (5, Interpolation::Hamming),
];

fn code(interpolation: Interpolation) -> u64 {
    CODES.iter().find(|(_, known)| *known == interpolation).map_or(2, |(code, _)| *code)
}

fn interpolation(settings: &Settings, default: Interpolation) -> Result<Interpolation, ConfigError> {
    let Some(value) = settings.get("resample") else { return Ok(default) };
    let known = CODES.iter().find(|(code, _)| value.as_u64() == Some(*code));
    known.map(|(_, interpolation)| *interpolation).ok_or_else(|| wrong("resample", "one of Pillow's 0 to 5", value))
}

fn placement(settings: &Settings) -> Result<Placement, ConfigError> {
    match settings.text(PLACEMENT_KEY)? {
        None => Ok(Placement::HuggingFace),
        Some("torchvision") => Ok(Placement::Torchvision),
        Some(other) => Err(wrong(PLACEMENT_KEY, "torchvision or absent", &Value::from(other))),
    }
}

/// The resize and the crop.
fn sizes(settings: &Settings, defaults: &Defaults, habit: Habit) -> Result<(Resize, Option<[usize; 2]>), ConfigError> {
    let to_square = settings.flag("default_to_square", defaults.to_square)?;
    let size = settings.get("size").map_or(Ok(defaults.size), |value| size("size", value, to_square))?;
    let crop = if settings.flag("do_center_crop", defaults.do_center_crop)? {
        match settings.get("crop_size").map_or(Ok(Resize::Exact(defaults.crop)), size_of_crop)? {
            Resize::Exact(size) => Some(size),
            _ => return Err(ConfigError::Unsupported("`crop_size` must have a height and a width".to_string())),
        }
    } else {
        None
    };
    if !settings.flag("do_resize", true)? {
        return Ok((Resize::None, crop));
    }
    match (habit, size) {
        (Habit::Levit, Resize::ShorterSide(side)) => {
            Ok((Resize::ShorterSide(((256.0 / 224.0 * side as f64) as usize).min(LONGEST_SIDE)), crop))
        }
        (Habit::ConvNext, Resize::ShorterSide(side)) if side < 384 => {
            let fraction = settings.number("crop_pct")?.unwrap_or(224.0 / 256.0);
            let resized = (side as f64 / fraction) as usize;
            if !(1..=LONGEST_SIDE).contains(&resized) {
                return Err(wrong("crop_pct", "a fraction of the side", &Value::from(fraction)));
            }
            let same = crop.is_none_or(|crop| crop == [side, side]);
            same.then_some((Resize::ShorterSide(resized), Some([side, side]))).ok_or_else(|| {
                ConfigError::Unsupported("`crop_size` after the crop that ConvNeXT does itself".to_string())
            })
        }
        (Habit::ConvNext, Resize::ShorterSide(side)) => Ok((Resize::Exact([side, side]), crop)),
        (Habit::ConvNext, _) => {
            Err(ConfigError::Unsupported("ConvNeXT's `size` must be of a `shortest_edge`".to_string()))
        }
        (_, size) => Ok((size, crop)),
    }
}

fn size_of_crop(value: &Value) -> Result<Resize, ConfigError> {
    size("crop_size", value, true)
}

/// A size in any of its notations: one number, two, or named sides.
fn size(key: &str, value: &Value, to_square: bool) -> Result<Resize, ConfigError> {
    let Value::Object(named) = value else {
        return match value {
            Value::Array(values) => Ok(Resize::Exact(sides(key, values)?)),
            one if to_square => Ok(Resize::Exact([side(key, one)?; 2])),
            one => Ok(Resize::ShorterSide(side(key, one)?)),
        };
    };
    let given = |name: &str| named.get(name).filter(|side| !side.is_null());
    let length = |name: &str| given(name).map(|value| side(&format!("{key}.{name}"), value)).transpose();
    let shorter = length("shortest_edge")?;
    match (shorter, length("longest_edge")?, length("height")?, length("width")?) {
        (Some(shorter), Some(longer), None, None) => Ok(Resize::ShorterSideWithin { shorter, longer }),
        (Some(shorter), None, None, None) => Ok(Resize::ShorterSide(shorter)),
        (None, None, Some(height), Some(width)) => Ok(Resize::Exact([height, width])),
        (None, None, None, None) => match (length("max_height")?, length("max_width")?) {
            (Some(height), Some(width)) => Ok(Resize::Within([height, width])),
            _ => Err(wrong(key, "a height and a width, or a shortest_edge", value)),
        },
        // The processors of `transformers` refuse a `longest_edge` alone when they are called; this says so earlier.
        _ => Err(wrong(key, "a height and a width, or a shortest_edge (with or without a longest_edge)", value)),
    }
}
