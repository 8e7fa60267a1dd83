//! What a run measured, in words for a person and as one line of JSON for a script.

use std::fmt::Write;

/// Latencies in nanoseconds, kept whole: the counts of a probe are bounded.
#[derive(Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn record(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// The value below which `percent` of the samples lie, in microseconds.
    fn percentile_us(&self, percent: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (percent / 100.0 * last as f64).round() as usize;
        self.0.get(index).map_or(0.0, |&ns| ns as f64 / 1000.0)
    }

    fn sorted(&mut self) -> [(&'static str, f64); 4] {
        self.0.sort_unstable();
        [("p50", 50.0), ("p99", 99.0), ("p999", 99.9), ("max", 100.0)]
            .map(|(name, percent)| (name, self.percentile_us(percent)))
    }
}

/// Named figures in the order they are told.
#[derive(Default)]
pub struct Report {
    figures: Vec<(String, String, bool)>,
    /// What went wrong; empty when nothing did.
    pub faults: Vec<String>,
}

impl Report {
    pub fn count(&mut self, name: &str, value: u64) {
        self.figures.push((name.to_owned(), value.to_string(), false));
    }

    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), format!("{value:.3}"), false));
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.figures.push((name.to_owned(), value.to_owned(), true));
    }

    /// Median and tail as `NAME_p50_us` and so on; nothing when there is no sample.
    pub fn latencies(&mut self, name: &str, mut latencies: Latencies) {
        if !latencies.0.is_empty() {
            for (percentile, us) in latencies.sorted() {
                self.figure(&format!("{name}_{percentile}_us"), us);
            }
        }
    }

    /// Notes a fault when `count` things were wrong.
    pub fn fault(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.faults.push(format!("{count} {what}"));
        }
    }

    /// Prints the report; true when nothing went wrong.
    pub fn print(&self, json: bool) -> bool {
        let mut out = String::new();
        for (name, value, quoted) in &self.figures {
            let quote = if *quoted { "\"" } else { "" };
            let _ = match json {
                true => write!(out, "\"{name}\":{quote}{value}{quote},"),
                false => writeln!(out, "{:<22}{value}", name.replace('_', " ")),
            };
        }
        let ok = self.faults.is_empty();
        if json {
            let faults: Vec<String> = self.faults.iter().map(|fault| format!("\"{fault}\"")).collect();
            println!("{{{out}\"ok\":{ok},\"faults\":[{}]}}", faults.join(","));
        } else {
            print!("{out}");
            let verdict = if ok { "nothing".to_owned() } else { self.faults.join(", ") };
            println!("{:<22}{verdict}", "wrong");
        }
        ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let mut latencies = Latencies::default();
        for us in (1..=1001).rev() {
            latencies.record(us * 1000);
        }
        assert_eq!(latencies.sorted().map(|(_, us)| us), [501.0, 991.0, 1000.0, 1001.0]);
    }
}
