//! What the steering tests stand on: a network namespace, an AF_XDP socket, the object in libbpf's hands.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use flowrail::bpf::{Outcome, OutcomeCount};
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};

use crate::frame::{OUR_IP4, OUR_IP6};

pub const OBJECT: &str = env!("FLOWRAIL_STEER_OBJECT");

/// Runs a command in the namespace of the calling thread and gives what it printed.
pub fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A namespace of its own, entered by the calling thread; left and removed when dropped.
pub struct Netns {
    pub name: String,
    outside: File,
}

impl Netns {
    pub fn enter(purpose: &str) -> Self {
        let name = format!("fr-bpf-{purpose}-{}", std::process::id());
        let outside = File::open("/proc/thread-self/ns/net").unwrap();
        sh(&format!("ip netns add {name}"));
        let netns = Self { name, outside };
        set_netns(&File::open(format!("/run/netns/{}", netns.name)).unwrap());
        sh("ip link set lo up");
        netns
    }

    /// A veth pair `a` and `b` without IPv6 chatter: nothing arrives that a test did not send.
    pub fn veth_pair(&self, mtu: u32, queues: u32) {
        sh("echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6");
        let ends = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
        sh(&format!("ip link add name a {ends} type veth peer name b {ends}"));
        sh("ip link set dev a up; ip link set dev b up");
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        set_netns(&self.outside);
        sh(&format!("ip netns del {}", self.name));
    }
}

fn set_netns(netns: &File) {
    // SAFETY: takes no pointer.
    let rc = unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(rc, 0, "setns: {}", io::Error::last_os_error());
}

pub fn interface_index(name: &str) -> u32 {
    let name = CString::new(name).unwrap();
    // SAFETY: NUL-terminated and alive during the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{name:?}");
    index
}

/// Whether any XDP program is attached, and in which mode, as `ip link` sees it.
pub fn xdp_of(interface: &str) -> Option<&'static str> {
    let line = sh(&format!("ip -o link show dev {interface}"));
    ["xdpgeneric", "xdp"]
        .into_iter()
        .find(|mode| line.contains(&format!(" {mode}/")) || line.contains(&format!(" {mode} ")))
}

/// Waits until `done`, at most 3 s.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(3), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A real AF_XDP socket with RX and fill rings and no chunk in them: the kernel counts each frame that it would have
/// delivered, and keeps none.
pub struct XdpSocket(OwnedFd);

impl XdpSocket {
    pub fn bind(interface: &str, queue: u32) -> Self {
        const CHUNKS: usize = 16;
        const CHUNK: usize = 4096;
        // SAFETY: fresh anonymous memory, placed by the kernel.
        let umem = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CHUNKS * CHUNK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(umem, libc::MAP_FAILED);
        // SAFETY: takes no pointer; the descriptor has no other owner.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: as above.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: plain integers, for which zero is a value.
        let mut register: libc::xdp_umem_reg = unsafe { zeroed() };
        register.addr = umem as u64;
        register.len = (CHUNKS * CHUNK) as u64;
        register.chunk_size = CHUNK as u32;
        socket.set(libc::XDP_UMEM_REG, &register);
        // SAFETY: the kernel holds the pages; nobody looks at them.
        unsafe { libc::munmap(umem, CHUNKS * CHUNK) };
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            socket.set(ring, &64u32);
        }
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_SG,
            sxdp_ifindex: interface_index(interface),
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as u32;
        // SAFETY: pointer and length describe `address`.
        let rc = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(rc, 0, "bind {interface} queue {queue}: {}", io::Error::last_os_error());
        socket
    }

    /// Frames that reached this socket.
    pub fn reached(&self) -> u64 {
        // SAFETY: plain integers, for which zero is a value.
        let mut statistics: libc::xdp_statistics = unsafe { zeroed() };
        let mut length = size_of::<libc::xdp_statistics>() as u32;
        let target = (&raw mut statistics).cast();
        // SAFETY: pointer and length describe `statistics`.
        let rc = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, target, &raw mut length)
        };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        statistics.rx_dropped
    }

    fn set<T>(&self, option: i32, value: &T) {
        let (pointer, length) = ((&raw const *value).cast(), size_of::<T>() as u32);
        // SAFETY: pointer and length describe `value`.
        let rc = unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_XDP, option, pointer, length) };
        assert_eq!(rc, 0, "option {option}: {}", io::Error::last_os_error());
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends raw frames out of an interface.
pub struct Sender {
    socket: OwnedFd,
    if_index: u32,
}

