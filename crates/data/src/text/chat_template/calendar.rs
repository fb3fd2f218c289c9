//! The date that a template asks for. A calendar library would bring the world's time zones; days since 1970 are enough for UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Longer than any format of a date.
const MOST_FORMAT_BYTES: usize = 1024;

/// The year, month and day of a number of days since 1970-01-01. Years begin in March here, so that the leap day is the last; 400 years
/// have 146,097 days.
fn date(days: i64) -> (i64, usize, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month as usize, day)
}

/// A time, UTC, in Python's format of `strftime`.
pub(super) fn written(time: SystemTime, format: &str) -> Result<String, Error> {
    if format.len() > MOST_FORMAT_BYTES {
        return Err(super::bounds::too_large("a format of a date"));
    }
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = WEEKDAYS[(days + 3).rem_euclid(7) as usize];
    let month_name = MONTHS[month - 1];
    let half_day = (hour + 11) % 12 + 1;
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut code = letters.next();
        // A minus leaves out the zero before a number.
        let is_padded = code != Some('-');
        if !is_padded {
            code = letters.next();
        }
        let number = |value: i64| if is_padded { format!("{value:02}") } else { value.to_string() };
        text.push_str(&match code {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100),
            Some('m') => number(month as i64),
            Some('d') => number(day),
            Some('H') => number(hour),
            Some('I') => number(half_day),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('B') => month_name.to_string(),
            Some('b' | 'h') => month_name[..3].to_string(),
            Some('A') => weekday.to_string(),
            Some('a') => weekday[..3].to_string(),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => "%".to_string(),
            other => {
                let code = other.map(String::from).unwrap_or_default();
                let reason = format!("strftime_now does not know the format %{code}");
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        });
    }
    Ok(text)
}
