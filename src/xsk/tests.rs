//! Tests of socket, rings and UMEM together, over in-memory rings: what each call promises, and that no sequence of
//! calls loses, doubles or mixes up a frame.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::testing::{Peer, pair};
use super::*;

const CHUNK: usize = 2048;
/// Packet bytes that a chunk takes behind the kernel's headroom.
const ROOM: usize = CHUNK - 256;

fn umem(chunks: u32) -> (Umem, Pool) {
    Umem::new(UmemConfig { chunk_size: 2048, chunks, headroom: 0, huge_pages: HugePages::Off }).unwrap()
}

fn packet(tag: u8, len: usize) -> Vec<u8> {
    (0_u8..=255).cycle().map(|byte| byte.wrapping_mul(31) ^ tag).take(len).collect()
}

fn bytes(umem: &Umem, frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(|frame| umem.data(frame).to_vec()).collect()
}

fn receive<const N: usize>(socket: &mut Socket) -> Vec<Frame> {
    let mut batch = Vec::new();
    assert_eq!(socket.receive(&mut batch, N), batch.len());
    batch
}

#[test]
fn a_large_packet_arrives_in_chunks_and_leaves_as_it_came() {
    let (umem, mut pool) = umem(16);
    let (mut socket, mut peer) = pair(&umem, 8).unwrap();
    assert_eq!(socket.refill(&mut pool, 9), 9);
    let jumbo = packet(1, 9000);
    assert!(peer.push(&jumbo));
    let frames = receive::<8>(&mut socket);
    let shape: Vec<_> = frames.iter().map(|frame| (frame.start(), frame.len(), frame.more())).collect();
    let full = (256, ROOM, true);
    assert_eq!(shape, [full, full, full, full, full, (256, 9000 - 5 * ROOM, false)]);
    assert_eq!(bytes(&umem, &frames), jumbo);
    for frame in frames {
        socket.submit(frame).unwrap();
    }
    assert!(peer.transmit(64).is_empty(), "not before the flush");
    socket.flush();
    assert!(peer.transmit(5).is_empty(), "not before the last chunk");
    assert_eq!(peer.transmit(64), [jumbo]);
    assert_eq!((socket.in_fill_ring(), socket.outstanding_tx()), (3, 6));
    peer.complete(2);
    assert_eq!(socket.complete(&mut pool), 2);
    peer.complete(64);
    assert_eq!(socket.complete(&mut pool), 4);
    assert_eq!((pool.len(), socket.in_fill_ring(), socket.outstanding_tx()), (13, 3, 0));
}

#[test]
fn a_packet_is_moved_within_its_chunk_without_copying() {
    let (umem, mut pool) = umem(4);
    let (mut socket, mut peer) = pair(&umem, 4).unwrap();
    socket.refill(&mut pool, 1);
    peer.push(b"inner");
    let mut frame = receive::<4>(&mut socket).pop().unwrap();
    let (start, len) = (frame.start() - 6, frame.len() + 6);
    frame.set_range(start, len);
    umem.data_mut(&mut frame)[..6].copy_from_slice(b"outer|");
    socket.submit(frame).unwrap();
    socket.flush();
    assert_eq!(peer.transmit(1), [b"outer|inner"]);
}

#[test]
fn a_packet_is_never_cut_by_the_end_of_a_batch() {
    let (umem, mut pool) = umem(17);
    let (mut socket, mut peer) = pair(&umem, 16).unwrap();
    socket.refill(&mut pool, 16);
    for (tag, len) in [(1, 60), (2, 60), (3, 3 * ROOM), (4, 60)] {
        assert!(peer.push(&packet(tag, len)));
    }
    assert_eq!(receive::<4>(&mut socket).len(), 2, "three frames do not fit behind two");
    // What the batch holds already is not touched.
    let mut frames = vec![pool.pop().unwrap()];
    assert_eq!((socket.receive(&mut frames, 4), frames.len()), (4, 5));
    pool.push(frames.remove(0));
    assert_eq!(bytes(&umem, &frames), [packet(3, 3 * ROOM), packet(4, 60)].concat());
    assert_eq!(socket.in_fill_ring(), 16 - 6);
}

