//! Two hosts with a VTEP each, and on every host one tenant per VNI:
//!
//! ```text
//! tenant  t0 ──veth── p0  host 0  u0 ──veth── u0  host 1  p0 ──veth── t0  tenant
//!         t0 ──veth── p1          10.0.0.1  10.0.0.2      p1 ──veth── t0
//! ```
//!
//! The tenants of all VNIs have the same MAC and IP addresses: only the VNI tells them apart.

use std::fmt::Write;
use std::time::Duration;

use super::command::{Output, eventually};
use super::forwarder::Forwarder;
use super::kernel::KernelVtep;
use super::netns::{Netns, Turn};
use super::veth::{End, Veth};

/// What terminates the tunnel on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vtep {
    Flowrail,
    Kernel,
    /// The test brings up its own.
    None,
}

/// How the two hosts are built.
#[derive(Clone)]
pub struct Plan {
    pub vteps: [Vtep; 2],
    pub vnis: Vec<u32>,
    pub underlay_mtu: u32,
    pub tenant_mtu: u32,
    /// Queues of every veth.
    pub queues: u32,
    pub underlay_ipv6: bool,
    /// IPv6 in the tenants and its neighbor discovery over the tunnel.
    pub tenant_ipv6: bool,
    /// Cores of a forwarder's workers.
    pub cores: &'static str,
    /// Lines added to the `[[port]]` tables, such as `steer = "roce"`.
    pub port_extra: &'static str,
    /// Lines added at the head of the configuration.
    pub extra: &'static str,
}

impl Plan {
    /// A forwarder on host 0 against `peer` on host 1, one VNI, jumbo frames all the way.
    pub fn against(peer: Vtep) -> Self {
        Self {
            vteps: [Vtep::Flowrail, peer],
            vnis: vec![100],
            underlay_mtu: 9214,
            tenant_mtu: 9000,
            queues: 1,
            underlay_ipv6: false,
            tenant_ipv6: false,
            cores: "[1]",
            port_extra: "",
            extra: "",
        }
    }

    /// Encap IP of a host.
    pub fn encap_ip(&self, host: usize) -> &'static str {
        match self.underlay_ipv6 {
            false => ["10.0.0.1", "10.0.0.2"][host],
            true => ["fd00::1", "fd00::2"][host],
        }
    }
}

pub const UPLINK_MAC: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
pub const TENANT_MAC: [&str; 2] = ["02:00:00:00:0a:01", "02:00:00:00:0a:02"];
pub const TENANT_IP: [&str; 2] = ["192.168.1.1", "192.168.1.2"];
pub const TENANT_IP6: [&str; 2] = ["fd01::1", "fd01::2"];

/// One host: its VTEP's namespace and its tenants', in the order of the plan's VNIs.
pub struct Host {
    pub netns: Netns,
    pub tenants: Vec<Netns>,
    pub forwarder: Option<Forwarder>,
}

/// Two hosts, back to back.
pub struct Pair {
    pub hosts: [Host; 2],
    pub plan: Plan,
    _turn: Turn,
}

impl Pair {
    /// Builds everything and waits until the forwarders are ready.
    pub fn up(plan: Plan) -> Self {
        let turn = Turn::wait();
        let hosts = [0, 1].map(|i| {
            let netns = Netns::new(&format!("host{i}"));
            let tenants = plan.vnis.iter().map(|vni| Netns::new(&format!("vni{vni}-{i}"))).collect();
            Host { netns, tenants, forwarder: None }
        });
        let mut pair = Self { hosts, plan, _turn: turn };
        pair.connect();
        for i in 0..2 {
            pair.start_vtep(i);
        }
        pair
    }

    fn connect(&self) {
        let Self { hosts, plan, .. } = self;
        // An underlay NIC finishes the checksums of what it sends, so these ends leave none to the far side.
        let underlay = Veth { mtu: plan.underlay_mtu, queues: plan.queues, offload: false };
        let [a, b] = [0, 1].map(|i| End { netns: &hosts[i].netns, name: "u0", mac: UPLINK_MAC[i] });
        underlay.connect(a, b);
        for (i, host) in hosts.iter().enumerate() {
            host.netns.set_ipv6(plan.underlay_ipv6);
            let length = if plan.underlay_ipv6 { 64 } else { 24 };
            host.netns.run(&format!("ip addr add {}/{length} dev u0", plan.encap_ip(i)));
            for (n, tenant) in host.tenants.iter().enumerate() {
                let access = Veth { mtu: plan.tenant_mtu, queues: plan.queues, offload: true };
                let port = format!("p{n}");
                access.connect(
                    End { netns: tenant, name: "t0", mac: TENANT_MAC[i] },
                    End { netns: &host.netns, name: &port, mac: &format!("02:00:00:00:02:{n:02x}") },
                );
                tenant.set_ipv6(plan.tenant_ipv6);
                tenant.run(&format!("ip addr add {}/24 dev t0", TENANT_IP[i]));
                if plan.tenant_ipv6 {
                    tenant.run(&format!("ip addr add {}/64 dev t0", TENANT_IP6[i]));
                }
            }
        }
    }

