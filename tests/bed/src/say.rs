//! Where the bed talks: progress goes to stderr, results to stdout.

use std::io::Write;

/// One line of progress. A closed stderr is no reason to stop.
pub(crate) fn say(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", line.as_ref());
}

/// One line of result. A closed stdout (`| head`) is no error either.
pub(crate) fn print(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout().lock(), "{}", line.as_ref());
}

/// Seconds with one digit, as every progress line shows them.
pub(crate) fn seconds(duration: std::time::Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
