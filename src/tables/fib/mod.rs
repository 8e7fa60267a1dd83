//! Routes of one VRF: longest prefix match, host routes first.
//!
//! Host routes, most of a VRF's, are found by one hash look-up. Prefixes are asked for by hash too, once for each length
//! that is in use, longest first: a VRF has two or three lengths (its subnets', a summary's, the default route's), and
//! that many look-ups wait for less memory than the walk down a trie does.

mod routes;
mod slots;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use self::routes::Routes;
use super::vrf::Route;

/// Routes of a VRF. A change of a clone copies the VRF's routes of one address family: 4 kB for 100 of them.
///
/// Memory: 32 to 64 bytes a route for IPv4, host or prefix, and 64 to 128 for IPv6, as slots double when half are in use.
/// A look-up that no host route answers takes one more step for each prefix length of the family in use, so a VRF with all
/// 32 lengths is slower than one with three, and right all the same.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    v4: Arc<Routes<u32>>,
    v6: Arc<Routes<u128>>,
}

/// An IP prefix: an address whose bits beyond `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

#[expect(clippy::len_without_is_empty, reason = "a length in bits: no prefix is empty")]
impl Prefix {
    /// The prefix of this length around an address. `None` when the family has no such length.
    #[must_use]
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let addr = match addr {
            IpAddr::V4(ip) if len <= 32 => {
                IpAddr::V4((ip.to_bits() & (!0u32).checked_shl(32 - u32::from(len)).unwrap_or(0)).into())
            }
            IpAddr::V6(ip) if len <= 128 => {
                IpAddr::V6((ip.to_bits() & (!0u128).checked_shl(128 - u32::from(len)).unwrap_or(0)).into())
            }
            _ => return None,
        };
        Some(Self { addr, len })
    }

    /// Its first address.
    #[must_use]
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// Its last address.
    #[must_use]
    pub fn last(self) -> IpAddr {
        let len = u32::from(self.len);
        match self.addr {
            IpAddr::V4(ip) => Ipv4Addr::from(ip.to_bits() | u32::MAX.checked_shr(len).unwrap_or(0)).into(),
            IpAddr::V6(ip) => Ipv6Addr::from(ip.to_bits() | u128::MAX.checked_shr(len).unwrap_or(0)).into(),
        }
    }

    /// Bits that count.
    #[must_use]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether it is a single address: /32 or /128.
    #[must_use]
    pub const fn is_host(self) -> bool {
        self.len == if self.addr.is_ipv4() { 32 } else { 128 }
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(self, ip: IpAddr) -> bool {
        Self::new(ip, self.len).is_some_and(|other| other == self)
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl Fib {
    /// The route of the longest prefix that has this address.
    #[inline]
    #[must_use]
    pub fn get_v4(&self, addr: [u8; 4]) -> Option<Route> {
        self.v4.get(u32::from_be_bytes(addr))
    }

    /// The route of the longest prefix that has this address.
    #[inline]
    #[must_use]
    pub fn get_v6(&self, addr: [u8; 16]) -> Option<Route> {
        self.v6.get(u128::from_be_bytes(addr))
    }

    /// The look-up of an address, to be finished when what it reads first is near.
    #[inline]
    #[must_use]
    pub fn begin_v4(&self, addr: [u8; 4]) -> Pending<'_> {
        Pending(Of::V4(&self.v4, u32::from_be_bytes(addr)))
    }

    /// As [`begin_v4`](Self::begin_v4).
    #[inline]
    #[must_use]
    pub fn begin_v6(&self, addr: [u8; 16]) -> Pending<'_> {
        Pending(Of::V6(&self.v6, u128::from_be_bytes(addr)))
    }

    /// Adds or replaces a route; returns the old one.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Option<Route> {
        match prefix.addr {
            IpAddr::V4(ip) => Arc::make_mut(&mut self.v4).insert(ip.to_bits(), prefix.len, route),
            IpAddr::V6(ip) => Arc::make_mut(&mut self.v6).insert(ip.to_bits(), prefix.len, route),
        }
    }

    /// Removes a route; returns it. What it covered falls back to the next shorter prefix.
    pub fn remove(&mut self, prefix: Prefix) -> Option<Route> {
        match prefix.addr {
            IpAddr::V4(ip) => Arc::make_mut(&mut self.v4).remove(ip.to_bits(), prefix.len),
            IpAddr::V6(ip) => Arc::make_mut(&mut self.v6).remove(ip.to_bits(), prefix.len),
        }
    }

    /// All routes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Route)> {
        self.v4
            .iter()
            .chain(self.v6.iter())
            .filter_map(|(addr, len, route)| Some((Prefix::new(addr, len)?, route)))
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A look-up that was begun: the routes of one address family, and the address. For those who fetch what it reads ahead.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'t>(Of<'t>);

