//! Writing texts with continuous batching: one thread per language model, which requests join and leave at any step.
//!
//! The scheduler is [`TextGenerator`], the same as the command's: prompts are read in chunks between steps, a text that ends or whose client
//! has left makes room at once, and prompts that begin alike share what was read.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};

use tokio::sync::mpsc::UnboundedSender;
use vitreous_engine::Device;
use vitreous_models::generate::{GenerateOptions, RequestId, Tally, TokenConstraint, WrittenToken};
use vitreous_runtime::language::{Continuation, LanguageModel, TextGenerator, TextOptions};

use super::{WorkError, panic_text};

/// A text to write.
pub struct WriteRequest {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// How it is written.
    pub options: TextOptions,
    /// Its number among texts of the same seed.
    pub sequence: u64,
    /// What it must obey.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// Where what is new goes. Once its other end is dropped, the text is not written any further. It holds at most as many events as the
    /// text has tokens, so that a client who reads slowly keeps nobody waiting.
    pub events: UnboundedSender<WriteEvent>,
}

/// What is new of a text.
#[derive(Clone, Debug)]
pub enum WriteEvent {
    /// A piece of text, and the token it came with. The piece may be empty.
    Piece(String, Option<WrittenToken>),
    /// The end. The last piece has come before.
    Finished(Continuation),
    /// There will be no more.
    Failed(WorkError),
}

/// How a writer is started.
pub struct WriterSettings {
    /// The name of its thread.
    pub name: String,
    /// Slots, context, precision.
    pub options: GenerateOptions,
    /// What it computes on.
    pub device: Device,
    /// Told what failed.
    pub complain: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Numbers of a writer for whoever watches it.
#[derive(Debug, Default)]
pub struct WriterGauges {
    /// Texts that are being written or wait for it.
    pub texts: AtomicUsize,
    /// Tokens of them in the cache.
    pub cached: AtomicUsize,
    /// Tokens that the cache has room for.
    pub room: AtomicUsize,
    /// Tokens of prompts that were read.
    pub prompt: AtomicU64,
    /// Tokens of prompts that were in the cache already.
    pub reused: AtomicU64,
    /// Tokens that were written.
    pub written: AtomicU64,
    /// Steps.
    pub steps: AtomicU64,
    /// How often a text was paused, because others needed its memory.
    pub paused: AtomicU64,
}

/// Sends texts to the thread. When all of them are gone, it ends after the last text.
#[derive(Clone)]
pub struct Writer {
    requests: mpsc::Sender<WriteRequest>,
    gauges: Arc<WriterGauges>,
}

impl Writer {
    /// Starts the thread; an error if the model cannot be made ready.
    pub fn start(model: Arc<LanguageModel>, settings: WriterSettings) -> Result<Writer, vitreous_runtime::Error> {
        let (send, receive) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let gauges = Arc::new(WriterGauges::default());
        let told = gauges.clone();
        let failed =
            |error: std::io::Error| vitreous_runtime::Error::input(format!("no thread can be started: {error}"));
        let thread = std::thread::Builder::new().name(settings.name.clone());
        let body =
            move || {
                let make = || {
                    let mut generator = TextGenerator::new(&model, settings.options, &settings.device)?;
                    generator.prepare()?;
                    Ok(generator)
                };
                let generator = match make() {
                    Ok(generator) => generator,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                told.room.store(generator.cache_room(), Ordering::Relaxed);
                let _ = ready.send(Ok(()));
                Writing { generator: Some(generator), texts: HashMap::new(), gauges: told, before: Tally::default() }
                    .work(&receive, make, settings.complain.as_ref());
            };
        thread.spawn(body).map_err(failed)?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Writer { requests: send, gauges }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(vitreous_runtime::Error::input("the model's worker ended before it was ready")),
        }
    }

    /// Adds a text.
    pub fn write(&self, request: WriteRequest) -> Result<(), WorkError> {
        self.requests.send(request).map_err(|_| WorkError::Failed("the worker has ended".to_string()))
    }

    /// Its numbers.
    pub fn gauges(&self) -> &WriterGauges {
        &self.gauges
    }
}

/// The thread's state.
struct Writing<'m> {
    /// `None` after a failure, until it can be made again.
    generator: Option<TextGenerator<'m>>,
    texts: HashMap<RequestId, UnboundedSender<WriteEvent>>,
    gauges: Arc<WriterGauges>,
    /// What this generator had done when it was last told.
    before: Tally,
}

impl<'m> Writing<'m> {
    fn work(
        mut self,
        requests: &Receiver<WriteRequest>,
        make: impl Fn() -> Result<TextGenerator<'m>, vitreous_runtime::Error>,
        complain: &dyn Fn(&str),
    ) {
        loop {
            if self.texts.is_empty() {
                match requests.recv() {
                    Ok(request) => self.add(request, &make, complain),
                    Err(_) => return,
                }
            }
            while let Ok(request) = requests.try_recv() {
                self.add(request, &make, complain);
            }
            self.let_go();
            if let Err(why) = self.advance() {
                complain(&why);
                self.fail(&why);
            }
            self.tell();
        }
    }

    fn add(
        &mut self,
        request: WriteRequest,
        make: &impl Fn() -> Result<TextGenerator<'m>, vitreous_runtime::Error>,
        complain: &dyn Fn(&str),
    ) {
        let WriteRequest { prompt, options, sequence, constraint, events } = request;
        if self.generator.is_none() {
            self.generator = make().map_err(|error| complain(&error.to_string())).ok();
            self.before = Tally::default();
        }
        let Some(generator) = &mut self.generator else {
            let why = "the model could not be made ready again".to_string();
            return drop(events.send(WriteEvent::Failed(WorkError::Failed(why))));
        };
        match generator.add(prompt, &options, sequence, constraint) {
            Ok(id) => drop(self.texts.insert(id, events)),
            Err(error) => drop(events.send(WriteEvent::Failed(error.into()))),
        }
    }