    fn start_vtep(&mut self, i: usize) {
        match self.plan.vteps[i] {
            Vtep::None => {}
            Vtep::Flowrail => self.start_forwarder(i, &self.config(i)),
            Vtep::Kernel => self.start_kernel_vtep(i, "u0"),
        }
    }

    /// Brings up the kernel's VXLAN device on host `i`, over its device `underlay`.
    pub fn start_kernel_vtep(&self, i: usize, underlay: &str) {
        for (n, &vni) in self.plan.vnis.iter().enumerate() {
            KernelVtep {
                netns: &self.hosts[i].netns,
                underlay,
                vni,
                port: &format!("p{n}"),
                local: self.plan.encap_ip(i),
                remote: self.plan.encap_ip(1 - i),
                mtu: self.plan.tenant_mtu,
            }
            .up();
        }
    }

    /// Runs a forwarder with `config` on host `i`.
    pub fn start_forwarder(&mut self, i: usize, config: &str) {
        let forwarder = Forwarder::start(&self.hosts[i].netns, config);
        self.hosts[i].forwarder = Some(forwarder);
    }

    /// The configuration of a forwarder on host `i`.
    pub fn config(&self, i: usize) -> String {
        let Plan { vnis, cores, port_extra, extra, .. } = &self.plan;
        let mut toml = format!("{extra}\n[workers]\ncores = {cores}\n\n[xdp]\nrequire_native = true\n");
        let (local, remote) = (self.plan.encap_ip(i), self.plan.encap_ip(1 - i));
        let mut add = |text: String| write!(toml, "{text}").unwrap();
        add(format!("\n[[uplink]]\ninterface = \"u0\"\nencap_ips = [\"{local}\"]\n"));
        add(format!("\n[[peer]]\nname = \"far\"\nencap_ips = [\"{remote}\"]\n"));
        for vni in vnis {
            let mac = TENANT_MAC[1 - i];
            add(format!("[[peer.endpoint]]\nnetwork = \"net{vni}\"\nmac = \"{mac}\"\n"));
        }
        for (n, vni) in vnis.iter().enumerate() {
            let mac = TENANT_MAC[i];
            add(format!("\n[[network]]\nname = \"net{vni}\"\nvni = {vni}\npeers = [\"far\"]\n"));
            add(format!("\n[[port]]\ninterface = \"p{n}\"\nnetwork = \"net{vni}\"\nmacs = [\"{mac}\"]\n"));
            add(format!("{port_extra}\n"));
        }
        toml
    }

    /// The tenant of the first VNI on host `i`.
    pub fn tenant(&self, i: usize) -> &Netns {
        &self.hosts[i].tenants[0]
    }

    /// The forwarder of host `i`.
    pub fn forwarder(&self, i: usize) -> &Forwarder {
        self.hosts[i].forwarder.as_ref().expect("host without a forwarder")
    }

    /// Asserts that every frame is accounted for once traffic has come to rest, stops the forwarders, and asserts
    /// that they left nothing behind.
    #[track_caller]
    pub fn finish(mut self) {
        for host in &mut self.hosts {
            if let Some(forwarder) = host.forwarder.take() {
                forwarder.expect_conservation();
                forwarder.stop(&host.netns);
            }
        }
    }

    /// What the forwarders tell, for the message of a failed test.
    pub fn diagnosis(&self) -> String {
        let told = |(i, host): (usize, &Host)| {
            let text = host.forwarder.as_ref().map(Forwarder::diagnosis).unwrap_or_default();
            format!("-- flowrail on host {i}\n{text}")
        };
        self.hosts.iter().enumerate().map(told).collect()
    }

    /// Waits until `host`'s tenant reaches the other one, which also resolves every neighbor on the way.
    #[track_caller]
    pub fn expect_reachable(&self, host: usize) -> Output {
        let mut last = None;
        let ping = format!("ping -c 1 -W 1 {}", TENANT_IP[1 - host]);
        eventually("tenants reach each other", Duration::from_secs(5), || {
            let output = self.tenant(host).attempt(Duration::from_secs(2), &ping);
            let done = output.success();
            last = Some(output);
            done
        });
        last.unwrap()
    }
}
