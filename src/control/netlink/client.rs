//! Questions to the kernel. Each has a short time limit: a reply that was lost or could not be decoded would otherwise
//! be waited for without end.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::ids::IfIndex;

use super::facts::{Link, LocalAddress, Neighbor, ip};

/// How long one question may take. The kernel answers in microseconds, and dumps a full table in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the kernel's state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No netlink socket.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] io::Error),
    /// No such device.
    #[error("there is no network interface {0} in this network namespace (see `ip link`)")]
    NoLink(String),
    /// The routing table has nothing for this destination on this device.
    #[error("no route to {remote} through interface number {}: add one, or an address of its subnet", oif.0)]
    NoRoute {
        /// Destination.
        remote: IpAddr,
        /// Device the route must use.
        oif: IfIndex,
    },
    /// The destination is this host itself.
    #[error("{0} is an address of this host")]
    Local(IpAddr),
    /// The kernel refused.
    #[error("{what}: {source}")]
    Kernel {
        /// What was asked.
        what: Question,
        /// What it said.
        source: io::Error,
    },
    /// No answer.
    #[error("{what}: no answer from the kernel within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// What was asked.
        what: Question,
    },
}

/// What the kernel was asked, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// One device.
    Link(String),
    /// Every device.
    Links,
    /// Every address.
    Addresses,
    /// Every neighbor.
    Neighbors,
    /// A route.
    Route(IpAddr, IfIndex),
    /// To resolve a neighbor.
    Probe(IpAddr, IfIndex),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(f, "looking up interface {name}"),
            Self::Links => f.write_str("listing interfaces"),
            Self::Addresses => f.write_str("listing addresses"),
            Self::Neighbors => f.write_str("listing neighbors"),
            Self::Route(ip, oif) => {
                write!(f, "looking up the route to {ip} through interface number {}", oif.0)
            }
            Self::Probe(ip, oif) => write!(f, "resolving {ip} on interface number {}", oif.0),
        }
    }
}

impl NetlinkError {
    fn os_error(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Asks the kernel of the network namespace that the calling thread was in when it was opened.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Opens a socket. To be called within a tokio runtime, which drives it until the last clone is dropped.
    ///
    /// # Errors
    /// When the system gives no socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(NetlinkError::Open)?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// `NoLink`, or when the kernel refuses.
    pub async fn link(&self, name: &str) -> Result<Link, NetlinkError> {
        let no_link = || NetlinkError::NoLink(name.to_owned());
        let mut request = std::pin::pin!(self.handle.link().get().match_name(name.to_owned()).execute());
        let answer = ask(Question::Link(name.to_owned()), request.try_next()).await;
        let message = answer.map_err(|error| match error.os_error() {
            Some(libc::ENODEV) => no_link(),
            _ => error,
        })?;
        message.as_ref().and_then(Link::from_message).ok_or_else(no_link)
    }

    /// Every device.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let request = self.handle.link().get().execute().try_collect::<Vec<_>>();
        let messages = ask(Question::Links, request).await?;
        Ok(messages.iter().filter_map(Link::from_message).collect())
    }

