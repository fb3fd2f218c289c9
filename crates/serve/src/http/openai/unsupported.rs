//! Fields of OpenAI's API that would change an answer, and that this server has not. They are refused, unless they ask for what is done
//! anyway.

use serde::Deserialize;
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::refusal::Refusal;

/// What is refused.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct UnsupportedFields {
    /// Must be 0
    #[schema(value_type = Option<f32>)]
    presence_penalty: Option<Json>,
    /// Must be 0
    #[schema(value_type = Option<f32>)]
    frequency_penalty: Option<Json>,
    /// Must be empty
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Json>,
    /// Must be the same as `n`
    #[schema(value_type = Option<usize>)]
    best_of: Option<Json>,
    /// Must be empty
    #[schema(value_type = Option<String>)]
    suffix: Option<Json>,
    /// Must be empty
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Json>,
    /// Must be `none` or `auto`
    #[schema(value_type = Option<String>)]
    tool_choice: Option<Json>,
    /// Must be empty
    #[schema(value_type = Option<Vec<Object>>)]
    functions: Option<Json>,
    /// Must be `none` or `auto`
    #[schema(value_type = Option<String>)]
    function_call: Option<Json>,
    /// Must be `["text"]`
    #[schema(value_type = Option<Vec<String>>)]
    modalities: Option<Json>,
    /// Must be left out
    #[schema(value_type = Option<Object>)]
    audio: Option<Json>,
    /// Must be left out
    #[schema(value_type = Option<Object>)]
    web_search_options: Option<Json>,
    /// Must be `none`
    #[schema(value_type = Option<String>)]
    reasoning_effort: Option<Json>,
    /// Must be left out
    #[schema(value_type = Option<String>)]
    verbosity: Option<Json>,
}

impl UnsupportedFields {
    /// Refuses what asks for more than there is; `count` is how many texts are asked for.
    pub fn check(&self, count: usize) -> Result<(), Refusal> {
        let is_empty = |value: &Json| {
            value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty)
                || value.as_str().is_some_and(str::is_empty)
        };
        let is_zero = |value: &Json| value.as_f64() == Some(0.0);
        let is_no_choice = |value: &Json| matches!(value.as_str(), Some("none" | "auto"));
        let never = |_: &Json| false;
        let penalty = "; `repetition_penalty` makes tokens that came less likely";
        type Rule<'r> = (&'static str, &'r Option<Json>, &'r dyn Fn(&Json) -> bool, &'r str);
        let rules: [Rule; 14] = [
            ("presence_penalty", &self.presence_penalty, &is_zero, penalty),
            ("frequency_penalty", &self.frequency_penalty, &is_zero, penalty),
            ("logit_bias", &self.logit_bias, &is_empty, ""),
            ("best_of", &self.best_of, &|value| value.as_u64() == Some(count as u64), " unless it is the same as `n`"),
            ("suffix", &self.suffix, &is_empty, ""),
            ("tools", &self.tools, &is_empty, ""),
            ("tool_choice", &self.tool_choice, &is_no_choice, ""),
            ("functions", &self.functions, &is_empty, ""),
            ("function_call", &self.function_call, &is_no_choice, ""),
            ("modalities", &self.modalities, &|value| *value == serde_json::json!(["text"]), ": answers are text"),
            ("audio", &self.audio, &never, ": answers are text"),
            ("web_search_options", &self.web_search_options, &never, ""),
            ("reasoning_effort", &self.reasoning_effort, &|value| value.as_str() == Some("none"), ""),
            ("verbosity", &self.verbosity, &never, ""),
        ];
        for (name, value, is_harmless, more) in rules {
            if value.as_ref().is_some_and(|value| !value.is_null() && !is_harmless(value)) {
                return Err(Refusal::field(name, format!("`{name}` is not supported{more}")));
            }
        }
        Ok(())
    }
}
