//! A long list of which a change copies one piece: rows in chunks behind `Arc`s. What a snapshot's large tables are made
//! of.

use std::sync::Arc;

/// Rows in chunks of `N`. Cloning costs a reference for each chunk; changing a row of a clone copies its chunk.
#[derive(Clone, Debug)]
pub struct Chunked<T, const N: usize> {
    chunks: Vec<Arc<[T]>>,
    len: usize,
}

impl<T, const N: usize> Default for Chunked<T, N> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Clone, const N: usize> Chunked<T, N> {
    /// `len` rows, all alike.
    #[must_use]
    pub fn filled(row: &T, len: usize) -> Self {
        let sizes = (0..len.div_ceil(N)).map(|chunk| (len - chunk * N).min(N));
        Self { chunks: sizes.map(|size| std::iter::repeat_n(row.clone(), size).collect()).collect(), len }
    }

    /// The row at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / N)?.get(index % N)
    }

    /// The row at `index` for a change. Copies its chunk if another snapshot has it too.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        Arc::make_mut(self.chunks.get_mut(index / N)?).get_mut(index % N)
    }

    /// Adds a row at the end. Copies the last chunk: meant for building, see [`FromIterator`] for many.
    pub fn push(&mut self, row: T) {
        match self.chunks.last_mut().filter(|last| last.len() < N) {
            Some(last) => *last = last.iter().cloned().chain([row]).collect(),
            None => self.chunks.push([row].into()),
        }
        self.len += 1;
    }

    /// Number of rows.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

impl<T: Clone, const N: usize> FromIterator<T> for Chunked<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut rows = rows.into_iter();
        let mut all = Self::default();
        loop {
            let chunk: Vec<T> = rows.by_ref().take(N).collect();
            if chunk.is_empty() {
                return all;
            }
            all.len += chunk.len();
            all.chunks.push(chunk.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_clone_copies_one_chunk_and_leaves_the_original() {
        let old: Chunked<u32, 4> = (0..10).collect();
        let mut new = old.clone();
        *new.get_mut(5).unwrap() = 99;
        new.push(10);
        assert_eq!(old.iter().copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(new.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 99, 6, 7, 8, 9, 10]);
        let shared = old.chunks.iter().zip(&new.chunks).map(|(a, b)| Arc::ptr_eq(a, b)).collect::<Vec<_>>();
        assert_eq!(shared, [true, false, false]);
        assert_eq!((new.len(), new.get(11), old.get(10)), (11, None, None));
    }

    #[test]
    fn filled_has_the_length_asked_for() {
        for len in [0, 1, 4, 5, 8] {
            let rows = Chunked::<u8, 4>::filled(&7, len);
            assert_eq!((rows.len(), rows.iter().count()), (len, len));
        }
    }
}
