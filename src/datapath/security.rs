//! What a port's station may send: its own MACs and addresses, in headers and in ARP and ND messages, and never the
//! gateway's.

use super::inner::Inner;
use crate::tables::guard::Guard;
use crate::tables::network::Gateway;
use crate::wire::drop::DropReason;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::icmp::{self, Carried};
use crate::wire::{arp, igmp, ipv4, ipv6, nd, udp};

/// UDP ports of a DHCP client and server.
const DHCP_CLIENT: u16 = 68;
const DHCP_SERVER: u16 = 67;

/// Checks the sources that a frame of an access port claims. Costs an ordinary packet a compare of its MAC and of its
/// address; ARP and ICMPv6 are read further.
///
/// # Errors
/// `PortSecurityMac`, `PortSecurityIp`, `PortSecurityArp`, `PortSecurityNd`.
#[inline]
pub fn check(
    guard: Option<&Guard>,
    gateway: Option<&Gateway>,
    inner: &Inner,
    head: &[u8],
) -> Result<(), DropReason> {
    if guard.is_none() && gateway.is_none() {
        return Ok(());
    }
    let station = Station { guard, gateway, mac: inner.src };
    if !station.has_mac(inner.src) {
        return Err(DropReason::PortSecurityMac);
    }
    let l3 = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
    match inner.ethertype {
        EtherType::IPV4 => station.check_v4(l3),
        EtherType::IPV6 => station.check_v6(l3),
        EtherType::ARP if !station.may_send_arp(l3) => Err(DropReason::PortSecurityArp),
        _ => Ok(()),
    }
}

/// Whoever sent the frame.
struct Station<'a> {
    guard: Option<&'a Guard>,
    gateway: Option<&'a Gateway>,
    /// Source of the frame.
    mac: Mac,
}

impl Station<'_> {
    fn has_mac(&self, mac: Mac) -> bool {
        self.guard.is_none_or(|guard| guard.allows_mac(mac))
            && self.gateway.is_none_or(|gateway| gateway.mac != mac)
    }

    fn has_v4(&self, ip: [u8; 4]) -> bool {
        self.guard.is_none_or(|guard| guard.allows_v4(ip)) && !self.is_gateway_v4(ip)
    }

    fn has_v6(&self, ip: [u8; 16]) -> bool {
        self.guard.is_none_or(|guard| guard.allows_v6(ip, self.mac)) && !self.is_gateway_v6(ip)
    }

    fn is_gateway_v4(&self, ip: [u8; 4]) -> bool {
        self.gateway.is_some_and(|gateway| gateway.has_v4(ip))
    }

    fn is_gateway_v6(&self, ip: [u8; 16]) -> bool {
        self.gateway.is_some_and(|gateway| gateway.has_v6(ip))
    }

    /// Whether the port has a list of addresses.
    fn is_bound(&self) -> bool {
        self.guard.is_some_and(|guard| !guard.ips.is_empty())
    }

    #[inline]
    fn check_v4(&self, l3: &[u8]) -> Result<(), DropReason> {
        // What cannot be read has no address that could be right.
        let legal = match ipv4::Header::parse(l3) {
            Some(ip) => self.has_v4(ip.src) || ip.src == [0; 4] && is_dhcp_discover(&ip, l3),
            None => !self.is_bound(),
        };
        if legal { Ok(()) } else { Err(DropReason::PortSecurityIp) }
    }

    #[inline]
    fn check_v6(&self, l3: &[u8]) -> Result<(), DropReason> {
        let Some(ip) = ipv6::Header::parse(l3) else {
            return if self.is_bound() { Err(DropReason::PortSecurityIp) } else { Ok(()) };
        };
        let end = ipv6::HEADER_LEN + usize::from(ip.payload_len);
        let has_source = self.has_v6(ip.src);
        if !has_source && ip.src != [0; 16] {
            return Err(DropReason::PortSecurityIp);
        }
        let nameless = if has_source { Ok(()) } else { Err(DropReason::PortSecurityIp) };
        if matches!(ip.next_header, udp::PROTOCOL | udp::PROTOCOL_TCP) {
            return nameless;
        }
        // What follows the packet in its frame is not part of it: a header there would be another in the last fragment.
        let l3 = l3.get(..end).unwrap_or(l3);
        match icmp::carried_v6(l3, ip.next_header) {
            Carried::Icmp { offset, fragmented } => {
                // A message that continues behind the first frame ends here for whoever reads it, and is refused.
                let message = l3.get(offset..end).unwrap_or_default();
                match l3.get(offset) {
                    Some(nd::ROUTER_SOLICITATION..=nd::REDIRECT) => {
                        // RFC 6980 section 5: in a packet with a fragment header, however small, it must not be.
                        let legal = !fragmented && self.may_send_nd(&ip, message);
                        if legal { Ok(()) } else { Err(DropReason::PortSecurityNd) }
                    }
                    Some(&(igmp::MLD_REPORT | igmp::MLD_DONE | igmp::MLD_REPORT_V2)) if !fragmented => Ok(()),
                    // Its type is in another frame, or nowhere.
                    None => Err(DropReason::PortSecurityNd),
                    Some(_) => nameless,
                }
            }
            // A host that puts such a packet together, or skips what is not walked here, might find any claim in it.
            Carried::Unclear => Err(DropReason::PortSecurityNd),
            Carried::LaterFragment | Carried::Other => nameless,
        }
    }

    /// ARP binds the sender's MAC to the sender's address, in a request as in a reply. A probe (RFC 5227) does not, but
    /// makes another station that probes the same address give it up: so it may be for a legal address alone, or for
    /// the gateway's, which is answered.
    fn may_send_arp(&self, l3: &[u8]) -> bool {
        let Some(message) = arp::Message::parse(l3) else { return false };
        let has_address = if message.is_probe() {
            self.has_v4(message.target_ip) || self.is_gateway_v4(message.target_ip)
        } else {
            self.has_v4(message.sender_ip)
        };
        let is_own_mac = self.guard.is_none() || message.sender_mac == self.mac;
        has_address && is_own_mac && self.has_mac(message.sender_mac)
    }

    /// Solicitations bind the source, advertisements the target, to the MAC of their option; a solicitation from `::` is a
    /// probe as in ARP (RFC 4862 section 5.4). Routers are not at a tenant's.
    fn may_send_nd(&self, ip: &ipv6::Header, message: &[u8]) -> bool {
        let Some(message) = nd::Message::parse(message) else { return false };
        let is_own_mac =
            message.mac.is_none_or(|mac| (self.guard.is_none() || mac == self.mac) && self.has_mac(mac));
        let probe = ip.src == [0; 16];
        is_own_mac
            && match message.kind {
                nd::ROUTER_SOLICITATION => true,
                nd::SOLICITATION if probe => {
                    self.has_v6(message.target) || self.is_gateway_v6(message.target)
                }
                nd::SOLICITATION => true,
                nd::ADVERTISEMENT => self.has_v6(message.target) && !(probe && self.is_bound()),
                _ => self.guard.is_none(),
            }
    }
}

/// A client that has no address yet asks for one (RFC 2131 section 4.1).
fn is_dhcp_discover(ip: &ipv4::Header, l3: &[u8]) -> bool {
    let udp = l3.get(ip.header_len..).and_then(udp::Header::parse);
    ip.protocol == udp::PROTOCOL
        && !ip.is_fragment()
        && udp.is_some_and(|udp| (udp.src, udp.dst) == (DHCP_CLIENT, DHCP_SERVER))
}
