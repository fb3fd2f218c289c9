//! Models that write down what is said in a recording. [`Transcribe`] is what the endpoint needs of one.

use std::path::Path;
use std::sync::Arc;

use vitreous_data::audio::{AudioSource, Spectrogram};
use vitreous_runtime::Error;
use vitreous_runtime::speech::{SpeechEvent, SpeechModel, SpeechSettings, SpeechTask, Transcriber, Transcript};

use super::Surroundings;
use crate::work::{BatchWork, Collector, WorkError};

/// Recordings that are transcribed at once.
const MOST_AT_ONCE: usize = 8;

/// A recording, in a file's bytes.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file.
    pub bytes: bytes::Bytes,
    /// The most seconds that are taken.
    pub most_seconds: f64,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscribeOptions {
    /// The language that is spoken, as in `en`; `None`: what the model hears.
    pub language: Option<String>,
    /// What was said before, or how words are to be written.
    pub prompt: Option<String>,
    /// The temperature of sampling; 0 takes the likeliest token, and raises it where the text is poor.
    pub temperature: f32,
    /// Whether the answer is in English, whatever is spoken.
    pub translate: bool,
    /// Whether each word has its time.
    pub words: bool,
}

impl TranscribeOptions {
    fn settings(&self) -> SpeechSettings {
        let usual = SpeechSettings::default();
        SpeechSettings {
            task: if self.translate { SpeechTask::Translate } else { SpeechTask::Transcribe },
            language: self.language.clone(),
            prompt: self.prompt.clone(),
            temperatures: if self.temperature > 0.0 { vec![self.temperature] } else { usual.temperatures.clone() },
            words: self.words,
            ..usual
        }
    }
}

/// A model that writes down what is said. It is called by threads that may wait; calls at the same time are allowed, and may wait for each
/// other.
pub trait Transcribe: Send + Sync {
    /// What is said in a recording.
    fn transcribe(&self, recording: &Recording, options: &TranscribeOptions) -> Result<Transcript, WorkError>;
}

/// A model of speech.
#[derive(Clone)]
pub struct Speech(pub Arc<dyn Transcribe>);

impl Speech {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<(Speech, Arc<SpeechModel>), Error> {
        let kept = Arc::new(SpeechModel::open(path)?);
        let (model, settings) = (kept.clone(), around.settings.clone());
        let recordings = Collector::start(around.collector(name, "transcribe", MOST_AT_ONCE), move |jobs| {
            jobs.work(|| Ok(SpeechWork(Transcriber::new(&model, settings.precision, &settings.device)?)));
        })?;
        Ok((Speech(Arc::new(Worker(recordings))), kept))
    }

    /// What is said in a recording.
    pub async fn transcribe(&self, recording: Recording, options: TranscribeOptions) -> Result<Transcript, WorkError> {
        let model = self.0.clone();
        let done = tokio::task::spawn_blocking(move || model.transcribe(&recording, &options));
        done.await.map_err(|error| WorkError::Failed(error.to_string()))?
    }
}

type Job = (Recording, TranscribeOptions);

/// A thread that transcribes recordings of one moment together.
struct Worker(Collector<Job, Result<Transcript, WorkError>>);

impl Transcribe for Worker {
    fn transcribe(&self, recording: &Recording, options: &TranscribeOptions) -> Result<Transcript, WorkError> {
        let arrival = self.0.arrive();
        let asked = self.0.ask((recording.clone(), options.clone()), arrival);
        tokio::runtime::Handle::current().block_on(asked)?
    }
}

struct SpeechWork<'m>(Transcriber<'m>);

impl BatchWork for SpeechWork<'_> {
    type Job = Job;
    type Answer = Result<Transcript, WorkError>;

    fn cost(_: &Job) -> usize {
        1
    }

    fn run(&mut self, jobs: &[Job]) -> Result<Vec<Self::Answer>, WorkError> {
        let alike = jobs.iter().all(|(_, options)| *options == jobs[0].1);
        if jobs.len() > 1
            && alike
            && let Ok(found) = self.transcribe(jobs)
        {
            return Ok(found.into_iter().map(Ok).collect());
        }
        // Others, or one of them is broken: each for itself.
        let one = |job: &Job| {
            let found = self.transcribe(std::slice::from_ref(job))?;
            found.into_iter().next().ok_or_else(|| WorkError::Failed("there is no transcript".to_string()))
        };
        Ok(jobs.iter().map(one).collect())
    }
}

impl SpeechWork<'_> {
    /// Transcribes recordings with the options of the first.
    fn transcribe(&mut self, jobs: &[Job]) -> Result<Vec<Transcript>, WorkError> {
        let bins = self.0.model().input.bins;
        let too_long = |most: f64| Error::input(format!("the recording is longer than {most} s"));
        let mut recordings = Vec::with_capacity(jobs.len());
        for (recording, _) in jobs {
            let source = AudioSource::Bytes(Arc::from(&recording.bytes[..]));
            let refused = |error| WorkError::Input(format!("the recording: {error}"));
            let spectrogram = Spectrogram::open(&source, bins).map_err(refused)?;
            if spectrogram.stated_seconds().is_some_and(|seconds| seconds > recording.most_seconds) {
                return Err(too_long(recording.most_seconds).into());
            }
            recordings.push(spectrogram);
        }
        let settings = SpeechSettings { batch: jobs.len(), ..jobs[0].1.settings() };
        // A file need not say how long it is.
        let mut event = |event: SpeechEvent| match event {
            SpeechEvent::Heard { recording, seconds, .. } if seconds > jobs[recording].0.most_seconds => {
                Err(too_long(jobs[recording].0.most_seconds))
            }
            SpeechEvent::Heard { .. } | SpeechEvent::Language { .. } | SpeechEvent::Segments { .. } => Ok(()),
        };
        Ok(self.0.transcribe_all(recordings, &settings, &mut event)?)
    }
}
