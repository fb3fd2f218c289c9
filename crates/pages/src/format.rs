//! Numbers and names as text.

use vitreous_files::printable::is_obeyed;

/// `1,215,626`.
pub fn thousands(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 image`, `2 images`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number as u128), if number == 1 { one } else { many })
}

/// `87.50 %`.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// `1.5 MiB`.
pub fn bytes(bytes: usize) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// `7.09 M`: three significant digits.
pub fn short(number: f64) -> String {
    let mut value = number;
    let mut units = ["", " k", " M", " G", " T", " P"].iter();
    let mut unit = units.next().unwrap_or(&"");
    // From 999.5 on three digits would be 1000.
    while value >= 999.5 {
        let Some(larger) = units.next() else { break };
        (value, unit) = (value / 1000.0, larger);
    }
    let decimals = match value {
        _ if value == value.round() && unit.is_empty() => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{unit}")
}

/// A share of 0 to 1 as `32.7%`; below a thousandth, but not 0, `<0.1%`.
pub fn share(share: f64) -> String {
    if share > 0.0 && share < 0.001 { "<0.1%".to_string() } else { format!("{:.1}%", share * 100.0) }
}

/// A time in seconds, as a file tells it: one that cannot be is shown as the nearest that can.
pub fn seconds(seconds: f64) -> String {
    let seconds = if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, 1e12) };
    duration(std::time::Duration::from_secs_f64(seconds))
}

/// `48 s`, `1 min 52 s`, `3 h 05 min`.
pub fn duration(time: std::time::Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{value} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

/// A name as one line of text: what would break the line or command the terminal is written as in Rust (`\n`, `\u{1b}`).
pub fn one_line(name: &str) -> String {
    let shown = |letter: char| match letter.is_control() || is_obeyed(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    name.chars().map(shown).collect()
}

/// The most characters of a cell of a table.
const LONGEST_CELL: usize = 200;

/// A text of at most so many characters: a longer one is cut.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The most characters of a text in a title.
const LONGEST_TITLE: usize = 60;

/// The beginning of a text, in one line, for a title.
pub fn title(text: &str) -> String {
    let mut short: String =
        text.chars().take(LONGEST_TITLE).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().count() > LONGEST_TITLE {
        short.push('\u{2026}');
    }
    short
}

/// Rows as columns of text: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| shortened(cell, LONGEST_CELL)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<0$}", widths[0]),
            _ => format!("  {cell:>0$}", widths[column]),
        });
        cells.collect::<String>().trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(["0", "999", "1,000", "1,215,626"], [0u32, 999, 1000, 1_215_626].map(thousands)[..]);
        assert_eq!((bytes(1023).as_str(), bytes(1536).as_str()), ("1023 B", "1.5 KiB"));
    }

    #[test]
    fn short_numbers_have_three_digits() {
        let texts = [0.0, 7.0, 768.0, 999.0, 2_362_368.0, 999_600.0, 35_264_229_688.0].map(short);
        assert_eq!(texts, ["0", "7", "768", "999", "2.36 M", "1.00 M", "35.3 G"]);
        assert_eq!([0.0, 0.0001, 0.3271, 1.0].map(share), ["0.0%", "<0.1%", "32.7%", "100.0%"]);
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(one_line("t\u{fc}te \u{1b}[31m\n\t"), "t\u{fc}te \\u{1b}[31m\\n\\t");
    }

    #[test]
    fn a_cell_of_any_length_is_shown() {
        let rows = [vec!["a".repeat(70_000), "1".to_string()], vec!["b".to_string(), "2".to_string()]];
        let lines = table(&rows);
        assert!(lines.iter().all(|line| line.chars().count() < 210), "{}", lines[0].len());
        assert_eq!(shortened("Käse", 4), "Käse");
        assert_eq!(shortened("Käsebrot", 5), "Käse…");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_string(), "1,000".to_string()], vec!["long".to_string(), "2".to_string()]];
        assert_eq!(table(&rows), ["a     1,000", "long      2"]);
    }
}
