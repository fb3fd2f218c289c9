//! The sections of the page, each with what it shows and how to read it.

use std::fmt::Write;

use crate::chart::Bars;
use crate::{escape, token_map};
use vitreous_data::text::Word;

use super::words::Side;
use super::{SentencePage, drawings};
use crate::format;

/// Model, sentence and translation, above the first section.
pub fn lead(page: &SentencePage) -> String {
    let whose = if page.is_given { "Translation, as given" } else { "Translation, by the model" };
    let tokens = |count: usize| format::count(count, "token", "tokens");
    format!(
        "<p>Attention of an encoder-decoder Transformer in one sentence: {} in the encoder, {} in the decoder, {} per layer. Layers and \
         heads count from 0.</p>\
         <dl class=\"facts\"><dt>Source</dt><dd><bdi>{}</bdi></dd><dt>{whose}</dt><dd><bdi>{}</bdi></dd>\
         <dt>Tokens</dt><dd>{} of the source, {} of the translation, including end tokens</dd>\
         <dt>Model</dt><dd class=\"mono\">{}</dd></dl>",
        format::count(page.layers[0], "layer", "layers"),
        format::count(page.layers[1], "layer", "layers"),
        format::count(page.heads, "head", "heads"),
        escape(page.text),
        escape(page.translation),
        tokens(page.explanation.source.len()),
        tokens(page.explanation.written.len()),
        escape(page.model),
    )
}

/// Both sentences as words that highlight each other.
pub fn translation(page: &SentencePage) -> String {
    let usual = page.usual_layer();
    let mut html =
        "<p>Point at a word, tap it, or move to it with the keyboard. For a word of the translation, the words of the source are \
         highlighted that the decoder attended to when it generated it; for a word of the source, the words of the translation that \
         attended to it. The stronger the colour, the larger the weight.</p>\
         <noscript><p class=\"note warn\">Highlighting needs scripts, which are disabled here.</p></noscript>\
         <div class=\"controls\"><label>Decoder layer <select id=\"align-layer\" autocomplete=\"off\">"
            .to_string();
    for layer in 0..page.explanation.cross_means.len() {
        let selected = if layer == usual { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{layer}\"{selected}>{layer}</option>");
    }
    html.push_str("</select></label></div>");
    html.push_str(&sentence("Source", "source", &page.words.source));
    html.push_str(&sentence("Translation", "target", &page.words.written));
    html.push_str("<p id=\"word-says\" aria-live=\"polite\">&nbsp;</p>");
    html
}

fn sentence(name: &str, side: &str, words: &[Word]) -> String {
    let mut html = format!(
        "<h3 id=\"{side}-name\">{name}</h3><div class=\"sentence\" id=\"{side}-words\" role=\"group\" aria-labelledby=\"{side}-name\" dir=\"auto\">"
    );
    for (index, word) in words.iter().enumerate() {
        let class = if word.is_special { "word special" } else { "word" };
        let _ = write!(
            html,
            "<button type=\"button\" class=\"{class}\" data-side=\"{side}\" data-word=\"{index}\" aria-pressed=\"false\">{}</button>",
            escape(&word.text)
        );
    }
    html.push_str("</div>");
    html
}

/// Lines between words.
pub fn alignment(page: &SentencePage) -> String {
    let (usual, layers) = (page.usual_layer(), page.explanation.cross_means.len());
    let why = match layers - usual {
        _ if layers == 1 => "It uses the only decoder layer.".to_string(),
        1 => format!(
            "It uses the last layer, {usual}, unless another one is chosen above: in shallow models it aligns best."
        ),
        _ => format!(
            "It uses layer {usual} unless another one is chosen above: in models of six layers the last but one aligns best."
        ),
    };
    format!(
        "<p>The model was not trained on alignments. Each word of the translation is linked to the word of the source with the largest \
         cross-attention weight (mean over heads, summed over the tokens of a word, without end tokens). {why}</p>\
         <p class=\"note\">The alignment is approximate: a word may come from several words or from none, and attention to a word does \
         not prove that it was translated here.</p><div class=\"lines\">{}</div>\
         <p class=\"source\">Garg et al., “Jointly learning to align and translate with Transformer models”, 2019.</p>",
        drawings::alignment(page.words, usual)
    )
}

