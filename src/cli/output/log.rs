//! Log that `--verbose` and `RUST_LOG` show on stderr: above all the requests, never their bodies.

use std::io;

use clap::ValueEnum;
use indicatif::MultiProgress;
use tracing_subscriber::EnvFilter;

use crate::api::util::text::{escaped_json, escaped_log};

/// How the lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Parts of libraries that can print what they send or receive, headers with tokens and the values of Secrets included.
/// Whatever the filter says, they stay at what is harmless.
const BOUNDS: [&str; 8] = [
    "kube_client::client=info",
    "kube_client::client::auth=info",
    "kube_client::config=info",
    "hyper=info",
    "hyper_util=info",
    "h2=info",
    "rustls=info",
    "serde_saphyr=info",
];

/// Stderr, above what is drawn there again and again. The log writes each of its lines at once, and paths, errors and what
/// libraries say are in the words of others.
struct Above {
    lines: MultiProgress,
    format: LogFormat,
    styled: bool,
}

impl io::Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        let line = match self.format {
            LogFormat::Text => escaped_log(&line, self.styled),
            LogFormat::Json => escaped_json(&line),
        };
        self.lines.suspend(|| io::stderr().write_all(line.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Starts the log: `RUST_LOG` as it says; else one `--verbose` for requests, two for what leads to them, three for the
/// libraries too. Without any of them nothing is written. It stays above the `lines` that are drawn again.
pub(crate) fn start_log(verbose: u8, format: LogFormat, lines: &MultiProgress) {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let directives = match (from_environment, verbose) {
        (Some(filter), 0) => filter,
        (_, 0) => return,
        (_, 1) => "fleetctl=info".to_owned(),
        (_, 2) => "fleetctl=debug,kube=info".to_owned(),
        _ => "debug".to_owned(),
    };
    // Only what would go beyond a bound is bounded: a bound alone must not switch anything on.
    let filter = EnvFilter::builder().parse_lossy(&directives);
    let widest = filter.max_level_hint();
    let filter = if widest.is_some_and(|level| level >= tracing_subscriber::filter::LevelFilter::DEBUG) {
        BOUNDS.iter().filter_map(|bound| bound.parse().ok()).fold(filter, EnvFilter::add_directive)
    } else {
        filter
    };
    let styled = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer({
        let lines = lines.clone();
        move || Above { lines: lines.clone(), format, styled }
    });
    // A second start, in a test, is no error.
    let _ = match format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(styled).try_init(),
    };
}
