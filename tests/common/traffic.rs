//! Traffic between two tenants, and what its witnesses say.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use super::command::{Background, eventually};
use super::netns::Netns;
use super::topology::{Pair, TENANT_IP, TENANT_MAC};

/// Pings `to` with `size` bytes of ICMP payload and DF set; every echo must come back, each once.
#[track_caller]
pub fn ping(from: &Netns, to: &str, size: u32, count: u32) {
    let command = format!("ping -n -c {count} -i 0.02 -W 1 -M do -s {size} {to}");
    let output = from.attempt(Duration::from_secs(15), &command).expect_success();
    assert!(output.stdout.contains(&format!("{count} received")), "{output}");
    assert!(!output.stdout.contains("DUP!"), "{output}");
}

/// What an iperf3 run carried, as the receiving end saw it.
#[derive(Debug)]
pub struct Iperf {
    pub bytes: u64,
    pub lost_percent: f64,
}

/// Runs iperf3 from `client` to a server in `server` at `address` for two seconds. `options` such as `-u -b 100M`.
#[track_caller]
pub fn iperf(server: &Netns, client: &Netns, address: &str, options: &str) -> Iperf {
    let listener = server.spawn("iperf3 -s -1");
    eventually("iperf3 server listens", Duration::from_secs(5), || {
        !server.run("ss -Hltn sport = :5201").stdout.is_empty()
    });
    let command = format!("iperf3 -c {address} -t 2 -J --connect-timeout 3000 {options}");
    let output = client.attempt(Duration::from_secs(20), &command).expect_success();
    listener.wait(Duration::from_secs(5)).expect_success();
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"));
    let end = &report["end"];
    let sum = if end["sum_received"].is_null() { &end["sum"] } else { &end["sum_received"] };
    let number = |name: &str| sum[name].as_f64().unwrap_or_default();
    Iperf { bytes: number("bytes") as u64, lost_percent: number("lost_percent") }
}

/// The RoCEv2 probe, built when it is not, and optimized: it reckons a CRC over every byte.
fn probe() -> &'static str {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    let path = PROBE.get_or_init(|| {
        // target/PROFILE/deps/netns-HASH → target/PROFILE/examples/roce_probe
        let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["rustc", "--quiet", "--example", "roce_probe", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        build.env("CARGO_TARGET_DIR", profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.args(["--", "-Copt-level=3"]);
        assert!(build.status().unwrap().success(), "cannot build the RoCEv2 probe");
        profile.join("examples/roce_probe")
    });
    path.to_str().unwrap()
}

/// RoCEv2 from one tenant of a pair to the other.
#[derive(Clone, Copy)]
pub struct Roce {
    pub path_mtu: u32,
    pub count: u32,
    /// Frames per second.
    pub rate: u32,
    /// Queue pairs that take turns.
    pub qps: u32,
}

impl Roce {
    /// Sends from host `from`'s tenant of VNI number `n`; every frame must arrive whole, in order, marked as sent.
    #[track_caller]
    pub fn carry(self, pair: &Pair, from: usize, n: usize) -> Value {
        let Self { path_mtu, count, rate, qps } = self;
        let [sender, receiver] = [from, 1 - from].map(|i| &pair.hosts[i].tenants[n]);
        let witness = listen(receiver, &format!("--count {count} --idle 2 --timeout 20"));
        let route = route(from);
        let send =
            format!("send {route} --path-mtu {path_mtu} --count {count} --rate {rate} --qps {qps} --json");
        // Pinned, because the kernel may reorder the frames of a sender that changes its core.
        let command = format!("taskset -c 0 {} {send}", probe());
        sender.attempt(Duration::from_secs(20), &command).expect_success();
        let output = witness.wait(Duration::from_secs(25));
        assert!(output.success(), "{output}\n{}", pair.diagnosis());
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
    }

    /// Sends one frame at a time and waits for its echo.
    #[track_caller]
    pub fn round_trips(self, pair: &Pair, from: usize) -> Value {
        let Self { path_mtu, count, .. } = self;
        let _echo = listen(pair.tenant(1 - from), "--echo --timeout 30 --idle 5");
        let send = format!("send {} --path-mtu {path_mtu} --count {count} --rtt --json", route(from));
        let command = format!("{} {send}", probe());
        let output = pair.tenant(from).attempt(Duration::from_secs(20), &command).expect_success();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
    }
}

/// Sends `count` frames to MAC address `to_mac` that nobody is expected to receive; `tenant` lives on host `host`.
#[track_caller]
pub fn send_to(tenant: &Netns, host: usize, to_mac: &str, count: u32) {
    let (from, to) = (TENANT_IP[host], TENANT_IP[1 - host]);
    let route = format!("--interface t0 --to-mac {to_mac} --from {from} --to {to}");
    let command = format!("{} send {route} --count {count} --rate 1000", probe());
    tenant.attempt(Duration::from_secs(10), &command).expect_success();
}

fn route(from: usize) -> String {
    let to = 1 - from;
    format!("--interface t0 --to-mac {} --from {} --to {}", TENANT_MAC[to], TENANT_IP[from], TENANT_IP[to])
}

/// A listening probe, ready to judge.
fn listen(netns: &Netns, options: &str) -> Background {
    let mut witness = netns.spawn(&format!("{} receive --interface t0 {options} --json", probe()));
    eventually("the probe listens", Duration::from_secs(5), || witness.stderr().contains("ready"));
    witness
}
