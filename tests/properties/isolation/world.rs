//! A host of three tenants that have all in common that tenants can have: subnets, gateway addresses and MACs, VLAN tags,
//! MACs of stations if they like, and remote VTEPs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use flowrail::ids::{NetworkId, PortId, RuleId, TrunkId, VrfId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::fib::{Fib, Prefix};
use flowrail::tables::guard::Guard;
use flowrail::tables::network::{Gateway, Network, UnknownUnicast};
use flowrail::tables::policy::{Action, Policy, Rule};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::trunk::Trunk;
use flowrail::tables::vrf::{Route, Vrf};
use flowrail::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;
use proptest::prelude::*;

pub const TENANTS: u8 = 3;
pub const UPLINK: PortId = PortId(0);
pub const NATIVE: PortId = PortId(10);
pub const GATEWAY: Mac = Mac([2, 0, 0x5e, 0, 1, 1]);
/// Remote VTEPs, 192.0.2.2 and up; the last belongs to no tenant.
pub const VTEPS: u8 = 5;
/// The VTEP whose next hop has no MAC.
const UNRESOLVED: u8 = 3;

/// A tenant's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    None,
    Some,
    DenyAll,
}

#[derive(Clone, Debug)]
pub struct Tenant {
    pub vrf: bool,
    pub flood: bool,
    pub learning: bool,
    pub guards: bool,
    pub rules: Rules,
    /// Remote VTEPs that may send, a bit for each.
    pub members: u8,
    /// Tenants that this one may send to.
    pub leaks: [bool; TENANTS as usize],
    /// Untagged frames of the trunk are in the first network.
    pub untagged: bool,
    /// A multicast group has receivers of its own.
    pub group: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub tenants: Vec<Tenant>,
    /// Stations of all tenants have the same MACs.
    pub same_macs: bool,
    /// There is a port for RoCEv2 without a tunnel.
    pub native: bool,
}

prop_compose! {
    fn tenant()(
        (vrf, flood, learning, guards) in (prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), any::<bool>()),
        rules in prop::sample::select(vec![Rules::None, Rules::None, Rules::Some, Rules::DenyAll]),
        members in 0u8..16,
        leaks in any::<[bool; TENANTS as usize]>(),
        (untagged, group) in any::<(bool, bool)>(),
    ) -> Tenant {
        Tenant { vrf, flood, learning, guards, rules, members, leaks, untagged, group }
    }
}

pub fn world() -> impl Strategy<Value = World> {
    let tenants = prop::collection::vec(tenant(), usize::from(TENANTS));
    (tenants, any::<bool>(), any::<bool>()).prop_map(|(tenants, same_macs, native)| World {
        tenants,
        same_macs,
        native,
    })
}

/// A tenant's access port in its network 0 or 1; its trunk is number 2.
pub fn port(tenant: u8, number: u8) -> PortId {
    PortId(u16::from(1 + 3 * tenant + number))
}

pub fn network(tenant: u8, number: u8) -> NetworkId {
    NetworkId(u32::from(2 * tenant + number))
}

pub fn vni(tenant: u8, number: u8) -> u32 {
    100 * (u32::from(tenant) + 1) + u32::from(number)
}

pub fn l3vni(tenant: u8) -> u32 {
    1000 + u32::from(tenant)
}

pub fn router_mac(tenant: u8) -> Mac {
    Mac([2, 0, 0, 1, tenant, 1])
}

/// Stations 1 and 2 are behind the access ports of networks 0 and 1, 3 and 4 behind the trunk, 5 and 6 remote.
pub fn network_of_station(station: u8) -> u8 {
    (station + 1) % 2
}

pub fn station_v4(station: u8) -> Ipv4Addr {
    [10, 0, network_of_station(station), station].into()
}

pub fn station_v6(station: u8) -> Ipv6Addr {
    [0x2001, 0xdb8, 0, network_of_station(station).into(), 0, 0, 0, station.into()].into()
}

/// An address by which others reach a tenant through a leak.
pub fn leaked(tenant: u8, last: u8) -> Ipv4Addr {
    [10, 9, tenant, last].into()
}

pub fn encap_ip(host: u8) -> Ipv4Addr {
    [192, 0, 2, host].into()
}

fn vtep_row(index: u8, resolved: bool) -> VtepRow {
    let remote = encap_ip(2 + index).into();
    if !resolved && index == UNRESOLVED {
        return VtepRow::unusable(remote, NextHop::Unresolved);
    }
    let (src_mac, dst_mac) = (Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 2, index]));
    let src = encap_ip(1).into();
    VtepRow::resolved(&OuterSpec {
        uplink: UPLINK,
        src_mac,
        dst_mac,
        vlan: None,
        src,
        dst: remote,
        mtu: 9214,
    })
    .unwrap()
}

