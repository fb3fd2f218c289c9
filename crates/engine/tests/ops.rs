//! Every op: CPU f32 and bf16 against the f64 reference, gradients against finite differences, poisoned memory, equal bits for 1, 2 and
//! 4 threads, over sizes that are not round.

mod common;

use common::{Checks, cases, check, no_numbers};
use proptest::prelude::*;
use vitreous_engine::{Activation, CrossEntropyOptions, DType, Graph, Result, Value};

const F32: DType = DType::F32;

fn width() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), Just(3), Just(17), Just(31), Just(64), Just(130)]
}

fn tokens() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), Just(3), Just(17), Just(197)]
}

/// Rows long enough for a norm's gradient not to cancel to nothing.
fn wide() -> impl Strategy<Value = usize> {
    prop_oneof![Just(5usize), Just(17), Just(31), Just(64), Just(130)]
}

/// Each op rounds its operands in bf16, so errors of several in a row add up; where a rounding switches a ReLU, there is no
/// limit to them.
fn several_ops(kind: Activation) -> Checks {
    let bf16 = (kind != Activation::Relu).then_some(3e-2);
    Checks { bf16, differences: 3, ..Checks::default() }
}

fn quick() -> Checks {
    Checks::default()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn linear(rows in tokens(), inner in width(), out in width(), batch in 1usize..3, bias: bool) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [batch, rows, inner], F32)?;
            let w = g.parameter("weight", [out, inner])?;
            let b = if bias { Some(g.parameter("bias", [out])?) } else { None };
            g.linear(x, w, b)
        }, &no_numbers, quick());
    }

    #[test]
    fn linear_with_everything_fused(rows in tokens(), inner in width(), out in wide(), samples in 1usize..4, kind in 0usize..6) {
        let activation = [
            Activation::Gelu, Activation::GeluTanh, Activation::QuickGelu, Activation::Relu, Activation::Silu, Activation::Tanh,
        ][kind];
        check(&|g: &mut Graph| {
            let x = g.input("x", [samples, rows, inner], F32)?;
            let w = g.parameter("weight", [out, inner])?;
            let b = g.parameter("bias", [out])?;
            let gamma = g.parameter("layer_scale", [out])?;
            let residual = g.input("residual", [samples, rows, out], F32)?;
            let h = g.linear(x, w, Some(b))?;
            let h = g.activation(h, activation)?;
            let h = g.dropout(h, 0.2)?;
            let h = g.multiply(h, gamma)?;
            let h = g.stochastic_depth(h, 0.3)?;
            g.add(residual, h)
        }, &no_numbers, several_ops(activation));
    }

    #[test]
    fn matmul(batch in 1usize..6, m in width(), n in width(), k in width(), ta: bool, tb: bool) {
        check(&|g: &mut Graph| {
            let a = g.input("a", if ta { [batch, k, m] } else { [batch, m, k] }, F32)?;
            let b = g.input("b", if tb { [batch, n, k] } else { [batch, k, n] }, F32)?;
            g.matmul(a, b, ta, tb)
        }, &no_numbers, quick());
    }

    #[test]
    fn elementwise(rows in tokens(), columns in width(), leading in 1usize..3, which in 0usize..10) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [leading, rows, columns], F32)?;
            match which {
                0 => { let y = g.input("y", [leading, rows, columns], F32)?; g.add(x, y) }
                1 => { let y = g.input("y", [rows, columns], F32)?; g.add(y, x) }
                2 => { let y = g.parameter("y", [columns])?; g.multiply(x, y) }
                3 => { let y = g.input("y", [rows, columns], F32)?; g.multiply(x, y) }
                4 => g.scale(x, -0.75),
                5 => g.gelu(x),
                6 => g.gelu_tanh(x),
                7 => g.silu(x),
                8 => g.tanh(x),
                _ => g.relu(x),
            }
        }, &no_numbers, quick());
    }

    #[test]
    fn a_value_times_and_plus_itself(rows in tokens(), columns in width()) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            let x = g.scale(x, 2.0)?;
            let squared = g.multiply(x, x)?;
            let twice = g.add(squared, squared)?;
            g.add(twice, x)
        }, &no_numbers, quick());
    }

    /// What a fused node stores on its way cannot be read by the node itself.
    #[test]
    fn a_value_meets_itself_again(rows in tokens(), columns in wide(), which in 0usize..3) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            let weight = g.parameter("weight", [columns, columns])?;
            let h = if which == 0 { g.linear(x, weight, None)? } else { g.scale(x, 0.7)? };
            let activated = g.gelu(h)?;
            let mixed = if which == 1 { g.multiply(h, activated)? } else { g.add(activated, h)? };
            if which == 0 { Ok(mixed) } else { g.linear(mixed, weight, None) }
        }, &no_numbers, several_ops(Activation::Gelu));
    }

    #[test]
    fn more_steps_than_there_are_ready_masks(rows in tokens(), columns in wide()) {
        check(&|g: &mut Graph| {
            let mut x = g.input("x", [2, rows, columns], F32)?;
            for _ in 0..14 {
                x = g.scale(x, 1.01)?;
            }
            x = g.dropout(x, 0.4)?;
            g.stochastic_depth(x, 0.4)
        }, &no_numbers, quick());
    }

    #[test]
    fn dropout_and_stochastic_depth(samples in 1usize..5, rows in tokens(), columns in width(), rate in 0.05f32..0.9) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [samples, rows, columns], F32)?;
            let x = g.dropout(x, rate)?;
            let x = g.scale(x, 0.5)?;
            g.stochastic_depth(x, rate)
        }, &no_numbers, quick());
    }

    #[test]
    fn layer_norm(rows in tokens(), columns in prop_oneof![Just(5usize), Just(17), Just(128), Just(771)], affine: bool) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [2, rows, columns], F32)?;
            if affine {
                let (gamma, beta) = (g.parameter("gamma", [columns])?, g.parameter("beta", [columns])?);
                g.layer_norm(x, gamma, beta, 1e-6)
            } else {
                g.layer_norm_plain(x, 1e-5)
            }
        }, &no_numbers, quick());
    }

    #[test]
    fn rms_norm(rows in tokens(), columns in wide()) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            let gamma = g.parameter("gamma", [columns])?;
            g.rms_norm(x, gamma, 1e-6)
        }, &no_numbers, quick());
    }

    #[test]
    fn add_fused_into_norm(rows in tokens(), columns in prop_oneof![Just(5usize), Just(64), Just(130)], keep: bool) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [2, rows, columns], F32)?;
            let y = g.input("y", [rows, columns], F32)?;
            let (gamma, beta) = (g.parameter("gamma", [columns])?, g.parameter("beta", [columns])?);
            let sum = g.add(x, y)?;
            let normal = g.layer_norm(sum, gamma, beta, 1e-6)?;
            if keep { g.add(normal, sum) } else { Ok(normal) }
        }, &no_numbers, quick());
    }

    #[test]
    fn softmax(rows in tokens(), columns in width()) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            g.softmax(x)
        }, &no_numbers, quick());
    }

    #[test]
    fn pooling(samples in 1usize..4, rows in tokens(), columns in width(), max: bool) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [samples, rows, columns], F32)?;
            if max { g.max_tokens(x) } else { g.mean_tokens(x) }
        }, &no_numbers, quick());
    }

    #[test]
    fn patchify(n in 1usize..3, channels in 1usize..4, gh in 1usize..4, gw in 1usize..4, ph in 1usize..5, pw in 1usize..6) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [n, channels, gh * ph, gw * pw], F32)?;
            let patches = g.patchify(x, [ph, pw])?;
            g.scale(patches, 1.5)
        }, &no_numbers, quick());
    }

    #[test]
    fn unpatchify_is_the_inverse(n in 1usize..3, channels in 1usize..4, grid in 1usize..4, patch in 1usize..5) {
        check(&|g: &mut Graph| {
            let shape = [n, channels, grid * patch, grid * patch];
            let x = g.input("x", shape, F32)?;
            let patches = g.patchify(x, [patch, patch])?;
            let back = g.unpatchify(patches, [patch, patch], shape)?;
            let minus = g.scale(x, -1.0)?;
            let zero = g.add(back, minus)?;
            g.add(zero, x)
        }, &no_numbers, quick());
    }

    #[test]
    fn moves(a in 1usize..4, b in 1usize..5, c in 1usize..6, which in 0usize..6) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [a, b, c], F32)?;
            match which {
                0 => g.transpose(x, &[2, 0, 1]),
                1 => g.transpose(x, &[1, 0, 2]),
                2 => { let y = g.input("y", [a, 2, c], F32)?; g.concat(&[y, x, y], 1) }
                3 => { let y = g.input("y", [a, b, 3], F32)?; g.concat(&[x, y], 2) }
                4 => g.slice(x, 1, b / 2, b),
                _ => { let flat = g.reshape(x, [a * b, c])?; let back = g.transpose(flat, &[1, 0])?; g.slice(back, 0, 0, 1) }
            }
        }, &no_numbers, quick());
    }

    #[test]
    fn broadcast_and_sum(leading in 1usize..40, columns in width()) {
        check(&|g: &mut Graph| {
            let token = g.parameter("token", [1, columns])?;
            let all = g.broadcast(token, [leading, 1, columns])?;
            let x = g.input("x", [leading, 1, columns], F32)?;
            let sum = g.add(all, x)?;
            g.sum_leading(sum, [columns])
        }, &no_numbers, quick());
    }

    #[test]
    fn sums_of_many_and_of_long_rows(rows in prop_oneof![Just(3usize), Just(700)], columns in prop_oneof![Just(7usize), Just(5000)]) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            g.sum_leading(x, [columns])
        }, &no_numbers, Checks { differences: 2, ..quick() });
    }

    #[test]
    fn embedding(vocabulary in 1usize..40, count in tokens(), columns in width()) {
        check(&|g: &mut Graph| {
            let table = g.parameter("table", [vocabulary, columns])?;
            let numbers = g.input("numbers", [2, count], DType::I32)?;
            g.embedding(table, numbers)
        }, &|_, i| ((i * i * 7 + i) % vocabulary) as i32, quick());
    }

    /// Relative positions: the bias of attention is looked up by numbers that are part of the graph.
    #[test]
    fn embedding_of_constant_numbers(vocabulary in 1usize..40, heads in 1usize..5, queries in tokens(), keys in tokens()) {
        check(&|g: &mut Graph| {
            let table = g.parameter("table", [vocabulary, heads])?;
            let numbers: Vec<i32> = (0..queries * keys).map(|i| ((i * i * 7 + i) % vocabulary) as i32).collect();
            let numbers = g.constant_i32("numbers", [queries * keys], &numbers)?;
            let rows = g.embedding(table, numbers)?;
            let by_head = g.transpose(rows, &[1, 0])?;
            g.reshape(by_head, [1, heads, queries, keys])
        }, &no_numbers, quick());
    }

    /// Few rows that are used often, many that are used seldom, and one that has half of all numbers.
    #[test]
    fn embedding_of_many_numbers(
        (vocabulary, columns) in prop_oneof![Just((2usize, 20usize)), Just((700, 900))],
        count in prop_oneof![Just(300usize), Just(5000)],
        often: bool,
    ) {
        check(&|g: &mut Graph| {
            let table = g.parameter("table", [vocabulary, columns])?;
            let numbers = g.input("numbers", [count], DType::I32)?;
            g.embedding(table, numbers)
        }, &|_, i| if often && i % 2 == 0 { 1 } else { ((i * i * 7 + i) % vocabulary) as i32 }, Checks { differences: 2, ..quick() });
    }

    #[test]
    fn top_k(rows in tokens(), columns in prop_oneof![Just(1usize), Just(17), Just(130), Just(9000)], k in 1usize..9, few: bool) {
        let k = k.min(columns);
        let build = |indices: bool| move |g: &mut Graph| -> Result<Value> {
            // Of few different numbers many are equal.
            let x = if few {
                let numbers = g.input("numbers", [rows, columns], DType::I32)?;
                let table = g.constant("table", [5, 1], vec![0.5, -1.0, 2.0, 0.0, 1.25])?;
                let x = g.embedding(table, numbers)?;
                g.reshape(x, [rows, columns])?
            } else {
                g.input("x", [rows, columns], F32)?
            };
            let (values, places) = g.top_k(x, k)?;
            Ok(if indices { places } else { values })
        };
        for indices in [false, true] {
            let checks = Checks { gradient: false, ..quick() };
            check(&build(indices), &|_, i| ((i * i + i * 3) % 5) as i32, checks);
        }
    }

    #[test]
    fn cross_entropy_hard(
        rows in tokens(),
        classes in width(),
        smoothing in prop_oneof![Just(0.0f32), Just(0.1)],
        z_loss in prop_oneof![Just(0.0f32), Just(0.25)],
        ignore: bool,
    ) {
        check(&|g: &mut Graph| {
            let logits = g.input("logits", [rows, classes], F32)?;
            let targets = g.input("targets", [rows], DType::I32)?;
            let ignored_index = ignore.then_some(-100);
            g.cross_entropy(logits, targets, CrossEntropyOptions { label_smoothing: smoothing, ignored_index, z_loss })
        }, &|_, i| if ignore && i % 3 == 1 { -100 } else { ((i * 5) % classes) as i32 }, quick());
    }

    /// By itself: beside e^x of a wide product, finite differences of a residual would be lost.
    #[test]
    fn exponentials(rows in tokens(), columns in width()) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            g.activation(x, Activation::Exp)
        }, &no_numbers, quick());
    }

    #[test]
    fn casts(rows in tokens(), columns in width()) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [rows, columns], F32)?;
            g.scale(x, 3.0)
        }, &no_numbers, quick());
        let build = |g: &mut Graph| -> Result<Value> {
            let x = g.input("x", [rows, columns], F32)?;
            let narrow = g.cast(x, DType::Bf16)?;
            g.cast(narrow, F32)
        };
        let subject = common::subject(&build, vitreous_engine::Precision::F32, false);
        let values = common::leaf_values(&subject.graph, &no_numbers);
        let got = common::run_cpu(&subject.graph, &[subject.y], &values, 2);
        for (got, from) in got[0].iter().zip(&values["x"]) {
            prop_assert_eq!(*got, half::bf16::from_f32(*from as f32).to_f32());
        }
    }
}

