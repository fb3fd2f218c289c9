//! Attention between tokens: small maps of all heads, one of them large, and lines from token to token.

use std::fmt::Write;

use vitreous_explain::text::TextAttention;

use super::{TextPage, token};
use crate::token_map::{board, packed::characters};

/// How much attention a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whether it holds single heads, and not their means alone.
    pub heads: bool,
    /// How many of the chosen layers it holds, counted from the last.
    layers: usize,
}

impl Kept {
    /// As much as fits into so many characters: all heads of all layers; or the means over heads; or those of the last layers. One layer's
    /// is always there.
    pub fn of(page: &TextPage, budget: usize) -> Kept {
        let all = page.attention.len();
        let heads: usize = page.attention.iter().map(|layer| layer.weights.len() + layer.mean.len()).sum();
        if characters(heads) <= budget {
            return Kept { heads: true, layers: all };
        }
        let mean = page.attention.first().map_or(0, |layer| characters(layer.mean.len()));
        Kept { heads: false, layers: (budget / mean.max(1)).clamp(1, all.max(1)) }
    }

    /// The layers that the page holds.
    pub fn layers(self, page: &TextPage) -> &[TextAttention] {
        &page.attention[page.attention.len().saturating_sub(self.layers)..]
    }

    /// What is left out, and how to get it.
    fn note(self, page: &TextPage) -> String {
        if self.heads {
            return String::new();
        }
        let layers = match self.layers < page.attention.len() {
            true => format!(" of the last {} layers", self.layers),
            false => String::new(),
        };
        format!(
            "<p class=\"note warn\">To stay small, this page holds only the mean over heads{layers}. Choose fewer layers and heads to include \
             them, as in <code>--layers last --heads 0-2</code>, or get all weights with <code>--arrays</code>.</p>"
        )
    }
}

/// The mean, which the script numbers -1, then each head by its place.
fn heads(page: &TextPage, kept: Kept) -> Vec<(isize, String)> {
    let chosen = page.attention.first().filter(|_| kept.heads).map_or(&[][..], |layer| &layer.heads);
    let each = chosen.iter().enumerate().map(|(place, head)| (place as isize, head.to_string()));
    std::iter::once((-1, "mean".to_string())).chain(each).collect()
}

/// Small maps of all heads, and the chosen one large.
pub fn maps(page: &TextPage, kept: Kept) -> String {
    let mut html = format!(
        "<p>In every layer each token attends to all tokens: it takes a weighted sum of their values. Rows are the tokens that attend, columns \
         those that are attended to; a row sums to 100 %. Below are all maps, one row per layer, one column per head. Choose one to see it large, \
         and its lines in the next section; the address of the page keeps the choice.</p>\
         <noscript><p class=\"note warn\">Maps and lines need scripts, which are disabled here.</p></noscript>{}\
         <div class=\"needs-script\">{}{}",
        kept.note(page),
        overview(page, kept),
        controls(page, kept)
    );
    html.push_str(
        "<div class=\"controls\"><label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale: shows weak \
         weights</label></div>",
    );
    html.push_str(&board(page.tokens.iter().map(String::as_str), page.tokens.len(), "Attention between tokens"));
    html + "</div><p class=\"source\">Vaswani et al., “Attention is all you need”, 2017, section 3.2.</p>"
}

fn overview(page: &TextPage, kept: Kept) -> String {
    let heads = heads(page, kept);
    let mut html = format!(
        "<div class=\"overview\" id=\"overview\" style=\"grid-template-columns:max-content repeat({},minmax(0,1fr));max-width:{}px\"><span></span>",
        heads.len(),
        40 + heads.len() * 76
    );
    for (_, name) in &heads {
        let _ = write!(html, "<span class=\"name\">{name}</span>");
    }
    for (place, layer) in kept.layers(page).iter().enumerate() {
        let _ = write!(html, "<span class=\"row\">{}</span>", layer.layer);
        for (head, name) in &heads {
            let name = if *head < 0 { "mean over heads".to_string() } else { format!("head {name}") };
            let _ = write!(
                html,
                "<button type=\"button\" class=\"cell\" tabindex=\"-1\" data-layer=\"{place}\" data-head=\"{head}\" \
                 aria-label=\"layer {}, {name}\"><canvas width=\"1\" height=\"1\" aria-hidden=\"true\"></canvas></button>",
                layer.layer
            );
        }
    }
    html + "</div><p class=\"note\">Each map has its own scale, from 0 to its largest weight.</p>"
}

fn controls(page: &TextPage, kept: Kept) -> String {
    let layers = kept.layers(page);
    let mut html = "<div class=\"controls\"><label>Layer <select id=\"layer\" autocomplete=\"off\">".to_string();
    for (place, layer) in layers.iter().enumerate() {
        let selected = if place + 1 == layers.len() { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{place}\"{selected}>{}</option>", layer.layer);
    }
    html.push_str("</select></label><span id=\"heads-name\">Heads</span><div class=\"heads\" id=\"heads\" role=\"group\" aria-labelledby=\"heads-name\">");
    for (place, name) in heads(page, kept) {
        let _ = write!(
            html,
            "<button type=\"button\" class=\"head\" data-head=\"{place}\" aria-pressed=\"{}\">{name}</button>",
            place < 0
        );
    }
    html + "</div></div>"
}

/// Lines from token to token, for the same layer and heads.
pub fn lines(page: &TextPage) -> String {
    let column = |id: &str, name: &str| {
        let mut html = format!("<div class=\"column\" id=\"{id}\" role=\"group\" aria-label=\"{name}\">");
        for (at, name) in page.tokens.iter().enumerate() {
            let class = if page.special[at] { "node special" } else { "node" };
            let _ = write!(
                html,
                "<button type=\"button\" class=\"{class}\" data-token=\"{at}\" aria-pressed=\"false\">{}</button>",
                token(name)
            );
        }
        html + "</div>"
    };
    format!(
        "<p>Each token on the left attends to tokens on the right; the stronger the line, the larger the weight (lines of less than 1 % are left \
         out). Point at a token, tap it or move to it with the keyboard to see its lines alone: on the left, what it attends to; on the right, \
         what attends to it. Several heads can be chosen at once; each has its colour.</p>\
         <div class=\"needs-script\"><p>Layer <strong id=\"lines-layer\">0</strong>, <span id=\"lines-heads\">mean over heads</span>. \
         <a href=\"#attention\">Choose others above.</a></p>\
         <p id=\"lines-says\" aria-live=\"polite\">&nbsp;</p>\
         <div class=\"flow\"><div class=\"between\" style=\"--rows:{rows}\">{}<svg id=\"flow\" viewBox=\"0 0 100 {rows}\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\"></svg>{}</div></div></div>\
         <p class=\"source\">As in BertViz (Vig, “A multiscale visualization of attention in the Transformer model”, 2019).</p>",
        column("from", "Tokens that attend"),
        column("to", "Tokens that are attended to"),
        rows = page.tokens.len(),
    )
}
