//! A small validator of JSON schemas for tests: what the keywords mean, without the grammar engine.

use serde_json::Value;

/// What is wrong with a value, if something is.
pub fn violation(schema: &Value, root: &Value, value: &Value) -> Option<String> {
    let Some(object) = schema.as_object() else {
        return (schema == &Value::Bool(false)).then(|| format!("{value} where nothing may be"));
    };
    object.iter().find_map(|(keyword, rule)| {
        let holds = holds(keyword, rule, object, root, value);
        (!holds).then(|| format!("{value} against {keyword}: {rule}"))
    })
}

fn is_valid(schema: &Value, root: &Value, value: &Value) -> bool {
    violation(schema, root, value).is_none()
}

fn holds(keyword: &str, rule: &Value, schema: &serde_json::Map<String, Value>, root: &Value, value: &Value) -> bool {
    let number = || rule.as_f64().expect("a number");
    let count = || rule.as_u64().expect("a count") as usize;
    let schemas = || rule.as_array().expect("schemas").iter();
    match keyword {
        "$defs" | "definitions" | "description" | "title" => true,
        "$ref" => {
            let path = rule.as_str().and_then(|path| path.strip_prefix('#')).expect("a local reference");
            is_valid(root.pointer(path).expect("a definition"), root, value)
        }
        "type" => match rule {
            Value::Array(types) => types.iter().any(|name| is_of_type(name, value)),
            name => is_of_type(name, value),
        },
        "enum" => schemas().any(|known| known == value),
        "const" => rule == value,
        "anyOf" => schemas().any(|schema| is_valid(schema, root, value)),
        "oneOf" => schemas().filter(|schema| is_valid(schema, root, value)).count() == 1,
        "allOf" => schemas().all(|schema| is_valid(schema, root, value)),
        "properties" => value.as_object().is_none_or(|object| {
            let rules = rule.as_object().expect("schemas");
            rules.iter().all(|(key, schema)| object.get(key).is_none_or(|value| is_valid(schema, root, value)))
        }),
        "required" => value
            .as_object()
            .is_none_or(|object| schemas().all(|key| object.contains_key(key.as_str().expect("a key")))),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let known = |key: &String| schema.get("properties").is_some_and(|properties| properties.get(key).is_some());
            object.iter().all(|(key, value)| known(key) || is_valid(rule, root, value))
        }),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| is_valid(rule, root, item))),
        "minItems" => value.as_array().is_none_or(|items| items.len() >= count()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() <= count()),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= count()),
        "maxLength" => value.as_str().is_none_or(|text| text.chars().count() <= count()),
        "pattern" => value.as_str().is_none_or(|text| {
            regex::Regex::new(rule.as_str().expect("a pattern")).expect("an expression").is_match(text)
        }),
        "format" => value.as_str().is_none_or(|text| is_date(rule, text)),
        "minimum" => value.as_f64().is_none_or(|value| value >= number()),
        "maximum" => value.as_f64().is_none_or(|value| value <= number()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number()),
        "exclusiveMaximum" => value.as_f64().is_none_or(|value| value < number()),
        other => panic!("{other} is not a keyword of these tests"),
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn is_date(format: &Value, text: &str) -> bool {
    assert_eq!(format, "date");
    let parts: Vec<Option<u32>> = text.split('-').map(|part| part.parse().ok()).collect();
    match parts[..] {
        [Some(_), Some(month), Some(day)] => text.len() == 10 && (1..=12).contains(&month) && (1..=31).contains(&day),
        _ => false,
    }
}
