//! A graph ready to be run repeatedly.

use std::borrow::Cow;
use std::time::Instant;

use half::bf16;
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    DType, GradientOptions, Graph, Group, Mode, Optimizer, Parameter, Plan, Precision, Result, Run, State, StepOptions,
    Value,
};

use super::data;

/// Of trained parameters, every n-th value is compared.
const PARAMETER_STRIDE: usize = 97;

/// A graph with its memory, threads and data.
pub struct Work {
    executor: Executor,
    state: State,
    results: Vec<Value>,
    step: u64,
}

impl Work {
    /// Plans the graph for this many threads, and fills its inputs and parameters.
    pub fn new(graph: &Graph, results: Vec<Value>, threads: usize) -> Result<Self> {
        let executor = Executor::new(Plan::for_cpu(graph, &results)?, threads)?;
        Work::filled(executor, Work::parameters(graph)?, results)
    }

    /// The same with constant weights.
    pub fn inference(graph: &Graph, results: Vec<Value>, threads: usize) -> Result<Self> {
        let state = Work::parameters(graph)?;
        let plan = Plan::for_cpu_with_fixed_weights(graph, &results)?;
        let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(Cow::Borrowed);
        Work::filled(Executor::with_weights(plan, threads, lend)?, state, results)
    }

    fn parameters(graph: &Graph) -> Result<State> {
        let mut state = State::new(graph)?;
        for parameter in graph.parameters() {
            let value = data::parameter(&parameter.name, parameter.shape.axes());
            for (position, number) in state.parameter_mut(&parameter.name)?.iter_mut().enumerate() {
                *number = value(position);
            }
        }
        Ok(state)
    }

    fn filled(mut executor: Executor, state: State, results: Vec<Value>) -> Result<Self> {
        // Inputs that nothing reads are not in the plan.
        let planned = executor.plan().graph();
        let inputs: Vec<(String, DType)> =
            planned.inputs().map(|(name, value)| (name.to_string(), planned.type_of(value).dtype)).collect();
        for (name, dtype) in inputs {
            match dtype {
                DType::F32 => {
                    let value = data::input(&name);
                    executor.input(&name)?.iter_mut().enumerate().for_each(|(i, number)| *number = value(i));
                }
                DType::Bf16 => {
                    let value = data::input(&name);
                    let numbers = executor.input_bf16(&name)?;
                    numbers.iter_mut().enumerate().for_each(|(i, number)| *number = bf16::from_f32(value(i)));
                }
                DType::I32 => {
                    let value = data::label(&name);
                    executor.input_i32(&name)?.iter_mut().enumerate().for_each(|(i, number)| *number = value(i));
                }
            }
        }
        Ok(Work { executor, state, results, step: 0 })
    }

    /// Runs the plan once; a training step continues from the previous one.
    pub fn run(&mut self) {
        let run = Run { seed: 1, step: self.step };
        if self.executor.plan().weight_bytes() > 0 {
            self.executor.infer().expect("a run");
        } else {
            self.executor.run(&mut self.state, run).expect("a run");
        }
        self.step += 1;
    }

    /// The requested results in order, then a sample of each parameter if it is trained.
    pub fn results(&self) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for &value in &self.results {
            all.extend(self.executor.output(value)?);
        }
        for parameter in self.state.table().iter().filter(|parameter| parameter.gradient_offset.is_some()) {
            all.extend(self.state.parameter(&parameter.name)?.iter().step_by(PARAMETER_STRIDE));
        }
        Ok(all)
    }

    /// The plan, as text.
    pub fn plan_text(&self) -> String {
        self.executor.plan().to_string()
    }
}

/// The work to measure, and the part of each run that does not count.
pub struct Benchmark {
    pub work: Work,
    pub besides: Option<Work>,
}

impl From<Work> for Benchmark {
    fn from(work: Work) -> Self {
        Benchmark { work, besides: None }
    }
}

impl Benchmark {
    /// Seconds of `runs` runs, without the part that does not count.
    pub fn seconds(&mut self, runs: usize) -> f64 {
        let all = seconds(runs, &mut self.work);
        all - self.besides.as_mut().map_or(0.0, |work| seconds(runs, work))
    }
}

fn seconds(runs: usize, work: &mut Work) -> f64 {
    let start = Instant::now();
    for _ in 0..runs {
        work.run();
    }
    start.elapsed().as_secs_f64()
}

/// The dtype of activations.
pub fn activation_dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::Bf16,
    }
}

/// The value built by `build`, and the gradients of all float inputs and parameters from a fixed gradient `dy` of it.
pub fn forward_and_backward(
    precision: Precision,
    threads: usize,
    build: impl FnOnce(&mut Graph) -> Result<Value>,
) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Training, precision);
    let y = build(&mut graph)?;
    let is_float = |value: &Value| graph.type_of(*value).dtype.is_float();
    let mut wanted: Vec<Value> = graph.inputs().map(|(_, value)| value).filter(is_float).collect();
    for parameter in graph.parameters() {
        wanted.push(graph.find(&parameter.name)?);
    }
    let y_type = graph.type_of(y).clone();
    let dy = graph.input("dy", y_type.shape, y_type.dtype)?;
    let gradients = graph.gradients_from(y, dy, &wanted, GradientOptions::default())?;
    // The result is requested too: otherwise the planner omits the forward pass where gradients do not need it.
    let results = std::iter::once(y).chain(gradients).collect();
    Ok(Work::new(&graph, results, threads)?.into())
}

/// Adds an AdamW training step for the loss.
pub fn adamw_step(graph: &mut Graph, loss: Value) -> Result<()> {
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|_| Some(Group { decay: 0.05, rate_factor: 1.0 }),
        clip: None,
        ema: false,
        gradient: GradientOptions::default(),
    };
    graph.training_step(loss, &options)?;
    Ok(())
}
