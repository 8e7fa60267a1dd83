//! What one configuration changes in another, by names: lines for people, and the list of what cannot change while
//! flowrail runs. Counts where there may be millions.

mod things;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;

use super::config::{Config, Port, PortRole, Tenant, Uplink};
use crate::ids::PortId;
use crate::wire::ethernet::Mac;
use things::{Names, counts, optional, uplink_name, value};

/// Most lines of a report; the rest is counted.
const MAX_LINES: usize = 1000;

/// The difference between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// A line for each thing that is there (`+`), gone (`-`) or different (`~`).
    pub changes: Vec<String>,
    /// What would have to change that cannot while flowrail runs.
    pub refused: Vec<String>,
}

impl Diff {
    /// Compares. Ports that both have are at the same places, see [`Config::number_ports_as`].
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let mut diff = Self { changes: Vec::new(), refused: refused(old, new) };
        let names = Names::new(old, new);
        diff.settings(old, new);
        let none = |_: &Tenant| String::new();
        diff.named("tenant", &old.tenants, &new.tenants, |t| &t.name, none, |a, b| names.tenant(a, b));
        let (a, b) = (&old.networks, &new.networks);
        diff.named("network", a, b, |n| &n.name, things::network, |a, b| names.network(a, b));
        let none = |_: &Port| String::new();
        let open = |config: &Config| config.ports.iter().filter(|p| p.is_open()).cloned().collect::<Vec<_>>();
        diff.named("port", &open(old), &open(new), |p| &p.name, none, |a, b| names.port(a, b));
        diff.named("peer", &old.peers, &new.peers, |p| &p.name, things::peer, |a, b| names.peer(a, b));
        diff.static_neighbors(old, new);
        // Whatever it is, it is not lost: numbers that the order gives, or something that no line describes.
        if diff.changes.is_empty() && old != new {
            diff.changes.push("~ the order of the file".to_owned());
        }
        let count = diff.changes.len();
        if count > MAX_LINES {
            diff.changes.truncate(MAX_LINES);
            diff.changes.push(format!("and {} more changes", count - MAX_LINES));
        }
        diff
    }

    /// Whether both are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.refused.is_empty()
    }

    fn settings(&mut self, old: &Config, new: &Config) {
        let (a, b) = (&old.vxlan, &new.vxlan);
        let vxlan = [
            value("udp6_zero_checksum", &a.udp6_zero_checksum, &b.udp6_zero_checksum),
            value("unknown_vtep", &a.unknown_vtep, &b.unknown_vtep),
            value("encap_dscp", &a.encap_dscp, &b.encap_dscp),
            value("decap_dscp", &a.decap_dscp, &b.decap_dscp),
        ];
        self.changed("vxlan", vxlan);
        let (a, b) = (old.routing.icmp_unreachable, new.routing.icmp_unreachable);
        self.changed("routing", [value("icmp_unreachable", &a, &b)]);
        let plan = (old.address_plan != new.address_plan).then(|| "another pattern".to_owned());
        self.changed("address_plan", [plan]);
        let pairs = old.uplinks.iter().zip(&new.uplinks);
        for (a, b) in pairs.filter(|(a, b)| a.name == b.name) {
            let changes = [optional("mac", a.mac, b.mac), optional("mtu", a.mtu, b.mtu)];
            self.changed(&format!("uplink {}", a.name), changes);
        }
    }

    fn changed(&mut self, what: &str, changes: impl IntoIterator<Item = Option<String>>) {
        let changes: Vec<String> = changes.into_iter().flatten().collect();
        if !changes.is_empty() {
            self.changes.push(format!("~ {what}: {}", changes.join(", ")));
        }
    }

    /// Compares two lists of things with names.
    fn named<T>(
        &mut self,
        kind: &str,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> &String,
        summary: impl Fn(&T) -> String,
        changes: impl Fn(&T, &T) -> Vec<String>,
    ) {
        let before: HashMap<&String, &T> = old.iter().map(|thing| (name(thing), thing)).collect();
        let after: HashMap<&String, &T> = new.iter().map(|thing| (name(thing), thing)).collect();
        for thing in new.iter().filter(|thing| !before.contains_key(name(thing))) {
            self.changes.push(format!("+ {kind} {}{}", name(thing), summary(thing)));
        }
        for thing in old.iter().filter(|thing| !after.contains_key(name(thing))) {
            self.changes.push(format!("- {kind} {}{}", name(thing), summary(thing)));
        }
        for thing in new {
            if let Some(was) = before.get(name(thing)) {
                self.changed(&format!("{kind} {}", name(thing)), changes(was, thing).into_iter().map(Some));
            }
        }
    }

    fn static_neighbors(&mut self, old: &Config, new: &Config) {
        let by_name = |config: &Config| -> HashMap<(String, IpAddr), Mac> {
            let all = config.static_neighbors.iter();
            all.map(|n| ((uplink_name(config, n.uplink).to_owned(), n.ip), n.mac)).collect()
        };
        let (before, after) = (by_name(old), by_name(new));
        let added = after.keys().filter(|key| !before.contains_key(*key)).count();
        let removed = before.keys().filter(|key| !after.contains_key(*key)).count();
        let other = after.iter().filter(|(key, mac)| before.get(*key).is_some_and(|was| was != *mac)).count();
        self.changed("static neighbors", [counts(added, removed, other, "")]);
    }
}

