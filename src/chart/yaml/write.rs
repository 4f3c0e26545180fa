//! Writes JSON values as YAML that readers of YAML 1.1, such as Kubernetes' own, and of 1.2 understand alike.
//!
//! Only what no reader could take for something else is written plainly; all other text is quoted, on one line, with
//! everything escaped that a reader might refuse or change. Lists are indented as kubectl does.

use std::fmt::Write as _;

use serde_json::Value;

use crate::api::util::text::is_harmful;

/// Words that some reader takes for a boolean or null, in lower case.
const WORDS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];

/// Appends a value as a document, ending with a line break.
pub(crate) fn write_document(text: &mut String, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => write_mapping(text, map, 0, false),
        Value::Array(items) if !items.is_empty() => write_list(text, items, 0, false),
        value => {
            write_scalar(text, value);
            text.push('\n');
        }
    }
}

fn write_indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

/// Appends the entries of a mapping; the first continues the current line if that has `begun`.
fn write_mapping(text: &mut String, map: &serde_json::Map<String, Value>, depth: usize, mut begun: bool) {
    for (key, value) in map {
        if !std::mem::take(&mut begun) {
            write_indent(text, depth);
        }
        write_string(text, key);
        text.push(':');
        match value {
            Value::Object(below) if !below.is_empty() => {
                text.push('\n');
                write_mapping(text, below, depth + 1, false);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                write_list(text, items, depth, false);
            }
            value => {
                text.push(' ');
                write_scalar(text, value);
                text.push('\n');
            }
        }
    }
}

/// Appends the items of a list, each behind a dash; the first continues the current line if that has `begun`.
fn write_list(text: &mut String, items: &[Value], depth: usize, mut begun: bool) {
    for item in items {
        if !std::mem::take(&mut begun) {
            write_indent(text, depth);
        }
        text.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_mapping(text, map, depth + 1, true),
            Value::Array(below) if !below.is_empty() => write_list(text, below, depth + 1, true),
            value => {
                write_scalar(text, value);
                text.push('\n');
            }
        }
    }
}

fn write_scalar(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => {
            let _ = write!(text, "{number}");
        }
        Value::String(value) => write_string(text, value),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

/// Positions at which a byte may stand in text without quotes.
#[derive(Clone, Copy)]
enum PlainAt {
    Always,
    Inside,
    Never,
}

/// [`PlainAt`] of every byte; a table, because it is looked up for all text that is printed.
static PLAIN: [PlainAt; 256] = {
    let mut all = [PlainAt::Never; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        all[byte as usize] = match byte {
            b'-' | b'_' | b'.' | b'/' | b'=' | b'@' | b'+' | b',' | b'(' | b')' | b';' | b'$' => PlainAt::Always,
            b':' | b' ' => PlainAt::Inside,
            byte if byte.is_ascii_alphanumeric() => PlainAt::Always,
            _ => PlainAt::Never,
        };
        byte += 1;
    }
    all
};

/// Returns whether text stays text without quotes: it begins like a word, a path or a flag, and nothing in it means
/// anything to YAML.
fn is_plain(value: &str) -> bool {
    let bytes = value.as_bytes();
    let start = match bytes {
        [b'-', b'-', rest @ ..] | [b'/', rest @ ..] => rest,
        all => all,
    };
    let Some(first) = start.first() else { return false };
    // What begins with a digit, a dot or a sign may be a number, a date or a time; what is short may be a word.
    first.is_ascii_alphabetic()
        && bytes.iter().enumerate().all(|(at, byte)| match PLAIN[usize::from(*byte)] {
            PlainAt::Always => true,
            PlainAt::Inside => {
                // Not at the end, and never two of them together: `: ` ends a key, and a space at the end is lost.
                let next = bytes.get(at + 1).copied().unwrap_or(b' ');
                next != b' ' && next != b':'
            }
            PlainAt::Never => false,
        })
        && !(value.len() <= 5 && is_word(value))
}

fn is_word(value: &str) -> bool {
    WORDS.iter().chain(&["null"]).any(|word| value.eq_ignore_ascii_case(word))
}

fn write_string(text: &mut String, value: &str) {
    if is_plain(value) {
        text.push_str(value);
        return;
    }
    text.push('"');
    let mut rest = value;
    // Only these bytes can begin a character that is escaped.
    let candidate =
        |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f | 0xc2 | 0xd8 | 0xe1 | 0xe2 | 0xef | 0xf0..=0xf4);
    while let Some(at) = rest.bytes().position(candidate) {
        text.push_str(&rest[..at]);
        let c = rest[at..].chars().next().unwrap_or_default();
        rest = &rest[at + c.len_utf8()..];
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if !needs_escape(c) => text.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..0x100 => write!(text, "\\x{code:02X}"),
                    0x100..0x1_0000 => write!(text, "\\u{code:04X}"),
                    _ => write!(text, "\\U{code:08X}"),
                };
            }
        }
    }
    text.push_str(rest);
    text.push('"');
}

