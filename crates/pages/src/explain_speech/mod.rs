//! The page of one recording in a speech model: its spectrogram and, under it, one row for each word with where the decoder listened
//! while it wrote the word.

mod timeline;

use vitreous_data::image::ImageError;

use crate::{Document, escape, format};

/// The kind of this page.
pub const KIND: &str = "explain-speech";
const STYLE: &str = include_str!("explain_speech.css");

/// What the page of one recording shows.
#[derive(Clone, Debug)]
pub struct SpeechPage<'a> {
    /// The recording's file.
    pub path: &'a str,
    /// The model.
    pub model: &'a str,
    /// The name of the language.
    pub language: &'a str,
    /// The length of the recording.
    pub seconds: f64,
    /// Layer and head of the attention that is shown.
    pub heads: &'a [(usize, usize)],
    /// Mel bins of a frame.
    pub bins: usize,
    /// The windows that are shown.
    pub windows: &'a [WindowShown],
    /// How many there are.
    pub window_count: usize,
}

/// A window of a recording.
#[derive(Clone, Debug)]
pub struct WindowShown {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Its log-mel spectrogram: `[frames, bins]`, 100 frames per second.
    pub mel: Vec<f32>,
    /// Its words.
    pub words: Vec<SpokenWord>,
}

/// A word of a window.
#[derive(Clone, Debug)]
pub struct SpokenWord {
    /// The word.
    pub text: String,
    /// Where it begins, in seconds of the recording.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// The mean probability of its tokens.
    pub probability: f64,
    /// Where the decoder listened: 50 values per second of the window.
    pub attention: Vec<f32>,
}

/// The page.
pub fn page(page: &SpeechPage) -> Result<String, ImageError> {
    let mut document = Document::new(&format!("Speech and words: {}", format::title(page.path)));
    document.kind(KIND).lead(&lead(page)).style(STYLE);
    document.section("text", "What was written", &text(page));
    let mut listened = String::from(
        "<p>Above, the log-mel spectrogram: time goes to the right, low frequencies are at the bottom, and bright is loud. Below, a row for \
         each word: the brighter, the more the decoder listened there while it wrote the word, relative to the row's largest value. The \
         outline is when the word is said, as dynamic time warping finds it.</p>",
    );
    for window in page.windows {
        listened.push_str(&timeline::drawing(window, page.bins)?);
    }
    if page.windows.is_empty() {
        listened.push_str("<p>No words were heard.</p>");
    }
    if page.window_count > page.windows.len() {
        listened.push_str(&format!(
            "<p class=\"note\">The first {} of {} windows are shown.</p>",
            page.windows.len(),
            page.window_count
        ));
    }
    document.section("listening", "Where the decoder listened", &listened);
    Ok(document.finish())
}

fn lead(page: &SpeechPage) -> String {
    let fact = |name: &str, html: &str| format!("<dt>{name}</dt><dd>{html}</dd>");
    let heads: Vec<String> = page.heads.iter().map(|(layer, head)| format!("{layer}.{head}")).collect();
    let facts = [
        fact("Recording", &format!("<bdi>{}</bdi>, {:.1} s", escape(page.path), page.seconds)),
        fact("Model", &format!("<span class=\"mono\">{}</span>", escape(page.model))),
        fact("Language", &escape(&capitalised(page.language))),
        fact("Heads", &format!("layer and head: {}", heads.join(", "))),
    ];
    format!(
        "<p>The decoder of a speech model writes a token at a time, and looks at the encoded audio through the heads of its cross attention. \
         The mean of the heads that follow the audio is shown.</p><dl class=\"facts\">{}</dl>",
        facts.concat()
    )
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn text(page: &SpeechPage) -> String {
    let words: String = page
        .windows
        .iter()
        .flat_map(|window| &window.words)
        .map(|word| {
            // At most half of the colour, on which ink is still read well.
            let doubt = 50.0 * (1.0 - word.probability).clamp(0.0, 1.0);
            format!(
                "<span class=\"word\"><span class=\"tint\" style=\"--doubt:{doubt:.0}%\"><bdi>{}</bdi></span>\
                 <span class=\"when\">{:.2}\u{2013}{:.2} s</span><span class=\"when\">{:.0} %</span></span>",
                escape(word.text.trim()),
                word.start,
                word.end,
                100.0 * word.probability
            )
        })
        .collect();
    format!(
        "<p>Under each word, when it is said, and how likely the model found it; the less likely, the stronger its tint.</p>\
         <div class=\"words\">{words}</div>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_row_and_names_stay_names() {
        let word = |text: &str, start: f64| SpokenWord {
            text: text.to_string(),
            start,
            end: start + 0.2,
            probability: 0.75,
            attention: (0..50).map(|place| if place == 10 { 1.0 } else { 0.0 }).collect(),
        };
        let window = WindowShown {
            start: 30.0,
            mel: (0..800).map(|place| (place % 7) as f32 / 7.0).collect(),
            words: vec![word(" <b>Hello</b>", 30.1), word(" world.", 30.4)],
        };
        let windows = [window];
        let shown = SpeechPage {
            path: "<i>talk</i>.wav",
            model: "tiny",
            language: "english",
            seconds: 31.0,
            heads: &[(1, 2)],
            bins: 8,
            windows: &windows,
            window_count: 3,
        };
        let html = page(&shown).expect("a page");
        assert!(html.contains("&lt;b&gt;Hello&lt;/b&gt;") && !html.contains("<b>") && !html.contains("<i>"));
        assert!(html.contains("30.40\u{2013}30.60 s") && html.contains("75 %"));
        assert!(html.contains("The first 1 of 3 windows are shown."));
        // The spectrogram and the rows of the words.
        assert_eq!(html.matches("<image ").count(), 2);
        let empty = SpeechPage { windows: &[], window_count: 0, ..shown };
        assert!(page(&empty).expect("a page").contains("No words were heard."));
    }
}
