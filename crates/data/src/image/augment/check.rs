//! Checks of settings, with errors that name the setting.

use crate::image::error::ConfigError;

fn refused(key: &str, rule: &str, got: impl std::fmt::Debug) -> ConfigError {
    ConfigError::Value { key: key.to_string(), rule: rule.to_string(), got: format!("{got:?}") }
}

pub(super) fn probability(key: &str, value: f64) -> Result<(), ConfigError> {
    // NaN is in no range.
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(refused(key, "it must be a probability, 0 to 1", value)) }
}

pub(super) fn at_least_zero(key: &str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1e6).contains(&value) { Ok(()) } else { Err(refused(key, "it must be 0 (none) or more", value)) }
}

/// Shares of the area: the smallest, then the largest.
pub(super) fn scale(key: &str, [low, high]: [f64; 2]) -> Result<(), ConfigError> {
    if low > 0.0 && low <= high && high <= 1.0 {
        return Ok(());
    }
    Err(refused(key, "it must be the smallest and the largest share of the area, above 0 and up to 1", [low, high]))
}

/// Aspect ratios: the smallest, then the largest.
pub(super) fn ratio(key: &str, [low, high]: [f64; 2]) -> Result<(), ConfigError> {
    if low >= 1e-3 && low <= high && high <= 1e3 {
        return Ok(());
    }
    let rule = "it must be the smallest and the largest aspect ratio (width / height), from 0.001 to 1000";
    Err(refused(key, rule, [low, high]))
}

pub(super) fn count(key: &str, value: usize, most: usize) -> Result<(), ConfigError> {
    let fits = (1..=most).contains(&value);
    if fits { Ok(()) } else { Err(refused(key, &format!("it must be from 1 to {most}"), value)) }
}

/// More padding than the picture's side could crop nothing but padding.
pub(super) fn padding(key: &str, value: usize, size: [usize; 2]) -> Result<(), ConfigError> {
    let most = size[0].min(size[1]);
    let rule = format!("it must be at most the shorter side of the picture, {most}");
    if value <= most { Ok(()) } else { Err(refused(key, &rule, value)) }
}
