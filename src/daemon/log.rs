//! Logs: one line an event, as JSON or as text, on stderr.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use crate::api::text::{escaped_json, escaped_log};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Stderr, which `kubectl logs` shows on a terminal: what requests and objects of others say is escaped. The log writes each
/// of its lines at once.
struct Escaped(LogFormat);

impl io::Write for Escaped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        let line = match self.0 {
            LogFormat::Json => escaped_json(&line),
            LogFormat::Text => escaped_log(&line, false),
        };
        io::stderr().write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Starts logging. `RUST_LOG` chooses the level; the default is `info`.
pub fn start(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off,kube_runtime=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || Escaped(format));
    // A second start, as in tests, changes nothing.
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
}

/// Says a thing only when it differs from what was last said about the same subject, so that an outage of an hour is
/// two lines and not two thousand.
#[derive(Debug, Default)]
pub struct OnChange {
    last: Mutex<BTreeMap<&'static str, String>>,
}

impl OnChange {
    /// Whether `what` is news about `subject`; it is remembered.
    pub fn news(&self, subject: &'static str, what: &str) -> bool {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.get(subject).is_some_and(|said| said == what) {
            return false;
        }
        last.insert(subject, what.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_message_is_no_news() {
        let said = OnChange::default();
        assert!(said.news("hub", "refused"));
        assert!(!said.news("hub", "refused"));
        assert!(said.news("lease", "refused"));
        assert!(said.news("hub", "ok"));
        assert!(said.news("hub", "refused"));
    }
}
