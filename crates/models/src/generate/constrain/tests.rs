//! Texts of a model that knows nothing (every allowed token is equally likely) match their formats.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::validate::violation;
use super::{Constrainer, FormatConstraint, OutputFormat, TokenBytes, unanchored};
use crate::generate::{TokenConstraint, TokenMask};

/// Bytes, parts of JSON, words, a special token and an unused one.
fn vocabulary() -> Vec<Option<Vec<u8>>> {
    let bytes = (0u8..=255).map(|byte| Some(vec![byte]));
    let words = [
        "{\"", "\":", "\": \"", "\",", "\", \"", "\"}", "},", "]", "[[", "true", "nul", "l}", "10", "20", "-0", "ab",
        "name", "e\": ",
    ];
    let words = words.into_iter().map(|word| Some(word.as_bytes().to_vec()));
    bytes.chain(words).chain([None, Some(vec![b'x'; 600]), Some("é".as_bytes().to_vec()), None]).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most.max(1)
    }
}

/// Writes a text. Where it may end, it does so one time in three.
fn write(
    constraint: &mut FormatConstraint,
    tokens: &[Option<Vec<u8>>],
    random: &mut Random,
    most: usize,
) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for _ in 0..most {
        let mut mask = TokenMask::new(tokens.len());
        constraint.allowed(&mut mask);
        assert!(constraint.error().is_none(), "{:?}", constraint.error());
        if constraint.may_end() && (mask.is_empty() || random.below(3) == 0) {
            return Some(text);
        }
        assert!(!mask.is_empty(), "stuck after {:?}", String::from_utf8_lossy(&text));
        let allowed: Vec<u32> = mask.iter().collect();
        let token = allowed[random.below(allowed.len())];
        text.extend_from_slice(tokens[token as usize].as_deref().expect("a token that is text"));
        constraint.accept(token);
    }
    None
}

/// How many of some texts were finished; each is shown to `check`.
fn written(format: &OutputFormat, texts: usize, most: usize, mut check: impl FnMut(&str)) -> usize {
    let tokens = vocabulary();
    let constrainer = Constrainer::new(&TokenBytes::new(tokens.clone())).expect("a vocabulary");
    let first = constrainer.constraint(format).unwrap_or_else(|error| panic!("{format:?}: {error}"));
    let mut random = Random(7);
    let whole = |_| write(&mut first.again(), &tokens, &mut random, most);
    let whole: Vec<Vec<u8>> = (0..texts).filter_map(whole).collect();
    for text in &whole {
        check(std::str::from_utf8(text).unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(text))));
    }
    whole.len()
}

#[test]
fn texts_match_their_regular_expression() {
    for expression in [
        "yes|no",
        r"^\d{4}-\d{2}-\d{2}$",
        r"[a-c]{2,5}(, [a-c]{2,5})*\.",
        r"-?(0|[1-9]\d{0,8})(\.\d{1,4})?",
        "(ab|name)+é?",
        r"price: \$[0-9]+/x",
        r"[^\x00-\x7f]{1,3}",
        r"(?i)ok\\",
    ] {
        let anchored = regex::Regex::new(&format!("^(?:{})$", unanchored(expression))).expect("an expression");
        let finished = written(&OutputFormat::Regex(expression.to_string()), 60, 200, |text| {
            assert!(anchored.is_match(text), "{expression}: {text:?}");
        });
        assert!(finished > 50, "{expression}: {finished}");
    }
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
               "required": ["name", "age"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"enum": ["x", 2, null]}},
               "required": ["b"], "additionalProperties": {"type": "integer"}}),
        json!({"type": "array", "items": {"type": "number", "exclusiveMinimum": -1, "maximum": 2.5}, "minItems": 2, "maxItems": 4}),
        json!({"anyOf": [{"const": {"k": [1, "two"]}}, {"type": "string", "pattern": "^[ab]{2,3}$"}, {"type": "boolean"}]}),
        json!({"oneOf": [{"type": "object", "properties": {"kind": {"const": "p"}, "v": {"type": "integer"}}, "required": ["kind", "v"],
                          "additionalProperties": false},
                         {"type": "object", "properties": {"kind": {"const": "q"}}, "required": ["kind"], "additionalProperties": false}]}),
        json!({"$defs": {"tree": {"type": "object", "properties": {"n": {"type": "integer", "minimum": -9, "maximum": 9},
               "sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["n"], "additionalProperties": false}},
               "$ref": "#/$defs/tree"}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "string", "minLength": 2, "maxLength": 4}),
        json!({"type": ["integer", "null"], "minimum": 5, "maximum": 1234}),
        json!({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 30}]}),
    ]
}

#[test]
fn json_follows_its_schema() {
    for schema in schemas() {
        let finished = written(&OutputFormat::JsonSchema(schema.clone()), 60, 600, |text| {
            let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{schema}: {text:?}: {error}"));
            if let Some(wrong) = violation(&schema, &schema, &value) {
                panic!("{schema}: {text:?}: {wrong}");
            }
        });
        assert!(finished >= 30, "{schema}: {finished} finished");
    }
}