fn host_prefix(ip: impl Into<IpAddr>) -> Prefix {
    let ip = ip.into();
    Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }).unwrap()
}

impl World {
    pub fn mac(&self, tenant: u8, station: u8) -> Mac {
        Mac([2, 0, 0, 2, if self.same_macs { 0 } else { tenant }, station])
    }

    /// Whose port it is.
    pub fn owner_of_port(port: PortId) -> Option<u8> {
        let number = u8::try_from(port.0).ok()?.checked_sub(1)? / 3;
        (number < TENANTS).then_some(number)
    }

    /// Whose VNI it is.
    pub fn owner_of_vni(&self, number: u32) -> Option<u8> {
        (0..TENANTS).find(|t| {
            let routed = self.tenants[usize::from(*t)].vrf && number == l3vni(*t);
            routed || number == vni(*t, 0) || number == vni(*t, 1)
        })
    }

    /// The VTEPs of a tenant: those that may send its VNIs.
    pub fn vteps(&self, tenant: u8) -> Vec<VtepId> {
        let members = self.tenants[usize::from(tenant)].members;
        (0..VTEPS).filter(|index| members >> index & 1 == 1).map(|index| VtepId(index.into())).collect()
    }

    pub fn is_member(&self, tenant: u8, sender: IpAddr) -> bool {
        self.vteps(tenant).iter().any(|vtep| IpAddr::from(encap_ip(2 + vtep.0 as u8)) == sender)
    }

    /// Whether `from` may send to `to`.
    pub fn allows(&self, from: u8, to: u8) -> bool {
        let (sender, receiver) = (&self.tenants[usize::from(from)], &self.tenants[usize::from(to)]);
        let passes = |tenant: &Tenant| tenant.rules != Rules::DenyAll;
        from == to
            || sender.vrf
                && receiver.vrf
                && sender.leaks[usize::from(to)]
                && passes(sender)
                && passes(receiver)
    }

    /// The tables. `resolved`: every next hop has its MAC.
    pub fn tables(&self, resolved: bool) -> Snapshot {
        let mut vteps = VtepTable::default();
        for index in 0..VTEPS {
            vteps.insert(vtep_row(index, resolved));
        }
        let encap_ips = [encap_ip(1).into()];
        let trunks = (0..TENANTS).map(|t| self.trunk(t)).collect();
        let mut tables =
            Snapshot::new(Settings::default(), self.ports(), &encap_ips, vteps).with_trunks(trunks);
        for tenant in 0..TENANTS {
            for number in 0..2 {
                tables.push_network(self.network(tenant, number));
            }
        }
        for tenant in 0..TENANTS {
            tables.push_vrf(self.vrf(tenant));
        }
        tables
    }

    fn ports(&self) -> Vec<Port> {
        let native = self.native.then_some(NATIVE);
        let mut ports = vec![Port { role: Role::Uplink { vlan: None, native }, mtu: 9214, guard: None }];
        for tenant in 0..TENANTS {
            let guard = |stations: &[u8]| {
                let ips =
                    stations.iter().flat_map(|s| [station_v4(*s).into(), station_v6(*s).into()]).collect();
                let macs = stations.iter().map(|s| self.mac(tenant, *s)).collect();
                self.tenants[usize::from(tenant)].guards.then(|| Arc::new(Guard { macs, ips }))
            };
            let access = |number| Role::Access(network(tenant, number));
            ports.push(Port { role: access(0), mtu: 9000, guard: guard(&[1]) });
            ports.push(Port { role: access(1), mtu: 1500, guard: guard(&[2]) });
            ports.push(Port { role: Role::Trunk(TrunkId(tenant.into())), mtu: 9000, guard: guard(&[3, 4]) });
        }
        ports.extend(native.map(|_| Port { role: Role::Native(UPLINK), mtu: 9000, guard: None }));
        ports
    }

    fn trunk(&self, tenant: u8) -> Trunk {
        let first = (!self.tenants[usize::from(tenant)].untagged).then_some(10);
        Trunk::new([(first, network(tenant, 0)), (Some(20), network(tenant, 1))])
    }

