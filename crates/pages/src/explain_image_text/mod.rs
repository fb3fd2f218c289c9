//! The page of one picture in a model of images and texts: how near it is to each caption, where it supports a caption and each of its words,
//! and the similarity of all pictures and captions.

use vitreous_data::image::{Image, ImageError};
use vitreous_models::Size;

use crate::chart::{Cell, Matrix};
use crate::explain::maps::{Scale, enlarged, overlay};
use crate::{Document, colour, escape, format, image};

/// The kind of this page.
pub const KIND: &str = "explain-image-text";
const STYLE: &str = include_str!("explain_image_text.css");

/// What the page of one picture shows.
#[derive(Clone, Debug)]
pub struct ImageTextPage<'a> {
    /// The picture's file.
    pub path: &'a str,
    /// The model.
    pub model: &'a str,
    /// What the model sees of the picture.
    pub seen: &'a Image,
    /// Rows and columns of patches.
    pub grid: Size,
    /// The captions, in their order.
    pub captions: &'a [CaptionShown],
    /// Whether a score is of one caption alone, and not a share of all.
    pub is_sigmoid: bool,
    /// The names of all pictures, and the cosine of each with each caption.
    pub similarity: &'a [(String, Vec<f64>)],
}

/// A caption, and what of it and of the picture belongs together.
#[derive(Clone, Debug)]
pub struct CaptionShown {
    /// The text.
    pub text: String,
    /// Its cosine with the picture.
    pub cosine: f64,
    /// Its score.
    pub score: f64,
    /// How much each patch speaks for it.
    pub patches: Vec<f32>,
    /// Its tokens, with how much each speaks for the picture.
    pub tokens: Vec<(String, f32)>,
    /// Its words.
    pub words: Vec<WordShown>,
}

/// A word of a caption.
#[derive(Clone, Debug)]
pub struct WordShown {
    /// The word.
    pub word: String,
    /// How much the cosine falls without it.
    pub effect: f64,
    /// How much each patch speaks for the difference that it makes.
    pub patches: Vec<f32>,
}

/// The page.
pub fn page(page: &ImageTextPage) -> Result<String, ImageError> {
    let mut document = Document::new(&format!("A picture and words: {}", format::title(page.path)));
    document.kind(KIND).lead(&lead(page)?).style(&colour::scale_style()).style(STYLE);
    document.section("scores", "How near the captions are", &scores(page));
    document.section("words", "Where the picture supports the words", &captions(page)?);
    document.section("similarity", "Similarity of pictures and captions", &similarity(page));
    Ok(document.finish())
}

fn lead(page: &ImageTextPage) -> Result<String, ImageError> {
    let fact = |name: &str, html: &str| format!("<dt>{name}</dt><dd>{html}</dd>");
    let facts = [
        fact("Picture", &format!("<bdi>{}</bdi>", escape(page.path))),
        fact("Model", &format!("<span class=\"mono\">{}</span>", escape(page.model))),
        fact("Patches", &format!("{} \u{d7} {}", page.grid.height, page.grid.width)),
    ];
    let picture = image(&enlarged(page.seen)?, "What the model sees of the picture", "seen pixels")?;
    Ok(format!(
        "<p>A model of images and texts has a tower for each; both give a vector of length 1, and the cosine of the two says how well they fit. \
         Relevance goes through each tower by itself, with the other's vector as the gradient (Chefer, Gur and Wolf, 2021).</p>\
         <div class=\"columns\">{picture}<dl class=\"facts\">{}</dl></div>",
        facts.concat()
    ))
}

fn scores(page: &ImageTextPage) -> String {
    let rows: String = page
        .captions
        .iter()
        .map(|caption| {
            format!(
                "<tr><td><bdi>{}</bdi></td><td class=\"number\">{:.4}</td><td class=\"number\">{:.1} %</td></tr>",
                escape(&caption.text),
                caption.cosine,
                100.0 * caption.score
            )
        })
        .collect();
    let note = match page.is_sigmoid {
        true => "Each caption is judged by itself: the sigmoid of its scaled cosine.",
        false => "Scores are the softmax of the scaled cosines over these captions.",
    };
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>Caption</th><th class=\"number\">Cosine</th><th class=\"number\">Score</th></tr></thead>\
         <tbody>{rows}</tbody></table></div><p class=\"note\">{note}</p>"
    )
}

fn captions(page: &ImageTextPage) -> Result<String, ImageError> {
    let large = enlarged(page.seen)?;
    let map = |patches: &[f32], alternative: &str| -> Result<String, ImageError> {
        let drawn = overlay(&large, page.grid, patches, Scale { low: 0.0, ..Scale::of(patches) })?;
        image(&drawn, alternative, "map")
    };
    let mut html = String::from(
        "<p>Bright patches speak for the caption. Under it, the tokens that speak for the picture are tinted; then, for every word, what of \
         the picture supports that the word is there: the gradient is the difference that the word makes to the caption's vector. The number \
         is how much the cosine falls without the word.</p>",
    );
    for caption in page.captions {
        let text = escape(&caption.text);
        let whole = map(&caption.patches, &format!("Patches that speak for: {}", caption.text))?;
        let most = caption.tokens.iter().map(|token| token.1).fold(0.0_f32, f32::max).max(1e-12);
        let tokens: String = caption
            .tokens
            .iter()
            .map(|(token, relevance)| {
                let ground = colour::sequential((relevance / most).clamp(0.0, 1.0));
                let (ground, ink) = (colour::hex(ground), colour::text_on(ground));
                format!(
                    "<span class=\"tint\" style=\"background:{ground};color:{ink}\" title=\"{relevance:.4}\">{}</span>",
                    escape(token)
                )
            })
            .collect();
        let mut words = String::new();
        for word in &caption.words {
            let drawn = map(&word.patches, &format!("Patches that support the word {}", word.word))?;
            words.push_str(&format!(
                "<figure>{drawn}<figcaption><bdi>{}</bdi> <span class=\"mono\">{:+.4}</span></figcaption></figure>",
                escape(&word.word),
                word.effect
            ));
        }
        html.push_str(&format!(
            "<h3><bdi>{text}</bdi></h3><div class=\"caption\"><figure>{whole}<figcaption>the whole caption, cosine {:.4}</figcaption></figure>\
             <div><p class=\"tokens\">{tokens}</p><div class=\"tiles\">{words}</div></div></div>",
            caption.cosine
        ));
    }
    Ok(html)
}

fn similarity(page: &ImageTextPage) -> String {
    let all = page.similarity.iter().flat_map(|(_, cosines)| cosines.iter().copied());
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), c| (low.min(c), high.max(c)));
    let share = |cosine: f64| if high > low { ((cosine - low) / (high - low)) as f32 } else { 0.5 };
    let names: Vec<String> = page.captions.iter().map(|caption| format::shortened(&caption.text, 28)).collect();
    let mut matrix = Matrix::new("Cosines of pictures and captions")
        .describe("Rows are pictures, columns are captions; the brighter, the nearer.")
        .axes("picture", "caption")
        .scale(&format!("{low:.3}"), &format!("{high:.3}"))
        .flat()
        .columns(&names);
    for (name, cosines) in page.similarity {
        let cell = |(&cosine, caption): (&f64, &CaptionShown)| {
            let note = format!("{name} and {}: {cosine:.4}", caption.text);
            Cell::new(share(cosine)).text(&format!("{cosine:.3}")).note(&note)
        };
        let cells = cosines.iter().zip(page.captions).map(cell).collect();
        matrix = matrix.row(&format::shortened(name, 24), cells);
    }
    format!("<div class=\"scroll\">{}</div>", matrix.svg())
}
