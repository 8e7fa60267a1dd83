//! What a running flowrail tells about itself: the JSON of the API, filled by whoever implements [`Inspect`], printed
//! by `flowrail show`. Names and units are part of the API: fields are added, not renamed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::wire::drop::{DropReason, Note};
pub use crate::worker::counters::Frames;

use super::netlink::NextHop;
use super::report::{FdbReport, Listing, NetworkReport, RouteReport, TenantReport};

/// Answers the API's questions. Called on the control thread; must not block.
pub trait Inspect: Send + Sync + 'static {
    /// Totals and workers.
    fn stats(&self) -> Stats;
    /// Uplinks and access ports, in the order of their numbers.
    fn ports(&self) -> Vec<PortReport>;
    /// Next hops of the remote encap IPs.
    fn neighbors(&self) -> Vec<NeighborReport>;
    /// Networks, in the order of the configuration.
    fn networks(&self) -> Vec<NetworkReport>;
    /// Tenants, in the order of the configuration.
    fn tenants(&self) -> Vec<TenantReport>;
    /// FDB entries, of one network when it is named; `None` when there is no such network.
    fn fdb(&self, network: Option<&str>) -> Option<Listing<FdbReport>>;
    /// Routes, of one tenant when it is named; `None` when there is no such tenant.
    fn routes(&self, tenant: Option<&str>) -> Option<Listing<RouteReport>>;
}

/// Counters by label. Every label is there, also with 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(pub BTreeMap<String, u64>);

impl Counters {
    /// From labels and counts.
    pub fn new<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        Self(counts.into_iter().map(|(label, count)| (label.to_owned(), count)).collect())
    }

    /// Drops by reason, from an array in the order of the reasons.
    #[must_use]
    pub fn drops(counts: &[u64; DropReason::COUNT]) -> Self {
        Self::new(DropReason::ALL.iter().map(|reason| reason.name()).zip(counts.iter().copied()))
    }

    /// Notes, from an array in their order.
    #[must_use]
    pub fn notes(counts: &[u64; Note::COUNT]) -> Self {
        Self::new(Note::ALL.iter().map(|note| note.name()).zip(counts.iter().copied()))
    }

    /// Sum of all.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// The counters above 0, largest first.
    #[must_use]
    pub fn nonzero(&self) -> Vec<(&str, u64)> {
        let mut counts: Vec<_> =
            self.0.iter().map(|(label, &count)| (label.as_str(), count)).filter(|&(_, n)| n > 0).collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts
    }
}

/// `GET /v1/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Time since the first frame could be forwarded.
    pub uptime_ms: u64,
    /// Sums over all workers and ports.
    pub totals: Totals,
    /// Workers, by number.
    pub workers: Vec<WorkerStats>,
    /// Policy rules that decided or counted a packet, by tenant and in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleCount>,
}

/// What a policy rule counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the rule, or its place in the list from 1.
    pub rule: String,
    /// Packets that it decided, or counted.
    pub packets: u64,
}

/// Packets, summed over all workers and ports. Each received packet is forwarded, replied, punted, dropped, or
/// still held by a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Taken from RX rings.
    pub received: u64,
    /// Left a port; a packet to many receivers counts once.
    pub forwarded: u64,
    /// Answered in place.
    pub replied: u64,
    /// Handed to the kernel.
    pub punted: u64,
    /// Not decided yet: waiting for a next hop's MAC or for room on a TX ring.
    pub waiting: u64,
    /// Dropped, for whatever reason: the sum of `drops`.
    pub dropped: u64,
    /// Dropped, by reason.
    pub drops: Counters,
    /// Oddities of packets that went on.
    pub notes: Counters,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u16,
    /// Core it is pinned to.
    pub core: usize,
    /// Turns of its loop.
    pub loops: u64,
    /// Turns that had packets.
    pub batches: u64,
    /// Wakeups of the kernel's transmit side.
    pub wakeups: u64,
    /// Of those, how many the kernel asked to repeat.
    pub wakeups_refused: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Packets passed to another worker.
    pub handoffs: u64,
    /// Where its frames are.
    pub frames: Frames,
}

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// Towards the underlay.
    Uplink,
    /// Towards guests or the host.
    Access,
}

