//! Text generation against `transformers` (fixtures/generate): greedy, with a repetition penalty, with beams; alone, in batches, in
//! chunks, and with keys and values that were there already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vitreous_engine::{Device, Edit, EditValues};
use vitreous_models::generate::{
    Choosing, Ended, GenerateOptions, GenerationMemory, Hypothesis, Request, RequestId, Sampler, SamplingOptions,
    SearchOptions, SeenTokens, Stop, TokenConstraint, TokenGenerator, TokenMask, WrittenToken, draw_at,
};
use vitreous_models::{CacheFormat, Model, OpenOptions, Weights};

const MODELS: [&str; 4] = ["gpt2", "llama", "mistral", "qwen3"];
const MAX_TOKENS: usize = 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/generate")
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(path)).expect("a fixture")).expect("JSON")
}

fn tokens(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|token| token.as_u64().expect("a token") as u32).collect()
}

/// A model, and what the peer wrote with it.
struct Peer {
    model: Model,
    expected: Value,
    ends: Arc<[u32]>,
    prompts: Vec<Vec<u32>>,
}

impl Peer {
    fn open(name: &str) -> Peer {
        let model = Model::open(&folder().join(name), &OpenOptions::default()).expect("a model");
        let expected = read(&format!("{name}/expected.json"));
        let prompts = expected["prompts"].as_array().expect("prompts").iter().map(|prompt| tokens(&prompt["tokens"]));
        Peer { prompts: prompts.collect(), ends: tokens(&expected["ends"]).into(), model, expected }
    }

    fn generator(&self, options: GenerateOptions) -> TokenGenerator<'_> {
        self.open_generator(options).expect("a generator")
    }

    fn open_generator(&self, options: GenerateOptions) -> vitreous_engine::Result<TokenGenerator<'_>> {
        let device = Device::Cpu { threads: 2 };
        TokenGenerator::new(self.model.architecture.as_ref(), options, &device, self.weights())
    }

    fn weights(&self) -> Weights<'_> {
        let failed = |error: vitreous_models::ModelError| vitreous_engine::Error::Machine(error.to_string());
        Box::new(move |name: &str| self.model.weight(name).map_err(failed))
    }

    fn memory(&self, options: GenerateOptions, device: &Device) -> GenerationMemory {
        TokenGenerator::memory(self.model.architecture.as_ref(), &options, device, self.weights()).expect("memory")
    }

    fn request(&self, prompt: usize) -> Request {
        Request { ends: self.ends.clone(), ..Request::greedy(self.prompts[prompt].clone(), MAX_TOKENS) }
    }

    /// The tokens of the peer and why it stopped, by prompt.
    fn written(&self, how: &str) -> Vec<(Vec<u32>, Stop)> {
        let stop = |entry: &Value| if entry["stop"] == "end" { Stop::End } else { Stop::Length };
        self.expected[how].as_array().expect("a list").iter().map(|e| (tokens(&e["tokens"]), stop(e))).collect()
    }
}

fn options(slots: usize) -> GenerateOptions {
    GenerateOptions { slots, context: 96, ..GenerateOptions::default() }
}

/// What came of a request.
#[derive(Debug, Default)]
struct Outcome {
    written: Vec<WrittenToken>,
    ended: Option<Ended>,
}

impl Outcome {
    fn tokens(&self) -> Vec<u32> {
        self.written.iter().map(|written| written.token).collect()
    }

    fn pair(&self) -> (Vec<u32>, Stop) {
        (self.tokens(), self.ended.as_ref().expect("an end").stop)
    }
}

/// Runs requests to their end.
fn run(generator: &mut TokenGenerator, requests: Vec<Request>) -> Vec<Outcome> {
    let ids: Vec<RequestId> = requests.into_iter().map(|request| generator.add(request).expect("a request")).collect();
    let mut outcomes: Vec<Outcome> = ids.iter().map(|_| Outcome::default()).collect();
    while !generator.is_idle() {
        for update in generator.advance().expect("tokens") {
            let outcome = &mut outcomes[ids.iter().position(|id| *id == update.id).expect("a request")];
            assert!(outcome.ended.is_none());
            outcome.written.extend(update.token);
            outcome.ended = update.ended;
        }
    }
    outcomes
}

