//! Measures of answers against scikit-learn, scipy, seqeval and the official evaluation of SQuAD.

use serde::Deserialize;
use vitreous_train::measures::{
    Average, ClassMeasures, EntityMeasures, Scheme, entities, exact_match, normalized_answer, pearson, spearman, squad,
    squad2, token_f1,
};

#[derive(Deserialize)]
struct Fixture {
    classes: Vec<Classes>,
    several: Vec<Several>,
    correlations: Vec<Correlation>,
    answers: Vec<Answer>,
    entities: Vec<Entities>,
    answers2: Vec<Answer2>,
}

#[derive(Deserialize)]
struct Classes {
    expected: Vec<usize>,
    predicted: Vec<usize>,
    accuracy: f64,
    matthews: f64,
    micro: [f64; 3],
    r#macro: [f64; 3],
    binary: [f64; 3],
}

#[derive(Deserialize)]
struct Several {
    classes: usize,
    expected: Vec<bool>,
    predicted: Vec<bool>,
    accuracy: f64,
    micro: [f64; 3],
    r#macro: [f64; 3],
}

#[derive(Deserialize)]
struct Correlation {
    expected: Vec<f64>,
    predicted: Vec<f64>,
    pearson: Option<f64>,
    spearman: Option<f64>,
}

#[derive(Deserialize)]
struct Answer {
    answer: String,
    expected: Vec<String>,
    normalized: String,
    exact: f64,
    f1: f64,
}

#[derive(Deserialize)]
struct Answer2 {
    answer: String,
    expected: Vec<String>,
    exact: f64,
    f1: f64,
}

#[derive(Deserialize)]
struct Entities {
    scheme: String,
    expected: Vec<Vec<String>>,
    predicted: Vec<Vec<String>>,
    micro: [f64; 3],
    r#macro: [f64; 3],
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/measures.json")).expect("a fixture")
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64], about: &str) {
    let is_near =
        |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-12 || (found.is_nan() && expected.is_nan());
    assert!(found.iter().zip(expected).all(is_near), "{about}: {found:?}, but {expected:?} is expected");
}

fn three(measures: &ClassMeasures, how: Average) -> [f64; 3] {
    [measures.precision(how), measures.recall(how), measures.f1(how)]
}

