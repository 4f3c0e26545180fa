//! Styles within texts, which are painted only where a text is printed.
//!
//! A style stands in a text as a character that Unicode keeps for the use of programs among themselves (a noncharacter).
//! So everything else in a text can be escaped when it is printed: no escape sequence of another's text is ever sent to a
//! terminal, not even one of colour. Foreign text that was made visible ([`crate::api::util::text`]) has no such characters.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};

use crate::api::util::text::{escaped_text, is_clean};

/// The mark of what is as it should be.
pub(crate) const GOOD: char = '\u{fdd0}';
/// The mark of what works, but wants attention.
pub(crate) const DOUBTFUL: char = '\u{fdd1}';
/// The mark of what is broken.
pub(crate) const BAD: char = '\u{fdd2}';
/// The begin of a heading.
pub(crate) const HEADING: char = '\u{fdd3}';
/// The begin of a word that warns.
pub(crate) const CAUTION: char = '\u{fdd4}';
/// The end of a heading or a word.
pub(crate) const END: char = '\u{fdd5}';

const fn is_style(c: char) -> bool {
    matches!(c, GOOD..=END)
}

/// A text with its styles as escape sequences, and everything else escaped on which a terminal would act. Marks are of
/// ASCII unless `unicode` is known to be shown.
pub(crate) fn paint_text(text: &str, unicode: bool) -> Cow<'_, str> {
    if is_clean(text) {
        return Cow::Borrowed(text);
    }
    let mut painted = String::with_capacity(text.len() + text.len() / 8);
    let (mut rest, mut open) = (text, false);
    while let Some(at) = rest.find(is_style) {
        painted.push_str(&escaped_text(&rest[..at]));
        let style = rest[at..].chars().next().unwrap_or(END);
        rest = &rest[at + style.len_utf8()..];
        match style {
            HEADING => painted.push_str(&Style::new().bold().render().to_string()),
            CAUTION => painted.push_str(&colour_style(AnsiColor::Yellow).bold().render().to_string()),
            END => painted.push_str(&Style::new().bold().render_reset().to_string()),
            mark => painted.push_str(&paint_mark(mark, unicode)),
        }
        open = matches!(style, HEADING | CAUTION);
    }
    painted.push_str(&escaped_text(rest));
    if open {
        painted.push_str(&Style::new().bold().render_reset().to_string());
    }
    Cow::Owned(painted)
}

/// A text as it is printed where there are no colours.
pub(crate) fn strip_styles(text: &str, unicode: bool) -> String {
    anstream::adapter::strip_str(&paint_text(text, unicode)).to_string()
}

fn colour_style(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(colour.into()))
}

fn paint_mark(mark: char, unicode: bool) -> String {
    let (sign, ascii, colour) = match mark {
        GOOD => ("√", "[ok]", AnsiColor::Green),
        DOUBTFUL => ("‼", "[!!]", AnsiColor::Yellow),
        _ => ("×", "[x]", AnsiColor::Red),
    };
    let style = colour_style(colour);
    format!("{style}{}{style:#}", if unicode { sign } else { ascii })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::util::text::visible_line;

    #[test]
    fn styles_are_painted_and_escape_sequences_of_others_are_not() {
        let text = format!("{HEADING}a{END} {GOOD} \u{1b}[32mb\u{1b}[0m\r\n\tc\n");
        assert_eq!(
            paint_text(&text, true),
            "\u{1b}[1ma\u{1b}[0m \u{1b}[32m√\u{1b}[0m \\u{1b}[32mb\\u{1b}[0m\\r\n\tc\n"
        );
        assert_eq!(strip_styles(&text, false), "a [ok] \\u{1b}[32mb\\u{1b}[0m\\r\n\tc\n");
        assert_eq!(paint_text(&format!("{CAUTION}a"), true), "\u{1b}[1m\u{1b}[33ma\u{1b}[0m");
        assert!(matches!(paint_text("clean √\n", true), Cow::Borrowed(_)));
    }

    #[test]
    fn foreign_text_holds_no_styles() {
        let shown = visible_line("\u{fdd0}\u{fdd3}healthy").into_owned();
        assert_eq!(paint_text(&shown, true), r"\u{fdd0}\u{fdd3}healthy");
    }
}