#[test]
fn cross_entropy_soft() {
    // Targets have no gradient, so they are a constant here.
    for (rows, classes, smoothing, z_loss) in [(1, 1, 0.0, 0.0), (3, 10, 0.1, 0.0), (17, 31, 0.0, 0.25)] {
        check(
            &|g: &mut Graph| {
                let logits = g.input("logits", [rows, classes], F32)?;
                let soft = common::random_values("soft", rows * classes).iter().map(|x| (x * x) as f32).collect();
                let targets = g.constant("targets", [rows, classes], soft)?;
                let options = CrossEntropyOptions { label_smoothing: smoothing, z_loss, ignored_index: None };
                g.cross_entropy(logits, targets, options)
            },
            &no_numbers,
            quick(),
        );
    }
}

#[test]
fn binary_cross_entropy() {
    for (rows, classes, sum_classes) in [(1, 1, false), (3, 10, true), (17, 31, false), (70, 600, true)] {
        check(
            &|g: &mut Graph| {
                let logits = g.input("logits", [rows, classes], F32)?;
                let soft = common::random_values("soft", rows * classes).into_iter().map(|x| x.abs().min(1.0) as f32);
                let targets = g.constant("targets", [rows, classes], soft.collect())?;
                g.binary_cross_entropy(logits, targets, sum_classes)
            },
            &no_numbers,
            quick(),
        );
    }
}

