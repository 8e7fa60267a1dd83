//! Uplinks, networks, ports and static neighbors from draft to configuration.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crate::ids::{NetworkId, PortId};
use crate::wire::ethernet::Mac;

use super::document::{At, Errors, Offset};
use super::draft::{Draft, NeighborDraft, UplinkDraft, culprit, neighbor_culprit};
use super::error::Problem;
use super::model::{Network, Port, PortRole, StaticNeighbor, Uplink, UplinkId};
use super::read_network::{GroupDraft, NetworkDraft, PortDraft, VlanDraft, group_culprit, vlan_culprit};
use super::resolve::{Index, find, peer_list};
use super::settings::Admit;
use super::tenant::{Gateway, Group, VlanMember};

/// Least underlay MTU with IPv6: an inner IPv6 packet of 1280 B with its Ethernet header and the outer headers.
const MIN_MTU_V6: u16 = 1280 + 70;

pub(super) fn finish_uplink(draft: &UplinkDraft, errors: &mut Errors<'_>) -> Option<Uplink> {
    let encap_ips: Vec<IpAddr> = draft.encap_ips.as_ref()?.value.iter().map(|ip| ip.value).collect();
    if let Some(mtu) = draft.mtu
        && mtu.value < MIN_MTU_V6
        && encap_ips.iter().any(IpAddr::is_ipv6)
    {
        let why = "an inner IPv6 packet of 1280 B must fit with its outer headers";
        let problem = Problem::Mtu { mtu: mtu.value, min: MIN_MTU_V6, why };
        errors.push(mtu.at, || culprit("uplink", draft.name.as_ref()), problem);
    }
    Some(Uplink {
        name: draft.name.as_ref()?.value.clone(),
        interface: draft.interface.as_ref()?.value.clone(),
        encap_ips,
        mac: draft.mac,
        mtu: draft.mtu.map(|mtu| mtu.value),
        vlan: draft.vlan,
    })
}

pub(super) fn finish_network(
    draft: &NetworkDraft,
    all: &Draft,
    index: &Index<'_>,
    errors: &mut Errors<'_>,
) -> Option<Network> {
    let culprit = || culprit("network", draft.name.as_ref());
    let peers = peer_list(&draft.peers, index, culprit, errors);
    let tenant = draft
        .tenant
        .as_ref()
        .and_then(|name| find(&index.tenants, ("tenant", "tenant"), name, culprit, errors));
    if let (Some(at), None) = (draft.gateway_at, &draft.tenant) {
        let why = "a gateway leads into the VRF of a tenant".to_owned();
        errors.push(at, culprit, Problem::Needed { key: "tenant", why });
    }
    let groups = groups(draft, all, index, errors);
    let gateway = gateway_mac(draft, all, index).map(|mac| Gateway {
        mac: mac.value,
        addresses: draft.gateway.iter().map(|address| address.value).collect(),
    });
    Some(Network {
        name: draft.name.as_ref()?.value.clone(),
        vni: draft.vni?.value,
        peers,
        unknown_unicast: draft.unknown_unicast,
        tenant,
        gateway,
        learning: draft.learning,
        snooping: draft.snooping,
        groups,
    })
}

/// MAC of a network's gateway: its own or its tenant's. `None` without a gateway, or when neither is given.
pub(super) fn gateway_mac(draft: &NetworkDraft, all: &Draft, index: &Index<'_>) -> Option<At<Mac>> {
    draft.gateway_at?;
    draft.gateway_mac.or_else(|| {
        let tenant = index.tenants.get(draft.tenant.as_ref()?.value.as_str())?;
        all.tenants.get(tenant.0 as usize)?.router_mac
    })
}

fn groups(network: &NetworkDraft, all: &Draft, index: &Index<'_>, errors: &mut Errors<'_>) -> Vec<Group> {
    let owner = culprit("network", network.name.as_ref());
    let members: HashSet<&str> = network.peers.iter().map(|name| name.value.as_str()).collect();
    let mut first: HashMap<IpAddr, Offset> = HashMap::new();
    let mut groups = Vec::with_capacity(network.groups.len());
    for draft in &network.groups {
        let culprit = || group_culprit(&owner, draft);
        let ports = group_ports(network, draft, all, index, errors);
        let peers = peer_list(&draft.peers, index, culprit, errors);
        for name in &draft.peers {
            let known = index.peers.contains_key(name.value.as_str());
            if known && !members.contains(name.value.as_str()) {
                errors.push(name.at, culprit, not_in_network("peers", name, network));
            }
        }
        let Some(address) = draft.address else { continue };
        if let Some(&before) = first.get(&address.value) {
            let line = errors.line(before);
            let owner = "another group of this network".to_owned();
            let problem =
                Problem::Duplicate { key: "address", value: address.value.to_string(), owner, line };
            errors.push(address.at, culprit, problem);
        }
        first.entry(address.value).or_insert(address.at);
        groups.push(Group { address: address.value, ports, peers });
    }
    groups
}

fn group_ports(
    network: &NetworkDraft,
    draft: &GroupDraft,
    all: &Draft,
    index: &Index<'_>,
    errors: &mut Errors<'_>,
) -> Vec<PortId> {
    let culprit = || group_culprit(&culprit("network", network.name.as_ref()), draft);
    let own = network.name.as_ref().map(|name| name.value.as_str());
    let mut seen = HashSet::new();
    let mut ports = Vec::with_capacity(draft.ports.len());
    for name in &draft.ports {
        let Some(id) = find(&index.ports, ("ports", "access port"), name, culprit, errors) else { continue };
        let port = all.ports.get(usize::from(id.0).saturating_sub(all.uplinks.len()));
        let inside = port.is_some_and(|port| port.networks().any(|name| Some(name.value.as_str()) == own));
        if !inside {
            errors.push(name.at, culprit, not_in_network("ports", name, network));
        } else if !seen.insert(id) {
            let problem = Problem::ListedTwice { key: "ports", value: name.value.clone() };
            errors.push(name.at, culprit, problem);
        }
        ports.push(id);
    }
    ports
}

