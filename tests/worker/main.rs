//! The worker over in-memory rings: real rings, real datapath, a test in the kernel's place. No NIC, no root.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests may fail loudly"
)]

mod fence;
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use fixture::{ACCESS, LOCAL, NEIGHBOR, OTHER, Options, REMOTE, Rig, UPLINK, memory, tables, udp, vxlan};
use flowrail::ids::{Nanos, PortId, QueueId};
use flowrail::tables::fdb::Fdb;
use flowrail::tables::network::{Network, UnknownUnicast};
use flowrail::tables::snapshot::{Port, Role};
use flowrail::wire::drop::{DropReason, Note};
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;
use flowrail::worker::command::{Command, commands};
use flowrail::worker::handoff::{Waker, lane};
use flowrail::worker::link::Link;
use flowrail::worker::{Idle, Route, Shared, Worker};
use proptest::prelude::*;

#[test]
fn a_packet_is_encapsulated_and_what_a_vtep_sends_back_is_opened() {
    let (mut rig, t) = (Rig::new(Options::default()), tables(true));
    let inner = udp(LOCAL, REMOTE, 100);
    rig.push(ACCESS, &inner);
    rig.round(&t, 0);
    let sent = rig.sent(UPLINK);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].len(), inner.len() + 50);
    assert_eq!(sent[0][50..], inner);
    let parsed = etherparse::SlicedPacket::from_ethernet(&sent[0]).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net else { panic!("no IPv4") };
    assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
    assert!(ip.header().dont_fragment());

    let reply = udp(REMOTE, LOCAL, 33);
    rig.push(UPLINK, &vxlan(100, &reply));
    rig.round(&t, 0);
    assert_eq!(rig.sent(ACCESS), [reply]);
}

#[test]
fn jumbo_packets_cross_in_several_frames() {
    let (mut rig, t) = (Rig::new(Options::default()), tables(true));
    for len in [3700, 3798, 3799, 4100, 8000, 9100] {
        let inner = udp(LOCAL, REMOTE, len);
        rig.push(ACCESS, &inner);
        rig.round(&t, 0);
        let sent = rig.sent(UPLINK);
        assert_eq!(sent[0][50..], inner, "{len}");
        let reply = udp(REMOTE, LOCAL, len);
        // A trailer behind the outer IP packet is cut off, even when it fills a frame of its own.
        let outer = [vxlan(100, &reply), vec![0xee; 4000]].concat();
        rig.push(UPLINK, &outer);
        rig.round(&t, 0);
        assert_eq!(rig.sent(ACCESS), [reply], "{len}");
    }
}

#[test]
fn group_packets_reach_every_receiver_but_the_sender() {
    let (mut rig, t) = (Rig::new(Options::default()), tables(true));
    let hello = udp(LOCAL, Mac::BROADCAST, 4500);
    rig.push(ACCESS, &hello);
    rig.round(&t, 0);
    assert_eq!(rig.sent(UPLINK)[0][50..], hello);
    assert_eq!(rig.sent(OTHER), [hello]);
    assert!(rig.sent(ACCESS).is_empty());
    let reply = udp(REMOTE, Mac::BROADCAST, 10);
    rig.push(UPLINK, &vxlan(100, &reply));
    rig.round(&t, 0);
    assert!(rig.sent(UPLINK).is_empty(), "split horizon");
    let padded = [reply.clone(), vec![0; 60 - reply.len()]].concat();
    assert_eq!((rig.sent(ACCESS), rig.sent(OTHER)), (vec![padded.clone()], vec![padded]));
    assert_eq!(rig.worker.counters().notes[Note::CopiesSent.index()].get(), 4);
}

#[test]
fn local_ports_of_a_network_talk_without_a_tunnel() {
    let (mut rig, t) = (Rig::new(Options::default()), tables(true));
    let packet = udp(LOCAL, NEIGHBOR, 64);
    rig.push(ACCESS, &packet);
    rig.push(ACCESS, &udp(NEIGHBOR, LOCAL, 64));
    rig.round(&t, 0);
    assert_eq!(rig.sent(OTHER), [packet]);
    assert_eq!(rig.dropped(DropReason::SamePort), 1);
}