/// The large map with its controls, and all heads.
pub fn attention(page: &SentencePage, with_heads: bool) -> String {
    let explanation = page.explanation;
    let (source, written) = (&page.words.source, &page.words.written);
    let rows = source.len().max(written.len());
    let names = source.iter().chain(written).map(|word| word.text.as_str());
    let mut html = format!(
        "<p>Rows are queries, columns are keys; a row sums to 100 %. In the <em>encoder</em> the words of the source attend to each other. In \
         the <em>decoder</em> a row is the word that is generated next; it attends only to the words before it, and cells without \
         colour are masked. In <em>cross-attention</em> the decoder attends to the source.</p>\
         <noscript>{}</noscript>\
         <div class=\"needs-script\"><div class=\"controls\"><label>Attention <select id=\"kind\" autocomplete=\"off\">",
        drawings::heat_map(page.words, page.usual_layer())
    );
    let kinds = [
        ("cross", "cross: translation to source", explanation.cross.is_empty()),
        ("encoder", "encoder: source to itself", explanation.encoder.is_empty()),
        ("decoder", "decoder: translation to itself", explanation.decoder.is_empty()),
    ];
    for (kind, name, _) in kinds.iter().filter(|kind| !kind.2) {
        let _ = write!(html, "<option value=\"{kind}\">{name}</option>");
    }
    html.push_str(
        "</select></label><label>Layer <select id=\"layer\" autocomplete=\"off\"></select></label>\
         <label>Head <select id=\"head\" autocomplete=\"off\"><option value=\"-1\">mean over heads</option>",
    );
    let heads = explanation.cross.first().or(explanation.encoder.first()).map(|layer| layer.heads.as_slice());
    let heads: Vec<(usize, usize)> = heads.unwrap_or_default().iter().copied().enumerate().collect();
    if with_heads {
        for (place, head) in &heads {
            let _ = write!(html, "<option value=\"{place}\">head {head}</option>");
        }
    }
    let _ = write!(
        html,
        "</select></label><label><input type=\"checkbox\" id=\"whole\" checked autocomplete=\"off\"> whole words</label>\
         <label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale: shows weak weights</label></div>{}",
        token_map::board(names, rows, "Attention between words")
    );
    if with_heads {
        html.push_str("<h3>All heads of <span id=\"heads-of\">the layer</span></h3><div class=\"strip\" id=\"heads\">");
        let mean = (-1, "mean".to_string());
        let each = heads.iter().map(|(place, head)| (*place as isize, format!("head {head}")));
        for (place, name) in std::iter::once(mean).chain(each) {
            let _ = write!(
                html,
                "<button type=\"button\" class=\"cell\" data-head=\"{place}\"><canvas width=\"1\" height=\"1\" aria-hidden=\"true\"></canvas>{name}</button>"
            );
        }
        html.push_str("</div><p class=\"note\">Each map has its own scale, from 0 to its largest weight. Choose one to see it large.</p>");
    } else {
        html.push_str(
            "<p class=\"note warn\">To stay small, this page holds only the mean over heads. Choose fewer layers and heads to include them, as in \
             <code>--layers last --heads 0-2</code>, or get all weights with <code>--arrays</code>.</p>",
        );
    }
    html.push_str(
        "</div><p class=\"source\">Vaswani et al., “Attention is all you need”, 2017, section 3.2 and the figures of its appendix.</p>",
    );
    html
}

/// One bar per token.
pub fn sure(page: &SentencePage) -> String {
    let explanation = page.explanation;
    let piece = |token: u32| page.pieces.shown(Side::Target, token);
    let mut bars = Bars::new("Probability of each token").full(1.0);
    let mut others = String::new();
    let mut log_probability = 0.0;
    let rows = explanation.written.iter().zip(&explanation.probabilities).zip(&explanation.likeliest);
    for ((&token, &probability), &(best, of_best)) in rows {
        let (name, percent) = (piece(token), |share: f32| format!("{:.1} %", 100.0 * share));
        bars = bars.bar(&name, f64::from(probability), &percent(probability));
        log_probability += f64::from(probability).max(f64::MIN_POSITIVE).ln();
        if best != token {
            let _ = write!(
                others,
                "<tr><td><bdi>{}</bdi></td><td class=\"number\">{}</td><td><bdi>{}</bdi></td><td class=\"number\">{}</td></tr>",
                escape(&name),
                percent(probability),
                escape(&piece(best)),
                percent(of_best)
            );
        }
    }
    let pieces = explanation.written.len() as f64;
    let mut html = format!(
        "<p>The probability of each token given those before it, including the end token; ▁ is a space. The log-probability of the \
         translation is {log_probability:.2}, its perplexity {:.2} per token.</p>{}",
        (-log_probability / pieces).exp(),
        bars.svg()
    );
    if !others.is_empty() {
        let _ = write!(
            html,
            "<h3>Where another token is more probable</h3><div class=\"scroll\"><table><tr><th>token</th><th class=\"number\">probability</th>\
             <th>most probable</th><th class=\"number\">probability</th></tr>{others}</table></div>"
        );
    }
    html
}
