//! A picture of a terminal, as SVG, from what commands really printed.

use std::fmt::Write as _;

const COLUMN: f32 = 8.4;
const LINE: usize = 19;
const MARGIN: usize = 16;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The colour of a line: prompts stand out, marks have the colours that the program gives them.
fn colour(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("$ ") => "#7ee787",
        _ if line.contains('‼') || line.starts_with("warning") => "#e3b341",
        _ if line.contains('×') || line.starts_with("Error") => "#ff7b72",
        _ => "#d0d7de",
    }
}

/// A piece of a line in one look.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    text: String,
    colour: &'static str,
    bold: bool,
}

const TEXT: &str = "#d0d7de";
const FAINT: &str = "#8b949e";

/// The sixteen colours of a terminal that the program uses.
fn ansi(code: u8) -> &'static str {
    match code {
        31 | 91 => "#ff7b72",
        32 | 92 => "#7ee787",
        33 | 93 => "#e3b341",
        34 | 94 => "#79c0ff",
        35 | 95 => "#d2a8ff",
        36 | 96 => "#76e3ea",
        90 => FAINT,
        _ => TEXT,
    }
}

/// The pieces of a line, by the escape sequences that colour it. A look lasts until the next one, beyond the line.
fn pieces(line: &str, look: &mut (&'static str, bool)) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut push = |text: &str, look: (&'static str, bool)| {
        if !text.is_empty() {
            found.push(Piece { text: text.to_owned(), colour: look.0, bold: look.1 });
        }
    };
    let mut rest = line;
    while let Some(at) = rest.find("\u{1b}[") {
        push(&rest[..at], *look);
        let sequence = &rest[at + 2..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(sequence.len());
        if sequence[end..].starts_with('m') {
            for code in sequence[..end].split(';') {
                match code.parse().unwrap_or(0) {
                    0 => *look = (TEXT, false),
                    1 => look.1 = true,
                    2 => look.0 = FAINT,
                    22 => *look = (if look.0 == FAINT { TEXT } else { look.0 }, false),
                    code @ (30..=37 | 39 | 90..=97) => look.0 = ansi(code),
                    _ => {}
                }
            }
        }
        rest = sequence.get(end + 1..).unwrap_or_default();
    }
    push(rest, *look);
    found
}

/// Text without the escape sequences that colour it on a terminal.
pub(crate) fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| pieces(line, &mut (TEXT, false)));
    lines.map(|line| line.into_iter().map(|piece| piece.text).collect::<String>() + "\n").collect()
}

/// Draws what commands printed, a line of the picture each; its colours are those of [`colour`].
pub(crate) fn svg(title: &str, transcript: &str) -> String {
    let line = |line: &str| vec![Piece { colour: colour(line), text: line.to_owned(), bold: false }];
    draw(title, &plain(transcript).lines().map(line).collect::<Vec<_>>())
}

/// Draws a screen as `tmux capture-pane -e` gives it, in its own colours.
pub(crate) fn screen(title: &str, captured: &str) -> String {
    let mut look = (TEXT, false);
    draw(title, &captured.trim_end().lines().map(|line| pieces(line, &mut look)).collect::<Vec<_>>())
}

fn draw(title: &str, lines: &[Vec<Piece>]) -> String {
    let length = |line: &Vec<Piece>| line.iter().map(|piece| piece.text.chars().count()).sum();
    let columns = lines.iter().map(length).max().unwrap_or(0).max(60);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let width = (columns as f32 * COLUMN) as usize + 2 * MARGIN;
    let height = (lines.len() + 2) * LINE + 2 * MARGIN;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n\
         <title>{0}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <text x=\"{MARGIN}\" y=\"{1}\" fill=\"{FAINT}\">{0}</text>\n",
        escaped(title),
        MARGIN + LINE,
    );
    for (index, line) in lines.iter().enumerate() {
        let y = MARGIN + (index + 3) * LINE - LINE / 2;
        let _ = write!(picture, "<text x=\"{MARGIN}\" y=\"{y}\">");
        for piece in line {
            let weight = if piece.bold { " font-weight=\"bold\"" } else { "" };
            let _ = write!(picture, "<tspan fill=\"{}\"{weight}>{}</tspan>", piece.colour, escaped(&piece.text));
        }
        picture.push_str("</text>\n");
    }
    picture.push_str("</g>\n</svg>\n");
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_every_line_and_no_markup_of_its_own() {
        let picture = svg("demo", "$ fleetctl status\n\u{1b}[32m√\u{1b}[0m a < b & c\n");
        assert!(picture.contains("√ a &lt; b &amp; c") && !picture.contains('\u{1b}'), "{picture}");
        assert_eq!(picture.matches("<text").count(), 3);
    }

    #[test]
    fn a_screen_keeps_its_colours_beyond_the_end_of_a_line() {
        let picture = screen("demo", "\u{1b}[1m\u{1b}[31mError\u{1b}[0m: a\u{1b}[33mb\nc\u{1b}[39md\n\n\n");
        for piece in [
            "<tspan fill=\"#ff7b72\" font-weight=\"bold\">Error</tspan><tspan fill=\"#d0d7de\">: a</tspan>",
            "<tspan fill=\"#e3b341\">b</tspan></text>",
            "<tspan fill=\"#e3b341\">c</tspan><tspan fill=\"#d0d7de\">d</tspan>",
        ] {
            assert!(picture.contains(piece), "{piece} in {picture}");
        }
        assert_eq!(picture.matches("<text").count(), 3, "what is below the last line is left out");
    }
}
