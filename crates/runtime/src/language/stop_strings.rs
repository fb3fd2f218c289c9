//! Stop strings: text is held back while it may be the beginning of one.

/// Looks for stop strings in a text that comes piece by piece.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// The end of the text that may be the beginning of a stop string.
    held: String,
}

impl StopStrings {
    /// For these; empty ones are none.
    pub fn new(stops: &[String]) -> StopStrings {
        StopStrings { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Adds a piece. Gives the text that is certainly before any stop string, and whether one was found: nothing comes behind it.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(place) = found {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(place);
            return (text, true);
        }
        let may_begin = |place: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*place..]));
        let boundaries = self.held.char_indices().map(|(place, _)| place);
        let certain = boundaries.into_iter().find(may_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut watch = StopStrings::new(&stops);
        let mut given = Vec::new();
        for piece in pieces {
            let (text, stopped) = watch.push(piece);
            given.push(text);
            if stopped {
                return (given, true);
            }
        }
        given.push(watch.finish());
        (given, false)
    }

    #[test]
    fn a_stop_string_may_span_pieces() {
        assert_eq!(pieces(&["END"], &["one E", "N", "D two"]), (vec!["one ".into(), "".into(), "".into()], true));
        assert_eq!(pieces(&["\n\n"], &["a\n", "b\n", "\nc"]), (vec!["a".into(), "\nb".into(), "".into()], true));
    }

    #[test]
    fn what_only_looked_like_one_is_given() {
        // "aa" + "ab": the stop string begins with the second letter.
        assert_eq!(pieces(&["aab"], &["aa", "ab?"]), (vec!["".into(), "a".into()], true));
        assert_eq!(
            pieces(&["aab"], &["aa", "c", "aa"]),
            (vec!["".into(), "aac".into(), "".into(), "aa".into()], false)
        );
    }

    #[test]
    fn without_stop_strings_nothing_waits() {
        assert_eq!(pieces(&[], &["a", "b"]), (vec!["a".into(), "b".into(), "".into()], false));
        assert_eq!(pieces(&[""], &["a"]), (vec!["a".into(), "".into()], false));
    }

    #[test]
    fn the_first_of_several_counts() {
        assert_eq!(pieces(&["zz", "b"], &["abzz"]), (vec!["a".into()], true));
        assert_eq!(pieces(&["é"], &["ae", "é"]), (vec!["ae".into(), "".into()], true));
    }
}
