//! What can go wrong, said so that the reader knows what, where, and what to do.

use crate::types::Type;

/// A result with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op got shapes, formats or settings that its rule does not allow.
    #[error("{op} at `{path}`: {rule}{}", got(.inputs))]
    Rule {
        /// The op.
        op: &'static str,
        /// Where in the model.
        path: String,
        /// What was passed.
        inputs: Vec<Type>,
        /// The rule that was broken.
        rule: String,
    },
    /// A gradient was asked for that does not exist.
    #[error("no gradient: {op} at `{path}`: {reason}")]
    NoGradient {
        /// The op.
        op: &'static str,
        /// Where in the model.
        path: String,
        /// Why there is none.
        reason: String,
    },
    /// A name was used twice.
    #[error("`{name}` is there already: names of {what} must differ")]
    Duplicate {
        /// Inputs, parameters ...
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name is not known.
    #[error("no {what} is called `{name}`{}", hint(.known))]
    Unknown {
        /// Input, parameter ...
        what: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Data of the wrong size or format was passed to a plan.
    #[error("{what} `{name}` holds {expected}, but {got} was asked for or passed")]
    Data {
        /// Input, output, parameter ...
        what: &'static str,
        /// Its name.
        name: String,
        /// What it is.
        expected: String,
        /// What came.
        got: String,
    },
    /// A number in the data is outside its range, e.g. a token beyond the vocabulary.
    #[error("{op} at `{path}`: {value} at position {position} is not in 0..{limit}")]
    OutOfRange {
        /// The op.
        op: &'static str,
        /// Where in the model.
        path: String,
        /// The offending number.
        value: i64,
        /// Its position in the input.
        position: usize,
        /// The number of allowed values.
        limit: usize,
    },
    /// The machine refused memory or threads.
    #[error("{0}")]
    Machine(String),
}

fn got(inputs: &[Type]) -> String {
    if inputs.is_empty() {
        return String::new();
    }
    let list: Vec<String> = inputs.iter().map(Type::to_string).collect();
    format!("; got {}", list.join(" and "))
}

fn hint(known: &[String]) -> String {
    match known.len() {
        0 => "; there are none".to_string(),
        1..=12 => format!("; there are: {}", known.join(", ")),
        n => format!("; there are {n}, among them {}", known[..6].join(", ")),
    }
}
