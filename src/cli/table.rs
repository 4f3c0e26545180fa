//! Tables as kubectl prints them: columns as wide as their widest cell, three spaces between them.

/// The widths of columns; a cell that comes later and is wider moves what follows it on its own line only.
#[derive(Debug, Clone)]
pub(super) struct Columns(Vec<usize>);

impl Columns {
    /// Columns for these rows, the titles among them.
    pub(super) fn of(rows: &[Vec<String>]) -> Self {
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        Self((0..columns).map(width).collect())
    }

    /// One line, with its end.
    pub(super) fn line(&self, row: &[String]) -> String {
        let padded = row.iter().zip(&self.0).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    }

    /// All lines.
    pub(super) fn lines(&self, rows: &[Vec<String>]) -> String {
        rows.iter().map(|row| self.line(row)).collect()
    }
}

/// Texts as the cells of a row.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Text for a terminal: agents write much of what is shown, and what could move the cursor, break a line or turn its
/// direction is shown escaped.
pub(super) fn shown(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let escaped = |c: char| if harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_empty_ends_leave_no_spaces() {
        let rows = [row(["NAME", "ZONE"]), row(["a-long-name", ""])];
        assert_eq!(Columns::of(&rows).lines(&rows), "NAME          ZONE\na-long-name\n");
    }

    #[test]
    fn what_could_change_a_terminal_is_shown_escaped_and_other_text_as_it_is() {
        assert_eq!(shown("eu-west-1 \u{fc}\u{6771}"), "eu-west-1 \u{fc}\u{6771}");
        assert_eq!(shown("a\u{1b}[2J\n\u{202e}\u{9b}"), r"a\u{1b}[2J\n\u{202e}\u{9b}");
    }
}