fn all(peer: &Peer, change: impl Fn(Request) -> Request) -> Vec<Request> {
    (0..peer.prompts.len()).map(|prompt| change(peer.request(prompt))).collect()
}

#[test]
fn greedy_tokens_are_those_of_the_peer() {
    for name in MODELS {
        let peer = Peer::open(name);
        let mut generator = peer.generator(options(1));
        for (prompt, expected) in peer.written("greedy").into_iter().enumerate() {
            let [outcome] = &run(&mut generator, vec![peer.request(prompt)])[..] else { panic!("one") };
            assert_eq!(outcome.pair(), expected, "{name}, prompt {prompt}");
        }
    }
}

#[test]
fn many_at_once_are_written_as_each_alone() {
    for name in MODELS {
        let peer = Peer::open(name);
        let expected = peer.written("greedy");
        for slots in [2, 3, 5, 8] {
            let outcomes = run(&mut peer.generator(options(slots)), all(&peer, |request| request));
            let got: Vec<_> = outcomes.iter().map(Outcome::pair).collect();
            assert_eq!(got, expected, "{name}, {slots} slots");
        }
    }
}

#[test]
fn texts_that_run_out_of_memory_for_their_keys_take_turns() {
    for name in MODELS {
        let peer = Peer::open(name);
        let room = 96 - peer.prompts.iter().map(Vec::len).max().expect("prompts");
        let request = |prompt: usize| Request::greedy(peer.prompts[prompt].clone(), room);
        let requests = || (0..peer.prompts.len()).map(request).collect::<Vec<_>>();
        let alone: Vec<_> =
            requests().into_iter().map(|one| run(&mut peer.generator(options(1)), vec![one])[0].pair()).collect();
        // Memory for one text, and for little more.
        for tokens in [0, 128, 150, 250] {
            let small = GenerateOptions { cache_tokens: Some(tokens), ..options(6) };
            let mut generator = peer.generator(small);
            for round in 0..2 {
                let mut most = 0;
                let ids: Vec<RequestId> =
                    requests().into_iter().map(|request| generator.add(request).expect("a request")).collect();
                let mut written = vec![Vec::new(); ids.len()];
                while !generator.is_idle() {
                    for update in generator.advance().expect("tokens") {
                        let which = ids.iter().position(|id| *id == update.id).expect("a request");
                        written[which].extend(update.token.map(|token| token.token));
                    }
                    most = most.max(generator.cached_tokens());
                }
                let expected: Vec<&Vec<u32>> = alone.iter().map(|(tokens, _)| tokens).collect();
                assert_eq!(written.iter().collect::<Vec<_>>(), expected, "{name}, {tokens} tokens, round {round}");
                assert!(most <= generator.cache_room(), "{name}: {most} of {}", generator.cache_room());
            }
            // A window's keys fit.
            if [128, 150].contains(&tokens) && name != "mistral" {
                assert!(generator.tally().paused > 0, "{name}, {tokens} tokens: nobody had to wait");
            }
        }
        // Searches get what they need before they begin, or are refused.
        let mut small = peer.generator(GenerateOptions { cache_tokens: Some(96), ..options(6) });
        let beams = |beam: usize, max_tokens: usize| Request {
            beams: Some(SearchOptions { beam, length_penalty: 1.0 }),
            ..Request::greedy(peer.prompts[0].clone(), max_tokens)
        };
        let short = 31 - peer.prompts[0].len().min(30);
        let expected = run(&mut peer.generator(options(3)), vec![beams(3, short)]);
        let found = run(&mut small, [beams(3, short)].into_iter().chain(requests()).chain([beams(3, short)]).collect());
        for outcome in [&found[0], &found[found.len() - 1]] {
            let hypotheses = |outcome: &Outcome| outcome.ended.as_ref().expect("an end").hypotheses[0].tokens.clone();
            assert_eq!(hypotheses(outcome), hypotheses(&expected[0]), "{name}");
        }
        if name != "mistral" {
            let refused = small.add(beams(3, 80)).expect_err("too many").to_string();
            assert!(refused.contains("3 beams of") && refused.contains("more than the 96 tokens"), "{refused}");
        }
    }
}

