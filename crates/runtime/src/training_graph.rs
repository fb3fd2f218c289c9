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
    let (mut graph, loss) = with_loss(model, call, precision)?;
    with_options(&behind(&graph, loss), gradient, |options| graph.training_step(loss, options).map(|_| ()))?;
    Ok((graph, loss))
}

/// The same in two graphs, as ranks train: gradients that are added to the state's, with the input `accumulate`; and the update with them,
/// with the input `gradient_scale`.
pub fn training_graphs(
    model: &dyn Architecture,
    call: &Call,
    precision: Precision,
    gradient: GradientOptions,
) -> Result<([Graph; 2], Value)> {
    let (mut graph, loss) = with_loss(model, call, precision)?;
    let update = with_options(&behind(&graph, loss), gradient, |options| {
        graph.accumulation_step(loss, options)?;
        Ok(graph.update_step(options)?.0)
    })?;
    Ok(([graph, update], loss))
}

fn with_loss(model: &dyn Architecture, call: &Call, precision: Precision) -> Result<(Graph, Value)> {
    let mut graph = Graph::new(Mode::Training, precision);
    let logits = model.build_result(&mut graph, call)?;
    let axes = graph.shape_of(logits).axes().to_vec();
    let targets = graph.input("targets", &axes[..axes.len() - 1], DType::I32)?;
    let loss = graph.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
    Ok((graph, loss))
}

/// A head that this loss does not use, such as a pooler beside a masked-token head, is not trained.
fn behind(graph: &Graph, loss: Value) -> Vec<String> {
    graph.parameters_behind(loss).into_iter().map(str::to_string).collect()
}

fn with_options<T>(
    trained: &[String],
    gradient: GradientOptions,
    build: impl FnOnce(&StepOptions) -> Result<T>,
) -> Result<T> {
    let group = |decay: f64| Group { decay, rate_factor: 1.0 };
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|p| trained.contains(&p.name).then(|| group(if p.role().decays() { 0.05 } else { 0.0 })),
        clip: Some(1.0),
        ema: false,
        gradient,
    };
    build(&options)
}
