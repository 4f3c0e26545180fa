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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_empty_ends_leave_no_spaces() {
        let rows = [row(["NAME", "ZONE"]), row(["a-long-name", ""])];
        assert_eq!(Columns::of(&rows).lines(&rows), "NAME          ZONE\na-long-name\n");
    }
}
