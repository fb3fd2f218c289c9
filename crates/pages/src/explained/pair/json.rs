//! The explanation of a sentence as one line of JSON.

use serde_json::{Value, json};
use vitreous_data::text::Word;
use vitreous_explain::text::TextAttention;

use crate::explain_text::SentencePage;
use crate::explain_text::words::{PairPieces, Side};

/// The explanation as JSON; see the guide for its fields.
pub fn object(shown: &SentencePage) -> Value {
    let SentencePage { explanation, words, pieces, .. } = shown;
    let (sources, targets) = (explanation.source.len(), explanation.written.len());
    let mut target = side((*pieces, Side::Target), &explanation.written, &words.written);
    target["probability"] = json!(explanation.probabilities);
    target["likeliest"] = explanation
        .likeliest
        .iter()
        .map(|&(token, probability)| json!({"piece": pieces.piece(Side::Target, token), "probability": probability}))
        .collect();
    let log_probability: f64 = explanation.probabilities.iter().map(|&share| f64::from(share).ln()).sum();
    let alignment = words.links.iter().enumerate().map(|(layer, links)| {
        let link =
            |l: &vitreous_explain::text::Link| json!({"target": l.target, "source": l.source, "weight": l.weight});
        json!({"layer": layer, "links": links.iter().map(link).collect::<Vec<_>>()})
    });
    json!({
        "text": shown.text,
        "translation": shown.translation,
        "given": shown.is_given,
        "log_probability": log_probability,
        "source": side((*pieces, Side::Source), &explanation.source, &words.source),
        "target": target,
        "alignment_layer": shown.usual_layer(),
        "alignment": alignment.collect::<Vec<Value>>(),
        "attention": {
            "encoder": means(&explanation.encoder, sources),
            "decoder": means(&explanation.decoder, targets),
            "cross": means(&explanation.cross, sources),
        },
    })
}

/// Tokens of a side with its end, and the words that they are pieces of.
fn side((pieces, side): (&dyn PairPieces, Side), tokens: &[u32], words: &[Word]) -> Value {
    let pieces: Vec<String> = tokens.iter().map(|&token| pieces.piece(side, token)).collect();
    let word = |word: &Word| json!({"text": word.text, "first": word.tokens.start, "pieces": word.tokens.len()});
    json!({"tokens": tokens, "pieces": pieces, "words": words.iter().map(word).collect::<Vec<_>>()})
}

/// Of each layer its heads that were chosen, and the mean over all heads, one list per row.
fn means(layers: &[TextAttention], columns: usize) -> Vec<Value> {
    let one = |attention: &TextAttention| {
        let rows: Vec<&[f32]> = attention.mean.chunks_exact(columns).collect();
        json!({"layer": attention.layer, "heads": attention.heads, "mean": rows})
    };
    layers.iter().map(one).collect()
}