#[test]
fn a_prompt_in_chunks_is_a_whole_prompt() {
    for name in MODELS {
        let peer = Peer::open(name);
        let expected = peer.written("greedy");
        for chunk in [1, 2, 7, 16, 33] {
            let options = GenerateOptions { chunk: Some(chunk), ..options(2) };
            let outcomes = run(&mut peer.generator(options), all(&peer, |request| request));
            let got: Vec<_> = outcomes.iter().map(Outcome::pair).collect();
            assert_eq!(got, expected, "{name}, chunks of {chunk}");
        }
    }
}

#[test]
fn a_repetition_penalty_is_the_peers() {
    for name in MODELS {
        let peer = Peer::open(name);
        let sampling = SamplingOptions { repetition_penalty: 1.3, ..SamplingOptions::default() };
        let outcomes = run(&mut peer.generator(options(3)), all(&peer, |request| Request { sampling, ..request }));
        let got: Vec<_> = outcomes.iter().map(Outcome::pair).collect();
        assert_eq!(got, peer.written("penalty"), "{name}");
    }
}

#[test]
fn logprobs_are_those_of_the_models_own_distribution() {
    for name in MODELS {
        let peer = Peer::open(name);
        let requests = all(&peer, |request| Request { logprobs: Some(3), ..request });
        let outcomes = run(&mut peer.generator(options(3)), requests);
        for (outcome, expected) in outcomes.iter().zip(peer.expected["greedy"].as_array().expect("a list")) {
            for (step, written) in outcome.written.iter().enumerate() {
                let close = |got: f64, expected: &Value| (got - expected.as_f64().expect("a number")).abs() < 1e-4;
                assert!(close(written.logprob.expect("a logprob"), &expected["logprobs"][step]), "{name}");
                assert_eq!(written.top.len(), 3);
                for (place, top) in written.top.iter().enumerate() {
                    let theirs = &expected["top"][step][place];
                    assert!(close(top.logprob, &theirs[1]), "{name}: {top:?} and {theirs}");
                    // Of tokens that are equally likely either may come first.
                    let next = expected["top"][step].get(place + 1).and_then(|next| next[1].as_f64());
                    let is_clear = next.is_none_or(|next| theirs[1].as_f64().expect("a number") - next > 1e-4);
                    let is_last = place == 2;
                    assert!(u64::from(top.token) == theirs[0].as_u64().expect("a token") || !is_clear || is_last);
                }
            }
        }
    }
}

#[test]
fn beams_are_those_of_the_peer() {
    for name in MODELS {
        let peer = Peer::open(name);
        let cases = peer.expected["beams"].as_array().expect("a list");
        let request = |case: &Value| {
            let number = |key: &str| case[key].as_f64().expect("a number") as f32;
            let beams = SearchOptions { beam: number("beam") as usize, length_penalty: number("length_penalty") };
            let sampling =
                SamplingOptions { repetition_penalty: number("repetition_penalty"), ..SamplingOptions::default() };
            Request {
                beams: Some(beams),
                sampling,
                ..peer.request(case["prompt"].as_u64().expect("a prompt") as usize)
            }
        };
        // Alone, and several searches at once.
        for slots in [4, 9] {
            let outcomes = run(&mut peer.generator(options(slots)), cases.iter().map(request).collect());
            for (case, outcome) in cases.iter().zip(outcomes) {
                let found: Vec<Hypothesis> = outcome.ended.expect("an end").hypotheses;
                let what = format!("{name}, {slots} slots, {case}\n{found:?}");
                let theirs = case["hypotheses"].as_array().expect("a list");
                assert_eq!(found.len(), theirs.len(), "{what}");
                for (ours, theirs) in found.iter().zip(theirs) {
                    assert_eq!(ours.tokens, tokens(&theirs["tokens"]), "{what}");
                    assert!((ours.score - theirs["score"].as_f64().expect("a score")).abs() < 1e-3, "{what}");
                    assert_eq!(ours.ended, theirs["stop"] == "end", "{what}");
                }
            }
        }
    }
}

