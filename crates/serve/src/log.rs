//! One line per request and event, on stderr: for people, or as JSON.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use vitreous_files::printable::printable;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// Only what failed, for people.
    Errors,
}

/// A request that was answered.
pub struct RequestLine<'l> {
    pub id: &'l str,
    pub method: &'l str,
    pub path: &'l str,
    pub status: u16,
    pub took: Duration,
    pub error: Option<&'l str>,
}

/// Where lines go.
#[derive(Clone, Copy, Debug)]
pub struct Log(pub LogFormat);

impl Log {
    /// Whether a line could be written changes nothing: a full disk behind stderr must not end the server.
    fn write(line: &str) {
        let _ = writeln!(std::io::stderr(), "{}", printable(line));
    }

    /// Something that happened.
    pub fn note(&self, text: &str) {
        match self.0 {
            LogFormat::Text => Log::write(text),
            LogFormat::Json => Log::write(&json!({"time": now(), "level": "info", "message": text}).to_string()),
            LogFormat::Errors => {}
        }
    }

    /// Something that failed.
    pub fn error(&self, text: &str) {
        match self.0 {
            LogFormat::Text | LogFormat::Errors => Log::write(&format!("error: {text}")),
            LogFormat::Json => Log::write(&json!({"time": now(), "level": "error", "message": text}).to_string()),
        }
    }

    /// A request that was answered.
    pub fn request(&self, line: &RequestLine) {
        let RequestLine { id, method, path, status, took, error } = line;
        let milliseconds = took.as_secs_f64() * 1e3;
        match self.0 {
            LogFormat::Text => {
                let error = error.map(|error| format!("  {error}")).unwrap_or_default();
                Log::write(&format!("{method} {path} {status} {milliseconds:.1} ms {id}{error}"));
            }
            LogFormat::Json => Log::write(
                &json!({
                    "time": now(), "level": "info", "id": id, "method": method, "path": path, "status": status,
                    "milliseconds": (milliseconds * 1e3).round() / 1e3, "error": error,
                })
                .to_string(),
            ),
            LogFormat::Errors if *status >= 500 => {
                Log::write(&format!("error: {method} {path} {status} {id} {}", error.unwrap_or_default()));
            }
            LogFormat::Errors => {}
        }
    }
}

/// The time as `2026-01-31T12:00:00.000Z`.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_time(since.as_secs(), since.subsec_millis())
}

fn format_time(seconds: u64, milliseconds: u32) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    // Days since 0000-03-01: leap days come last in such years ("chrono-Compatible Low-Level Date Algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // By `date -u -d @N`.
        assert_eq!(format_time(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_time(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(format_time(1_709_251_199, 999), "2024-02-29T23:59:59.999Z");
        assert_eq!(format_time(4_102_444_800, 0), "2100-01-01T00:00:00.000Z");
    }
}
