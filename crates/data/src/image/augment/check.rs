//! Refusing settings that cannot be, by the name of the setting.

use crate::image::error::ConfigError;

fn refused(key: &str, rule: &str, got: impl std::fmt::Debug) -> ConfigError {
    ConfigError::Value { key: key.to_string(), rule: rule.to_string(), got: format!("{got:?}") }
}

pub(super) fn probability(key: &str, value: f64) -> Result<(), ConfigError> {
    // Not a number is in no range.
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(refused(key, "it must be a probability, 0 to 1", value)) }
}

pub(super) fn at_least_zero(key: &str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1e6).contains(&value) { Ok(()) } else { Err(refused(key, "it must be a number from 0 (none) on", value)) }
}

/// Shares of an area, smallest first.
pub(super) fn scale(key: &str, [low, high]: [f64; 2]) -> Result<(), ConfigError> {
    if low > 0.0 && low <= high && high <= 1.0 {
        return Ok(());
    }
    Err(refused(
        key,
        "it must be the smallest and the largest share of the area, in this order, over 0 and up to 1",
        [low, high],
    ))
}

/// Ratios of sides, smallest first.
pub(super) fn ratio(key: &str, [low, high]: [f64; 2]) -> Result<(), ConfigError> {
    if low >= 1e-3 && low <= high && high <= 1e3 {
        return Ok(());
    }
    let rule = "it must be the smallest and the largest width over height, in this order, from 0.001 to 1000";
    Err(refused(key, rule, [low, high]))
}

pub(super) fn count(key: &str, value: usize, most: usize) -> Result<(), ConfigError> {
    let fits = (1..=most).contains(&value);
    if fits { Ok(()) } else { Err(refused(key, &format!("it must be from 1 to {most}"), value)) }
}

/// More than a side on each side would show nothing of the picture at times.
pub(super) fn padding(key: &str, value: usize, size: [usize; 2]) -> Result<(), ConfigError> {
    let most = size[0].min(size[1]);
    let rule = format!("it must be at most the shorter side of the picture, {most}");
    if value <= most { Ok(()) } else { Err(refused(key, &rule, value)) }
}
