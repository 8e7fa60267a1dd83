//! What the station behind an access port may claim to be: its MACs and IP addresses. Checked on every packet it sends,
//! as a bare-metal tenant owns everything on its side of the port.

use std::net::IpAddr;

use crate::wire::ethernet::Mac;

/// Legal sources of one port. An empty list allows any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// MACs.
    pub macs: Vec<Mac>,
    /// IP addresses. The link-local address of a legal MAC is legal too.
    pub ips: Vec<IpAddr>,
}

impl Guard {
    /// Whether a frame may have this source MAC.
    #[inline]
    #[must_use]
    pub fn allows_mac(&self, mac: Mac) -> bool {
        self.macs.is_empty() || self.macs.contains(&mac)
    }

    /// Whether a packet may have this source address, or an ARP or ND message bind it to `mac`.
    #[inline]
    #[must_use]
    pub fn allows_v4(&self, ip: [u8; 4]) -> bool {
        self.ips.is_empty() || self.ips.contains(&IpAddr::V4(ip.into()))
    }

    /// As [`allows_v4`](Self::allows_v4).
    #[inline]
    #[must_use]
    pub fn allows_v6(&self, ip: [u8; 16], mac: Mac) -> bool {
        self.ips.is_empty()
            || self.ips.contains(&IpAddr::V6(ip.into()))
            || ip == super::network::link_local(mac)
    }
}