#[test]
fn a_packet_larger_than_an_empty_batch_is_cut_rather_than_stuck() {
    let (umem, mut pool) = umem(8);
    let (mut socket, mut peer) = pair(&umem, 8).unwrap();
    socket.refill(&mut pool, 8);
    assert!(peer.push(&packet(1, 3 * ROOM)));
    let mut frames = receive::<2>(&mut socket);
    assert!(frames.iter().all(Frame::more));
    frames.extend(receive::<2>(&mut socket));
    assert_eq!(bytes(&umem, &frames), packet(1, 3 * ROOM));
}

#[test]
fn full_rings_give_frames_back() {
    let (umem, mut pool) = umem(16);
    let (mut socket, mut peer) = pair(&umem, 2).unwrap();
    assert_eq!(socket.refill(&mut pool, 16), 4, "the fill ring has twice the size");
    assert_eq!((socket.tx_free(1), pool.len()), (2, 12));
    let mut send = |socket: &mut Socket| {
        let mut frame = pool.pop().unwrap();
        frame.set_range(0, 60);
        socket.submit(frame)
    };
    assert!(send(&mut socket).is_ok() && send(&mut socket).is_ok());
    let back = send(&mut socket).unwrap_err();
    assert_eq!((back.len(), socket.tx_free(1), socket.outstanding_tx()), (60, 0, 2));
    socket.flush();
    assert_eq!(peer.transmit(1).len(), 1);
    assert!(socket.submit(back).is_ok(), "the kernel took one");
}

#[test]
fn a_batch_goes_as_far_as_whole_packets_fit() {
    let (umem, mut pool) = umem(32);
    let (mut socket, mut peer) = pair(&umem, 4).unwrap();
    let mut frame = |len, more| {
        let mut frame = pool.pop().unwrap();
        frame.set_range(256, len);
        frame.set_more(more);
        frame
    };
    let mut batch: Vec<Frame> = [(1, false), (2, true), (3, false), (4, true), (5, true), (6, false)]
        .map(|(len, more)| frame(len, more))
        .into_iter()
        .collect();
    assert_eq!((socket.submit_batch(&mut batch), batch.len()), (3, 3));
    assert_eq!(socket.submit_batch(&mut batch), 0, "one slot for a packet of three");
    socket.flush();
    assert_eq!(peer.transmit(9).iter().map(Vec::len).collect::<Vec<_>>(), [1, 5]);
    // Across the end of the ring.
    assert_eq!((socket.submit_batch(&mut batch), batch.len()), (3, 0));
    socket.flush();
    assert_eq!(peer.transmit(9).iter().map(Vec::len).collect::<Vec<_>>(), [15]);
    // An empty frame stops it.
    batch.extend([frame(1, false), frame(0, false), frame(1, false)]);
    assert_eq!((socket.submit_batch(&mut batch), batch.len()), (1, 2));
    assert_eq!(socket.outstanding_tx(), 7);
    assert_eq!(umem.chunks(), 32);
}

#[test]
fn a_packet_without_room_is_dropped_and_counted() {
    let (umem, mut pool) = umem(16);
    let (mut socket, mut peer) = pair(&umem, 2).unwrap();
    assert!(!peer.push(b"no frames yet"));
    socket.refill(&mut pool, 4);
    assert!(!peer.push(&packet(0, 3 * ROOM)), "three slots of two");
    assert!(peer.push(b"1") && peer.push(b"2") && !peer.push(b"3"));
    let statistics = socket.statistics().unwrap();
    assert_eq!((statistics.rx_fill_ring_empty_descs, statistics.rx_ring_full), (1, 2));
}

#[test]
fn statistics_can_be_read_elsewhere_while_the_socket_lives() {
    let (umem, mut pool) = umem(4);
    let (socket, mut peer) = pair(&umem, 2).unwrap();
    assert!(!peer.push(b"no frames yet"));
    let reader = socket.statistics_reader();
    let there = std::thread::spawn(move || (reader.read().unwrap(), reader));
    let (statistics, reader) = there.join().unwrap();
    assert_eq!(statistics, socket.statistics().unwrap());
    assert_eq!(statistics.rx_fill_ring_empty_descs, 1);
    drop(socket);
    assert!(reader.read().unwrap_err().to_string().contains("closed socket"));
    assert_eq!((umem.reclaim(&mut pool), pool.len()), (0, 4));
}

