//! What changes in the kernel, as it changes. When the kernel had to throw messages away, or the socket broke, the
//! listener says so with [`Event::Overrun`], and whoever keeps state must read it anew.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::AsyncSocket;
use tokio::task::JoinHandle;

use crate::ids::IfIndex;

use super::client::NetlinkError;
use super::facts::{Link, Neighbor, Prefix};

const GROUPS: [MulticastGroup; 4] =
    [MulticastGroup::Neigh, MulticastGroup::Link, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];

/// Receive buffer in bytes; the kernel caps it at `net.core.rmem_max`. A neighbor message takes about 1 kB of it.
const BUFFER: usize = 1 << 20;

/// Pause between attempts to open a broken socket anew.
const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// A change in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbor is there, or is in another state.
    Neighbor(Neighbor),
    /// A neighbor is gone.
    NeighborGone {
        /// Device it was on.
        ifindex: IfIndex,
        /// Its address.
        ip: IpAddr,
    },
    /// A device is there, or is different.
    Link(Link),
    /// A device is gone.
    LinkGone(IfIndex),
    /// A route with this destination came, changed or went.
    Route(Prefix),
    /// Changes were lost.
    Overrun,
}

/// The stream of changes in one network namespace.
pub struct Events {
    messages: BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>,
    connection: JoinHandle<()>,
    buffer: usize,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

impl Events {
    /// Starts to listen. To be called within a tokio runtime, in the network namespace to listen to.
    ///
    /// # Errors
    /// When the system gives no socket.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::open_with_buffer(BUFFER)
    }

    /// Like [`Self::open`], with another receive buffer in bytes: with a small one overruns come easily.
    ///
    /// # Errors
    /// When the system gives no socket.
    pub fn open_with_buffer(buffer: usize) -> Result<Self, NetlinkError> {
        let (messages, connection) = listen(buffer).map_err(NetlinkError::Open)?;
        Ok(Self { messages, connection, buffer })
    }

    /// Waits for the next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Event {
        loop {
            let Some(message) = self.messages.next().await else {
                self.reopen().await;
                return Event::Overrun;
            };
            if let Some(event) = translate(message) {
                return event;
            }
        }
    }

    async fn reopen(&mut self) {
        loop {
            match listen(self.buffer) {
                Ok((messages, connection)) => {
                    self.connection.abort();
                    self.messages = messages;
                    self.connection = connection;
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot listen to kernel events, trying again");
                    tokio::time::sleep(REOPEN_AFTER).await;
                }
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

type Listener = (BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>, JoinHandle<()>);

fn listen(buffer: usize) -> io::Result<Listener> {
    let (mut connection, handle, messages) = rtnetlink::new_multicast_connection(&GROUPS)?;
    connection.socket_mut().socket_mut().set_rx_buf_sz(i32::try_from(buffer).unwrap_or(i32::MAX))?;
    // The connection ends when nobody can ask it anything, so the handle lives as long as the stream.
    let messages = messages.map(move |(message, _)| {
        let _ = &handle;
        message
    });
    Ok((messages.boxed(), tokio::spawn(connection)))
}

fn translate(message: NetlinkMessage<RouteNetlinkMessage>) -> Option<Event> {
    let inner = match message.payload {
        NetlinkPayload::InnerMessage(inner) => inner,
        NetlinkPayload::Overrun(_) => return Some(Event::Overrun),
        _ => return None,
    };
    match inner {
        RouteNetlinkMessage::NewNeighbour(message) => Neighbor::from_message(&message).map(Event::Neighbor),
        RouteNetlinkMessage::DelNeighbour(message) => {
            let Neighbor { ifindex, ip, .. } = Neighbor::from_message(&message)?;
            Some(Event::NeighborGone { ifindex, ip })
        }
        RouteNetlinkMessage::NewLink(message) => Link::from_message(&message).map(Event::Link),
        RouteNetlinkMessage::DelLink(message) => Some(Event::LinkGone(IfIndex(message.header.index))),
        RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message) => {
            Prefix::from_message(&message).map(Event::Route)
        }
        _ => None,
    }
}
