//! Scores against the logits that `transformers` computed (the fixtures of the families).

use vitreous_engine::{Device, Error, Precision};

use super::{ScoredTokens, TokenScore, TokenScorer};
use crate::archive::Archive;
use crate::encode::batches::Shape;
use crate::testing::{fixture, tensor};
use crate::{Model, OpenOptions};

/// log softmax of a row at one place, in f64.
fn log_probability(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    f64::from(logits[token as usize]) - sum.ln()
}

#[test]
fn scores_are_the_log_probabilities_of_the_peers_logits() {
    for (family, name) in
        [("gpt2", "model"), ("gpt2", "untied"), ("gpt2", "gpt1"), ("llama", "model"), ("llama", "tied")]
    {
        let directory = fixture(family, name);
        let model = Model::open(&directory, &OpenOptions::default()).expect("a model");
        let archive = Archive::open(&directory.join("expected.safetensors")).expect("a fixture");
        let (shape, logits) = tensor(&archive, "logits");
        let (_, lengths) = tensor(&archive, "lengths.in");
        let tokens: Vec<u32> = tensor(&archive, "tokens.in").1.iter().map(|&token| token as u32).collect();
        let [_, width, vocabulary] = shape[..] else { panic!("{shape:?}") };
        // The last sequence has one token: nothing of it can be scored.
        let rows: Vec<usize> = (0..lengths.len()).filter(|&row| lengths[row] > 1.0).collect();
        for (from, at_once, top) in [(1, 1000, 0), (1, 1, 3), (3, 2, 5)] {
            let weights = Box::new(|name: &str| model.weight(name).map_err(|error| Error::Machine(error.to_string())));
            let device = Device::Cpu { threads: 1 };
            let scorer = TokenScorer::new(model.architecture.as_ref(), Precision::F32, &device, weights);
            let mut scorer = scorer.expect("a scorer");
            scorer.at_once = at_once;
            scorer.tell_top(top);
            let texts: Vec<ScoredTokens> = (rows.iter())
                .map(|&row| ScoredTokens { ids: &tokens[row * width..][..lengths[row] as usize], from })
                .collect();
            let mut scored = 0;
            let compare = |text: usize, scores: &[TokenScore]| {
                assert_eq!(scores.len(), texts[text].ids.len() - from);
                for (index, score) in scores.iter().enumerate() {
                    let place = rows[text] * width + from + index - 1;
                    let row = &logits[place * vocabulary..][..vocabulary];
                    let expected = log_probability(row, texts[text].ids[from + index]);
                    assert!((score.logprob - expected).abs() < 1e-5, "{family} {name}: {score:?} is not {expected}");
                    assert_eq!(score.top.len(), top);
                    for (rank, told) in score.top.iter().enumerate() {
                        let expected = log_probability(row, told.token);
                        assert!((told.logprob - expected).abs() < 1e-5, "{family} {name}: {told:?} is not {expected}");
                        let likelier = row.iter().filter(|logit| **logit > row[told.token as usize]).count();
                        assert_eq!(likelier, rank, "{family} {name}");
                    }
                    scored += 1;
                }
                Ok::<(), Error>(())
            };
            scorer.run(&texts, compare).expect("scores");
            assert_eq!(scored, texts.iter().map(|text| text.ids.len() - from).sum::<usize>());
        }
    }
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let model = Model::open(&fixture("gpt2", "model"), &OpenOptions::default()).expect("a model");
    let weights = Box::new(|name: &str| model.weight(name).map_err(|error| Error::Machine(error.to_string())));
    let scorer = TokenScorer::new(model.architecture.as_ref(), Precision::F32, &Device::Cpu { threads: 1 }, weights);
    let mut scorer = scorer.expect("a scorer");
    let long = vec![1; scorer.longest() + 2];
    let hostile: [(&[u32], usize, &str); 4] = [
        (&[1, 2], 0, "first that is scored"),
        (&[1], 1, "first that is scored"),
        (&long, 1, "reads"),
        (&[1, 999], 1, "vocabulary"),
    ];
    for (ids, from, says) in hostile {
        let refused = scorer.run(&[ScoredTokens { ids, from }], |_, _| Ok::<(), Error>(()));
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
    // One token more than the context can be scored behind it.
    let just = &long[1..];
    let texts = [ScoredTokens { ids: just, from: just.len() - 1 }];
    let mut counts = Vec::new();
    let count = |_: usize, scores: &[TokenScore]| {
        counts.push(scores.len());
        Ok::<(), Error>(())
    };
    scorer.run(&texts, count).expect("scored");
    assert_eq!(counts, [1]);
}

#[test]
fn the_logits_of_a_batch_are_never_there_at_once() {
    let small = serde_json::json!({
        "vocabulary": 50_000, "dim": 8, "depth": 1, "heads": 2, "kv_heads": 2, "mlp_dim": 8
    });
    let preset = crate::families::preset("llama_7b").expect("a preset");
    let model = preset.with_settings(small.as_object().expect("settings")).expect("a model");
    let device = Device::Cpu { threads: 1 };
    let weights = Box::new(|name: &str| Err(Error::Machine(format!("{name} is not needed"))));
    let scorer = TokenScorer::new(model.as_ref(), Precision::F32, &device, weights).expect("a scorer");
    let (plan, portions) = scorer.plan(Shape { batch: 1, length: 2048 }, 2047).expect("a plan");
    assert!(portions.len() > 1 && portions.iter().map(|portion| portion.rows).sum::<usize>() == 2047);
    let (needed, logits) = (device.bytes_needed(&plan), 2047 * 50_000 * 4);
    assert!(needed < logits / 2, "{needed} bytes, of logits {logits}");
}
