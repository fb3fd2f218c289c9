//! Plans whose weights are handed over as quantised blocks compute what plans with the same values as floats compute, but for the
//! rounding of activations.

mod common;

use vitreous_engine::{
    Activation, BlockFormat, Device, Error, Graph, Mode, Parameter, Precision, Result, SharedWeights, Value, WeightView,
};

/// Words looked up in a table, a layer with bias and activation, a residual sum, and the table once more as the output layer.
fn layers(g: &mut Graph, rows: usize) -> Result<Value> {
    let words = g.parameter("words", [50, 256])?;
    let tokens = g.input("tokens", [rows], vitreous_engine::DType::I32)?;
    let x = g.embedding(words, tokens)?;
    let (first, bias) = (g.parameter("first", [512, 256])?, g.parameter("bias", [512])?);
    let y = g.linear(x, first, Some(bias))?;
    let y = g.activation(y, Activation::Gelu)?;
    let second = g.parameter("second", [256, 512])?;
    let y = g.linear(y, second, None)?;
    let x = g.add(x, y)?;
    g.linear(x, words, None)
}

/// Blocks with random integers and plausible scales.
fn blocks(format: BlockFormat, parameter: &Parameter) -> Vec<u8> {
    let values = parameter.shape.elements();
    let random = common::random_values(&parameter.name, format.bytes_of(values).unwrap());
    let mut bytes: Vec<u8> = random.iter().map(|value| (value * 97.0) as i64 as u8).collect();
    let half = |value: f32| half::f16::from_f32(value).to_le_bytes();
    for block in bytes.chunks_exact_mut(format.bytes()) {
        match format {
            BlockFormat::Q6K => block[208..210].copy_from_slice(&half(2e-5)),
            BlockFormat::Q4_0 | BlockFormat::Q5_0 => block[..2].copy_from_slice(&half(8e-3)),
            BlockFormat::Q8_0 => block[..2].copy_from_slice(&half(1e-3)),
            BlockFormat::Q4_1 | BlockFormat::Q5_1 => {
                block[..2].copy_from_slice(&half(8e-3));
                block[2..4].copy_from_slice(&half(-6e-2));
            }
            BlockFormat::Q4K | BlockFormat::Q5K => {
                block[..2].copy_from_slice(&half(2e-4));
                block[2..4].copy_from_slice(&half(2e-3));
            }
        }
    }
    bytes
}

fn weight(format: BlockFormat, parameter: &Parameter) -> WeightView<'static> {
    match parameter.name.as_str() {
        "bias" => common::random_values("bias", 512).into_iter().map(|value| value as f32).collect::<Vec<f32>>().into(),
        _ => WeightView::Blocks(format, blocks(format, parameter).into()),
    }
}

fn run(format: BlockFormat, rows: usize, stays_quantised: bool, threads: usize) -> (Vec<f32>, usize) {
    run_on(&Device::Cpu { threads }, Precision::F32, format, rows, stays_quantised)
}

fn run_on(
    device: &Device,
    precision: Precision,
    format: BlockFormat,
    rows: usize,
    stays_quantised: bool,
) -> (Vec<f32>, usize) {
    let mut g = Graph::new(Mode::Inference, precision);
    let output = layers(&mut g, rows).unwrap();
    if stays_quantised {
        g.store_weights(|name| (name != "bias").then_some(format));
    }
    let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
    let bytes = plan.weight_bytes();
    let lend = |parameter: &Parameter| -> Result<_> { Ok(weight(format, parameter)) };
    let mut executor = vitreous_engine::Executor::with_weights(plan, device, lend).unwrap();
    let tokens = executor.input_i32("tokens").unwrap().iter_mut().enumerate();
    tokens.for_each(|(row, token)| *token = (row * 7 % 50) as i32);
    // A GPU records the second run and replays the third.
    for _ in 0..if device.is_gpu() { 3 } else { 1 } {
        executor.infer().unwrap();
    }
    (executor.output(output).unwrap(), bytes)
}

fn relative_error(expected: &[f32], got: &[f32]) -> f64 {
    let size: f64 = expected.iter().map(|&value| f64::from(value).powi(2)).sum();
    let error: f64 = expected.iter().zip(got).map(|(one, other)| (f64::from(*one) - f64::from(*other)).powi(2)).sum();
    assert!(size > 0.0 && expected.len() == got.len());
    (error / size).sqrt()
}

#[test]
fn quantised_weights_give_what_their_values_give() {
    for format in BlockFormat::ALL {
        for rows in [1, 2, 7, 30, 200] {
            let (expected, as_floats) = run(format, rows, false, 2);
            let (got, as_blocks) = run(format, rows, true, 2);
            assert_eq!(got, run(format, rows, true, 1).0, "{format:?}: threads change bits");
            let relative = relative_error(&expected, &got);
            assert!(relative < 1e-2, "{format:?}, {rows} rows: relative error {relative}");
            // They are not kept as floats beside: at most nine bits a value, and padding of the table to whole panels.
            assert!(as_blocks * 3 < as_floats, "{format:?}: {as_blocks} of {as_floats} bytes");
        }
    }
}

