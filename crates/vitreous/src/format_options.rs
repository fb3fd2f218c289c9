//! `--json-schema` and `--regex`: what a text must be.

use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use vitreous_runtime::language::OutputFormat;

use crate::failure::Failure;

/// The largest file of a schema.
const MOST_SCHEMA_BYTES: u64 = 1 << 20;

/// What a text must be.
#[derive(Args, Clone, Debug)]
pub struct FormatOptions {
    /// Write JSON that this schema describes: a file, or the schema itself; '{}' is any JSON
    #[arg(long, value_name = "FILE|SCHEMA", conflicts_with = "regex")]
    json_schema: Option<String>,
    /// Write text that this regular expression matches as a whole
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    regex: Option<String>,
}

impl FormatOptions {
    /// The file of the schema, if it is in one.
    pub fn file(&self) -> Option<&Path> {
        self.json_schema.as_deref().filter(|given| !given.trim_start().starts_with('{')).map(Path::new)
    }

    /// The format that was asked for.
    pub fn format(&self) -> Result<Option<OutputFormat>, Failure> {
        if let Some(expression) = &self.regex {
            return Ok(Some(OutputFormat::Regex(expression.clone())));
        }
        let Some(given) = &self.json_schema else { return Ok(None) };
        let (text, from) = match given.trim_start().starts_with('{') {
            true => (given.clone(), "--json-schema".to_string()),
            false => {
                let text = vitreous_files::open::read_text(Path::new(given), MOST_SCHEMA_BYTES);
                (text.map_err(|error| Failure::input(anyhow!("--json-schema {given}: {error}")))?, given.clone())
            }
        };
        let schema = serde_json::from_str(&text);
        let schema = schema.map_err(|error| Failure::input(anyhow!("{from}: this is not JSON: {error}")))?;
        Ok(Some(OutputFormat::JsonSchema(schema)))
    }
}
