//! Aligned columns of text.

/// Rows, under a header unless it is empty. Columns of numbers are aligned to the right.
#[derive(Debug)]
pub(super) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&title| title.to_owned()).collect(), rows: Vec::new() }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Lines, each ended.
    pub(super) fn render(&self) -> String {
        let header = Some(&self.header).filter(|header| !header.is_empty());
        let lines = || header.into_iter().chain(&self.rows);
        let columns = lines().map(Vec::len).max().unwrap_or_default();
        let layout: Vec<(usize, bool)> = (0..columns).map(|column| self.layout(column)).collect();
        let mut text = String::new();
        for cells in lines() {
            let mut line = String::new();
            for (cell, (width, numeric)) in cells.iter().zip(&layout) {
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) = if *numeric { (&*padding, "") } else { ("", &*padding) };
                for part in [before, cell, after, "  "] {
                    line.push_str(part);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Width of a column, and whether it holds numbers.
    fn layout(&self, column: usize) -> (usize, bool) {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        let width = cells().chain(self.header.get(column)).map(|cell| cell.chars().count()).max();
        let numeric = cells().all(|cell| !cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit()));
        (width.unwrap_or_default(), numeric && !self.rows.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lean_right_and_words_left() {
        let mut table = Table::new(&["name", "count", "note"]);
        table.row(["é".to_owned(), "7".to_owned(), "x".to_owned()]);
        table.row(["rail0".to_owned(), "1234567".to_owned(), String::new()]);
        assert_eq!(table.render(), "name     count  note\né            7  x\nrail0  1234567\n");
    }

    #[test]
    fn a_table_may_have_no_header_and_no_rows() {
        let mut table = Table::new(&[]);
        assert_eq!(table.render(), "");
        table.row(["a".to_owned(), "10".to_owned()]);
        table.row(["b".to_owned(), "9".to_owned()]);
        assert_eq!(table.render(), "a  10\nb   9\n");
        assert_eq!(Table::new(&["uplink", "remote"]).render(), "uplink  remote\n");
    }
}
