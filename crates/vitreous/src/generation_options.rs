//! The options of `generate` and `chat`: how tokens are chosen, when a text ends, and what the model runs on.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use vitreous_engine::{Device, Precision};
use vitreous_models::CacheFormat;
use vitreous_models::generate::{GenerateOptions, SamplingOptions, Tally};
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::language::TextOptions;

use crate::commands::{PrecisionName, parse_count, parse_threads};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::shared_out::SharedOut;

/// The most tokens of a text, if nobody asks for another number.
const USUAL_TOKENS: usize = 256;

/// How tokens are chosen, and when a text ends.
#[derive(Args, Clone, Debug)]
pub struct WritingOptions {
    /// The most tokens to write [default: 256; of encoder-decoders what their files say]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// Sampling temperature; 0 takes the likeliest token each time
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Choose from the K likeliest tokens
    #[arg(long, value_name = "K", value_parser = parse_count, allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Choose from the likeliest tokens that add up to this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Choose from tokens that are at least this part as likely as the likeliest
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Make tokens that were seen, also in the prompt, less likely; 1 is no penalty
    #[arg(long, value_name = "R", default_value = "1", allow_negative_numbers = true)]
    repetition_penalty: f32,
    /// Seed of the random numbers: the same seed gives the same text [default: 0]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// End the text before this string; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Write on where the model would end the text
    #[arg(long)]
    ignore_eos: bool,
    /// When the context is full, drop its oldest tokens (but for the first few) and write on
    #[arg(long)]
    shift: bool,
}

impl WritingOptions {
    /// Whether the user asked for random choices.
    pub fn asks_for_sampling(&self) -> bool {
        self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some()
    }

    /// The repetition penalty, if it is one.
    pub fn repetition_penalty(&self) -> Option<f32> {
        Some(self.repetition_penalty).filter(|penalty| *penalty != 1.0)
    }

    /// The first of the options that was given and that an encoder-decoder does not have.
    pub fn of_language_models(&self) -> Option<&'static str> {
        let given = [
            ("--temperature", self.temperature.is_some_and(|temperature| temperature > 0.0)),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--seed", self.seed.is_some()),
            ("--stop", !self.stop.is_empty()),
            ("--ignore-eos", self.ignore_eos),
            ("--shift", self.shift),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Whether the user chose a temperature.
    pub fn temperature(&self) -> Option<f32> {
        self.temperature
    }

    /// The options, with this temperature where none was given.
    pub fn text_options(&self, temperature: f32) -> Result<TextOptions, Failure> {
        let sampling = SamplingOptions {
            temperature: self.temperature.unwrap_or(temperature),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            repetition_penalty: self.repetition_penalty,
            seed: self.seed.unwrap_or(0),
        };
        sampling.check().map_err(|rule| Failure::input(anyhow!(rule)))?;
        Ok(TextOptions {
            max_tokens: self.max_tokens.unwrap_or(USUAL_TOKENS),
            sampling,
            beams: None,
            stop: self.stop.clone(),
            more_ends: Vec::new(),
            ignore_end: self.ignore_eos,
            logprobs: None,
            shift: self.shift,
        })
    }
}

/// The format of keys and values as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheName {
    /// 32-bit floats
    F32,
    /// 16 bits: half the memory
    Bf16,
}

/// What the model runs on, and its memory.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// The most tokens of a text, prompt included [default: what the prompt and --max-tokens need]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// The format of the KV cache [default: f32; on a GPU with --precision bf16, bf16]
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true)]
    cache: Option<CacheName>,
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Threads that compute on the CPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
}

impl MachineOptions {
    /// The first of the options that was given and that an encoder-decoder does not have.
    pub fn of_language_models(&self) -> Option<&'static str> {
        let given = [("--context", self.context.is_some()), ("--cache", self.cache.is_some())];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Opens the device.
    pub fn open_device(&self) -> Result<Device, Failure> {
        self.device.open(self.threads.unwrap_or_else(vitreous_runtime::threads))
    }

    /// Opens the device of a rank.
    pub fn device_of(&self, shared: &SharedOut) -> Result<Device, Failure> {
        self.device.open_for(self.threads.unwrap_or_else(|| shared.threads()), shared.local_rank())
    }

    /// The precision to compute in.
    pub fn precision(&self) -> Precision {
        self.precision.into()
    }

    /// How a model is made ready for so many sequences of so many tokens.
    pub fn generate_options(&self, slots: usize, context: usize) -> GenerateOptions {
        let cache = self.cache.map(|cache| match cache {
            CacheName::F32 => CacheFormat::F32,
            CacheName::Bf16 => CacheFormat::Bf16,
        });
        let precision: Precision = self.precision.into();
        GenerateOptions { slots, context, cache, precision, ..GenerateOptions::default() }
    }
}

/// Says how fast it went.
pub fn tell_speed(tally: &Tally, device: &Device) {
    // A prompt of one token is read by the first step.
    let rate = |tokens: usize, seconds: f64| match seconds > 0.0 {
        true => format!(", {:.1} tokens/s", tokens as f64 / seconds),
        false => String::new(),
    };
    let tokens = |count: usize| format::count(count, "token", "tokens");
    let reused = match tally.reused_tokens {
        0 => String::new(),
        tokens => format!(" ({tokens} more were there already)"),
    };
    say!(
        "prompt: {}{}{reused}; written: {}{}, on {}",
        tokens(tally.prompt_tokens),
        rate(tally.prompt_tokens, tally.reading),
        tokens(tally.written_tokens),
        rate(tally.stepped_tokens, tally.writing),
        described(device)
    );
}