#[test]
fn a_batch_in_which_no_row_counts_has_loss_zero() {
    check(
        &|g: &mut Graph| {
            let logits = g.input("logits", [4, 3], F32)?;
            let targets = g.input("targets", [4], DType::I32)?;
            g.cross_entropy(
                logits,
                targets,
                CrossEntropyOptions { label_smoothing: 0.1, ignored_index: Some(-1), z_loss: 0.5 },
            )
        },
        &|_, _| -1,
        quick(),
    );
}

/// Rows that some lanes of a warp have, one warp, several, several rows of a block, one row after the other; kept and read again. Around
/// the norm, what models have there: a product before, and a residual.
#[test]
fn norms_of_rows_of_every_length() {
    let few =
        [17, 48, 192, 256, 257, 320, 384, 640, 768, 1001, 1024, 1500, 2000, 4100, 9001].map(|columns| (3, columns));
    for (rows, columns) in few.into_iter().chain([(700, 264), (1300, 384), (600, 16), (3500, 24)]) {
        for rms in [false, true] {
            let build = |g: &mut Graph| -> Result<Value> {
                let x = g.input("x", [rows, 4], F32)?;
                let weight = g.parameter("weight", [columns, 4])?;
                let (gamma, beta) = (g.parameter("gamma", [columns])?, g.parameter("beta", [columns])?);
                let x = g.linear(x, weight, None)?;
                let shift = g.input("shift", [rows, columns], F32)?;
                let x = g.add(shift, x)?;
                let y = if rms { g.rms_norm(x, gamma, 1e-6)? } else { g.layer_norm(x, gamma, beta, 1e-6)? };
                let y = g.add(y, beta)?;
                let y = g.multiply(y, y)?;
                g.add(x, y)
            };
            check(&build, &no_numbers, Checks { differences: 1, ..several_ops(Activation::Gelu) });
        }
    }
}

