//! The AF_XDP layer on real devices: two veth pairs in a network namespace of the test's own, `gen – dut0` and
//! `dut1 – sink`. Needs root and clang. The layer without a kernel is tested in `src/xsk/tests.rs`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::XskMap;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use flowrail::ids::QueueId;
use flowrail::xsk::{
    BindMode, BusyPoll, Frame, HugePages, Pool, Socket, SocketConfig, Umem, UmemConfig, Wakeup, XskError,
    driver_name, rx_queues, tx_queues, wait_readable,
};

const PATIENCE: Duration = Duration::from_secs(10);

// ---------------------------------------------------------------------------------------------------------- the rig

/// A network namespace that the calling thread enters, and that disappears with this value.
struct Netns(String);

impl Netns {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fr-xsk-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name]);
        let netns = Self(name);
        let file = File::open(format!("/run/netns/{}", netns.0)).unwrap();
        // SAFETY: takes integers only. It moves this thread alone; every test has its own.
        assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "setns");
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        netns
    }

    /// With both veth pairs, up, of this MTU.
    fn with_veth(mtu: u32) -> Self {
        let netns = Self::new();
        netns.add_veth("gen", "dut0", mtu);
        netns.add_veth("sink", "dut1", mtu);
        netns
    }

    fn add_veth(&self, name: &str, peer: &str, mtu: u32) {
        ip(&["link", "add", name, "type", "veth", "peer", "name", peer]);
        for device in [name, peer] {
            ip(&["link", "set", device, "mtu", &mtu.to_string(), "arp", "off", "up"]);
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The redirecting XDP program on one device; detached on drop.
struct Redirect(Ebpf);

impl Redirect {
    fn attach(interface: &str) -> Self {
        let mut bpf = Ebpf::load_file(object()).expect("the program loads");
        let program: &mut Xdp = bpf.program_mut("redirect").unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach(interface, XdpMode::Driver).unwrap();
        Self(bpf)
    }

    fn to(interface: &str, socket: impl AsRawFd) -> Self {
        let mut redirect = Self::attach(interface);
        redirect.set(0, socket);
        redirect
    }

    fn set(&mut self, queue: u32, socket: impl AsRawFd) {
        XskMap::try_from(self.0.map_mut("xsks").unwrap()).unwrap().set(queue, socket, 0).unwrap();
    }
}

/// The compiled program, built once a test run.
fn object() -> PathBuf {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/redirect.bpf.c");
        let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let status = Command::new("clang")
            .args(["-O2", "-g", "-target", "bpf", &include, "-c", source, "-o"])
            .arg(dir.path().join("redirect.o"))
            .status()
            .expect("clang is installed");
        assert!(status.success(), "clang");
        dir
    });
    dir.path().join("redirect.o")
}

/// A raw socket at the far end of a veth pair: sends frames, and sees those that arrive.
struct Wire(OwnedFd);

impl Wire {
    fn open(interface: &str) -> Self {
        let all = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: `name` is NUL-terminated.
        let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: takes integers only.
        let fd =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(all)) };
        assert!(fd >= 0 && ifindex > 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is new.
        let wire = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap(),
            sll_protocol: all,
            sll_ifindex: i32::try_from(ifindex).unwrap(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = u32::try_from(size_of_val(&address)).unwrap();
        // SAFETY: pointer and length are those of `address`.
        assert_eq!(unsafe { libc::bind(fd, (&raw const address).cast(), len) }, 0, "bind");
        let size = 64 << 20;
        // SAFETY: pointer and length are those of `size`.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const size).cast(), 4)
        };
        assert_eq!(set, 0, "SO_RCVBUFFORCE");
        wire
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: pointer and length are those of `frame`.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(usize::try_from(sent), Ok(frame.len()), "send: {}", io::Error::last_os_error());
    }

    /// The next frame that arrived, if there is one.
    fn poll(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 16384];
        loop {
            let mut from = libc::sockaddr_ll {
                sll_family: 0,
                sll_protocol: 0,
                sll_ifindex: 0,
                sll_hatype: 0,
                sll_pkttype: 0,
                sll_halen: 0,
                sll_addr: [0; 8],
            };
            let mut len = u32::try_from(size_of_val(&from)).unwrap();
            let buffer = frame.as_mut_ptr().cast();
            // SAFETY: the pointers and lengths are those of `frame` and `from`.
            let got = unsafe {
                let (from, len) = ((&raw mut from).cast(), &raw mut len);
                libc::recvfrom(self.0.as_raw_fd(), buffer, frame.len(), libc::MSG_DONTWAIT, from, len)
            };
            let got = usize::try_from(got).ok()?;
            // A packet socket also sees what it sent itself.
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                frame.truncate(got);
                return Some(frame);
            }
        }
    }
}

