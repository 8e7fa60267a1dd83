//! What is different in one thing of a configuration, in words.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::net::IpAddr;

use crate::control::config::{
    Config, Endpoint, Group, Network, Peer, PeerId, Port, PortRole, RouteTarget, Tenant, TenantId, UplinkId,
    VlanMember,
};
use crate::ids::{NetworkId, PortId};
use crate::wire::ethernet::Mac;

/// Two configurations, and what their numbers stand for.
pub(super) struct Names<'c> {
    old: &'c Config,
    new: &'c Config,
    /// Numbers of networks in the new one.
    by_name: HashMap<&'c str, NetworkId>,
    /// Networks have the same numbers in both.
    same_numbers: bool,
}

/// Behind the name of a network that comes or goes.
pub(super) fn network(network: &Network) -> String {
    format!(" (VNI {})", network.vni)
}

/// Behind the name of a peer that comes or goes.
pub(super) fn peer(peer: &Peer) -> String {
    let count = peer.endpoints.len();
    format!(" ({count} endpoint{})", if count == 1 { "" } else { "s" })
}

impl<'c> Names<'c> {
    pub(super) fn new(old: &'c Config, new: &'c Config) -> Self {
        let by_name = (0..).map(NetworkId).zip(&new.networks).map(|(id, n)| (n.name.as_str(), id));
        let names = |config: &'c Config| config.networks.iter().map(|network| &network.name);
        Self { old, new, by_name: by_name.collect(), same_numbers: names(old).eq(names(new)) }
    }

    pub(super) fn tenant(&self, a: &Tenant, b: &Tenant) -> Vec<String> {
        let changes = [
            optional("l3vni", a.l3vni, b.l3vni),
            optional("router_mac", a.router_mac, b.router_mac),
            list("peers", &peer_names(self.old, &a.peers), &peer_names(self.new, &b.peers)),
            value("default", &a.default, &b.default),
            set("routes", routes(self.old, a), routes(self.new, b)),
            rules(a, b),
        ];
        changes.into_iter().flatten().collect()
    }

    pub(super) fn network(&self, a: &Network, b: &Network) -> Vec<String> {
        let tenant = |config: &'c Config, network: &Network| network.tenant.map(|id| tenant_name(config, id));
        let gateway = |network: &Network| -> Vec<String> {
            let gateway = network.gateway.as_ref();
            let addresses = gateway.into_iter().flat_map(|gateway| &gateway.addresses);
            addresses.map(ToString::to_string).collect()
        };
        let gateway_mac = |network: &Network| network.gateway.as_ref().map(|gateway| gateway.mac);
        let changes = [
            shown("VNI", &a.vni, &b.vni),
            optional("tenant", tenant(self.old, a), tenant(self.new, b)),
            list("gateway addresses", &gateway(a), &gateway(b)),
            optional("gateway_mac", gateway_mac(a), gateway_mac(b)),
            list("peers", &peer_names(self.old, &a.peers), &peer_names(self.new, &b.peers)),
            value("unknown_unicast", &a.unknown_unicast, &b.unknown_unicast),
            optional("learning", learning(a), learning(b)),
            value("snooping", &a.snooping, &b.snooping),
            set("groups", groups(self.old, a), groups(self.new, b)),
        ];
        changes.into_iter().flatten().collect()
    }

    pub(super) fn port(&self, a: &Port, b: &Port) -> Vec<String> {
        let changes = [
            shown("network", &networks(self.old, a), &networks(self.new, b)),
            list("macs", &a.macs, &b.macs),
            list("ips", &a.ips, &b.ips),
            value("spoofing", &a.spoofing, &b.spoofing),
            optional("mtu", a.mtu, b.mtu),
        ];
        changes.into_iter().flatten().collect()
    }

    pub(super) fn peer(&self, a: &Peer, b: &Peer) -> Vec<String> {
        // There may be millions of endpoints, and most changes are none of theirs.
        if self.same_numbers && a == b {
            return Vec::new();
        }
        let (added, removed, other) = self.endpoints(a, b);
        let changes = [
            list("encap_ips", &a.encap_ips, &b.encap_ips),
            optional("router_mac", a.router_mac, b.router_mac),
            counts(added, removed, other, " endpoints"),
        ];
        changes.into_iter().flatten().collect()
    }

    /// How many endpoints are new, gone, and pinned to another encap IP or with other addresses.
    fn endpoints(&self, a: &Peer, b: &Peer) -> (usize, usize, usize) {
        let before = keyed(a, |id| self.renumbered(id));
        let after = keyed(b, |id| id);
        let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
        let (mut added, mut removed, mut other) = (0, 0, 0);
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => return (added, removed, other),
                (Some(was), Some(is)) if was.key == is.key => {
                    other += usize::from(was != is);
                    old.next();
                    new.next();
                }
                (Some(was), Some(is)) if was.key > is.key => {
                    added += 1;
                    new.next();
                }
                (Some(_), _) => {
                    removed += 1;
                    old.next();
                }
                (None, Some(_)) => {
                    added += 1;
                    new.next();
                }
            }
        }
    }

    /// The new number of an old network. One that is gone has none that a new endpoint has.
    fn renumbered(&self, id: NetworkId) -> NetworkId {
        let name = self.old.network(id).map(|network| network.name.as_str());
        name.and_then(|name| self.by_name.get(name)).copied().unwrap_or(NetworkId(u32::MAX))
    }
}

/// An endpoint as it compares.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keyed {
    key: (NetworkId, Mac),
    pinned: Option<IpAddr>,
    addresses: Vec<IpAddr>,
}

