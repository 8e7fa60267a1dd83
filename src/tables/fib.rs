//! Routes of one VRF: longest prefix match, host routes first.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::vrf::Route;

/// Routes of a VRF. A clone copies it whole: a VRF has hundreds of routes, not millions.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    hosts_v4: HashMap<u32, Route, foldhash::fast::RandomState>,
    hosts_v6: HashMap<u128, Route, foldhash::fast::RandomState>,
}

/// An IP prefix: an address whose bits beyond `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

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
        self.hosts_v4.get(&u32::from_be_bytes(addr)).copied()
    }

    /// The route of the longest prefix that has this address.
    #[inline]
    #[must_use]
    pub fn get_v6(&self, addr: [u8; 16]) -> Option<Route> {
        self.hosts_v6.get(&u128::from_be_bytes(addr)).copied()
    }

    /// Adds or replaces a route; returns the old one.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Option<Route> {
        match prefix.addr {
            IpAddr::V4(ip) if prefix.is_host() => self.hosts_v4.insert(ip.to_bits(), route),
            IpAddr::V6(ip) if prefix.is_host() => self.hosts_v6.insert(ip.to_bits(), route),
            _ => None,
        }
    }

    /// Removes a route; returns it.
    pub fn remove(&mut self, prefix: Prefix) -> Option<Route> {
        match prefix.addr {
            IpAddr::V4(ip) if prefix.is_host() => self.hosts_v4.remove(&ip.to_bits()),
            IpAddr::V6(ip) if prefix.is_host() => self.hosts_v6.remove(&ip.to_bits()),
            _ => None,
        }
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts_v4.len() + self.hosts_v6.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
