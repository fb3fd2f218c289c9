//! Confidence intervals of shares such as accuracy.

use crate::format;

/// The 97.5th percentile of the standard normal distribution: two-sided 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval (1927) of a share of `samples`; `None` if there are none, or the share is none.
///
/// ```text
/// (p + z²/2n ± z √(p (1 - p) / n + z²/4n²)) / (1 + z²/n)
/// ```
///
/// Unlike `p ± z √(p (1 - p) / n)` it stays within 0 to 1 and holds for few samples.
pub fn wilson(share: f64, samples: u64) -> Option<[f64; 2]> {
    if samples == 0 || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let n = samples as f64;
    let centre = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Some([((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0)])
}

/// `95 % interval 85.98 to 88.88 %`.
pub fn in_words([low, high]: [f64; 2]) -> String {
    format!("95 % interval {:.2} to {}", 100.0 * low, format::percent(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_statsmodels_says() {
        // statsmodels.stats.proportion.proportion_confint(right, samples, method="wilson"), statsmodels 0.14.
        let expected = [
            (0, 10, [0.0, 0.277_532_799_862_889_26]),
            (10, 10, [0.722_467_200_137_110_6, 1.0]),
            (81, 263, [0.255_288_519_878_274_2, 0.366_209_576_982_800_04]),
            (1750, 2000, [0.859_783_043_497_254_8, 0.888_779_171_041_805_5]),
            (1, 1, [0.206_549_314_377_237_4, 1.0]),
            (999_999, 1_000_000, [0.999_994_335_088_195_7, 0.999_999_823_475_423_3]),
        ];
        for (right, samples, [low, high]) in expected {
            let found = wilson(f64::from(right) / samples as f64, samples).expect("an interval");
            assert!(
                (found[0] - low).abs() < 1e-12 && (found[1] - high).abs() < 1e-12,
                "{right} of {samples}: {found:?}"
            );
        }
        assert_eq!(wilson(0.875, 2000).map(in_words).as_deref(), Some("95 % interval 85.98 to 88.88 %"));
        assert_eq!((wilson(0.5, 0), wilson(f64::NAN, 5), wilson(1.5, 5)), (None, None, None));
    }
}
