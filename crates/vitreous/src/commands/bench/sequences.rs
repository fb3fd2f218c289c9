//! `vitreous bench --mode generate` of encoder-decoders: how fast sources are read, texts or windows of audio, and tokens written behind
//! them, greedily, all of the same length.

use std::time::{Duration, Instant};

use serde_json::json;
use vitreous_engine::Device;
use vitreous_engine::random::{Stream, place_of};
use vitreous_models::generate::{
    SearchOptions, SpecialTokens, SpeechWriter, TargetRules, TextSlot, TranslateOptions, Translator,
};
use vitreous_models::{Architecture, Weights};
use vitreous_runtime::described;

use super::generate::{Generation, too_long};
use super::{FEWEST_RUNS, MOST_RUNS, fill_uniform, quantile};
use crate::failure::Failure;

/// Seconds of audio in a window of the published models.
const WINDOW_SECONDS: f64 = 30.0;

/// Seconds of each run, the shortest first.
pub(super) struct Seconds {
    runs: Vec<f64>,
    /// Whether windows of audio were read, and not texts.
    is_audio: bool,
}

/// Measures a model of pairs of texts.
pub(super) fn of_pairs<'w>(
    asked: &Generation,
    name: &str,
    model: &'w dyn Architecture,
    device: &Device,
    weights: Weights<'w>,
) -> Result<Seconds, Failure> {
    // Nothing ends a text but its length.
    let special = SpecialTokens { padding: 0, start: 0, end: 0, forced_end: None };
    let search = SearchOptions { beam: 1, ..SearchOptions::default() };
    let options = TranslateOptions { search, slots: Some(asked.batch), extra_tokens: 0, precision: asked.precision };
    let mut translator = Translator::new(model, special, options, device, weights).map_err(Failure::input)?;
    if asked.prompt.max(asked.tokens) > translator.longest() {
        return Err(too_long(name, asked, translator.longest()));
    }
    translator.set_rules(TargetRules { max_tokens: Some(asked.tokens), ..TargetRules::ending_with(Vec::new()) });
    let vocabulary = model.signature().pairs().map_or(1, |(source, _)| source.vocabulary);
    let runs = timed(asked, |run| {
        let sources: Vec<Vec<u32>> =
            (0..asked.batch).map(|text| random_tokens(run, text, asked.prompt, vocabulary)).collect();
        translator.write(&sources).map(drop)
    })?;
    Ok(Seconds { runs, is_audio: false })
}

/// Measures a speech model: every window of audio is encoded and written to.
pub(super) fn of_audio<'w>(
    asked: &Generation,
    name: &str,
    model: &'w dyn Architecture,
    device: &Device,
    weights: Weights<'w>,
) -> Result<Seconds, Failure> {
    let mut writer = SpeechWriter::new(model, asked.precision, device, weights).map_err(Failure::input)?;
    let input = writer.input();
    if asked.prompt + asked.tokens > input.target.longest {
        return Err(too_long(name, asked, input.target.longest));
    }
    let mut window = vec![0.0; input.bins * input.frames];
    fill_uniform("window", 1.0, &mut window);
    let windows = vec![&window[..]; asked.batch];
    let runs = timed(asked, |run| {
        writer.listen(&windows, 1)?;
        let mut texts: Vec<Vec<u32>> =
            (0..asked.batch).map(|text| random_tokens(run, text, asked.prompt, input.target.vocabulary)).collect();
        for written in 0..asked.tokens {
            let place = if written == 0 { 0 } else { asked.prompt + written - 1 };
            let slots: Vec<TextSlot> = texts.iter().map(|tokens| TextSlot { tokens, place }).collect();
            let next: Vec<u32> = writer.read(0, &slots)?.chunks_exact(input.target.vocabulary).map(likeliest).collect();
            texts = next.into_iter().map(|token| vec![token]).collect();
        }
        Ok(())
    })?;
    Ok(Seconds { runs, is_audio: true })
}

/// Seconds of each run, the shortest first. The first run makes plans ready and is not counted.
fn timed(asked: &Generation, mut run: impl FnMut(usize) -> vitreous_engine::Result<()>) -> Result<Vec<f64>, Failure> {
    run(0).map_err(Failure::work)?;
    let mut seconds = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(asked.seconds);
    while seconds.len() < FEWEST_RUNS || (Instant::now() < end && seconds.len() < MOST_RUNS) {
        let start = Instant::now();
        run(1 + seconds.len()).map_err(Failure::work)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// Tokens that no other run has.
fn random_tokens(run: usize, text: usize, count: usize, vocabulary: usize) -> Vec<u32> {
    let stream = Stream::new(run as u64, text as u64, place_of("source"));
    (0..count).map(|place| stream.four(place as u64)[0] % vocabulary as u32).collect()
}

fn likeliest(logits: &[f32]) -> u32 {
    let better = |best: usize, other: usize| if logits[other] > logits[best] { other } else { best };
    (0..logits.len()).reduce(better).unwrap_or(0) as u32
}

impl Seconds {
    fn unit(&self) -> &'static str {
        if self.is_audio { "windows of audio" } else { "texts" }
    }

    pub fn json(&self, model: &str, asked: &Generation, device: &Device) -> serde_json::Value {
        let median = quantile(&self.runs, 0.5);
        let mut json = asked.json(model, device);
        json["runs"] = json!(self.runs.len());
        json["median_ms"] = json!(1e3 * median);
        json["sequences_per_second"] = json!(asked.batch as f64 / median);
        json["generated_tokens_per_second"] = json!((asked.batch * asked.tokens) as f64 / median);
        if self.is_audio {
            json["times_real_time"] = json!(WINDOW_SECONDS * asked.batch as f64 / median);
        }
        json
    }

    pub fn lines(&self, model: &str, asked: &Generation, device: &Device) -> Vec<String> {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(&self.runs, share));
        let Generation { batch, prompt, tokens, .. } = asked;
        let what = match self.is_audio {
            true => format!("{batch} windows of audio, a prompt of {prompt} tokens and {tokens} written for each"),
            false => format!("{batch} texts of {prompt} tokens, {tokens} written for each"),
        };
        let real_time = match self.is_audio {
            true => format!(", {:.0} times real time", WINDOW_SECONDS * *batch as f64 / median),
            false => String::new(),
        };
        vec![
            format!("{model}, {what}, on {}", described(device)),
            format!("{median:.3} s (half of {} runs {low:.3} to {high:.3})", self.runs.len()),
            format!(
                "{:.1} {}/s, {:.0} tokens/s{real_time}",
                *batch as f64 / median,
                self.unit(),
                (batch * tokens) as f64 / median
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_is_the_first_of_the_largest() {
        assert_eq!(likeliest(&[0.5, 2.0, -1.0, 2.0]), 1);
    }

    #[test]
    fn no_run_has_the_tokens_of_another() {
        let tokens = random_tokens(1, 0, 50, 100);
        assert!(tokens.iter().all(|&token| token < 100) && tokens != random_tokens(2, 0, 50, 100));
        assert_ne!(tokens, random_tokens(1, 1, 50, 100));
    }
}
