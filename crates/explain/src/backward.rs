//! The backward pass: a class' gradient with respect to the output of every layer's attention.

use vitreous_engine::{DType, Device, Executor, GradientOptions, Graph, Mode, Precision, Run, State, Value};
use vitreous_models::{Call, Model};

use crate::error::ExplainError;
use crate::taps::Tap;

/// The input that says of which class, by a 1 among zeros: one plan serves every class.
const SEED: &str = "class";

pub(crate) struct Backward {
    executor: Executor,
    state: State,
    gradients: Vec<Value>,
    has_head: bool,
}

impl Backward {
    pub fn new(model: &Model, device: &Device) -> Result<Backward, ExplainError> {
        let mut graph = Graph::new(Mode::Inference, Precision::F32);
        let built = model.architecture.build(&mut graph, &Call::whole(1))?;
        let logits = built.get("logits");
        let outputs: Vec<Value> = Tap::all(&graph)?.iter().map(|tap| tap.output).collect();
        let (answer, seed) = match logits {
            Some(logits) => (logits, graph.input(SEED, graph.shape_of(logits).clone(), DType::F32)?),
            // The gradient of half the squared length of the features begins with the features.
            None => (built.need("features")?, built.need("features")?),
        };
        let gradients = graph.gradients_from(answer, seed, &outputs, GradientOptions::default())?;
        let plan = device.plan(&graph, &gradients)?;
        let bytes = device.bytes_needed(&plan).saturating_add(device.state_bytes_needed(&graph));
        device.check_memory("relevance for a class", bytes)?;
        // Forward and backward products want a matrix packed in different ways: so weights are kept plain, once.
        let mut state = State::new(&graph)?;
        model.load(&mut state)?;
        let executor = Executor::new(plan, device)?;
        Ok(Backward { executor, state, gradients, has_head: logits.is_some() })
    }

    pub fn run(&mut self, pixels: &[f32], class: Option<usize>) -> Result<(), ExplainError> {
        self.executor.input("images")?.copy_from_slice(pixels);
        if self.has_head {
            let seed = self.executor.input(SEED)?;
            seed.fill(0.0);
            if let Some(class) = class {
                seed[class] = 1.0;
            }
        }
        Ok(self.executor.run(&mut self.state, Run { seed: 0, step: 0 })?)
    }

    /// The gradient with respect to the output of a layer's attention, `[tokens, dim]`.
    pub fn output_gradient(&self, layer: usize) -> Result<&[f32], ExplainError> {
        Ok(self.executor.output_slice(self.gradients[layer])?)
    }
}