/// Ethernet frames of a private EtherType, each with its number and bytes that depend on it.
fn frames(count: u32, lens: impl Fn(u32) -> usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
            frame.extend(number.to_be_bytes());
            let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
            while frame.len() < lens(number) {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                frame.push(state.to_le_bytes()[0]);
            }
            frame
        })
        .collect()
}

fn umem(chunk_size: u32, chunks: u32) -> (Umem, Pool) {
    Umem::new(UmemConfig { chunk_size, chunks, headroom: 0, huge_pages: HugePages::Off }).unwrap()
}

fn config<'a>(interface: &str, umem: &'a Umem, mode: BindMode) -> SocketConfig<'a> {
    let (interface, queue) = (interface.to_owned(), QueueId(0));
    SocketConfig { interface, queue, umem, ring_size: 256, mode, busy_poll: None, tx_budget: 256 }
}

fn bind(interface: &str, umem: &Umem) -> Socket {
    Socket::bind(&config(interface, umem, BindMode::Copy)).unwrap()
}

/// What came out at sink and at gen.
type Output = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// Whatever moves frames between dut0 and dut1.
trait Forwarder {
    /// One round in each direction.
    fn step(&mut self);
}

/// Sends `left` into gen and `right` into sink, a window at a time so that no queue overflows, and returns what came
/// out of sink and gen.
fn exchange(
    forwarder: &mut impl Forwarder,
    (generator, sink): (&Wire, &Wire),
    (left, right): (&[Vec<u8>], &[Vec<u8>]),
) -> Output {
    let (mut to_sink, mut to_gen) = (Vec::new(), Vec::new());
    let mut sent = 0;
    while sent < left.len().max(right.len()) {
        let window = sent..sent + 16;
        for number in window.clone() {
            left.get(number).inspect(|frame| generator.send(frame));
            right.get(number).inspect(|frame| sink.send(frame));
        }
        sent = window.end;
        let end = Instant::now() + PATIENCE;
        while to_sink.len() < sent.min(left.len()) || to_gen.len() < sent.min(right.len()) {
            forwarder.step();
            to_sink.extend(std::iter::from_fn(|| sink.poll()));
            to_gen.extend(std::iter::from_fn(|| generator.poll()));
            assert!(Instant::now() < end, "{} and {} of {sent} frames", to_sink.len(), to_gen.len());
        }
    }
    (to_sink, to_gen)
}

/// The plain forwarder on this layer: both sockets on one UMEM, frames move without a copy.
struct Ours {
    umem: Umem,
    pool: Pool,
    ports: [Socket; 2],
    chains: usize,
}

impl Ours {
    fn new(chunk_size: u32) -> Self {
        let (umem, pool) = umem(chunk_size, 2048);
        let ports = ["dut0", "dut1"].map(|interface| bind(interface, &umem));
        let mut ours = Self { umem, pool, ports, chains: 0 };
        // Frames for the first packets.
        ours.step();
        ours
    }

    fn attach(&self) -> [Redirect; 2] {
        [Redirect::to("dut0", self.ports[0].as_fd()), Redirect::to("dut1", self.ports[1].as_fd())]
    }

