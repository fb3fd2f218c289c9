//! The sections of the page.

use std::fmt::Write;

use super::{LanguagePage, Patching};
use crate::chart::Bars;
use crate::explain_encoder as encoder;
use crate::inside::{self, NumberMap, signed};
use crate::{escape, format};

/// The token that is explained, as HTML: “Paris” after token 5.
pub fn target(page: &LanguagePage) -> String {
    format!("<q class=\"mono\">{}</q> after token {}", encoder::token(&page.target.name), page.position)
}

/// The most probable next tokens.
pub fn next(page: &LanguagePage) -> String {
    let top = page.text.fillings.last().map(|layer| &layer.tokens[page.position][..]).unwrap_or_default();
    let mut bars = Bars::new("The most probable next tokens").full(1.0);
    for (id, name, score) in top {
        let text = format!("{:.1} %", 100.0 * score);
        bars = match *id == page.target.id {
            true => bars.strong_bar(name, f64::from(*score), &text),
            false => bars.bar(name, f64::from(*score), &text),
        };
    }
    format!(
        "<p>The most probable tokens after <bdi>“{}”</bdi> (token {}). Below, it is {} that is explained; <code>--class TOKEN</code> chooses another, \
         <code>--token N</code> another place.</p>{}",
        escape(&page.text.tokens[page.position]),
        page.position,
        target(page),
        bars.svg()
    )
}

/// The text with the probability and rank of each token.
pub fn surprise(page: &LanguagePage) -> String {
    let known: Vec<f64> = page.actual.iter().flatten().map(|(share, _)| f64::from(*share).max(1e-30)).collect();
    let loss = -known.iter().map(|share| share.ln()).sum::<f64>() / known.len().max(1) as f64;
    let mut html = "<p>The probability that the model gave to each token of the text, and its rank among all tokens, when it had read only those before \
         it. The darker a token, the less it was expected; point at one for its numbers.</p><div class=\"tokens\">"
        .to_string();
    for (at, (name, actual)) in page.text.tokens.iter().zip(&page.actual).enumerate() {
        let Some((share, rank)) = actual else {
            let _ =
                write!(html, "<span class=\"token special\" title=\"the first token\">{}</span>", encoder::token(name));
            continue;
        };
        // 0 nats is white, 10 or more the full colour.
        let surprise = (-f64::from(*share).max(1e-30).ln() / 10.0).clamp(0.0, 1.0);
        let _ = write!(
            html,
            "<span class=\"token\" style=\"--share:{surprise:.3}\" title=\"token {at}: {:.2} %, rank {rank}\">{}<small>{rank}</small></span>",
            100.0 * share,
            encoder::token(name)
        );
    }
    let _ = write!(html, "</div><p class=\"note\">The small number is the rank.");
    if !known.is_empty() {
        let _ = write!(
            html,
            " Mean loss {loss:.3} nats, perplexity {:.2}, over {}.",
            loss.exp(),
            format::count(known.len(), "token", "tokens")
        );
    }
    html + "</p>"
}

/// The logit lens.
pub fn lens(page: &LanguagePage) -> String {
    let mut html =
        "<p>The model's own final norm and output matrix, applied to the stream after every layer and not after the last one alone (the “logit lens”): \
         what it would say next if it stopped there.</p><div class=\"controls needs-script\"><label>After token <select id=\"place\" autocomplete=\"off\">"
            .to_string();
    for (at, name) in page.text.tokens.iter().enumerate() {
        let selected = if at == page.position { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{at}\"{selected}>{at}: {}</option>", escape(name));
    }
    let _ = write!(html, "</select></label></div>{}", encoder::of_token(&page.text, page.position));
    html.push_str(&encoder::of_all(&page.text, "The most probable next token after every token"));
    html + "<p class=\"source\">nostalgebraist, “interpreting GPT: the logit lens”, 2020.</p>"
}

/// What each part adds to the logit.
pub fn attribution(page: &LanguagePage) -> String {
    match &page.attribution {
        Ok(parts) => inside::attribution(parts, &target(page)),
        Err(why) => format!("<p class=\"note\">{}</p>", escape(why)),
    }
}

/// The map of patching.
pub fn patching(page: &LanguagePage, patching: &Patching) -> String {
    let columns: Vec<String> = (page.text.tokens.iter().zip(&patching.tokens).enumerate())
        .map(|(at, (own, other))| if own == other { format!("{at} {own}") } else { format!("{at} {own} → {other}") })
        .collect();
    let effects = &patching.effects;
    let whole = effects.other - effects.own;
    let share = |x: f64| if whole.abs() > 1e-9 { (x - effects.own) / whole } else { 0.0 };
    let rows = effects.patched.iter().enumerate().rev().map(|(place, row)| {
        let name = place.checked_sub(1).map_or("embedding".to_string(), |layer| layer.to_string());
        (name, row.iter().map(|x| Some(share(*x))).collect())
    });
    let map = NumberMap {
        caption: "Share of the difference that one vector carries",
        axes: ["after layer", "token"],
        columns: &columns,
        rows: rows.collect(),
        shares: false,
    };
    format!(
        "<p>The same model reads <bdi>“{}”</bdi>, and one vector of that run, after one layer and in one place, is put in place of this run's. The \
         measure is the logit of <q class=\"mono\">{}</q> less that of <q class=\"mono\">{}</q>, which the other text makes most probable: {} here, {} \
         there. A cell is the share of the way from here to there that this single vector goes: +1 is all of it.</p>{}\
         <p class=\"source\">Activation patching: Meng et al., “Locating and editing factual associations in GPT”, 2022.</p>",
        escape(&patching.text),
        encoder::token(&page.target.name),
        encoder::token(&patching.against.name),
        signed(effects.own, false),
        signed(effects.other, false),
        map.html()
    )
}

/// Scores of heads.
pub fn heads(page: &LanguagePage) -> String {
    format!(
        "<p>What heads attend to, as shares of attention: an <em>induction</em> head attends to what followed earlier copies of the current token, so \
         that it can be repeated; a <em>previous-token</em> head to the token before; a <em>duplicate-token</em> head to earlier copies. Measured on \
         random tokens that are repeated once, where nothing but repetition can be known:</p>{}\
         <details><summary>On this text</summary><p>Over tokens that have come before; without one, the scores are 0.</p>{}</details>\
         <p class=\"source\">Olsson et al., “In-context learning and induction heads”, 2022.</p>",
        inside::scores(&page.repeated_scores),
        inside::scores(&page.scores)
    )
}

/// Tokens nearest to vectors.
pub fn nearest(page: &LanguagePage) -> String {
    let mut html = "<p>The tokens whose embeddings point most nearly in the direction of a vector, with their cosine similarity.</p>".to_string();
    for (path, tokens) in &page.nearest {
        let _ = write!(html, "<h3><code>{}</code></h3><div class=\"tokens\">", escape(path));
        for (token, cosine) in tokens {
            let _ = write!(
                html,
                "<span class=\"token\" style=\"--share:{:.3}\">{}<small>{cosine:.2}</small></span>",
                cosine.clamp(0.0, 1.0),
                encoder::token(&token.name)
            );
        }
        html.push_str("</div>");
    }
    html
}
