//! A small host for checks: two networks, four peers, one uplink. Everything that changes a packet's way is a choice, so
//! that two bytes of fuzz input reach every rule. Addresses are those of `tests/corpus`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use flowrail::ids::{NetworkId, PortId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::network::{Network, UnknownUnicast};
use flowrail::tables::snapshot::{DecapDscp, EncapDscp, Port, Role, Settings, Snapshot};
use flowrail::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use flowrail::wire::ecn::Dscp;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;

pub const UPLINK: PortId = PortId(0);
/// Two ports of the blue network, one of the red one, and one that passes RoCEv2 without a tunnel.
pub const BLUE: PortId = PortId(1);
pub const BLUE_TOO: PortId = PortId(2);
pub const RED: PortId = PortId(3);
pub const NATIVE: PortId = PortId(4);
pub const PORTS: u16 = 5;

pub const BLUE_VNI: u32 = 100;
pub const RED_VNI: u32 = 200;

/// Length of the longest packet that access ports take.
pub const ACCESS_MTU: u16 = 9000;

/// What `encap_dscp` sets where a number is configured.
pub const SET_DSCP: u8 = 46;

/// The choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Endpoints are reached over IPv6.
    pub v6: bool,
    /// The underlay is tagged.
    pub vlan: Option<u16>,
    /// Underlay MTU.
    pub mtu: u16,
    /// There is a port for RoCEv2 without a tunnel.
    pub native: bool,
    /// Unknown unicast is flooded.
    pub flood: bool,
    pub accept_udp6_zero_checksum: bool,
    pub accept_unknown_vtep: bool,
    pub set_dscp: bool,
    pub uniform: bool,
}

impl Site {
    /// The choices that two bytes stand for.
    pub fn from_bits(bits: u16) -> Self {
        let bit = |n: u16| bits >> n & 1 != 0;
        Self {
            v6: bit(0),
            vlan: bit(1).then_some(7),
            mtu: if bit(8) { 1500 } else { 9214 },
            native: bit(3),
            flood: bit(2),
            accept_udp6_zero_checksum: bit(4),
            accept_unknown_vtep: bit(5),
            set_dscp: bit(6),
            uniform: bit(7),
        }
    }

    /// Length of the outer headers that this host pushes.
    pub fn outer_len(&self) -> usize {
        50 + if self.v6 { 20 } else { 0 } + if self.vlan.is_some() { 4 } else { 0 }
    }

    /// Longest inner frame that fits the underlay.
    pub fn max_inner_len(&self) -> usize {
        usize::from(self.mtu) - if self.v6 { 56 } else { 36 }
    }

    /// Which network a port is in.
    pub fn vni(port: PortId) -> Option<u32> {
        match port {
            BLUE | BLUE_TOO => Some(BLUE_VNI),
            RED => Some(RED_VNI),
            _ => None,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            accept_udp6_zero_checksum: self.accept_udp6_zero_checksum,
            accept_unknown_vtep: self.accept_unknown_vtep,
            encap_dscp: if self.set_dscp {
                EncapDscp::Set(Dscp::new(SET_DSCP).unwrap())
            } else {
                EncapDscp::Copy
            },
            decap_dscp: if self.uniform { DecapDscp::Uniform } else { DecapDscp::Pipe },
            icmp_unreachable: true,
        }
    }

    fn unknown_unicast(&self) -> UnknownUnicast {
        if self.flood { UnknownUnicast::Flood } else { UnknownUnicast::Drop }
    }

    /// Tables of this host, which is 192.0.2.1 and 2001:db8::1.
    pub fn tables(&self) -> Rc<Snapshot> {
        self.cached(1, Self::own_tables)
    }

    /// Tables of a peer, where every MAC that this host has behind a peer is behind an access port of any length.
    pub fn tables_of_peer(&self, host: u8) -> Rc<Snapshot> {
        self.cached(host, |site| site.peer_tables(host))
    }

    /// Building tables takes longer than judging a packet by them.
    fn cached(&self, host: u8, build: impl Fn(&Self) -> Snapshot) -> Rc<Snapshot> {
        thread_local!(static BUILT: RefCell<HashMap<(Site, u8), Rc<Snapshot>>> = RefCell::default());
        BUILT.with_borrow_mut(|built| {
            Rc::clone(built.entry((*self, host)).or_insert_with(|| build(self).into()))
        })
    }

