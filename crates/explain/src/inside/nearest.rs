//! The words nearest to a vector.

use vitreous_engine::Graph;
use vitreous_models::{Call, Model};

use crate::encoder::WordLookup;
use crate::error::ExplainError;

/// A model's token embeddings, to look up what a vector is like.
pub struct NearestTokens<'m> {
    table: std::borrow::Cow<'m, [f32]>,
    lengths: Vec<f64>,
    dim: usize,
}

impl<'m> NearestTokens<'m> {
    /// The table of a model of texts.
    pub fn of(model: &'m Model) -> Result<NearestTokens<'m>, ExplainError> {
        let mut graph = Graph::for_inference();
        model.architecture.plain().build(&mut graph, &Call::whole(1))?;
        let lookup = WordLookup::of(&graph)?;
        let (table, dim) = (model.parameter(&lookup.parameter)?, lookup.width);
        let lengths = table.chunks_exact(dim).map(length).collect();
        Ok(NearestTokens { table, lengths, dim })
    }

    /// The tokens whose embeddings have the largest cosine similarity with a vector, the largest first. `None` if the vector has another width
    /// than they have, or no length.
    pub fn of_vector(&self, vector: &[f32], count: usize) -> Option<Vec<(u32, f32)>> {
        let own = length(vector);
        if vector.len() != self.dim || own == 0.0 {
            return None;
        }
        let rows = self.table.chunks_exact(self.dim).zip(&self.lengths).enumerate();
        let mut all: Vec<(u32, f32)> = rows
            .map(|(id, (row, length))| {
                let dot: f64 = row.iter().zip(vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                (id as u32, if *length == 0.0 { 0.0 } else { (dot / length / own) as f32 })
            })
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(count);
        Some(all)
    }
}

fn length(vector: &[f32]) -> f64 {
    vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}
