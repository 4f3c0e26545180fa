//! Foreign text made fit for a terminal: what agents, API servers, pods and files of others wrote, before it is printed.
//!
//! A terminal obeys control characters, and a reader is deceived by characters that turn the direction of a line or that
//! are not seen. They are escaped as Rust does, `\u{1b}`; all other text stays as it is. The functions here are the only
//! ones that do so. What they return is not changed by a second pass.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The most characters of a cell or a name: as many as Kubernetes allows in a name (RFC 1123 subdomain).
pub const CELL: usize = 253;
/// The most characters of a word that a stranger chose, as a version or the name in a request.
pub const WORD: usize = 64;
/// The most characters of a sentence: as many as Kubernetes allows in the note of an Event.
pub const MESSAGE: usize = 1024;
/// The most characters of a text of several lines or a list: as many as Kubernetes keeps of a container's termination message.
pub const LINES: usize = 4096;

/// Character that stands for the part that was cut off.
const CUT: char = '…';

/// Text on one line, line breaks escaped too; at most [`MESSAGE`] characters of it.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escape_bounded(text, MESSAGE, is_harmful)
}

/// Text of a table's cell, or a name within a sentence; at most [`CELL`] characters of it.
pub fn visible_cell(text: &str) -> Cow<'_, str> {
    escape_bounded(text, CELL, is_unseen)
}

/// A word that a stranger chose; at most [`WORD`] characters of it.
pub fn visible_word(text: &str) -> Cow<'_, str> {
    escape_bounded(text, WORD, is_harmful)
}

/// Text on one line about several things; at most [`LINES`] characters of it.
pub fn visible_list(text: &str) -> Cow<'_, str> {
    escape_bounded(text, LINES, is_harmful)
}

/// Text that keeps its line breaks and tabs; at most [`LINES`] characters of it.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escape_bounded(text, LINES, is_harmful_in_lines)
}

/// Text of any length that keeps its line breaks and tabs: the last guard of what is printed.
pub fn escaped_text(text: &str) -> Cow<'_, str> {
    if is_clean(text) { Cow::Borrowed(text) } else { escaped_where(text, is_harmful_in_lines) }
}

/// Text of any length on one line, line breaks escaped too.
pub fn escaped_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_harmful) { escaped_where(text, is_harmful) } else { Cow::Borrowed(text) }
}

fn escaped_where(text: &str, harmful: fn(char) -> bool) -> Cow<'_, str> {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        if harmful(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Escapes the texts of an object's status before it is written, because readers may print them unescaped. Messages
/// keep their line breaks; field names are kept, as an API server checks them.
pub fn escape_status(status: &mut serde_json::Value) {
    use serde_json::Value;
    match status {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(text) if field == "message" => *text = escaped_text(text).into_owned(),
                    other => escape_status(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(escape_status),
        Value::String(text) => *text = escaped_line(text).into_owned(),
        _ => {}
    }
}

/// A line of a log with its end, line breaks within it escaped too. A log that is `styled` keeps what sets styles: escape
/// sequences within its values were escaped when it was written.
pub fn escaped_log(line: &str, styled: bool) -> Cow<'_, str> {
    let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
    if !body.chars().any(is_harmful) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + line.len() / 8);
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        let style = if styled { style_length(rest) } else { 0 };
        let (part, after) = rest.split_at(style.max(c.len_utf8()));
        if style == 0 && c != '\t' && is_harmful(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push_str(part);
        }
        rest = after;
    }
    Cow::Owned(escaped + end)
}

/// The length of the sequence that sets a style (SGR) at the beginning of a text; 0 where there is none.
fn style_length(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return 0 };
    let rest = parameters.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
    if rest.starts_with('m') { text.len() - rest.len() + 1 } else { 0 }
}

/// JSON text without harmful characters: they stand in its strings only, where `\u009b` means the same.
pub fn escaped_json(text: &str) -> Cow<'_, str> {
    if is_clean(text) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        if is_harmful_in_lines(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns whether a terminal would act on a character, or a reader not see it as it is: control characters (C0, DEL,
/// C1), line separators, marks of direction, characters without width, tags, and what is no character at all.
pub const fn is_harmful(c: char) -> bool {
    matches!(
        c,
        // C0, DEL and C1.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Marks of direction.
        | '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Separators of lines, and what has no width.
        | '\u{2028}'..='\u{2029}' | '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        // What is no character.
        | '\u{fdd0}'..='\u{fdef}'
    ) || c as u32 & 0xfffe == 0xfffe
}

/// Returns whether a character looks like a space, or like nothing, and is neither a space nor [harmful](is_harmful).
const fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\u{a0}' | '\u{115f}'..='\u{1160}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}'
        | '\u{3000}' | '\u{3164}' | '\u{ffa0}'
    )
}

