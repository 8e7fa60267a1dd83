//! Reader of one TOML table, key by key: values where they are written, problems collected, unknown keys found.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use arrayvec::ArrayVec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{At, Errors, Offset, Place};
use super::error::{Problem, ValueProblem};
use super::suggest::Hint;

/// Most keys of one kind of table.
const MAX_KEYS: usize = 16;

/// Reads one table key by key; what is left at the end is unknown. Problems wait until [`Fields::finish`], when
/// the table's name is known.
pub(super) struct Fields<'p> {
    table: DeTable<'p>,
    place: Place,
    /// Where the table starts.
    pub(super) at: Offset,
    problems: Vec<(Offset, Problem)>,
    known: ArrayVec<&'static str, MAX_KEYS>,
}

impl<'p> Fields<'p> {
    pub(super) fn new(table: DeTable<'p>, at: Offset, place: Place) -> Self {
        Self { table, place, at, problems: Vec::new(), known: ArrayVec::new() }
    }

    /// The value of `key`, read by `parse`; `None` when absent or wrong.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Option<At<T>> {
        let value = self.take(key)?;
        self.read(key, value, parse)
    }

    /// Like [`Self::optional`], but absence is a problem.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Option<At<T>> {
        match self.take(key) {
            Some(value) => self.read(key, value, parse),
            None => {
                self.problem(self.at, Problem::Missing(key));
                None
            }
        }
    }

    /// The elements of the array at `key`; `None` when it is absent or any element is wrong.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Option<At<Vec<At<T>>>> {
        let value = self.take(key)?;
        let at = self.place.offset(value.span());
        match value.into_inner() {
            DeValue::Array(array) => {
                let count = array.len();
                let values: Vec<_> = array.into_iter().filter_map(|v| self.read(key, v, &parse)).collect();
                (values.len() == count).then_some(At { value: values, at })
            }
            other => {
                let problem = ValueProblem::Type { wanted: "an array", found: type_name(&other) };
                self.problem(at, Problem::Value { key, problem });
                None
            }
        }
    }

    /// Like [`Self::list`], but absence and emptiness are problems.
    pub(super) fn required_list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Option<At<Vec<At<T>>>> {
        match self.table.get(key).map(|value| (value.span(), value.get_ref())) {
            None => self.problem(self.at, Problem::Missing(key)),
            Some((span, DeValue::Array(array))) if array.is_empty() => {
                self.problem(self.place.offset(span), Problem::Empty(key));
            }
            Some(_) => {}
        }
        self.list(key, parse)
    }

    /// Like [`Self::list`], with at least one and at most `max` elements, each once. Empty when absent or wrong.
    pub(super) fn set<T: fmt::Display + Clone + Eq + Hash>(
        &mut self,
        key: &'static str,
        max: usize,
        parse: impl Fn(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Vec<At<T>> {
        let Some(list) = self.list(key, parse) else { return Vec::new() };
        let count = list.value.len();
        if count == 0 {
            self.problem(list.at, Problem::Empty(key));
        } else if count > max {
            self.problem(list.at, Problem::TooMany { what: key, count, max });
        }
        let mut seen = HashSet::new();
        let (once, again): (Vec<_>, Vec<_>) =
            list.value.into_iter().partition(|value| seen.insert(value.value.clone()));
        for value in again {
            self.problem(value.at, Problem::ListedTwice { key, value: value.value.to_string() });
        }
        once
    }

    /// The tables under `key`, written as `[[…]]` or as an array of inline tables.
    pub(super) fn tables(&mut self, key: &'static str, header: &'static str) -> Vec<Fields<'p>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let place = self.place;
        let mut problems = Vec::new();
        let tables = split_tables(value, header, place, |at, problem| problems.push((at, problem)));
        self.problems.append(&mut problems);
        tables
    }

    /// Where the value of `key` is, if it is there. Asked before it is read.
    pub(super) fn at_of(&self, key: &str) -> Option<Offset> {
        self.table.get(key).map(|value| self.place.offset(value.span()))
    }

    /// Notes a problem of nested tables that have no table above them, when there are any.
    pub(super) fn orphans(&mut self, parent: &'static str, child: &'static str, nested: Vec<Fields<'p>>) {
        if let Some(first) = nested.first() {
            self.problem(first.at, Problem::Orphan { parent, child });
        }
    }

    /// Whether the key is there. Asked before it is read, so that a wrong value is not taken for a missing one.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes a problem of this table.
    pub(super) fn problem(&mut self, at: Offset, problem: Problem) {
        self.problems.push((at, problem));
    }

    /// Reports unknown keys and every problem noted, under the table's name.
    pub(super) fn finish(mut self, errors: &mut Errors<'_>, culprit: impl Fn() -> String) {
        let unknown = std::mem::take(&mut self.table);
        for (key, _) in unknown {
            let at = self.place.offset(key.span());
            let hint = Hint::nearest(key.get_ref(), self.known.iter().copied());
            self.problem(at, Problem::UnknownKey { key: printable(key.get_ref()), hint });
        }
        for (at, problem) in self.problems {
            errors.push(at, &culprit, problem);
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'p>>> {
        // A table that knows more keys than the array holds only suggests fewer of them.
        let _ = self.known.try_push(key);
        self.table.remove(key)
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        value: Spanned<DeValue<'p>>,
        parse: impl FnOnce(DeValue<'p>) -> Result<T, ValueProblem>,
    ) -> Option<At<T>> {
        let at = self.place.offset(value.span());
        match parse(value.into_inner()) {
            Ok(value) => Some(At { value, at }),
            Err(problem) => {
                self.problem(at, Problem::Value { key, problem });
                None
            }
        }
    }
}

/// The tables of an array of tables; anything else is reported through `report`.
pub(super) fn split_tables<'p>(
    value: Spanned<DeValue<'p>>,
    header: &'static str,
    place: Place,
    mut report: impl FnMut(Offset, Problem),
) -> Vec<Fields<'p>> {
    let at = place.offset(value.span());
    let DeValue::Array(array) = value.into_inner() else {
        report(at, Problem::Shape(header));
        return Vec::new();
    };
    let mut tables = Vec::with_capacity(array.len());
    for element in array {
        let at = place.offset(element.span());
        match element.into_inner() {
            DeValue::Table(table) => tables.push(Fields::new(table, at, place)),
            _ => report(at, Problem::Shape(header)),
        }
    }
    tables
}

/// A type's name with its article.
pub(super) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Untrusted text for a message: control characters escaped, length bounded.
pub(super) fn printable(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// Takes a string's text.
pub(super) fn text(value: DeValue<'_>) -> Result<Cow<'_, str>, ValueProblem> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(ValueProblem::Type { wanted: "a string", found: type_name(&other) }),
    }
}
