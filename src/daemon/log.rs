//! Logs: one line an event, as JSON or as text, on stderr.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use crate::api::util::text::{escaped_json, escaped_log};

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Stderr, which `kubectl logs` shows on a terminal: texts of requests and foreign objects are escaped. The log writes each of
/// its lines at once.
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
pub fn start_logging(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off,kube_runtime=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || Escaped(format));
    // A second start, as in tests, changes nothing.
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
}

/// Last logged state by subject: only changes are logged, so that an outage of an hour is two lines and not two thousand.
#[derive(Debug, Default)]
pub struct OnChange {
    last: Mutex<BTreeMap<&'static str, String>>,
}

impl OnChange {
    /// Records the `state` of `subject`. Returns true where it changed.
    pub fn record_if_changed(&self, subject: &'static str, state: &str) -> bool {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.get(subject).is_some_and(|logged| logged == state) {
            return false;
        }
        last.insert(subject, state.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_state_is_not_logged() {
        let logged = OnChange::default();
        assert!(logged.record_if_changed("server", "refused"));
        assert!(!logged.record_if_changed("server", "refused"));
        assert!(logged.record_if_changed("lease", "refused"));
        assert!(logged.record_if_changed("server", "ok"));
        assert!(logged.record_if_changed("server", "refused"));
    }
}
