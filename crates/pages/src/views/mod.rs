//! Code of the browser that the pages of files and the page of the server share: ES modules. The server's page imports them. A file has no
//! other files beside it, so its page gets their text in its script, without what imports and exports them.

/// A module of the browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Scales of colours.
    Colours,
    /// How numbers are said.
    Numbers,
    /// Numbers in a page's text.
    Packed,
    /// Maps of values.
    Heat,
    /// Choosing cells of maps.
    Choose,
    /// A large map with names on its axes.
    Board,
    /// Lines between tokens.
    Lines,
}

impl View {
    /// What it is called, with its text.
    const fn file(self) -> (&'static str, &'static str) {
        match self {
            View::Colours => ("colours.js", include_str!("colours.js")),
            View::Numbers => ("numbers.js", include_str!("numbers.js")),
            View::Packed => ("packed.js", include_str!("packed.js")),
            View::Heat => ("heat.js", include_str!("heat.js")),
            View::Choose => ("choose.js", include_str!("choose.js")),
            View::Board => ("board.js", include_str!("board.js")),
            View::Lines => ("lines.js", include_str!("lines.js")),
        }
    }
}

/// What every page with maps needs.
pub(crate) const MAPS: &[View] = &[View::Colours, View::Numbers, View::Packed, View::Heat, View::Choose];

/// A page's script behind the modules that it uses, each after those that it uses itself.
pub(crate) fn script(modules: &[View], own: &str) -> String {
    let mut joined = String::new();
    for module in modules {
        for line in module.file().1.lines().filter(|line| !line.starts_with("import ")) {
            joined.push_str(line.strip_prefix("export ").unwrap_or(line));
            joined.push('\n');
        }
    }
    joined + own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::{CATEGORIES, diverging, sequential};

    const ALL: [View; 7] =
        [View::Colours, View::Numbers, View::Packed, View::Heat, View::Choose, View::Board, View::Lines];

    #[test]
    fn a_file_imports_and_exports_nothing() {
        let joined = script(&ALL, "own();");
        assert!(joined.lines().all(|line| !line.starts_with("import ") && !line.starts_with("export ")), "{joined}");
        assert!(joined.contains("\nfunction heat(canvas") && joined.ends_with("own();"));
    }

    #[test]
    fn a_module_stands_behind_those_that_it_uses() {
        for (at, module) in ALL.iter().enumerate() {
            for line in module.file().1.lines().filter(|line| line.starts_with("import ")) {
                let before = ALL[..at].iter().any(|other| line.contains(other.file().0));
                assert!(before, "{:?}: {line}", module);
            }
        }
    }

    /// The scales are written down twice: here are both.
    #[test]
    fn colours_are_those_of_charts() {
        let text = View::Colours.file().1;
        let stops = |name: &str| -> Vec<[u8; 3]> {
            let list =
                text.split(&format!("const {name} = [")).nth(1).and_then(|rest| rest.split("];").next()).expect(name);
            let numbers: Vec<u8> = list.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
            numbers.chunks_exact(3).map(|stop| [stop[0], stop[1], stop[2]]).collect()
        };
        let sequence = stops("SEQUENTIAL_STOPS");
        for (at, stop) in sequence.iter().enumerate() {
            assert_eq!(*stop, sequential(at as f32 / (sequence.len() - 1) as f32));
        }
        let pairs = stops("DIVERGING_STOPS");
        for (at, stop) in pairs.iter().enumerate() {
            assert_eq!(*stop, diverging(2.0 * at as f32 / (pairs.len() - 1) as f32 - 1.0));
        }
        for colour in CATEGORIES {
            assert!(text.contains(colour), "{colour}");
        }
    }
}
