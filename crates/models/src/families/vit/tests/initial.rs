//! Initial values against timm's (`make_initial.py`): standard deviations and bounds, since the random numbers
//! themselves differ.

use std::fs;

use super::common::fixture;
use crate::Call;
use crate::families::vit::{PositionScope, Qkv, VitConfig, presets::preset, vit};
use crate::initial::{Initialisation, initial_values, initialise};
use vitreous_engine::{Graph, Parameter, State};

/// One layer of ViT-B/16 with registers and LayerScale.
fn config() -> VitConfig {
    let base = preset("vit_base_patch16_224").expect("a preset");
    let scope = PositionScope::All;
    VitConfig { depth: 1, registers: 4, layer_scale: Some(1e-5), position_scope: scope, qkv: Qkv::Fused, ..base }
}

fn state_of(config: &VitConfig, scheme: Initialisation, seed: u64) -> State {
    let mut graph = Graph::for_training();
    vit(&mut graph, &config, &Call::whole(1)).expect("builds");
    let mut state = State::new(&graph).expect("memory");
    state.parameters_mut().fill(f32::NAN);
    initialise(&mut state, scheme, seed, &|_| true).expect("known");
    state
}

/// Standard deviation and largest magnitude.
fn measure(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / (count - 1.0);
    assert!(mean.abs() <= 5.0 * (variance / count).sqrt() + 1e-9 || variance < 1e-18, "the mean is {mean}");
    (variance.sqrt(), values.iter().fold(0.0, |most, x| most.max(f64::from(x.abs()))))
}

#[test]
fn deviations_and_limits_are_those_of_timm() {
    let text = fs::read_to_string(fixture("initial.txt")).expect("a file");
    let ways = [
        ("default", Initialisation::TruncatedNormal),
        ("jax", Initialisation::Jax),
        ("reset", Initialisation::PyTorch),
    ];
    for (way, scheme) in ways {
        let state = state_of(&config(), scheme, 1);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split(' ').collect()).filter(|fields: &Vec<&str>| fields[0] == way).collect();
        assert_eq!(lines.len(), state.table().len());
        for fields in lines {
            let name = fields[1];
            let [deviation, largest] = [2, 3].map(|index| fields[index].parse::<f64>().expect("a number"));
            let values = state.parameter(name).expect("known");
            assert!(values.iter().all(|x| x.is_finite()), "{name}");
            if deviation == 0.0 {
                assert!(values.iter().all(|&x| x == largest as f32), "{way}: {name} is not {largest}");
                continue;
            }
            let (our_deviation, our_largest) = measure(values);
            // Both are estimates: their error falls with the number of values. Only a uniform distribution has a bound
            // near √3 standard deviations, and only a truncated normal one near 2.3.
            let error = 6.0 / (values.len() as f64).sqrt();
            assert!((our_deviation / deviation - 1.0).abs() < error, "{way}: {name} deviates by {our_deviation}");
            let limited = largest / deviation < 2.4;
            let limits = if limited { 1.0 - error..1.0 + error } else { 0.75..1.35 };
            assert!(limits.contains(&(our_largest / largest)), "{way}: {name} goes up to {our_largest}");
            assert_eq!(limited, our_largest / our_deviation < 2.4, "{way}: {name}");
        }
    }
}

#[test]
fn xavier_bounds_matrices_by_both_widths_however_they_are_kept() {
    let config = preset("vit_cifar").expect("a preset");
    for qkv in [Qkv::Separate, Qkv::Fused] {
        let state = state_of(&VitConfig { qkv, ..config.clone() }, Initialisation::Xavier, 1);
        let bound = |into: f64, out: f64| (6.0 / (into + out)).sqrt();
        let attention = match qkv {
            Qkv::Separate => "blocks.0.attention.query.weight",
            Qkv::Fused => "blocks.0.attention.qkv.weight",
        };
        for (name, expected) in [
            (attention, bound(128.0, 128.0)),
            ("blocks.0.mlp.fc1.weight", bound(128.0, 512.0)),
            ("patch_embedding.weight", bound(192.0, 128.0)),
            ("head.weight", bound(128.0, 10.0)),
        ] {
            let (deviation, largest) = measure(state.parameter(name).expect("known"));
            assert!(largest <= expected && largest > 0.99 * expected, "{name}: {largest}, not {expected}");
            assert!((deviation * 3f64.sqrt() / expected - 1.0).abs() < 0.06, "{name}: {deviation}");
        }
        let biases = state.table().iter().filter(|parameter| parameter.name.ends_with("bias"));
        assert!(biases.clone().count() > 40 - 12 * usize::from(qkv == Qkv::Fused));
        for parameter in biases {
            assert!(state.parameter(&parameter.name).expect("known").iter().all(|&x| x == 0.0), "{}", parameter.name);
        }
    }
}

#[test]
fn values_follow_from_seed_and_name_alone() {
    let (config, scheme) = (config(), Initialisation::Jax);
    let mut graph = Graph::for_training();
    vit(&mut graph, &config, &Call::whole(1)).expect("builds");
    let parameter = |name: &str, of: &str, shape: [usize; 2]| {
        let like = graph.parameters().iter().find(|known| known.name == of).expect("known");
        Parameter { name: name.to_string(), shape: shape.into(), ..like.clone() }
    };
    let output = "blocks.0.attention.output.weight";
    let draw = |name: &str, seed| initial_values(scheme, &parameter(name, output, [64, 768]), seed);
    let first = draw("blocks.0.attention.output.weight", 1);
    assert_eq!(first, draw("blocks.0.attention.output.weight", 1));
    assert_ne!(first, draw("blocks.0.attention.output.weight", 2));
    assert_ne!(first, draw("blocks.1.attention.output.weight", 1));
    // A longer parameter with the same bounds begins with the same values.
    let head = |rows| parameter("head.weight", "head.weight", [rows, 768]);
    let [short, long] = [3, 9].map(|rows| initial_values(Initialisation::PyTorch, &head(rows), 1));
    assert_eq!(short, long[..short.len()]);
    let mut sorted: Vec<u32> = first.iter().map(|x| x.to_bits()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(sorted.len() > first.len() * 99 / 100, "numbers repeat");
}

/// Fine-tuning: the new head starts at zero, everything else stays.
#[test]
fn only_what_is_wanted_is_initialised() {
    let config = config();
    let mut state = state_of(&config, Initialisation::TruncatedNormal, 1);
    let before = state.parameters().to_vec();
    initialise(&mut state, Initialisation::Zeros, 7, &|parameter| parameter.head).expect("known");
    for parameter in state.table() {
        let range = parameter.offset..parameter.offset + parameter.shape.elements();
        match parameter.name.starts_with("head.") {
            true => assert!(state.parameters()[range].iter().all(|&x| x == 0.0)),
            false => assert!(state.parameters()[range.clone()] == before[range], "{}", parameter.name),
        }
    }
}
