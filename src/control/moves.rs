//! A port in another network: the configuration after `flowrail port move`, if it is a legal one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use super::config::{Config, Network, Port, PortRole, RouteTarget, TenantId, is_link_local};
use super::report::{MoveRequest, Refusal};
use crate::ids::{NetworkId, PortId};
use crate::wire::ethernet::Mac;

/// The running configuration with one port in another network, and the networks that this changes.
pub(super) fn moved(
    running: &Config,
    request: &MoveRequest,
) -> Result<(Config, BTreeSet<NetworkId>), Refusal> {
    let refuse = |why: String| Err(Refusal::because(why));
    let MoveRequest { port: name, network, macs, ips } = request;
    let number = running.networks.iter().position(|known| known.name == *network);
    let Some(id) = number.and_then(|number| u32::try_from(number).ok()).map(NetworkId) else {
        return refuse(format!("no network is called {network}"));
    };
    let Some((port_id, port)) = running.access_ports().find(|(_, port)| port.name == *name) else {
        return refuse(format!("no port is called {name}"));
    };
    let PortRole::Network(old) = port.role else {
        return refuse(format!("port {name} is not in one network, so it cannot move"));
    };
    let mut port = Port { role: PortRole::Network(id), ..port.clone() };
    if let Some(macs) = macs {
        port.macs = each(macs, |mac: &Mac| !mac.is_group() && !mac.is_zero())?;
    }
    if let Some(ips) = ips {
        port.ips = each(ips, |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback())?;
    }
    if port.macs.is_empty() && !port.ips.is_empty() {
        return refuse(format!("port {name} has addresses, which need a MAC"));
    }
    let config = with_port(running, port_id, port, old, id);
    let others = Others { config: &config, port: name, network: id };
    let Some(port) = config.ports.iter().find(|port| port.name == *name) else {
        return refuse(format!("no port is called {name}"));
    };
    if let Some((mac, owner)) = port.macs.iter().find_map(|mac| Some((mac, others.owner_of_mac(*mac)?))) {
        return refuse(format!("{mac} of port {name} is already in network {network}: {owner}"));
    }
    if let Some((ip, why)) = port.ips.iter().find_map(|ip| Some((ip, others.problem_of_ip(*ip)?))) {
        return refuse(format!("{ip} of port {name} cannot be in network {network}: {why}; give it --ips"));
    }
    Ok((config, BTreeSet::from([old, id])))
}

/// The configuration with this port, which is no receiver of its old network's groups any more.
fn with_port(running: &Config, id: PortId, port: Port, old: NetworkId, new: NetworkId) -> Config {
    let mut config = running.clone();
    let index = usize::from(id.0).checked_sub(config.uplinks.len());
    if let Some(slot) = index.and_then(|index| config.ports.get_mut(index)) {
        *slot = port;
    }
    if let Some(network) = config.networks.get_mut(old.0 as usize).filter(|_| old != new) {
        network.groups.iter_mut().for_each(|group| group.ports.retain(|port| *port != id));
    }
    config
}

/// Values of a list, each legal and each once.
fn each<T: FromStr + PartialEq + std::fmt::Display>(
    texts: &[String],
    is_legal: impl Fn(&T) -> bool,
) -> Result<Vec<T>, Refusal> {
    let mut values: Vec<T> = Vec::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        let value: T = text.parse().map_err(|_| Refusal::because(format!("{text:?} is no address")))?;
        if !is_legal(&value) {
            return Err(Refusal::because(format!("{value} is no station's own address")));
        }
        if values.contains(&value) {
            return Err(Refusal::because(format!("{value} is given twice")));
        }
        values.push(value);
    }
    Ok(values)
}

/// Everything in the new network, and in its tenant, but the port.
struct Others<'c> {
    config: &'c Config,
    port: &'c str,
    network: NetworkId,
}

