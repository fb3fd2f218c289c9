//! Every format against f64, on every instruction set that this CPU has.

use super::activations::{RowLayout, quantise_row};
use super::dot::{Tile, multiply_with_every_set};
use super::layout::{Layout, PANEL};
use crate::blocks::BlockFormat;
use crate::cpu::team::Team;
use crate::weights::WeightView;

/// Blocks of random bytes with scales of a usual size.
fn random_blocks(format: BlockFormat, values: usize, seed: u64) -> Vec<u8> {
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
fn dequantised_row(layout: &Layout, row: &[u8]) -> Vec<f64> {
    let places = RowLayout::of(layout);
    (0..layout.inputs)
        .map(|input| {
            let at = places.scales + 4 * (input / 32);
            f64::from(row[input] as i8) * f64::from(f32::from_le_bytes(row[at..at + 4].try_into().unwrap()))
        })
        .collect()
}

#[test]
fn products_are_those_of_the_values_that_integers_stand_for() {
    for format in BlockFormat::ALL {
        let layout = Layout { format, outputs: 37, inputs: 3 * format.values() };
        let rows = 19;
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

        let places = RowLayout::of(&layout);
        let mut quantised = vec![0.0f32; rows * places.bytes / 4];
        let values: Vec<f32> =
            (0..rows * layout.inputs).map(|index| ((index * 37 % 101) as f32 - 50.0) * 0.013).collect();
        for (to, row) in quantised.chunks_exact_mut(places.bytes / 4).zip(values.chunks_exact(layout.inputs)) {
            quantise_row(&layout, row, bytemuck::cast_slice_mut(to));
        }
        let activations: &[u8] = bytemuck::cast_slice(&quantised);
        for (row, values) in values.chunks_exact(layout.inputs).enumerate() {
            for (one, again) in values.iter().zip(dequantised_row(&layout, &activations[row * places.bytes..])) {
                assert!((f64::from(*one) - again).abs() <= 0.65 / 127.0 / 2.0 + 1e-6, "{one} became {again}");
            }
        }

        let panels = layout.panels();
        let weights_bytes: &[u8] = bytemuck::cast_slice(&packed);
        let tile = Tile { layout: &layout, weights: weights_bytes, activations, rows: (1, rows), panels: (0, panels) };
        multiply_with_every_set(&tile, |set, sums| {
            for row in 1..rows {
                let activation = dequantised_row(&layout, &activations[row * places.bytes..]);
                for output in 0..layout.outputs {
                    let weight = &weights[output * layout.inputs..][..layout.inputs];
                    let terms = weight.iter().zip(&activation).map(|(w, a)| f64::from(*w) * a);
                    let (expected, size): (f64, f64) =
                        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let got = f64::from(sums[(row - 1) * panels * PANEL + output]);
                    assert!((got - expected).abs() <= 1e-6 * size, "{format:?} on {set}: {got}, not {expected}");
                }
            }
        });
    }
}

#[test]
fn a_value_that_is_no_number_is_not_hidden() {
    let layout = Layout { format: BlockFormat::Q8_0, outputs: 1, inputs: 64 };
    let places = RowLayout::of(&layout);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![0.5; 64];
        values[40] = bad;
        let mut row = vec![0.0f32; places.bytes / 4];
        quantise_row(&layout, &values, bytemuck::cast_slice_mut(&mut row));
        let scales = &row[places.scales / 4..];
        assert_eq!(scales[0], 0.5 / 127.0);
        assert!(scales[1].is_nan());
    }
}
