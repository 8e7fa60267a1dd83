//! Forwarding database of one network: MAC → where it is. Exact match; filled by `control`, read by `datapath`.
//!
//! A bucket is one cache line, so a look-up costs one memory access however large the table, and that access can be
//! begun early ([`Fdb::home`]). A bucket, 64 bytes: six entries of 10 (MAC 6, destination 4), 3 unused, 1 overflow flag.

use std::hash::BuildHasher;

use super::chunked::Chunked;
use crate::ids::{PortId, VtepId};
use crate::wire::ethernet::Mac;

/// Where a MAC, or a copy of a group packet, goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dest {
    /// Behind an access port of this host.
    Port(PortId),
    /// Behind a remote VTEP.
    Vtep(VtepId),
}

const PORT_BIT: u32 = 1 << 31;

impl Dest {
    /// Never zero, which stands for a free entry.
    fn encode(self) -> u32 {
        match self {
            Self::Port(port) => PORT_BIT | u32::from(port.0),
            Self::Vtep(vtep) => (vtep.0 & (PORT_BIT - 1)) + 1,
        }
    }

    #[inline]
    fn decode(bits: u32) -> Option<Self> {
        if bits & PORT_BIT != 0 {
            return u16::try_from(bits & !PORT_BIT).ok().map(|port| Self::Port(PortId(port)));
        }
        bits.checked_sub(1).map(|vtep| Self::Vtep(VtepId(vtep)))
    }
}

const ENTRY_LEN: usize = 10;
const ENTRIES: usize = 6;
const OVERFLOW: usize = 63;
/// Mean entries of a bucket at which the table doubles: one bucket in nine overflows then.
const MEAN_ENTRIES: usize = 4;

#[derive(Clone)]
#[repr(align(64))]
struct Bucket([u8; 64]);

impl Bucket {
    const EMPTY: Self = Self([0; 64]);

    fn entries(&self) -> &[[u8; ENTRY_LEN]] {
        self.0.as_chunks::<ENTRY_LEN>().0
    }

    #[inline]
    fn find(&self, mac: Mac) -> Option<Dest> {
        let wanted = mac.to_u64();
        let found = self.entries().iter().find(|entry| {
            let [a, b, c, d, e, f, ..] = **entry;
            u64::from_be_bytes([0, 0, a, b, c, d, e, f]) == wanted
        })?;
        Dest::decode(u32::from_le_bytes(*found.last_chunk()?))
    }

    /// Replaces or adds an entry. `None` when the bucket is full of others.
    fn put(&mut self, mac: Mac, dest: Dest) -> Option<Option<Dest>> {
        let old = self.find(mac);
        let is_free = |entry: &[u8; ENTRY_LEN]| entry.last_chunk::<4>() == Some(&[0; 4]);
        let wanted = |entry: &[u8; ENTRY_LEN]| match old {
            Some(_) => entry.first_chunk::<6>() == Some(&mac.0) && !is_free(entry),
            None => is_free(entry),
        };
        let entry = self.0.as_chunks_mut::<ENTRY_LEN>().0.iter_mut().find(|entry| wanted(entry))?;
        let bytes = mac.0.into_iter().chain(dest.encode().to_le_bytes());
        entry.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Some(old)
    }

    /// Frees the entry of `mac`.
    fn clear(&mut self, mac: Mac) {
        let is_it = |entry: &&mut [u8; ENTRY_LEN]| {
            entry.first_chunk::<6>() == Some(&mac.0) && entry.last_chunk::<4>() != Some(&[0; 4])
        };
        if let Some(entry) = self.0.as_chunks_mut::<ENTRY_LEN>().0.iter_mut().find(is_it) {
            *entry = [0; ENTRY_LEN];
        }
    }
}

/// Buckets that a change copies: 64 kB.
const CHUNK: usize = 1024;

/// MAC → [`Dest`]. Takes 16 to 32 bytes an entry: 16.8 MB for a million. A change of a clone copies 64 kB, but for the one
/// that doubles the table, which copies it all: [`with_capacity`](Self::with_capacity) of what a network may have avoids it.
#[derive(Clone)]
pub struct Fdb {
    /// A power of two of them.
    buckets: Chunked<Bucket, CHUNK>,
    len: usize,
    hasher: foldhash::fast::RandomState,
}

impl std::fmt::Debug for Fdb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fdb").field("len", &self.len).field("buckets", &self.buckets.len()).finish()
    }
}