#[test]
fn norms_of_one_number() {
    // The gradient cancels to (almost) nothing here, so errors are absolute.
    for rms in [false, true] {
        let build = |g: &mut Graph| -> Result<Value> {
            let x = g.input("x", [3, 1], F32)?;
            let gamma = g.parameter("gamma", [1])?;
            let beta = g.parameter("beta", [1])?;
            let y = if rms { g.rms_norm(x, gamma, 1e-6)? } else { g.layer_norm(x, gamma, beta, 1e-6)? };
            g.add(y, beta)
        };
        let subject = common::subject(&build, vitreous_engine::Precision::F32, true);
        let values = common::leaf_values(&subject.graph, &no_numbers);
        let wanted: Vec<Value> =
            std::iter::once(subject.y).chain(subject.gradients.iter().map(|(_, _, gradient)| *gradient)).collect();
        let truth = common::reference_for(&subject.graph, &values).run(&subject.graph, common::RUN).unwrap();
        for (got, value) in common::run_cpu(&subject.graph, &wanted, &values, 2).iter().zip(&wanted) {
            for (got, expected) in got.iter().zip(&truth.get(*value).data) {
                assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} for {expected}");
            }
        }
    }
}

#[test]
fn other_instruction_sets() {
    common::run_on_other_instruction_sets("other_instruction_sets");
}