#[test]
fn packets_wait_for_a_mac_then_go_or_are_dropped_in_time() {
    let (mut rig, mut t) = (Rig::new(Options::default()), tables(false));
    for len in 0..6 {
        rig.push(ACCESS, &udp(LOCAL, REMOTE, 5000 + len));
    }
    rig.round(&t, 0);
    assert_eq!(rig.dropped(DropReason::NeighborQueueFull), 2);
    assert_eq!(rig.wanted.lock().unwrap().as_slice(), [fixture::ip("192.0.2.2"); 6]);
    assert_eq!(rig.worker.counters().waiting.get(), 4);
    rig.round(&t, 999_999_999);
    assert!(rig.sent(UPLINK).is_empty());

    t = tables(true);
    t.generation = 1;
    rig.round(&t, 999_999_999);
    let lens: Vec<usize> = rig.sent(UPLINK).iter().map(Vec::len).collect();
    assert_eq!(lens, [5092, 5093, 5094, 5095]);

    rig.push(ACCESS, &udp(LOCAL, REMOTE, 10));
    t = tables(false);
    t.generation = 2;
    rig.round(&t, 2_000_000_000);
    rig.round(&t, 3_000_000_000);
    assert_eq!(rig.dropped(DropReason::NeighborUnresolved), 1);
}

#[test]
fn a_full_tx_ring_queues_then_drops_and_loses_no_frame() {
    let mut rig = Rig::new(Options { ring: 16, backlog: 8, ..Options::default() });
    let t = tables(true);
    for round in 0..4u64 {
        for i in 0..8 {
            rig.push(ACCESS, &udp(LOCAL, REMOTE, 100 * round as usize + i));
        }
        rig.round(&t, round);
    }
    assert_eq!(rig.dropped(DropReason::TxQueueFull), 8);
    assert_eq!(rig.sent(UPLINK).len(), 16);
    rig.round(&t, 5);
    assert_eq!(rig.sent(UPLINK).len(), 8, "the backlog follows as soon as there is room");
}

#[test]
fn refused_wakeups_lose_nothing() {
    let (mut rig, t) = (Rig::new(Options::default()), tables(true));
    rig.peers[0].refuse_wakeups(&[libc::EAGAIN, libc::EBUSY, libc::ENOBUFS, libc::ENETDOWN]);
    rig.push(ACCESS, &udp(LOCAL, REMOTE, 10));
    for now in 0..4 {
        rig.round(&t, now);
    }
    assert_eq!(rig.worker.counters().wakeups_refused.get(), 3);
    assert_eq!(rig.sent(UPLINK).len(), 1);
}

#[test]
fn a_port_of_another_worker_is_reached_by_one_copy() {
    let t = tables(true);
    let (umem, pool) = memory(256);
    let waker = Arc::new(Waker::new().unwrap());
    let (outbox, inbox) = lane(8, umem.clone(), Arc::clone(&waker));
    let mut receiver = Rig::new(Options {
        ports: vec![ACCESS],
        routes: vec![Route::Worker(0), Route::Link(0), Route::None],
        outboxes: vec![outbox],
        memory: Some((umem, pool)),
        ..Options::default()
    });
    let mut sender = Rig::new(Options {
        ports: vec![UPLINK],
        routes: vec![Route::Link(0), Route::None, Route::None],
        inboxes: vec![inbox],
        waker,
        ..Options::default()
    });
    let packets: Vec<_> = (0..6).map(|i| udp(LOCAL, REMOTE, 4000 + i)).collect();
    for packet in &packets {
        assert!(receiver.peers[0].push(packet));
    }
    receiver.round(&t, 0);
    // Two frames a packet, eight in the lane: four packets go, two find it full.
    assert_eq!(receiver.dropped(DropReason::HandoffFull), 2);
    sender.worker.round(&t, Nanos(0));
    let sent = sender.sent(UPLINK);
    assert_eq!(sent.iter().map(|p| p[50..].to_vec()).collect::<Vec<_>>(), packets[..4]);
    receiver.worker.round(&t, Nanos(1));
    receiver.worker.publish_gauges();
    assert_eq!(receiver.worker.counters().frames.get().lent, 0);
    assert_eq!(sender.worker.counters().forwarded.get(), 4);
}

#[test]
fn an_idle_worker_sleeps_wakes_for_a_packet_and_stops_with_every_frame_free() {
    let Rig { worker, mut peers, .. } =
        Rig::new(Options { idle: Idle::Adaptive(Nanos(50_000)), ..Options::default() });
    let (shared, thread) = start(worker);
    std::thread::sleep(Duration::from_millis(50));
    assert!(peers[1].push(&udp(LOCAL, REMOTE, 100)));
    let mut sent = 0;
    for _ in 0..1000 {
        sent += peers[0].transmit(16).len();
        peers[0].complete(16);
        if sent == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sent, 1, "the packet woke the worker");
    shared.stop.store(true, Ordering::Relaxed);
    let worker = thread.join().unwrap();
    let counters = worker.counters();
    assert!(counters.sleeps.get() > 0);
    assert!(counters.loops.get() < 1_000_000, "no spinning while idle");
    let frames = counters.frames.get();
    assert_eq!(frames.pool + frames.fill, frames.total);
}