impl Default for Fdb {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Fdb {
    /// An empty table with room for `capacity` entries.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let buckets = capacity.div_ceil(MEAN_ENTRIES).max(1).next_power_of_two();
        Self {
            buckets: Chunked::filled(&Bucket::EMPTY, buckets),
            len: 0,
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Where `mac` is.
    #[inline]
    #[must_use]
    pub fn get(&self, mac: Mac) -> Option<Dest> {
        let mut index = self.index(mac);
        loop {
            let bucket = self.buckets.get(index)?;
            let found = bucket.find(mac);
            if found.is_some() || bucket.0[OVERFLOW] == 0 {
                return found;
            }
            index = self.after(index);
        }
    }

    /// The cache line that a look-up of `mac` begins with. Computed without reading it, so that the caller can have it
    /// fetched.
    #[inline]
    #[must_use]
    pub fn home(&self, mac: Mac) -> &[u8] {
        self.buckets.get(self.index(mac)).map(|bucket| bucket.0.as_slice()).unwrap_or_default()
    }

    /// Adds or replaces an entry; returns the old one.
    pub fn insert(&mut self, mac: Mac, dest: Dest) -> Option<Dest> {
        if self.len >= self.buckets.len() * MEAN_ENTRIES {
            self.grow();
        }
        let old = self.get(mac);
        let mut index = self.index(mac);
        while let Some(bucket) = self.buckets.get_mut(index) {
            // A later bucket may have the MAC, so that only a known absence may take a free entry here.
            let here = if old.is_some() && bucket.find(mac).is_none() { None } else { bucket.put(mac, dest) };
            if here.is_some() {
                self.len += usize::from(old.is_none());
                break;
            }
            bucket.0[OVERFLOW] = 1;
            index = self.after(index);
        }
        old
    }

    /// Removes an entry; returns it. Its bucket keeps the overflow flag, so that those behind it are still found.
    pub fn remove(&mut self, mac: Mac) -> Option<Dest> {
        let old = self.get(mac)?;
        let mut index = self.index(mac);
        while self.buckets.get(index).is_some_and(|bucket| bucket.find(mac).is_none()) {
            index = self.after(index);
        }
        self.buckets.get_mut(index)?.clear(mac);
        self.len -= 1;
        Some(old)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Mac, Dest)> {
        self.buckets.iter().flat_map(Bucket::entries).filter_map(|entry| {
            let [a, b, c, d, e, f, w, x, y, z] = *entry;
            Some((Mac([a, b, c, d, e, f]), Dest::decode(u32::from_le_bytes([w, x, y, z]))?))
        })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn index(&self, mac: Mac) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are as good as any")]
        let hash = self.hasher.hash_one(mac.to_u64()) as usize;
        hash & (self.buckets.len() - 1)
    }

    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & (self.buckets.len() - 1)
    }

    fn grow(&mut self) {
        let mut larger = Self {
            buckets: Chunked::filled(&Bucket::EMPTY, self.buckets.len() * 2),
            len: 0,
            hasher: self.hasher.clone(),
        };
        for (mac, dest) in self.iter() {
            larger.insert(mac, dest);
        }
        *self = larger;
    }
}

const _: () = assert!(ENTRIES * ENTRY_LEN < OVERFLOW && size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn mac(n: u32) -> Mac {
        let [a, b, c, d] = n.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    proptest! {
        #[test]
        fn it_is_a_map(entries in proptest::collection::vec((0u32..300, 0u32..50, any::<bool>()), 0..600)) {
            let (mut fdb, mut map) = (Fdb::default(), HashMap::new());
            for (n, to, local) in entries {
                let dest = if local { Dest::Port(PortId(u16::try_from(to).unwrap())) } else { Dest::Vtep(VtepId(to)) };
                prop_assert_eq!(fdb.insert(mac(n), dest), map.insert(mac(n), dest));
                prop_assert_eq!(fdb.len(), map.len());
            }
            for n in 0..301 {
                prop_assert_eq!(fdb.get(mac(n)), map.get(&mac(n)).copied());
            }
        }
    }

    #[test]
    fn a_mac_of_zeros_is_not_found_in_free_entries() {
        let mut fdb = Fdb::default();
        assert_eq!(fdb.get(Mac::default()), None);
        fdb.insert(Mac::default(), Dest::Vtep(VtepId(0)));
        assert_eq!(fdb.get(Mac::default()), Some(Dest::Vtep(VtepId(0))));
    }

    #[test]
    fn a_hundred_thousand_entries_are_all_found() {
        let mut fdb = Fdb::with_capacity(10);
        for n in 0..100_000 {
            fdb.insert(mac(n), Dest::Vtep(VtepId(n)));
        }
        assert!((0..100_000).all(|n| fdb.get(mac(n)) == Some(Dest::Vtep(VtepId(n)))));
        assert_eq!((fdb.len(), fdb.get(mac(100_000))), (100_000, None));
    }
}