#[test]
fn any_json_is_json() {
    let finished = written(&OutputFormat::Json, 200, 400, |text| {
        // Numbers may be larger than f64 holds, which is JSON.
        serde_json::from_str::<&RawValue>(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    });
    assert!(finished >= 100, "{finished}");
}

#[test]
fn a_text_ends_where_its_format_does() {
    let tokens = vocabulary();
    let constrainer = Constrainer::new(&TokenBytes::new(tokens.clone())).expect("a vocabulary");
    let mut constraint = constrainer.constraint(&OutputFormat::Regex("ab".to_string())).expect("a constraint");
    let mut mask = TokenMask::new(tokens.len());
    constraint.allowed(&mut mask);
    let texts: Vec<&[u8]> = mask.iter().map(|token| tokens[token as usize].as_deref().expect("text")).collect();
    assert_eq!((texts, constraint.may_end()), (vec![&b"a"[..], b"ab"], false));
    let other = constraint.again();
    let whole = tokens.iter().position(|token| token.as_deref() == Some(b"ab")).expect("a token");
    constraint.accept(whole as u32);
    mask.clear();
    constraint.allowed(&mut mask);
    assert!(constraint.may_end() && mask.is_empty());
    // A copy goes its own way.
    assert!(!other.may_end());
}

#[test]
fn what_cannot_be_followed_is_a_sentence() {
    let constrainer = Constrainer::new(&TokenBytes::new(vocabulary())).expect("a vocabulary");
    let refused = |format: OutputFormat| match constrainer.constraint(&format) {
        Ok(_) => panic!("{format:?} is followed"),
        Err(error) => error.to_string(),
    };
    let expressions = ["(", r"(a)\1", "[^\\s\\S]", r"\bword", r"a(?=b)"];
    for expression in expressions {
        let error = refused(OutputFormat::Regex(expression.to_string()));
        assert!(error.starts_with("the regular expression cannot be followed: ") && error.len() < 420, "{error}");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep =
            json!({"type": "array", "items": {"anyOf": [deep.clone(), {"type": "object", "properties": {"a": deep}}]}});
        if deep.to_string().len() > 1 << 19 {
            break;
        }
    }
    let schemas = [
        json!({"$ref": "#/$defs/none"}),
        json!({"$ref": "https://example.org/schema"}),
        json!({"$ref": "#"}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"type": "strange"}),
        json!({"type": "string", "pattern": "("}),
        json!({"not": {"type": "string"}}),
        json!([1]),
        json!(false),
        deep,
    ];
    for schema in schemas {
        let error = refused(OutputFormat::JsonSchema(schema.clone()));
        assert!(error.contains("JSON schema") && error.len() < 420, "{error}");
    }
    // No token begins with a brace.
    let letters = Constrainer::new(&TokenBytes::new([Some(b"ab".to_vec()), None])).expect("a vocabulary");
    for format in [OutputFormat::JsonSchema(json!({"type": "object"})), OutputFormat::Regex("[0-9]".to_string())] {
        let error = letters.constraint(&format).err().expect("refused").to_string();
        assert!(error.contains("no text of this vocabulary"), "{error}");
    }
    let none = Constrainer::new(&TokenBytes::new([None, Some(vec![255])])).err().expect("refused").to_string();
    assert!(none.contains("no tokens"), "{none}");
}

/// Expressions and schemas whose automata would be huge: states are made as texts reach them, within limits, or there is an error.
#[test]
fn what_would_need_huge_automata_is_bounded() {
    let tokens = vocabulary();
    let constrainer = Constrainer::new(&TokenBytes::new(tokens.clone())).expect("a vocabulary");
    let array = json!({"type": "array", "items": {"type": "string", "maxLength": 100_000}, "minItems": 100_000});
    let properties: serde_json::Map<String, Value> =
        (0..3000).map(|number| (format!("p{number}"), json!({"type": "integer"}))).collect();
    let formats = [
        OutputFormat::Regex("(a{1000}){1000}".to_string()),
        OutputFormat::Regex("((a{1000}){1000}){1000}".to_string()),
        OutputFormat::Regex("(a|ab|b)*a(a|b){30}".to_string()),
        OutputFormat::Regex("(.*a){60}".to_string()),
        OutputFormat::Regex("(x+x+)+y".to_string()),
        OutputFormat::JsonSchema(array),
        OutputFormat::JsonSchema(json!({"type": "object", "properties": properties, "additionalProperties": false})),
    ];
    for format in formats {
        let Ok(mut constraint) = constrainer.constraint(&format) else { continue };
        let mut random = Random(3);
        for _ in 0..60 {
            let mut mask = TokenMask::new(tokens.len());
            constraint.allowed(&mut mask);
            let allowed: Vec<u32> = mask.iter().collect();
            if allowed.is_empty() {
                assert!(constraint.may_end() || constraint.error().is_some(), "{format:?}");
                break;
            }
            constraint.accept(allowed[random.below(allowed.len())]);
        }
    }
}