    fn conserved(&self) -> bool {
        let rings: usize = self.ports.iter().map(|port| port.in_fill_ring() + port.outstanding_tx()).sum();
        self.pool.len() + rings == self.umem.chunks()
    }

    fn forward(&mut self, from: usize, to: usize) {
        let mut batch = Vec::new();
        self.ports[to].complete(&mut self.pool);
        let room = 512 - self.ports[from].in_fill_ring();
        self.ports[from].refill(&mut self.pool, room);
        let _ = self.ports[from].wakeup_rx();
        self.ports[from].receive(&mut batch, 64);
        assert!(self.ports[to].tx_free(batch.len()) >= batch.len());
        for frame in batch {
            self.chains += usize::from(frame.more());
            self.ports[to].submit(frame).unwrap();
        }
        self.ports[to].flush();
        let woken = self.ports[to].wakeup_tx();
        assert!(matches!(woken, Wakeup::NotNeeded | Wakeup::Done | Wakeup::Again), "{woken:?}");
    }
}

impl Forwarder for Ours {
    fn step(&mut self) {
        self.forward(0, 1);
        self.forward(1, 0);
        assert!(self.conserved());
    }
}

// ------------------------------------------------------------------------------------------------------- forwarding

fn forwards_both_ways(mtu: u32, chunk_size: u32) -> usize {
    let _netns = Netns::with_veth(mtu);
    let mut ours = Ours::new(chunk_size);
    let _programs = ours.attach();
    let wires = (Wire::open("gen"), Wire::open("sink"));
    let max = mtu as usize + 14;
    let left =
        frames(400, |number| if number % 4 == 0 { max } else { 60 + number as usize * 97 % (max - 60) });
    let right = frames(300, |number| 60 + number as usize * 331 % (max - 59));
    let (to_sink, to_gen) = exchange(&mut ours, (&wires.0, &wires.1), (&left, &right));
    assert!(to_sink == left, "bytes or order changed on the way to sink");
    assert!(to_gen == right, "bytes or order changed on the way to gen");

    // Frames come back as the far end frees its buffers: soon, not at once.
    let end = Instant::now() + PATIENCE;
    while ours.ports.iter().any(|port| port.outstanding_tx() > 0) {
        ours.step();
        assert!(Instant::now() < end, "frames never completed");
    }
    for port in &ours.ports {
        let statistics = port.statistics().unwrap();
        assert_eq!(
            (statistics.rx_dropped, statistics.rx_invalid_descs, statistics.tx_invalid_descs),
            (0, 0, 0)
        );
        assert_eq!(port.invalid_descriptors(), 0);
    }
    ours.chains
}

#[test]
fn standard_frames_cross_unchanged_and_in_order() {
    assert_eq!(forwards_both_ways(1500, 2048), 0, "one chunk each");
}

#[test]
fn jumbo_frames_cross_in_chunks_of_4096() {
    assert!(forwards_both_ways(9000, 4096) > 400);
}

#[test]
fn jumbo_frames_cross_in_chunks_of_2048() {
    assert!(forwards_both_ways(9000, 2048) > 1200);
}

/// The same forwarder on xsk-rs, a library that no one here wrote.
struct Reference {
    ports: [ReferencePort; 2],
}

struct ReferencePort {
    rx: xsk_rs::RxQueue,
    tx: xsk_rs::TxQueue,
    fill: xsk_rs::FillQueue,
    completion: xsk_rs::CompQueue,
}

