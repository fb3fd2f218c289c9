//! What the walk over all families does not see of Whisper: gradients, OpenAI's files, steps with caches.

use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Mode, Parameter, Plan, Precision, Role, Run,
    State, Value,
};

use super::WhisperConfig;
use crate::archive::Archive;
use crate::generate::{SpeechWriter, TextSlot};
use crate::testing::{fixture, largest_difference, tensor};
use crate::{Call, Model, OpenOptions, Part, SaveOptions};

const DEVICE: Device = Device::Cpu { threads: 2 };

fn open(name: &str) -> Model {
    let path = match name {
        "openai" => fixture("whisper", name).join("model.pt"),
        name => fixture("whisper", name),
    };
    Model::open(&path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn expected(name: &str) -> Archive {
    Archive::open(&fixture("whisper", name).join("expected.safetensors")).expect("opens")
}

fn feed(executor: &mut Executor, graph: &Graph, archive: &Archive) {
    for (name, value) in graph.inputs() {
        let (_, numbers) = tensor(archive, name);
        match graph.type_of(value).dtype {
            DType::I32 => {
                let to = executor.input_i32(name).expect("an input");
                to.iter_mut().zip(&numbers).for_each(|(to, &number)| *to = number as i32);
            }
            _ => executor.input(name).expect("an input").copy_from_slice(&numbers),
        }
    }
}

fn ready(model: &Model, graph: &Graph, outputs: &[Value]) -> Executor {
    let plan = DEVICE.plan_with_fixed_weights(graph, outputs).expect("plans");
    let lend = |parameter: &Parameter| model.parameter(&parameter.name).map_err(|error| error.to_string());
    match Executor::with_weights(plan, &DEVICE, |parameter| lend(parameter).map_err(vitreous_engine::Error::Machine)) {
        Ok(executor) => executor,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn gradients_are_pytorchs() {
    let (model, theirs) = (open("model"), open("model_gradients"));
    let archive = expected("model_gradients");
    let (target, _) = tensor(&archive, "target");
    let mut g = Graph::new(Mode::Inference, Precision::F32);
    let call = Call::whole(target[0]).target(target[1]);
    let logits = model.architecture.build(&mut g, &call).expect("builds").need("logits").expect("logits");
    let (tokens, vocabulary) = (target[0] * target[1], g.shape_of(logits).columns());
    let logits = g.reshape(logits, [tokens, vocabulary]).expect("rows");
    let targets = g.input("targets", [tokens], DType::I32).expect("an input");
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default()).expect("a loss");
    let trained = g.parameters().iter().filter(|parameter| parameter.role() != Role::Constant);
    let names: Vec<String> = trained.map(|parameter| parameter.name.clone()).collect();
    let wanted: Vec<Value> = names.iter().map(|name| g.find(name).expect("a parameter")).collect();
    let gradients = g.gradients(loss, &wanted, GradientOptions::default()).expect("gradients");
    let values: Vec<Value> = gradients.iter().copied().chain([loss]).collect();
    let mut executor = Executor::new(Plan::for_cpu(&g, &values).expect("plans"), &DEVICE).expect("runs");
    let mut state = State::new(&g).expect("memory");
    model.load(&mut state).expect("loads");
    feed(&mut executor, &g, &archive);
    executor.run(&mut state, Run::default()).expect("a run");
    assert!((executor.number(loss).expect("a loss") - tensor(&archive, "loss").1[0]).abs() < 1e-5);
    for (parameter, &gradient) in names.iter().zip(&gradients) {
        let theirs = theirs.parameter(parameter).expect(parameter);
        let difference = largest_difference(&executor.output(gradient).expect("a result"), &theirs);
        assert!(difference < 1e-5, "gradient of {parameter} differs by {difference:e}");
    }
    assert!(!names.iter().any(|name| name == "encoder.positions"), "the sines are not trained");
}

#[test]
fn openais_file_computes_what_openai_does() {
    let (model, archive) = (open("openai"), expected("openai"));
    let config = model.architecture.downcast_ref::<WhisperConfig>().expect("a Whisper");
    assert_eq!((config.heads, config.encoder_layers, config.decoder_layers, config.mlp_dim), (1, 1, 2, 256));
    let mut graph = Graph::for_inference();
    let outputs = model.architecture.build(&mut graph, &Call::whole(2).target(4)).expect("builds");
    let values: Vec<Value> = ["memory", "logits"].map(|name| outputs.need(name).expect("given")).to_vec();
    let mut executor = ready(&model, &graph, &values);
    feed(&mut executor, &graph, &archive);
    executor.infer().expect("a run");
    for (name, &value) in ["memory", "logits"].iter().zip(&values) {
        let difference = largest_difference(&executor.output(value).expect("a result"), &tensor(&archive, name).1);
        assert!(difference < 2e-5, "{name} differs by {difference:e}");
    }
    // Written as a directory of Hugging Face's it is the same model.
    let directory = tempfile::tempdir().expect("a directory");
    model.save(directory.path(), &SaveOptions::default()).expect("saves");
    let again = Model::open(directory.path(), &OpenOptions::default()).expect("opens");
    assert_eq!(again.architecture.settings(), model.architecture.settings());
    for parameter in model.parameters() {
        assert_eq!(again.parameter(&parameter.name).expect("there"), model.parameter(&parameter.name).expect("there"));
    }
}

/// A prompt in one piece, tokens one by one, and several texts beside each other: as the whole text at once.
#[test]
fn steps_with_caches_are_the_whole_text() {
    for name in ["model", "scaled"] {
        let (model, archive) = (open(name), expected(name));
        let (mel, windows) = tensor(&archive, "mel");
        let (target, tokens) = tensor(&archive, "target");
        let (_, logits) = tensor(&archive, "logits");
        let tokens: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
        let vocabulary = logits.len() / (target[0] * target[1]);
        let windows: Vec<&[f32]> = windows.chunks_exact(mel[1] * mel[2]).collect();
        let mut writer =
            SpeechWriter::new(model.architecture.as_ref(), Precision::F32, &DEVICE, Box::new(&model)).expect("runs");
        for slots in [1, 2] {
            writer.listen(&windows, slots).expect("listens");
            for prompt in [1, 3] {
                let text = |sample: usize| &tokens[sample * target[1]..(sample + 1) * target[1]];
                let expected =
                    |sample: usize, place: usize| &logits[(sample * target[1] + place) * vocabulary..][..vocabulary];
                for sample in 0..target[0] {
                    let first = TextSlot { tokens: &text(sample)[..prompt], place: 0 };
                    let got = writer.read(sample * slots, &[first]).expect("reads").to_vec();
                    let difference = largest_difference(&got, expected(sample, prompt - 1));
                    assert!(difference < 2e-5, "{name}, sample {sample}: {difference:e}");
                    let others: Vec<(usize, usize)> =
                        (1..slots).map(|slot| (sample * slots + slot, sample * slots)).collect();
                    writer.go_on(&others, prompt).expect("copies");
                }
                for place in prompt..target[1] {
                    let texts: Vec<TextSlot> = (0..target[0] * slots)
                        .map(|slot| TextSlot { tokens: &text(slot / slots)[place..=place], place })
                        .collect();
                    let got = writer.read(0, &texts).expect("a step").to_vec();
                    for (slot, got) in got.chunks_exact(vocabulary).enumerate() {
                        let difference = largest_difference(got, expected(slot / slots, place));
                        assert!(difference < 2e-5, "{name}, slot {slot}, place {place}: {difference:e}");
                    }
                }
            }
        }
        assert!(writer.listen(&[&windows[0][1..]], 1).is_err());
    }
}

#[test]
fn too_long_texts_are_refused() {
    let model = open("model");
    for call in [Call::whole(1).target(14), Call::whole(1).tokens(1).target(14).part(Part::Step)] {
        let error = model.architecture.build(&mut Graph::for_inference(), &call).expect_err("too long").to_string();
        assert!(error.contains("longer than"), "{error}");
    }
}