    fn own_tables(&self) -> Snapshot {
        let mut vteps = VtepTable::default();
        let mut ids = |host: u8| [ip4(host), ip6(host)].map(|ip| vteps.insert(self.row(1, host, ip)));
        // Peer 4's next hop has no MAC; peer 5 has no path at all.
        let [two, three, four, five] = [2, 3, 4, 5].map(|host| ids(host)[usize::from(self.v6)]);
        let blue = Network::new(
            vni(BLUE_VNI),
            fdb(&[
                (0x01, Dest::Port(BLUE)),
                (0x11, Dest::Port(BLUE_TOO)),
                (0x02, Dest::Vtep(two)),
                (0x03, Dest::Vtep(three)),
                (0x04, Dest::Vtep(four)),
                (0x05, Dest::Vtep(five)),
            ]),
            self.unknown_unicast(),
            &[BLUE, BLUE_TOO],
            &[two, three, four],
            &[two, three, four],
        );
        let red = Network::new(
            vni(RED_VNI),
            fdb(&[(0x21, Dest::Port(RED)), (0x22, Dest::Vtep(two))]),
            self.unknown_unicast(),
            &[RED],
            &[two],
            &[two],
        );
        self.snapshot(1, vteps, [blue, red])
    }

    fn peer_tables(&self, host: u8) -> Snapshot {
        let mut vteps = VtepTable::default();
        let sources: Vec<VtepId> =
            [ip4(1), ip6(1)].map(|ip| vteps.insert(self.row(host, 1, ip))).into_iter().collect();
        let network = |number, ports: &[PortId], macs: &[u8]| {
            let entries: Vec<_> = macs.iter().map(|mac| (*mac, Dest::Port(ports[0]))).collect();
            Network::new(vni(number), fdb(&entries), UnknownUnicast::Flood, ports, &sources, &sources)
        };
        let blue = network(BLUE_VNI, &[BLUE, BLUE_TOO], &[0x02, 0x03, 0x04]);
        let red = network(RED_VNI, &[RED], &[0x22]);
        self.snapshot(host, vteps, [blue, red])
    }

    fn snapshot(&self, host: u8, vteps: VtepTable, networks: [Network; 2]) -> Snapshot {
        let native = self.native.then_some(NATIVE);
        let port = |role| Port { role, mtu: if host == 1 { ACCESS_MTU } else { u16::MAX }, guard: None };
        let mut ports = vec![
            Port { role: Role::Uplink { vlan: self.vlan, native }, mtu: self.mtu, guard: None },
            port(Role::Access(NetworkId(0))),
            port(Role::Access(NetworkId(0))),
            port(Role::Access(NetworkId(1))),
        ];
        ports.extend(native.map(|_| port(Role::Native(UPLINK))));
        let mut snapshot = Snapshot::new(self.settings(), ports, &[ip4(host), ip6(host)], vteps);
        for network in networks {
            snapshot.push_network(network);
        }
        snapshot
    }

    /// How `from` reaches `to`.
    fn row(&self, from: u8, to: u8, ip: IpAddr) -> VtepRow {
        match to {
            4 => VtepRow::unusable(ip, NextHop::Unresolved),
            5 => VtepRow::unusable(ip, NextHop::NoPath),
            _ => VtepRow::resolved(&OuterSpec {
                uplink: UPLINK,
                src_mac: Mac([2, 0, 0, 0, from, from]),
                dst_mac: Mac([2, 0, 0, 0, to, to]),
                vlan: self.vlan,
                src: if ip.is_ipv4() { ip4(from) } else { ip6(from) },
                dst: ip,
                mtu: self.mtu,
            })
            .unwrap(),
        }
    }
}

/// MAC of an endpoint.
pub fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0x0a, last])
}

pub fn ip4(host: u8) -> IpAddr {
    [192, 0, 2, host].into()
}

pub fn ip6(host: u8) -> IpAddr {
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)].into()
}

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

fn fdb(entries: &[(u8, Dest)]) -> Fdb {
    let mut fdb = Fdb::with_capacity(entries.len());
    for (last, dest) in entries {
        fdb.insert(mac(*last), *dest);
    }
    fdb
}
