//! Chat templates against `transformers` (`fixtures/chat_templates/make.py`), and hostile ones.

use std::collections::BTreeMap;

use serde_json::Value;
use vitreous_data::text::TextTokenizer;
use vitreous_data::text::chat_template::{ChatMessage, ChatTemplate};

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/chat_templates/chats.json")).expect("JSON")
}

fn messages(chat: &Value) -> Vec<ChatMessage> {
    let text = |message: &Value, key: &str| message[key].as_str().expect("text").to_string();
    let message = |message: &Value| ChatMessage::new(text(message, "role"), text(message, "content"));
    chat.as_array().expect("messages").iter().map(message).collect()
}

#[test]
fn templates_of_known_models_equal_transformers() {
    let fixture = fixture();
    let special: Vec<(String, String)> =
        serde_json::from_value::<BTreeMap<_, _>>(fixture["special"].clone()).expect("tokens").into_iter().collect();
    let templates = fixture["templates"].as_object().expect("templates");
    assert!(templates.len() >= 13);
    for (name, template) in templates {
        let compiled = ChatTemplate::new(template["source"].as_str().expect("a template"), &special).expect("compiled");
        for (chat, rendered) in
            fixture["chats"].as_array().expect("chats").iter().zip(template["rendered"].as_array().expect("texts"))
        {
            for (prompt, expected) in [false, true].into_iter().zip(rendered.as_array().expect("two")) {
                let found = compiled.render(&messages(chat), prompt);
                match (found, expected["text"].as_str(), expected["raised"].as_str()) {
                    (Ok(text), Some(expected), None) => assert_eq!(text, expected, "{name}: {chat}"),
                    (Err(error), None, Some(raised)) => {
                        assert!(error.to_string().contains(raised), "{name}: {error} instead of {raised}");
                    }
                    (found, ..) => panic!("{name}: {found:?} instead of {expected} for {chat}"),
                }
            }
        }
    }
}

/// Whether a template is refused, and with which words.
fn refused(source: &str, words: &str) {
    let chat = [ChatMessage::new("user", "Hello")];
    let error = match ChatTemplate::new(source, &[]) {
        Ok(template) => template.render(&chat, true).expect_err(source),
        Err(error) => error,
    };
    assert!(error.to_string().contains(words), "{source}: {error}");
}