/// Access ports that are open in the second configuration and not in the first. Both have their ports in one order.
#[must_use]
pub fn opened(old: &Config, new: &Config) -> Vec<PortId> {
    let was_open = |index: usize| old.ports.get(index).is_some_and(Port::is_open);
    let ports = new.access_ports().enumerate();
    ports.filter(|(index, (_, port))| port.is_open() && !was_open(*index)).map(|(_, (id, _))| id).collect()
}

/// What cannot change while flowrail runs.
fn refused(old: &Config, new: &Config) -> Vec<String> {
    let mut list = Vec::new();
    let mut must_stay = |same: bool, what: String| {
        if !same {
            list.push(what);
        }
    };
    must_stay(old.workers == new.workers, "[workers]".to_owned());
    must_stay(old.xdp == new.xdp, "[xdp]".to_owned());
    must_stay(old.neighbors == new.neighbors, "[neighbors]".to_owned());
    must_stay(old.control == new.control, "[control] socket".to_owned());
    let uplinks = |config: &Config| config.uplinks.iter().map(|u| u.name.clone()).collect::<Vec<_>>();
    let (before, after) = (uplinks(old), uplinks(new));
    must_stay(before == after, format!("uplinks {} → {}", before.join(", "), after.join(", ")));
    for (a, b) in old.uplinks.iter().zip(&new.uplinks).filter(|(a, b)| a.name == b.name) {
        for key in fixed_in_uplink(a, b) {
            must_stay(false, format!("uplink {}: {key}", a.name));
        }
    }
    for (was, port) in old.ports.iter().zip(&new.ports).filter(|(was, port)| was.is_open() && port.is_open())
    {
        for key in fixed_in_port(was, port) {
            must_stay(false, format!("port {}: {key}", port.name));
        }
    }
    // The steering program of an uplink knows whether it has a native port.
    let native = |config: &Config| {
        let ports = config.ports.iter().filter(|port| matches!(port.role, PortRole::Native(_)));
        ports.map(|port| port.name.clone()).collect::<Vec<_>>()
    };
    let (before, after) = (native(old), native(new));
    must_stay(before == after, format!("native ports {} → {}", before.join(", "), after.join(", ")));
    list
}

fn fixed_in_uplink(a: &Uplink, b: &Uplink) -> Vec<&'static str> {
    let differs = [
        (a.interface != b.interface, "interface"),
        (a.encap_ips != b.encap_ips, "encap_ips"),
        (a.vlan != b.vlan, "vlan"),
    ];
    differs.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key).collect()
}

fn fixed_in_port(a: &Port, b: &Port) -> Vec<&'static str> {
    let native = |port: &Port| match &port.role {
        PortRole::Native(uplink) => Some(*uplink),
        _ => None,
    };
    let differs = [
        (a.interface != b.interface, "interface"),
        (a.steer != b.steer, "steer"),
        (native(a) != native(b), "native"),
    ];
    differs.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key).collect()
}
