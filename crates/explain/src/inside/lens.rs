//! What every layer would say: the model's own final norm and output matrix on the stream after each layer (the logit lens, nostalgebraist, 2020).

use vitreous_engine::{Graph, Intervention};
use vitreous_models::Call;

use super::{Given, Inside, fill_given, stream_path};
use crate::error::ExplainError;

/// So many tokens are read at once: each has a logit for every token of the vocabulary.
const ROWS_AT_ONCE: usize = 64;

/// What one layer says in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The most probable outputs, with their probabilities, the first first.
    pub top: Vec<(u32, f32)>,
    /// Probability and rank (from 1) of an output that was asked for.
    pub asked: Option<(f32, usize)>,
}

/// What one layer says.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Which layer, from 0; `None` for the stream before the first.
    pub layer: Option<usize>,
    /// One for each token, or a single one where the model has one answer.
    pub said: Vec<Said>,
}

impl Said {
    /// From logits.
    pub fn of(logits: &[f32], count: usize, asked: Option<u32>) -> Said {
        let sum = log_sum(logits);
        let probability = |logit: f32| (f64::from(logit) - sum).exp() as f32;
        let count = count.min(logits.len());
        let mut best: Vec<u32> = Vec::with_capacity(count + 1);
        for (index, logit) in logits.iter().enumerate() {
            if best.len() == count && best.last().is_some_and(|&last| *logit <= logits[last as usize]) {
                continue;
            }
            let place = best.partition_point(|&other| logits[other as usize] >= *logit);
            best.insert(place, index as u32);
            best.truncate(count);
        }
        let asked = asked.and_then(|asked| logits.get(asked as usize)).map(|&logit| {
            let rank = 1 + logits.iter().filter(|other| **other > logit).count();
            (probability(logit), rank)
        });
        Said { top: best.into_iter().map(|id| (id, probability(logits[id as usize]))).collect(), asked }
    }
}

/// `log Σ e^logit`.
pub(super) fn log_sum(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = f64::from(most);
    most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln()
}

impl Inside<'_> {
    /// What each layer would say, the `count` most probable outputs, and what it thinks of `asked`: of a language model the token that follows
    /// each token (`asked` has one for each; `None` where nothing follows), of a classifier one class.
    pub fn lens(&mut self, count: usize, asked: &[Option<u32>]) -> Result<Vec<Reading>, ExplainError> {
        match self.given {
            Given::Tokens(_) => self.lens_of_tokens(count, asked),
            Given::Image(_) => self.lens_of_answer(count, asked.first().copied().flatten()),
        }
    }

    fn lens_of_answer(&mut self, count: usize, asked: Option<u32>) -> Result<Vec<Reading>, ExplainError> {
        let (places, streams) = (self.layers + 1, self.streams.clone());
        let mut readings = Vec::with_capacity(places);
        let last = [stream_path(self.layers)];
        self.logits_with(
            &last,
            &[],
            places,
            0,
            |place, _| streams[place].clone(),
            |place, logits| {
                readings.push(Reading { layer: place.checked_sub(1), said: vec![Said::of(logits, count, asked)] });
            },
        )?;
        Ok(readings)
    }

    fn lens_of_tokens(&mut self, count: usize, asked: &[Option<u32>]) -> Result<Vec<Reading>, ExplainError> {
        let (tokens, dim) = (self.tokens, self.dim);
        let rows = ROWS_AT_ONCE.min(tokens);
        let last = Intervention::input(stream_path(self.layers), "stream");
        let mut graph = Graph::for_inference();
        let call = Call::whole(1).tokens(rows);
        let built = self.build_call(&mut graph, &call, &[last])?;
        let logits = built.need("logits")?;
        if graph.shape_of(logits).rank() < 3 {
            // A class of the whole text.
            return self.lens_of_answer(count, asked.first().copied().flatten());
        }
        let outputs = graph.shape_of(logits).columns();
        let plan = self.source.plan(&mut graph, &[logits])?;
        let mut executor = self.source.executor("what each layer would say", None, plan)?;
        fill_given(&mut executor, &Given::Tokens(vec![0; rows]), 1)?;
        let mut readings = Vec::with_capacity(self.layers + 1);
        for (place, stream) in self.streams.iter().enumerate() {
            let mut said = Vec::with_capacity(tokens);
            while said.len() < tokens {
                // The last rows may have been read before.
                let first = said.len().min(tokens - rows);
                executor.input("stream")?.copy_from_slice(&stream[first * dim..(first + rows) * dim]);
                executor.infer()?;
                let fresh = executor.output_slice(logits)?.chunks_exact(outputs).enumerate().skip(said.len() - first);
                let fresh: Vec<Said> = fresh
                    .map(|(row, logits)| Said::of(logits, count, asked.get(first + row).copied().flatten()))
                    .collect();
                said.extend(fresh);
            }
            readings.push(Reading { layer: place.checked_sub(1), said });
        }
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_and_the_rank_of_another() {
        let said = Said::of(&[0.0, 2.0, -1.0, 1.0], 2, Some(0));
        assert_eq!(said.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
        let sum: f64 = [0.0f64, 2.0, -1.0, 1.0].iter().map(|x| x.exp()).sum();
        assert!((f64::from(said.top[0].1) - 2f64.exp() / sum).abs() < 1e-6);
        let (probability, rank) = said.asked.expect("asked");
        assert!((f64::from(probability) - 1.0 / sum).abs() < 1e-6);
        assert_eq!(rank, 3);
        assert_eq!(Said::of(&[1.0, 1.0], 5, None).top.len(), 2);
    }
}
