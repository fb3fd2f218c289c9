//! The sections of the page, each with what it shows and how to read it.

use std::fmt::Write;

use crate::chart::{Bars, text_width};
use crate::escape;
use vitreous_data::text::Word;

use super::{SentencePage, drawings, piece};
use crate::format;

/// Height and width of a cell of the large map, in pixels. The style has the same.
const CELL: usize = 22;
/// The size of the names on its axes, and the most room for them.
const NAME_TEXT: f64 = 13.0;
const MOST_NAME: f64 = 140.0;
/// So many rows of the large map are seen at once.
const MOST_ROWS: usize = 26;

pub fn lead(page: &SentencePage) -> String {
    let whose = if page.is_given { "Translation, as it was given" } else { "Translation, by the model" };
    let tokens = |count: usize| format::count(count, "token", "tokens");
    format!(
        "<p>What a Transformer makes of one sentence. Its encoder reads the source in {}; its decoder writes the translation piece by \
         piece in {}, looking at what it has written and at the source. Every layer has {}. Layers and heads count from 0.</p>\
         <dl class=\"facts\"><dt>Source</dt><dd><bdi>{}</bdi></dd><dt>{whose}</dt><dd><bdi>{}</bdi></dd>\
         <dt>Tokens</dt><dd>{} of the source, {} of the translation, each with its end</dd>\
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

/// Both sentences as words that light up.
pub fn translation(page: &SentencePage) -> String {
    let usual = page.usual_layer();
    let mut html =
        "<p>Point at a word, tap it, or go to it by keyboard. Of a word of the translation, the words of the source light up that the \
         decoder looked at while it wrote it; of a word of the source, the words that were written with a look at it. \
         The stronger the colour, the more attention.</p>\
         <noscript><p class=\"note warn\">Words light up and maps change by a script, which does not run here.</p></noscript>\
         <div class=\"controls\"><label>Layer of the decoder <select id=\"align-layer\" autocomplete=\"off\">"
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
        _ if layers == 1 => "It is of the only layer of the decoder.".to_string(),
        1 => format!(
            "It is of the last layer, {usual}, unless you choose another one above: in shallow models that aligns best."
        ),
        _ => format!(
            "It is of layer {usual} unless you choose another one above: in models of six layers the last but one was found to align best."
        ),
    };
    format!(
        "<p>Nobody taught the model which words belong together. Here each word of the translation has a line to the word of the source \
         that got most of the attention while it was written (mean over heads; the end is left out; a word has the sum over its pieces). \
         {why}</p><p class=\"note\">The line is a guess: a word may come from several words or from none, and attention to a word is no \
         proof that it was translated here.</p><div class=\"lines\">{}</div>\
         <p class=\"source\">Garg et al., “Jointly learning to align and translate with Transformer models”, 2019.</p>",
        drawings::alignment(page.words, usual)
    )
}

/// The large map with its controls, and all heads.
pub fn attention(page: &SentencePage, with_heads: bool) -> String {
    let explanation = page.explanation;
    let (source, written) = (&page.words.source, &page.words.written);
    let rows = source.len().max(written.len()).min(MOST_ROWS);
    let names = source.iter().chain(written).map(|word| text_width(&word.text, NAME_TEXT));
    let names = names.fold(60.0, f64::max).min(MOST_NAME) as usize + 10;
    let mut html = format!(
        "<p>A row is a word that looks, a column a word that is looked at; a row sums to 100 %. In the <em>encoder</em> words of the source \
         look at each other. In the <em>decoder</em> a row is the word that is written next, and it sees only what stands before it: places \
         without colour are hidden from it. <em>Cross-attention</em> is the decoder's look at the source.</p>\
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
         <label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale, to see what is weak</label></div>\
         <div class=\"legend\"><span>0 %</span><span class=\"scale\"></span><output id=\"high\">100 %</output></div>\
         <p id=\"says\">&nbsp;</p><p id=\"readout\" aria-live=\"polite\">&nbsp;</p>\
         <div class=\"board\" style=\"--names:{names}px;height:{}px\"><div class=\"corner\"></div><div class=\"across\" id=\"across\" aria-hidden=\"true\"></div>\
         <div class=\"down\" id=\"down\" aria-hidden=\"true\"></div>\
         <div class=\"stage\"><canvas id=\"map\" width=\"1\" height=\"1\" tabindex=\"0\" role=\"img\" aria-label=\"Attention between words\"></canvas>\
         <div id=\"marker\" hidden></div></div></div>",
        names + CELL * rows + 18
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
        html.push_str("</div><p class=\"note\">Each has a scale of its own, from 0 to its largest weight. Choose one to see it large.</p>");
    } else {
        html.push_str(
            "<p class=\"note warn\">To stay small, this page holds the mean over heads alone. Ask for fewer layers and heads to see them, as in \
             <code>--layers last --heads 0-2</code>, or for all numbers with <code>--arrays</code>.</p>",
        );
    }
    html.push_str(
        "</div><p class=\"source\">Vaswani et al., “Attention is all you need”, 2017, section 3.2 and the figures of its appendix.</p>",
    );
    html
}

/// A bar for each piece.
pub fn sure(page: &SentencePage) -> String {
    let explanation = page.explanation;
    let tokeniser = &page.tokenisers.target;
    let mut bars = Bars::new("Probability of each piece").full(1.0);
    let mut others = String::new();
    let mut log_probability = 0.0;
    let rows = explanation.written.iter().zip(&explanation.probabilities).zip(&explanation.likeliest);
    for ((&token, &probability), &(best, of_best)) in rows {
        let (name, percent) = (piece(tokeniser, token), |share: f32| format!("{:.1} %", 100.0 * share));
        bars = bars.bar(&name, f64::from(probability), &percent(probability));
        log_probability += f64::from(probability).max(f64::MIN_POSITIVE).ln();
        if best != token {
            let _ = write!(
                others,
                "<tr><td><bdi>{}</bdi></td><td class=\"number\">{}</td><td><bdi>{}</bdi></td><td class=\"number\">{}</td></tr>",
                escape(&name),
                percent(probability),
                escape(&piece(tokeniser, best)),
                percent(of_best)
            );
        }
    }
    let pieces = explanation.written.len() as f64;
    let mut html = format!(
        "<p>How likely each piece was to the model when all pieces before it were given, the end too; ▁ is a space. All together: \
         e<sup>{log_probability:.2}</sup>, a perplexity of {:.2} a piece (as if it had chosen among so many equally likely ones).</p>{}",
        (-log_probability / pieces).exp(),
        bars.svg()
    );
    if !others.is_empty() {
        let _ = write!(
            html,
            "<h3>Where it would have written something else</h3><div class=\"scroll\"><table><tr><th>piece</th><th class=\"number\">probability</th>\
             <th>likeliest</th><th class=\"number\">probability</th></tr>{others}</table></div>"
        );
    }
    html
}