#[test]
fn one_class_per_example_is_measured_as_scikit_learn_does() {
    let cases = fixture().classes;
    assert!(cases.len() > 20);
    for case in cases {
        let about = format!("{:?} for {:?}", case.predicted, case.expected);
        let measures = ClassMeasures::of(&case.expected, &case.predicted);
        assert_near(&[measures.accuracy(), measures.matthews()], &[case.accuracy, case.matthews], &about);
        assert_near(&three(&measures, Average::Micro), &case.micro, &about);
        assert_near(&three(&measures, Average::Macro), &case.r#macro, &about);
        assert_near(&three(&measures, Average::Binary(1)), &case.binary, &about);
    }
}

#[test]
fn several_classes_per_example_are_measured_as_scikit_learn_does() {
    for case in fixture().several {
        let about = format!("{:?} for {:?}", case.predicted, case.expected);
        let measures = ClassMeasures::of_several(&case.expected, &case.predicted, case.classes);
        assert_near(&[measures.accuracy()], &[case.accuracy], &about);
        assert_near(&three(&measures, Average::Micro), &case.micro, &about);
        assert_near(&three(&measures, Average::Macro), &case.r#macro, &about);
    }
}

#[test]
fn measures_of_nothing_are_undefined_or_zero() {
    let measures = ClassMeasures::of(&[], &[]);
    assert!(measures.accuracy().is_nan());
    assert_eq!((measures.f1(Average::Macro), measures.f1(Average::Micro), measures.matthews()), (0.0, 0.0, 0.0));
    assert_eq!(measures.f1(Average::Binary(3)), 0.0);
    assert!(pearson(&[], &[]).is_nan() && spearman(&[1.0], &[2.0]).is_nan());
    assert!(spearman(&[1.0, f64::NAN], &[1.0, 2.0]).is_nan());
    assert!(squad::<&str, &str>(&[], &[]).0.is_nan());
}

#[test]
fn correlations_are_scipys() {
    for case in fixture().correlations {
        let expected = [case.pearson, case.spearman].map(|value| value.unwrap_or(f64::NAN));
        let found = [pearson(&case.expected, &case.predicted), spearman(&case.expected, &case.predicted)];
        assert_near(&found, &expected, &format!("{:?} and {:?}", case.expected, case.predicted));
    }
}

#[test]
fn answers_are_compared_as_squads_evaluation_does() {
    let cases = fixture().answers;
    for case in &cases {
        assert_eq!(normalized_answer(&case.answer), case.normalized, "{:?}", case.answer);
        let is_exact = case.expected.iter().any(|expected| exact_match(expected, &case.answer));
        let f1 = case.expected.iter().map(|expected| token_f1(expected, &case.answer)).fold(0.0, f64::max);
        assert_near(&[f64::from(u8::from(is_exact)), f1], &[case.exact, case.f1], &format!("{:?}", case.answer));
    }
    let expected: Vec<Vec<&str>> =
        cases.iter().map(|case| case.expected.iter().map(String::as_str).collect()).collect();
    let answers: Vec<&str> = cases.iter().map(|case| case.answer.as_str()).collect();
    let mean = |number: fn(&Answer) -> f64| cases.iter().map(number).sum::<f64>() / cases.len() as f64;
    let (exact, f1) = squad(&expected, &answers);
    assert_near(&[exact, f1], &[mean(|case| case.exact), mean(|case| case.f1)], "all");
}

#[test]
fn answers_that_may_be_missing_are_compared_as_squad_2_does() {
    let cases = fixture().answers2;
    assert!(cases.iter().any(|case| case.expected.is_empty() && case.exact == 1.0));
    for case in &cases {
        let (exact, f1) = squad2(std::slice::from_ref(&case.expected), &[&case.answer]);
        assert_near(&[exact, f1], &[case.exact, case.f1], &format!("{:?} for {:?}", case.answer, case.expected));
    }
    let (expected, answers): (Vec<_>, Vec<_>) =
        cases.iter().map(|case| (case.expected.clone(), case.answer.as_str())).unzip();
    let mean = |number: fn(&Answer2) -> f64| cases.iter().map(number).sum::<f64>() / cases.len() as f64;
    let (exact, f1) = squad2(&expected, &answers);
    assert_near(&[exact, f1], &[mean(|case| case.exact), mean(|case| case.f1)], "all");
}

fn scheme(name: &str) -> Scheme {
    match name {
        "lenient" => Scheme::Lenient,
        "iob1" => Scheme::StrictIob1,
        "iob2" => Scheme::StrictIob2,
        "ioe1" => Scheme::StrictIoe1,
        "ioe2" => Scheme::StrictIoe2,
        "iobes" => Scheme::StrictIobes,
        "bilou" => Scheme::StrictBilou,
        name => panic!("{name}"),
    }
}

#[test]
fn entities_are_found_and_counted_as_seqeval_does() {
    let cases = fixture().entities;
    assert!(cases.len() > 150);
    for case in cases {
        let about = format!("{}: {:?} for {:?}", case.scheme, case.predicted, case.expected);
        let measures = EntityMeasures::of(&case.expected, &case.predicted, scheme(&case.scheme)).expect("known tags");
        let three = |how| [measures.precision(how), measures.recall(how), measures.f1(how)];
        assert_near(&three(Average::Micro), &case.micro, &about);
        assert_near(&three(Average::Macro), &case.r#macro, &about);
    }
}

#[test]
fn an_entity_that_does_not_begin_as_its_scheme_demands_counts_only_where_that_is_allowed() {
    let tags = ["O", "I-PER", "I-PER", "B-LOC", "I-PER"];
    let found = |scheme| entities(&tags, scheme).expect("known tags").len();
    assert_eq!((found(Scheme::Lenient), found(Scheme::StrictIob2)), (3, 1));
    let error = entities(&["O", "X-PER"], Scheme::StrictIob2).expect_err("an unknown tag");
    assert!(error.contains("X-PER"), "{error}");
}