#[test]
fn concatenation_of_rows_longer_than_a_thread_s_scratch() {
    check(
        &|g: &mut Graph| {
            let x = g.input("x", [3, 2500], F32)?;
            let y = g.input("y", [3, 1700], F32)?;
            g.concat(&[x, y, x], 1)
        },
        &no_numbers,
        Checks { differences: 2, ..quick() },
    );
}

/// γ that is the norm's own input: no step may read it before it is there.
#[test]
fn a_norm_of_a_value_scaled_by_itself() {
    check(
        &|g: &mut Graph| {
            let x = g.input("x", [40], F32)?;
            let v = g.silu(x)?;
            let beta = g.parameter("beta", [40])?;
            g.layer_norm(v, v, beta, 1e-6)
        },
        &no_numbers,
        quick(),
    );
}

/// Infinities and NaN end in some number, not in a hang or a crash.
#[test]
fn infinities_do_not_hang() {
    for poison in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3e38, 1e-40] {
        let build = |g: &mut Graph| -> Result<Value> {
            let x = g.input("x", [5, 33], F32)?;
            let weight = g.parameter("weight", [33, 33])?;
            let gamma = g.parameter("gamma", [33])?;
            let h = g.linear(x, weight, None)?;
            let h = g.gelu(h)?;
            let h = g.gelu_tanh(h)?;
            let h = g.silu(h)?;
            let h = g.layer_norm(h, gamma, gamma, 1e-6)?;
            let h = g.rms_norm(h, gamma, 1e-6)?;
            let h = g.max_tokens(h)?;
            g.softmax(h)
        };
        for precision in [vitreous_engine::Precision::F32, vitreous_engine::Precision::Bf16] {
            let subject = common::subject(&build, precision, true);
            let mut values = common::leaf_values(&subject.graph, &no_numbers);
            values.get_mut("x").unwrap().iter_mut().step_by(7).for_each(|x| *x = poison);
            let wanted: Vec<Value> = vec![subject.y, subject.gradients[0].2];
            let results = common::run_cpu(&subject.graph, &wanted, &values, 2);
            assert_eq!(results[1].len(), 5 * 33);
            // What cannot be a number is not made into one.
            assert_eq!(
                results[0].iter().all(|x| x.is_finite()),
                poison.is_finite() && poison < 1.0,
                "{poison}: {:?}",
                results[0]
            );
        }
    }
}

