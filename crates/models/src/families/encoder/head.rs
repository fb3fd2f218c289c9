//! The head of a checkpoint: from the name of Hugging Face's class, the configuration, and the tensors that are there.

use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object};
use crate::family::Checkpoint;
use crate::settings::Settings;
use crate::signature::Head;

/// Names of a model's classes and of its heads' tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadNames {
    /// The beginning of its classes' names: `Bert`.
    pub class: &'static str,
    /// Whether the class for pre-training has a masked-token head.
    pub pretrains_masked: bool,
    /// The beginning of the masked-token head's tensors.
    pub masked: &'static str,
    /// The output matrix of the head for the class of a text.
    pub text_output: &'static str,
    /// The beginning of tensors that a head for the class of a text needs, and one for classes of tokens does not.
    pub text_only: &'static str,
}

/// The output matrix of a head for classes of tokens, in every model.
const TOKEN_OUTPUT: &str = "classifier.weight";

/// No head has more outputs without names of its own, unless a configuration is hostile.
const MOST_NAMED: usize = 1 << 16;

/// The head that was found.
pub(crate) struct HeadReading {
    pub head: Head,
    /// Whether the configuration says what the outputs for a text mean.
    pub states_problem: bool,
    /// Names of its outputs; empty if there are none.
    pub labels: Vec<String>,
    /// What the user should know about it.
    pub notes: Vec<String>,
}

/// The kinds of heads that have a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Encoder,
    Masked,
    Text,
    Tokens,
    Span,
}

/// Reads the head. `prefix` stands before all names of the file.
pub(crate) fn read_head(
    checkpoint: &Checkpoint,
    object: &Object,
    names: &HeadNames,
    prefix: &str,
) -> Result<HeadReading, Fault> {
    let replaced = checkpoint.options.replace_head.is_some();
    let begins = |start: &str| {
        let start = format!("{prefix}{start}");
        let next = checkpoint.tensors.and_then(|tensors| tensors.range(start.clone()..).next());
        next.is_some_and(|(name, _)| name.starts_with(&start))
    };
    let mark = |kind: Kind| match kind {
        Kind::Encoder => "",
        Kind::Masked => names.masked,
        Kind::Text | Kind::Tokens => "classifier.",
        Kind::Span => "qa_outputs.",
    };
    let mut notes = Vec::new();
    let class = class(object)?;
    let mut kind = match class {
        Some(class) => kind_of(object, names, class, &mut notes)?,
        None if begins(mark(Kind::Span)) => Kind::Span,
        None if begins(mark(Kind::Text)) && begins(names.text_only) => Kind::Text,
        None if begins(mark(Kind::Tokens)) => Kind::Tokens,
        None if begins(mark(Kind::Masked)) => Kind::Masked,
        None => Kind::Encoder,
    };
    let lacks = checkpoint.tensors.is_some() && kind != Kind::Encoder && !begins(mark(kind));
    let outputs = match kind {
        Kind::Text if !lacks => count(checkpoint, object, &format!("{prefix}{}", names.text_output))?,
        Kind::Tokens if !lacks => count(checkpoint, object, &format!("{prefix}{TOKEN_OUTPUT}"))?,
        _ => 0,
    };
    let mut head = match kind {
        Kind::Encoder => Head::None,
        Kind::Masked => Head::MaskedTokens,
        Kind::Tokens => Head::TokenClasses(outputs),
        Kind::Span => Head::Span,
        Kind::Text => of_text(object, outputs)?,
    };
    if lacks {
        let command = head.trained_by().map(|command| format!("; `vitreous {command}` trains one"));
        let class = class.unwrap_or_default();
        let purpose = head.purpose();
        notes.push(format!("the file has no head for {purpose}, as {class} would have{}", command.unwrap_or_default()));
        (head, kind) = (Head::None, Kind::Encoder);
    }
    if replaced {
        notes.clear();
    }
    let labels = match kind {
        Kind::Text | Kind::Tokens => match object.labels("id2label")? {
            Some(labels) => labels,
            // The names that transformers gives them, and writes.
            None if outputs <= MOST_NAMED => (0..outputs).map(|output| format!("LABEL_{output}")).collect(),
            None => Vec::new(),
        },
        Kind::Encoder | Kind::Masked | Kind::Span => Vec::new(),
    };
    let labels = if labels.len() == outputs { labels } else { Vec::new() };
    let states_problem = kind != Kind::Text || object.get("problem_type").is_some();
    Ok(HeadReading { head, states_problem, labels, notes })
}