#[test]
fn frames_that_the_kernel_would_swallow_are_refused() {
    let (umem, mut pool) = umem(2);
    let (other, mut others) = self::umem(2);
    let (mut socket, _peer) = pair(&umem, 2).unwrap();
    assert!(socket.submit(pool.pop().unwrap()).is_err(), "empty");
    let mut foreign = others.pop().unwrap();
    foreign.set_range(0, 60);
    let foreign = socket.submit(foreign).unwrap_err();
    assert_eq!(other.data(&foreign).len(), 60);
    assert_eq!(socket.refill(&mut others, 1), 0, "a pool of another UMEM");
    assert_eq!((others.len(), socket.in_fill_ring(), socket.outstanding_tx()), (1, 0, 0));
}

#[test]
fn descriptors_that_make_no_sense_are_counted_and_not_trusted() {
    let (umem, mut pool) = umem(4);
    let (mut socket, mut peer) = pair(&umem, 8).unwrap();
    socket.refill(&mut pool, 2);
    assert!(peer.push(b"good"));
    for (addr, len) in [(4 * 2048, 60), (u64::MAX, u32::MAX), (2048 + 256, 4096), (2 * 2048, 60)] {
        assert!(peer.push_descriptor(addr, len, 0));
    }
    let frames = receive::<16>(&mut socket);
    // Outside, far outside, too long, never given.
    assert_eq!((frames.len(), socket.invalid_descriptors()), (1, 4));
    assert_eq!(umem.data(&frames[0]), b"good");
    assert!(peer.push_completion(0), "never submitted");
    assert_eq!((socket.complete(&mut pool), socket.invalid_descriptors()), (0, 5));
    assert_eq!(pool.len() + frames.len() + socket.in_fill_ring() + socket.outstanding_tx(), umem.chunks());
}

#[test]
fn wakeups_happen_when_asked_and_report_what_came_of_them() {
    let (umem, mut pool) = umem(4);
    let (mut socket, mut peer) = pair(&umem, 4).unwrap();
    assert_eq!(socket.wakeup_tx(), Wakeup::NotNeeded, "nothing to send");
    let mut frame = pool.pop().unwrap();
    frame.set_range(0, 60);
    socket.submit(frame).unwrap();
    socket.flush();
    peer.need_wakeup(false, false);
    assert_eq!((socket.wakeup_tx(), socket.wakeup_rx()), (Wakeup::NotNeeded, Wakeup::NotNeeded));
    assert_eq!(peer.wakeups(), (0, 0));
    peer.need_wakeup(true, true);
    for (errno, expected) in [
        (0, Wakeup::Done),
        (libc::EAGAIN, Wakeup::Again),
        (libc::EBUSY, Wakeup::Again),
        (libc::ENOBUFS, Wakeup::Again),
        (libc::EINTR, Wakeup::Again),
        (libc::ENETDOWN, Wakeup::NetworkDown),
        (libc::ENXIO, Wakeup::NetworkDown),
        (libc::EFAULT, Wakeup::Failed(libc::EFAULT)),
    ] {
        peer.refuse_wakeups(&[errno, errno]);
        assert_eq!((socket.wakeup_tx(), socket.wakeup_rx()), (expected, expected));
    }
    assert_eq!(peer.wakeups(), (8, 8));
    assert_eq!((socket.outstanding_tx(), peer.transmit(9).len()), (1, 1), "no wakeup loses the frame");
}

#[test]
fn poll_on_the_descriptor_wakes_for_a_packet() {
    let readable = |socket: &Socket| wait_readable([socket.as_fd()], Duration::ZERO);
    let (umem, mut pool) = umem(4);
    let (mut socket, mut peer) = pair(&umem, 4).unwrap();
    socket.refill(&mut pool, 4);
    for _ in 0..3 {
        assert!(!readable(&socket));
        peer.push(b"x");
        assert!(readable(&socket));
        assert_eq!(receive::<4>(&mut socket).len(), 1);
        assert_eq!(receive::<4>(&mut socket).len(), 0, "finds the ring empty");
    }
}

