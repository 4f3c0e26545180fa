//! A JSON value as one text that does not depend on the order of its keys.

use std::fmt::Write as _;

use serde_json::Value;

/// Writes a value without blanks, maps in the order of their keys.
pub fn to_canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(&mut text, value);
    text
}

fn write_canonical(text: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_canonical(text, &Value::String(key.clone()));
                text.push(':');
                write_canonical(text, value);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_canonical(text, value);
            }
            text.push(']');
        }
        // Writing to a String cannot fail.
        scalar => _ = write!(text, "{scalar}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_sample_json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let (a, b) = (
            parse_sample_json(r#"{"b":[1,{"y":"\"","x":null}],"a":1.5}"#),
            parse_sample_json(r#"{"a":1.5,"b":[1,{"x":null,"y":"\""}]}"#),
        );
        assert_eq!(to_canonical_json(&a), to_canonical_json(&b));
        assert_eq!(parse_sample_json(&to_canonical_json(&a)), a);
    }
}
