//! Optimizer steps in naive f64.

use super::{Reference, Tensor};
use crate::ops::{AdamW, GradientNorm, Group, Lamb, MuonDirection, MuonUpdate, Sgd};
use crate::random::Run;

/// The global gradient norm, and the factor of the gradients.
pub(super) fn gradient_norm(op: &GradientNorm, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let squares: f64 = inputs[1..].iter().flat_map(|gradient| &gradient.data).map(|g| g * g).sum();
    let (norm, factor) = op.results(inputs[0].data[0], squares.sqrt());
    vec![vec![norm], vec![factor]]
}

/// Index, group and gradient of each trained parameter; empty if there must be no update. The first two inputs are the
/// learning rate and the factor of the gradients.
fn trained<'a>(groups: &'a [Option<Group>], inputs: &'a [Tensor]) -> impl Iterator<Item = (usize, Group, Vec<f64>)> {
    let factor = inputs[1].data[0];
    let groups = groups.iter().enumerate().filter_map(|(index, group)| Some((index, (*group)?)));
    let gradients = inputs[2..].iter().map(move |gradient| gradient.data.iter().map(|g| g * factor).collect());
    let all = groups.zip(gradients).map(|((index, group), gradient)| (index, group, gradient));
    all.take_while(move |_| !factor.is_nan())
}

impl Reference {
    pub(super) fn adamw(&mut self, op: &AdamW, inputs: &[Tensor], run: Run) -> Vec<Vec<f64>> {
        let t = run.step as i32 + 1;
        for (index, group, gradient) in trained(&op.groups, inputs) {
            let rate = inputs[0].data[0] * group.rate_factor;
            self.move_moments(index, &gradient, op.beta1, op.beta2);
            for (i, p) in self.parameters[index].iter_mut().enumerate() {
                let (m, v) = (self.first[index][i], self.second[index][i]);
                *p -= rate * group.decay * *p;
                *p -= rate * (m / (1.0 - op.beta1.powi(t))) / ((v / (1.0 - op.beta2.powi(t))).sqrt() + op.eps);
            }
        }
        Vec::new()
    }

    pub(super) fn lamb(&mut self, op: &Lamb, inputs: &[Tensor], run: Run) -> Vec<Vec<f64>> {
        let t = run.step as i32 + 1;
        for (index, group, gradient) in trained(&op.groups, inputs) {
            let rate = inputs[0].data[0] * group.rate_factor;
            self.move_moments(index, &gradient, op.beta1, op.beta2);
            let parameter = &mut self.parameters[index];
            let mut update = Vec::new();
            for (i, p) in parameter.iter().enumerate() {
                let (m, v) = (self.first[index][i], self.second[index][i]);
                let adam = (m / (1.0 - op.beta1.powi(t))) / ((v / (1.0 - op.beta2.powi(t))).sqrt() + op.eps);
                update.push(adam + group.decay * p);
            }
            let squares = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>();
            let trust = op.trust(&group, squares(parameter), squares(&update));
            for (p, u) in parameter.iter_mut().zip(&update) {
                *p -= rate * trust * u;
            }
        }
        Vec::new()
    }

    fn move_moments(&mut self, index: usize, gradient: &[f64], beta1: f64, beta2: f64) {
        for (i, &g) in gradient.iter().enumerate() {
            let (m, v) = (&mut self.first[index][i], &mut self.second[index][i]);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
        }
    }

    pub(super) fn sgd(&mut self, op: &Sgd, inputs: &[Tensor], run: Run) -> Vec<Vec<f64>> {
        let momentum = op.momentum;
        for (index, group, gradient) in trained(&op.groups, inputs) {
            let rate = inputs[0].data[0] * group.rate_factor;
            for (i, g) in gradient.into_iter().enumerate() {
                let p = &mut self.parameters[index][i];
                let u = &mut self.first[index][i];
                let g = g + group.decay * *p;
                *u = if run.step == 0 { g } else { momentum * *u + g };
                *p -= rate * if op.nesterov { g + momentum * *u } else { *u };
            }
        }
        Vec::new()
    }

    pub(super) fn muon_direction(&self, op: &MuonDirection, inputs: &[Tensor]) -> Vec<f64> {
        let (factor, beta) = (inputs[0].data[0], op.momentum);
        if factor.is_nan() {
            return vec![0.0; inputs[1].data.len()];
        }
        let moved = inputs[1].data.iter().zip(&self.first[op.parameter]).map(|(g, m)| {
            let g = g * factor;
            let m = beta * m + (1.0 - beta) * g;
            if op.nesterov { (1.0 - beta) * g + beta * m } else { m }
        });
        let mut direction: Vec<f64> = moved.collect();
        let length = direction.len() / op.matrices;
        for matrix in direction.chunks_mut(length) {
            let divisor = MuonDirection::divisor(matrix.iter().map(|u| u * u).sum());
            matrix.iter_mut().for_each(|u| *u /= divisor);
        }
        direction
    }

    pub(super) fn muon_update(&mut self, op: &MuonUpdate, inputs: &[Tensor]) -> Vec<Vec<f64>> {
        let (factor, beta) = (inputs[1].data[0], op.momentum);
        if factor.is_nan() {
            return Vec::new();
        }
        let rate = inputs[0].data[0] * op.group.rate_factor;
        for (i, (direction, g)) in inputs[2].data.iter().zip(&inputs[3].data).enumerate() {
            let (p, m) = (&mut self.parameters[op.parameter][i], &mut self.first[op.parameter][i]);
            *m = beta * *m + (1.0 - beta) * g * factor;
            *p = *p * (1.0 - rate * op.group.decay) - rate * op.scale * direction;
        }
        Vec::new()
    }

    pub(super) fn update_ema(&mut self, inputs: &[Tensor]) -> Vec<Vec<f64>> {
        let decay = inputs[0].data[0];
        if inputs[1].data[0].is_nan() {
            return Vec::new();
        }
        for (average, parameter) in self.ema.iter_mut().zip(&self.parameters) {
            for (a, p) in average.iter_mut().zip(parameter) {
                *a = decay * *a + (1.0 - decay) * p;
            }
        }
        Vec::new()
    }

    pub(super) fn accumulate(&mut self, parameter: usize, inputs: &[Tensor]) -> Vec<Vec<f64>> {
        let sum = &mut self.gradients[parameter];
        for (sum, g) in sum.iter_mut().zip(&inputs[1].data) {
            *sum = if inputs[0].data[0] == 0.0 { *g } else { *sum + g };
        }
        Vec::new()
    }
}