/// The name of Hugging Face's class.
fn class<'a>(object: &Object<'a>) -> Result<Option<&'a str>, Fault> {
    let key = "architectures";
    match object.get(key) {
        None => Ok(None),
        Some(Value::Array(names)) if names.is_empty() => Ok(None),
        Some(Value::Array(names)) => match names[0].as_str() {
            Some(name) => Ok(Some(name)),
            None => Err(object.fault(key, "should be a list of names".to_string())),
        },
        Some(_) => Err(object.fault(key, "should be a list of names".to_string())),
    }
}

fn kind_of(object: &Object, names: &HeadNames, class: &str, notes: &mut Vec<String>) -> Result<Kind, Fault> {
    let masked = names.pretrains_masked;
    Ok(match class.strip_prefix(names.class) {
        Some("Model") => Kind::Encoder,
        Some("ForMaskedLM") => Kind::Masked,
        Some("ForPreTraining") if masked => Kind::Masked,
        Some("ForSequenceClassification") => Kind::Text,
        Some("ForTokenClassification") => Kind::Tokens,
        Some("ForQuestionAnswering") => Kind::Span,
        Some("ForPreTraining" | "ForNextSentencePrediction" | "ForMultipleChoice") => {
            notes.push(format!("the head of {class} is not supported: it is opened without it"));
            Kind::Encoder
        }
        _ => {
            let class: String = class.chars().take(120).collect();
            let known = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"];
            let known = known.map(|class| format!("{}{class}", names.class)).join(", ");
            let what = format!("{class:?} is not supported; {known} and {}ForQuestionAnswering are", names.class);
            return Err(object.fault("architectures", what));
        }
    })
}

/// The number of a head's outputs: that of the tensor and that of the configuration, which must agree.
fn count(checkpoint: &Checkpoint, object: &Object, tensor: &str) -> Result<usize, Fault> {
    let names = object.labels("id2label")?.map(|names| names.len());
    let said = names.filter(|count| *count > 0).or(object.size("num_labels")?);
    let rows = checkpoint.tensors.and_then(|tensors| tensors.get(tensor)?.first().copied());
    match (rows, said) {
        (Some(rows), Some(said)) if rows != said && checkpoint.options.replace_head.is_none() => {
            Err(Fault::whole(format!("the configuration has {said} classes, but `{tensor}` has {rows}")))
        }
        (rows, said) => Ok(rows.or(said).unwrap_or(2)),
    }
}

/// The head for a text: `problem_type`, or regression if there is only one output.
fn of_text(object: &Object, outputs: usize) -> Result<Head, Fault> {
    let key = "problem_type";
    Ok(match (object.text(key)?, outputs) {
        (Some("single_label_classification"), _) => Head::Classes(outputs),
        (Some("multi_label_classification"), _) => Head::Labels(outputs),
        (Some("regression"), _) | (None, 1) => Head::Numbers(outputs),
        (None, _) => Head::Classes(outputs),
        (Some(other), _) => {
            let other: String = other.chars().take(120).collect();
            let known = "single_label_classification, multi_label_classification and regression are";
            return Err(object.fault(key, format!("{other:?} is not supported; {known}")));
        }
    })
}

/// Hugging Face's class of a model with this head.
pub(crate) fn class_of_head(names: &HeadNames, head: Head, pooler: bool) -> String {
    let class = match head {
        Head::None => "Model",
        // The class for pre-training has a pooler, under a second head.
        Head::MaskedTokens if pooler && names.pretrains_masked => "ForPreTraining",
        Head::MaskedTokens => "ForMaskedLM",
        Head::Classes(_) | Head::Labels(_) | Head::Numbers(_) => "ForSequenceClassification",
        Head::TokenClasses(_) => "ForTokenClassification",
        Head::Span => "ForQuestionAnswering",
    };
    format!("{}{class}", names.class)
}

/// Writes what the outputs for a text mean.
pub(crate) fn put_problem_type(config: &mut Settings, head: Head) {
    let problem = match head {
        Head::Classes(_) => "single_label_classification",
        Head::Labels(_) => "multi_label_classification",
        Head::Numbers(_) => "regression",
        Head::None | Head::TokenClasses(_) | Head::Span | Head::MaskedTokens => return,
    };
    config.insert("problem_type".to_string(), json!(problem));
}
