//! A chat template: an error, or a text of a bounded length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_runtime::chat_template::ChatTemplate;
use vitreous_runtime::language::{ChatMessage, ChatRole};

fuzz_target!(|input: &[u8]| {
    let Ok(source) = std::str::from_utf8(input) else { return };
    let special = [("bos_token".to_string(), "<s>".to_string()), ("eos_token".to_string(), "</s>".to_string())];
    let Ok(template) = ChatTemplate::new(source, &special) else { return };
    let messages = [
        ChatMessage::new(ChatRole::System, "Be terse."),
        ChatMessage::new(ChatRole::User, "Who\nare you? \u{1f600}"),
    ];
    for prompt in [false, true] {
        if let Ok(text) = template.render(&messages, prompt) {
            assert!(text.len() <= 1 << 26);
        }
    }
});
