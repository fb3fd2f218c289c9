//! The data flow of a model as a drawing, from input to output, top to bottom: what each step computes, has and costs. Equal
//! blocks are drawn once. Everything is read off the graph but the few words of [`FlowNotes`].

mod draw;
mod place;
mod steps;
mod words;

use vitreous_engine::Graph;

/// What a graph does not say about itself.
#[derive(Clone, Debug)]
pub struct FlowNotes<'a> {
    /// What the model computes: `logits`, `features`.
    pub output: &'a str,
    /// Names of the tokens in front of the patches: `class token`, `4 registers`.
    pub prefix: Vec<String>,
    /// What constants are, by name: `("positions", "sinusoidal")`.
    pub constants: Vec<(&'a str, &'a str)>,
}

impl FlowNotes<'_> {
    fn constant(&self, name: &str) -> &str {
        self.constants.iter().find(|constant| constant.0 == name).map_or("fixed", |constant| constant.1)
    }
}

/// The drawing of a graph for inference, as an `<svg>` element for a page. [`crate::chart::standalone`] makes a file of it.
pub fn drawing(graph: &Graph, notes: &FlowNotes) -> String {
    let steps = steps::steps(graph);
    draw::draw(notes, &place::place(notes, &steps))
}

/// Style of a page that shows the drawing: as wide as there is room, up to what a printed page has.
pub const STYLE: &str = "svg.chart.flow { width: 100%; max-width: 600px; }\n";

#[cfg(test)]
mod tests {
    use vitreous_models::{Call, preset};

    use super::*;

    fn of(name: &str, notes: &FlowNotes) -> String {
        let mut graph = Graph::for_inference();
        preset(name).expect(name).build(&mut graph, &Call::whole(1)).expect("builds");
        drawing(&graph, notes)
    }

    fn notes(output: &'static str, prefix: &[&str]) -> FlowNotes<'static> {
        let prefix = prefix.iter().map(ToString::to_string).collect();
        FlowNotes { output, prefix, constants: vec![("positions", "sinusoidal")] }
    }

    #[test]
    fn a_block_is_drawn_once_and_says_how_often_it_repeats() {
        let small = of("vit_cifar", &notes("logits", &[]));
        assert_eq!(small.matches(">attention</text>").count(), 1);
        assert!(small.contains("\u{d7} 6</text>") && small.contains("blocks.0 \u{2026} 5"), "{small}");
        let texts = [
            "1 \u{d7} 16 \u{d7} 128",
            "1 \u{d7} 10",
            "4 heads of 32",
            "over 16 tokens",
            "128 \u{2192} 512 \u{2192} GELU",
            "sinusoidal",
            "mean over 16 patches",
            "4 \u{d7} 4 patches of 8 \u{d7} 8 pixels",
            "32 \u{d7} 32 pixels, RGB",
        ];
        for text in texts {
            assert!(small.contains(text), "{text}: {small}");
        }
        let large = of("vit_22b_patch14_224", &notes("features", &["class token"]));
        assert!(large.contains("\u{d7} 48</text>") && large.len() < 2 * small.len());
    }

    #[test]
    fn what_joins_and_what_goes_around_is_drawn() {
        let arcs = |svg: &str| svg.matches("class=\"around\"").count();
        // Two residual sums; a head of its own for the distillation token takes two more.
        assert_eq!(arcs(&of("vit_base_patch16_224", &notes("logits", &["class token"]))), 2);
        let distilled = of("deit_tiny_distilled_patch16_224", &notes("logits", &["class token", "distillation token"]));
        assert_eq!(arcs(&distilled), 4);
        assert!(distilled.contains("1 \u{d7} 196 \u{d7} 192 and 2 of 1 \u{d7} 192"), "{distilled}");
        assert!(
            distilled.contains("196 patches: 198 tokens") && distilled.contains(">the class token<"),
            "{distilled}"
        );
        let registers = of("vit_small_patch14_reg4_dinov2", &notes("features", &["class token", "4 registers"]));
        for text in [">4 registers<", ">class token<", ">positions<", "times layer_scale1", ">features<"] {
            assert!(registers.contains(text), "{text}: {registers}");
        }
    }
}
