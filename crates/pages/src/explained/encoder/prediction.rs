//! What the model says of a text, as its head has it.

use vitreous_explain::encoder::Target;
use vitreous_models::{Gives, Pooling};
use vitreous_runtime::scores::{best, sigmoid, softmax};
use vitreous_runtime::text::{answers_in, cosine};

use super::{ReadText, Setting, is_head};
use crate::explain_encoder::{ScoredClass, TextPage, TextPrediction};

/// The prediction, from the logits of a head or the text's vector.
pub(super) fn of(setting: &Setting, text: &ReadText, logits: &[f32], vector: &[f32]) -> TextPrediction {
    let model = setting.model;
    let class = |scores: &[f64], index: usize| ScoredClass { index, label: model.label(index), score: scores[index] };
    let classes = |scores: Vec<f64>, several: bool| TextPrediction::Classes {
        top: best(&scores, setting.asked.top).into_iter().map(|index| class(&scores, index)).collect(),
        count: scores.len(),
        several,
    };
    match model.model.architecture.signature().gives.iter().find(is_head) {
        Some(Gives::Classes(_)) => classes(softmax(logits), false),
        Some(Gives::Labels(_)) => classes(logits.iter().map(|&logit| sigmoid(logit)).collect(), true),
        Some(Gives::Numbers(_)) => {
            TextPrediction::Numbers(logits.iter().enumerate().map(|(at, &number)| (model.label(at), number)).collect())
        }
        Some(Gives::TokenClasses(count)) => {
            let of_token = |(logits, special): (&[f32], &bool)| {
                let scores = softmax(logits);
                let index = best(&scores, 1).first().copied().filter(|_| !special)?;
                Some(class(&scores, index))
            };
            TextPrediction::TokenClasses(
                logits.chunks_exact(*count).zip(&text.encoding.special).map(of_token).collect(),
            )
        }
        Some(Gives::Span) => {
            let context = text.shown.get(1).map_or("", |(_, context)| context);
            let answers = answers_in(&text.encoding, context, logits, setting.asked.top);
            TextPrediction::Answers(answers.into_iter().map(|answer| (answer.text, answer.score)).collect())
        }
        Some(Gives::MaskedTokens(_)) => TextPrediction::Masked,
        Some(Gives::Vector(_) | Gives::TokenVectors(_) | Gives::NextToken(_) | Gives::Sequence(_)) | None => {
            TextPrediction::Vector {
                width: vector.len(),
                length: vector.iter().map(|&number| f64::from(number).powi(2)).sum::<f64>().sqrt(),
                pooling: pooling_name(setting.pooling),
                similarity: setting.other.map(|(other, of_other)| (other.clone(), cosine(vector, of_other))),
            }
        }
    }
}

fn pooling_name(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Cls => "first token",
        Pooling::Mean => "mean",
        Pooling::Max => "maximum",
        Pooling::Last => "last token",
    }
}

/// The prediction in a few words: a name and a score.
pub fn fields(page: &TextPage) -> Vec<String> {
    let scored = |name: &str, score: f64| vec![name.to_string(), format!("{:.1} %", 100.0 * score)];
    let found = match &page.prediction {
        TextPrediction::Classes { top, .. } => top.first().map(|class| scored(&class.label, class.score)),
        TextPrediction::Numbers(numbers) => {
            numbers.first().map(|(name, number)| vec![name.clone(), format!("{number:.4}")])
        }
        TextPrediction::TokenClasses(classes) => {
            let surest = page.relevance.first().and_then(|relevance| match relevance.target {
                Target::OfToken { token, .. } => Some(token),
                _ => None,
            });
            surest.and_then(|token| {
                let class = classes[token].as_ref()?;
                Some([vec![page.tokens[token].clone()], scored(&class.label, class.score)].concat())
            })
        }
        TextPrediction::Answers(answers) => answers.first().map(|(answer, score)| scored(answer, *score)),
        TextPrediction::Masked => page.fillings.last().zip(page.masked.first()).and_then(|(last, mask)| {
            last.tokens[*mask].first().map(|(_, name, score)| scored(name, f64::from(*score)))
        }),
        TextPrediction::Vector { similarity, .. } => {
            similarity.as_ref().map(|(_, cosine)| vec!["similarity".to_string(), format!("{cosine:.4}")])
        }
    };
    found.unwrap_or_default()
}
