//! Sections that pages of language models and of image models share: what parts of a model add, and what happens without them.

pub mod json;

use std::fmt::Write;

use vitreous_explain::inside::{Attribution, HeadEffects, HeadScores};

use crate::colour::{diverging, hex, sequential, text_on};
use crate::escape;

/// The style of the maps.
pub(crate) const STYLE: &str = include_str!("inside.css");

/// Up to so many columns have their numbers in the cells.
const MOST_NUMBERS: usize = 20;

/// A map of numbers: rows and columns with names.
pub(crate) struct NumberMap<'a> {
    /// What it shows, for those who cannot see it.
    pub caption: &'a str,
    /// What rows and columns are.
    pub axes: [&'a str; 2],
    /// Names of columns.
    pub columns: &'a [String],
    /// Names of rows, and their numbers.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// Whether numbers are shares of 0 to 1, and not around 0.
    pub shares: bool,
}

impl NumberMap<'_> {
    /// The largest number, which has the strongest colour.
    fn largest(&self) -> f64 {
        let numbers = self.rows.iter().flat_map(|(_, row)| row.iter().flatten());
        numbers.map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f64::max).max(1e-12)
    }

    /// The map as a table.
    pub fn html(&self) -> String {
        let largest = if self.shares { 1.0 } else { self.largest() };
        let with_numbers = self.columns.len() <= MOST_NUMBERS;
        let class = if with_numbers { "effects" } else { "effects small" };
        let mut html = format!(
            "<div class=\"scroll\"><table class=\"{class}\"><caption>{}</caption><thead><tr><th scope=\"col\"><span class=\"axis\">{} \\ {}</span></th>",
            escape(self.caption),
            self.axes[0],
            self.axes[1]
        );
        for name in self.columns {
            let _ = write!(html, "<th scope=\"col\"><bdi>{}</bdi></th>", escape(name));
        }
        html.push_str("</tr></thead><tbody>");
        for (name, row) in &self.rows {
            let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(name));
            for (column, number) in row.iter().enumerate() {
                let Some(number) = number else {
                    html.push_str("<td></td>");
                    continue;
                };
                let share = (number / largest) as f32;
                let colour = if self.shares { sequential(share) } else { diverging(share) };
                let text = signed(*number, self.shares);
                let title = self.columns.get(column).map_or("", String::as_str);
                let _ = write!(
                    html,
                    "<td style=\"background:{};color:{}\" title=\"{} {}, {}: {text}\">{}</td>",
                    hex(colour),
                    text_on(colour),
                    self.axes[0],
                    escape(name),
                    escape(title),
                    if with_numbers { &text } else { "" }
                );
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table></div>"
    }
}

/// A number with its sign; a share without one.
pub(crate) fn signed(number: f64, is_share: bool) -> String {
    match (is_share, number.abs()) {
        (true, _) => format!("{number:.2}"),
        (false, small) if small < 0.005 => "0".to_string(),
        (false, large) if large >= 100.0 => format!("{number:+.0}"),
        _ => format!("{number:+.2}").replace('-', "−"),
    }
}

fn head_names(heads: usize, others: &[&str]) -> Vec<String> {
    (0..heads).map(|head| head.to_string()).chain(others.iter().map(|name| (*name).to_string())).collect()
}

/// What each part adds to a logit. `output` is what the logit is of, in words, as HTML.
pub(crate) fn attribution(parts: &Attribution, output: &str) -> String {
    let heads = parts.layers.first().map_or(0, |layer| layer.heads.len());
    let columns = head_names(heads, &["bias", "MLP"]);
    let row = |(number, layer): (usize, &vitreous_explain::inside::LayerParts)| {
        let numbers = layer.heads.iter().chain([&layer.attention_bias, &layer.mlp]).map(|x| Some(*x)).collect();
        (number.to_string(), numbers)
    };
    let map = NumberMap {
        caption: "What each head and MLP adds to the logit",
        axes: ["layer", "head"],
        columns: &columns,
        rows: parts.layers.iter().enumerate().map(row).collect(),
        shares: false,
    };
    let number = |x: f64| format!("<strong>{}</strong>", signed(x, false));
    format!(
        "<p>The stream after the last layer is a sum of what every part has written to it. With the scale of the final norm kept as it is, the \
         logit of {output} is the sum of what each part adds to it: orange speaks for it, blue against it. The <em>bias</em> of attention is behind \
         its heads and belongs to none.</p>{}\
         <p class=\"sum\">embeddings {} &nbsp;+&nbsp; layers {} &nbsp;+&nbsp; biases of final norm and head {} &nbsp;=&nbsp; {} \
         <span class=\"note\">(the logit is {:.4})</span></p>{}\
         <p class=\"source\">Direct logit attribution: Elhage et al., “A mathematical framework for Transformer circuits”, 2021.</p>",
        map.html(),
        number(parts.embedding),
        number(parts.sum() - parts.embedding - parts.bias),
        number(parts.bias),
        number(parts.sum()),
        parts.logit,
        strongest(parts),
    )
}

