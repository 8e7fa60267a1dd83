//! What one configuration changes in another, by names: lines for people, and the list of what cannot change while
//! flowrail runs. Counts where there may be millions.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::net::IpAddr;

use super::config::{Config, Endpoint, Network, Peer, PeerId, Port, PortRole, Uplink, UplinkId};
use crate::ids::NetworkId;
use crate::wire::ethernet::Mac;

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
    /// Compares. The ports of both are in the same order, see [`align`].
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let mut diff = Self { changes: Vec::new(), refused: refused(old, new) };
        let names = Names { old: Index::of(old), new: Index::of(new) };
        diff.settings(old, new);
        diff.named(
            "network",
            &old.networks,
            &new.networks,
            |n| &n.name,
            network_summary,
            |a, b| network_changes(a, b, old, new),
        );
        let none = |_: &Port| String::new();
        diff.named("port", &old.ports, &new.ports, |p| &p.name, none, |a, b| port_changes(a, b, old, new));
        diff.named(
            "peer",
            &old.peers,
            &new.peers,
            |p| &p.name,
            peer_summary,
            |a, b| peer_changes(a, b, &names),
        );
        diff.static_neighbors(old, new);
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

/// Puts the ports of `new` in the order of `old`, so that ports keep their numbers. Does nothing when their names differ,
/// which [`Diff::refused`] tells.
pub fn align(old: &Config, new: &mut Config) {
    let order: HashMap<&str, usize> =
        (0..).zip(&old.ports).map(|(i, port)| (port.name.as_str(), i)).collect();
    let places: Option<Vec<usize>> =
        new.ports.iter().map(|port| order.get(port.name.as_str()).copied()).collect();
    if places.is_some_and(|places| places.len() == old.ports.len()) {
        new.sort_ports_by_key(|port| order.get(port.name.as_str()).copied());
    }
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
    let known: HashMap<&str, &Port> = old.ports.iter().map(|port| (port.name.as_str(), port)).collect();
    for port in &new.ports {
        match known.get(port.name.as_str()) {
            None => must_stay(false, format!("port {} added", port.name)),
            Some(was) => {
                for key in fixed_in_port(was, port) {
                    must_stay(false, format!("port {}: {key}", port.name));
                }
            }
        }
    }
    let left: HashMap<&str, ()> = new.ports.iter().map(|port| (port.name.as_str(), ())).collect();
    for port in old.ports.iter().filter(|port| !left.contains_key(port.name.as_str())) {
        must_stay(false, format!("port {} removed", port.name));
    }
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

fn network_summary(network: &Network) -> String {
    format!(" (VNI {})", network.vni)
}

fn network_changes(a: &Network, b: &Network, old: &Config, new: &Config) -> Vec<String> {
    let peers = |config: &Config, network: &Network| -> Vec<String> {
        network.peers.iter().map(|peer| peer_name(config, *peer).to_owned()).collect()
    };
    let changes = [
        shown("VNI", &a.vni, &b.vni),
        list("peers", &peers(old, a), &peers(new, b)),
        value("unknown_unicast", &a.unknown_unicast, &b.unknown_unicast),
    ];
    changes.into_iter().flatten().collect()
}

fn port_changes(a: &Port, b: &Port, old: &Config, new: &Config) -> Vec<String> {
    let network = |config: &Config, port: &Port| match &port.role {
        PortRole::Network(id) => network_name(config, *id).to_owned(),
        PortRole::Native(_) => "none".to_owned(),
        PortRole::Trunk(_) => "trunk".to_owned(),
    };
    let changes = [
        shown("network", &network(old, a), &network(new, b)),
        list("macs", &a.macs, &b.macs),
        optional("mtu", a.mtu, b.mtu),
    ];
    changes.into_iter().flatten().collect()
}

fn peer_summary(peer: &Peer) -> String {
    let count = peer.endpoints.len();
    format!(" ({count} endpoint{})", if count == 1 { "" } else { "s" })
}

fn peer_changes(a: &Peer, b: &Peer, names: &Names<'_>) -> Vec<String> {
    let (added, removed, other) = endpoint_changes(a, b, names);
    let changes =
        [list("encap_ips", &a.encap_ips, &b.encap_ips), counts(added, removed, other, " endpoints")];
    changes.into_iter().flatten().collect()
}

/// Networks of both configurations.
struct Names<'c> {
    old: Index<'c>,
    new: Index<'c>,
}

struct Index<'c> {
    networks: &'c [Network],
    by_name: HashMap<&'c str, NetworkId>,
}

