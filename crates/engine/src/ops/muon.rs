//! Muon (Keller Jordan, 2024): momentum whose direction is made orthogonal before it is added to a matrix.
//!
//! The nearest orthogonal matrix of a direction X with singular values in 0..1 is approached by five steps of a
//! Newton-Schulz iteration, of matrix products alone: `A = X Xᵀ`, `X = 3.4445 X + (-4.775 A + 2.0315 A²) X`. Its
//! coefficients grow small singular values fast and leave all between about 0.7 and 1.2. Of a matrix with more rows than
//! columns, `A = Xᵀ X` and it is multiplied from the right, which is the same iteration of the transpose. The products
//! are nodes as any others: in bf16 where the graph is.

use crate::Role;
use crate::error::Result;
use crate::graph::{Graph, Parameter, Value};
use crate::ops::training_step::MuonScale;
use crate::ops::{AdamW, MuonDirection, MuonUpdate};
use crate::types::DType;

const STEPS: usize = 5;
const COEFFICIENTS: [f32; 3] = [3.4445, -4.7750, 2.0315];

/// The settings of Muon itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MuonSettings {
    pub momentum: f64,
    pub nesterov: bool,
    pub scale: MuonScale,
}

impl MuonScale {
    /// The factor of an orthogonal matrix of this size.
    fn factor(self, rows: usize, columns: usize) -> f64 {
        match self {
            MuonScale::MatchAdamW => 0.2 * (rows.max(columns) as f64).sqrt(),
            MuonScale::Original => (rows as f64 / columns as f64).max(1.0).sqrt(),
        }
    }
}

/// Whether a parameter is a matrix between hidden layers, which Muon is for.
fn is_hidden_matrix(parameter: &Parameter) -> bool {
    parameter.role() == Role::Weight && parameter.shape.rank() == 2 && !parameter.head
}

impl Graph {
    /// The update of all parameters that have a group: hidden matrices by Muon, the others by AdamW. `gradients` are
    /// those of the trained parameters, in order.
    pub(crate) fn muon_step(
        &mut self,
        settings: MuonSettings,
        mut others: AdamW,
        (rate, factor): (Value, Value),
        gradients: &[Value],
    ) -> Result<()> {
        let trained: Vec<usize> = (0..others.groups.len()).filter(|&index| others.groups[index].is_some()).collect();
        let mut left = vec![rate, factor];
        for (index, &gradient) in trained.into_iter().zip(gradients) {
            let parameter = &self.parameters[index];
            if !is_hidden_matrix(parameter) {
                left.push(gradient);
                continue;
            }
            let Some(group) = others.groups[index].take() else { continue };
            let MuonSettings { momentum, nesterov, scale } = settings;
            // Query, key and value of a fused projection are matrices of their own.
            let matrices = parameter.declared.parts.len().max(1);
            let direction = MuonDirection { parameter: index, momentum, nesterov, matrices };
            let direction = self.push(direction, &[factor, gradient])?;
            let (rows, columns) = (self.shape_of(direction).axes()[1], self.shape_of(direction).axes()[2]);
            let orthogonal = self.newton_schulz(direction, rows > columns)?;
            let scale = scale.factor(rows, columns);
            self.push(MuonUpdate { parameter: index, momentum, group, scale }, &[rate, factor, orthogonal, gradient])?;
        }
        if left.len() > 2 {
            self.push(others, &left)?;
        }
        Ok(())
    }

    /// Makes the matrices of `x [matrices, rows, columns]` nearly orthogonal.
    fn newton_schulz(&mut self, mut x: Value, is_tall: bool) -> Result<Value> {
        let [a, b, c] = COEFFICIENTS;
        for _ in 0..STEPS {
            let squares = self.matmul(x, x, is_tall, !is_tall)?; // [matrices, n, n], n the smaller side
            let fourth = self.matmul(squares, squares, false, false)?;
            let (squares, fourth) = (self.scale(squares, b)?, self.scale(fourth, c)?);
            let factor = self.add(squares, fourth)?;
            let turned = match is_tall {
                true => self.matmul(x, factor, false, false)?,
                false => self.matmul(factor, x, false, false)?,
            };
            let kept = self.scale(x, a)?;
            x = self.add(kept, turned)?;
        }
        self.cast(x, DType::F32)
    }
}
