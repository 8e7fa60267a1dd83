//! Keeps the next-hop MAC of every remote encap IP up to date: asks the kernel for the route, makes it resolve the
//! next hop, and passes on what changes. `core` decides, without I/O; this file is the task around it.

mod core;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::ids::{IfIndex, Nanos};
use crate::wire::ethernet::Mac;

pub use self::core::{Change, NextHop, Remote, Route};
use self::core::{Core, MAX_LOOKUPS};
use super::client::{Client, NetlinkError};
use super::event::{Event, Events};
use super::facts::{Link, Neighbor};

/// How often the core looks at its clocks.
const TICK: Duration = Duration::from_secs(1);
/// The same while something is about to be due.
const SHORT_TICK: Duration = Duration::from_millis(50);
/// Events taken in before the core decides anew.
const EVENT_BATCH: usize = 256;
/// Updates that may wait for the receiver before the resolver waits for it.
const QUEUE: usize = 64;

/// What the resolver passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// These remotes have another next-hop MAC, or none.
    NextHops(Vec<Change>),
    /// A device is there, or is different: MAC, MTU, up or down.
    Link(Link),
    /// A device is gone.
    LinkGone(IfIndex),
}

/// Handle to the resolver task. Calls return at once.
#[derive(Clone, Debug)]
pub struct Resolver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    wake: Notify,
    start: Instant,
}

impl Shared {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts the task on the current tokio runtime, for the network namespace of the calling thread. It ends when
    /// the receiver is dropped. Every remote starts without a MAC; what is known follows as updates.
    ///
    /// # Errors
    /// When netlink sockets cannot be opened or the neighbor table cannot be read.
    pub async fn start() -> Result<(Self, mpsc::Receiver<Update>), NetlinkError> {
        // Listening starts before reading, so that no change falls between.
        let events = Events::open()?;
        let client = Client::open()?;
        let shared = Arc::new(Shared { core: Mutex::default(), wake: Notify::new(), start: Instant::now() });
        let (neighbors, links) = read_all(&client).await?;
        shared.core().resync(&neighbors, &links, shared.now());
        let (updates, receiver) = mpsc::channel(QUEUE);
        let task = Task { shared: Arc::clone(&shared), client, events, updates, resync_at: None };
        tokio::spawn(task.run());
        Ok((Self { shared }, receiver))
    }

    /// Sets the remotes to resolve. Those that were there keep what is known of them.
    pub fn set_routes(&self, routes: &[Route]) {
        self.shared.core().set_routes(routes);
        self.shared.wake.notify_one();
    }

    /// Sets next hops (or remotes on the link) whose MACs are configured: they are neither asked for nor changed.
    pub fn set_static(&self, hops: impl IntoIterator<Item = (IfIndex, IpAddr, Mac)>) {
        self.shared.core().set_static(hops);
        self.shared.wake.notify_one();
    }

    /// Says that packets wait for these remotes, which makes the resolver try again though it failed before. Call
    /// it as often as packets come: attempts are spaced out.
    pub fn demand(&self, remotes: &[Remote]) {
        let now = self.shared.now();
        self.shared.core().demand(remotes, now);
        self.shared.wake.notify_one();
    }

    /// What is known of every remote, by device and address.
    #[must_use]
    pub fn report(&self) -> Vec<NextHop> {
        let now = self.shared.now();
        self.shared.core().report(now)
    }
}

struct Task {
    shared: Arc<Shared>,
    client: Client,
    events: Events,
    updates: mpsc::Sender<Update>,
    /// When to read the neighbor table anew, if that is due.
    resync_at: Option<Instant>,
}

impl Task {
    async fn run(mut self) {
        let mut tick = TICK;
        let mut lookups = FuturesUnordered::new();
        let mut probes = FuturesUnordered::new();
        loop {
            tokio::select! {
                event = self.events.next() => self.heard_batch(event).await,
                Some((route, answer)) = lookups.next() => self.answered(route, answer),
                Some(()) = probes.next() => {}
                () = tokio::time::sleep(tick) => {}
                () = self.shared.wake.notified() => {}
                () = self.updates.closed() => return,
            }
            if self.resync_at.is_some_and(|at| at <= Instant::now()) {
                self.resync().await;
            }
            let work = self.shared.core().poll(MAX_LOOKUPS.saturating_sub(lookups.len()), self.shared.now());
            tick = if work.soon || self.resync_at.is_some() { SHORT_TICK } else { TICK };
            lookups.extend(work.lookups.into_iter().map(|route| look_up(self.client.clone(), route)));
            probes.extend(work.probes.into_iter().map(|hop| probe(self.client.clone(), hop)));
            if !work.changes.is_empty() {
                self.send(Update::NextHops(work.changes)).await;
            }
        }
    }

    async fn heard_batch(&mut self, first: Event) {
        self.heard(first).await;
        for _ in 1..EVENT_BATCH {
            let Some(event) = self.events.next().now_or_never() else { return };
            self.heard(event).await;
        }
    }

    async fn heard(&mut self, event: Event) {
        self.shared.core().event(&event, self.shared.now());
        match event {
            Event::Link(link) => self.send(Update::Link(link)).await,
            Event::LinkGone(ifindex) => self.send(Update::LinkGone(ifindex)).await,
            // A burst that overran the buffer goes on for a while; one reading after it is enough.
            Event::Overrun => self.resync_at = Some(Instant::now() + SHORT_TICK),
            Event::Neighbor(_) | Event::NeighborGone { .. } | Event::Route(_) => {}
        }
    }

    fn answered(&self, route: Route, answer: Result<IpAddr, NetlinkError>) {
        let via = answer.map_err(|error| error.to_string());
        self.shared.core().answered(route, via, self.shared.now());
    }

    async fn resync(&mut self) {
        self.resync_at = None;
        let (neighbors, links) = match read_all(&self.client).await {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%error, "cannot read the kernel's state after lost events, trying again");
                self.resync_at = Some(Instant::now() + Duration::from_secs(1));
                return;
            }
        };
        self.shared.core().resync(&neighbors, &links, self.shared.now());
        for link in links {
            self.send(Update::Link(link)).await;
        }
    }

    /// A closed channel ends the task at its next turn.
    async fn send(&mut self, update: Update) {
        let _ = self.updates.send(update).await;
    }
}

async fn read_all(client: &Client) -> Result<(Vec<Neighbor>, Vec<Link>), NetlinkError> {
    Ok((client.neighbors().await?, client.links().await?))
}

async fn look_up(client: Client, route: Route) -> (Route, Result<IpAddr, NetlinkError>) {
    let answer = client.next_hop(route.remote.ip, route.remote.ifindex, route.source).await;
    (route, answer)
}

async fn probe(client: Client, (ifindex, ip): (IfIndex, IpAddr)) {
    if let Err(error) = client.probe(ifindex, ip).await {
        tracing::debug!(%error, "cannot resolve a next hop");
    }
}
