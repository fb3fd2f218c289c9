//! `vitreous explain MODEL AUDIO..` of speech models: the spectrogram of a recording and where the decoder listened for each word.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_engine::Precision;
use vitreous_pages::explain_speech::KIND;
use vitreous_pages::explained::speech::{html, object};
use vitreous_pages::{format, write};
use vitreous_runtime::described;
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, Transcriber};

use super::Explain;
use super::files::{self, PAGE};
use super::names::Names;
use crate::failure::Failure;

/// Explains all recordings.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    check_options(explain)?;
    let model = explain.interventions.apply(SpeechModel::open(&explain.model)?)?;
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
        let html = html(&shown, &explain.model.to_string_lossy(), &model, &transcript, &heard)?;
        write::write_page(&file, &html)?;
        pages += 1;
        let page = file.to_string_lossy();
        match explain.json {
            true => {
                let mut object = object(&model, &transcript, &heard);
                object["path"] = json!(shown);
                object["page"] = json!(page);
                writeln!(out, "{object}")?;
            }
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
        ("--patch-from", explain.patch_from.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::input(anyhow!("{option} cannot be used with a speech recognition model"))),
        None => Ok(()),
    }
}