#[test]
fn what_the_worker_itself_cannot_take_on_has_its_reason() {
    let t = tables(true);
    let mut rig = Rig::new(Options::default());
    rig.push(UPLINK, &[0xff; 60]);
    rig.round(&t, 0);
    assert_eq!(rig.dropped(DropReason::Misdirected), 1, "the program steers no such frame");
    // 19 frames of 3840 bytes.
    rig.push(ACCESS, &udp(LOCAL, REMOTE, 65_000).into_iter().chain([0; 7000]).collect::<Vec<_>>());
    rig.round(&t, 0);
    assert_eq!(rig.dropped(DropReason::ChainTooLong), 1);

    // Every frame is in a fill ring: none is free for copies.
    let mut rig = Rig::new(Options { chunks: 3 * 64, ..Options::default() });
    rig.push(ACCESS, &udp(LOCAL, Mac::BROADCAST, 100));
    rig.round(&t, 0);
    assert_eq!(rig.dropped(DropReason::FramesExhausted), 1);
}

#[test]
fn a_packet_that_waits_does_not_follow_its_port_to_another_network() {
    let mut rig = Rig::new(Options::default());
    rig.push(ACCESS, &udp(LOCAL, REMOTE, 100));
    rig.round(&tables(false), 0);
    let mut moved = tables(true);
    moved.generation = 1;
    let other = moved.push_network(Network::new(
        Vni::new(200).unwrap(),
        Fdb::default(),
        UnknownUnicast::Drop,
        &[ACCESS],
        &[],
        &[],
    ));
    let mut ports: Vec<Port> = [UPLINK, ACCESS, OTHER].map(|id| moved.port(id).unwrap().clone()).into();
    ports[1].role = Role::Access(other);
    moved.set_ports(ports);
    rig.round(&moved, 1);
    assert_eq!(rig.dropped(DropReason::Reconfigured), 1);
    assert!(rig.sent(UPLINK).is_empty());
}

#[test]
fn what_is_queued_at_the_end_is_counted() {
    let options = Options { chunks: 96, ring: 16, ..Options::default() };
    let Rig { worker, mut peers, counters, .. } = Rig::new(options);
    let (shared, thread) = start(worker);
    // The kernel takes nothing: 16 fit the TX ring, four wait.
    for sent in 1..=20 {
        assert!(peers[1].push(&udp(LOCAL, REMOTE, 100)));
        eventually("it is taken in", || counters.received() == sent);
    }
    shared.stop.store(true, Ordering::Relaxed);
    drop(thread.join().unwrap());
    assert_eq!((counters.forwarded.get(), counters.dropped(DropReason::Shutdown)), (16, 4));
}