#[test]
fn what_was_read_is_not_read_again() {
    for name in MODELS {
        let peer = Peer::open(name);
        let expected = peer.written("greedy");
        let mut generator = peer.generator(options(2));
        for round in 0..3 {
            for prompt in [0, 2, 0] {
                let before = generator.tally();
                let [outcome] = &run(&mut generator, vec![peer.request(prompt)])[..] else { panic!("one") };
                assert_eq!(outcome.pair(), expected[prompt], "{name}, prompt {prompt}, round {round}");
                let reused = generator.tally().reused_tokens - before.reused_tokens;
                let read = generator.tally().prompt_tokens - before.prompt_tokens;
                assert_eq!(reused + read, peer.prompts[prompt].len());
                // The prompts 0 and 2 share "Once upon a ".
                let least = match (round, prompt) {
                    (0, 2) => 12,
                    (0, 0) if reused == 0 => 0,
                    _ => peer.prompts[prompt].len() - 2,
                };
                assert!(reused >= least, "{name}, prompt {prompt}, round {round}: {reused}");
            }
        }
        // The next turn of a conversation: what was written is there, too.
        let longer = [&peer.prompts[0][..], &expected[0].0[..], &peer.prompts[1]].concat();
        let fresh = run(&mut peer.generator(options(1)), vec![Request::greedy(longer.clone(), 8)]);
        let before = generator.tally();
        let reusing = run(&mut generator, vec![Request::greedy(longer, 8)]);
        assert_eq!(fresh[0].tokens(), reusing[0].tokens(), "{name}");
        let reused = generator.tally().reused_tokens - before.reused_tokens;
        assert!(reused >= peer.prompts[0].len() + expected[0].0.len() - 1, "{name}: {reused}");
    }
}

#[test]
fn a_sliding_window_needs_its_own_rows_only() {
    let peer = Peer::open("mistral");
    let expected = peer.written("greedy");
    let small = GenerateOptions { chunk: Some(8), ..options(3) };
    // The window of 6 and a chunk, not the 96 tokens of the context.
    let device = Device::Cpu { threads: 1 };
    let memory = peer.memory(small, &device);
    assert_eq!(memory.caches, 3 * (6 + 8) * memory.per_token);
    let mut generator = peer.generator(small);
    for round in 0..2 {
        let got: Vec<_> = run(&mut generator, all(&peer, |request| request)).iter().map(Outcome::pair).collect();
        assert_eq!(got, expected, "round {round}");
    }
    // A text that goes on, and one that begins alike but goes on otherwise.
    let longer = [&peer.prompts[1][..], &expected[1].0[..], &peer.prompts[0]].concat();
    let other = [&longer[..15], &peer.prompts[2]].concat();
    for prompt in [longer, other] {
        let fresh = run(&mut peer.generator(options(1)), vec![Request::greedy(prompt.clone(), 9)]);
        assert_eq!(run(&mut generator, vec![Request::greedy(prompt, 9)])[0].tokens(), fresh[0].tokens());
    }
    let cases = peer.expected["beams"].as_array().expect("a list");
    let beams = Some(SearchOptions { beam: 2, length_penalty: 1.0 });
    let found =
        run(&mut generator, vec![Request { beams, ..peer.request(0) }]).remove(0).ended.expect("an end").hypotheses;
    assert_eq!(
        (found[0].tokens.clone(), &cases[0]["beam"]),
        (tokens(&cases[0]["hypotheses"][0]["tokens"]), &Value::from(2))
    );
    let shifted = GenerateOptions { context: 24, ..small };
    let request = || Request { shift: Some(4), ..Request::greedy(peer.prompts[0].clone(), 40) };
    let whole = run(&mut peer.generator(GenerateOptions { chunk: Some(512), ..shifted }), vec![request()]);
    assert_eq!(run(&mut peer.generator(shifted), vec![request()])[0].tokens(), whole[0].tokens());
}

