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

/// Text without the escape sequences that colour it on a terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        shown.push_str(&rest[..at]);
        let sequence = &rest[at + 2..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 1);
        rest = &sequence[end..];
    }
    shown + rest
}

/// Draws `transcript`, a line of the picture each.
pub(crate) fn svg(title: &str, transcript: &str) -> String {
    let text = plain(transcript);
    let lines: Vec<&str> = text.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(60);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let width = (columns as f32 * COLUMN) as usize + 2 * MARGIN;
    let height = (lines.len() + 2) * LINE + 2 * MARGIN;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n\
         <title>{0}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <text x=\"{MARGIN}\" y=\"{1}\" fill=\"#8b949e\">{0}</text>\n",
        escaped(title),
        MARGIN + LINE,
    );
    for (index, line) in lines.iter().enumerate() {
        let y = MARGIN + (index + 3) * LINE - LINE / 2;
        let _ = writeln!(picture, "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{}\">{}</text>", colour(line), escaped(line));
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
}
