//! The engine's errors. Each says what went wrong, where, and what to do.

use crate::types::Type;

/// A result with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An engine error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op got shapes, dtypes or settings that it does not accept.
    #[error("{op} at `{path}`: {rule}{}", got(.inputs))]
    Rule {
        /// The op.
        op: &'static str,
        /// Its path in the model.
        path: String,
        /// The types of its inputs.
        inputs: Vec<Type>,
        /// The requirement that is not met.
        rule: String,
    },
    /// A gradient was requested that does not exist.
    #[error("no gradient: {op} at `{path}`: {reason}")]
    NoGradient {
        /// The op.
        op: &'static str,
        /// Its path in the model.
        path: String,
        /// Why there is none.
        reason: String,
    },
    /// A name was used twice.
    #[error("`{name}` already exists: names of {what} must differ")]
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
        /// The existing names.
        known: Vec<String>,
    },
    /// Data of the wrong size or dtype was passed to a plan.
    #[error("{what} `{name}` holds {expected}, but {got} was asked for or passed")]
    Data {
        /// Input, output, parameter ...
        what: &'static str,
        /// Its name.
        name: String,
        /// The expected type or size.
        expected: String,
        /// The type or size that was passed.
        got: String,
    },
    /// A value in the data is out of range, e.g. a token id beyond the vocabulary.
    #[error("{op} at `{path}`: {value} at position {position} is not in 0..{limit}")]
    OutOfRange {
        /// The op.
        op: &'static str,
        /// Its path in the model.
        path: String,
        /// The offending value.
        value: i64,
        /// Its position in the input.
        position: usize,
        /// The number of allowed values.
        limit: usize,
    },
    /// An intervention that cannot be done.
    #[error("`{path}` cannot be edited so: {rule}")]
    Intervention {
        /// The value that it is of.
        path: String,
        /// The requirement that is not met.
        rule: String,
    },
    /// Another process of the same run has ended or hangs.
    #[error("rank {rank} {what}")]
    Lost {
        /// Its number.
        rank: usize,
        /// What is known of it.
        what: String,
    },
    /// Something needs more memory than is available.
    #[error("{0}")]
    Memory(String),
    /// The operating system refused memory or threads.
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