#[test]
fn a_template_that_loops_for_ever_is_stopped() {
    refused("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "does not come to an end");
    refused("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "recursion");
    refused("{% for a in range(10**12) %}{% endfor %}", "");
    refused("{% macro f(x) %}{{ f(x ~ x) }}{{ f(x ~ x) }}{% endmacro %}{{ f('a') }}", "");
}

#[test]
fn a_template_that_makes_gigabytes_is_stopped() {
    let doubled = |step: &str, use_it: &str| {
        format!("{{% set n = namespace(x='0123456789') %}}{{% for i in range(60) %}}{step}{{% endfor %}}{use_it}")
    };
    refused(&doubled("{% set n.x = n.x ~ n.x %}", ""), "too large");
    refused(&doubled("{% set n.x = n.x + n.x %}", ""), "too large");
    refused(&doubled("{% set n.x = n.x * 1000 %}", ""), "too large");
    refused(&doubled("{% set n.x = [n.x, n.x] %}", "{{ n.x }}"), "too");
    refused(&doubled("{% set n.x = [n.x, n.x] %}", "{{ n.x | tojson }}"), "too");
    refused(&doubled("{% set n.x = [n.x, n.x] %}", "{{ n.x | string }}"), "too");
    refused(&doubled("{% set n.x = [n.x, n.x] %}", "{{ n.x == [n.x] }}"), "too");
    refused(&doubled("{% set n.x = n.x | replace('', n.x) %}", ""), "too large");
    refused(&doubled("{% set n.x = n.x.replace('1', n.x) %}", ""), "too large");
    refused(&doubled("{% set n.x = [n.x] * 9 %}{% set n.x = n.x | join(n.x | string) %}", ""), "too large");
    refused(&doubled("{% set n.x = (n.x | list) + (n.x | list) %}", ""), "too large");
    refused(&doubled("{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}", ""), "too large");
    refused(&doubled("{% set n.x = n.x | indent(999999999) %}{% set n.x = '\n' ~ n.x %}", ""), "too large");
    refused("{{ 'x' * 99999999999 }}", "too large");
    refused("{{ [1] | tojson(indent=99999999999) }}", "too large");
    refused(&format!("{{% for i in range(9999) %}}{}{{% endfor %}}", "x".repeat(200_000)), "does not come to an end");
    refused(&"x".repeat(300_000), "at most");
}

#[test]
fn deep_values_do_not_exhaust_the_stack() {
    let nest = |step: &str, use_it: &str| {
        format!(
            "{{% set n = namespace(x=1) %}}{{% for i in range(9999) %}}{{% set n.x = {step} %}}{{% endfor %}}{use_it}"
        )
    };
    let chat = [ChatMessage::new("user", "Hello")];
    for step in ["[n.x]", "{'a': n.x}", "(n.x,)"] {
        let template = ChatTemplate::new(&nest(step, "ok"), &[]).expect("compiled");
        // It ends, or it takes too many steps.
        if let Ok(text) = template.render(&chat, true) {
            assert_eq!(text, "ok");
        }
        refused(&nest(step, "{{ n.x }}"), "");
        refused(&nest(step, "{{ n.x == n.x }}"), "");
    }
    refused("{% set n = namespace(x=1) %}{% set n.x = n %}{{ n }}", "too deeply");
    refused(&format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)), "");
    refused(&"{% if true %}".repeat(10_000), "");
}

#[test]
fn a_template_reads_no_files_and_no_environment() {
    refused("{% include '/etc/passwd' %}", "");
    refused("{% import '/etc/passwd' as x %}", "");
    refused("{% extends 'config.json' %}", "");
    refused("{{ open('/etc/passwd') }}", "");
    refused("{{ messages.__class__.__init__ }}", "");
    refused("{{ debug() }}", "");
    let chat = [ChatMessage::new("user", "{{ bos_token }}")];
    let template = ChatTemplate::new("{{ messages[0].content }}{{ env }}{{ self }}", &[]).expect("compiled");
    assert_eq!(template.render(&chat, false).expect("text"), "{{ bos_token }}");
}

#[test]
fn templates_come_from_the_files_of_a_directory() {
    const VOCABULARY: &[u8] = b"[UNK]\n[CLS]\n[SEP]\na\n";
    let render = |files: &[(&str, &[u8])]| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("vocab.txt"), VOCABULARY).expect("written");
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).expect("written");
        }
        let tokenizer = TextTokenizer::open(folder.path()).expect("a tokenizer");
        let template = ChatTemplate::of(&tokenizer)?;
        template.map(|template| template.render(&[ChatMessage::new("user", "x")], true)).transpose()
    };
    assert_eq!(render(&[]).expect("none"), None);
    let config = br#"{"chat_template": "{{ unk_token }}{{ messages[0].content }}"}"#;
    assert_eq!(render(&[("tokenizer_config.json", config)]).expect("text").as_deref(), Some("[UNK]x"));
    let file: (&str, &[u8]) = ("chat_template.jinja", b"from a file\n");
    assert_eq!(render(&[("tokenizer_config.json", config), file]).expect("text").as_deref(), Some("from a file"));
    let several =
        br#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    assert_eq!(render(&[("tokenizer_config.json", several)]).expect("text").as_deref(), Some("d"));
    let none = br#"{"chat_template": [{"name": "a", "template": "t"}, {"name": "b", "template": "d"}]}"#;
    let error = render(&[("tokenizer_config.json", none)]).expect_err("no default");
    assert!(error.to_string().contains("(a, b)"), "{error}");
}
