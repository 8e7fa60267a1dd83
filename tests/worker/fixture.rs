//! A worker over in-memory rings: one uplink, two access ports of network 100, one remote VTEP.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use etherparse::PacketBuilder;
use flowrail::ids::{Nanos, PortId, QueueId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::network::{Network, UnknownUnicast};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use flowrail::wire::drop::DropReason;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;
use flowrail::worker::command::{Commands, commands};
use flowrail::worker::counters::Counters;
use flowrail::worker::handoff::{Inbox, Outbox, Waker};
use flowrail::worker::link::Link;
use flowrail::worker::{Event, Idle, Parts, Route, Worker, WorkerConfig};
use flowrail::xsk::testing::{self, Peer};
use flowrail::xsk::{HugePages, Pool, Umem, UmemConfig};

pub const UPLINK: PortId = PortId(0);
pub const ACCESS: PortId = PortId(1);
pub const OTHER: PortId = PortId(2);
pub const LOCAL: Mac = Mac([2, 0, 0, 0, 0xa, 1]);
pub const NEIGHBOR: Mac = Mac([2, 0, 0, 0, 0xa, 3]);
pub const REMOTE: Mac = Mac([2, 0, 0, 0, 0xa, 2]);
pub const SECOND: Nanos = Nanos(1_000_000_000);

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn row(resolved: bool) -> VtepRow {
    let spec = OuterSpec {
        uplink: UPLINK,
        src_mac: Mac([2, 0, 0, 0, 1, 1]),
        dst_mac: Mac([2, 0, 0, 0, 2, 2]),
        vlan: None,
        src: ip("192.0.2.1"),
        dst: ip("192.0.2.2"),
        mtu: 9214,
    };
    if resolved {
        VtepRow::resolved(&spec).unwrap()
    } else {
        VtepRow::unusable(spec.dst, NextHop::Unresolved)
    }
}

pub fn tables(resolved: bool) -> Snapshot {
    let mut vteps = VtepTable::default();
    let remote = vteps.insert(row(resolved));
    let network = flowrail::ids::NetworkId(0);
    let port = |role| Port { role, mtu: 9214, guard: None };
    let ports = vec![
        port(Role::Uplink { vlan: None, native: None }),
        port(Role::Access(network)),
        port(Role::Access(network)),
    ];
    let mut fdb = Fdb::default();
    fdb.insert(LOCAL, Dest::Port(ACCESS));
    fdb.insert(NEIGHBOR, Dest::Port(OTHER));
    fdb.insert(REMOTE, Dest::Vtep(remote));
    let mut snapshot = Snapshot::new(Settings::default(), ports, &[ip("192.0.2.1")], vteps);
    let members: [VtepId; 1] = [remote];
    snapshot.push_network(Network::new(
        Vni::new(100).unwrap(),
        fdb,
        UnknownUnicast::Drop,
        &[ACCESS, OTHER],
        &members,
        &members,
    ));
    snapshot
}

/// A UDP packet of `len` payload bytes.
pub fn udp(src: Mac, dst: Mac, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let mut packet = Vec::new();
    PacketBuilder::ethernet2(src.0, dst.0)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(50_000, 4791)
        .write(&mut packet, &payload)
        .unwrap();
    packet
}

/// What the remote VTEP sends when `inner` comes to this host.
pub fn vxlan(vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend((vni << 8).to_be_bytes());
    payload.extend(inner);
    let mut packet = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 1, 1])
        .ipv4([192, 0, 2, 2], [192, 0, 2, 1], 64)
        .udp(50_001, 4789)
        .write(&mut packet, &payload)
        .unwrap();
    packet
}

pub struct Rig {
    pub worker: Worker,
    pub peers: Vec<Peer>,
    pub wanted: Arc<Mutex<Vec<IpAddr>>>,
    pub counters: Arc<Counters>,
}

pub struct Options {
    pub chunks: u32,
    pub ring: u32,
    pub backlog: usize,
    pub ports: Vec<PortId>,
    pub routes: Vec<Route>,
    pub outboxes: Vec<Outbox>,
    pub inboxes: Vec<Inbox>,
    pub idle: Idle,
    pub memory: Option<(Umem, Pool)>,
    pub waker: Arc<Waker>,
    pub commands: Commands,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chunks: 512,
            ring: 64,
            backlog: 64,
            ports: vec![UPLINK, ACCESS, OTHER],
            routes: vec![Route::Link(0), Route::Link(1), Route::Link(2)],
            outboxes: Vec::new(),
            inboxes: Vec::new(),
            idle: Idle::Spin,
            memory: None,
            waker: Arc::new(Waker::new().unwrap()),
            commands: commands(),
        }
    }
}

pub fn memory(chunks: u32) -> (Umem, Pool) {
    Umem::new(UmemConfig { chunk_size: 4096, chunks, headroom: 0, huge_pages: HugePages::Off }).unwrap()
}

impl Rig {
    pub fn new(options: Options) -> Self {
        let (umem, pool) = options.memory.unwrap_or_else(|| memory(options.chunks));
        let (mut links, mut peers) = (Vec::new(), Vec::new());
        for port in options.ports {
            let (socket, peer) = testing::pair(&umem, options.ring).unwrap();
            links.push(Link::new(port, QueueId(0), socket, options.backlog, options.ring as usize));
            peers.push(peer);
        }
        let wanted = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&wanted);
        let counters = Arc::new(Counters::new(3));
        let config =
            WorkerConfig { batch: 64, idle: options.idle, pending_packets: 4, pending_timeout: SECOND };
        let parts = Parts {
            umem,
            pool,
            links,
            routes: options.routes,
            outboxes: options.outboxes,
            inboxes: options.inboxes,
            counters: Arc::clone(&counters),
            waker: options.waker,
            commands: options.commands,
            tell: Box::new(move |event| {
                if let Event::Want(remote) = event {
                    asked.lock().unwrap().push(remote);
                }
            }),
        };
        Self { worker: Worker::new(config, parts), peers, wanted, counters }
    }

    pub fn round(&mut self, t: &Snapshot, now: u64) {
        self.worker.round(t, Nanos(now));
        self.check();
    }

    /// Every frame is in one place, and every packet has one fate.
    pub fn check(&mut self) {
        self.worker.publish_gauges();
        let counters = self.worker.counters();
        let frames = counters.frames.get();
        assert!(frames.is_conserved(), "{frames:?}");
        let dropped: u64 = DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum();
        let fates = counters.forwarded.get() + dropped + counters.waiting.get();
        if frames.lent == 0 {
            assert_eq!(counters.received(), fates, "packets");
        }
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.worker.counters().dropped(reason)
    }

    /// What left a port, completed at once.
    pub fn sent(&mut self, port: PortId) -> Vec<Vec<u8>> {
        let peer = &mut self.peers[usize::from(port.0)];
        let packets = peer.transmit(1024);
        peer.complete(1024);
        packets
    }

    pub fn push(&mut self, port: PortId, packet: &[u8]) {
        assert!(self.peers[usize::from(port.0)].push(packet), "the ring takes the packet");
    }
}
