//! `vitreous eval` of a speech model: recordings and transcripts in, word and character error rates out.

use std::io::Write;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_data::audio::read_transcripts;
use vitreous_pages::format;
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, Transcriber};
use vitreous_train::measures::{Edits, character_edits, spoken, word_edits};

use super::{Eval, progress_bar, spread};
use crate::failure::Failure;

/// How many transcripts are shown.
const SHOWN: usize = 3;

impl Eval {
    pub(super) fn evaluate_speech(&self) -> Result<(), Failure> {
        let others = [("--batch", self.batch.is_some()), ("--heads", self.heads.is_some()), ("--all", self.all)];
        self.refuse(&others, "is for images, but this is a speech recognition model")?;
        let Some(list) = &self.data else {
            let what = "give --data FILE: a CSV, TSV or JSON lines file with the columns `path` and `text`";
            return Err(Failure::input(anyhow!(what)));
        };
        let recordings =
            read_transcripts(list).map_err(|error| Failure::input(anyhow!("{}: {error}", list.display())))?;
        let chosen: Vec<_> =
            spread(recordings.len(), self.limit).into_iter().map(|place| recordings[place].clone()).collect();
        let model = SpeechModel::open(&self.model)?;
        let device = self.compute.device()?;
        let mut transcriber = Transcriber::new(&model, self.compute.precision(), &device)?;
        let settings = SpeechSettings {
            language: self.from.clone(),
            beam: self.beam.unwrap_or(1),
            length_penalty: self.length_penalty,
            ..SpeechSettings::default()
        };
        let start = Instant::now();
        let progress = progress_bar(chosen.len(), "recordings");
        let (mut words, mut characters, mut plain) = (Edits::default(), Edits::default(), Edits::default());
        let (mut written, mut seconds_of_audio) = (Vec::new(), 0.0);
        for recording in &chosen {
            let transcript = transcriber.transcribe_file(&recording.path, &settings)?;
            let text = transcript.text.trim().to_string();
            words = words + word_edits(&recording.text, &text);
            characters = characters + character_edits(&recording.text, &text);
            plain = plain + word_edits(&spoken(&recording.text), &spoken(&text));
            seconds_of_audio += transcript.seconds;
            written.push(text);
            progress.inc(1);
        }
        progress.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let mut out = crate::say::stdout();
        if self.json {
            let object = json!({
                "model": self.model.display().to_string(),
                "data": list.display().to_string(),
                "recordings": chosen.len(),
                "audio_seconds": seconds_of_audio,
                "seconds": seconds,
                "wer": words.rate(),
                "cer": characters.rate(),
                "wer_without_case_and_punctuation": plain.rate(),
                "words": words.length,
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        let count = format::count(chosen.len(), "recording", "recordings");
        writeln!(out, "{}: {count}, {seconds_of_audio:.1} s of audio in {seconds:.1} s", list.display())?;
        let percent = |edits: Edits| 100.0 * edits.rate();
        writeln!(out, "word error rate       {:6.2} %   of {} words", percent(words), words.length)?;
        writeln!(out, "character error rate  {:6.2} %", percent(characters))?;
        writeln!(out, "without case and punctuation, word error rate {:.2} %\n", percent(plain))?;
        for place in spread(written.len(), Some(SHOWN)) {
            let short = |text: &str| format::one_line(&text.chars().take(200).collect::<String>());
            writeln!(out, "  {}", short(&written[place]))?;
            writeln!(out, "   = {}", short(&chosen[place].text))?;
        }
        Ok(())
    }
}
