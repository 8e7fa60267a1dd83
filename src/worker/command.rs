//! What the control plane asks of a running worker: ports that come and go.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use super::link::Link;
use super::{Route, Worker};
use crate::ids::PortId;
use crate::wire::drop::DropReason;

/// A change of a worker's ports.
pub enum Command {
    /// A port is there: its sockets of this worker, and where packets for it go when there is none.
    Open {
        /// The port.
        port: PortId,
        /// Bound sockets on this worker's UMEM.
        links: Vec<Link>,
        /// Used when `links` is empty.
        route: Route,
    },
    /// A port goes: its sockets close. The tables must not lead there any more.
    Close(PortId),
}

/// Commands on their way to a worker. It counts those that it has carried out in
/// [`Counters::commands`](super::counters::Counters::commands).
pub type Commands = Arc<ArrayQueue<Command>>;

/// Commands that may wait.
const QUEUE: usize = 16;

/// A way to send commands.
#[must_use]
pub fn commands() -> Commands {
    Arc::new(ArrayQueue::new(QUEUE))
}

impl Worker {
    /// Carries out what was asked.
    #[cold]
    pub(super) fn obey(&mut self) {
        while let Some(command) = self.commands.pop() {
            match command {
                Command::Open { port, links, route } => self.open(port, links, route),
                Command::Close(port) => self.close(port),
            }
            self.renumber();
            // Links have other places now: what waits for them begins anew.
            self.fence = None;
            self.counters.commands.add(1);
        }
        self.publish_gauges();
    }

    fn open(&mut self, port: PortId, links: Vec<Link>, route: Route) {
        let index = usize::from(port.0);
        if self.routes.len() <= index {
            self.routes.resize(index + 1, Route::None);
        }
        if let Some(slot) = self.routes.get_mut(index) {
            *slot = route;
        }
        for mut link in links {
            link.complete_and_refill(&mut self.pool);
            self.links.push(link);
        }
    }

    fn close(&mut self, port: PortId) {
        if let Some(slot) = self.routes.get_mut(usize::from(port.0)) {
            *slot = Route::None;
        }
        for mut waiting in self.pending.take_from(port) {
            self.discard(waiting.origin, DropReason::Reconfigured, waiting.head, &mut waiting.tail);
        }
        let (gone, kept) = std::mem::take(&mut self.links).into_iter().partition(|link| link.port == port);
        self.links = kept;
        for mut link in gone {
            link.abandon_backlog(&self.counters, &mut self.pool, DropReason::TxFailed);
        }
        // The frames in the rings of a closed socket come back when the kernel has let go of them.
        self.reclaiming = true;
        self.reclaim();
    }

    /// Takes back frames of closed sockets, until every frame has a place again.
    pub(super) fn reclaim(&mut self) {
        self.umem.reclaim(&mut self.pool);
        self.reclaiming = !self.frames().is_conserved();
    }

    /// Ports with sockets of this worker go there, wherever those are in the list.
    fn renumber(&mut self) {
        for route in &mut self.routes {
            if matches!(route, Route::Link(_)) {
                *route = Route::None;
            }
        }
        for (index, link) in self.links.iter().enumerate().rev() {
            if let Some(route) = self.routes.get_mut(usize::from(link.port.0)) {
                *route = Route::Link(index);
            }
        }
    }
}
