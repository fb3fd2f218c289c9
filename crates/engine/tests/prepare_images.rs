//! Pictures become numbers: the CPU (and the GPU, where there is one) against the reference, for every kind of draws.

mod common;

use common::{Checks, cases, check, leaf_values, run_cpu, run_cuda, subject};
use proptest::prelude::*;
use vitreous_engine::ops::PrepareImages;
use vitreous_engine::ops::image_draws::{Area, ImageDrawsMut, Laying, Mixing};
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{DType, Graph, Precision, Result, Value};

const NO_GRADIENT: Checks =
    Checks { gradient: false, f32: 1e-5, bf16: Some(1e-5), least: 1e-3, differences: 0, all_on_gpu: true };

/// A whole number under `end`, a pure function of what it is for and of its position.
fn below(what: &str, position: usize, end: usize) -> usize {
    Stream::new(3, 0, place_of(what)).four(position as u64)[0] as usize % end
}

fn pixel_word(position: usize) -> i32 {
    Stream::new(4, 0, 0).four(position as u64)[0] as i32
}

/// A box in a picture; it may be empty.
fn area(what: &str, position: usize, [height, width]: [usize; 2]) -> Area {
    let number = |side: &str, end: usize| below(&format!("{what} {side}"), position, end);
    let (box_height, box_width) = (number("height", height + 1), number("width", width + 1));
    Area {
        top: number("top", height - box_height + 1) as i32,
        left: number("left", width - box_width + 1) as i32,
        height: box_height as i32,
        width: box_width as i32,
    }
}

/// Draws of all kinds: shifts up to one more than a whole side, flips, boxes over boxes, every way of mixing.
fn draws(op: &PrepareImages, batch: usize) -> Vec<i32> {
    let size = [op.height, op.width];
    let mut words = vec![0; batch * op.draws_length()];
    for (sample, row) in words.chunks_mut(op.draws_length()).enumerate() {
        let mut row = ImageDrawsMut::new(row, op.channels);
        let shift = |what: &str, side: usize| below(what, sample, 2 * side + 3) as i32 - side as i32 - 1;
        let (mirrored, upside_down) = (below("mirrored", sample, 2) == 1, below("upside down", sample, 2) == 1);
        row.clear();
        row.lay(Laying { top: shift("top", op.height), left: shift("left", op.width), mirrored, upside_down });
        row.set_stream(Stream::new(9, 1, sample as u64));
        for index in 0..below("boxes", sample, op.most_boxes + 1) {
            let (at, place) = (sample * 100 + index, below("start", sample * 100 + index, 1 << 20) as u32 * 2);
            let colours: Vec<f32> = (0..op.channels).map(|channel| (at + channel) as f32 / 7.0 - 1.0).collect();
            match op.noise {
                true => row.erase_with_noise(area("erased", at, size), place),
                false => row.erase(area("erased", at, size), &colours),
            }
        }
        let own = below("share", sample, 1000) as f32 / 1000.0;
        row.mix(match below("mixing", sample, 3) {
            0 => Mixing::Nothing,
            1 => Mixing::Blend { own, partner: 1.0 - own },
            _ => Mixing::Paste(area("pasted", sample, size)),
        });
    }
    words
}

fn build(g: &mut Graph, op: PrepareImages, batch: usize) -> Result<Value> {
    let pixels = g.input("pixels", [batch, op.pixel_words()], DType::I32)?;
    let draws = g.input("draws", [batch, op.draws_length()], DType::I32)?;
    let numbers = common::random_values("table", op.channels * 256).into_iter().map(|number| number as f32);
    let table = g.constant("table", [op.channels, 256], numbers.collect())?;
    g.prepare_images(pixels, draws, table, op)
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn pictures_become_numbers(
        batch in 1usize..8,
        channels in prop_oneof![Just(1usize), Just(3)],
        height in 1usize..20,
        width in prop_oneof![1usize..20, Just(16), Just(28)],
        most_boxes in 0usize..5,
        noise: bool,
    ) {
        let op = PrepareImages { channels, height, width, most_boxes, noise };
        let draws = draws(&op, batch);
        check(&|g: &mut Graph| build(g, op, batch), &|name, position| match name {
            "pixels" => pixel_word(position),
            _ => draws[position],
        }, NO_GRADIENT);
    }

    /// The numbers of the draws come from elsewhere: whatever they are, nothing outside of the inputs is read.
    #[test]
    fn any_draws_are_safe(batch in 1usize..4, most_boxes in 0usize..3, noise: bool, seed: u64) {
        let op = PrepareImages { channels: 3, height: 5, width: 8, most_boxes, noise };
        let subject = subject(&|g: &mut Graph| build(g, op, batch), Precision::F32, false);
        let numbers = Stream::new(seed, 0, 0);
        let values = leaf_values(&subject.graph, &|_, position| {
            let [word, kind, ..] = numbers.four(position as u64);
            [0, 1, 2, i32::MAX, i32::MIN, word as i32][kind as usize % 6]
        });
        prop_assert_eq!(run_cpu(&subject.graph, &[subject.y], &values, 2)[0].len(), batch * 3 * 5 * 8);
        if let Some(device) = common::gpu() {
            run_cuda(&subject.graph, &[subject.y], &values, device);
        }
    }
}

#[test]
fn many_large_pictures() {
    let op = PrepareImages { channels: 3, height: 96, width: 100, most_boxes: 2, noise: true };
    let draws = draws(&op, 65);
    let numbers = |name: &str, position: usize| if name == "pixels" { pixel_word(position) } else { draws[position] };
    check(&|g: &mut Graph| build(g, op, 65), &numbers, NO_GRADIENT);
}

#[test]
fn what_does_not_fit_is_refused() {
    let op = PrepareImages { channels: 3, height: 5, width: 7, most_boxes: 1, noise: false };
    let refusal = |op: PrepareImages, words: usize, drawn: usize, channels: usize| {
        let mut g = Graph::for_training();
        let pixels = g.input("pixels", [2, words], DType::I32).unwrap();
        let draws = g.input("draws", [2, drawn], DType::I32).unwrap();
        let table = g.constant("table", [channels, 256], vec![0.0; channels * 256]).unwrap();
        g.prepare_images(pixels, draws, table, op).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(refusal(op, 27, op.draws_length(), 3), Ok(()));
    let shapes = "takes pixels [batch, 27], draws [batch, 18], a table [3, 256]";
    for [words, drawn, channels] in [[26, 18, 3], [27, 17, 3], [27, 18, 1]] {
        let error = refusal(op, words, drawn, channels).unwrap_err();
        assert!(error.contains(shapes), "{error}");
    }
    let error = refusal(PrepareImages { channels: 5, ..op }, 27, 18, 3).unwrap_err();
    assert!(error.contains("up to four channels"), "{error}");
    let huge = PrepareImages { height: 1 << 20, width: 1 << 20, ..op };
    let error = refusal(huge, 27, 18, 3).unwrap_err();
    assert!(error.contains("2^30"), "{error}");
}