#[derive(Clone, Copy, Debug)]
enum Of<'t> {
    V4(&'t Routes<u32>, u32),
    V6(&'t Routes<u128>, u128),
}

impl Pending<'_> {
    /// Finishes it.
    #[inline]
    #[must_use]
    pub fn get(self) -> Option<Route> {
        match self.0 {
            Of::V4(routes, addr) => routes.get(addr),
            Of::V6(routes, addr) => routes.get(addr),
        }
    }

    /// What it reads first: an address, and the length in bytes.
    #[inline]
    #[must_use]
    pub fn reads(self) -> (*const u8, usize) {
        match self.0 {
            Of::V4(routes, _) => (std::ptr::from_ref(routes).cast(), size_of_val(routes)),
            Of::V6(routes, _) => (std::ptr::from_ref(routes).cast(), size_of_val(routes)),
        }
    }

    /// The addresses that it reads then. Reads what [`reads`](Self::reads) names.
    #[inline]
    pub fn reads_next(self, tell: &mut impl FnMut(*const u8)) {
        match self.0 {
            Of::V4(routes, addr) => routes.reads(addr, tell),
            Of::V6(routes, addr) => routes.reads(addr, tell),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::NetworkId;

    fn prefix(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix::new(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn get(fib: &Fib, addr: IpAddr) -> Option<Route> {
        match addr {
            IpAddr::V4(ip) => fib.get_v4(ip.octets()),
            IpAddr::V6(ip) => fib.get_v6(ip.octets()),
        }
    }

    /// The rule itself: of all prefixes that have the address, the longest.
    fn longest(routes: &HashMap<Prefix, Route>, addr: IpAddr) -> Option<Route> {
        let having = routes.iter().filter(|(prefix, _)| prefix.contains(addr));
        having.max_by_key(|(prefix, _)| prefix.len()).map(|(_, route)| *route)
    }

    /// Few values for many bits, so that prefixes cover one another.
    fn addr() -> impl Strategy<Value = IpAddr> {
        let byte = || prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0xff]);
        let wide = || prop::sample::select(vec![0u128, 1, 1 << 63, 1 << 64, 1 << 127, !0, !0 << 64]);
        prop_oneof![
            prop::array::uniform4(byte()).prop_map(IpAddr::from),
            (wide(), wide()).prop_map(|(a, b)| Ipv6Addr::from(a ^ b).into()),
        ]
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        let lengths = prop_oneof![2 => Just(0u8), 2 => Just(32), 1 => Just(128), 6 => 0u8..129];
        (addr(), lengths).prop_map(|(addr, len)| {
            Prefix::new(addr, if addr.is_ipv4() { len.min(32) } else { len }).unwrap()
        })
    }

    proptest! {
        #[test]
        fn the_longest_prefix_wins_after_any_changes(
            changes in prop::collection::vec((any_prefix(), any::<bool>()), 0..120),
            asked in prop::collection::vec(addr(), 40),
        ) {
            let (mut fib, mut routes) = (Fib::default(), HashMap::new());
            for (number, (prefix, add)) in (0..).zip(&changes) {
                let route = Route::Connected(NetworkId(number));
                // Withdrawals of what is there, and of what is not.
                if *add || number % 3 == 0 {
                    prop_assert_eq!(fib.insert(*prefix, route), routes.insert(*prefix, route));
                } else {
                    prop_assert_eq!(fib.remove(*prefix), routes.remove(prefix));
                }
            }
            prop_assert_eq!(fib.len(), routes.len());
            prop_assert_eq!(fib.iter().collect::<HashMap<_, _>>(), routes.clone());
            for addr in asked.into_iter().chain(changes.iter().map(|(prefix, _)| prefix.addr())) {
                prop_assert_eq!(get(&fib, addr), longest(&routes, addr), "{}", addr);
            }
        }
    }

    #[test]
    fn a_withdrawn_host_route_falls_back_to_prefix_and_default() {
        let mut fib = Fib::default();
        let route = |n| Route::Connected(NetworkId(n));
        for (n, text) in
            (0..).zip(["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "::/0", "2001:db8::/32", "2001:db8::1/128"])
        {
            assert_eq!(fib.insert(prefix(text), route(n)), None);
        }
        let found = |fib: &Fib| ["10.1.2.3", "2001:db8::1"].map(|addr| get(fib, addr.parse().unwrap()));
        assert_eq!(found(&fib), [2, 5].map(|n| Some(route(n))));
        for text in ["10.1.2.3/32", "2001:db8::1/128"] {
            assert!(fib.remove(prefix(text)).is_some() && fib.remove(prefix(text)).is_none());
        }
        assert_eq!(found(&fib), [1, 4].map(|n| Some(route(n))));
        for text in ["10.0.0.0/8", "2001:db8::/32"] {
            fib.remove(prefix(text));
        }
        assert_eq!(found(&fib), [0, 3].map(|n| Some(route(n))));
        assert_eq!([fib.get_v4([255; 4]), fib.get_v6([0; 16])], [0, 3].map(|n| Some(route(n))));
        for text in ["0.0.0.0/0", "::/0"] {
            fib.remove(prefix(text));
        }
        assert_eq!((found(&fib), fib.len(), fib.is_empty()), ([None; 2], 0, true));
    }

    #[test]
    fn a_change_of_one_family_copies_that_family_alone() {
        let mut old = Fib::default();
        old.insert(prefix("10.0.0.0/8"), Route::Blackhole);
        let mut new = old.clone();
        new.insert(prefix("2001:db8::/32"), Route::Blackhole);
        assert!(Arc::ptr_eq(&old.v4, &new.v4) && !Arc::ptr_eq(&old.v6, &new.v6));
        assert_eq!((old.len(), new.len()), (1, 2));
    }
}
