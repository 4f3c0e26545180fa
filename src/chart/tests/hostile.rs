//! Strings that would do harm if they were ever parsed.

use proptest::prelude::*;

/// Pieces of YAML, of templates, of the packager's own marks, control characters, and what readers take for something
/// else than text.
#[rustfmt::skip]
const PIECES: [&str; 91] = [
    "\n", "\r", "\r\n", "\t", " ", "  ", ": ", ":", " #", "#", "- ", "-", "---", "\n---\n", "...", "? ",
    "&a", "*a", "!!int ", "!", "|", "|-\n", ">", "%", "@", "`", "'", "\"", "\\", "\\n", "{", "}", "[", "]",
    ",", "{{", "}}", "{{ values }}", "{%", "%}", "{#", "#}", "<<", "<<: ", "~", "null", "yes", "no", "on",
    "y", "true", "0", "010", "0x1f", "1_000", "1e3", ".inf", ".nan", "12:30", "=", "2024-01-01", "\u{0}",
    "\u{1}", "\u{7f}", "\u{80}", "\u{85}", "\u{a0}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{fffe}",
    "\u{ffff}", "\u{e000}", "\u{e001}", "\u{e002}", "\u{e003}", "\u{e000}0\u{e001}", "\u{e000}1\u{e001}",
    "\u{e002}0\u{e001}", "\u{e003}0.1\u{e001}", "kind: Secret", "\nkind: ClusterRole\n", "apiVersion", "a",
    "Z", "ß", "😀", "é", "\u{10ffff}", "\u{200b}", "[0-9eE+_.:xob-]{0,8}",
];

/// Text out of these pieces, any text, or something that looks like a number.
pub(crate) fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(&PIECES[..]);
    prop_oneof![
        prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat()),
        any::<String>(),
        "[0-9eE+_.:xob-]{0,8}",
    ]
}