fn keyed(peer: &Peer, network: impl Fn(NetworkId) -> NetworkId) -> Vec<Keyed> {
    let one = |endpoint: &Endpoint| Keyed {
        key: (network(endpoint.network), endpoint.mac),
        pinned: peer.pinned_encap_ip(endpoint),
        addresses: Vec::new(),
    };
    let mut all: Vec<Keyed> = peer.endpoints.iter().map(one).collect();
    let v4 = peer.addresses_v4.iter().map(|&(index, ip)| (index, IpAddr::V4(ip)));
    let v6 = peer.addresses_v6.iter().map(|&(index, ip)| (index, IpAddr::V6(ip)));
    for (index, ip) in v4.chain(v6) {
        if let Some(endpoint) = all.get_mut(index as usize) {
            endpoint.addresses.push(ip);
        }
    }
    all.sort_unstable();
    all
}

fn routes(config: &Config, tenant: &Tenant) -> Vec<String> {
    let target = |target: RouteTarget| match target {
        RouteTarget::Peer { peer, encap_ip } => {
            let peer = config.peer(peer);
            let ip = peer.and_then(|peer| peer.encap_ips.get(usize::from(encap_ip)));
            format!("{:?} {ip:?}", peer.map(|peer| &peer.name))
        }
        RouteTarget::Leak(to) => format!("leak {}", tenant_name(config, to)),
        RouteTarget::Blackhole => "blackhole".to_owned(),
    };
    tenant.routes.iter().map(|route| format!("{} {}", route.prefix, target(route.target))).collect()
}

/// There may be thousands, and their order counts.
fn rules(a: &Tenant, b: &Tenant) -> Option<String> {
    if a.rules == b.rules {
        return None;
    }
    let text = |tenant: &Tenant| tenant.rules.iter().map(|rule| format!("{rule:?}")).collect();
    set("rules", text(a), text(b)).or_else(|| Some("rules in another order".to_owned()))
}

fn learning(network: &Network) -> Option<String> {
    let learning = network.learning.as_ref()?;
    Some(format!("{} stations for {} s", learning.mac_limit, learning.ageing.as_secs_f64()))
}

fn groups(config: &Config, network: &Network) -> Vec<String> {
    let port = |id: &PortId| config.port_names().nth(usize::from(id.0)).unwrap_or("?");
    let one = |group: &Group| {
        let ports: Vec<&str> = group.ports.iter().map(port).collect();
        format!("{} {ports:?} {:?}", group.address, peer_names(config, &group.peers))
    };
    network.groups.iter().map(one).collect()
}

/// The networks of a port, with the tags of a trunk.
fn networks(config: &Config, port: &Port) -> String {
    let name = |id: NetworkId| config.network(id).map_or("?", |network| &network.name);
    match &port.role {
        PortRole::Network(id) => name(*id).to_owned(),
        PortRole::Trunk(members) => {
            let one = |member: &VlanMember| match member.vlan {
                Some(vlan) => format!("{} (VLAN {})", name(member.network), vlan.get()),
                None => name(member.network).to_owned(),
            };
            members.iter().map(one).collect::<Vec<_>>().join(" and ")
        }
        PortRole::Native(_) | PortRole::Closed => "none".to_owned(),
    }
}

fn peer_names(config: &Config, peers: &[PeerId]) -> Vec<String> {
    peers.iter().map(|peer| config.peer(*peer).map_or_else(String::new, |peer| peer.name.clone())).collect()
}

fn tenant_name(config: &Config, id: TenantId) -> &str {
    config.tenant(id).map_or("?", |tenant| &tenant.name)
}

pub(super) fn uplink_name(config: &Config, id: UplinkId) -> &str {
    config.uplinks.get(usize::from(id.0)).map_or("?", |uplink| &uplink.name)
}

fn shown<T: Display + PartialEq>(key: &str, old: &T, new: &T) -> Option<String> {
    (old != new).then(|| format!("{key} {old} → {new}"))
}

pub(super) fn value<T: Debug + PartialEq>(key: &str, old: &T, new: &T) -> Option<String> {
    let text = |value: &T| format!("{value:?}").to_lowercase();
    (old != new).then(|| format!("{key} {} → {}", text(old), text(new)))
}

pub(super) fn optional<T: Display + PartialEq>(key: &str, old: Option<T>, new: Option<T>) -> Option<String> {
    let text = |value: Option<T>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let (old, new) = (text(old), text(new));
    shown(key, &old, &new)
}

/// A list whose order counts.
fn list<T: PartialEq>(key: &str, old: &[T], new: &[T]) -> Option<String> {
    if old == new {
        return None;
    }
    let added = new.iter().filter(|value| !old.contains(value)).count();
    let removed = old.iter().filter(|value| !new.contains(value)).count();
    let text = counts(added, removed, 0, &format!(" {key}"));
    text.or_else(|| Some(format!("{key} in another order")))
}

/// A list whose order does not count.
fn set(key: &str, mut old: Vec<String>, mut new: Vec<String>) -> Option<String> {
    old.sort_unstable();
    new.sort_unstable();
    let missing =
        |from: &[String], of: &[String]| of.iter().filter(|v| from.binary_search(v).is_err()).count();
    counts(missing(&old, &new), missing(&new, &old), 0, &format!(" {key}"))
}

pub(super) fn counts(added: usize, removed: usize, other: usize, what: &str) -> Option<String> {
    let parts = [(added, '+'), (removed, '−'), (other, '~')];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, sign)| format!("{sign}{count}")).collect();
    (!parts.is_empty()).then(|| format!("{}{what}", parts.join(" ")))
}