/// Quotes, and what some reader or a terminal would act on: control characters, what separates lines, marks of direction and
/// of byte order, and what is no character.
fn needs_escape(c: char) -> bool {
    matches!(c, '"' | '\\' | '\u{a0}') || is_harmful(c)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: &Value) -> String {
        let mut text = String::new();
        write_document(&mut text, value);
        text
    }

    #[test]
    fn objects_look_as_kubectl_writes_them() {
        let value = json!({"kind": "Pod", "spec": {"containers": [
            {"args": ["--v=4", "-c", ""], "image": "a.b:5000/c:v1", "name": "x", "ports": [{"containerPort": 80}]},
        ], "lists": [[1, 2], [], {}], "nodeSelector": {}, "on": true, "text": "a: b"}});
        let expected = "kind: Pod\nspec:\n  containers:\n  - args:\n    - --v=4\n    - \"-c\"\n    - \"\"\n    image: a.b:5000/c:v1\n    name: x\n    ports:\n    - containerPort: 80\n  lists:\n  - - 1\n    - 2\n  - []\n  - {}\n  nodeSelector: {}\n  \"on\": true\n  text: \"a: b\"\n";
        assert_eq!(written(&value), expected);
        assert_eq!(serde_saphyr::from_str::<Value>(expected).unwrap(), value);
    }

    #[test]
    fn text_that_could_be_something_else_is_quoted() {
        for text in [
            "",
            "y",
            "No",
            "ON",
            "null",
            "NULL",
            "True",
            "~",
            "1",
            "1_000",
            "0x1f",
            "1e3",
            ".5",
            ".inf",
            "-1",
            "+1",
            "-",
            "--",
            "---",
            "12:30",
            "2024-01-01",
            "a: b",
            "a:",
            "a #b",
            " a",
            "a ",
            "a  b",
            "- a",
            "? a",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a",
            "=",
            "<<",
            "[a",
            "{a",
            "a\nb",
            "a\u{85}b",
            "\u{feff}a",
            "grüße",
            "a\"b",
            "a\\b",
            "'a'",
            "a: ",
            "a :b",
            "a,  b",
        ] {
            let shown = written(&json!(text));
            assert!(shown.starts_with('"'), "{shown}");
            assert_eq!(serde_saphyr::from_str::<Value>(&shown).unwrap(), json!(text), "{shown}");
        }
        for text in [
            "word",
            "/etc/x",
            "--flag=value",
            "a.b/c:v1",
            "apps/v1",
            "a b",
            "(a) b",
            "a, b",
            "system:x",
            "$(X)a",
            "yesterday",
        ] {
            let shown = written(&json!(text));
            let plain = text != "(a) b" && text != "$(X)a";
            assert_eq!(shown.starts_with('"'), !plain, "{shown}");
            assert_eq!(serde_saphyr::from_str::<Value>(&shown).unwrap(), json!(text), "{shown}");
        }
    }
}
