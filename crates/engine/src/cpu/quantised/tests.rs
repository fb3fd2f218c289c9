//! Every format against f64, on every instruction set that this CPU has.

use super::activations::{RowLayout, group_of, quantise_row};
use super::dot::{Set, Tile, every_set};
use super::layout::{Layout, PANEL};
use crate::blocks::BlockFormat;
use crate::cpu::team::Team;
use crate::weights::WeightView;

/// Blocks of random bytes with scales of a usual size.
pub(crate) fn random_blocks(format: BlockFormat, values: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = (0..format.bytes_of(values).unwrap()).map(|_| next()).collect();
    let half = |value: f32| half::f16::from_f32(value).to_le_bytes();
    for block in bytes.chunks_exact_mut(format.bytes()) {
        let scale = half((f32::from(next()) - 100.0) * 1e-3);
        let offset = half((f32::from(next()) - 100.0) * 1e-2);
        match format {
            BlockFormat::Q6K => block[208..210].copy_from_slice(&scale),
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => block[..2].copy_from_slice(&scale),
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => {
                block[..2].copy_from_slice(&scale);
                block[2..4].copy_from_slice(&offset);
            }
        }
    }
    bytes
}

/// What a quantised row stands for.
fn dequantised_row(layout: &Layout, quantised: &[f32], row: usize, rows: usize, most: usize) -> Vec<f64> {
    let places = RowLayout::of(layout);
    let (first, size) = group_of(row, rows, most);
    let group = &quantised[first * places.bytes / 4..][..size * places.bytes / 4];
    let integers: &[i8] = bytemuck::cast_slice(group);
    let value = |input: usize| {
        let at = input / 32 * size + row - first;
        f64::from(integers[at * 32 + input % 32]) * f64::from(group[size * places.scales / 4 + at])
    };
    (0..layout.inputs).map(value).collect()
}

#[test]
fn products_are_those_of_the_values_that_integers_stand_for() {
    for format in BlockFormat::ALL {
        let layout = Layout { format, outputs: 37, inputs: 3 * format.values() };
        let blocks = random_blocks(format, layout.outputs * layout.inputs, 7);
        let mut weights = vec![0.0; layout.outputs * layout.inputs];
        format.dequantise(&blocks, &mut weights);
        let mut packed = vec![0.0f32; layout.floats()];
        let mut team = Team::new(2, 0).unwrap();
        layout.pack(&mut team, &WeightView::Blocks(format, blocks.into()), &mut packed);
        for output in 0..layout.outputs {
            let mut row = vec![0.0; layout.inputs];
            layout.read_row(&packed, output, &mut row);
            assert_eq!(row, weights[output * layout.inputs..][..layout.inputs], "{format:?}, row {output}");
        }
        // Groups of every size.
        for (set, rest) in every_set().into_iter().flat_map(|set| [(set, 8), (set, 4 + 2 + 1)]) {
            check_products(&layout, &weights, &packed, set, rest);
        }
    }
}

/// Twelve rows and `rest`, with rows before the tile.
fn check_products(layout: &Layout, weights: &[f32], packed: &[f32], (set, most, multiply): Set, rest: usize) {
    let (rows, first, places) = (12 + 12 + rest, 12, RowLayout::of(layout));
    let mut quantised = vec![0.0f32; rows * places.bytes / 4];
    let values: Vec<f32> = (0..rows * layout.inputs).map(|index| ((index * 37 % 101) as f32 - 50.0) * 0.013).collect();
    for (row, values) in values.chunks_exact(layout.inputs).enumerate() {
        let (first, size) = group_of(row, rows, most);
        let group = &mut quantised[first * places.bytes / 4..][..size * places.bytes / 4];
        quantise_row(layout, values, row - first, size, bytemuck::cast_slice_mut(group));
    }
    let (panels, activations) = (layout.panels(), bytemuck::cast_slice(&quantised));
    let weights_bytes: &[u8] = bytemuck::cast_slice(packed);
    let tile =
        Tile { layout, weights: weights_bytes, activations, all_rows: rows, rows: (first, rows), panels: (0, panels) };
    let mut sums = vec![f32::NAN; (rows - first) * panels * PANEL];
    // SAFETY: the tile is whole, and the instructions were detected.
    unsafe { multiply(&tile, &places, &mut sums) };
    for row in first..rows {
        let activation = dequantised_row(layout, &quantised, row, rows, most);
        for (one, again) in values[row * layout.inputs..].iter().zip(&activation) {
            assert!((f64::from(*one) - again).abs() <= 0.65 / 127.0 / 2.0 + 1e-6, "{one} became {again}");
        }
        for output in 0..layout.outputs {
            let weight = &weights[output * layout.inputs..][..layout.inputs];
            let terms = weight.iter().zip(&activation).map(|(w, a)| f64::from(*w) * a);
            let (expected, size): (f64, f64) =
                terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let got = f64::from(sums[(row - first) * panels * PANEL + output]);
            assert!((got - expected).abs() <= 1e-6 * size, "{:?} on {set}: {got}, not {expected}", layout.format);
        }
    }
}

#[test]
fn rows_are_divided_into_groups() {
    assert_eq!(
        [0, 11, 12, 23, 24, 27, 28, 29, 30].map(|row| group_of(row, 31, 12)),
        [(0, 12), (0, 12), (12, 12), (12, 12), (24, 4), (24, 4), (28, 2), (28, 2), (30, 1)]
    );
    assert_eq!(
        [11, 12, 19, 20, 21, 22].map(|row| group_of(row, 23, 12)),
        [(0, 12), (12, 8), (12, 8), (20, 2), (20, 2), (22, 1)]
    );
    assert_eq!([0, 1, 2].map(|row| group_of(row, 3, 2)), [(0, 2), (0, 2), (2, 1)]);
    assert_eq!(group_of(5, 9, 1), (5, 1));
}

#[test]
fn a_value_that_is_no_number_is_not_hidden() {
    let layout = Layout { format: BlockFormat::Q8_0, outputs: 1, inputs: 64 };
    let places = RowLayout::of(&layout);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![0.5; 64];
        values[40] = bad;
        let mut row = vec![0.0f32; places.bytes / 4];
        quantise_row(&layout, &values, 0, 1, bytemuck::cast_slice_mut(&mut row));
        let scales = &row[places.scales / 4..];
        assert_eq!(scales[0], 0.5 / 127.0);
        assert!(scales[1].is_nan());
    }
}