/// Returns whether nobody sees which character this is.
pub const fn is_unseen(c: char) -> bool {
    is_harmful(c) || is_blank(c)
}

/// A text in which what looks like a space and is none is escaped; for messages about what a user has written.
pub fn show_blanks(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_blank) { escaped_where(text, is_blank) } else { Cow::Borrowed(text) }
}

/// A clause about the first character of a name that is not ASCII, as it may look like one that is; empty without one.
pub fn describe_foreign_character(name: &str) -> String {
    let found = name.chars().position(|c| !c.is_ascii()).and_then(|at| Some((at + 1, name.chars().nth(at)?)));
    found.map_or_else(String::new, |(at, c)| format!(" (character {at} is U+{:04X})", u32::from(c)))
}

const fn is_harmful_in_lines(c: char) -> bool {
    !matches!(c, '\n' | '\t') && is_harmful(c)
}

/// Returns whether nothing of a text is to be escaped where line breaks and tabs may stay.
///
/// Megabytes of manifests are asked this before they are printed: blocks of ASCII are decided by their bytes, many at a
/// time, and characters are looked at only in others.
pub fn is_clean(text: &str) -> bool {
    const BLOCK: usize = 256;
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(BLOCK);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (block, after) = rest.split_at(end);
        if !is_printable_ascii(block.as_bytes()) && block.chars().any(is_harmful_in_lines) {
            return false;
        }
        rest = after;
    }
    true
}

/// Returns whether bytes are printable ASCII, line breaks and tabs. Without an early end, so that many are looked at at
/// a time.
fn is_printable_ascii(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |clean, byte| clean & (matches!(byte, b' '..=b'~') | matches!(byte, b'\n' | b'\t')))
}