#[test]
fn several_texts_of_one_prompt_read_it_once() {
    let peer = Peer::open("llama");
    let sampling = SamplingOptions { temperature: 1.0, seed: 5, ..SamplingOptions::default() };
    let request = |sequence: u64| Request { sampling, sequence, ..peer.request(3) };
    let mut generator = peer.generator(options(4));
    let together = run(&mut generator, (0..6).map(request).collect());
    assert_eq!(generator.tally().prompt_tokens, peer.prompts[3].len() + 2 * 5, "the last two tokens of each are read");
    let got: Vec<_> = together.iter().map(Outcome::tokens).collect();
    assert!(got.iter().enumerate().any(|(i, a)| got[..i].iter().any(|b| a != b)), "{got:?}");
    for (sequence, tokens) in got.iter().enumerate() {
        let alone = run(&mut peer.generator(options(1)), vec![request(sequence as u64)]);
        assert_eq!(&alone[0].tokens(), tokens, "sequence {sequence}");
    }
    let other = SamplingOptions { seed: 6, ..sampling };
    let changed = run(&mut generator, vec![Request { sampling: other, ..request(0) }]);
    assert_ne!(changed[0].tokens(), got[0]);
}

#[test]
fn caches_of_bf16_are_close() {
    for name in MODELS {
        let peer = Peer::open(name);
        let logprobs = |cache: CacheFormat| {
            let options = GenerateOptions { cache: Some(cache), ..options(2) };
            let requests = all(&peer, |request| Request { logprobs: Some(1), max_tokens: 1, ..request });
            let outcomes = run(&mut peer.generator(options), requests);
            outcomes.iter().filter_map(|o| o.written.first()?.top.first().map(|top| top.logprob)).collect::<Vec<f64>>()
        };
        let (narrow, wide) = (logprobs(CacheFormat::Bf16), logprobs(CacheFormat::F32));
        let largest = narrow.iter().zip(&wide).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(largest > 0.0 && largest < 0.2, "{name}: {largest}");
    }
}

#[test]
fn filters_are_the_peers_logits_processors() {
    let cases = read("filters.json");
    for case in cases.as_array().expect("a list") {
        let number = |key: &str, otherwise: f64| case["options"][key].as_f64().unwrap_or(otherwise);
        let sampling = SamplingOptions {
            temperature: number("temperature", 1.0) as f32,
            top_k: number("top_k", 0.0) as usize,
            top_p: number("top_p", 1.0) as f32,
            min_p: number("min_p", 0.0) as f32,
            repetition_penalty: number("repetition_penalty", 1.0) as f32,
            seed: 0,
        };
        let numbers = |key: &str| -> Vec<f64> {
            case[key].as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
        };
        let logits: Vec<f32> = numbers("logits").iter().map(|&logit| logit as f32).collect();
        let expected = numbers("probabilities");
        let mut seen = SeenTokens::new(logits.len());
        seen.extend(&tokens(&case["seen"]));
        let mut sampler = Sampler::new(logits.len());
        let choosing = || Choosing { options: &sampling, seen: Some(&seen), constraint: None, ends: &[] };
        let choices = sampler.choices(&logits, choosing());
        let total: f64 = choices.iter().map(|choice| choice.weight).sum();
        let mut got = vec![0.0; logits.len()];
        choices.iter().for_each(|choice| got[choice.token as usize] = choice.weight / total);
        for (token, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!((got - expected).abs() < 1e-5, "{}: token {token}: {got} and {expected}", case["options"]);
            assert_eq!(*got > 0.0, *expected > 0.0, "{}: token {token}", case["options"]);
        }
        // Draws have that distribution.
        const DRAWS: usize = 20_000;
        let mut counts = vec![0usize; logits.len()];
        for position in 0..DRAWS {
            let token = sampler.choose(&logits, choosing(), draw_at(7, 3, position)).expect("a token");
            counts[token as usize] += 1;
        }
        for (count, expected) in counts.into_iter().zip(&expected) {
            let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            let off = (count as f64 / DRAWS as f64 - expected).abs();
            assert!(off <= 5.0 * deviation + 1e-9, "{}: {off} with {deviation}", case["options"]);
        }
    }
}

