//! Numbers for Prometheus. Its text format is lines of `name{labels} value`: a client library would be larger than what is needed of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Upper bounds of seconds.
const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Upper bounds of batch sizes.
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];

/// Counts of values below bounds.
#[derive(Clone, Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn add(&mut self, value: f64) {
        if let Some(place) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[place] += 1;
        }
        self.sum += value;
        self.count += 1;
    }

    fn write(&self, name: &str, labels: &str, text: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count;
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", self.sum);
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", self.count);
    }
}

/// A number of a model that is asked for when it is shown.
pub struct Gauge {
    /// The name, without `vitreous_`.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// `gauge` or `counter`.
    pub kind: &'static str,
    /// The model.
    pub model: String,
    /// The value.
    pub value: f64,
}

/// The numbers of a server.
#[derive(Default)]
pub struct Metrics {
    /// Requests by endpoint and status.
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    latencies: Mutex<BTreeMap<String, Histogram>>,
    /// Of each model the sizes of batches and the seconds that they took.
    batches: Mutex<BTreeMap<String, (Histogram, Histogram)>>,
    /// Seconds until the first token.
    first_tokens: Mutex<BTreeMap<String, Histogram>>,
    /// Requests that are being answered.
    pub in_flight: AtomicUsize,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Bytes of bodies, when this is shown.
    pub body_bytes: AtomicUsize,
    /// Times that models were loaded again.
    pub reloads: AtomicUsize,
    /// Clients that left before their answer was whole.
    pub left: AtomicUsize,
    /// Streams that ended with an error.
    pub broken_streams: AtomicUsize,
}

/// Locks of numbers are never held over anything that panics.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Metrics {
    /// A request was answered. `endpoint` is a pattern, not a path that a client made up.
    pub fn request(&self, endpoint: &str, status: u16, seconds: f64) {
        *locked(&self.requests).entry((endpoint.to_string(), status)).or_default() += 1;
        let mut latencies = locked(&self.latencies);
        latencies.entry(endpoint.to_string()).or_insert_with(|| Histogram::new(&SECONDS)).add(seconds);
    }

    /// A batch was computed.
    pub fn batch(&self, model: &str, size: usize, seconds: f64) {
        let mut batches = locked(&self.batches);
        let new = || (Histogram::new(&SIZES), Histogram::new(&SECONDS));
        let (sizes, times) = batches.entry(model.to_string()).or_insert_with(new);
        sizes.add(size as f64);
        times.add(seconds);
    }

    /// The first token of a text came.
    pub fn first_token(&self, model: &str, seconds: f64) {
        let mut first = locked(&self.first_tokens);
        first.entry(model.to_string()).or_insert_with(|| Histogram::new(&SECONDS)).add(seconds);
    }

    /// All of them as text.
    pub fn text(&self, gauges: &[Gauge]) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP vitreous_{name} {help}\n# TYPE vitreous_{name} {kind}");
        };
        head(&mut text, "requests_total", "counter", "Requests answered.");
        for ((endpoint, status), count) in locked(&self.requests).iter() {
            let labels = format!("endpoint=\"{}\",status=\"{status}\"", escaped(endpoint));
            let _ = writeln!(text, "vitreous_requests_total{{{labels}}} {count}");
        }
        head(&mut text, "request_seconds", "histogram", "Seconds until an answer began.");
        for (endpoint, histogram) in locked(&self.latencies).iter() {
            histogram.write("vitreous_request_seconds", &format!("endpoint=\"{}\"", escaped(endpoint)), &mut text);
        }
        head(
            &mut text,
            "batch_size",
            "histogram",
            "Images or texts that were computed together; of a language model, texts that got a token together.",
        );
        let batches = locked(&self.batches).clone();
        let label = |model: &str| format!("model=\"{}\"", escaped(model));
        batches.iter().for_each(|(model, (sizes, _))| sizes.write("vitreous_batch_size", &label(model), &mut text));
        head(&mut text, "batch_seconds", "histogram", "Seconds that a batch took.");
        batches.iter().for_each(|(model, (_, times))| times.write("vitreous_batch_seconds", &label(model), &mut text));
        head(&mut text, "first_token_seconds", "histogram", "Seconds until the first token of a text.");
        for (model, histogram) in locked(&self.first_tokens).iter() {
            histogram.write("vitreous_first_token_seconds", &label(model), &mut text);
        }
        let of_server = [
            ("in_flight", "Requests that are being answered.", self.in_flight.load(Ordering::Relaxed)),
            ("connections", "Open connections.", self.connections.load(Ordering::Relaxed)),
            ("body_bytes", "Bodies of requests that are read or answered.", self.body_bytes.load(Ordering::Relaxed)),
            ("resident_bytes", "Memory of the process.", resident_bytes().unwrap_or(0)),
        ];
        for (name, help, value) in of_server {
            head(&mut text, name, "gauge", help);
            let _ = writeln!(text, "vitreous_{name} {value}");
        }
        let counted = [
            ("reloads_total", "Times that models were loaded again.", &self.reloads),
            ("left_total", "Clients that left before their answer was whole.", &self.left),
            ("broken_streams_total", "Streams that ended with an error.", &self.broken_streams),
        ];
        for (name, help, count) in counted {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "vitreous_{name} {}", count.load(Ordering::Relaxed));
        }
        let mut names: Vec<&str> = Vec::new();
        gauges.iter().for_each(|gauge| {
            if !names.contains(&gauge.name) {
                names.push(gauge.name)
            }
        });
        for name in names {
            for (place, gauge) in gauges.iter().filter(|gauge| gauge.name == name).enumerate() {
                if place == 0 {
                    head(&mut text, name, gauge.kind, gauge.help);
                }
                let _ = writeln!(text, "vitreous_{name}{{{}}} {}", label(&gauge.model), gauge.value);
            }
        }
        text
    }
}

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Bytes of this process that are in memory, where the system tells.
pub fn resident_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let metrics = Metrics::default();
        metrics.request("/a\"b", 200, 0.002);
        metrics.request("/a\"b", 200, 0.3);
        metrics.request("/a\"b", 429, 1000.0);
        let text = metrics.text(&[]);
        for line in [
            "vitreous_requests_total{endpoint=\"/a\\\"b\",status=\"200\"} 2",
            "vitreous_request_seconds_bucket{endpoint=\"/a\\\"b\",le=\"0.001\"} 0",
            "vitreous_request_seconds_bucket{endpoint=\"/a\\\"b\",le=\"0.0025\"} 1",
            "vitreous_request_seconds_bucket{endpoint=\"/a\\\"b\",le=\"0.5\"} 2",
            "vitreous_request_seconds_bucket{endpoint=\"/a\\\"b\",le=\"+Inf\"} 3",
            "vitreous_request_seconds_count{endpoint=\"/a\\\"b\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