fn escape_bounded(text: &str, most: usize, harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Only the part that can be shown is looked at: what is cut off may be many megabytes.
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let shown = &text[..end];
    if !shown.chars().any(&harmful) {
        return if end == text.len() { Cow::Borrowed(text) } else { Cow::Owned(format!("{shown}{CUT}")) };
    }
    let (mut escaped, mut length) = (String::with_capacity(shown.len() * 2), 0);
    for c in text.chars() {
        let before = escaped.len();
        if harmful(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
        length += escaped[before..].chars().count();
        if length > most {
            // An escape is shown whole or not at all.
            escaped.truncate(before);
            escaped.push(CUT);
            break;
        }
    }
    Cow::Owned(escaped)
}

/// Returns whether a text has one of these words.
pub fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// A text about an error with the causes of that, each once.
pub fn with_causes(mut text: String, error: &dyn std::error::Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Escape sequences and characters by which a text could act on a terminal or deceive its reader.
    const HOSTILE: [&str; 16] = [
        "\u{1b}]0;owned\u{7}",
        "\u{1b}]52;c;b3duZWQ=\u{1b}\\",
        "\u{1b}[2J\u{1b}[H",
        "\u{1b}[2K",
        "\u{1b}[31mred",
        "\r",
        "\u{8}\u{b}\u{c}",
        "\u{9b}2J",
        "\u{7f}",
        "\u{202e}\u{2066}\u{61c}",
        "\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}",
        "\u{2028}\u{2029}\u{85}",
        "\u{e0041}\u{e007f}",
        "\u{fdd0}\u{ffff}\u{1fffe}",
        "\0",
        "\u{9d}0;owned\u{9c}",
    ];

    #[test]
    fn a_status_is_escaped_at_any_depth_and_messages_keep_their_lines() {
        let mut status = serde_json::json!({"observed": {"zones": ["a\u{1b}", "b\n"], "nodeCount": 1},
            "conditions": [{"type": "T", "message": "one\ntwo\u{1b}[2J"}], "message": "\u{9b}\t"});
        escape_status(&mut status);
        let expected = serde_json::json!({"observed": {"zones": [r"a\u{1b}", r"b\n"], "nodeCount": 1},
            "conditions": [{"type": "T", "message": "one\ntwo\\u{1b}[2J"}], "message": "\\u{9b}\t"});
        assert_eq!(status, expected);
        escape_status(&mut status);
        assert_eq!(status, expected);
    }

    #[test]
    fn hostile_characters_are_escaped_and_others_stay() {
        for text in ["eu-west-1 \u{fc}\u{6771}", "√ ‼ × … → ─", "e\u{301} ⚠\u{fe0f}", r"C:\dir \u{1b}", ""]
        {
            for shown in
                [visible_line(text), visible_cell(text), visible_lines(text), escaped_text(text), escaped_json(text)]
            {
                assert!(matches!(shown, Cow::Borrowed(same) if same == text), "{shown}");
            }
        }
        for text in HOSTILE {
            for shown in
                [visible_line(text), visible_cell(text), visible_list(text), visible_lines(text), escaped_text(text)]
            {
                assert!(!shown.chars().any(is_harmful), "{shown:?}");
            }
        }
        assert_eq!(visible_line("a\u{1b}[2J\n\t\u{202e}\u{9b}"), r"a\u{1b}[2J\n\t\u{202e}\u{9b}");
        assert_eq!(visible_cell("a\u{a0}b\u{3000}"), r"a\u{a0}b\u{3000}");
        assert_eq!(show_blanks("a\u{2007}b c\n"), "a\\u{2007}b c\n");
        assert_eq!(visible_lines("a\r\n\tb"), "a\\r\n\tb");
        assert_eq!(escaped_text("a\r\n\tb\u{7f}"), "a\\r\n\tb\\u{7f}");
    }

    #[test]
    fn long_text_is_cut_with_its_escapes_whole() {
        let name = "n".repeat(CELL);
        assert!(matches!(visible_cell(&name), Cow::Borrowed(_)));
        for length in [CELL + 1, 65_535, 65_536, 70_000] {
            assert_eq!(visible_cell(&"n".repeat(length)), format!("{name}…"));
        }
        let shown = visible_cell(&"\u{1b}".repeat(1 << 20)).into_owned();
        assert_eq!(shown, format!("{}…", r"\u{1b}".repeat(CELL / 6)));
        assert_eq!(visible_line(&"é".repeat(1 << 20)).chars().count(), MESSAGE + 1);
        assert_eq!(visible_lines(&"\n".repeat(1 << 20)).chars().count(), LINES + 1);
        assert_eq!(escaped_text(&"n".repeat(70_000)).len(), 70_000);
    }

    #[test]
    fn a_harmful_character_is_found_wherever_it_is() {
        for before in (0..600).step_by(7).chain(250..260) {
            for around in ["n", "ü", "√"] {
                let text = around.repeat(before);
                assert!(is_clean(&text), "{before}");
                for harmful in ["\u{1b}", "\u{9b}", "\u{202e}", "\u{e0041}"] {
                    assert!(!is_clean(&format!("{text}{harmful}{text}")), "{before}");
                }
            }
        }
    }

    #[test]
    fn a_line_of_a_log_stays_one_and_keeps_only_its_styles() {
        let line = "\u{1b}[2mnow\u{1b}[0m \u{1b}[1;32mINFO\u{1b}[m\ta\n\u{1b}[2Jb\u{9b}32mc\u{1b}[3\n";
        let rest = "\ta\\n\\u{1b}[2Jb\\u{9b}32mc\\u{1b}[3\n";
        assert_eq!(escaped_log(line, true), format!("\u{1b}[2mnow\u{1b}[0m \u{1b}[1;32mINFO\u{1b}[m{rest}"));
        assert_eq!(escaped_log("\u{1b}[2ma\n", false), "\\u{1b}[2ma\n");
        assert!(matches!(escaped_log("a b\n", false), Cow::Borrowed(_)));
        for text in HOSTILE {
            let shown = escaped_log(text, false).into_owned();
            assert!(!shown.chars().any(is_harmful), "{shown:?}");
        }
    }

    #[test]
    fn json_means_the_same_without_harmful_characters() {
        for text in HOSTILE {
            let json = serde_json::json!({text: [text, "ü"]});
            let shown = serde_json::to_string_pretty(&json).unwrap();
            let shown = escaped_json(&shown);
            assert!(!shown.chars().any(is_harmful_in_lines), "{shown:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), json);
        }
    }

    proptest! {
        #[test]
        fn no_text_passes_harmful_and_a_second_pass_changes_nothing(text in any::<String>(), times in 0..600_usize) {
            let text = text.repeat(times);
            for (pass, most) in [
                (visible_line as fn(&str) -> Cow<'_, str>, MESSAGE),
                (visible_word, WORD),
                (visible_cell, CELL),
                (visible_list, LINES),
            ] {
                let shown = pass(&text);
                prop_assert!(!shown.chars().any(is_harmful));
                prop_assert!(shown.chars().count() <= most + 1);
                prop_assert_eq!(&pass(&shown), &shown);
            }
            let shown = escaped_text(&text);
            prop_assert_eq!(is_clean(&text), shown == text);
            prop_assert!(is_clean(&shown));
            prop_assert!(is_clean(&visible_lines(&text)));
        }
    }
}