    /// Every address of this host.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn addresses(&self) -> Result<Vec<LocalAddress>, NetlinkError> {
        let request = self.handle.address().get().execute().try_collect::<Vec<_>>();
        let messages = ask(Question::Addresses, request).await?;
        Ok(messages.iter().filter_map(LocalAddress::from_message).collect())
    }

    /// The whole neighbor table, IPv4 and IPv6.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn neighbors(&self) -> Result<Vec<Neighbor>, NetlinkError> {
        let mut neighbors = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let request = self.handle.neighbours().get().set_address_family(family).execute();
            let messages = ask(Question::Neighbors, request.try_collect::<Vec<_>>()).await?;
            neighbors.extend(messages.iter().filter_map(Neighbor::from_message));
        }
        Ok(neighbors)
    }

    /// Where a packet to `remote` goes next when it leaves through `oif`: a gateway, or `remote` itself when it is on
    /// the link. `source` counts for routing rules and for the choice among several gateways.
    ///
    /// # Errors
    /// `NoRoute`, `Local`, or when the kernel refuses.
    pub async fn next_hop(
        &self,
        remote: IpAddr,
        oif: IfIndex,
        source: Option<IpAddr>,
    ) -> Result<IpAddr, NetlinkError> {
        let mut found = self.route(remote, oif, source, RouteFlags::empty()).await;
        if source.is_some() && !found.as_ref().is_ok_and(|route| output(route) == Some(oif)) {
            // IPv4 refuses a source that is no address of this host; IPv6 with a source takes the device as a mere
            // wish, and may answer with another.
            found = self.route(remote, oif, None, RouteFlags::empty()).await;
        }
        let route = found?;
        if route.header.kind == RouteType::Local {
            return Err(NetlinkError::Local(remote));
        }
        if output(&route) != Some(oif) {
            return Err(NetlinkError::NoRoute { remote, oif });
        }
        if let Some(gateway) = gateway(&route) {
            return Ok(gateway);
        }
        if remote.is_ipv4() {
            // With an output device IPv4 calls every destination on-link that no route matches. A lookup that must
            // match a route tells the two apart.
            self.route(remote, oif, None, RouteFlags::FibMatch).await?;
        }
        Ok(remote)
    }

    async fn route(
        &self,
        remote: IpAddr,
        oif: IfIndex,
        source: Option<IpAddr>,
        flags: RouteFlags,
    ) -> Result<RouteMessage, NetlinkError> {
        let mut message = match remote {
            IpAddr::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(v4, 32).build(),
            IpAddr::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(v6, 128).build(),
        };
        message.header.flags = flags;
        message.attributes.push(RouteAttribute::Oif(oif.0));
        match (source, remote) {
            (Some(IpAddr::V4(source)), IpAddr::V4(_)) => {
                message.header.source_prefix_length = 32;
                message.attributes.push(RouteAttribute::Source(RouteAddress::Inet(source)));
            }
            (Some(IpAddr::V6(source)), IpAddr::V6(_)) => {
                message.header.source_prefix_length = 128;
                message.attributes.push(RouteAttribute::Source(RouteAddress::Inet6(source)));
            }
            _ => {}
        }
        let mut request = std::pin::pin!(self.handle.route().get(message).execute());

        let answer = ask(Question::Route(remote, oif), request.try_next()).await;
        let no_route = || NetlinkError::NoRoute { remote, oif };
        let answer = answer.map_err(|error| match error.os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ESRCH) => no_route(),
            _ => error,
        })?;
        answer.ok_or_else(no_route)
    }

    /// Makes the kernel resolve `ip` on a device, or confirm what it knows: it sends an ARP request or a neighbor
    /// solicitation, unless it has confirmed the entry lately. The outcome arrives as an event.
    ///
    /// # Errors
    /// When the kernel refuses: the device is gone or down, or the neighbor table is full.
    pub async fn probe(&self, ifindex: IfIndex, ip: IpAddr) -> Result<(), NetlinkError> {
        let request = self.handle.neighbours().add(ifindex.0, ip);
        let request = request.state(NeighbourState::None).flags(NeighbourFlags::Use).replace().execute();
        ask(Question::Probe(ip, ifindex), request).await
    }
}

/// Waits for an answer, and says in every error what was asked.
async fn ask<T>(
    what: Question,
    request: impl Future<Output = Result<T, rtnetlink::Error>>,
) -> Result<T, NetlinkError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(rtnetlink::Error::NetlinkError(error))) => {
            Err(NetlinkError::Kernel { what, source: error.to_io() })
        }
        Ok(Err(other)) => Err(NetlinkError::Kernel { what, source: io::Error::other(other) }),
        Err(_) => Err(NetlinkError::Timeout { what }),
    }
}

fn output(route: &RouteMessage) -> Option<IfIndex> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(IfIndex(*index)),
        _ => None,
    })
}

/// The gateway, which for an IPv4 route may be an IPv6 address (RFC 8950).
fn gateway(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(v4)) => Some(IpAddr::V4(*v4)),
        RouteAttribute::Via(RouteVia::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}