#[test]
fn extreme_settings_are_no_trouble() {
    let logits: Vec<f32> = (0..2000).map(|index| ((index * 7919) % 1999) as f32 * 0.05).collect();
    let best = (0..2000).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).expect("a token");
    let mut sampler = Sampler::new(logits.len());
    let mut choices = |sampling: &SamplingOptions| {
        let choosing = Choosing { options: sampling, seen: None, constraint: None, ends: &[] };
        sampler.choices(&logits, choosing).to_vec()
    };
    // So small that dividing by it would make infinity of every logit.
    let cold = choices(&SamplingOptions { temperature: 1e-40, ..SamplingOptions::default() });
    let likely: Vec<u32> = cold.iter().filter(|choice| choice.weight > 0.0).map(|choice| choice.token).collect();
    assert_eq!(likely, [best as u32]);
    // More tokens than are kept in order while they are read.
    let many = choices(&SamplingOptions { top_k: 1000, ..SamplingOptions::default() });
    let mut sorted = logits.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let expected = logits.iter().filter(|&&logit| logit >= sorted[999]).count();
    assert_eq!(many.iter().filter(|choice| choice.weight > 0.0).count(), expected);
}

/// Allows some tokens, and ends after a number of them.
struct Only {
    tokens: Vec<u32>,
    left: usize,
    may_end_early: bool,
}

impl TokenConstraint for Only {
    fn allowed(&mut self, mask: &mut TokenMask) {
        if self.left > 0 {
            self.tokens.iter().for_each(|&token| mask.allow(token));
        }
    }

    fn accept(&mut self, token: u32) {
        assert!(self.tokens.contains(&token));
        self.left -= 1;
    }

    fn may_end(&self) -> bool {
        self.left == 0 || self.may_end_early
    }
}

#[test]
fn a_constraint_is_obeyed() {
    let peer = Peer::open("llama");
    let only = |may_end_early| Only { tokens: vec![4, 8, 15, 16, 23, 42], left: 6, may_end_early };
    for temperature in [0.0, 1.0] {
        let sampling = SamplingOptions { temperature, ..SamplingOptions::default() };
        let request = |prompt: usize| {
            let constraint: Option<Box<dyn TokenConstraint>> = Some(Box::new(only(false)));
            Request { sampling, constraint, sequence: prompt as u64, ..peer.request(prompt) }
        };
        for outcome in run(&mut peer.generator(options(2)), (0..5).map(request).collect()) {
            let (tokens, stop) = outcome.pair();
            assert_eq!((tokens.len(), stop), (6, Stop::End));
            assert!(tokens.iter().all(|token| [4, 8, 15, 16, 23, 42].contains(token)), "{tokens:?}");
        }
    }
    // What nothing fulfils is no end.
    let nothing = Only { tokens: vec![], left: 1, may_end_early: false };
    let request = Request { constraint: Some(Box::new(nothing)), ..peer.request(0) };
    assert_eq!(run(&mut peer.generator(options(1)), vec![request])[0].pair(), (vec![], Stop::Constraint));
}

