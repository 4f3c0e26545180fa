//! Metrics, served in Prometheus' text format.
//!
//! No list declares them: the call that updates a metric, such as [`Metrics::increment_counter`], gives its name and help where
//! the event happens. A test compares these calls with `docs/metrics.md`.
//!
//! They are our own because `prometheus-client` changes what is served: counters lose `_total` in HELP and TYPE, `le="10"`
//! becomes `le="10.0"`, help gets a second full stop; and it does not let buckets be read, which tests need.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Upper bounds of a histogram's buckets, in seconds; the last one is infinite.
pub const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::INFINITY];

/// Upper bounds, likewise, for work that takes microseconds as a rule.
pub const SHORT_BUCKETS: [f64; BUCKETS.len()] =
    [0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.1, 0.5, 2.5, f64::INFINITY];

/// Durations of one kind of work, counted by the bounds of buckets.
#[derive(Debug, Clone)]
pub struct Durations {
    bounds: &'static [f64; BUCKETS.len()],
    counts: [u64; BUCKETS.len()],
    sum: f64,
}

impl Default for Durations {
    fn default() -> Self {
        Self::from_bounds(&BUCKETS)
    }
}

impl Durations {
    fn from_bounds(bounds: &'static [f64; BUCKETS.len()]) -> Self {
        Self { bounds, counts: [0; BUCKETS.len()], sum: 0.0 }
    }

    /// Returns what was recorded after `earlier`, an older state of the same.
    #[must_use]
    pub fn durations_since(&self, earlier: &Self) -> Self {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].saturating_sub(earlier.counts[bucket]));
        Self { counts, sum: self.sum - earlier.sum, ..*self }
    }

    /// Returns the time within which `share` of the durations lie, in seconds, estimated within its bucket as Prometheus does;
    /// `None` while there are none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().sum();
        let (mut below, mut floor) = (0, 0.0);
        for (count, bound) in self.counts.into_iter().zip(*self.bounds) {
            #[allow(clippy::cast_precision_loss)] // Counts far below 2^52.
            let (rank, under, inside) = (all as f64 * share, below as f64, count as f64);
            if count > 0 && under + inside >= rank {
                // No more is known about durations beyond the last bound.
                let width = if bound.is_infinite() { 0.0 } else { bound - floor };
                return Some(floor + width * ((rank - under) / inside).clamp(0.0, 1.0));
            }
            below += count;
            floor = bound;
        }
        None
    }
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: Kind,
    /// Labels as they are printed, `{a="b"}` or nothing → value.
    values: BTreeMap<String, f64>,
    durations: Durations,
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
    let inner: Vec<_> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape_label_value(value))).collect();
    format!("{{{}}}", inner.join(","))
}