    fn network(&self, tenant: u8, number: u8) -> Network {
        let spec = &self.tenants[usize::from(tenant)];
        let vteps = self.vteps(tenant);
        let mut fdb = Fdb::default();
        for station in (1..=6).filter(|station| network_of_station(*station) == number) {
            let dest = match station {
                1 | 2 => Some(Dest::Port(port(tenant, number))),
                3 | 4 => Some(Dest::Port(port(tenant, 2))),
                _ => vteps.first().map(|vtep| Dest::Vtep(*vtep)),
            };
            dest.map(|dest| fdb.insert(self.mac(tenant, station), dest));
        }
        let unknown = if spec.flood { UnknownUnicast::Flood } else { UnknownUnicast::Drop };
        let ports = [port(tenant, number), port(tenant, 2)];
        let vni = Vni::new(vni(tenant, number)).unwrap();
        let mut network = Network::new(vni, fdb, unknown, &ports, &vteps, &vteps);
        network.learning = spec.learning;
        network.policy = rules(spec.rules);
        if spec.group {
            Arc::make_mut(&mut network.flood).set_group([239, 1, 1, 1].into(), &ports[..1], &vteps);
        }
        if spec.vrf {
            network.vrf = Some(VrfId(tenant.into()));
            let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, number.into(), 0, 0, 0, 0xfe);
            let v4 = vec![[10, 0, number, 254].into()];
            network.gateway = Some(Arc::new(Gateway { mac: GATEWAY, v4, v6: vec![v6] }));
        }
        let neighbors = Arc::make_mut(&mut network.neighbors);
        for station in (1..=6).filter(|station| network_of_station(*station) == number) {
            neighbors.insert(station_v4(station).into(), self.mac(tenant, station));
            neighbors.insert(station_v6(station).into(), self.mac(tenant, station));
        }
        network
    }

    fn vrf(&self, tenant: u8) -> Vrf {
        let spec = &self.tenants[usize::from(tenant)];
        let vteps = self.vteps(tenant);
        Vrf {
            l3vni: spec.vrf.then(|| Vni::new(l3vni(tenant)).unwrap()),
            router_mac: router_mac(tenant),
            members: Arc::new(vteps.iter().copied().collect()),
            // Whose tenant does not route has no routes.
            fib: if spec.vrf { self.fib(tenant) } else { Fib::default() },
            policy: rules(spec.rules),
            own: [Some([10, 0, 0, 254].into()), None],
        }
    }

    fn fib(&self, tenant: u8) -> Fib {
        let spec = &self.tenants[usize::from(tenant)];
        let vteps = self.vteps(tenant);
        let remote = |fallback| match vteps.last() {
            Some(vtep) => Route::Vtep { vtep: *vtep, router_mac: Mac([2, 0, 0, 3, 0, 1]) },
            None => fallback,
        };
        let mut fib = Fib::default();
        for station in 1..=5 {
            let network = network(tenant, network_of_station(station));
            let route = Route::Host { network, mac: self.mac(tenant, station) };
            fib.insert(host_prefix(station_v4(station)), route);
            fib.insert(host_prefix(station_v6(station)), route);
        }
        fib.insert(host_prefix(station_v4(6)), remote(Route::Blackhole));
        fib.insert(host_prefix(station_v6(6)), remote(Route::NoRouterMac));
        for number in 0..2 {
            let network = network(tenant, number);
            let v4 = Prefix::new([10, 0, number, 0].into(), 24).unwrap();
            fib.insert(v4, Route::Connected(network));
            fib.insert(host_prefix([10, 0, number, 254]), Route::Gateway(network));
        }
        // What leaks to others, and what others leak to this one. The third address goes on to yet another tenant.
        let here = Route::Host { network: network(tenant, 0), mac: self.mac(tenant, 1) };
        fib.insert(host_prefix(leaked(tenant, 1)), here);
        fib.insert(host_prefix(leaked(tenant, 2)), remote(Route::Blackhole));
        fib.insert(host_prefix(leaked(tenant, 3)), Route::Leak(VrfId(u32::from((tenant + 1) % TENANTS))));
        for other in (0..TENANTS).filter(|other| *other != tenant && spec.leaks[usize::from(*other)]) {
            let all = Prefix::new(leaked(other, 0).into(), 24).unwrap();
            fib.insert(all, Route::Leak(VrfId(other.into())));
        }
        fib
    }
}

fn rules(rules: Rules) -> Option<Arc<Policy>> {
    let any = |action| Rule {
        action,
        src: Vec::new(),
        dst: Vec::new(),
        protocol: None,
        src_ports: Vec::new(),
        dst_ports: Vec::new(),
        roce_opcodes: Vec::new(),
        dest_qps: Vec::new(),
        dscps: Vec::new(),
    };
    let listed = match rules {
        Rules::None => return None,
        Rules::DenyAll => Vec::new(),
        Rules::Some => vec![
            Rule { protocol: Some(6), ..any(Action::Deny) },
            Rule { dst: vec![Prefix::new([10, 0, 1, 0].into(), 24).unwrap()], ..any(Action::Count) },
            any(Action::Allow),
        ],
    };
    Some(Arc::new(Policy::new((0..).map(RuleId).zip(listed).collect(), Action::Deny)))
}
