//! Asking for less gives the same of what is asked for, and what the model has not is refused.

mod common;

use common::{ALL, CPU, Expected, bits, explain, explain_on, open, same, settings, structure};
use vitreous_engine::Device;
use vitreous_explain::{Choice, Classes, ExplainError, Explainer, Fusion, Settings};
use vitreous_models::Model;

#[test]
fn chosen_layers_and_heads_are_the_same_parts_of_everything() {
    let (model, expected) = (open("class_token"), Expected::of("class_token"));
    let pixels = expected.of_image("images", 0);
    let everything = explain(&model, settings(&model, &expected), &pixels);
    let choice = Choice::of(structure(&model), Some(&[2, 0, 2]), Some(&[3, 1])).expect("there are these");
    assert_eq!(choice, Choice { layers: vec![0, 2], heads: vec![1, 3] });
    // In any order, too, if somebody makes it by hand.
    let by_hand = Choice { layers: vec![2, 0, 2], heads: vec![3, 1] };
    for (choice, memory) in [(&choice, 1 << 20), (&choice, 0), (&by_hand, 1 << 20), (&by_hand, 0)] {
        let some = explain(&model, Settings { choice: choice.clone(), memory, ..settings(&model, &expected) }, &pixels);
        assert_eq!(some.attention.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [0, 2]);
        for layer in &some.attention {
            assert_eq!(layer.heads, [1, 3]);
            let whole = &everything.attention[layer.layer];
            let one_head = whole.weights.len() / 4;
            let parts = [1, 3].map(|head| whole.weights[head * one_head..(head + 1) * one_head].to_vec()).concat();
            assert_eq!(bits(&layer.weights), bits(&parts));
            assert_eq!(layer.distance, [whole.distance[1], whole.distance[3]]);
            assert_eq!(layer.entropy, [whole.entropy[1], whole.entropy[3]]);
        }
        // What is not kept still counts in what is of the whole model.
        let whole = vitreous_explain::Explanation { attention: some.attention.clone(), ..everything.clone() };
        same(&some, &whole);
    }
    let none = Choice::of(structure(&model), Some(&[]), None).expect("none is a choice");
    let none = explain(&model, Settings { choice: none, ..settings(&model, &expected) }, &pixels);
    same(&none, &vitreous_explain::Explanation { attention: Vec::new(), ..everything });
}

#[test]
fn little_memory_and_many_threads_change_no_bit() {
    for name in ALL {
        let (model, expected) = (open(name), Expected::of(name));
        let pixels = expected.of_image("images", 1);
        let usual = explain(&model, settings(&model, &expected), &pixels);
        let one_head = 4 * usual.layout.tokens().pow(2);
        for memory in [0, one_head, 3 * one_head] {
            for threads in [1, 3] {
                let settings = Settings { memory, threads, ..settings(&model, &expected) };
                same(&explain_on(&Device::Cpu { threads }, &model, settings, &pixels), &usual);
            }
        }
    }
}

#[test]
fn the_likeliest_classes_come_first() {
    let (model, expected) = (open("class_token"), Expected::of("class_token"));
    let pixels = expected.of_image("images", 0);
    let with = |classes| explain(&model, Settings { classes, ..settings(&model, &expected) }, &pixels);
    let logits = with(Classes::Top(0)).logits.expect("a head");
    let mut order: Vec<usize> = (0..5).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    for count in [0, 1, 3, 100] {
        let classes: Vec<usize> = with(Classes::Top(count)).relevance.iter().filter_map(|r| r.class).collect();
        assert_eq!(classes, order[..count.min(5)]);
    }
    let (top, these) = (with(Classes::Top(2)), with(Classes::These(vec![order[1], order[0]])));
    assert_eq!(bits(&top.relevance[0].patches), bits(&these.relevance[1].patches));
    assert_eq!(bits(&top.relevance[1].patches), bits(&these.relevance[0].patches));
}

#[test]
fn nothing_asked_for_is_nothing_given() {
    let (model, expected) = (open("dinov2_registers"), Expected::of("dinov2_registers"));
    let pixels = expected.of_image("images", 0);
    for (fusions, discards) in [(vec![], vec![0.5]), (vec![Fusion::Max], vec![])] {
        let choice = Choice { layers: vec![], heads: vec![] };
        let nothing =
            Settings { choice, fusions, discards, classes: Classes::These(vec![]), ..settings(&model, &expected) };
        let explanation = explain(&model, nothing, &pixels);
        assert!(explanation.attention.is_empty() && explanation.rollout.is_empty());
        assert!(explanation.relevance.is_empty() && explanation.logits.is_none());
    }
}

fn refusal(model: &Model, change: impl FnOnce(&mut Settings)) -> String {
    let mut settings = Settings::usual(structure(&model), 1);
    change(&mut settings);
    Explainer::new(model, settings, &CPU).err().expect("refused").to_string()
}

#[test]
fn what_the_model_has_not_is_refused_with_what_it_has() {
    let model = open("class_token");
    let layer = |error: ExplainError| error.to_string();
    let error = Choice::of(structure(&model), Some(&[0, 3]), None).expect_err("three layers");
    assert_eq!(layer(error), "there is no layer 3: the model has 3 layers, 0 to 2");
    let error = Choice::of(structure(&model), None, Some(&[4])).expect_err("four heads");
    assert_eq!(layer(error), "there is no head 4: the model has 4 heads, 0 to 3");
    assert!(refusal(&model, |s| s.choice.layers.push(12)).contains("no layer 12"));
    let classes = refusal(&model, |s| s.classes = Classes::These(vec![1, 5]));
    assert_eq!(classes, "there is no class 5: the model has 5 classes, 0 to 4");
    for discard in [1.0, -0.1, f32::NAN] {
        assert!(refusal(&model, |s| s.discards.push(discard)).contains("from 0 on and below 1"));
    }
    let without = open("dinov2_registers");
    assert!(refusal(&without, |s| s.classes = Classes::These(vec![1])).contains("this model has no head"));

    let mut explainer = Explainer::new(&model, Settings::usual(structure(&model), 1), &CPU).expect("ready");
    let error = explainer.explain(&[0.0; 10]).expect_err("too few").to_string();
    let expected = "10 numbers were passed as an image, but the model sees 3 channels of 16x16: 768 numbers";
    assert_eq!(error, expected);
}

#[test]
fn images_that_are_no_numbers_do_not_stop_it() {
    for name in ALL {
        let (model, expected) = (open(name), Expected::of(name));
        let mut pixels = expected.of_image("images", 0);
        for bad in [f32::NAN, f32::INFINITY] {
            pixels[7] = bad;
            let explanation = explain(&model, settings(&model, &expected), &pixels);
            assert!(explanation.rollout[0].patches.iter().any(|x| x.is_nan()), "{name}");
            assert!(explanation.relevance[0].patches.iter().any(|x| x.is_nan()), "{name}");
        }
    }
}