#[test]
fn a_full_context_ends_or_moves_on() {
    for name in ["gpt2", "llama"] {
        let peer = Peer::open(name);
        let context = 24;
        let options = GenerateOptions { context, ..options(2) };
        let request = |shift: Option<usize>| Request { shift, ..Request::greedy(peer.prompts[0].clone(), 40) };
        let outcomes = run(&mut peer.generator(options), vec![request(None), request(Some(4))]);
        let (stopped, shifted) = (outcomes[0].tokens(), outcomes[1].tokens());
        // The last token is written, not read.
        assert_eq!((stopped.len(), outcomes[0].pair().1), (context + 1 - peer.prompts[0].len(), Stop::Context));
        assert_eq!((shifted.len(), outcomes[1].pair().1), (40, Stop::Length), "{name}");
        assert_eq!(shifted[..stopped.len()], stopped[..]);
        // From there on it is as if the first tokens and the last ones had been the prompt.
        let whole = [&peer.prompts[0][..], &stopped].concat();
        let view = [&whole[..4], &whole[whole.len() - context / 2..]].concat();
        let again = run(&mut peer.generator(options), vec![Request::greedy(view, 5)]);
        assert_eq!(again[0].tokens(), shifted[stopped.len()..stopped.len() + 5], "{name}");
        // A prompt that is longer than the context is cut likewise.
        let long = [&peer.prompts[3][..], &peer.prompts[3]].concat();
        let mut generator = peer.generator(options);
        assert!(generator.add(Request::greedy(long.clone(), 2)).is_err());
        let cut = [&long[..4], &long[long.len() - context / 2..]].concat();
        let expected = run(&mut generator, vec![Request::greedy(cut, 2)]);
        let got = run(&mut generator, vec![Request { shift: Some(4), ..Request::greedy(long, 2) }]);
        assert_eq!(got[0].tokens(), expected[0].tokens(), "{name}");
    }
}

/// Attention weights of rows that no token has come to are 0, and stay so: a head without weights is no head, and one with half of them
/// half a head, also with a KV cache and with slots that an earlier text has left.
#[test]
fn attention_weights_are_edited_while_tokens_are_written() {
    for name in MODELS {
        let written = |path: &str, edit: Edit| {
            let peer = Peer::open(name);
            let peer = Peer { model: peer.model.with(path, edit).expect("a path"), ..peer };
            let mut generator = peer.generator(options(2));
            let requests = all(&peer, |request| request);
            run(&mut generator, requests).iter().map(Outcome::tokens).collect::<Vec<_>>()
        };
        let head = "blocks.0.attention.heads.1";
        for edit in [Edit::Zero, Edit::Scale(-2.0)] {
            let by_weights = written(&format!("{head}.weights"), edit.clone());
            assert_eq!(by_weights, written(head, edit), "{name}");
        }
        let peer = Peer::open(name);
        let plain: Vec<Vec<u32>> = peer.written("greedy").into_iter().map(|(tokens, _)| tokens).collect();
        assert_ne!(written(head, Edit::Scale(-2.0)), plain, "{name}: the edit does nothing");
        let add = Edit::Add(EditValues::Numbers(vec![0.1].into()));
        let edited = Peer::open(name).model.with(&format!("{head}.weights"), add).expect("a path");
        let peer = Peer { model: edited, ..peer };
        let error = peer.open_generator(options(1)).err().expect("refused").to_string();
        assert!(error.contains("heads.1.weights") && error.contains("KV cache"), "{error}");
    }
}

#[test]
fn a_request_that_is_ended_makes_room() {
    let peer = Peer::open("llama");
    let expected = peer.written("greedy");
    let mut generator = peer.generator(options(1));
    let first = generator.add(Request::greedy(peer.prompts[1].clone(), 60)).expect("a request");
    for _ in 0..3 {
        generator.advance().expect("tokens");
    }
    let waiting = generator.add(peer.request(0)).expect("a request");
    generator.end(waiting);
    generator.end(first);
    assert!(generator.is_idle());
    assert_eq!(run(&mut generator, vec![peer.request(2)])[0].pair(), expected[2]);
}

#[test]
fn many_requests_are_ended_at_once() {
    let peer = Peer::open("llama");
    let mut generator = peer.generator(options(2));
    let ids: Vec<RequestId> =
        (0..9).map(|_| generator.add(Request::greedy(peer.prompts[1].clone(), 60)).expect("a request")).collect();
    generator.advance().expect("tokens");
    generator.end_all(&ids[1..].iter().copied().collect());
    assert!(generator.advance().expect("tokens").iter().all(|update| update.id == ids[0]));
    generator.end_all(&ids.into_iter().collect());
    assert!(generator.is_idle());
}