/// Runs a worker in a thread of its own.
fn start(worker: Worker) -> (Arc<Shared>, JoinHandle<Worker>) {
    let shared = Arc::new(Shared {
        tables: ArcSwap::from_pointee(tables(true)),
        fence: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let its = Arc::clone(&shared);
    (shared, std::thread::spawn(move || worker.run(&its)))
}

/// Waits until something holds that another thread makes true.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within 2 s: {what}");
}

#[test]
fn ports_come_and_go_while_a_worker_runs_and_no_frame_is_lost() {
    let (umem, pool) = memory(512);
    let routes = vec![Route::Link(0), Route::Link(1), Route::None];
    let commands = commands();
    let options = Options {
        ports: vec![UPLINK, ACCESS],
        routes,
        idle: Idle::Adaptive(Nanos(50_000)),
        memory: Some((umem.clone(), pool)),
        commands: Arc::clone(&commands),
        ..Options::default()
    };
    let waker = Arc::clone(&options.waker);
    let Rig { worker, mut peers, counters, .. } = Rig::new(options);
    let (shared, thread) = start(worker);
    let send = |command| {
        assert!(commands.push(command).is_ok());
        waker.wake();
    };
    // Nobody can be sent to where there is no socket yet.
    assert!(peers[1].push(&udp(LOCAL, NEIGHBOR, 100)));
    eventually("the packet is dropped", || counters.dropped(DropReason::TxFailed) == 1);

    let (socket, mut other) = flowrail::xsk::testing::pair(&umem, 64).unwrap();
    let links = vec![Link::new(OTHER, QueueId(0), socket, 64, 64)];
    send(Command::Open { port: OTHER, links, route: Route::None });
    eventually("the port is open", || counters.commands.get() == 1);
    assert!(peers[1].push(&udp(LOCAL, NEIGHBOR, 100)));
    eventually("it sends", || !other.transmit(1).is_empty());
    assert!(other.push(&udp(NEIGHBOR, LOCAL, 100)));
    eventually("and receives", || !peers[1].transmit(1).is_empty());

    // It goes with a packet that the kernel has not finished, and one that it has not taken.
    for _ in 0..2 {
        assert!(peers[1].push(&udp(LOCAL, NEIGHBOR, 100)));
    }
    eventually("both are sent", || counters.forwarded.get() == 4);
    send(Command::Close(OTHER));
    eventually("the port is closed", || counters.commands.get() == 2);
    drop(other);
    for peer in &mut peers {
        peer.complete(64);
    }
    eventually("its frames are back", || counters.frames.get().is_conserved());
    assert!(peers[1].push(&udp(LOCAL, REMOTE, 100)));
    eventually("the others go on", || !peers[0].transmit(1).is_empty());

    shared.stop.store(true, Ordering::Relaxed);
    waker.wake();
    drop(thread.join().unwrap());
}

#[test]
fn a_fence_is_passed_when_everything_before_it_has_left() {
    let options = Options { idle: Idle::Adaptive(Nanos(50_000)), ..Options::default() };
    let waker = Arc::clone(&options.waker);
    let Rig { worker, mut peers, counters, .. } = Rig::new(options);
    let (shared, thread) = start(worker);
    assert!(peers[1].push(&udp(LOCAL, REMOTE, 100)));
    eventually("the packet is sent", || counters.forwarded.get() == 1);
    shared.fence.store(1, Ordering::Release);
    waker.wake();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(counters.fence.get(), 0, "the kernel still has the packet");
    assert_eq!(peers[0].transmit(16).len(), 1);
    peers[0].complete(16);
    eventually("the fence is passed", || counters.fence.get() == 1);
    shared.stop.store(true, Ordering::Relaxed);
    waker.wake();
    drop(thread.join().unwrap());
}

#[derive(Clone, Debug)]
enum Event {
    Packet { port: u16, kind: u8, len: usize },
    Garbage { port: u16, bytes: Vec<u8> },
    Transmit { port: usize, max: usize },
    Complete { port: usize, max: usize },
    Refuse { port: usize, errno: i32 },
    Tables { resolved: bool },
    Round { later: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let errno = prop_oneof![Just(libc::EAGAIN), Just(libc::EBUSY), Just(libc::ENOBUFS), Just(libc::ENETDOWN)];
    prop_oneof![
        6 => (0u16..3, 0u8..6, 0usize..9500).prop_map(|(port, kind, len)| Event::Packet { port, kind, len }),
        1 => (0u16..3, proptest::collection::vec(0u8.., 1..200)).prop_map(|(port, bytes)| Event::Garbage { port, bytes }),
        2 => (0usize..3, 0usize..64).prop_map(|(port, max)| Event::Transmit { port, max }),
        2 => (0usize..3, 0usize..64).prop_map(|(port, max)| Event::Complete { port, max }),
        1 => (0usize..3, errno).prop_map(|(port, errno)| Event::Refuse { port, errno }),
        1 => any::<bool>().prop_map(|resolved| Event::Tables { resolved }),
        4 => (0u64..2_000_000_000).prop_map(|later| Event::Round { later }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever arrives, however slowly the kernel finishes: no frame is lost or twice, no packet is uncounted.
    #[test]
    fn frames_and_packets_are_conserved(events in proptest::collection::vec(event(), 1..120)) {
        let mut rig = Rig::new(Options { chunks: 96, ring: 16, backlog: 12, ..Options::default() });
        let mut t = tables(true);
        let mut now = 0;
        for event in events {
            match event {
                Event::Packet { port, kind, len } => {
                    let dst = [LOCAL, REMOTE, NEIGHBOR, Mac::BROADCAST, Mac([2; 6]), LOCAL][usize::from(kind)];
                    let packet = udp(REMOTE, dst, len);
                    let packet = if port == 0 { vxlan(if kind == 5 { 7 } else { 100 }, &packet) } else { packet };
                    rig.peers[usize::from(port)].push(&packet);
                }
                Event::Garbage { port, bytes } => {
                    rig.peers[usize::from(port)].push(&bytes);
                }
                Event::Transmit { port, max } => drop(rig.peers[port].transmit(max)),
                Event::Complete { port, max } => drop(rig.peers[port].complete(max)),
                Event::Refuse { port, errno } => rig.peers[port].refuse_wakeups(&[errno]),
                Event::Tables { resolved } => {
                    let generation = t.generation + 1;
                    t = tables(resolved);
                    t.generation = generation;
                }
                Event::Round { later } => {
                    now += later;
                    rig.round(&t, now);
                }
            }
        }
        for _ in 0..50 {
            now += 1_000_000_000;
            rig.round(&t, now);
            for port in 0..3 {
                rig.sent(PortId(port));
            }
        }
        let counters = rig.worker.counters();
        prop_assert_eq!(counters.waiting.get(), 0, "all packets have met their fate");
        prop_assert_eq!(counters.frames.get().queued + counters.frames.get().worker, 0);
    }
}
