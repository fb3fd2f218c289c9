//! Layers, heads and classes as they are written on the command line.

use anyhow::{Result, anyhow, bail};
use vitreous_models::Model;
use vitreous_train::recipe::nearest;

use vitreous_pages::format::one_line;

/// A list such as `0,3-5,last`, before the model is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<(End, End)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    At(usize),
    Last,
}

impl End {
    fn parse(text: &str) -> Option<End> {
        match text.trim() {
            "last" => Some(End::Last),
            number => number.parse().ok().map(End::At),
        }
    }

    fn of(self, count: usize) -> usize {
        match self {
            End::At(number) => number,
            End::Last => count.saturating_sub(1),
        }
    }
}

impl Numbers {
    /// Reads a list.
    pub fn parse(text: &str) -> Result<Numbers, String> {
        let part = |part: &str| match part.split_once('-') {
            Some((first, last)) => End::parse(first).zip(End::parse(last)),
            None => End::parse(part).map(|end| (end, end)),
        };
        let parts: Option<Vec<(End, End)>> = text.split(',').map(part).collect();
        parts.map(Numbers).ok_or_else(|| format!("`{text}` is no list of numbers; write it as in 0,3-5,last"))
    }

    /// The numbers, of `count` that there are; each once, the smallest first.
    pub fn resolve(&self, what: &str, count: usize) -> Result<Vec<usize>> {
        let mut numbers = Vec::new();
        for (first, last) in &self.0 {
            let (first, last) = (first.of(count), last.of(count));
            // Before it becomes a list that may be as long as any number.
            if let Some(missing) = [first, last].into_iter().find(|&number| number >= count) {
                bail!("there is no {what} {missing}: the model has {count}, 0 to {}", count.saturating_sub(1));
            }
            if first > last {
                bail!("{what}s {first}-{last} go backwards; write {last}-{first}");
            }
            numbers.extend(first..=last);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}

impl Numbers {
    /// The numbers of each of some stacks, of `counts` that they have: what only the highest has is of that alone, and `last` is each
    /// one's own last.
    pub fn resolve_each<const N: usize>(&self, what: &str, counts: [usize; N]) -> Result<[Vec<usize>; N]> {
        let most = counts.into_iter().max().unwrap_or(0);
        self.resolve(what, most)?;
        Ok(counts.map(|count| {
            let ranges =
                self.0.iter().map(|(first, last)| first.of(count)..last.of(count).saturating_add(1).min(count));
            let mut numbers: Vec<usize> = ranges.flatten().collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        }))
    }
}

/// Reads a share of at least 0 and less than 1.
pub fn parse_share(text: &str) -> Result<f32, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share; write a number from 0 to below 1, as in 0.9"))
}

/// The numbers of classes that are given by name or number, each once.
pub fn classes(asked: &[String], model: &Model) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for text in asked {
        let class = class(text, model)?;
        if !found.contains(&class) {
            found.push(class);
        }
    }
    Ok(found)
}

/// By its whole name first, since names may be numbers, too; then by number; then by a name that differs in capitals alone.
fn class(text: &str, model: &Model) -> Result<usize> {
    let (labels, count) = (&model.assets.labels, model.architecture.signature().named_outputs());
    let shown = one_line(text);
    if count == 0 {
        bail!("--class {shown}: this model has no head, so it knows no classes");
    }
    if let Some(class) = only(labels, &shown, |label| label == text)? {
        return Ok(class);
    }
    let number = text.strip_prefix("class ").unwrap_or(text).parse::<usize>();
    if let Ok(number) = number {
        return match number {
            number if number < count => Ok(number),
            number => Err(anyhow!("there is no class {number}: the model has {count}, 0 to {}", count - 1)),
        };
    }
    let lower = text.to_lowercase();
    if let Some(class) = only(labels, &shown, |label| label.to_lowercase() == lower)? {
        return Ok(class);
    }
    let hint = match nearest(text, labels.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{}`?", one_line(&name)),
        None if labels.is_empty() => format!("its {count} classes have no names: give a number"),
        None => format!(
            "its classes are, for example, {}",
            labels.iter().take(4).map(|name| one_line(name)).collect::<Vec<_>>().join(", ")
        ),
    };
    Err(anyhow!("the model knows no class `{shown}`; {hint}"))
}

/// The one class whose label is meant, if there is one. Two would make it a guess.
fn only(labels: &[String], shown: &str, is_meant: impl Fn(&str) -> bool) -> Result<Option<usize>> {
    let meant: Vec<usize> = (0..labels.len()).filter(|&class| is_meant(&labels[class])).collect();
    match meant[..] {
        [] => Ok(None),
        [class] => Ok(Some(class)),
        _ => {
            let numbers: Vec<String> = meant.iter().map(ToString::to_string).collect();
            Err(anyhow!("--class {shown}: classes {} are called so; give one of these numbers", numbers.join(" and ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Vec<usize> {
        Numbers::parse(text).expect("a list").resolve("layer", 12).expect("numbers")
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(resolve("0,3-5,last"), [0, 3, 4, 5, 11]);
        assert_eq!(resolve("10-last, 3,3"), [3, 10, 11]);
        for wrong in ["", "a", "1-", "-1", "1,,2", "1-2-3", "99999999999999999999999"] {
            assert!(Numbers::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stacks_of_different_heights_each_have_their_own_last() {
        let each = |text: &str| Numbers::parse(text).expect("a list").resolve_each("layer", [2, 4]);
        assert_eq!(each("last").expect("numbers"), [vec![1], vec![3]]);
        assert_eq!(each("0,2-3").expect("numbers"), [vec![0], vec![0, 2, 3]]);
        assert_eq!(each("1-last").expect("numbers"), [vec![1], vec![1, 2, 3]]);
        assert_eq!(each("4").expect_err("refused").to_string(), "there is no layer 4: the model has 4, 0 to 3");
    }

    #[test]
    fn a_name_of_two_classes_is_refused() {
        let labels = ["crane", "dog", "crane", "Dog"].map(str::to_string);
        let find = |text: &'static str| only(&labels, text, |label| label == text);
        let refusal = find("crane").expect_err("refused").to_string();
        assert_eq!(refusal, "--class crane: classes 0 and 2 are called so; give one of these numbers");
        assert_eq!(find("dog").expect("found"), Some(1));
        assert_eq!(find("cat").expect("looked for"), None);
    }

    #[test]
    fn what_is_not_there_is_refused_before_it_takes_memory() {
        let refusal =
            |text: &str| Numbers::parse(text).expect("a list").resolve("layer", 12).expect_err("refused").to_string();
        assert_eq!(
            refusal("0-18446744073709551615"),
            "there is no layer 18446744073709551615: the model has 12, 0 to 11"
        );
        assert_eq!(refusal("5-3"), "layers 5-3 go backwards; write 3-5");
    }
}