fn not_in_network(key: &'static str, name: &At<String>, network: &NetworkDraft) -> Problem {
    let network = network.name.as_ref().map_or_else(String::new, |name| name.value.clone());
    Problem::NotInNetwork { key, name: name.value.clone(), network }
}

pub(super) fn finish_port(draft: &PortDraft, index: &Index<'_>, errors: &mut Errors<'_>) -> Option<Port> {
    let culprit = || culprit("port", draft.name.as_ref());
    let roles = [draft.network.is_some(), !draft.vlans.is_empty(), draft.native.is_some()];
    let role = match (&draft.network, draft.vlans.first(), &draft.native) {
        (Some(name), None, None) => {
            find(&index.networks, ("network", "network"), name, culprit, errors).map(PortRole::Network)
        }
        (None, Some(_), None) => Some(PortRole::Trunk(vlans(draft, index, errors))),
        (None, None, Some(name)) => {
            find(&index.uplinks, ("native", "uplink"), name, culprit, errors).map(PortRole::Native)
        }
        (None, None, None) => {
            errors.push(draft.at, culprit, Problem::PortRole("none"));
            None
        }
        _ => {
            let two = roles.into_iter().filter(|given| *given).count() == 2;
            let count = if two { "two" } else { "all three" };
            let later = [
                draft.native.as_ref().map(|native| native.at),
                draft.vlans.first().map(|vlan| vlan.at),
                Some(draft.at),
            ];
            let at = later.into_iter().flatten().next().unwrap_or(draft.at);
            errors.push(at, culprit, Problem::PortRole(count));
            None
        }
    };
    Some(Port {
        name: draft.name.as_ref()?.value.clone(),
        interface: draft.interface.as_ref()?.value.clone(),
        role: role?,
        steer: draft.steer,
        macs: draft.macs.iter().map(|mac| mac.value).collect(),
        ips: draft.ips.iter().map(|ip| ip.value).collect(),
        spoofing: draft.spoofing.map_or(Admit::Drop, |spoofing| spoofing.value),
        mtu: draft.mtu,
    })
}

/// The networks of a trunk: each tag and each network once.
fn vlans(port: &PortDraft, index: &Index<'_>, errors: &mut Errors<'_>) -> Vec<VlanMember> {
    let owner = culprit("port", port.name.as_ref());
    let (mut tags, mut networks) = (HashMap::new(), HashMap::new());
    let mut members = Vec::with_capacity(port.vlans.len());
    let another = "another [[port.vlan]] of this port";
    let duplicate = |key, value, line| Problem::Duplicate { key, value, owner: another.to_owned(), line };
    for draft in &port.vlans {
        let culprit = || vlan_culprit(&owner, draft);
        let at = draft.id.map_or(draft.at, |id| id.at);
        let tag = draft.id.map(|id| id.value);
        let is_right = tag.is_some() || !draft.tagged;
        if is_right && let Some(&before) = tags.get(&tag) {
            let value = tag.map_or_else(|| "none (untagged)".to_owned(), |tag| tag.get().to_string());
            errors.push(at, culprit, duplicate("id", value, errors.line(before)));
        }
        if is_right {
            tags.entry(tag).or_insert(at);
        }
        let network = member_network(draft, index, culprit, errors);
        let Some((id, at)) = network else { continue };
        if let Some(&before) = networks.get(&id) {
            let value = draft.network.as_ref().map_or_else(String::new, |name| name.value.clone());
            errors.push(at, culprit, duplicate("network", value, errors.line(before)));
        }
        networks.entry(id).or_insert(at);
        members.push(VlanMember { vlan: tag, network: id });
    }
    members
}

fn member_network(
    draft: &VlanDraft,
    index: &Index<'_>,
    culprit: impl Fn() -> String,
    errors: &mut Errors<'_>,
) -> Option<(NetworkId, Offset)> {
    let name = draft.network.as_ref()?;
    find(&index.networks, ("network", "network"), name, culprit, errors).map(|id| (id, name.at))
}

pub(super) fn static_neighbors(
    drafts: &[NeighborDraft],
    index: &Index<'_>,
    errors: &mut Errors<'_>,
) -> Vec<StaticNeighbor> {
    let mut first: HashMap<(UplinkId, IpAddr), Offset> = HashMap::new();
    let mut neighbors = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let culprit = || neighbor_culprit(draft);
        let uplink = draft
            .uplink
            .as_ref()
            .and_then(|name| find(&index.uplinks, ("uplink", "uplink"), name, culprit, errors));
        let (Some(uplink), Some(ip), Some(mac)) = (uplink, draft.ip, draft.mac) else { continue };
        if let Some(&before) = first.get(&(uplink, ip.value)) {
            let line = errors.line(before);
            let owner = "another [[neighbor]] of this uplink".to_owned();
            let problem = Problem::Duplicate { key: "ip", value: ip.value.to_string(), owner, line };
            errors.push(ip.at, culprit, problem);
        }
        first.entry((uplink, ip.value)).or_insert(ip.at);
        neighbors.push(StaticNeighbor { uplink, ip: ip.value, mac });
    }
    neighbors
}
