//! One field of a policy: which rules a value of it leaves in the running, as one bit for each rule.

use std::collections::{BTreeMap, HashMap};

/// Bits of a word of a vector.
pub(super) const WORD: usize = 64;

/// What rules say of one field: the ranges, first and last, that each names. `None`: it takes any value, and none.
pub(super) type Ranges<T> = Vec<Option<Vec<(T, T)>>>;

/// The values of one field, cut into intervals in which the same rules match.
#[derive(Clone, Debug)]
pub(super) struct Dimension<T> {
    /// First value of each interval but the first, ascending; that one begins at the smallest value.
    starts: Box<[T]>,
    /// Vector of each interval.
    intervals: Box<[u32]>,
    /// Each `stride` words long. The first is for values that no rule names, and for packets that have none.
    vectors: Box<[u64]>,
    stride: usize,
}

impl<T: Value> Dimension<T> {
    /// `None` when no rule names the field, which then has no say.
    pub(super) fn compile(rules: &Ranges<T>) -> Option<Self> {
        if rules.iter().all(Option::is_none) {
            return None;
        }
        let mut builder = Builder::new(rules.len());
        let mut current = bits_of(rules.iter().map(Option::is_none));
        let mut starts = Vec::new();
        let mut intervals = vec![builder.vector(&current)];
        // How many of a rule's ranges cover the value: they may overlap.
        let mut covers = vec![0i32; rules.len()];
        for (start, changes) in borders(rules) {
            for (rule, change) in changes {
                if let (Some(count), Some(word)) = (covers.get_mut(rule), current.get_mut(rule / WORD)) {
                    *count += change;
                    let bit = 1 << (rule % WORD);
                    *word = if *count > 0 { *word | bit } else { *word & !bit };
                }
            }
            starts.push(start);
            intervals.push(builder.vector(&current));
        }
        Some(Self {
            starts: starts.into(),
            intervals: intervals.into(),
            vectors: builder.vectors.into(),
            stride: builder.stride,
        })
    }

    /// The vector of a packet with this value: summary words, then a bit for each rule, see [`with_summary`].
    #[inline]
    pub(super) fn find(&self, value: Option<T>) -> &[u64] {
        let interval = value.map_or(0, |value| self.starts.partition_point(|start| *start <= value));
        let vector = self.intervals.get(interval).map_or(0, |vector| *vector as usize);
        self.vectors.get(vector * self.stride..).and_then(|rest| rest.get(..self.stride)).unwrap_or_default()
    }
}

/// Where which rules begin (+1) and end (−1) to match.
fn borders<T: Value>(rules: &Ranges<T>) -> BTreeMap<T, Vec<(usize, i32)>> {
    let mut borders: BTreeMap<T, Vec<(usize, i32)>> = BTreeMap::new();
    for (rule, ranges) in rules.iter().enumerate() {
        for (first, last) in ranges.iter().flatten().filter(|(first, last)| first <= last) {
            borders.entry(*first).or_default().push((rule, 1));
            if let Some(after) = last.after() {
                borders.entry(after).or_default().push((rule, -1));
            }
        }
    }
    borders
}

/// Collects vectors; equal ones once.
struct Builder {
    vectors: Vec<u64>,
    stride: usize,
    known: HashMap<Vec<u64>, u32>,
}

impl Builder {
    fn new(rules: usize) -> Self {
        let words = rules.div_ceil(WORD);
        Self { vectors: Vec::new(), stride: words + words.div_ceil(WORD), known: HashMap::new() }
    }

    fn vector(&mut self, bits: &[u64]) -> u32 {
        if let Some(known) = self.known.get(bits) {
            return *known;
        }
        let number = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.vectors.extend(with_summary(bits));
        self.known.insert(bits.to_vec(), number);
        number
    }
}

/// A bit for each member.
pub(super) fn bits_of(members: impl ExactSizeIterator<Item = bool>) -> Vec<u64> {
    let mut words = vec![0; members.len().div_ceil(WORD)];
    for (member, is_set) in members.enumerate() {
        if let Some(word) = words.get_mut(member / WORD) {
            *word |= u64::from(is_set) << (member % WORD);
        }
    }
    words
}

/// Words, and in front of them a bit for each that tells whether it has any bit.
pub(super) fn with_summary(words: &[u64]) -> Vec<u64> {
    let mut vector = bits_of(words.iter().map(|word| *word != 0));
    vector.extend(words);
    vector
}

/// A field's value.
pub(super) trait Value: Copy + Ord {
    /// The next larger one.
    fn after(self) -> Option<Self>;
}

macro_rules! values {
    ($($number:ty),*) => {
        $(impl Value for $number {
            fn after(self) -> Option<Self> {
                self.checked_add(1)
            }
        })*
    };
}
values!(u8, u16, u32, u128);
