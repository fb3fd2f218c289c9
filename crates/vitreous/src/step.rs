//! A training step of a model, as `summary` and `bench` look at it.

use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer, Precision, Result, StepOptions, Value,
};
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