impl Reference {
    fn new() -> (Self, [Redirect; 2]) {
        use xsk_rs::config::{BindFlags, LibxdpFlags, SocketConfig, UmemConfig};
        let (umem, descriptors) =
            xsk_rs::Umem::new(UmemConfig::default(), 4096.try_into().unwrap(), false).unwrap();
        let mut rest = descriptors.as_slice();
        let mut port = |interface: &str| {
            let config = SocketConfig::builder()
                .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
                .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP | BindFlags::XDP_USE_SG)
                .build();
            // SAFETY: each (interface, queue) is bound once, and all descriptors are of this UMEM and given away once.
            let (tx, rx, rings) =
                unsafe { xsk_rs::Socket::new(config, &umem, &interface.parse().unwrap(), 0) }.unwrap();
            let (mut fill, completion) = rings.unwrap();
            let (mine, others) = rest.split_at(1024);
            rest = others;
            // SAFETY: as above.
            assert_eq!(unsafe { fill.produce(mine) }, mine.len());
            let program = Redirect::to(interface, rx.fd().as_raw_fd());
            (ReferencePort { rx, tx, fill, completion }, program)
        };
        let (left, right) = (port("dut0"), port("dut1"));
        (Self { ports: [left.0, right.0] }, [left.1, right.1])
    }
}

impl Forwarder for Reference {
    fn step(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut descriptors = [xsk_rs::FrameDesc::default(); 64];
            // SAFETY: a descriptor goes from completion to fill ring, or from RX to TX ring, and to no second place.
            unsafe {
                let done = self.ports[to].completion.consume(&mut descriptors);
                assert_eq!(self.ports[from].fill.produce(&descriptors[..done]), done);
                let got = self.ports[from].rx.consume(&mut descriptors);
                assert_eq!(self.ports[to].tx.produce(&descriptors[..got]), got);
            }
            let _ = self.ports[to].tx.wakeup();
        }
    }
}

#[test]
fn the_same_traffic_comes_out_of_xsk_rs_and_of_this_layer() {
    let left = frames(600, |number| 60 + number as usize * 1237 % 8955);
    let right = frames(600, |number| 60 + number as usize * 7919 % 8955);
    let run = |forwarder: &mut dyn FnMut(&Wire, &Wire) -> Output| {
        let _netns = Netns::with_veth(9000);
        forwarder(&Wire::open("gen"), &Wire::open("sink"))
    };
    let reference = run(&mut |generator, sink| {
        let (mut reference, _programs) = Reference::new();
        exchange(&mut reference, (generator, sink), (&left, &right))
    });
    let ours = run(&mut |generator, sink| {
        let mut ours = Ours::new(4096);
        let _programs = ours.attach();
        exchange(&mut ours, (generator, sink), (&left, &right))
    });
    assert_eq!((reference.0.len(), reference.1.len()), (600, 600));
    assert!(ours == reference, "output differs");
}

#[test]
fn one_wakeup_sends_as_many_frames_as_the_budget_says() {
    let _netns = Netns::with_veth(1500);
    let (umem, mut pool) = umem(2048, 256);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
    let has_budget = version.as_slice() >= [6, 17].as_slice();
    for (tx_budget, sent) in [(0, 32), (100, if has_budget { 100 } else { 32 })] {
        let cfg = SocketConfig { tx_budget, ..config("dut1", &umem, BindMode::Copy) };
        let mut socket = Socket::bind(&cfg).unwrap();
        let wire = Wire::open("sink");
        for _ in 0..120 {
            let mut frame = pool.pop().unwrap();
            frame.set_range(umem.default_start(), 60);
            socket.submit(frame).unwrap();
        }
        socket.flush();
        assert_eq!(socket.wakeup_tx(), Wakeup::Again, "there is more than {sent}");
        let end = Instant::now() + PATIENCE;
        let mut got = 0;
        while got < sent {
            got += std::iter::from_fn(|| wire.poll()).count();
            assert!(Instant::now() < end, "{got} of {sent}");
        }
        assert!(!wait_readable([wire.0.as_fd()], Duration::from_millis(20)), "more than {sent}");
        let end = Instant::now() + PATIENCE;
        while socket.outstanding_tx() > 0 {
            let _ = socket.wakeup_tx();
            socket.complete(&mut pool);
            assert!(Instant::now() < end, "frames never completed");
        }
        assert_eq!(socket.wakeup_tx(), Wakeup::NotNeeded, "the ring is empty");
    }
    assert_eq!(pool.len(), 256);
}

