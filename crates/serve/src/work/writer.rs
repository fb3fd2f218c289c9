//! Writing texts with continuous batching: one thread per language model, which requests join and leave at any step.
//!
//! The scheduler is [`TextGenerator`], the same as the command's: prompts are read in chunks between steps, a text that ends or whose client
//! has left makes room at once, and prompts that begin alike share what was read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use vitreous_engine::Device;
use vitreous_models::generate::{GenerateOptions, RequestId, Tally, TokenConstraint, WrittenToken};
use vitreous_runtime::language::{Continuation, LanguageModel, TextGenerator, TextOptions};

use super::{WorkError, caught};

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
    /// Told how many texts went on together, and the seconds that it took.
    pub observe: Arc<dyn Fn(usize, f64) + Send + Sync>,
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
        let body = move || {
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
            let writing = Writing {
                generator: Some(generator),
                make: &make,
                texts: HashMap::new(),
                gauges: told,
                before: Tally::default(),
                observe: settings.observe,
                complain: settings.complain,
            };
            writing.work(&receive);
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
struct Writing<'m, 't> {
    /// `None` after a failure, until it can be made again.
    generator: Option<TextGenerator<'m>>,
    make: &'t dyn Fn() -> Result<TextGenerator<'m>, vitreous_runtime::Error>,
    texts: HashMap<RequestId, UnboundedSender<WriteEvent>>,
    gauges: Arc<WriterGauges>,
    /// What this generator had done when it was last told.
    before: Tally,
    observe: Arc<dyn Fn(usize, f64) + Send + Sync>,
    complain: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Writing<'_, '_> {
    /// Writes until nobody can ask any more. A panic, wherever it comes from, fails the texts of this moment; the thread goes on.
    fn work(mut self, requests: &Receiver<WriteRequest>) {
        loop {
            let first = match self.texts.is_empty() {
                true => match requests.recv() {
                    Ok(request) => Some(request),
                    Err(_) => return,
                },
                false => None,
            };
            for request in first.into_iter().chain(requests.try_iter()) {
                let events = request.events.clone();
                if let Err(why) = caught(|| self.add(request)) {
                    let _ = events.send(WriteEvent::Failed(why.clone()));
                    self.fail(&why);
                }
            }
            let gone_on = caught(|| {
                self.let_go();
                self.advance()
            });
            if let Err(why) = gone_on.and_then(|done| done) {
                self.fail(&why);
            }
            self.tell();
        }
    }

    fn add(&mut self, request: WriteRequest) {
        let WriteRequest { prompt, options, sequence, constraint, events } = request;
        if self.generator.is_none() {
            self.generator = (self.make)().map_err(|error| (self.complain)(&error.to_string())).ok();
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
        let left: HashSet<RequestId> = left.collect();
        if left.is_empty() {
            return;
        }
        self.texts.retain(|id, _| !left.contains(id));
        if let Some(generator) = &mut self.generator {
            generator.end_all(&left);
        }
    }

    /// One step of all texts.
    fn advance(&mut self) -> Result<(), WorkError> {
        let Some(generator) = &mut self.generator else { return Ok(()) };
        let start = Instant::now();
        let updates = generator.advance().map_err(|error| match WorkError::from(error) {
            // What was wrong with a request was refused when it came.
            WorkError::Input(what) => WorkError::Failed(what),
            error => error,
        })?;
        let went_on = updates.iter().filter(|update| update.token.is_some()).count();
        if went_on > 0 {
            (self.observe)(went_on, start.elapsed().as_secs_f64());
        }
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
    fn fail(&mut self, why: &WorkError) {
        (self.complain)(&why.to_string());
        for (_, events) in self.texts.drain() {
            let _ = events.send(WriteEvent::Failed(why.clone()));
        }
        let generator = self.generator.take();
        // What panicked once may do so again.
        let _ = caught(|| drop(generator));
    }

    fn tell(&mut self) {
        let gauges = &self.gauges;
        gauges.texts.store(self.texts.len(), Ordering::Relaxed);
        gauges.cached.store(self.generator.as_ref().map_or(0, TextGenerator::cached_tokens), Ordering::Relaxed);
        let Some(generator) = &self.generator else { return };
        let (now, before) = (generator.tally(), self.before);
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

    /// Each token waits for the test to let it be written. Panics when the text is given up or refused, or when the test is gone.
    struct Led {
        tokens: Receiver<()>,
        panics_alone: bool,
        panics_at_the_end: bool,
    }

    impl TokenConstraint for Led {
        fn allowed(&mut self, mask: &mut TokenMask) {
            let is_led = self.tokens.recv().is_ok();
            assert!(is_led || !self.panics_alone, "the model fell over");
            mask.allow(5);
        }

        fn accept(&mut self, _: u32) {}

        fn may_end(&self) -> bool {
            false
        }
    }

    impl Drop for Led {
        fn drop(&mut self) {
            assert!(!self.panics_at_the_end, "the model fell over");
        }
    }

    fn writer() -> Writer {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate/llama");
        let settings = WriterSettings {
            name: "write".to_string(),
            options: GenerateOptions { slots: 2, context: 64, ..GenerateOptions::default() },
            device: Device::Cpu { threads: 1 },
            observe: Arc::new(|_, _| ()),
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
    fn a_panic_over_a_text_that_is_refused_or_left_does_not_end_the_thread() {
        let writer = writer();
        let told = "a worker panicked: the model fell over".to_string();
        let constraint = || {
            let (lead, tokens) = mpsc::channel();
            (lead, Box::new(Led { tokens, panics_alone: false, panics_at_the_end: true }))
        };
        let (events, refused) = unbounded_channel();
        let request = WriteRequest {
            prompt: vec![u32::MAX],
            options: TextOptions::default(),
            sequence: 0,
            constraint: Some(constraint().1),
            events,
        };
        writer.write(request).expect("it runs");
        assert!(matches!(last(refused), WriteEvent::Failed(WorkError::Failed(what)) if what == told));
        let (lead, constraint) = constraint();
        let mut left = ask(&writer, Some(constraint), 60);
        lead_on(&lead, 2);
        left.blocking_recv().expect("it is written");
        until("the text is counted", || writer.gauges().texts.load(Ordering::Relaxed) == 1);
        // It waits for its next token, so that it has not ended.
        drop(left);
        lead_on(&lead, 1);
        until("the text is given up", || writer.gauges().texts.load(Ordering::Relaxed) == 0);
        let WriteEvent::Finished(text) = last(ask(&writer, None, 5)) else { panic!("no text") };
        assert_eq!(text.tokens.len(), 5);
    }

    #[test]
    fn after_a_failure_no_text_is_counted() {
        let writer = writer();
        let (lead, tokens) = mpsc::channel();
        let constraint = Led { tokens, panics_alone: true, panics_at_the_end: false };
        let failed = ask(&writer, Some(Box::new(constraint)), 60);
        lead_on(&lead, 2);
        until("the text is counted", || writer.gauges().texts.load(Ordering::Relaxed) == 1);
        drop(lead);
        assert!(matches!(last(failed), WriteEvent::Failed(_)));
        until("nothing is counted", || writer.gauges().texts.load(Ordering::Relaxed) == 0);
    }

    /// The first step may write two tokens: the one that reading the prompt gives, and the next.
    fn lead_on(lead: &mpsc::Sender<()>, tokens: usize) {
        (0..tokens).for_each(|_| lead.send(()).expect("it is written"));
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..1000 {
            if holds() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{what}: this did not happen");
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
