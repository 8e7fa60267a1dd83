//! TOML text as a sequence of small documents, offsets and lines in it, and the collector of what is wrong.
//!
//! The TOML library keeps about 1 kB for each table, so a file with a million endpoints is parsed in pieces that are
//! read and forgotten one after another. A piece ends only in front of a header like `[[peer]]` or `[[tenant.route]]`.
//! Each further piece begins with an empty table of every kind that can have nested tables: it stands for the last
//! one of the piece before, so that nested tables belong to the table that they belong to in the file.

use std::cell::OnceCell;
use std::ops::Range;

use toml::de::DeTable;

use super::error::{ConfigError, ConfigErrors, Problem};

/// Pieces have about this many bytes.
const PIECE_LEN: usize = 64 * 1024;
/// Errors kept in full. A generated file that is wrong a million times needs no million lines.
const MAX_ERRORS: usize = 500;
/// In front of every piece but the first.
const CONTINUED: &str = "[[tenant]]\n[[network]]\n[[port]]\n[[peer]]\n";
/// Where a piece may start.
const HEADERS: [&[u8]; 9] = [
    b"\n[[peer.endpoint]]",
    b"\n[[peer]]",
    b"\n[[tenant.route]]",
    b"\n[[tenant.rule]]",
    b"\n[[tenant]]",
    b"\n[[network.group]]",
    b"\n[[network]]",
    b"\n[[port.vlan]]",
    b"\n[[port]]",
];

/// Byte offset in the whole text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offset(pub(super) u32);

/// A value and where it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: Offset,
}

/// Collects everything that is wrong with one text.
#[derive(Debug)]
pub(super) struct Errors<'t> {
    text: &'t str,
    lines: OnceCell<Lines>,
    list: Vec<(Offset, String, Problem)>,
    beyond: usize,
}

impl<'t> Errors<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, lines: OnceCell::new(), list: Vec::new(), beyond: 0 }
    }

    /// Notes a problem. The culprit is a function because naming it costs, and most tables are fine.
    pub(super) fn push(&mut self, at: Offset, culprit: impl FnOnce() -> String, problem: Problem) {
        if self.is_full() {
            self.beyond += 1;
        } else {
            self.list.push((at, culprit(), problem));
        }
    }

    /// Whether further problems are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_ERRORS
    }

    /// Line of an offset, from 1.
    pub(super) fn line(&self, at: Offset) -> usize {
        self.lines.get_or_init(|| Lines::of(self.text)).line(at)
    }

    /// The public form, or `None` when nothing is wrong.
    pub(super) fn into_report(mut self, file: &str) -> Option<ConfigErrors> {
        // After a syntax error tables are incomplete, and what else seems wrong with them misleads.
        if self.list.iter().any(|(.., problem)| matches!(problem, Problem::Syntax(_))) {
            self.list.retain(|(.., problem)| matches!(problem, Problem::Syntax(_)));
            self.beyond = 0;
        }
        self.list.sort_by_key(|&(at, ..)| at);
        let mut errors: Vec<_> = std::mem::take(&mut self.list)
            .into_iter()
            .map(|(at, culprit, problem)| ConfigError { line: self.line(at), culprit, problem })
            .collect();
        // One slip often makes the parser complain several times.
        errors.dedup_by(|next, kept| {
            next.line == kept.line
                && matches!((&next.problem, &kept.problem), (Problem::Syntax(_), Problem::Syntax(_)))
        });
        if errors.is_empty() {
            return None;
        }
        if self.beyond > 0 {
            let line = errors.last().map_or(1, |last| last.line);
            errors.push(ConfigError { line, culprit: String::new(), problem: Problem::More(self.beyond) });
        }
        Some(ConfigErrors { file: file.to_owned(), errors })
    }
}

/// Finds line numbers.
#[derive(Debug)]
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(i, _)| i).collect())
    }

    /// Line of an offset, from 1.
    pub(super) fn line(&self, at: Offset) -> usize {
        let at = usize::try_from(at.0).unwrap_or(usize::MAX);
        self.0.partition_point(|&newline| newline < at) + 1
    }
}

/// One parsed piece.
pub(super) struct Piece<'p> {
    pub(super) table: DeTable<'p>,
    pub(super) place: Place,
    /// Whether its first `[[tenant]]`, `[[network]]`, `[[port]]` and `[[peer]]` are the last ones before it, rather than
    /// new.
    pub(super) continued: bool,
}

/// Translates a piece's spans to offsets in the whole text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where the piece starts.
    start: usize,
    /// Bytes in front of the piece's text that are not in the file.
    prefix: usize,
}