#[test]
fn a_busy_polled_socket_polls_in_its_wakeups() {
    let _netns = Netns::with_veth(1500);
    let (umem, mut pool) = umem(2048, 64);
    let busy_poll = Some(BusyPoll { usecs: 20, budget: 64 });
    let mut socket =
        Socket::bind(&SocketConfig { busy_poll, ..config("dut0", &umem, BindMode::Copy) }).unwrap();
    let _program = Redirect::to("dut0", socket.as_fd());
    socket.refill(&mut pool, 64);
    let sent = &frames(1, |_| 60)[0];
    Wire::open("gen").send(sent);
    let mut batch = Vec::new();
    let end = Instant::now() + PATIENCE;
    while socket.receive(&mut batch, 64) == 0 {
        assert_eq!(socket.wakeup_rx(), Wakeup::Done);
        assert!(Instant::now() < end, "nothing came");
    }
    assert_eq!(umem.data(&batch[0]), sent);
}

// -------------------------------------------------------------------------------------------------- binding, closing

#[test]
fn veth_has_no_zero_copy_so_auto_means_copy() {
    let _netns = Netns::with_veth(1500);
    let (umem, _pool) = umem(4096, 64);
    let error = Socket::bind(&config("dut0", &umem, BindMode::ZeroCopy)).unwrap_err();
    assert!(matches!(&error, XskError::ZeroCopy { driver, .. } if driver == "veth"), "{error}");
    assert!(error.to_string().contains("dut0, queue 0: driver veth refuses zero-copy"), "{error}");
    assert!(!Socket::bind(&config("dut0", &umem, BindMode::Auto)).unwrap().zero_copy());
}

#[test]
fn a_queue_is_free_again_as_soon_as_its_socket_is_dropped() {
    let _netns = Netns::with_veth(1500);
    let (umem, mut pool) = umem(4096, 600);
    for _ in 0..5 {
        let mut first = bind("dut0", &umem);
        let _second = bind("dut1", &umem);
        assert_eq!(first.refill(&mut pool, 300), 300);
        let start = Instant::now();
        drop(first);
        // The first socket had registered the UMEM: the second one's registration is shared now.
        let again = bind("dut0", &umem);
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
        assert_eq!((umem.reclaim(&mut pool), pool.len()), (300, 600));
        drop(again);
    }
    let all: HashSet<_> = std::iter::from_fn(|| pool.pop()).map(|frame| frame.chunk()).collect();
    assert_eq!(all.len(), 600, "every chunk came back once");
}

#[test]
fn a_queue_that_stays_taken_is_an_error_within_a_second() {
    let _netns = Netns::with_veth(1500);
    let ((first, _), (second, _)) = (umem(4096, 64), umem(4096, 64));
    let _owner = bind("dut0", &first);
    let start = Instant::now();
    let error = Socket::bind(&config("dut0", &second, BindMode::Auto)).unwrap_err();
    assert!(matches!(&error, XskError::Busy { queue: 0, .. }), "{error}");
    assert!((500..1500).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

#[test]
fn set_up_errors_name_the_culprit() {
    let _netns = Netns::with_veth(1500);
    let (umem, _pool) = umem(4096, 64);
    let cfg = config("dut0", &umem, BindMode::Auto);
    let message = |cfg: SocketConfig<'_>| Socket::bind(&cfg).unwrap_err().to_string();
    let queue = message(SocketConfig { queue: QueueId(3), ..cfg.clone() });
    assert!(queue.contains("dut0 has 1 queues, so there is no queue 3"), "{queue}");
    let size = message(SocketConfig { ring_size: 100, ..cfg.clone() });
    assert!(size.contains("dut0, queue 0: ring size 100"), "{size}");
    let name = message(config("dut7", &umem, BindMode::Auto));
    assert!(name.contains("interface dut7"), "{name}");
}

#[test]
fn missing_privileges_are_named() {
    let _netns = Netns::with_veth(1500);
    let (umem, _pool) = umem(4096, 4096);
    drop_capability(14);
    let memory =
        limited_memory(|| Socket::bind(&config("dut0", &umem, BindMode::Copy)).unwrap_err().to_string());
    assert!(memory.contains("RLIMIT_MEMLOCK"), "{memory}");
    drop_capability(13);
    let raw = Socket::bind(&config("dut0", &umem, BindMode::Copy)).unwrap_err().to_string();
    assert!(raw.contains("CAP_NET_RAW"), "{raw}");
}

/// Takes an effective capability (13: NET_RAW, 14: IPC_LOCK) from this thread.
fn drop_capability(number: u32) {
    // Header and data of capset(2), version 3.
    let header = [0x2008_0522_u32, 0];
    let mut data = [0_u32; 6];
    // SAFETY: both point to arrays of the size that the version asks for.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    data[0] &= !(1 << number);
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    assert_eq!((got, set), (0, 0));
}

/// Runs `f` under a low limit of locked memory. It holds for the process, but only this test's thread lacks the
/// capability that lifts it.
fn limited_memory<T>(f: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: points to an rlimit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut before) }, 0);
    let low = libc::rlimit { rlim_cur: 1 << 20, ..before };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const low) }, 0);
    let result = f();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const before) }, 0);
    result
}