/// GELU and its slope where there is nothing beyond: the same on every device, and NaN stays NaN.
#[test]
fn gelu_of_infinity_is_what_it_tends_to() {
    let ends = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 30.0, -30.0, 3e38, -3e38, 0.0];
    let build = |g: &mut Graph| -> Result<Value> {
        let x = g.input("x", [1, 8], F32)?;
        g.gelu(x)
    };
    let subject = common::subject(&build, vitreous_engine::Precision::F32, true);
    let mut values = common::leaf_values(&subject.graph, &no_numbers);
    values.get_mut("x").unwrap().copy_from_slice(&ends);
    let wanted = [subject.y, subject.gradients[0].2];
    let check = |results: Vec<Vec<f32>>, on: &str| {
        let expected = [f32::INFINITY, 0.0, f32::NAN, 30.0, 0.0, 3e38, 0.0, 0.0];
        let slopes_are_0 = [false, true, false, false, true, false, true, false];
        for index in 0..8 {
            let (got, gradient) = (results[0][index], results[1][index]);
            let (got_nan, apart) = (got.is_nan() && expected[index].is_nan(), (got - expected[index]).abs());
            let same = got == expected[index] || got_nan || apart <= 1e-6;
            assert!(same, "{on}: GELU of {} is {got}", ends[index]);
            assert_eq!(gradient.is_nan(), ends[index].is_nan(), "{on}: the slope at {}", ends[index]);
            assert!(!slopes_are_0[index] || gradient.abs() < 1e-6, "{on}: the slope at {} is {gradient}", ends[index]);
        }
    };
    check(common::run_cpu(&subject.graph, &wanted, &values, 1), "the CPU");
    if let Some(device) = common::gpu() {
        check(common::run_cuda(&subject.graph, &wanted, &values, device), "the GPU");
    }
}