/// The parts that add most, and those that take most away.
fn strongest(parts: &Attribution) -> String {
    let mut all: Vec<(String, f64)> = vec![("embeddings".to_string(), parts.embedding)];
    for (number, layer) in parts.layers.iter().enumerate() {
        all.extend(
            layer.heads.iter().enumerate().map(|(head, x)| (format!("blocks.{number}.attention.heads.{head}"), *x)),
        );
        all.push((format!("blocks.{number}.mlp"), layer.mlp));
    }
    all.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    all.truncate(8);
    let largest = all.first().map_or(1.0, |(_, x)| x.abs()).max(1e-12);
    let mut html = "<h3>The parts that count most</h3><div class=\"parts\">".to_string();
    for (name, x) in all {
        let side = if x >= 0.0 { "for" } else { "against" };
        let _ = write!(
            html,
            "<span class=\"mono\">{name}</span><span class=\"bar {side}\"><i style=\"width:{:.1}%\"></i></span><span class=\"number\">{}</span>",
            100.0 * x.abs() / largest,
            signed(x, false)
        );
    }
    html + "</div>"
}

/// The effect of switching off heads and MLPs. `output` is what the probability is of, as HTML.
pub(crate) fn effects(effects: &HeadEffects, output: &str) -> String {
    let heads = effects.heads.first().map_or(0, Vec::len);
    let columns = head_names(heads, &["MLP"]);
    let rows = effects
        .heads
        .iter()
        .zip(&effects.mlps)
        .enumerate()
        .map(|(layer, (heads, mlp))| (layer.to_string(), heads.iter().chain([mlp]).map(|x| Some(*x)).collect()));
    let map = NumberMap {
        caption: "Change of the log-probability without each head and MLP",
        axes: ["layer", "head"],
        columns: &columns,
        rows: rows.collect(),
        shares: false,
    };
    format!(
        "<p>Each head is switched off alone (its output is 0), and the model runs on from there. A cell is the change of the log-probability of \
         {output}, in nats: blue means that the model needs the head for it, orange that the head holds it back. As it is, the probability is \
         <strong>{:.2} %</strong>.</p>{}\
         <p class=\"note\">Try it: <code>--without blocks.{}.attention.heads.{}</code></p>",
        100.0 * effects.log_probability.exp(),
        map.html(),
        most_needed(effects).0,
        most_needed(effects).1,
    )
}

/// The head whose absence costs most: its layer and number.
fn most_needed(effects: &HeadEffects) -> (usize, usize) {
    let all = effects.heads.iter().enumerate();
    let all = all.flat_map(|(layer, heads)| heads.iter().enumerate().map(move |(head, x)| ((layer, head), *x)));
    all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or((0, 0), |(place, _)| place)
}

/// The scores of heads, as three maps.
pub(crate) fn scores(scores: &[Vec<HeadScores>]) -> String {
    let heads = scores.first().map_or(0, Vec::len);
    let columns = head_names(heads, &[]);
    let of = |caption: &str, score: fn(&HeadScores) -> f64| {
        let rows = scores.iter().enumerate();
        let rows = rows.map(|(layer, heads)| (layer.to_string(), heads.iter().map(|head| Some(score(head))).collect()));
        NumberMap { caption, axes: ["layer", "head"], columns: &columns, rows: rows.collect(), shares: true }.html()
    };
    format!(
        "<div class=\"columns\"><div><h3>Induction</h3>{}</div><div><h3>Previous token</h3>{}</div><div><h3>Duplicate token</h3>{}</div></div>",
        of("Induction score of each head", |scores| scores.induction),
        of("Previous-token score of each head", |scores| scores.previous_token),
        of("Duplicate-token score of each head", |scores| scores.duplicate_token),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_sign() {
        assert_eq!(signed(-1.234, false), "−1.23");
        assert_eq!(signed(0.001, false), "0");
        assert_eq!(signed(0.5, true), "0.50");
        assert_eq!(signed(123.4, false), "+123");
    }

    #[test]
    fn a_map_escapes_its_names() {
        let columns = vec!["<b>".to_string()];
        let rows = vec![("0".to_string(), vec![Some(1.0)])];
        let map = NumberMap { caption: "a", axes: ["layer", "token"], columns: &columns, rows, shares: false };
        let html = map.html();
        assert!(!html.contains("<b>") && html.contains("&lt;b&gt;") && html.contains("+1.00"), "{html}");
    }
}