/// One row and few rows have a kernel of their own; of many, the weights are expanded first.
#[test]
fn a_gpu_multiplies_quantised_weights_as_they_are() {
    let Some(gpu) = common::gpu() else { return };
    let gpu = Device::Cuda(gpu.clone());
    for format in BlockFormat::ALL {
        for rows in [1, 2, 7, 8, 9, 30, 33, 200] {
            let (expected, _) = run(format, rows, false, 2);
            for precision in [Precision::F32, Precision::Bf16] {
                let (got, _) = run_on(&gpu, precision, format, rows, true);
                let relative = relative_error(&expected, &got);
                assert!(relative < 1e-2, "{format:?}, {rows} rows, {precision:?}: relative error {relative}");
            }
        }
    }
}

/// Each warp takes several spans of the depth, and the last ones end within a span.
#[test]
fn a_gpu_multiplies_deep_quantised_layers() {
    let Some(gpu) = common::gpu() else { return };
    let gpu = Device::Cuda(gpu.clone());
    for (format, depth) in [(BlockFormat::Q4_0, 2048), (BlockFormat::Q4_1, 1440), (BlockFormat::Q4K, 5632)] {
        for rows in [1, 5, 128] {
            let result = |device: &Device, stays_quantised: bool| {
                let mut g = Graph::new(Mode::Inference, Precision::Bf16);
                let x = g.input("x", [rows, depth], vitreous_engine::DType::F32).unwrap();
                let weight = g.parameter("weight", [40, depth]).unwrap();
                let y = g.linear(x, weight, None).unwrap();
                if stays_quantised {
                    g.store_weights(|_| Some(format));
                }
                let plan = device.plan_with_fixed_weights(&g, &[y]).unwrap();
                let lend = |parameter: &Parameter| -> Result<_> {
                    Ok(WeightView::Blocks(format, blocks(format, parameter).into()))
                };
                let mut executor = vitreous_engine::Executor::with_weights(plan, device, lend).unwrap();
                let random = common::random_values("x", rows * depth);
                executor.input("x").unwrap().iter_mut().zip(random).for_each(|(to, x)| *to = x as f32);
                for _ in 0..if device.is_gpu() { 3 } else { 1 } {
                    executor.infer().unwrap();
                }
                executor.output(y).unwrap()
            };
            let (expected, got) = (result(&Device::Cpu { threads: 2 }, false), result(&gpu, true));
            let relative = relative_error(&expected, &got);
            assert!(relative < 1e-2, "{format:?}, {rows} x {depth}: relative error {relative}");
        }
    }
}

#[test]
fn a_gpu_keeps_quantised_weights_small() {
    let Some(gpu) = common::gpu() else { return };
    let device = Device::Cuda(gpu.clone());
    let mut shared = SharedWeights::new(&device);
    let mut bytes = Vec::new();
    for rows in [1, 20, 300] {
        let mut g = Graph::new(Mode::Inference, Precision::Bf16);
        let output = layers(&mut g, rows).unwrap();
        g.store_weights(|name| (name != "bias").then_some(BlockFormat::Q4_0));
        let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
        assert!(device.bytes_needed_with_weights(&plan) >= device.bytes_needed(&plan) + shared.bytes());
        let lend = |parameter: &Parameter| -> Result<_> { Ok(weight(BlockFormat::Q4_0, parameter)) };
        vitreous_engine::Executor::with_shared_weights(plan, &device, &mut shared, lend).unwrap();
        bytes.push(shared.bytes());
    }
    let values = 50 * 256 + 2 * 512 * 256;
    // Four and a half bits a value, and the bias in one format or both.
    assert!(bytes.iter().all(|&count| count < values * 5 / 8 + 6 * 512), "{bytes:?} for {values} values");
}

#[test]
fn plans_of_all_sizes_share_quantised_weights() {
    let (format, device) = (BlockFormat::Q4_1, Device::Cpu { threads: 1 });
    let mut shared = SharedWeights::new(&device);
    let mut bytes = Vec::new();
    for rows in [1, 20, 300] {
        let mut g = Graph::for_inference();
        let output = layers(&mut g, rows).unwrap();
        g.store_weights(|name| (name != "bias").then_some(format));
        let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
        let lend = |parameter: &Parameter| -> Result<_> { Ok(weight(format, parameter)) };
        vitreous_engine::Executor::with_shared_weights(plan, &device, &mut shared, lend).unwrap();
        bytes.push(shared.bytes());
    }
    assert!(bytes[0] > 0 && bytes.iter().all(|&count| count == bytes[0]), "{bytes:?}");
}

#[test]
fn weights_in_another_format_than_was_said_are_refused() {
    let gpu = common::gpu().map(|gpu| Device::Cuda(gpu.clone()));
    for device in [Device::Cpu { threads: 1 }].into_iter().chain(gpu) {
        let mut g = Graph::for_inference();
        let output = layers(&mut g, 1).unwrap();
        g.store_weights(|name| (name == "second").then_some(BlockFormat::Q4_0));
        let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
        let lend = |parameter: &Parameter| -> Result<_> { Ok(weight(BlockFormat::Q8_0, parameter)) };
        let refusal = vitreous_engine::Executor::with_weights(plan, &device, lend).err();
        assert!(matches!(refusal, Some(Error::Data { name, .. }) if name == "second"));
    }
}