impl Others<'_> {
    fn ports(&self) -> impl Iterator<Item = &Port> {
        self.config.ports.iter().filter(|port| port.name != self.port)
    }

    fn network(&self) -> Option<&Network> {
        self.config.network(self.network)
    }

    fn owner_of_mac(&self, mac: Mac) -> Option<String> {
        if self.network().and_then(|network| network.gateway.as_ref()).is_some_and(|g| g.mac == mac) {
            return Some("its gateway".to_owned());
        }
        let inside = |port: &&Port| port.role.networks().any(|id| id == self.network);
        if let Some(port) = self.ports().filter(inside).find(|port| port.macs.contains(&mac)) {
            return Some(format!("port {}", port.name));
        }
        let behind = |peer: &&super::config::Peer| {
            peer.endpoints.iter().any(|endpoint| endpoint.network == self.network && endpoint.mac == mac)
        };
        self.config.peers.iter().find(behind).map(|peer| format!("peer {}", peer.name))
    }

    /// Why the port may not have an address there.
    fn problem_of_ip(&self, ip: IpAddr) -> Option<String> {
        let network = self.network()?;
        if is_link_local(ip) {
            return None;
        }
        if let Some(gateway) = network.gateway.as_ref().filter(|gateway| gateway.reaches(ip) == Some(false)) {
            let subnets: Vec<String> = gateway.addresses.iter().map(|a| a.subnet.to_string()).collect();
            return Some(format!("its subnets are {}", subnets.join(", ")));
        }
        let same = |id: NetworkId| {
            let tenant = self.config.network(id).and_then(|network| network.tenant);
            id == self.network || (tenant.is_some() && tenant == network.tenant)
        };
        if let Some(tenant) = network.tenant.and_then(|tenant| self.taken_by_tenant(tenant, ip)) {
            return Some(tenant);
        }
        let has = |port: &&Port| port.ips.contains(&ip) && self.config.homes(port, ip).into_iter().any(same);
        if let Some(port) = self.ports().find(has) {
            return Some(format!("port {} has it", port.name));
        }
        let behind = |peer: &&super::config::Peer| {
            peer.addresses().any(|(endpoint, address)| address == ip && same(endpoint.network))
        };
        self.config.peers.iter().find(behind).map(|peer| format!("peer {} has it", peer.name))
    }

    /// A gateway's address, or one that a route of the tenant leads elsewhere.
    fn taken_by_tenant(&self, id: TenantId, ip: IpAddr) -> Option<String> {
        let networks = self.config.networks.iter().filter(|network| network.tenant == Some(id));
        let mut gateways = networks.flat_map(|network| &network.gateway).flat_map(|g| &g.addresses);
        if gateways.any(|address| address.ip == ip) {
            return Some("a gateway has it".to_owned());
        }
        let routes = self.config.tenant(id)?.routes.iter();
        let mut routes = routes.filter(|route| route.prefix.is_host() && route.prefix.addr() == ip);
        routes.next().map(|route| match route.target {
            RouteTarget::Blackhole => "the tenant has a blackhole for it".to_owned(),
            RouteTarget::Peer { .. } | RouteTarget::Leak(_) => {
                "a route of the tenant leads elsewhere".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::diff::Diff;

    fn config() -> Config {
        let text = r#"
[[uplink]]
interface = "u0"
encap_ips = ["10.0.0.1"]
[[peer]]
name = "h1"
encap_ips = ["10.0.0.2"]
[[peer.endpoint]]
network = "blue"
mac = "02:00:00:00:0b:01"
[[network]]
name = "red"
vni = 100
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
macs = ["02:00:00:00:0a:02"]
[[port]]
interface = "bare"
native = "u0"
"#;
        Config::parse(text, "test").unwrap_or_else(|e| panic!("{e}"))
    }

    fn request(port: &str, network: &str, macs: Option<&[&str]>) -> MoveRequest {
        let macs = macs.map(|macs| macs.iter().map(|&mac| mac.to_owned()).collect());
        MoveRequest { port: port.to_owned(), network: network.to_owned(), macs, ips: None }
    }

    #[test]
    fn a_port_moves_with_its_macs_or_gets_others() {
        let old = config();
        let new = moved(&old, &request("gpu0", "blue", None)).unwrap().0;
        assert_eq!(Diff::between(&old, &new).changes, ["~ port gpu0: network red → blue"]);
        let new = moved(&old, &request("gpu0", "blue", Some(&["02:00:00:00:0a:09"]))).unwrap().0;
        assert_eq!(Diff::between(&old, &new).changes, ["~ port gpu0: network red → blue, +1 −1 macs"]);
    }

    #[test]
    fn what_cannot_be_says_why() {
        for (request, why) in [
            (request("gpu9", "blue", None), "no port is called gpu9"),
            (request("gpu0", "green", None), "no network is called green"),
            (request("bare", "blue", None), "port bare is not in one network, so it cannot move"),
            (
                request("gpu0", "blue", Some(&["02:00:00:00:0b:01"])),
                "02:00:00:00:0b:01 of port gpu0 is already in network blue: peer h1",
            ),
            (
                request("gpu0", "blue", Some(&["02:00:00:00:0a:02"])),
                "02:00:00:00:0a:02 of port gpu0 is already in network blue: port gpu1",
            ),
            (
                request("gpu0", "blue", Some(&["01:00:00:00:00:01"])),
                "01:00:00:00:00:01 is no station's own address",
            ),
        ] {
            assert_eq!(moved(&config(), &request).unwrap_err().error, why);
        }
    }

    /// Two tenants; red's station has an address, which is in a group and in red's VRF.
    fn tenants() -> Config {
        let text = r#"
[[uplink]]
interface = "u0"
encap_ips = ["10.0.0.1"]
mac = "02:00:00:00:00:01"
mtu = 9000
[[tenant]]
name = "red"
router_mac = "02:00:00:00:0f:01"
[[tenant]]
name = "blue"
router_mac = "02:00:00:00:0f:02"
[[network]]
name = "red-a"
vni = 100
tenant = "red"
gateway = ["10.1.0.254/24"]
[[network.group]]
address = "239.0.0.1"
ports = ["gpu0", "gpu1"]
[[network]]
name = "red-b"
vni = 101
tenant = "red"
gateway = ["10.2.0.254/24"]
[[network]]
name = "blue-a"
vni = 200
tenant = "blue"
gateway = ["10.1.0.254/24"]
[[port]]
interface = "gpu0"
network = "red-a"
macs = ["02:00:00:00:0a:01"]
ips = ["10.1.0.1"]
[[port]]
interface = "gpu1"
network = "red-a"
macs = ["02:00:00:00:0a:02"]
ips = ["10.1.0.2"]
[[port]]
interface = "gpu2"
network = "red-b"
macs = ["02:00:00:00:0a:03"]
ips = ["10.2.0.1"]
"#;
        Config::parse(text, "test").unwrap_or_else(|e| panic!("{e}"))
    }

    fn with_ips(port: &str, network: &str, ips: &[&str]) -> MoveRequest {
        let ips = ips.iter().map(|&ip| ip.to_owned()).collect();
        MoveRequest { ips: Some(ips), ..request(port, network, None) }
    }

    #[test]
    fn an_address_must_be_one_of_the_new_network() {
        let old = tenants();
        assert!(moved(&old, &request("gpu0", "blue-a", None)).is_ok(), "the same subnet of another tenant");
        for (request, why) in [
            (request("gpu0", "red-b", None), "its subnets are 10.2.0.0/24; give it --ips"),
            (with_ips("gpu0", "red-b", &["10.2.0.1"]), "port gpu2 has it; give it --ips"),
            (with_ips("gpu0", "red-b", &["10.2.0.254"]), "a gateway has it; give it --ips"),
            (with_ips("gpu0", "red-b", &["red"]), "\"red\" is no address"),
        ] {
            let error = moved(&old, &request).unwrap_err().error;
            assert!(error.ends_with(why), "{error}");
        }
        let (new, _) = moved(&old, &with_ips("gpu0", "red-b", &["10.2.0.7"])).unwrap();
        let changes = Diff::between(&old, &new).changes;
        assert_eq!(changes[1], "~ port gpu0: network red-a → red-b, +1 −1 ips");
        assert!(moved(&old, &with_ips("gpu0", "red-b", &[""])).unwrap().0.ports[0].ips.is_empty());
    }

    #[test]
    fn the_patch_of_a_move_makes_the_tables_of_its_configuration() {
        use crate::control::publish::{Facts, Patch, snapshot};
        use crate::tables::snapshot::Snapshot;

        fn contents(tables: &Snapshot) -> String {
            let mut text = String::new();
            for (id, network) in tables.networks() {
                let mut stations: Vec<_> = network.fdb.iter().collect();
                stations.sort_unstable();
                let group = network.flood.receivers(Some("239.0.0.1".parse().unwrap()), false);
                let everyone = network.flood.receivers(None, false);
                let neighbors = network.neighbors.len();
                text +=
                    &format!("{id:?} {stations:?} {neighbors} {group:?} {everyone:?} {:?}\n", network.vrf);
            }
            for (id, vrf) in tables.vrfs() {
                let mut routes: Vec<_> = vrf.fib.iter().collect();
                routes.sort_unstable_by_key(|(prefix, _)| *prefix);
                text += &format!("{id:?} {routes:?} {:?}\n", vrf.own);
            }
            let ports = (0..4).map(|port| tables.port(PortId(port)).cloned());
            text + &format!("{:?}", ports.collect::<Vec<_>>())
        }

        let old = tenants();
        let facts = Facts::offline(&old).unwrap();
        for request in [request("gpu0", "blue-a", None), with_ips("gpu0", "red-b", &["10.2.0.7"])] {
            let (new, changed) = moved(&old, &request).unwrap();
            let mut tables = snapshot(&old, &facts);
            Patch::new(&new, &facts, &tables, &changed).apply(&mut tables);
            assert_eq!(contents(&tables), contents(&snapshot(&new, &facts)));
            assert_ne!(contents(&tables), contents(&snapshot(&old, &facts)));
        }
    }
}