impl Sender {
    pub fn on(interface: &str) -> Self {
        // SAFETY: takes no pointer; the descriptor has no other owner.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        // SAFETY: as above.
        Self { socket: unsafe { OwnedFd::from_raw_fd(socket) }, if_index: interface_index(interface) }
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: plain integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = self.if_index as i32;
        address.sll_halen = 6;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        let (fd, to) = (self.socket.as_raw_fd(), (&raw const address).cast());
        // SAFETY: both pointers come with their lengths.
        let sent = unsafe { libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, to, length) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// `struct steer_config`, written out by hand.
pub fn config(mode: u8, native_roce: bool, vlan: u16) -> [u8; 4] {
    let [low, high] = vlan.to_ne_bytes();
    [mode, u8::from(native_roce), low, high]
}

pub const UNDERLAY: [u8; 4] = [1, 0, 0, 0];
pub const OVERLAY_ALL: [u8; 4] = [2, 0, 0, 0];
pub const OVERLAY_ROCE: [u8; 4] = [3, 0, 0, 0];

/// What the kernel does with a frame of this outcome, as an XDP action.
pub fn action_of(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Unconfigured => 0,
        Outcome::NoSocket => 1,
        Outcome::Vxlan | Outcome::Roce | Outcome::All => 4,
        _ => 2,
    }
}

/// The object loaded by libbpf and run by BPF_PROG_TEST_RUN.
pub struct Port {
    object: Object,
}

impl Port {
    /// Encap IPs are [`OUR_IP4`] and [`OUR_IP6`].
    pub fn load(config: [u8; 4]) -> Self {
        let object = ObjectBuilder::default().open_file(OBJECT).unwrap().load().unwrap();
        let port = Self { object };
        port.set_config(config);
        port.map("encap_ip4").update(&OUR_IP4, &[1], MapFlags::ANY).unwrap();
        port.map("encap_ip6").update(&OUR_IP6, &[1], MapFlags::ANY).unwrap();
        port
    }

    pub fn insert_socket(&self, queue: u32, socket: &XdpSocket) {
        let fd = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.map("xsks").update(&queue.to_ne_bytes(), &fd, MapFlags::ANY).unwrap();
    }

    pub fn set_config(&self, config: [u8; 4]) {
        self.map("steer_config").update(&[0; 4], &config, MapFlags::ANY).unwrap();
    }

    pub fn map(&self, name: &str) -> Map<'_> {
        self.object.maps().find(|map| map.name() == name).unwrap()
    }

    pub fn program(&mut self) -> ProgramMut<'_> {
        self.object.progs_mut().next().unwrap()
    }

    /// Sends one frame through the program on RX queue 0 of `lo`: gives what became of it, and asserts that the action
    /// fits and that this frame and nothing else was counted, with its length.
    pub fn run(&mut self, frame: &[u8]) -> Outcome {
        self.run_input(frame, ProgramInput { data_in: Some(frame), ..Default::default() })
    }

    /// The same on another RX queue.
    pub fn run_on(&mut self, frame: &[u8], if_index: u32, queue: u32) -> Outcome {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
        let words = [0, u32::try_from(frame.len()).unwrap(), 0, if_index, queue, 0];
        let mut context: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        let input =
            ProgramInput { data_in: Some(frame), context_in: Some(&mut context), ..Default::default() };
        self.run_input(frame, input)
    }

    fn run_input(&mut self, frame: &[u8], input: ProgramInput<'_>) -> Outcome {
        let before = self.counts();
        let action = self.program().test_run(input).unwrap().return_value;
        let moved: Vec<_> = before
            .into_iter()
            .zip(self.counts())
            .zip(Outcome::ALL)
            .filter(|((before, after), _)| before != after)
            .map(|((before, after), outcome)| {
                (outcome, after.packets - before.packets, after.bytes - before.bytes)
            })
            .collect();
        let [(outcome, 1, bytes)] = moved[..] else { panic!("one frame counted as {moved:?}: {frame:02x?}") };
        assert_eq!(bytes, frame.len() as u64, "{outcome:?}");
        assert_eq!(action, action_of(outcome), "action of {outcome:?}: {frame:02x?}");
        outcome
    }

    pub fn counts(&self) -> Vec<OutcomeCount> {
        let map = self.map("outcomes");
        (0..Outcome::ALL.len() as u32)
            .map(|key| {
                let per_cpu = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
                per_cpu.iter().fold(OutcomeCount::default(), |sum, cpu| {
                    let word = |at: usize| u64::from_ne_bytes(cpu[at..at + 8].try_into().unwrap());
                    OutcomeCount { packets: sum.packets + word(0), bytes: sum.bytes + word(8) }
                })
            })
            .collect()
    }
}