#[test]
fn frames_survive_their_socket() {
    let (umem, mut pool) = umem(8);
    let (mut socket, mut peer) = pair(&umem, 4).unwrap();
    socket.refill(&mut pool, 4);
    peer.push(b"in the RX ring");
    let mut frame = pool.pop().unwrap();
    frame.set_range(0, 60);
    socket.submit(frame).unwrap();
    drop(socket);
    assert_eq!((umem.reclaim(&mut pool), pool.len()), (5, 8));
    assert!(!peer.push(b"nobody there") && peer.transmit(9).is_empty());
    let all: HashSet<_> = std::iter::from_fn(|| pool.pop()).map(|frame| frame.chunk()).collect();
    assert_eq!(all.len(), 8);
}

#[test]
fn the_kernel_side_may_run_in_another_thread() {
    const PACKETS: u32 = if cfg!(miri) { 50 } else { 20_000 };
    let (umem, mut pool) = umem(64);
    let (mut socket, mut peer) = pair(&umem, 16).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let kernel = std::thread::spawn(move || {
        let (mut sent, mut got) = (0, 0);
        while got < PACKETS {
            assert!(Instant::now() < end, "stuck at {sent} sent, {got} back");
            if sent < PACKETS && peer.push(&sent.to_be_bytes()) {
                sent += 1;
            }
            for packet in peer.transmit(8) {
                assert_eq!(packet, got.to_be_bytes());
                got += 1;
            }
            peer.complete(8);
        }
        peer
    });
    let mut batch = Vec::new();
    while !kernel.is_finished() {
        socket.complete(&mut pool);
        socket.refill(&mut pool, 16);
        let room = 8 - batch.len();
        if socket.receive(&mut batch, room) == 0 {
            wait_readable([socket.as_fd()], Duration::from_micros(100));
        }
        socket.submit_batch(&mut batch);
        socket.flush();
    }
    kernel.join().unwrap();
}

/// One step of the worker, the kernel or the device.
#[derive(Clone, Debug)]
enum Step {
    Arrive { len: usize },
    Refill { max: usize },
    Receive,
    Forward { packets: usize },
    ForwardAll,
    Discard { packets: usize },
    Flush,
    Wake { errno: i32 },
    Transmit { max: usize },
    Complete { max: usize },
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let errno = prop::sample::select(vec![0, libc::EAGAIN, libc::EBUSY, libc::ENOBUFS, libc::ENETDOWN]);
    prop_oneof![
        4 => prop_oneof![1_usize..100, 1700_usize..1900, 3000_usize..9500].prop_map(|len| Step::Arrive { len }),
        2 => (0_usize..12).prop_map(|max| Step::Refill { max }),
        3 => Just(Step::Receive),
        3 => (1_usize..6).prop_map(|packets| Step::Forward { packets }),
        1 => Just(Step::ForwardAll),
        1 => (1_usize..3).prop_map(|packets| Step::Discard { packets }),
        2 => Just(Step::Flush),
        1 => errno.prop_map(|errno| Step::Wake { errno }),
        2 => (0_usize..12).prop_map(|max| Step::Transmit { max }),
        2 => (0_usize..12).prop_map(|max| Step::Complete { max }),
        2 => Just(Step::Collect),
    ]
}

/// A forwarder from one socket to another on the same UMEM, and what should come out of it.
struct Model {
    umem: Umem,
    pool: Pool,
    left: (Socket, Peer),
    right: (Socket, Peer),
    held: VecDeque<Frame>,
    arrived: VecDeque<Vec<u8>>,
    expected: VecDeque<Vec<u8>>,
    tag: u8,
}

impl Model {
    const CHUNKS: u32 = 24;

