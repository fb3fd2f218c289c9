//! Which class of a model each class of a data set is.

/// How classes were brought together.
#[derive(Debug, PartialEq, Eq)]
pub struct ClassMap {
    /// The model's class of each of the data's.
    pub to_model: Vec<u32>,
    /// What the user should know of it.
    pub note: Option<String>,
}

/// By name where both have names, whatever their order; by number where one of them has none. `names` are the model's, empty if it
/// has none.
pub fn map_classes(data: &[String], names: &[String], classes: usize) -> Result<ClassMap, String> {
    // Names may occur twice (ImageNet has two cranes), and then only the order can tell.
    if data == names {
        return Ok(ClassMap { to_model: in_order(classes), note: None });
    }
    if let Some(to_model) = by_name(data, names) {
        let part = format!("the data has {} of the model's {classes} classes", data.len());
        return Ok(ClassMap { to_model, note: (data.len() < classes).then_some(part) });
    }
    if data.len() == classes && (is_nameless(names) || is_nameless(data)) {
        let who =
            if is_nameless(names) { "the model's classes have no names" } else { "the data's classes have no names" };
        let note = format!("{who}: they are matched by number, so that `{}` is the model's class 0", data[0]);
        return Ok(ClassMap { to_model: in_order(classes), note: Some(note) });
    }
    let unknown = data.iter().find(|name| !names.contains(name));
    let detail = match unknown {
        Some(name) if !names.is_empty() => format!("; the model knows no `{name}`"),
        _ => String::new(),
    };
    Err(format!(
        "the data has {} classes ({}), the model has {classes} ({}){detail}",
        data.len(),
        listed(data),
        if names.is_empty() { "without names".to_string() } else { listed(names) }
    ))
}

fn in_order(classes: usize) -> Vec<u32> {
    (0..classes as u32).collect()
}

/// The model's class of each of the data's, if each has exactly one of its name.
fn by_name(data: &[String], names: &[String]) -> Option<Vec<u32>> {
    let plain = |name: &String| name.trim().to_lowercase();
    let names: Vec<String> = names.iter().map(plain).collect();
    let wanted: Vec<String> = data.iter().map(plain).collect();
    let place = |wanted_name: &String| {
        let mut places = names.iter().enumerate().filter(|(_, name)| *name == wanted_name).map(|(place, _)| place);
        let only = places.next()?;
        let alone = places.next().is_none() && wanted.iter().filter(|name| *name == wanted_name).count() == 1;
        alone.then_some(only as u32)
    };
    wanted.iter().map(place).collect()
}

/// Whether these say no more than a number does: none at all, `LABEL_3`, `class 3`, `3`, or a WordNet number such as `n01440764`,
/// which is the usual name of ImageNet's folders and whose order is that of ImageNet's classes.
fn is_nameless(names: &[String]) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let says_nothing = |name: &String| {
        let rest = ["LABEL_", "class ", "class_"].iter().find_map(|start| name.strip_prefix(start));
        let word_net = name.strip_prefix('n').is_some_and(|number| number.len() == 8 && is_number(number));
        is_number(rest.unwrap_or(name)) || word_net
    };
    names.iter().all(says_nothing)
}

/// A name without line breaks and other control characters.
fn one_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// The first few names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(|name| one_line(name)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} ..") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn map(data: &[&str], model: &[&str], classes: usize) -> Result<ClassMap, String> {
        map_classes(&names(data), &names(model), classes)
    }

    #[test]
    fn names_decide_whatever_their_order() {
        let found = map(&["a", "B", "c"], &["c", "a", "b "], 3).expect("found");
        assert_eq!(found, ClassMap { to_model: vec![1, 2, 0], note: None });
        let part = map(&["dog"], &["cat", "dog"], 2).expect("found");
        assert_eq!(part.to_model, [1]);
        assert!(part.note.expect("a note").contains("1 of the model's 2"));
    }

    #[test]
    fn names_that_occur_twice_are_matched_only_in_order() {
        assert_eq!(map(&["crane", "x", "crane"], &["crane", "x", "crane"], 3).expect("found").to_model, [0, 1, 2]);
        assert!(map(&["x", "crane", "crane"], &["crane", "x", "crane"], 3).is_err());
        assert!(map(&["crane", "crane"], &["crane", "x"], 2).is_err());
    }

    #[test]
    fn numbers_decide_where_there_are_no_names() {
        let models: [&[&str]; 3] = [&[], &["LABEL_0", "LABEL_1"], &["0", "1"]];
        for model in models {
            let found = map(&["cat", "dog"], model, 2).expect("found");
            assert_eq!(found.to_model, [0, 1]);
            assert!(found.note.expect("a note").contains("`cat` is the model's class 0"));
        }
        assert_eq!(map(&["n01440764", "n01443537"], &["tench", "goldfish"], 2).expect("found").to_model, [0, 1]);
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_both() {
        let refusal = map(&["cat", "dog"], &["cat", "bird"], 2).expect_err("another class");
        for part in ["2 classes (cat, dog)", "(cat, bird)", "knows no `dog`"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        assert!(map(&["cat", "dog"], &[], 3).expect_err("another count").contains("3 (without names)"));
    }
}
