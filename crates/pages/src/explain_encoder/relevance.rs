//! How much each token speaks for the answer: the text, coloured.

use std::fmt::Write;

use vitreous_explain::encoder::Attributions;

use super::{TextPage, TokenRelevance, token};
use crate::escape;

/// From so much of the difference on, the missing part of completeness is a reason to take more steps.
const MUCH_MISSED: f64 = 0.05;

/// The section.
pub fn section(page: &TextPage) -> String {
    let mut html = String::new();
    if !page.relevance.is_empty() {
        html.push_str(
            "<p>Two ways to ask which tokens an output of the model comes from. <em>Gradient × attention</em> follows attention from the token \
             that the output is read from back to the first layer, each weight counted as far as more of it would raise the output; it only knows \
             what speaks for it. <em>Integrated gradients</em> go from a text in which every token but the special ones and the masks is padding \
             to the text itself and add up what each token contributes on the way; they also know what speaks against it.</p>",
        );
    }
    if let Some(note) = &page.relevance_note {
        let _ = write!(html, "<p class=\"note warn\">{}</p>", escape(note));
    }
    for relevance in &page.relevance {
        let _ = write!(html, "<h3>For {}</h3>", escape(&relevance.name));
        html.push_str(&coloured(page, "Gradient × attention", "gradient-attention", &relevance.gradient_attention));
        if let Some(integrated) = &relevance.integrated {
            html.push_str(&coloured(page, "Integrated gradients", "integrated", &integrated.tokens));
            html.push_str(&completeness(integrated));
        }
        html.push_str(&numbers(page, relevance));
    }
    if !page.relevance.is_empty() {
        html.push_str(
            "<p class=\"source\">Chefer, Gur and Wolf, “Generic attention-model explainability”, 2021 (for self-attention; the identity is left \
             out); Sundararajan, Taly and Yan, “Axiomatic attribution for deep networks”, 2017, on the word embeddings. Neither proves why a \
             model decides as it does.</p>",
        );
    }
    html
}

/// The tokens, each with the colour of its value.
fn coloured(page: &TextPage, name: &str, method: &str, values: &[f32]) -> String {
    let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let is_signed = values.iter().any(|value| *value < 0.0);
    let low = if is_signed { -most } else { 0.0 };
    let mut html = format!(
        "<h4>{name}</h4><div class=\"legend\"><span>{}</span><span class=\"scale {}\"></span><span>{}</span></div>\
         <div class=\"tokens\" data-method=\"{method}\" dir=\"auto\">",
        short(low),
        if is_signed { "signed" } else { "positive" },
        short(most)
    );
    for ((at, name), &value) in page.tokens.iter().enumerate().zip(values) {
        let share = if most > 0.0 { value.abs() / most } else { 0.0 };
        let class = match (page.special[at], value < 0.0) {
            (false, false) => "token",
            (false, true) => "token against",
            (true, false) => "token special",
            (true, true) => "token special against",
        };
        let _ = write!(
            html,
            "<span class=\"{class}\" data-token=\"{at}\" data-value=\"{value}\" title=\"token {at}: {}\" style=\"--share:{share:.3}\">{}</span>",
            short(value),
            token(name)
        );
    }
    html + "</div>"
}

/// A value to three digits.
fn short(value: f32) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if (0.001..10_000.0).contains(&size) => {
            let decimals = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
            format!("{value:.decimals$}")
        }
        _ => format!("{value:.1e}"),
    }
}

/// The sum of all attributions against the difference that they are parts of.
fn completeness(integrated: &Attributions) -> String {
    let Attributions { value, baseline, steps, .. } = integrated;
    let (sum, difference, error) = (integrated.sum(), value - baseline, integrated.error());
    let share = integrated.error_share();
    let advice = match share > MUCH_MISSED {
        true => " <span class=\"warn\">That is much: a larger <code>--steps</code> may come nearer.</span>",
        false => "",
    };
    format!(
        "<p class=\"note\" data-value=\"{value}\" data-baseline=\"{baseline}\" data-sum=\"{sum}\" data-error=\"{error}\">Completeness: the output \
         is {value:.4} for the text and {baseline:.4} for the baseline; the difference is {difference:.4}, and the contributions of all tokens \
         sum to {sum:.4}. With {steps} steps, {error:.1e} is missed, {:.2} % of the difference.{advice}</p>",
        100.0 * share
    )
}

/// All values as a table.
fn numbers(page: &TextPage, relevance: &TokenRelevance) -> String {
    let mut html = "<details><summary>All values</summary><div class=\"scroll tall\"><table><tr><th class=\"number\">#</th><th>token</th>\
         <th class=\"number\">gradient × attention</th>"
        .to_string();
    if relevance.integrated.is_some() {
        html.push_str("<th class=\"number\">integrated gradients</th>");
    }
    html.push_str("</tr>");
    for (at, name) in page.tokens.iter().enumerate() {
        let _ = write!(
            html,
            "<tr><td class=\"number\">{at}</td><td>{}</td><td class=\"number\">{}</td>",
            token(name),
            short(relevance.gradient_attention[at])
        );
        if let Some(integrated) = &relevance.integrated {
            let _ = write!(html, "<td class=\"number\">{}</td>", short(integrated.tokens[at]));
        }
        html.push_str("</tr>");
    }
    html + "</table></div></details>"
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn values_have_three_digits() {
        let texts = [0.0, 1.0, -12.345, 123.456, 0.01234, 0.00001234, -99999.0].map(short);
        assert_eq!(texts, ["0", "1.00", "-12.3", "123", "0.0123", "1.2e-5", "-1.0e5"]);
    }
}