impl Place {
    pub(super) fn offset(self, span: Range<usize>) -> Offset {
        let at = span.start.saturating_sub(self.prefix) + self.start;
        Offset(u32::try_from(at).unwrap_or(u32::MAX))
    }
}

/// Parses `text` and gives each piece to `read`; syntax errors go to `errors`.
pub(super) fn parse_pieces(
    text: &str,
    errors: &mut Errors<'_>,
    mut read: impl FnMut(Piece<'_>, &mut Errors<'_>),
) {
    let mut buffer = String::new();
    for range in piece_ranges(text) {
        let start = range.start;
        let Some(body) = text.get(range) else { continue };
        let continued = start > 0;
        let (input, prefix) = if continued {
            buffer.clear();
            buffer.push_str(CONTINUED);
            buffer.push_str(body);
            (buffer.as_str(), CONTINUED.len())
        } else {
            (body, 0)
        };
        let place = Place { start, prefix };
        let (table, syntax) = DeTable::parse_recoverable(input);
        for error in syntax {
            let at = place.offset(error.span().unwrap_or_default());
            let message = error.message();
            let message = message.strip_suffix(", expected nothing").unwrap_or(message);
            errors.push(at, String::new, Problem::Syntax(message.to_owned()));
        }
        read(Piece { table: table.into_inner(), place, continued }, errors);
    }
}

/// Where to cut. Texts with multi-line strings are not cut: only there could a line that looks like a header be
/// something else (a comment starts with `#`, and inside an array such a line is an error anyway).
fn piece_ranges(text: &str) -> Vec<Range<usize>> {
    let whole = text.contains("\"\"\"") || text.contains("'''");
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let cut = text
            .as_bytes()
            .get(start.saturating_add(PIECE_LEN)..)
            .filter(|_| !whole)
            .and_then(next_header)
            .map_or(text.len(), |i| start + PIECE_LEN + i);
        ranges.push(start..cut);
        start = cut;
    }
    ranges
}

/// Index of the next line that is one of [`HEADERS`].
fn next_header(bytes: &[u8]) -> Option<usize> {
    let found = |i: &usize| bytes.get(*i..).is_some_and(|rest| HEADERS.iter().any(|h| rest.starts_with(h)));
    bytes.iter().enumerate().filter(|&(_, &b)| b == b'\n').map(|(i, _)| i).find(found).map(|i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;

    fn endpoints(count: usize) -> String {
        let mut text = String::from("[[peer]]\nname = \"a\"\n");
        for i in 0..count {
            text.push_str(&format!("[[peer.endpoint]]\nmac = \"{i:012x}\"\n"));
        }
        text
    }

    #[test]
    fn pieces_cover_the_text_and_start_at_headers() {
        let text = endpoints(10_000);
        let ranges = piece_ranges(&text);
        assert!(ranges.len() > 4);
        assert_eq!(ranges.first().unwrap().start, 0);
        assert_eq!(ranges.last().unwrap().end, text.len());
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
            assert!(text[pair[1].start..].starts_with("[[peer.endpoint]]"));
        }
    }

    #[test]
    fn offsets_in_a_continued_piece_are_those_of_the_file() {
        let text = endpoints(10_000);
        let mut seen = 0;
        parse_pieces(&text, &mut Errors::new(&text), |piece, _| {
            let place = piece.place;
            for (key, peer) in piece.table {
                if key.get_ref() != "peer" {
                    continue;
                }
                for mut peer in
                    fields::split_tables(peer, "[[peer]]", place, |_, problem| panic!("{problem}"))
                {
                    peer.optional("name", fields::text);
                    for mut endpoint in peer.tables("endpoint", "[[peer.endpoint]]") {
                        let mac = endpoint.required("mac", fields::text).unwrap();
                        let at = usize::try_from(mac.at.0).unwrap();
                        assert_eq!(text[at..at + 14], format!("\"{seen:012x}\""));
                        assert_eq!(mac.value, format!("{seen:012x}"));
                        seen += 1;
                    }
                }
            }
        });
        assert_eq!(seen, 10_000);
    }

    #[test]
    fn a_text_with_multi_line_strings_stays_whole() {
        let text = format!("{}x = \"\"\"\n[[peer]]\n\"\"\"\n", endpoints(10_000));
        assert_eq!(piece_ranges(&text).len(), 1);
    }

    #[test]
    fn lines_count_from_one() {
        let lines = Lines::of("a\nb\n\nc");
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| lines.line(Offset(at))), [1, 1, 2, 2, 3, 4]);
    }
}