    fn new() -> Self {
        let (umem, pool) = umem(Self::CHUNKS);
        let (left, right) = (pair(&umem, 8).unwrap(), pair(&umem, 8).unwrap());
        let (held, arrived, expected) = Default::default();
        Self { umem, pool, left, right, held, arrived, expected, tag: 0 }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Arrive { len } => {
                self.tag = self.tag.wrapping_add(1);
                let packet = packet(self.tag, len);
                if self.left.1.push(&packet) {
                    self.arrived.push_back(packet);
                }
            }
            Step::Refill { max } => assert!(self.left.0.refill(&mut self.pool, max) <= max),
            Step::Receive => self.held.extend(receive::<7>(&mut self.left.0)),
            Step::Forward { packets } => (0..packets).for_each(|_| self.forward()),
            Step::ForwardAll => self.forward_all(),
            Step::Discard { packets } => {
                for _ in 0..packets.min(self.packets_held()) {
                    self.arrived.pop_front();
                    self.take_packet().into_iter().for_each(|frame| self.pool.push(frame));
                }
            }
            Step::Flush => self.right.0.flush(),
            Step::Wake { errno } => {
                self.right.1.refuse_wakeups(&[errno]);
                let _ = self.right.0.wakeup_tx();
            }
            Step::Transmit { max } => {
                for packet in self.right.1.transmit(max) {
                    assert_eq!(Some(packet), self.expected.pop_front(), "bytes or order changed");
                }
            }
            Step::Complete { max } => assert!(self.right.1.complete(max) <= max),
            Step::Collect => _ = self.right.0.complete(&mut self.pool),
        }
    }

    /// Sends the oldest packet, if all its frames find room; its last frame grows a trailer where there is tailroom.
    fn forward(&mut self) {
        let count = self.held.iter().position(|frame| !frame.more()).map_or(0, |last| last + 1);
        if count == 0 || self.right.0.tx_free(count) < count {
            return;
        }
        let mut packet = self.arrived.pop_front().unwrap();
        for mut frame in self.take_packet() {
            if !frame.more() && frame.tailroom() > 0 {
                let (start, len) = (frame.start(), frame.len() + 1);
                frame.set_range(start, len);
                self.umem.data_mut(&mut frame)[len - 1] = 0xaa;
                packet.push(0xaa);
            }
            self.right.0.submit(frame).unwrap();
        }
        self.expected.push_back(packet);
    }

    /// Sends whatever fits, as one batch.
    fn forward_all(&mut self) {
        let mut batch: Vec<Frame> = self.held.drain(..).collect();
        let packets = |frames: &[Frame]| frames.iter().filter(|frame| !frame.more()).count();
        let before = packets(&batch);
        self.right.0.submit_batch(&mut batch);
        self.expected.extend(self.arrived.drain(..before - packets(&batch)));
        self.held.extend(batch);
    }

    fn packets_held(&self) -> usize {
        self.held.iter().filter(|frame| !frame.more()).count()
    }

    fn take_packet(&mut self) -> Vec<Frame> {
        let last = self.held.iter().position(|frame| !frame.more()).unwrap();
        self.held.drain(..=last).collect()
    }

    /// Every chunk is in exactly one place.
    fn check(&mut self) {
        let held: HashSet<_> = self.held.iter().map(Frame::chunk).collect();
        assert_eq!(held.len(), self.held.len(), "a chunk is held twice");
        let (left, right) = (&self.left.0, &self.right.0);
        let rings =
            left.in_fill_ring() + left.outstanding_tx() + right.in_fill_ring() + right.outstanding_tx();
        assert_eq!(self.pool.len() + self.held.len() + rings, self.umem.chunks());
        assert_eq!(left.invalid_descriptors() + right.invalid_descriptors(), 0);
        // The kernel's own view: what it holds is no more than what it was given.
        assert!(self.left.1.in_fill() <= self.left.0.in_fill_ring());
        assert!(self.right.1.in_tx() + self.right.1.uncompleted() <= self.right.0.outstanding_tx());
    }

    /// Lets everything run dry; all chunks must be there, each once.
    fn finish(mut self) {
        for _ in 0..Self::CHUNKS * 2 {
            for step in [
                Step::Receive,
                Step::Forward { packets: 9 },
                Step::Flush,
                Step::Transmit { max: 99 },
                Step::Complete { max: 99 },
                Step::Collect,
            ] {
                self.run(&step);
                self.check();
            }
        }
        assert!(self.arrived.is_empty() && self.expected.is_empty() && self.held.is_empty());
        drop((self.left, self.right));
        self.umem.reclaim(&mut self.pool);
        let all: HashSet<_> = std::iter::from_fn(|| self.pool.pop()).map(|frame| frame.chunk()).collect();
        assert_eq!(all, (0..Self::CHUNKS as usize).collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_sequence_of_steps_loses_or_doubles_a_frame(steps in prop::collection::vec(step(), 1..300)) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
            model.check();
        }
        model.finish();
    }
}
