//! A training step of a model, as `summary` and `bench` look at it.

use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer, Precision, Result, StepOptions, Value,
};
use vitreous_models::{Architecture, Call};

/// Forward, backward, clipping at 1 and AdamW with decay on matrices, and the loss: cross-entropy with `targets` over the last axis
/// of the model's result, which for a model without a head is its features.
pub fn training_graph(
    model: &dyn Architecture,
    call: &Call,
    precision: Precision,
    gradient: GradientOptions,
) -> Result<(Graph, Value)> {
    let mut graph = Graph::new(Mode::Training, precision);
    let logits = model.build_result(&mut graph, call)?;
    let axes = graph.shape_of(logits).axes().to_vec();
    let targets = graph.input("targets", &axes[..axes.len() - 1], DType::I32)?;
    let loss = graph.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
    with_update(graph, loss, gradient)
}

fn with_update(mut graph: Graph, loss: Value, gradient: GradientOptions) -> Result<(Graph, Value)> {
    // A head that this loss does not use, such as a pooler beside a masked-token head, is not trained.
    let trained: Vec<String> = graph.parameters_behind(loss).into_iter().map(str::to_string).collect();
    let group = |decay: f64| Group { decay, rate_factor: 1.0 };
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|p| trained.contains(&p.name).then(|| group(if p.role().decays() { 0.05 } else { 0.0 })),
        clip: Some(1.0),
        ema: false,
        gradient,
    };
    graph.training_step(loss, &options)?;
    Ok((graph, loss))
}
