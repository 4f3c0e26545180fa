//! Values of a reported status as an API server takes them: clamped, bounded, and of their types.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names::is_label_key;
use crate::api::util::text::escaped_text;

/// Largest count of Kubernetes.
pub(super) const MOST: i64 = i32::MAX as i64;
/// Most entries of a list of a source's status.
pub(super) const LIST: usize = 100;
/// Longest message, in characters.
const MESSAGE: usize = 1024;
/// Longest reason, in bytes.
const REASON: usize = 256;

/// Reads a time, and writes it as Kubernetes does: in whole seconds, of years that it knows.
pub(super) fn read_time(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| text.len() <= 64)?;
    format_time(text.parse().ok()?)
}

/// Writes a time as Kubernetes does; `None` before 1970.
pub(super) fn format_time(time: Timestamp) -> Option<String> {
    let seconds = Timestamp::from_second(time.as_second()).ok()?;
    (seconds.as_second() >= 0).then(|| seconds.to_string())
}

/// Reads a text for people: bounded, its control characters visible.
pub(super) fn read_message(value: &Value) -> String {
    let text: String = value.as_str().unwrap_or_default().chars().take(MESSAGE).collect();
    escaped_text(&text).into_owned()
}

/// Reads a reason: one word as conditions have it.
pub(super) fn read_reason(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| text.len() <= REASON)?;
    let bytes = text.as_bytes();
    let is_reason = bytes.first()?.is_ascii_alphabetic()
        && is_word_byte(*bytes.last()?)
        && bytes.iter().all(|byte| is_word_byte(*byte) || b",:".contains(byte));
    is_reason.then(|| text.to_owned())
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Reads the type of a condition: a qualified name.
pub(super) fn read_condition_type(value: &Value) -> Option<String> {
    value.as_str().filter(|text| text.len() <= 316 && is_label_key(text)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_taken_only_as_an_api_server_takes_them() {
        for (time, expected) in [
            (json!("2026-01-02T03:04:05.678+01:00"), Some("2026-01-02T02:04:05Z")),
            (json!("1969-12-31T23:59:59Z"), None),
            (json!("never"), None),
            (json!(5), None),
        ] {
            assert_eq!(read_time(&time).as_deref(), expected, "{time}");
        }
        for (reason, is_taken) in [
            ("NewReplicaSetAvailable", true),
            ("a:b,c_1", true),
            ("", false),
            ("1a", false),
            ("a b", false),
            ("a:", false),
        ] {
            assert_eq!(read_reason(&json!(reason)).is_some(), is_taken, "{reason}");
        }
        for (type_, is_taken) in [
            ("Ready", true),
            ("example.com/Ready", true),
            ("", false),
            ("/Ready", false),
            ("a b", false),
            ("x/", false),
        ] {
            assert_eq!(read_condition_type(&json!(type_)).is_some(), is_taken, "{type_}");
        }
        assert_eq!(read_message(&json!("a\u{1b}[2J")), "a\\u{1b}[2J");
        assert_eq!(read_message(&json!("m".repeat(5000))).len(), MESSAGE);
    }
}
