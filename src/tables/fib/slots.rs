//! Key → route in one array: a look-up reads one cache line, and its address is known before anything is read.

use std::hash::{BuildHasher, Hash};

use crate::tables::vrf::Route;

/// What can be looked up.
pub(super) trait Key: Copy + Eq + Hash + Default {}

impl<T: Copy + Eq + Hash + Default> Key for T {}

#[derive(Clone, Copy, Debug, Default)]
struct Slot<K> {
    key: K,
    /// `None`: the slot is free.
    route: Option<Route>,
}

const _: () = assert!(size_of::<Slot<u32>>() == 16 && size_of::<Slot<u128>>() == 32);

/// A hash table by linear probing, at most half full, so that a run of used slots is short and always ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots<K> {
    /// None, or a power of two of them.
    slots: Box<[Slot<K>]>,
    len: usize,
    hasher: foldhash::fast::RandomState,
}

impl<K: Key> Slots<K> {
    /// The route of a key.
    #[inline]
    pub(super) fn get(&self, key: K) -> Option<Route> {
        let mut index = self.index(key);
        loop {
            let slot = self.slots.get(index)?;
            if slot.route.is_none() || slot.key == key {
                return slot.route;
            }
            index = self.after(index);
        }
    }

    /// Where a look-up of `key` begins to read.
    #[inline]
    pub(super) fn home(&self, key: K) -> *const u8 {
        self.slots.get(self.index(key)).map_or(std::ptr::null(), |slot| std::ptr::from_ref(slot).cast())
    }

    /// Adds or replaces a route; returns the old one.
    pub(super) fn insert(&mut self, key: K, route: Route) -> Option<Route> {
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        let index = self.find(key);
        let slot = self.slots.get_mut(index)?;
        let old = slot.route;
        *slot = Slot { key, route: Some(route) };
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes a route; returns it. Moves up what was pushed behind it.
    pub(super) fn remove(&mut self, key: K) -> Option<Route> {
        let mut hole = self.find(key);
        let old = self.slots.get(hole)?.route?;
        let mut index = self.after(hole);
        while let Some(slot) = self.slots.get(index).copied().filter(|slot| slot.route.is_some()) {
            let steps = |from| index.wrapping_sub(from) & self.mask();
            if steps(self.index(slot.key)) >= steps(hole) {
                self.set(hole, slot);
                hole = index;
            }
            index = self.after(index);
        }
        self.set(hole, Slot::default());
        self.len -= 1;
        Some(old)
    }

    /// All routes, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Route)> {
        self.slots.iter().filter_map(|slot| Some((slot.key, slot.route?)))
    }

    /// Number of routes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot that has the key, or the free one for it.
    fn find(&self, key: K) -> usize {
        let mut index = self.index(key);
        while self.slots.get(index).is_some_and(|slot| slot.route.is_some() && slot.key != key) {
            index = self.after(index);
        }
        index
    }

    fn set(&mut self, index: usize, slot: Slot<K>) {
        if let Some(place) = self.slots.get_mut(index) {
            *place = slot;
        }
    }

    fn grow(&mut self) {
        let slots = vec![Slot::default(); (2 * self.slots.len()).max(4)];
        let old = std::mem::replace(&mut self.slots, slots.into());
        self.len = 0;
        for slot in old {
            if let Some(route) = slot.route {
                self.insert(slot.key, route);
            }
        }
    }

    #[inline]
    fn index(&self, key: K) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are as good as any")]
        let hash = self.hasher.hash_one(key) as usize;
        hash & self.mask()
    }

    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::NetworkId;

    proptest! {
        /// Withdrawals leave no hole that hides what was pushed behind it.
        #[test]
        fn it_is_a_map(changes in prop::collection::vec((0u32..200, any::<bool>()), 0..800)) {
            let (mut slots, mut map) = (Slots::<u32>::default(), HashMap::new());
            for (number, (key, add)) in (0..).zip(changes) {
                let route = Route::Connected(NetworkId(number));
                if add {
                    prop_assert_eq!(slots.insert(key, route), map.insert(key, route));
                } else {
                    prop_assert_eq!(slots.remove(key), map.remove(&key));
                }
                prop_assert_eq!(slots.len(), map.len());
            }
            for key in 0..201 {
                prop_assert_eq!(slots.get(key), map.get(&key).copied());
            }
            prop_assert_eq!(slots.iter().collect::<HashMap<_, _>>(), map);
        }
    }
}