/// In steps, which are what others wait for.
#[test]
fn nobody_waits_for_a_long_prompt() {
    const CHUNK: usize = 4;
    let peer = Peer::open("llama");
    let options = GenerateOptions { chunk: Some(CHUNK), read_between_steps: Some(CHUNK), ..options(3) };
    let mut generator = peer.generator(options);
    let prompt = |length: u32, first: u32| (0..length).map(|place| (first + place * 7) % 90).collect::<Vec<u32>>();
    let writing = generator.add(Request::greedy(prompt(2, 1), 60)).expect("a request");
    generator.advance().expect("tokens");
    let long = generator.add(Request::greedy(prompt(80, 2), 5)).expect("a request");
    generator.advance().expect("tokens");
    let short = generator.add(Request::greedy(prompt(3, 3), 5)).expect("a request");
    let mut first: std::collections::HashMap<RequestId, usize> = std::collections::HashMap::new();
    for step in 1..=40 {
        let updates = generator.advance().expect("tokens");
        let written = updates.iter().filter(|update| update.id == writing && update.token.is_some()).count();
        assert_eq!(written, 1, "who writes waits in step {step}");
        for update in updates.iter().filter(|update| update.token.is_some()) {
            first.entry(update.id).or_insert(step);
        }
        if first.contains_key(&long) {
            break;
        }
    }
    assert!(first[&short] <= 2, "the short prompt waits for {} steps", first[&short]);
    // The long one is read on meanwhile: its 80 tokens take no more steps than their chunks and those of the short one.
    assert!((80 / CHUNK - 2..=80 / CHUNK + 2).contains(&first[&long]), "the long prompt takes {} steps", first[&long]);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let peer = Peer::open("llama");
    let mut generator = peer.generator(GenerateOptions { context: 20, ..options(2) });
    let beams = |beam| Some(SearchOptions { beam, length_penalty: 1.0 });
    let sampling = SamplingOptions { top_p: 0.0, ..SamplingOptions::default() };
    let constraint: Option<Box<dyn TokenConstraint>> =
        Some(Box::new(Only { tokens: vec![], left: 1, may_end_early: false }));
    for (request, says) in [
        (Request::greedy(vec![], 1), "at least one token"),
        (Request::greedy(vec![1; 21], 1), "21 tokens, but the context has 20"),
        (Request::greedy(vec![5, 99_999], 1), "token 99999 is not in the vocabulary"),
        (Request { beams: beams(3), ..peer.request(1) }, "3 beams"),
        (Request { beams: beams(2), constraint, ..peer.request(1) }, "cannot follow beams"),
        (Request { sampling, ..peer.request(1) }, "top-p must be above 0"),
    ] {
        let error = generator.add(request).expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn memory_is_known_before_it_is_taken() {
    let peer = Peer::open("llama");
    let device = Device::Cpu { threads: 1 };
    let memory = |options: GenerateOptions| peer.memory(options, &device);
    let (few, many) = (memory(options(1)), memory(options(7)));
    // Two layers, keys and values, two heads of four numbers.
    assert_eq!((few.per_token, few.caches, many.caches), (2 * 2 * 8 * 4, 128 * 96, 7 * 128 * 96));
    let shared = memory(GenerateOptions { cache_tokens: Some(200), ..options(7) });
    assert_eq!(shared.caches, 128 * 224, "whole blocks of 32 tokens");
    let narrow = memory(GenerateOptions { cache: Some(CacheFormat::Bf16), ..options(1) });
    assert_eq!(narrow.caches, few.caches / 2);
    let huge = GenerateOptions { slots: 1 << 33, ..options(1) };
    let refused = peer.open_generator(huge).err().expect("too much");
    let said = refused.to_string();
    assert!(said.contains("a context of 96 tokens for 8589934592 sequences needs"), "{said}");
    assert!(said.contains("would fit"), "{said}");
}