// ------------------------------------------------------------------------------------------------------ when it fails

#[test]
fn statistics_count_what_the_kernel_drops() {
    let _netns = Netns::with_veth(1500);
    let (umem, mut pool) = umem(4096, 64);
    let mut socket = bind("dut0", &umem);
    let _program = Redirect::to("dut0", socket.as_fd());
    let wire = Wire::open("gen");
    frames(10, |_| 60).iter().for_each(|frame| wire.send(frame));
    let end = Instant::now() + PATIENCE;
    while socket.statistics().unwrap().rx_dropped < 10 {
        assert!(Instant::now() < end, "{:?}", socket.statistics());
    }
    assert_eq!(socket.statistics().unwrap().rx_fill_ring_empty_descs, 10);

    socket.refill(&mut pool, 64);
    assert!(!wait_readable([socket.as_fd()], Duration::from_millis(5)), "nothing has come");
    wire.send(&frames(1, |_| 60)[0]);
    assert!(wait_readable([socket.as_fd()], PATIENCE));
    let mut batch = Vec::new();
    assert_eq!(socket.receive(&mut batch, 64), 1);
    assert_eq!((batch[0].start(), batch[0].len()), (umem.default_start(), 60));
    batch.into_iter().for_each(|frame| pool.push(frame));
}

#[test]
fn a_frame_waits_in_the_ring_while_the_interface_is_down() {
    let netns = Netns::with_veth(1500);
    let (umem, mut pool) = umem(4096, 64);
    let mut socket = bind("dut1", &umem);
    let wire = Wire::open("sink");
    let frame = &frames(1, |_| 200)[0];
    let send = |socket: &mut Socket, pool: &mut Pool| {
        let mut out = pool.pop().unwrap();
        out.set_range(umem.default_start(), frame.len());
        umem.data_mut(&mut out).copy_from_slice(frame);
        socket.submit(out).unwrap();
        socket.flush();
    };
    ip(&["link", "set", "dut1", "down"]);
    send(&mut socket, &mut pool);
    assert_eq!(socket.wakeup_tx(), Wakeup::NetworkDown);
    assert_eq!(socket.outstanding_tx(), 1);
    ip(&["link", "set", "dut1", "up"]);
    let end = Instant::now() + PATIENCE;
    let got = loop {
        let _ = socket.wakeup_tx();
        if let Some(got) = wire.poll() {
            break got;
        }
        assert!(Instant::now() < end, "the frame never left");
    };
    assert_eq!(&got, frame);

    // The interface goes for good: the frames are still ours.
    socket.refill(&mut pool, 20);
    ip(&["link", "del", "dut1"]);
    send(&mut socket, &mut pool);
    assert_eq!(socket.wakeup_tx(), Wakeup::NetworkDown);
    drop(socket);
    umem.reclaim(&mut pool);
    assert_eq!(pool.len(), umem.chunks());
    drop(netns);
}

