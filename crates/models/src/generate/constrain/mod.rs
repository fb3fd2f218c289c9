//! Text that must match a regular expression or a JSON schema.
//!
//! The grammar engine is `llguidance`: a lexer of derivatives of regular expressions and an Earley parser above it, which walk the trie of a
//! vocabulary's byte strings. Its limits bound what a hostile schema or expression can take; beyond them there is an error.

mod vocabulary;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod validate;

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::constraint::{TokenConstraint, TokenMask};
pub use vocabulary::TokenBytes;

/// The most bytes of a schema or an expression.
const MOST_BYTES: usize = 1 << 20;
/// Characters of an error of the grammar engine that are shown.
const MOST_REASON: usize = 300;

/// What a text must be.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputFormat {
    /// A match of a regular expression, from its first to its last letter. The syntax is that of Rust's `regex`.
    Regex(String),
    /// JSON that a schema describes.
    JsonSchema(Value),
    /// Any JSON value.
    Json,
}

/// A format that cannot be followed: what, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(String);

/// Makes constraints for a model's vocabulary.
pub struct Constrainer {
    factory: ParserFactory,
}

impl Constrainer {
    /// Prepares a vocabulary.
    pub fn new(vocabulary: &TokenBytes) -> Result<Constrainer, FormatError> {
        let factory = ParserFactory::new_simple(&vocabulary.environment()?);
        let mut factory = factory.map_err(|error| FormatError(shortened(&error.to_string())))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        // Otherwise a large expression is run against the whole vocabulary before the first token.
        factory.limits_mut().precompute_large_lexemes = false;
        Ok(Constrainer { factory })
    }

    /// The constraint that a text has this format. Each sequence needs one of its own: [`FormatConstraint::again`] makes more.
    pub fn constraint(&self, format: &OutputFormat) -> Result<FormatConstraint, FormatError> {
        let grammar = match format {
            OutputFormat::Regex(expression) => {
                check_size("regular expression", expression.len())?;
                TopLevelGrammar::from_regex(unanchored(expression))
            }
            OutputFormat::JsonSchema(schema) => {
                check_size("JSON schema", schema.to_string().len())?;
                TopLevelGrammar::from_json_schema(as_written(schema.clone())?)
            }
            OutputFormat::Json => TopLevelGrammar::from_json_schema(as_written(json!({}))?),
        };
        let refused = |reason: String| {
            let what = match format {
                OutputFormat::Regex(_) => "the regular expression",
                OutputFormat::JsonSchema(_) => "the JSON schema",
                OutputFormat::Json => "any JSON",
            };
            FormatError(format!("{what} cannot be followed: {}", shortened(&reason)))
        };
        let parser = self.factory.create_parser(grammar).map_err(|error| refused(error.to_string()))?;
        let mut constraint = FormatConstraint::of(Matcher::new(Ok(parser)));
        let mut mask = TokenMask::new(self.factory.tok_env().tok_trie().vocab_size());
        constraint.allowed(&mut mask);
        // The engine names why it stopped.
        let ends = [StopReason::NoExtension, StopReason::NoExtensionBias].map(|reason| format!("{reason:?}"));
        match constraint.error() {
            Some(error) if !ends.contains(&error) => Err(refused(error)),
            None if !mask.is_empty() || constraint.may_end => Ok(constraint),
            _ => Err(refused("no text of this vocabulary does what it asks for".to_string())),
        }
    }
}

/// Follows the tokens of one sequence.
pub struct FormatConstraint {
    matcher: Matcher,
    may_end: bool,
}

impl FormatConstraint {
    fn of(matcher: Matcher) -> FormatConstraint {
        let mut constraint = FormatConstraint { matcher, may_end: false };
        constraint.look();
        constraint
    }

    /// The same for another sequence, from where this one is.
    pub fn again(&self) -> FormatConstraint {
        FormatConstraint { matcher: self.matcher.deep_clone(), may_end: self.may_end }
    }

    /// Why it cannot go on, if so: the format took more work than is allowed.
    pub fn error(&self) -> Option<String> {
        self.matcher.get_error().map(|error| shortened(&error))
    }

    fn look(&mut self) {
        self.may_end = self.matcher.is_accepting().unwrap_or(false);
    }
}

impl TokenConstraint for FormatConstraint {
    fn allowed(&mut self, mask: &mut TokenMask) {
        if self.matcher.is_stopped() {
            return;
        }
        // After an error no token is allowed, and the text may not end: the sequence stops.
        let Ok(found) = self.matcher.compute_mask() else {
            self.may_end = false;
            return;
        };
        found.iter_set_entries(|token| {
            if let Ok(token) = u32::try_from(token) {
                mask.allow(token);
            }
        });
    }

    fn accept(&mut self, token: u32) {
        if self.matcher.consume_token(token).is_err() {
            self.may_end = false;
            return;
        }
        self.look();
    }

    fn may_end(&self) -> bool {
        self.may_end
    }
}

/// The schema with how its JSON is written: a space behind commas and colons or none, as `json.dumps` and most compact writers do, so that
/// a model cannot go on with spaces forever. The engine's own settings are not for those who give schemas.
fn as_written(mut schema: Value) -> Result<Value, FormatError> {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    match schema.as_object_mut() {
        Some(object) => {
            let settings = json!({"whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?"});
            object.insert("x-guidance".to_string(), settings);
            Ok(schema)
        }
        None => Err(FormatError("a JSON schema is an object, such as {\"type\": \"object\"}".to_string())),
    }
}

/// The expression matches the whole text anyway.
fn unanchored(expression: &str) -> &str {
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    match expression.strip_suffix('$') {
        Some(rest) if rest.chars().rev().take_while(|letter| *letter == '\\').count() % 2 == 0 => rest,
        _ => expression,
    }
}

fn check_size(what: &str, bytes: usize) -> Result<(), FormatError> {
    match bytes > MOST_BYTES {
        true => Err(FormatError(format!("the {what} has {bytes} bytes, but {MOST_BYTES} are the most"))),
        false => Ok(()),
    }
}

/// The first line of a message.
fn shortened(message: &str) -> String {
    // A parser shows the text over several lines, and says what is wrong with it in the last one.
    let first = message.lines().next().unwrap_or_default();
    let reason = message.lines().skip(1).find_map(|line| line.strip_prefix("error: "));
    let line = match reason {
        Some(reason) => format!("{} {reason}", first.trim_end()),
        None => first.to_string(),
    };
    match line.char_indices().nth(MOST_REASON) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_string(),
    }
}
