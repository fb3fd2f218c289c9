//! Models by name: the small ViT for 32x32 images, and the paper's models under timm's names.

use super::config::{FinalNorm, Pooling, PositionScope, Positions, Qkv, VitConfig};
use crate::settings::{NormOrder, Size};

/// Width, depth, heads and feed-forward width of a model size.
struct Scale(&'static str, [usize; 4]);

const SCALES: [Scale; 8] = [
    Scale("tiny", [192, 12, 3, 768]),
    Scale("small", [384, 12, 6, 1536]),
    Scale("base", [768, 12, 12, 3072]),
    Scale("large", [1024, 24, 16, 4096]),
    Scale("huge", [1280, 32, 16, 5120]),
    Scale("giant", [1408, 40, 16, 6144]),
    Scale("gigantic", [1664, 48, 16, 8192]),
    // The sizes of "Scaling Vision Transformers to 22 Billion Parameters", without parallel layers.
    Scale("22b", [6144, 48, 48, 24576]),
];

/// The names of the presets; other image and patch sizes are accepted too.
pub fn names() -> Vec<String> {
    let mut names = vec!["vit_cifar".to_string()];
    for (scale, patches) in [
        ("tiny", &[16][..]),
        ("small", &[8, 14, 16, 32]),
        ("base", &[8, 14, 16, 32]),
        ("large", &[14, 16, 32]),
        ("huge", &[14]),
        ("giant", &[14]),
        ("gigantic", &[14]),
        ("22b", &[14]),
    ] {
        names.extend(patches.iter().map(|patch| format!("vit_{scale}_patch{patch}_224")));
    }
    names.extend(["tiny", "small", "base"].map(|scale| format!("vit_{scale}_patch16_384")));
    names.extend(["tiny", "small", "base"].map(|scale| format!("deit_{scale}_patch16_224")));
    names.extend(["tiny", "small", "base"].map(|scale| format!("deit_{scale}_distilled_patch16_224")));
    for scale in ["small", "base", "large"] {
        names.extend(["dinov2", "reg4_dinov2"].map(|kind| format!("vit_{scale}_patch14_{kind}")));
    }
    names
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<VitConfig> {
    if name == "vit_cifar" {
        return Some(vit_cifar());
    }
    let (family, rest) = name.split_once('_')?;
    let (scale, rest) = rest.split_once('_')?;
    let (distilled, rest) = match rest.strip_prefix("distilled_") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (patch, variant) = rest.strip_prefix("patch")?.split_once('_')?;
    let mut config = of_scale(scale, patch.parse().ok()?)?;
    match (family, variant, distilled) {
        ("vit", "dinov2", false) => dinov2(&mut config, 0),
        ("vit", "reg4_dinov2", false) => dinov2(&mut config, 4),
        ("vit", side, false) | ("deit", side, _) => config.image = Size::square(side.parse().ok()?),
        _ => return None,
    }
    if distilled {
        config.distillation_token = true;
        config.distillation_head = true;
    }
    Some(config)
}

fn of_scale(name: &str, patch: usize) -> Option<VitConfig> {
    let Scale(_, [dim, depth, heads, mlp_dim]) = SCALES.iter().find(|scale| scale.0 == name)?;
    Some(VitConfig {
        patch: Size::square(patch),
        dim: *dim,
        depth: *depth,
        heads: *heads,
        mlp_dim: *mlp_dim,
        ..VitConfig::default()
    })
}

/// DINOv2 as in timm: possibly with registers, and a class token without a position.
fn dinov2(config: &mut VitConfig, registers: usize) {
    config.image = Size::square(518);
    config.classes = 0;
    config.layer_scale = Some(1e-5);
    config.registers = registers;
    if registers > 0 {
        config.position_scope = PositionScope::Patches;
    }
}

/// The small ViT for CIFAR-10: patches of 8, post-norm layers, sinusoidal positions, the mean over patches.
fn vit_cifar() -> VitConfig {
    VitConfig {
        image: Size::square(32),
        patch: Size::square(8),
        dim: 128,
        depth: 6,
        heads: 4,
        mlp_dim: 512,
        class_token: false,
        positions: Positions::Sinusoidal,
        pooling: Pooling::Mean,
        norm_order: NormOrder::Post,
        final_norm: FinalNorm::None,
        norm_eps: 1e-5,
        qkv: Qkv::Separate,
        classes: 10,
        dropout: 0.1,
        attention_dropout: 0.1,
        ..VitConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use vitreous_engine::{Graph, Plan};

    use super::super::vit;
    use super::*;
    use crate::call::Call;

    fn parameters(name: &str, classes: usize) -> usize {
        let mut g = Graph::for_inference();
        vit(&mut g, &VitConfig { classes, ..preset(name).expect(name) }, &Call::whole(1)).expect(name);
        g.parameters().iter().map(|p| p.shape.elements()).sum()
    }

    #[test]
    fn parameter_counts_are_the_published_ones() {
        assert_eq!(parameters("vit_cifar", 10), 1_215_626);
        // Counted in timm 1.0.30.
        assert_eq!(parameters("vit_tiny_patch16_224", 1000), 5_717_416);
        assert_eq!(parameters("vit_small_patch16_224", 1000), 22_050_664);
        assert_eq!(parameters("vit_small_patch32_384", 1000), 22_915_432);
        assert_eq!(parameters("vit_base_patch16_224", 1000), 86_567_656);
        assert_eq!(parameters("vit_base_patch8_224", 1000), 86_576_872);
        assert_eq!(parameters("vit_base_patch16_384", 1000), 86_859_496);
        assert_eq!(parameters("vit_large_patch16_224", 1000), 304_326_632);
        assert_eq!(parameters("vit_huge_patch14_224", 1000), 632_045_800);
        assert_eq!(parameters("vit_giant_patch14_224", 1000), 1_012_611_432);
        assert_eq!(parameters("deit_base_distilled_patch16_224", 1000), 87_338_192);
        assert_eq!(parameters("vit_small_patch14_dinov2", 0), 22_056_192);
        assert_eq!(parameters("vit_small_patch14_reg4_dinov2", 0), 22_057_344);
    }

    #[test]
    fn every_name_that_is_shown_can_be_built_and_others_are_unknown() {
        for name in names() {
            let config = preset(&name).unwrap_or_else(|| panic!("{name} is no preset"));
            config.check().unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        }
        for name in ["", "vit", "vit_", "vit_base", "vit_base_patch16", "vit_mini_patch16_224", "bert_base_patch16_224"]
        {
            assert_eq!(preset(name), None, "{name}");
        }
        for name in ["vit_base_patch_224", "vit_base_patch16_", "vit_base_distilled_patch16_224", "vit_base_patchx_224"]
        {
            assert_eq!(preset(name), None, "{name}");
        }
    }

    #[test]
    fn the_largest_is_planned_without_being_allocated() {
        let mut g = Graph::for_inference();
        let model = vit(&mut g, &preset("vit_22b_patch14_224").expect("known"), &Call::whole(1)).expect("builds");
        let plan = Plan::for_cpu(&g, &[model.need("logits").expect("a head")]).expect("plans");
        assert!(plan.peak_bytes(2) > 0 && g.parameter_floats() > 21_000_000_000);
    }
}
