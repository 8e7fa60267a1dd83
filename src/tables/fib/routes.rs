//! Routes of one address family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::slots::{Key, Slots};
use crate::tables::vrf::Route;

/// Host routes, and prefixes by length.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes<A> {
    hosts: Slots<A>,
    /// By [`Address::key`].
    prefixes: Slots<A>,
    /// Bit `n` is set while a prefix that leaves `n + 1` bits to hosts is in the map: the longest has the lowest bit.
    lengths: u128,
}

impl<A: Address> Routes<A> {
    /// The route of the longest prefix that has this address.
    #[inline]
    pub(super) fn get(&self, addr: A) -> Option<Route> {
        let host = self.hosts.get(addr);
        host.or_else(|| ones(self.lengths).find_map(|bit| self.prefixes.get(addr.key(bit))))
    }

    /// Tells where a look-up of this address may read.
    #[inline]
    pub(super) fn reads(&self, addr: A, tell: &mut impl FnMut(*const u8)) {
        tell(self.hosts.home(addr));
        ones(self.lengths).take(READ_AHEAD).for_each(|bit| tell(self.prefixes.home(addr.key(bit))));
    }

    /// Adds or replaces a route; returns the old one.
    pub(super) fn insert(&mut self, addr: A, len: u8, route: Route) -> Option<Route> {
        match marker::<A>(len) {
            None => self.hosts.insert(addr, route),
            Some(bit) => {
                self.lengths |= 1 << bit;
                self.prefixes.insert(addr.key(bit), route)
            }
        }
    }

    /// Removes a route; returns it.
    pub(super) fn remove(&mut self, addr: A, len: u8) -> Option<Route> {
        let Some(bit) = marker::<A>(len) else { return self.hosts.remove(addr) };
        let old = self.prefixes.remove(addr.key(bit));
        self.lengths = self.prefixes.iter().fold(0, |lengths, (key, _)| lengths | 1 << key.split().1);
        old
    }

    /// All routes with their prefixes, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, u8, Route)> {
        let hosts = self.hosts.iter().map(|(addr, route)| (addr.ip(), A::BITS, route));
        let prefixes = self.prefixes.iter().filter_map(|(key, route)| {
            let (addr, bit) = key.split();
            Some((addr.ip(), A::BITS - 1 - u8::try_from(bit).ok()?, route))
        });
        hosts.chain(prefixes)
    }

    /// Number of routes.
    pub(super) fn len(&self) -> usize {
        self.hosts.len() + self.prefixes.len()
    }
}

/// Prefix lengths that are worth fetching ahead: a subnet's, a summary's.
const READ_AHEAD: usize = 2;

/// The bit behind a prefix of this length; `None` for a whole address.
fn marker<A: Address>(len: u8) -> Option<u32> {
    A::BITS.checked_sub(len + 1).map(u32::from)
}

/// Offsets of the ones in a number, lowest first.
#[inline]
fn ones(mut bits: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}

/// An address as a number.
pub(super) trait Address: Key {
    /// Length in bits.
    const BITS: u8;
    /// The prefix that ends in front of bit `bit`, as one number: its bits, a one at `bit`, zeros. No two prefixes have
    /// the same: 10.0.0.0/8 is `0x0a80_0000`, 0.0.0.0/0 is `0x8000_0000`.
    fn key(self, bit: u32) -> Self;
    /// Address and bit of a key.
    fn split(self) -> (Self, u32);
    /// The address.
    fn ip(self) -> IpAddr;
}

impl Address for u32 {
    const BITS: u8 = 32;

    #[inline]
    fn key(self, bit: u32) -> Self {
        (self >> bit | 1) << bit
    }

    fn split(self) -> (Self, u32) {
        (self & self.wrapping_sub(1), self.trailing_zeros())
    }

    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }
}

impl Address for u128 {
    const BITS: u8 = 128;

    #[inline]
    fn key(self, bit: u32) -> Self {
        (self >> bit | 1) << bit
    }

    fn split(self) -> (Self, u32) {
        (self & self.wrapping_sub(1), self.trailing_zeros())
    }

    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }
}
