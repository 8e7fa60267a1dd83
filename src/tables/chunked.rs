//! A long list of which a change copies one piece: rows in chunks behind `Arc`s. What a snapshot's large tables are made
//! of.

use std::sync::Arc;

/// Rows in chunks of `N`. Cloning costs a reference for each chunk; changing a row of a clone copies its chunk.
#[derive(Clone, Debug)]
pub struct Chunked<T, const N: usize> {
    chunks: Vec<Arc<[T]>>,
    /// Rows that were pushed and do not fill a chunk yet. Copied with every clone.
    tail: Vec<T>,
    len: usize,
}

impl<T, const N: usize> Default for Chunked<T, N> {
    fn default() -> Self {
        Self { chunks: Vec::new(), tail: Vec::new(), len: 0 }
    }
}

impl<T: Clone, const N: usize> Chunked<T, N> {
    /// `len` rows, all alike.
    #[must_use]
    pub fn filled(row: &T, len: usize) -> Self {
        let sizes = (0..len.div_ceil(N)).map(|chunk| (len - chunk * N).min(N));
        let chunks = sizes.map(|size| std::iter::repeat_n(row.clone(), size).collect()).collect();
        Self { chunks, tail: Vec::new(), len }
    }

    /// The row at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.chunks.get(index / N) {
            Some(chunk) => chunk.get(index % N),
            None => self.tail.get(index - self.chunks.len() * N),
        }
    }

    /// The row at `index` for a change. Copies its chunk if another snapshot has it too.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let in_chunks = self.chunks.len() * N;
        match self.chunks.get_mut(index / N) {
            Some(chunk) => Arc::make_mut(chunk).get_mut(index % N),
            None => self.tail.get_mut(index - in_chunks),
        }
    }

    /// Adds a row at the end.
    pub fn push(&mut self, row: T) {
        if let Some(last) = self.chunks.pop_if(|last| last.len() < N) {
            self.tail = last.to_vec();
        }
        self.tail.push(row);
        if self.tail.len() == N {
            self.chunks.push(std::mem::take(&mut self.tail).into());
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
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.tail)
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
        assert_eq!(shared, [true, false], "the last chunk is being filled");
        assert_eq!((new.len(), new.get(10), new.get(11), old.get(10)), (11, Some(&10), None, None));
        assert!(new.get(1000).is_none() && new.get_mut(1000).is_none());
        new.push(11);
        assert_eq!((new.chunks.len(), new.tail.len(), new.get(11)), (3, 0, Some(&11)));
        *new.get_mut(11).unwrap() = 7;
        assert_eq!(new.iter().last(), Some(&7));
    }

    #[test]
    fn filled_has_the_length_asked_for() {
        for len in [0, 1, 4, 5, 8] {
            let rows = Chunked::<u8, 4>::filled(&7, len);
            assert_eq!((rows.len(), rows.iter().count()), (len, len));
        }
    }
}
