//! The program on real devices, loaded and attached by `flowrail::bpf`.

use std::io::{self, BufRead as _, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowrail::bpf::{AttachMode, AttachPolicy, BpfError, Outcome, OutcomeCount, SteerMode, Steering};
use flowrail::ids::QueueId;
use libbpf_rs::{ObjectBuilder, Xdp, XdpFlags};

use crate::frame::{ARP, Frame};
use crate::rig::{Netns, OBJECT, Sender, XdpSocket, eventually, interface_index, sh, xdp_of};

const UNDERLAY: SteerMode = SteerMode::Underlay { vlan: None, native_roce: false };
const ENCAP_IPS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

fn count(steering: &Steering, outcome: Outcome) -> OutcomeCount {
    let counts = steering.outcomes().unwrap();
    counts.into_iter().find(|(found, _)| *found == outcome).unwrap().1
}

fn total(steering: &Steering) -> u64 {
    steering.outcomes().unwrap().iter().map(|(_, count)| count.packets).sum()
}

/// The error with its causes, as `anyhow` prints it.
fn text(error: &BpfError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn jumbo_veth_is_steered_natively_and_released_on_drop() {
    let netns = Netns::enter("jumbo-veth");
    netns.veth_pair(9000, 1);
    let mut steering = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
    let socket = XdpSocket::bind("a", 0);
    steering.insert_socket(QueueId(0), socket.as_fd()).unwrap();
    assert_eq!(xdp_of("a"), None, "loading attaches nothing");
    assert_eq!(steering.attach(AttachPolicy::NativeOnly).unwrap(), AttachMode::Native);
    assert_eq!(xdp_of("a"), Some("xdp"));

    let sender = Sender::on("b");
    let jumbo = Frame::vxlan4().payload(8850).0;
    for frame in [&jumbo, &jumbo, &jumbo, &Frame::vxlan6().0, &Frame::ethernet(ARP).payload(46).0] {
        sender.send(frame);
    }
    eventually("five frames counted", || total(&steering) == 5);
    let bytes = 3 * jumbo.len() as u64 + Frame::vxlan6().0.len() as u64;
    assert_eq!(count(&steering, Outcome::Vxlan), OutcomeCount { packets: 4, bytes });
    assert_eq!(count(&steering, Outcome::NotIp), OutcomeCount { packets: 1, bytes: 60 });
    eventually("four frames at the socket", || socket.reached() == 4);

    drop(steering);
    assert_eq!(xdp_of("a"), None);
}

#[test]
fn without_frags_the_same_program_is_refused_at_jumbo_mtu() {
    let netns = Netns::enter("no-frags");
    netns.veth_pair(9000, 1);
    let if_index = interface_index("a") as i32;
    let attach = |section: &[u8]| {
        let mut bytes = std::fs::read(OBJECT).unwrap();
        // The section's name is what asks for fragments; it stands in more than one string table.
        while let Some(at) = bytes.windows(10).position(|window| window == b"xdp.frags\0") {
            bytes[at..at + 10].copy_from_slice(section);
        }
        let object = ObjectBuilder::default().open_memory(&bytes).unwrap().load().unwrap();
        object.progs_mut().next().unwrap().attach_xdp(if_index).map(drop)
    };
    let refused = attach(b"xdp\0.....\0").unwrap_err();
    assert!(
        format!("{refused:?}").contains(&io::Error::from_raw_os_error(libc::ERANGE).to_string()),
        "{refused:?}"
    );
    sh("ip link set dev b mtu 1500");
    attach(b"xdp\0.....\0").unwrap();
}

#[test]
fn vlan_tags_stay_in_the_frame_while_attached() {
    let netns = Netns::enter("rx-vlan");
    netns.veth_pair(1500, 1);
    let offload = || sh("ethtool -k a | grep '^rx-vlan-offload'");
    assert!(offload().contains(": on"), "a veth that strips no tags proves nothing");
    let mut steering = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
    assert!(offload().contains(": on"));
    steering.attach(AttachPolicy::NativeOnly).unwrap();
    assert!(offload().contains(": off"), "{}", offload());
    assert!(matches!(steering.attach(AttachPolicy::NativeOnly).unwrap_err(), BpfError::Busy { .. }));
    assert!(offload().contains(": off"), "a failed attach leaves the first one as it is");
    drop(steering);
    assert!(offload().contains(": on"));

    sh("ethtool -K a rxvlan off");
    let mut steering = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
    steering.attach(AttachPolicy::NativeOnly).unwrap();
    drop(steering);
    assert!(offload().contains(": off"), "not ours to switch on");
}

/// What the code under `run` logs.
fn log_of<T>(run: impl FnOnce() -> T) -> (T, String) {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let result = tracing::subscriber::with_default(subscriber, run);
    let bytes = log.0.lock().unwrap().clone();
    (result, String::from_utf8(bytes).unwrap())
}

#[test]
fn generic_mode_is_a_loud_fallback_and_encap_ips_change_live() {
    let _netns = Netns::enter("generic");
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let mut steering = Steering::load("lo", UNDERLAY, &[]).unwrap();
    let refused = steering.attach(AttachPolicy::NativeOnly).unwrap_err();
    assert!(matches!(refused, BpfError::NoNativeXdp { .. }), "{refused:?}");
    assert_eq!(xdp_of("lo"), None);

    let (mode, log) = log_of(|| steering.attach(AttachPolicy::NativeOrGeneric).unwrap());
    assert_eq!(mode, AttachMode::Generic);
    assert_eq!(xdp_of("lo"), Some("xdpgeneric"));
    assert_eq!(log.lines().count(), 1, "{log}");
    for word in ["WARN", "interface=lo", "os error 95", "generic"] {
        assert!(log.contains(word), "no {word} in: {log}");
    }

    let socket = UdpSocket::bind((loopback, 0)).unwrap();
    let send_to_vxlan = |steering: &mut Steering, ips: &[IpAddr], outcome, packets| {
        steering.set_encap_ips(ips).unwrap();
        socket.send_to(&[0; 60], (loopback, 4789)).unwrap();
        eventually("the frame counted", || count(steering, outcome).packets == packets);
    };
    send_to_vxlan(&mut steering, &ENCAP_IPS, Outcome::NotLocal, 1);
    send_to_vxlan(&mut steering, &[ENCAP_IPS[1], loopback], Outcome::NoSocket, 1);
    send_to_vxlan(&mut steering, &ENCAP_IPS, Outcome::NotLocal, 2);
    let xdp_socket = XdpSocket::bind("lo", 0);
    steering.insert_socket(QueueId(0), xdp_socket.as_fd()).unwrap();
    send_to_vxlan(&mut steering, &[loopback], Outcome::Vxlan, 1);
    assert_eq!(xdp_socket.reached(), 1);
    drop(steering);
    assert_eq!(xdp_of("lo"), None);
}

#[test]
fn other_program_is_named_and_the_advised_command_removes_it() {
    let netns = Netns::enter("busy");
    netns.veth_pair(1500, 1);
    let if_index = interface_index("a") as i32;
    let object = ObjectBuilder::default().open_file(OBJECT).unwrap().load().unwrap();
    let program = object.progs_mut().next().unwrap();
    let id = libbpf_rs::Program::id_from_fd(program.as_fd()).unwrap();
    for (flags, shown) in [(XdpFlags::DRV_MODE, "xdp"), (XdpFlags::SKB_MODE, "xdpgeneric")] {
        Xdp::new(program.as_fd()).attach(if_index, flags).unwrap();
        let mut steering = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
        let (attached, log) = log_of(|| steering.attach(AttachPolicy::NativeOrGeneric));
        let message = text(&attached.unwrap_err());
        let command = "ip link set dev a xdp off";
        for part in ["interface a:", &format!("id {id}, name flowrail_steer"), command] {
            assert!(message.contains(part), "no {part} in: {message}");
        }
        assert_eq!(log, "", "no fallback beside another program");
        assert_eq!(xdp_of("a"), Some(shown), "the other program stays");
        sh(if shown == "xdp" { command } else { "ip link set dev a xdpgeneric off" });
        assert_eq!(steering.attach(AttachPolicy::NativeOnly).unwrap(), AttachMode::Native);
    }
}

#[test]
fn second_flowrail_on_an_interface_is_refused() {
    let netns = Netns::enter("second");
    netns.veth_pair(1500, 1);
    let mut first = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
    let mut second = Steering::load("a", SteerMode::OverlayAll, &[]).unwrap();
    first.attach(AttachPolicy::NativeOnly).unwrap();
    let refused = second.attach(AttachPolicy::NativeOrGeneric).unwrap_err();
    assert!(
        matches!(&refused, BpfError::Busy { program, .. } if program.name.as_deref() == Some("flowrail_steer"))
    );
    drop(first);
    second.attach(AttachPolicy::NativeOnly).unwrap();
}

/// Plays both parts: run with `FR_STEER_CRASH` set, it is the process that will be killed.
#[test]
fn killed_process_leaves_nothing_attached() {
    const CRASH: &str = "FR_STEER_CRASH";
    if std::env::var_os(CRASH).is_some() {
        let mut steering = Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap();
        steering.attach(AttachPolicy::NativeOnly).unwrap();
        println!("\nattached");
        std::thread::sleep(Duration::from_secs(20));
        panic!("nobody killed this process");
    }
    let netns = Netns::enter("crash");
    netns.veth_pair(1500, 1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "live::killed_process_leaves_nothing_attached", "--nocapture"])
        .env(CRASH, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let attached = lines.any(|line| line.unwrap() == "attached");
    let while_alive = xdp_of("a");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(attached, "the child never attached");
    assert_eq!(while_alive, Some("xdp"));
    eventually("detached", || xdp_of("a").is_none());
    Steering::load("a", UNDERLAY, &ENCAP_IPS).unwrap().attach(AttachPolicy::NativeOnly).unwrap();
}

#[test]
fn missing_and_vanished_interfaces_are_named() {
    let netns = Netns::enter("missing");
    let message = text(&Steering::load("nothere0", UNDERLAY, &[]).unwrap_err());
    assert!(message.contains("nothere0 does not exist"), "{message}");
    netns.veth_pair(1500, 1);
    let mut steering = Steering::load("a", UNDERLAY, &[]).unwrap();
    sh("ip link del dev a");
    let gone = steering.attach(AttachPolicy::NativeOrGeneric).unwrap_err();
    assert!(matches!(&gone, BpfError::NoInterface { interface } if interface == "a"), "{gone:?}");
}

#[test]
fn impossible_settings_are_refused_by_name() {
    let _netns = Netns::enter("settings");
    for vlan in [0, 4095, 0xffff] {
        let mode = SteerMode::Underlay { vlan: Some(vlan), native_roce: false };
        let message = text(&Steering::load("lo", mode, &[]).unwrap_err());
        assert!(message.contains(&format!("VLAN {vlan} is not one of 1 to 4094")), "{message}");
    }
    let ips = |count: u32| -> Vec<IpAddr> { (1..=count).map(|n| Ipv4Addr::from(n).into()).collect() };
    let others: Vec<IpAddr> = (1..=256).map(|n| Ipv4Addr::from(0x0a00_0000 + n).into()).collect();
    let mut steering = Steering::load("lo", UNDERLAY, &ips(256)).unwrap();
    let full = steering.set_encap_ips(&ips(257)).unwrap_err();
    assert!(matches!(full, BpfError::TooManyEncapIps { count: 257, .. }), "{full:?}");
    steering.set_encap_ips(&others).expect("a whole set replaces a whole set");
    let socket = XdpSocket::bind("lo", 0);
    steering.insert_socket(QueueId(1023), socket.as_fd()).unwrap();
    let beyond = steering.insert_socket(QueueId(1024), socket.as_fd()).unwrap_err();
    assert!(text(&beyond).contains("queue 1024 is beyond the 1024"), "{}", text(&beyond));
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let message = text(&steering.insert_socket(QueueId(3), other.as_fd()).unwrap_err());
    assert!(message.contains("socket of queue 3 cannot be a target"), "{message}");
}

/// `_LINUX_CAPABILITY_VERSION_3`, and 0 for the calling thread.
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

/// Runs with these effective capabilities alone; the kernel keeps them per thread.
fn with_capabilities<T>(capabilities: &[u32], run: impl FnOnce() -> T) -> T {
    // Effective, permitted, inheritable; low words, then high words.
    let mut before = [0u32; 6];
    // SAFETY: header and data have the layout of version 3.
    let rc = unsafe { libc::syscall(libc::SYS_capget, CAPABILITY_HEADER.as_ptr(), before.as_mut_ptr()) };
    assert_eq!(rc, 0);
    let mask = capabilities.iter().fold(0u64, |mask, capability| mask | 1 << capability);
    let mut reduced = before;
    (reduced[0], reduced[3]) = (mask as u32, (mask >> 32) as u32);
    set_capabilities(&reduced);
    let _restore = Restore(before);
    run()
}

struct Restore([u32; 6]);

impl Drop for Restore {
    fn drop(&mut self) {
        set_capabilities(&self.0);
    }
}

fn set_capabilities(data: &[u32; 6]) {
    // SAFETY: header and data have the layout of version 3.
    let rc = unsafe { libc::syscall(libc::SYS_capset, CAPABILITY_HEADER.as_ptr(), data.as_ptr()) };
    assert_eq!(rc, 0, "{}", io::Error::last_os_error());
}

#[test]
fn missing_capabilities_are_named_and_three_are_enough() {
    const NET_ADMIN: u32 = 12;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let netns = Netns::enter("capabilities");
    netns.veth_pair(9000, 1);
    let socket = XdpSocket::bind("a", 0);
    // aya probes the kernel once per process: here, with every capability.
    drop(Steering::load("a", UNDERLAY, &[]).unwrap());
    let load = || Steering::load("a", UNDERLAY, &ENCAP_IPS);
    for (held, missing) in [
        (&[][..], "missing CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN;"),
        (&[NET_ADMIN, PERFMON], "missing CAP_BPF;"),
        (&[BPF, PERFMON], "missing CAP_NET_ADMIN;"),
        (&[BPF, NET_ADMIN], "missing CAP_PERFMON;"),
    ] {
        let message = text(&with_capabilities(held, load).unwrap_err());
        assert!(
            message.contains("interface a: no permission to load") && message.contains(missing),
            "{message}"
        );
    }
    let steering = with_capabilities(&[NET_ADMIN, PERFMON, BPF], || {
        let mut steering = load().unwrap();
        steering.insert_socket(QueueId(0), socket.as_fd()).unwrap();
        steering.attach(AttachPolicy::NativeOnly).unwrap();
        steering.set_encap_ips(&ENCAP_IPS[..1]).unwrap();
        assert_eq!(total(&steering), 0);
        steering
    });
    assert_eq!(xdp_of("a"), Some("xdp"));
    drop(steering);
}
