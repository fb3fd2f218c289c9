//! Colours that most eyes tell apart: scales that grow evenly in lightness, and a set for things that have no order.

/// From dark violet over green to yellow, evenly in lightness, so that it also reads in grey.
const SEQUENTIAL: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// From blue over nearly white to orange, which eyes without red or without green tell apart.
const DIVERGING: [[u8; 3]; 5] = [[5, 72, 143], [106, 168, 212], [247, 246, 243], [232, 150, 76], [148, 66, 4]];

/// For lines and bars of different things, in this order (after Okabe and Ito, darkened where they are to be read on white).
/// More than so many things must differ in more than colour.
pub const CATEGORIES: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#b5478f", "#8a6d00", "#3d9ad1", "#6b6b6b"];

/// The colour of a share of 0 to 1; outside of that the nearest end, for NaN the lowest.
pub fn sequential(share: f32) -> [u8; 3] {
    between(&SEQUENTIAL, share)
}

/// The colour of -1 to 1.
pub fn diverging(value: f32) -> [u8; 3] {
    between(&DIVERGING, (value + 1.0) / 2.0)
}

/// The colour bar of legends, as the style's variable `--scale`.
pub fn scale_style() -> String {
    let stops: Vec<String> = (0..=16).map(|stop| hex(sequential(stop as f32 / 16.0))).collect();
    format!(":root {{ --scale: linear-gradient(to right, {}); }}\n", stops.join(", "))
}

/// As CSS writes it.
pub fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The text colour to be read on a colour: the one of greater contrast, which is never below 4.5 to 1.
pub fn text_on(ground: [u8; 3]) -> &'static str {
    let light = luminance(ground) + 0.05;
    // Of white the luminance is 1, of black 0.
    if light / 0.05 > 1.05 / light { "#000" } else { "#fff" }
}

/// Relative luminance, from 0 to 1, as the Web Content Accessibility Guidelines define it.
fn luminance(colour: [u8; 3]) -> f32 {
    let linear = |byte: u8| match f32::from(byte) / 255.0 {
        dark if dark <= 0.04045 => dark / 12.92,
        light => ((light + 0.055) / 1.055).powf(2.4),
    };
    let [red, green, blue] = colour.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn between(stops: &[[u8; 3]], share: f32) -> [u8; 3] {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let place = share * (stops.len() - 1) as f32;
    let below = (place as usize).min(stops.len() - 2);
    let part = place - below as f32;
    let mix = |channel: usize| {
        let (low, high) = (f32::from(stops[below][channel]), f32::from(stops[below + 1][channel]));
        (low + part * (high - low)).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_what_lies_outside() {
        assert_eq!(sequential(0.0), SEQUENTIAL[0]);
        assert_eq!(sequential(1.0), SEQUENTIAL[8]);
        assert_eq!(sequential(7.0), SEQUENTIAL[8]);
        assert_eq!(sequential(f32::NAN), SEQUENTIAL[0]);
        assert_eq!(diverging(0.0), DIVERGING[2]);
        assert_eq!(diverging(-9.0), DIVERGING[0]);
    }

    #[test]
    fn text_can_be_read_on_every_colour() {
        for step in 0..=200 {
            for ground in [sequential(step as f32 / 200.0), diverging(step as f32 / 100.0 - 1.0)] {
                let light = luminance(ground) + 0.05;
                let contrast = match text_on(ground) {
                    "#fff" => 1.05 / light,
                    _ => light / 0.05,
                };
                assert!(contrast >= 4.5, "{contrast} on {ground:?}");
            }
        }
    }

    #[test]
    fn the_scale_grows_in_lightness() {
        let lightness = |[r, g, b]: [u8; 3]| 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b);
        for step in 0..100 {
            let share = step as f32 / 100.0;
            assert!(lightness(sequential(share)) <= lightness(sequential(share + 0.01)) + 0.5, "{share}");
        }
    }
}
