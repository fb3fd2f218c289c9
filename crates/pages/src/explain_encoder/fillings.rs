//! What each layer would fill in: the masked-token head on the vectors after every layer.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{NamedFillings, TextPage, token};

/// The token that is shown first: the first mask, otherwise the first that is no special token.
fn first(page: &TextPage) -> usize {
    let plain = || page.special.iter().position(|special| !special);
    page.masked.first().copied().or_else(plain).unwrap_or(0)
}

fn layer_name(layer: Option<usize>) -> String {
    layer.map_or("embeddings".to_string(), |layer| format!("layer {layer}"))
}

/// The section.
pub fn section(page: &TextPage) -> String {
    let shown = first(page);
    let mut html = "<p>The head that fills in masked tokens, applied to the vectors after every layer and not after the last one alone (the \
         “logit lens”). It was trained on the last layer only: of early layers it shows what already looks like an answer to it.</p>"
        .to_string();
    html.push_str("<div class=\"controls\"><label>Token <select id=\"place\" autocomplete=\"off\">");
    let others = (0..page.tokens.len()).filter(|at| !page.masked.contains(at));
    for at in page.masked.iter().copied().chain(others) {
        let selected = if at == shown { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{at}\"{selected}>{at}: {}</option>", crate::escape(&page.tokens[at]));
    }
    let _ = write!(html, "</select></label></div>{}", of_token(page, shown));
    html.push_str(&of_all(page, "The most probable token in every place"));
    html + "<p class=\"source\">nostalgebraist, “interpreting GPT: the logit lens”, 2020.</p>"
}

/// The most probable tokens in one place, a row for each layer, the last first.
pub(crate) fn of_token(page: &TextPage, at: usize) -> String {
    let mut html = "<div class=\"scroll\"><table class=\"lens\" id=\"lens\"><thead><tr><th></th>".to_string();
    let count = page.fillings.first().map_or(0, |layer| layer.tokens[at].len());
    for place in 1..=count {
        let _ = write!(html, "<th>{place}.</th>");
    }
    html.push_str("</tr></thead><tbody id=\"lens-rows\">");
    for layer in page.fillings.iter().rev() {
        let _ = write!(html, "<tr><th>{}</th>", layer_name(layer.layer));
        for (_, name, score) in &layer.tokens[at] {
            let _ = write!(
                html,
                "<td style=\"--share:{score:.3}\">{} <span class=\"score\">{:.1} %</span></td>",
                token(name),
                100.0 * score
            );
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

/// The most probable token of each layer in every place.
pub(crate) fn of_all(page: &TextPage, heading: &str) -> String {
    let mut html =
        format!("<h3>{heading}</h3><div class=\"scroll tall\"><table class=\"lens all\"><thead><tr><th></th>");
    for (at, name) in page.tokens.iter().enumerate() {
        let class = if page.masked.contains(&at) { " class=\"masked\"" } else { "" };
        let _ = write!(html, "<th{class}>{}</th>", token(name));
    }
    html.push_str("</tr></thead><tbody>");
    for NamedFillings { layer, tokens } in page.fillings.iter().rev() {
        let _ = write!(
            html,
            "<tr data-layer=\"{}\"><th>{}</th>",
            layer.map_or(-1, |layer| layer as isize),
            layer_name(*layer)
        );
        for top in tokens {
            match top.first() {
                Some((id, name, score)) => {
                    let _ = write!(
                        html,
                        "<td data-id=\"{id}\" data-score=\"{score}\" title=\"{:.1} %\" style=\"--share:{score:.3}\">{}</td>",
                        100.0 * score,
                        token(name)
                    );
                }
                None => html.push_str("<td></td>"),
            }
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

/// For the script: names of layers, and for each layer and place the most probable tokens as names and probabilities.
pub fn data(page: &TextPage) -> Value {
    let layers = page.fillings.iter().map(|layer| {
        let top = |top: &Vec<(u32, String, f32)>| -> Value {
            top.iter().map(|(_, name, score)| json!([name, score])).collect()
        };
        json!({ "name": layer_name(layer.layer), "top": layer.tokens.iter().map(top).collect::<Vec<_>>() })
    });
    json!({ "first": first(page), "layers": layers.collect::<Vec<_>>() })
}
