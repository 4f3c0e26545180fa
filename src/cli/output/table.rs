//! Tables as kubectl prints them: columns as wide as their widest cell, three spaces between them.

use std::borrow::Cow;

use crate::api::util::text::visible_cell;

/// The widths of columns; a cell that comes later and is wider moves what follows it on its own line only.
#[derive(Debug, Clone)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    /// Columns for these rows, the titles among them.
    pub(crate) fn from_rows(rows: &[Vec<String>]) -> Self {
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths = (0..columns).map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| text_width(&visible_cell(cell))).max().unwrap_or_default()
        });
        Self(widths.collect())
    }

    /// One line, with its end.
    pub(crate) fn format_line(&self, row: &[String]) -> String {
        let padded = row.iter().zip(&self.0).map(|(cell, width)| pad_cell(cell, *width).into_owned());
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    }

    /// All lines.
    pub(crate) fn format_lines(&self, rows: &[Vec<String>]) -> String {
        rows.iter().map(|row| self.format_line(row)).collect()
    }
}

/// Texts as the cells of a row.
pub(crate) fn table_row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// The columns that a text takes up.
pub(crate) fn text_width(text: &str) -> usize {
    text.chars().count()
}

/// A cell with spaces up to a width, whatever the width: that of a format string ends at 65,535, and beyond it panics.
///
/// Agents and API servers write much of what is shown, so it is made visible and is cut here, once for all tables.
pub(crate) fn pad_cell(cell: &str, width: usize) -> Cow<'_, str> {
    let cell = visible_cell(cell);
    match width.saturating_sub(text_width(&cell)) {
        0 => cell,
        missing => Cow::Owned(cell.into_owned() + &" ".repeat(missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::util::text::CELL;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_empty_ends_leave_no_spaces() {
        let rows = [table_row(["NAME", "ZONE"]), table_row(["a-long-name", ""])];
        assert_eq!(Columns::from_rows(&rows).format_lines(&rows), "NAME          ZONE\na-long-name\n");
    }

    #[test]
    fn cells_of_any_length_and_content_keep_the_columns() {
        for length in [0, 1, CELL, 65_535, 65_536, 70_000] {
            let rows = [table_row(["NAME", "ZONE"]), table_row([&"n".repeat(length), "z\u{1b}[2J\n"])];
            let shown = Columns::from_rows(&rows).format_lines(&rows);
            let name = rows[1][0].chars().take(CELL).collect::<String>() + if length > CELL { "…" } else { "" };
            let width = name.chars().count().max(4);
            assert_eq!(
                shown,
                format!(
                    "NAME{}   ZONE\n{name}{}   z\\u{{1b}}[2J\\n\n",
                    " ".repeat(width - 4),
                    " ".repeat(width - name.chars().count())
                )
            );
        }
        assert_eq!(pad_cell("a", 70_000).len(), 70_000);
    }
}
