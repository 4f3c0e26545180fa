//! The lines of a log by which `fleet-scheduler` and `fleet-agent` say whether they are ready, for who reads the logs of pods.

use std::borrow::Cow;

use serde_json::Value;

/// Name of the scheduler in these lines.
pub const SCHEDULER: &str = "fleet-scheduler";
/// Name of the agent in these lines.
pub const AGENT: &str = "fleet-agent";
/// Words between the name and the reason, where a program has failed in something.
pub const NOT_READY: &str = " is not ready: ";
/// Words in their place when the program is ready again.
pub const READY: &str = " is ready: ";

/// Returns the reason that a line gives for a program that is not ready.
pub fn not_ready_reason(line: &str) -> Option<String> {
    reported_text(&log_message(line), NOT_READY).map(str::to_owned)
}

/// Returns whether a line says that a program is ready.
pub fn is_ready(line: &str) -> bool {
    reported_text(&log_message(line), READY).is_some()
}

fn reported_text<'m>(message: &'m str, words: &str) -> Option<&'m str> {
    [SCHEDULER, AGENT].iter().find_map(|program| message.split_once(program)?.1.strip_prefix(words))
}

/// Returns the message of a line: logs are written as JSON by default; of any other line, the whole line.
pub(crate) fn log_message(line: &str) -> Cow<'_, str> {
    let parsed = serde_json::from_str::<Value>(line).ok();
    let message = parsed.as_ref().and_then(|parsed| parsed["message"].as_str());
    message.map_or(Cow::Borrowed(line), |message| Cow::Owned(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_a_log_are_read() {
        let json = r#"{"level":"WARN","message":"fleet-agent is not ready: Refused: \"a\"","target":"admin"}"#;
        assert_eq!(not_ready_reason(json).as_deref(), Some("Refused: \"a\""));
        let text = "2026-01-01T00:00:00Z  WARN fleet-scheduler is not ready: Bootstrapped: no";
        assert_eq!(not_ready_reason(text).as_deref(), Some("Bootstrapped: no"));
        assert!(is_ready(r#"{"message":"fleet-scheduler is ready: leading"}"#) && !is_ready(json));
        assert_eq!(not_ready_reason(r#"{"message":"joined","name":"fleet-agent is not ready: x"}"#), None);
    }
}
