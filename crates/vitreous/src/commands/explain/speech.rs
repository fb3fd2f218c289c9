//! `vitreous explain MODEL AUDIO..` of speech models: the spectrogram of a recording and where the decoder listened for each word.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use vitreous_engine::Precision;
use vitreous_pages::explain_speech::{KIND, SpeechPage, SpokenWord, WindowShown, page};
use vitreous_pages::{format, write};
use vitreous_runtime::described;
use vitreous_runtime::speech::{
    HeardWindow, HeardWord, POSITIONS_PER_SECOND, SpeechModel, SpeechSettings, Transcriber, Transcript, language_name,
};

use super::Explain;
use super::files::{self, PAGE};
use super::names::Names;
use crate::failure::Failure;

/// The most windows of a recording that are drawn: ten minutes.
const MOST_WINDOWS: usize = 20;

/// Explains all recordings.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    check_options(explain)?;
    let model = SpeechModel::open(&explain.model)?;
    model.model.notes.iter().for_each(|note| say!("note: {note}"));
    let threads = explain.threads.unwrap_or_else(vitreous_runtime::threads);
    let device = explain.device.open(threads)?;
    let mut transcriber = Transcriber::new(&model, Precision::F32, &device)?;
    let mut names = Names::default();
    let recordings = explain.paths.iter().map(PathBuf::from);
    let recordings: Vec<(PathBuf, PathBuf)> = recordings
        .map(|path| {
            let directory = explain.out.join(names.take(&path.to_string_lossy()));
            (path, directory)
        })
        .collect();
    files::create_folder(&explain.out)?;
    let mut out = BufWriter::new(crate::say::stdout());
    let (mut pages, mut failed) = (0, 0);
    for (path, directory) in &recordings {
        let shown = path.to_string_lossy();
        let explained = transcriber
            .open_file(path)
            .and_then(|recording| transcriber.explain(recording, &SpeechSettings::default()));
        let (transcript, heard) = match explained {
            Ok(explained) => explained,
            Err(error) if error.is_input() && recordings.len() > 1 => {
                complain!("error: {error}");
                failed += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(damage) = &transcript.damage {
            say!("note: {shown}: {damage}");
        }
        files::create_folder(directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let windows: Vec<WindowShown> = heard.iter().take(MOST_WINDOWS).map(window).collect();
        let html = page(&SpeechPage {
            path: &shown,
            model: &explain.model.to_string_lossy(),
            language: language_name(&transcript.language).unwrap_or(&transcript.language),
            seconds: transcript.seconds,
            heads: &model.alignment_heads,
            bins: model.input.bins,
            windows: &windows,
            window_count: heard.len(),
        });
        write::write_page(&file, &html.map_err(Failure::work)?)?;
        pages += 1;
        let page = file.to_string_lossy();
        match explain.json {
            true => writeln!(out, "{}", object(&shown, &page, &model, &transcript, &heard))?,
            false => writeln!(out, "{}\t{}", format::one_line(&page), format::one_line(transcript.text.trim()))?,
        }
        out.flush()?;
    }
    drop(out);
    say!(
        "{} in {:.1} s on {}; {} in {}",
        format::count(recordings.len(), "recording", "recordings"),
        start.elapsed().as_secs_f64(),
        described(&device),
        format::count(pages, "page", "pages"),
        explain.out.display()
    );
    if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Refuses what is for other models.
fn check_options(explain: &Explain) -> Result<(), Failure> {
    let model = explain.model.to_string_lossy();
    if explain.paths.is_empty() {
        return Err(Failure::input(anyhow!(
            "{model}: a speech recognition model is explained with a recording: vitreous explain {model} talk.wav"
        )));
    }
    let given = [
        ("--text", !explain.texts.is_empty()),
        ("--question", explain.question.is_some()),
        ("--class", !explain.classes.is_empty()),
        ("--top", explain.top.is_some()),
        ("--layers", explain.layers.is_some()),
        ("--heads", explain.heads.is_some()),
        ("--image", explain.image.is_some()),
        ("--head-count", explain.head_count.is_some()),
        ("--arrays", explain.arrays),
        ("--without, --scale or --clamp", !explain.interventions.described().is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::input(anyhow!("{option} cannot be used with a speech recognition model"))),
        None => Ok(()),
    }
}

fn window(heard: &HeardWindow) -> WindowShown {
    let word = |word: &HeardWord| SpokenWord {
        text: word.word.text.clone(),
        start: word.word.start,
        end: word.word.end,
        probability: word.word.probability,
        attention: word.attention.clone(),
    };
    WindowShown { start: heard.start, mel: heard.mel.clone(), words: heard.words.iter().map(word).collect() }
}

fn object(path: &str, page: &str, model: &SpeechModel, transcript: &Transcript, heard: &[HeardWindow]) -> Json {
    let window = |window: &HeardWindow| {
        let words: Vec<Json> = window
            .words
            .iter()
            .map(|heard| {
                let word = &heard.word;
                json!({
                    "word": word.text, "start": word.start, "end": word.end, "probability": word.probability,
                    "attention": heard.attention
                })
            })
            .collect();
        json!({"start": window.start, "frames": window.mel.len() / model.input.bins, "words": words})
    };
    json!({
        "path": path,
        "page": page,
        "text": transcript.text.trim(),
        "language": transcript.language,
        "seconds": transcript.seconds,
        "heads": model.alignment_heads,
        "positions_per_second": POSITIONS_PER_SECOND,
        "windows": heard.iter().map(window).collect::<Vec<_>>(),
    })
}
