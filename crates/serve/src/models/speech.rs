//! Models that write down what is said in a recording. [`Transcribe`] is what the endpoint needs of one.

use std::path::Path;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use vitreous_data::audio::{AudioSource, Spectrogram};
use vitreous_runtime::Error;
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, SpeechTask, Transcriber, Transcript};

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

impl Recording {
    /// What the model reads of it.
    pub fn spectrogram(&self, bins: usize) -> Result<Spectrogram, WorkError> {
        let source = AudioSource::Bytes(Arc::from(&self.bytes[..]));
        let opened = Spectrogram::open_within(&source, bins, self.most_seconds);
        opened.map_err(|error| WorkError::Input(format!("the recording: {error}")))
    }
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

/// A transcript that is on its way. Whoever drops it does not wait for it any more.
pub type Transcribing<'t> = BoxFuture<'t, Result<Transcript, WorkError>>;

/// A model that writes down what is said.
pub trait Transcribe: Send + Sync {
    /// What is said in a recording.
    fn transcribe(&self, recording: Recording, options: TranscribeOptions) -> Transcribing<'_>;
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
        self.0.transcribe(recording, options).await
    }
}

/// A recording, and how it is transcribed.
struct Job {
    recording: Recording,
    options: TranscribeOptions,
    /// Gone when nobody waits for the transcript any more.
    asker: Weak<()>,
}

/// A thread that transcribes recordings of one moment together.
struct Worker(Collector<Job, Result<Transcript, WorkError>>);

impl Transcribe for Worker {
    fn transcribe(&self, recording: Recording, options: TranscribeOptions) -> Transcribing<'_> {
        Box::pin(async move {
            let asker = Arc::new(());
            let job = Job { recording, options, asker: Arc::downgrade(&asker) };
            let transcript = self.0.ask(job, self.0.arrive()).await;
            drop(asker);
            transcript?
        })
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
        let alike = jobs.iter().all(|job| job.options == jobs[0].options);
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
    /// Transcribes recordings with the options of the first, until it is done or nobody waits for any of them.
    fn transcribe(&mut self, jobs: &[Job]) -> Result<Vec<Transcript>, WorkError> {
        let still_asked = || match jobs.iter().any(|job| job.asker.strong_count() > 0) {
            true => Ok(()),
            false => Err(Error::input("nobody waits for the transcript any more")),
        };
        still_asked()?;
        let bins = self.0.model().input.bins;
        let recordings = jobs.iter().map(|job| job.recording.spectrogram(bins)).collect::<Result<_, WorkError>>()?;
        let settings = SpeechSettings { batch: jobs.len(), ..jobs[0].options.settings() };
        // A window of 30 s takes long enough to ask after each.
        Ok(self.0.transcribe_all(recordings, &settings, &mut |_| still_asked())?)
    }
}