/// How the steering program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the kernel's generic path, slow.
    Generic,
}

/// How frames get between device and UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyMode {
    /// The kernel copies.
    Copy,
    /// The device reads and writes the UMEM.
    ZeroCopy,
}

/// One entry of `GET /v1/ports`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Number, from 0; uplinks first.
    pub port: u16,
    /// Name.
    pub name: String,
    /// What it is for.
    pub role: PortKind,
    /// Network device.
    pub interface: String,
    /// Its number in the kernel.
    pub ifindex: u32,
    /// How the steering program is attached.
    pub mode: XdpMode,
    /// How frames get in and out.
    pub copy: CopyMode,
    /// Queues, each with a socket.
    pub queues: u32,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Packets taken from the device.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets given to the device.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets received here and dropped, by reason.
    pub drops: Counters,
    /// What the steering program did with frames.
    pub xdp: Counters,
    /// What the kernel counts for the sockets (`XDP_STATISTICS`), summed over the queues.
    pub sockets: Counters,
}

/// One entry of `GET /v1/neighbors`: a remote encap IP as reached through one uplink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborReport {
    /// Name of the uplink.
    pub uplink: String,
    /// Remote encap IP.
    pub remote: IpAddr,
    /// Gateway, or the remote itself when it is on the link.
    pub next_hop: Option<IpAddr>,
    /// The next hop's MAC, when frames may be sent to it.
    pub mac: Option<String>,
    /// `static`, `no-route`, `pending`, or the kernel's word for its neighbor entry.
    pub state: String,
    /// Time in that state.
    pub age_ms: Option<u64>,
    /// Why there is no next hop.
    pub problem: Option<String>,
}

impl NeighborReport {
    /// From what the resolver knows.
    #[must_use]
    pub fn new(uplink: &str, hop: NextHop) -> Self {
        let state = match (&hop.failure, hop.state) {
            _ if hop.is_static => "static",
            (Some(_), _) => "no-route",
            (None, Some(state)) => state.name(),
            (None, None) => "pending",
        };
        Self {
            uplink: uplink.to_owned(),
            remote: hop.remote.ip,
            next_hop: hop.via,
            mac: hop.mac.map(|mac| mac.to_string()),
            state: state.to_owned(),
            age_ms: hop.age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            problem: hop.failure.filter(|_| !hop.is_static),
        }
    }
}

/// `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Version of flowrail.
    pub version: String,
    /// Process that runs it.
    pub pid: u32,
}

impl Version {
    /// Of this process.
    #[must_use]
    pub fn current() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_counted_under_its_label() {
        let mut counts = [0; DropReason::COUNT];
        counts[DropReason::UnknownVni.index()] = 7;
        counts[DropReason::TxQueueFull.index()] = 9;
        let drops = Counters::drops(&counts);
        assert_eq!((drops.0.len(), drops.sum()), (DropReason::COUNT, 16));
        assert_eq!(drops.nonzero(), [("tx_queue_full", 9), ("unknown_vni", 7)]);
    }

    #[test]
    fn frames_add_up_or_not() {
        let frames = Frames { fill: 1, worker: 3, queued: 4, tx: 5, lent: 2, pool: 6, total: 21 };
        assert!(frames.is_conserved());
        assert!(!Frames { pool: 5, ..frames }.is_conserved());
    }

    #[test]
    fn json_keeps_its_names() {
        let stats = Stats { workers: vec![WorkerStats::default()], ..Stats::default() };
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(
            json,
            r#"{"uptime_ms":0,"totals":{"received":0,"forwarded":0,"replied":0,"punted":0,"waiting":0,"dropped":0,"drops":{},"notes":{}},"workers":[{"worker":0,"core":0,"loops":0,"batches":0,"wakeups":0,"wakeups_refused":0,"sleeps":0,"handoffs":0,"frames":{"fill":0,"worker":0,"queued":0,"tx":0,"lent":0,"pool":0,"total":0}}]}"#
        );
        assert_eq!(serde_json::to_string(&CopyMode::ZeroCopy).unwrap(), r#""zero-copy""#);
    }
}
