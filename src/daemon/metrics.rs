//! Metrics: named numbers, written in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: Kind,
    /// Labels as they are printed, `{a="b"}` or nothing → value.
    values: BTreeMap<String, f64>,
}

/// All metrics of a program. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

fn print_labels(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let inner: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", inner.join(","))
}

impl Metrics {
    fn update(
        &self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut f64),
    ) {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let family = families.entry(name).or_insert_with(|| Family { help, kind, values: BTreeMap::new() });
        change(family.values.entry(print_labels(labels)).or_insert(0.0));
    }

    /// Adds one to a counter; its name ends in `_total`.
    pub fn count(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) {
        self.update(name, help, Kind::Counter, labels, |value| *value += 1.0);
    }

    /// Sets a gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.update(name, help, Kind::Gauge, labels, |old| *old = value);
    }

    /// Everything, in Prometheus' text format.
    pub fn print(&self) -> String {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (name, family) in families.iter() {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            for (labels, value) in &family.values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_printed_in_prometheus_text_format() {
        let metrics = Metrics::default();
        metrics.count("passes_total", "Passes.", &[("result", "ok")]);
        metrics.count("passes_total", "Passes.", &[("result", "ok")]);
        metrics.gauge("leader", "Whether this process leads.", &[], 1.0);
        metrics.gauge("info", "Info.", &[("v", "a\"b")], 1.0);
        assert_eq!(
            metrics.print(),
            "# HELP info Info.\n# TYPE info gauge\ninfo{v=\"a\\\"b\"} 1\n\
             # HELP leader Whether this process leads.\n# TYPE leader gauge\nleader 1\n\
             # HELP passes_total Passes.\n# TYPE passes_total counter\npasses_total{result=\"ok\"} 2\n"
        );
    }
}
