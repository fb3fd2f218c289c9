//! A training step of a model, as `summary` and `bench` look at it.

use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer, Precision, Result, StepOptions, Value,
};
use vitreous_models::transformer::{PairShape, TransformerConfig, transformer};
use vitreous_models::{VitConfig, vit};

/// Forward, backward, clipping at 1 and AdamW with decay on matrices, and the loss. A model without a head is given a loss on its
/// features.
pub fn training_graph(
    config: &VitConfig,
    batch: usize,
    precision: Precision,
    gradient: GradientOptions,
) -> Result<(Graph, Value)> {
    let mut graph = Graph::new(Mode::Training, precision);
    let model = vit(&mut graph, config, batch)?;
    let labels = graph.input("labels", [batch], DType::I32)?;
    let loss = graph.cross_entropy(model.logits.unwrap_or(model.features), labels, CrossEntropyOptions::default())?;
    with_update(graph, loss, gradient)
}

/// The same of a translator, by teacher forcing.
pub fn translation_graph(
    config: &TransformerConfig,
    shape: PairShape,
    gradient: GradientOptions,
) -> Result<(Graph, Value)> {
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    let logits = transformer(&mut graph, config, shape)?.logits;
    let wanted = graph.input("wanted", [shape.batch, shape.target], DType::I32)?;
    let loss = graph.cross_entropy(logits, wanted, CrossEntropyOptions::default())?;
    with_update(graph, loss, gradient)
}

fn with_update(mut graph: Graph, loss: Value, gradient: GradientOptions) -> Result<(Graph, Value)> {
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|p| Some(Group { decay: if p.shape.rank() > 1 { 0.05 } else { 0.0 }, rate_factor: 1.0 }),
        clip: Some(1.0),
        ema: false,
        gradient,
    };
    graph.training_step(loss, &options)?;
    Ok((graph, loss))
}
