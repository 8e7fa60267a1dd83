//! The tables of docs/datapath.md are those of the code.

use std::fmt::Write;
use std::fs;

use flowrail::wire::drop::{DropReason, Note, PuntReason};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/datapath.md");

/// What stands between the marks of a table.
fn table<'a>(page: &'a str, name: &str) -> &'a str {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (_, rest) = page.split_once(&open).unwrap_or_else(|| panic!("docs/datapath.md has no {open}"));
    rest.split_once(&close).unwrap_or_else(|| panic!("docs/datapath.md has no {close}")).0
}

fn expected(heading: &str, rows: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let mut text = format!("| {heading} | meaning |\n|---|---|\n");
    for (label, meaning) in rows {
        writeln!(text, "| `{label}` | {meaning} |").unwrap();
    }
    text
}

#[test]
fn every_reason_and_note_is_documented() {
    let page = fs::read_to_string(PAGE).unwrap();
    let drops = DropReason::ALL.iter().map(|reason| (reason.name(), reason.explain()));
    let notes = Note::ALL.iter().map(|note| (note.name(), note.explain()));
    let punts = PuntReason::ALL.iter().map(|reason| (reason.name(), reason.explain()));
    for (name, expected) in [
        ("drop reasons", expected("reason", drops)),
        ("notes", expected("note", notes)),
        ("punt reasons", expected("reason", punts)),
    ] {
        let found = table(&page, name);
        assert!(found == expected, "docs/datapath.md, {name}, should be:\n{expected}");
    }
}
