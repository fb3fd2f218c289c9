//! The data flow of a model as a picture: from images to logits, top to bottom, each step with what it does, has and costs.
//! Blocks that repeat are drawn once. Which step takes what from which is read off the graph, not known beforehand.

mod draw;
mod place;
mod steps;
mod words;

use vitreous_engine::Graph;
use vitreous_models::VitConfig;

/// The picture, as an `<svg>` element for a page (or, through `crate::chart::standalone`, for a file of its own), of a
/// graph for inference as [`vitreous_models::vit()`] builds it of this configuration.
pub fn drawing(graph: &Graph, config: &VitConfig) -> String {
    let steps = steps::steps(graph);
    draw::draw(config, &place::place(config, &steps))
}

/// Rules of style for a page that shows it: as wide as there is room, up to what a printed page has.
pub const STYLE: &str = "svg.chart.flow { width: 100%; max-width: 600px; }\n";

#[cfg(test)]
mod tests {
    use vitreous_models::{preset, vit};

    use super::*;

    fn of(name: &str) -> String {
        let (mut graph, config) = (Graph::for_inference(), preset(name).expect(name));
        vit(&mut graph, &config, 1).expect("builds");
        drawing(&graph, &config)
    }

    #[test]
    fn a_block_is_drawn_once_and_says_how_often_it_repeats() {
        let small = of("vit_cifar");
        assert_eq!(small.matches(">attention</text>").count(), 1);
        assert!(small.contains("\u{d7} 6</text>") && small.contains("blocks.0 \u{2026} 5"), "{small}");
        for text in ["1 \u{d7} 16 \u{d7} 128", "1 \u{d7} 10", "4 heads of 32", "128 \u{2192} 512", "sinusoidal"] {
            assert!(small.contains(text), "{text}: {small}");
        }
        let large = of("vit_22b_patch14_224");
        assert!(large.contains("\u{d7} 48</text>") && large.len() < 2 * small.len());
    }

    #[test]
    fn what_joins_and_what_goes_around_is_drawn() {
        let arcs = |svg: &str| svg.matches("class=\"around\"").count();
        // Two residual sums; a head of its own for the distillation token takes two more.
        assert_eq!(arcs(&of("vit_base_patch16_224")), 2);
        let distilled = of("deit_tiny_distilled_patch16_224");
        assert_eq!(arcs(&distilled), 4);
        assert!(distilled.contains("1 \u{d7} 196 \u{d7} 192 and 2 of 1 \u{d7} 192"), "{distilled}");
        let registers = of("vit_small_patch14_reg4_dinov2");
        for text in [">4 registers<", ">class token<", ">positions<", "times layer_scale1", ">features<"] {
            assert!(registers.contains(text), "{text}: {registers}");
        }
    }
}
