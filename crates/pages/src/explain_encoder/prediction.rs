//! What the model says of the text.

use std::fmt::Write;

use super::{ScoredClass, TextPage, TextPrediction, token};
use crate::chart::Bars;
use crate::escape;

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn bars(title: &str, rows: impl Iterator<Item = (String, f64)>) -> String {
    let mut bars = Bars::new(title).full(1.0);
    for (place, (name, score)) in rows.enumerate() {
        let text = percent(score);
        bars = if place == 0 { bars.strong_bar(&name, score, &text) } else { bars.bar(&name, score, &text) };
    }
    bars.svg()
}

/// The section.
pub fn section(page: &TextPage) -> String {
    match &page.prediction {
        TextPrediction::Classes { top, count, several } => {
            let how = match several {
                true => format!("The most probable of {count} labels, any of which may apply (sigmoid of each logit)."),
                false => format!("The most probable of {count} classes (softmax of the logits)."),
            };
            let rows = top.iter().map(|ScoredClass { label, score, .. }| (label.clone(), *score));
            format!("<p>{how}</p>{}", bars("Prediction", rows))
        }
        TextPrediction::Numbers(numbers) => {
            let mut html = "<p>The predicted numbers.</p><div class=\"scroll\"><table>".to_string();
            for (name, number) in numbers {
                let _ = write!(html, "<tr><td>{}</td><td class=\"number\">{number:.4}</td></tr>", escape(name));
            }
            html + "</table></div>"
        }
        TextPrediction::TokenClasses(classes) => token_classes(page, classes),
        TextPrediction::Answers(answers) => {
            let rows = answers.iter().map(|(answer, score)| (answer.clone(), *score));
            format!("<p>The most probable answers in the context.</p>{}", bars("Answers", rows))
        }
        TextPrediction::Masked => masked(page),
        TextPrediction::Vector { width, length, pooling, similarity } => {
            let similar = similarity.as_ref().map(|(other, cosine)| {
                format!(
                    " The cosine similarity with the vector of <q>{}</q> is <strong>{cosine:.4}</strong>.",
                    token(other)
                )
            });
            format!(
                "<p>This model has no head: its result is a vector of {width} dimensions ({pooling} pooling), of length {length:.4} before \
                 it is normalised.{}</p>",
                similar.unwrap_or_default()
            )
        }
    }
}

fn token_classes(page: &TextPage, classes: &[Option<ScoredClass>]) -> String {
    let mut html = "<p>The most probable class of each token (softmax of its logits).</p>\
         <div class=\"scroll tall\"><table><tr><th class=\"number\">#</th><th>token</th><th>class</th><th class=\"number\">probability</th></tr>"
        .to_string();
    for (at, (name, class)) in page.tokens.iter().zip(classes).enumerate() {
        let Some(ScoredClass { label, score, .. }) = class else { continue };
        let _ = write!(
            html,
            "<tr><td class=\"number\">{at}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            token(name),
            escape(label),
            percent(*score)
        );
    }
    html + "</table></div>"
}

/// The last layer's fillings of the masks.
fn masked(page: &TextPage) -> String {
    let Some(last) = page.fillings.last().filter(|_| !page.masked.is_empty()) else {
        return "<p>The text has no mask, so nothing is predicted: write the mask token in place of a word to see what the model would put \
                there.</p>"
            .to_string();
    };
    let mut html =
        "<p>The most probable tokens in the place of each mask (softmax over the vocabulary).</p>".to_string();
    for &mask in &page.masked {
        let top = last.tokens[mask].iter().map(|(_, name, score)| (name.clone(), f64::from(*score)));
        let _ = write!(html, "<h3>Mask at token {mask}</h3>{}", bars(&format!("Mask at token {mask}"), top));
    }
    html
}