impl<'c> Index<'c> {
    fn of(config: &'c Config) -> Self {
        let by_name = (0..).map(NetworkId).zip(&config.networks).map(|(id, n)| (n.name.as_str(), id));
        Self { networks: &config.networks, by_name: by_name.collect() }
    }
}

impl Names<'_> {
    /// The new number of an old network. One that is gone has none that a new endpoint has.
    fn renumbered(&self, id: NetworkId) -> NetworkId {
        let name = self.old.networks.get(id.0 as usize).map(|network| network.name.as_str());
        name.and_then(|name| self.new.by_name.get(name)).copied().unwrap_or(NetworkId(u32::MAX))
    }
}

/// How many endpoints are new, gone, and pinned to another encap IP or with other addresses.
fn endpoint_changes(a: &Peer, b: &Peer, names: &Names<'_>) -> (usize, usize, usize) {
    type Keyed = (NetworkId, Mac, Option<IpAddr>);
    let keyed = |peer: &Peer, id: &dyn Fn(NetworkId) -> NetworkId| -> Vec<Keyed> {
        let key = |e: &Endpoint| (id(e.network), e.mac, peer.pinned_encap_ip(e));
        let mut all: Vec<Keyed> = peer.endpoints.iter().map(key).collect();
        all.sort_unstable();
        all
    };
    let (before, after) = (keyed(a, &|id| names.renumbered(id)), keyed(b, &|id| id));
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    let (mut added, mut removed, mut other) = (0, 0, 0);
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return (added, removed, other),
            (Some(was), Some(is)) if (was.0, was.1) == (is.0, is.1) => {
                other += usize::from(was.2 != is.2);
                old.next();
                new.next();
            }
            (Some(was), Some(is)) if (was.0, was.1) > (is.0, is.1) => {
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

fn network_name(config: &Config, id: NetworkId) -> &str {
    config.networks.get(id.0 as usize).map_or("?", |network| &network.name)
}

fn peer_name(config: &Config, id: PeerId) -> &str {
    config.peers.get(id.0 as usize).map_or("?", |peer| &peer.name)
}

fn uplink_name(config: &Config, id: UplinkId) -> &str {
    config.uplinks.get(usize::from(id.0)).map_or("?", |uplink| &uplink.name)
}

fn shown<T: Display + PartialEq>(key: &str, old: &T, new: &T) -> Option<String> {
    (old != new).then(|| format!("{key} {old} → {new}"))
}

fn value<T: Debug + PartialEq>(key: &str, old: &T, new: &T) -> Option<String> {
    let text = |value: &T| format!("{value:?}").to_lowercase();
    (old != new).then(|| format!("{key} {} → {}", text(old), text(new)))
}

fn optional<T: Display + PartialEq>(key: &str, old: Option<T>, new: Option<T>) -> Option<String> {
    let text = |value: Option<T>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let (old, new) = (text(old), text(new));
    shown(key, &old, &new)
}

/// A list whose order counts.
fn list<T: PartialEq>(key: &str, old: &[T], new: &[T]) -> Option<String> {
    let added = new.iter().filter(|value| !old.contains(value)).count();
    let removed = old.iter().filter(|value| !new.contains(value)).count();
    let text = counts(added, removed, 0, &format!(" {key}"));
    text.or_else(|| (old != new).then(|| format!("{key} in another order")))
}

fn counts(added: usize, removed: usize, other: usize, what: &str) -> Option<String> {
    let parts = [(added, '+'), (removed, '−'), (other, '~')];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, sign)| format!("{sign}{count}")).collect();
    (!parts.is_empty()).then(|| format!("{}{what}", parts.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
[[uplink]]
interface = "u0"
encap_ips = ["10.0.0.1"]

[[peer]]
name = "h1"
encap_ips = ["10.0.0.2", "10.0.0.3"]
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0b:01"
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0b:02"

[[network]]
name = "red"
vni = 100
peers = ["h1"]

[[network]]
name = "blue"
vni = 200
peers = ["h1"]

[[port]]
interface = "gpu0"
network = "red"
macs = ["02:00:00:00:0a:01"]

[[port]]
interface = "gpu1"
network = "blue"
"#;

    fn config(text: &str) -> Config {
        Config::parse(text, "test").unwrap_or_else(|e| panic!("{e}"))
    }

    fn diff(changes: &[(&str, &str)]) -> Diff {
        let new = changes.iter().fold(BASE.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let (old, mut new) = (config(BASE), config(&new));
        align(&old, &mut new);
        Diff::between(&old, &new)
    }

    #[test]
    fn the_same_is_no_change_whatever_the_order() {
        assert!(diff(&[]).is_empty());
        let red = "[[network]]\nname = \"red\"\nvni = 100\npeers = [\"h1\"]\n";
        assert!(
            diff(&[
                (red, ""),
                ("[[port]]\ninterface = \"gpu1\"", &format!("{red}[[port]]\ninterface = \"gpu1\""))
            ])
            .is_empty()
        );
        let gpu1 = "[[port]]\ninterface = \"gpu1\"\nnetwork = \"blue\"\n";
        assert!(diff(&[(gpu1, ""), ("[[peer]]", &format!("{gpu1}[[peer]]"))]).is_empty());
    }

    #[test]
    fn a_port_that_moves_is_one_line() {
        let moved = diff(&[("\"gpu0\"\nnetwork = \"red\"", "\"gpu0\"\nnetwork = \"blue\"")]);
        assert_eq!(
            moved,
            Diff { changes: vec!["~ port gpu0: network red → blue".to_owned()], refused: vec![] }
        );
    }

    #[test]
    fn things_come_go_and_change_by_name() {
        let new = diff(&[
            ("name = \"blue\"\nvni = 200", "name = \"green\"\nvni = 201"),
            ("network = \"blue\"", "network = \"green\""),
            ("vni = 100\npeers = [\"h1\"]", "vni = 101\nunknown_unicast = \"flood\"\npeers = [\"h1\"]"),
        ]);
        assert_eq!(
            new.changes,
            [
                "+ network green (VNI 201)",
                "- network blue (VNI 200)",
                "~ network red: VNI 100 → 101, unknown_unicast drop → flood",
                "~ port gpu1: network blue → green",
            ]
        );
    }

    #[test]
    fn endpoints_are_counted() {
        let second = "[[peer.endpoint]]\nnetwork = \"red\"\nmac = \"02:00:00:00:0b:02\"\n";
        let three: String = (3..6)
            .map(|n| format!("[[peer.endpoint]]\nnetwork = \"blue\"\nmac = \"02:00:00:00:0b:0{n}\"\n"))
            .collect();
        assert_eq!(diff(&[(second, &three)]).changes, ["~ peer h1: +3 −1 endpoints"]);
        let pinned = format!("{second}encap_ip = \"10.0.0.3\"\n");
        assert_eq!(diff(&[(second, &pinned)]).changes, ["~ peer h1: ~1 endpoints"]);
    }

    #[test]
    fn a_network_that_moves_in_the_file_moves_no_endpoint() {
        let first = "[[network]]\nname = \"aaa\"\nvni = 5\n";
        assert_eq!(diff(&[("[[peer]]", &format!("{first}[[peer]]"))]).changes, ["+ network aaa (VNI 5)"]);
    }

    #[test]
    fn what_cannot_change_is_named() {
        let refused = diff(&[
            (
                "[[uplink]]",
                "[workers]\nbatch = 32\n[xdp]\nrequire_native = true\n[control]\nsocket = \"/x\"\n[[uplink]]",
            ),
            ("encap_ips = [\"10.0.0.1\"]", "encap_ips = [\"10.0.0.9\"]\nvlan = 5"),
            ("interface = \"gpu0\"", "name = \"gpu0\"\nsteer = \"roce\"\ninterface = \"gpu9\""),
            ("interface = \"gpu1\"", "interface = \"gpu2\""),
        ])
        .refused;
        assert_eq!(
            refused,
            [
                "[workers]",
                "[xdp]",
                "[control] socket",
                "uplink u0: encap_ips",
                "uplink u0: vlan",
                "port gpu0: interface",
                "port gpu0: steer",
                "port gpu2 added",
                "port gpu1 removed",
            ]
        );
        let two = "[[uplink]]\ninterface = \"u1\"\nencap_ips = [\"10.0.1.1\"]\n[[uplink]]";
        assert_eq!(diff(&[("[[uplink]]", two)]).refused, ["uplinks u0 → u1, u0"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let many: String =
            (0..1500).map(|n| format!("[[network]]\nname = \"n{n}\"\nvni = {}\n", n + 1000)).collect();
        let changes = diff(&[("[[peer]]", &format!("{many}[[peer]]"))]).changes;
        assert_eq!((changes.len(), changes[1000].as_str()), (1001, "and 500 more changes"));
    }
}
