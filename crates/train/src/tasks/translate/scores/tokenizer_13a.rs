//! The tokeniser of NIST's `mteval-v13a`: punctuation apart from words, except inside numbers.
//!
//! Its rules are substitutions of the whole line, one after the other, each from left to right without overlap. That is why a
//! character which one match of a rule has used is not looked at again by the next match.

use super::words::{is_space, words};

/// The tokens of a line.
pub fn tokens_13a(line: &str) -> Vec<String> {
    words(&separated(line)).map(str::to_string).collect()
}

/// The line with spaces around each token.
pub(super) fn separated(line: &str) -> String {
    // The rules look at neighbours: a line begins and ends with a space.
    let line = format!(" {} ", unescaped(line.trim_end_matches(is_space)));
    let line = symbols_apart(&line);
    let line = stops_after_other_than_digits(&line);
    let line = stops_before_other_than_digits(&line);
    dashes_after_digits(&line)
}

/// Without marks of skipped text and of words broken across lines, and with the characters that entities stand for.
fn unescaped(line: &str) -> String {
    let mut line = line.to_string();
    // In this order: `&amp;lt;` becomes `<`.
    let replacements =
        [("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")];
    for (from, to) in replacements {
        if line.contains(from) {
            line = line.replace(from, to);
        }
    }
    line
}

/// ASCII's punctuation, except for apostrophe, comma, dash and full stop.
fn is_symbol(character: char) -> bool {
    character.is_ascii_punctuation() && !matches!(character, '\'' | ',' | '-' | '.')
}

fn is_stop(character: &char) -> bool {
    matches!(character, '.' | ',')
}

fn symbols_apart(line: &str) -> String {
    let mut apart = String::with_capacity(line.len() * 2);
    for character in line.chars() {
        if is_symbol(character) {
            apart.extend([' ', character, ' ']);
        } else {
            apart.push(character);
        }
    }
    apart
}

/// `x.` becomes `x . ` unless x is a digit.
fn stops_after_other_than_digits(line: &str) -> String {
    let mut apart = String::with_capacity(line.len() * 2);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        apart.push(character);
        if !character.is_ascii_digit()
            && let Some(stop) = characters.next_if(is_stop)
        {
            apart.extend([' ', stop, ' ']);
        }
    }
    apart
}

/// `.x` becomes ` . x` unless x is a digit.
fn stops_before_other_than_digits(line: &str) -> String {
    let mut apart = String::with_capacity(line.len() * 2);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if is_stop(&character)
            && let Some(other) = characters.next_if(|next| !next.is_ascii_digit())
        {
            apart.extend([' ', character, ' ', other]);
        } else {
            apart.push(character);
        }
    }
    apart
}

/// `3-` becomes `3 - `.
fn dashes_after_digits(line: &str) -> String {
    let mut apart = String::with_capacity(line.len() * 2);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        apart.push(character);
        if character.is_ascii_digit() && characters.next_if_eq(&'-').is_some() {
            apart.push_str(" - ");
        }
    }
    apart
}