    /// Frees the places of those who have left.
    fn let_go(&mut self) {
        let left = self.texts.iter().filter(|(_, events)| events.is_closed()).map(|(id, _)| *id);
        for id in left.collect::<Vec<RequestId>>() {
            self.texts.remove(&id);
            if let Some(generator) = &mut self.generator {
                generator.end(id);
            }
        }
    }

    /// One step of all texts.
    fn advance(&mut self) -> Result<(), String> {
        let Some(generator) = &mut self.generator else { return Ok(()) };
        let updates = catch_unwind(AssertUnwindSafe(|| generator.advance()));
        let updates = updates.map_err(|panic| panic_text(panic.as_ref()))?.map_err(|error| error.to_string())?;
        for update in updates {
            let Some(events) = self.texts.get(&update.id) else { continue };
            // Whoever has left is found at the next step.
            let _ = events.send(WriteEvent::Piece(update.piece, update.token));
            if let Some(mut finished) = update.finished {
                let event = match finished.is_empty() {
                    true => WriteEvent::Failed(WorkError::Failed("the model wrote nothing".to_string())),
                    false => WriteEvent::Finished(finished.swap_remove(0)),
                };
                let _ = events.send(event);
                self.texts.remove(&update.id);
            }
        }
        Ok(())
    }

    /// All texts get an error, and the next one a new generator: what a failure left half done is thrown away.
    fn fail(&mut self, why: &str) {
        self.generator = None;
        for (_, events) in self.texts.drain() {
            let _ = events.send(WriteEvent::Failed(WorkError::Failed(why.to_string())));
        }
    }

    fn tell(&mut self) {
        let Some(generator) = &self.generator else { return };
        let (now, before) = (generator.tally(), self.before);
        let gauges = &self.gauges;
        gauges.texts.store(self.texts.len(), Ordering::Relaxed);
        gauges.cached.store(generator.cached_tokens(), Ordering::Relaxed);
        gauges.prompt.fetch_add((now.prompt_tokens - before.prompt_tokens) as u64, Ordering::Relaxed);
        gauges.reused.fetch_add((now.reused_tokens - before.reused_tokens) as u64, Ordering::Relaxed);
        gauges.written.fetch_add((now.written_tokens - before.written_tokens) as u64, Ordering::Relaxed);
        gauges.steps.fetch_add(1, Ordering::Relaxed);
        gauges.paused.fetch_add((now.paused - before.paused) as u64, Ordering::Relaxed);
        self.before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use vitreous_models::generate::TokenMask;

    use super::*;

    /// What a damaged model or a mistake of ours would do.
    struct Panicking;

    impl TokenConstraint for Panicking {
        fn allowed(&mut self, _: &mut TokenMask) {
            panic!("the model fell over");
        }

        fn accept(&mut self, _: u32) {}

        fn may_end(&self) -> bool {
            false
        }
    }

    fn writer() -> Writer {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate/llama");
        let settings = WriterSettings {
            name: "write".to_string(),
            options: GenerateOptions { slots: 2, context: 64, ..GenerateOptions::default() },
            device: Device::Cpu { threads: 1 },
            complain: Arc::new(|_| ()),
        };
        Writer::start(Arc::new(LanguageModel::open(&path).expect("a model")), settings).expect("a writer")
    }

    fn ask(
        writer: &Writer,
        constraint: Option<Box<dyn TokenConstraint>>,
        most: usize,
    ) -> UnboundedReceiver<WriteEvent> {
        let (events, receive) = unbounded_channel();
        let options = TextOptions { max_tokens: most, ignore_end: true, ..TextOptions::default() };
        let request = WriteRequest { prompt: vec![1, 2, 3], options, sequence: 0, constraint, events };
        writer.write(request).expect("it runs");
        receive
    }

    fn last(mut events: UnboundedReceiver<WriteEvent>) -> WriteEvent {
        let mut last = None;
        while let Some(event) = events.blocking_recv() {
            last = Some(event);
        }
        last.expect("an event")
    }

    #[test]
    fn after_a_panic_texts_are_written_again() {
        let writer = writer();
        let other = ask(&writer, None, 60);
        let failed = last(ask(&writer, Some(Box::new(Panicking)), 5));
        let told = "a worker panicked: the model fell over".to_string();
        assert!(matches!(failed, WriteEvent::Failed(WorkError::Failed(what)) if what == told));
        // Whoever was written together with it is told, or was done before.
        drop(other);
        let WriteEvent::Finished(text) = last(ask(&writer, None, 5)) else { panic!("no text") };
        assert_eq!(text.tokens.len(), 5);
    }

    #[test]
    fn texts_join_others_and_leave_them() {
        let writer = writer();
        let long = ask(&writer, None, 50);
        let left = ask(&writer, None, 50);
        drop(left);
        // There are two places: this one gets that of the one who left.
        let WriteEvent::Finished(short) = last(ask(&writer, None, 5)) else { panic!("no text") };
        let WriteEvent::Finished(long) = last(long) else { panic!("no text") };
        assert_eq!((short.tokens.len(), long.tokens.len()), (5, 50));
        assert_eq!(long.tokens[..5], short.tokens[..]);
    }
}
