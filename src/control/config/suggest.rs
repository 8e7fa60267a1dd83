//! "Did you mean": the nearest known word to one that was not found.

use std::fmt;

/// Names are short; measuring a hostile text of megabytes against thousands of names would take minutes.
const LONGEST_SLIP: usize = 24;

/// A suggestion to append to a message; empty when nothing is near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(Option<String>);

impl Hint {
    /// The candidate nearest to `word`, if any is near enough to be a slip of the pen.
    pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        // A third of the letters wrong is a slip; more is another word.
        let limit = word.chars().count().div_ceil(3);
        if limit > LONGEST_SLIP {
            return Self::default();
        }
        let distances = candidates.into_iter().map(|c| (distance(word, c), c));
        let nearest = distances.min().filter(|&(d, _)| d <= limit);
        Self(nearest.map(|(_, candidate)| candidate.to_owned()))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |word| write!(f, "; did you mean {word}?"))
    }
}

/// Levenshtein distance: insertions, deletions and replacements that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, to) in cells.zip(b.chars()) {
            let replaced = diagonal + usize::from(from != to);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("blue", "blue", 0), ("bleu", "blue", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["interface", "encap_ips", "mtu"];
        assert_eq!(Hint::nearest("interfce", known).to_string(), "; did you mean interface?");
        assert_eq!(Hint::nearest("encap_ip", known).to_string(), "; did you mean encap_ips?");
        assert_eq!(Hint::nearest("colour", known).to_string(), "");
        assert_eq!(Hint::nearest("x", []).to_string(), "");
    }
}