#[test]
fn every_queue_of_a_device_has_its_socket() {
    let _netns = Netns::new();
    let queues = ["numtxqueues", "4", "numrxqueues", "4"];
    let mut add = vec!["link", "add", "gen"];
    add.extend(queues);
    add.extend(["type", "veth", "peer", "name", "dut0"]);
    add.extend(queues);
    ip(&add);
    for device in ["gen", "dut0"] {
        ip(&["link", "set", device, "arp", "off", "up"]);
    }
    assert_eq!((rx_queues("dut0").unwrap(), tx_queues("dut0").unwrap()), (4, 4));
    assert_eq!(driver_name("dut0").unwrap(), "veth");

    // What a socket sends leaves by its own queue, and arrives on the same queue at the other end.
    let (umem, mut pool) = umem(2048, 1024);
    let mut redirect = Redirect::attach("dut0");
    let open = |interface, queue| {
        let cfg = SocketConfig { queue: QueueId(queue), ..config(interface, &umem, BindMode::Auto) };
        Socket::bind(&cfg).unwrap()
    };
    let mut senders: Vec<_> = (0..4).map(|queue| open("gen", queue)).collect();
    let mut receivers: Vec<_> = (0..4).map(|queue| open("dut0", queue)).collect();
    for (queue, socket) in (0..).zip(&mut receivers) {
        redirect.set(queue, socket.as_fd());
        socket.refill(&mut pool, 64);
    }
    let sent = frames(64, |_| 100);
    for (queue, sent) in sent.chunks(16).enumerate() {
        for bytes in sent {
            let mut frame = pool.pop().unwrap();
            frame.set_range(umem.default_start(), bytes.len());
            umem.data_mut(&mut frame).copy_from_slice(bytes);
            senders[queue].submit(frame).unwrap();
        }
        senders[queue].flush();
        let mut got = Vec::new();
        let end = Instant::now() + PATIENCE;
        while got.len() < sent.len() {
            assert!(Instant::now() < end, "queue {queue}: {} of {}", got.len(), sent.len());
            let _ = senders[queue].wakeup_tx();
            let mut batch = Vec::new();
            receivers[queue].receive(&mut batch, 64);
            for frame in batch {
                got.push(umem.data(&frame).to_vec());
                pool.push(frame);
            }
        }
        assert!(got == sent, "queue {queue}");
    }
}

// --------------------------------------------------------------------------------------------------------- huge pages

#[test]
fn huge_pages_are_used_rounded_and_given_back() {
    // Pages that another program has taken cannot be given back to the system below, hence the exact restore.
    let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let before: u32 = std::fs::read_to_string(pages).unwrap().trim().parse().unwrap();
    std::fs::write(pages, (before + 16).to_string()).unwrap();
    // 700 chunks are 2.7 MiB: two pages.
    let cfg = UmemConfig { chunk_size: 4096, chunks: 700, headroom: 0, huge_pages: HugePages::Require };
    let result = Umem::new(cfg);
    let mapped = huge_mappings();
    let outcome = result.map(|(umem, mut pool)| {
        let huge = umem.huge();
        let mut last = std::iter::from_fn(|| pool.pop()).last().unwrap();
        umem.chunk_mut(&mut last).fill(7);
        (huge, last.chunk())
    });
    let after = huge_mappings();
    std::fs::write(pages, before.to_string()).unwrap();
    assert_eq!(outcome.unwrap(), (true, 699));
    assert_eq!((mapped, after), (4096, 0), "kB of huge pages mapped, before and after drop");
}

/// Huge pages this process has mapped, in kB.
fn huge_mappings() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("HugetlbPages:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const _: fn() = || {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Socket>();
    send::<Frame>();
    send::<Pool>();
    send::<Umem>();
    sync::<Umem>();
    let _: fn(&Socket) -> BorrowedFd<'_> = Socket::as_fd;
};
