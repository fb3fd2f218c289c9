//! One update: a batch, or several whose gradients are added, through the model and the optimiser.

use vitreous_data::loader::{Batch, TargetKind};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Mode, Optimizer, Plan, Precision, Run, State, StepOptions,
    Value,
};
use vitreous_models::vit;

use crate::error::TrainError;
use crate::groups::group_of;
use crate::recipe::{OptimizerName, PrecisionChoice, Recipe};

/// What an update gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepResult {
    /// The mean loss.
    pub loss: f64,
    /// The length of the gradient of all parameters, before clipping.
    pub grad_norm: f64,
    /// Images whose class the model, as it is while learning, finds first.
    pub right: u64,
}

/// The plans of an update, ready to run.
pub struct Stepper {
    executor: Executor,
    loss: Value,
    logits: Value,
    gradient_norm: Value,
    classes: usize,
    hard: bool,
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Precision {
        match choice {
            PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
        }
    }
}

impl Stepper {
    /// Plans the update of a recipe's model, and makes the state that it changes.
    pub fn new(recipe: &Recipe, targets: TargetKind, threads: usize) -> Result<(Stepper, State), TrainError> {
        let mut graph = Graph::new(Mode::Training, recipe.train.precision.into());
        let classes = recipe.model.classes;
        let batch = recipe.train.batch;
        let built = vit(&mut graph, &recipe.model, batch)?;
        let logits = built.logits.ok_or_else(|| TrainError::Data("the data has no classes".to_string()))?;
        let hard = targets == TargetKind::Class;
        let options = CrossEntropyOptions {
            label_smoothing: if hard { recipe.loss.label_smoothing } else { 0.0 },
            ignored_index: None,
        };
        let wanted = match hard {
            true => graph.input("targets", [batch], DType::I32)?,
            false => graph.input("targets", [batch, classes], DType::F32)?,
        };
        let loss = graph.cross_entropy(logits, wanted, options)?;
        let optimizer = &recipe.optimizer;
        let [beta1, beta2] = optimizer.betas;
        let step = graph.training_step(
            loss,
            &StepOptions {
                optimizer: match optimizer.name {
                    OptimizerName::Adamw => Optimizer::AdamW { beta1, beta2, eps: optimizer.eps },
                    OptimizerName::Sgd => Optimizer::Sgd { momentum: optimizer.momentum, nesterov: optimizer.nesterov },
                    OptimizerName::Lamb => unimplemented!(),
                },
                group: &|parameter| group_of(recipe, parameter),
                clip: Some(optimizer.clip).filter(|&limit| limit > 0.0),
                ema: recipe.train.ema > 0.0,
                gradient: GradientOptions { recompute: recipe.train.recompute },
            },
        )?;
        let logits = graph.cast(logits, DType::F32)?;
        let plan = Plan::for_cpu(&graph, &[loss, logits, step.gradient_norm])?;
        let state = State::new(&graph)?;
        let executor = Executor::new(plan, threads)?;
        Ok((Stepper { executor, loss, logits, gradient_norm: step.gradient_norm, classes, hard }, state))
    }

    /// Arithmetic of one update.
    pub fn flops(&self) -> u64 {
        self.executor.plan().flops()
    }

    /// Bytes that running takes, besides the state.
    pub fn bytes(&self) -> usize {
        self.executor.memory_bytes()
    }

    /// Makes an update of some batches.
    pub fn step(
        &mut self,
        state: &mut State,
        batches: &[Batch],
        rate: f64,
        ema_decay: Option<f64>,
        run: Run,
    ) -> Result<StepResult, TrainError> {
        let batch = &batches[0];
        self.executor.input("images")?.copy_from_slice(&batch.images);
        match self.hard {
            true => self.executor.input_i32("targets")?.copy_from_slice(&batch.labels),
            false => self.executor.input("targets")?.copy_from_slice(&batch.targets),
        }
        self.executor.input("learning_rate")?[0] = rate as f32;
        if let Some(decay) = ema_decay {
            self.executor.input("ema_decay")?[0] = decay as f32;
        }
        self.executor.run(state, run)?;
        let logits = self.executor.output_slice(self.logits)?;
        let right = logits.chunks_exact(self.classes).zip(&batch.labels).filter(|(row, label)| is_first(row, **label));
        Ok(StepResult {
            right: right.count() as u64,
            loss: f64::from(self.executor.number(self.loss)?),
            grad_norm: f64::from(self.executor.number(self.gradient_norm)?),
        })
    }
}

/// Whether a class's number is the largest.
fn is_first(logits: &[f32], label: i32) -> bool {
    let own = logits[label as usize];
    logits.iter().enumerate().all(|(class, &other)| other < own || class == label as usize)
}
