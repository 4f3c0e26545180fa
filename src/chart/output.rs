//! Objects as text: YAML that every reader understands alike, and JSON.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::yaml::write;
use crate::api::util::text::{escaped_json, is_clean};

/// One value of any type as YAML, its fields in their own order, ending with a line break.
///
/// Block scalars are off and no line is folded: Kubernetes' reader does not understand all of either.
pub fn format_yaml<T: Serialize>(value: &T) -> String {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: false,
        folded_wrap_chars: 1_000_000_000,
    };
    let mut text = String::new();
    // Only maps with keys that are no text can fail, which JSON does not have.
    if serde_saphyr::to_fmt_writer_with_options(&mut text, value, options).is_err() {
        return serde_json::to_string(value).unwrap_or_default() + "\n";
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if is_clean(&text) {
        return text;
    }
    // What a terminal would act on is escaped by our own writer only; it keeps the values, and not the order of fields.
    serde_json::to_value(value).map_or(text, |value| object_yaml(&value))
}

/// A Kubernetes object, or any other JSON, as YAML as kubectl writes it; ten times faster than [`format_yaml`].
pub fn object_yaml(value: &Value) -> String {
    let mut text = String::new();
    write::write_document(&mut text, value);
    text
}

/// Values as a stream of YAML documents, `---` before each.
pub fn yaml_stream<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let mut text = String::new();
    for value in values {
        text.push_str("---\n");
        write::write_document(&mut text, value);
    }
    text
}

/// One value as indented JSON, ending with a line break. It holds nothing on which a terminal would act.
pub fn format_json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    match escaped_json(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

/// Values as one Kubernetes `List`, as indented JSON.
pub fn json_list<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let items: Vec<&Value> = values.into_iter().collect();
    format_json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// JSON without spaces and with sorted keys: the same value, the same text.
pub fn canonical_json(value: &Value) -> String {
    fn sort_keys(value: &Value) -> Value {
        match value {
            Value::Array(items) => Value::Array(items.iter().map(sort_keys).collect()),
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sort_keys(value))).collect())
            }
            other => other.clone(),
        }
    }
    sort_keys(value).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_readers_would_take_for_something_else_is_quoted() {
        let value = json!({"a": "no", "b": "1_000", "c": "077", "d": "1e3", "e": "~", "f": "", "g": "12:30", "h": "y", "i": "a\n\tb\n"});
        let text = object_yaml(&value);
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value);
        assert!(!text.contains(['|', '>']), "{text}");
        for line in text.lines() {
            assert!(line.contains('"'), "{line}");
        }
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped_and_read_back_the_same() {
        let hostile =
            "\u{1b}]0;owned\u{7}\r\u{9b}2J\u{7f}\u{202e}\u{200b}\u{61c}\u{2028}\u{feff}\u{fdd0}\u{e0041}\u{1ffff}";
        let value = json!({"a": hostile, hostile: [hostile, "ü→√ ⚠️ 東", {"b": hostile}]});
        for text in
            [object_yaml(&value), format_yaml(&value), yaml_stream([&value]), format_json(&value), json_list([&value])]
        {
            assert!(is_clean(&text), "{text:?}");
        }
        for text in [object_yaml(&value), format_yaml(&value)] {
            assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        }
        assert_eq!(serde_json::from_str::<Value>(&format_json(&value)).unwrap(), value);
    }

    #[test]
    fn canonical_text_does_not_depend_on_order() {
        let one: Value = serde_json::from_str(r#"{"b": [1, {"y": 1, "x": 2}], "a": null}"#).unwrap();
        assert_eq!(canonical_json(&one), r#"{"a":null,"b":[1,{"x":2,"y":1}]}"#);
    }
}
