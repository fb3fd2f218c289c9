//! A quantised model writes the same for a prompt however much of it was in the cache and in which chunks it was read. Activations are
//! rounded to bytes, which makes a difference of one bit in a sum into one of a half percent: so there may be none.

use vitreous_engine::Device;
use vitreous_models::generate::{GenerateOptions, Request, TokenGenerator, WrittenToken};
use vitreous_models::{Model, ModelError};

use super::{fixture, open};

const MODELS: [&str; 4] = ["llama_blocks", "qwen3_q8_0", "phi3_blocks", "gpt2_q4_0"];

fn generator(model: &Model, options: GenerateOptions) -> TokenGenerator<'_> {
    let failed = |error: ModelError| vitreous_engine::Error::Machine(error.to_string());
    let weights = Box::new(move |name: &str| model.weight(name).map_err(failed));
    let device = Device::Cpu { threads: 2 };
    TokenGenerator::new(model.architecture.as_ref(), options, &device, weights).expect("a generator")
}

/// What is written behind each prompt, with logarithmic probabilities.
fn written(generator: &mut TokenGenerator, prompts: &[Vec<u32>]) -> Vec<Vec<WrittenToken>> {
    let request = |prompt: &Vec<u32>| Request { logprobs: Some(3), ..Request::greedy(prompt.clone(), 6) };
    let ids: Vec<_> = prompts.iter().map(|prompt| generator.add(request(prompt)).expect("a request")).collect();
    let mut all = vec![Vec::new(); prompts.len()];
    while !generator.is_idle() {
        for update in generator.advance().expect("tokens") {
            let place = ids.iter().position(|id| *id == update.id).expect("a request");
            all[place].extend(update.token);
        }
    }
    all
}

#[test]
fn a_prompt_in_the_cache_is_answered_as_one_that_is_read() {
    for name in MODELS {
        let model = open(&fixture(&format!("{name}.gguf")));
        let (input, vocabulary) = model.architecture.signature().language().map(|(i, v)| (i.longest, v)).expect("one");
        let context = input.min(340);
        let longest = context - 10;
        let one = |prompt: &[u32], options: GenerateOptions| {
            written(&mut generator(&model, options), &[prompt.to_vec()]).remove(0)
        };
        let whole = GenerateOptions { context, ..GenerateOptions::default() };
        // All begin alike, but none goes on as a shorter one was gone on with: what was written is in the cache, too, by steps.
        let mut text: Vec<u32> = (0..longest).map(|at| (at * at * 7 + 3 * at) as u32 % vocabulary as u32).collect();
        let (mut prompts, mut expected) = (Vec::new(), Vec::new());
        for length in [2, 3, 9, longest / 2, longest - 1, longest].into_iter().filter(|&length| length <= longest) {
            let found = one(&text[..length], whole);
            prompts.push(text[..length].to_vec());
            if let Some(next) = text.get_mut(length) {
                *next = (found[0].token + 1) % vocabulary as u32;
            }
            expected.push(found);
        }
        for chunk in [3, 8, 31, 128] {
            let options = GenerateOptions { chunk: Some(chunk), slots: 3, ..whole };
            for (prompt, expected) in prompts.iter().zip(&expected) {
                assert_eq!(&one(prompt, options), expected, "{name}, {} tokens by {chunk}", prompt.len());
            }
            // Again and again from the cache; then all at once.
            let mut kept = generator(&model, options);
            for round in 0..2 {
                for (prompt, expected) in prompts.iter().zip(&expected).chain(prompts.iter().zip(&expected).rev()) {
                    let found = written(&mut kept, std::slice::from_ref(prompt)).remove(0);
                    assert_eq!(&found, expected, "{name}, {} tokens by {chunk}, round {round}", prompt.len());
                }
            }
            assert!(kept.tally().reused_tokens > longest, "nothing was in the cache");
            assert_eq!(written(&mut kept, &prompts), expected, "{name}, all at once, by {chunk}");
        }
    }
}