fn escape_label_value(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

impl Metrics {
    fn update_metric(
        &self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut f64),
    ) {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let family = families.entry(name).or_insert_with(|| Family {
            help,
            kind,
            values: BTreeMap::new(),
            durations: Durations::default(),
        });
        change(family.values.entry(print_labels(labels)).or_insert(0.0));
    }

    /// Adds one to a counter; its name ends in `_total`.
    pub fn increment_counter(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) {
        self.update_metric(name, help, Kind::Counter, labels, |value| *value += 1.0);
    }

    /// Sets a gauge.
    pub fn set_gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.update_metric(name, help, Kind::Gauge, labels, |old| *old = value);
    }

    /// Sets all values of a gauge. Those with other labels are removed.
    pub fn replace_gauge<'l>(
        &self,
        name: &'static str,
        help: &'static str,
        values: impl Iterator<Item = (&'l [(&'l str, &'l str)], f64)>,
    ) {
        let values = values.map(|(labels, value)| (print_labels(labels), value)).collect();
        let family = Family { help, kind: Kind::Gauge, values, durations: Durations::default() };
        self.families.lock().unwrap_or_else(PoisonError::into_inner).insert(name, family);
    }

    /// Records a duration in a histogram without labels; its name ends in `_seconds`.
    pub fn observe_duration(&self, name: &'static str, help: &'static str, duration: Duration) {
        self.observe_by(&BUCKETS, name, help, duration);
    }

    /// Records a duration as [`Self::observe_duration`] does, with [`SHORT_BUCKETS`].
    pub fn observe_short(&self, name: &'static str, help: &'static str, duration: Duration) {
        self.observe_by(&SHORT_BUCKETS, name, help, duration);
    }

    fn observe_by(
        &self,
        bounds: &'static [f64; BUCKETS.len()],
        name: &'static str,
        help: &'static str,
        duration: Duration,
    ) {
        let seconds = duration.as_secs_f64();
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let family = families.entry(name).or_insert_with(|| Family {
            help,
            kind: Kind::Histogram,
            values: BTreeMap::new(),
            durations: Durations::from_bounds(bounds),
        });
        let bucket = family.durations.bounds.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len() - 1);
        family.durations.counts[bucket] += 1;
        family.durations.sum += seconds;
    }

    /// Returns the value of a counter or a gauge with these labels; 0 where nothing was recorded.
    pub fn metric_value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.get(name).and_then(|family| family.values.get(&print_labels(labels))).copied().unwrap_or(0.0)
    }

    /// Returns the durations of a histogram so far; none where nothing was recorded.
    pub fn histogram_durations(&self, name: &str) -> Durations {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.get(name).map(|family| family.durations.clone()).unwrap_or_default()
    }

    /// Formats everything in Prometheus' text format.
    pub fn format_metrics(&self) -> String {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (name, family) in families.iter() {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            for (labels, value) in &family.values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
            if family.kind == Kind::Histogram {
                let mut below = 0;
                for (count, bound) in family.durations.counts.iter().zip(family.durations.bounds) {
                    below += count;
                    let bound = if bound.is_infinite() { "+Inf".to_owned() } else { bound.to_string() };
                    let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {below}");
                }
                let _ = writeln!(text, "{name}_sum {}\n{name}_count {below}", family.durations.sum);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_by_bucket() {
        let metrics = Metrics::default();
        for milliseconds in [1, 20, 20, 20_000] {
            metrics.observe_duration("work_seconds", "Work.", Duration::from_millis(milliseconds));
        }
        let text = metrics.format_metrics();
        for line in [
            "work_seconds_bucket{le=\"0.005\"} 1",
            "work_seconds_bucket{le=\"0.025\"} 3",
            "le=\"10\"} 3",
            "le=\"+Inf\"} 4",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let all = metrics.histogram_durations("work_seconds");
        let rounded = [0.5, 0.75, 0.99].map(|share| all.quantile(share).map(|seconds| (seconds * 1000.0).round()));
        assert_eq!(rounded, [Some(18.0), Some(25.0), Some(10_000.0)]);
        assert_eq!(metrics.histogram_durations("nothing").quantile(0.5), None);
        metrics.observe_short("short_seconds", "Work.", Duration::from_micros(80));
        assert!(
            metrics
                .format_metrics()
                .contains("short_seconds_bucket{le=\"0.00005\"} 0\nshort_seconds_bucket{le=\"0.0001\"} 1")
        );
        metrics.observe_duration("work_seconds", "Work.", Duration::from_millis(1));
        let later = metrics.histogram_durations("work_seconds").durations_since(&all);
        assert_eq!(later.quantile(1.0), Some(0.005), "what was before does not count");
    }

    #[test]
    fn the_served_text_is_stable() {
        let metrics = Metrics::default();
        metrics.increment_counter("passes_total", "Passes.", &[("result", "ok")]);
        metrics.increment_counter("passes_total", "Passes.", &[("result", "ok")]);
        metrics.set_gauge("leader", "Whether this process leads.", &[], 1.0);
        metrics.set_gauge("info", "Info.", &[("v", "a\"b")], 1.0);
        assert!(metrics.metric_value("passes_total", &[("result", "ok")]) > 1.5);
        assert!(metrics.metric_value("passes_total", &[("result", "failed")]) < 0.5);
        assert_eq!(
            metrics.format_metrics(),
            "# HELP info Info.\n# TYPE info gauge\ninfo{v=\"a\\\"b\"} 1\n\
             # HELP leader Whether this process leads.\n# TYPE leader gauge\nleader 1\n\
             # HELP passes_total Passes.\n# TYPE passes_total counter\npasses_total{result=\"ok\"} 2\n"
        );
    }
}
