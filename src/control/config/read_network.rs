//! Readers of `[[network]]` with its groups and `[[port]]` with its VLANs.

use std::net::IpAddr;
use std::time::Duration;

use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

use super::document::{At, Errors, Offset};
use super::draft::{MAX_MTU, MIN_MTU, culprit, default_name, with_fresh};
use super::error::Problem;
use super::fields::Fields;
use super::model::{InterfaceName, Steer, UnknownUnicast, VlanId};
use super::settings::Admit;
use super::tenant::{GatewayAddress, Learning, MAX_GATEWAY_IPS, MAX_PORT_IPS};
use super::{value, value_tenant};

const UNKNOWN_UNICAST: &[(&str, UnknownUnicast)] =
    &[("drop", UnknownUnicast::Drop), ("flood", UnknownUnicast::Flood)];
const STEER: &[(&str, Steer)] = &[("all", Steer::All), ("roce", Steer::Roce)];
const SPOOFING: &[(&str, Admit)] = &[("drop", Admit::Drop), ("accept", Admit::Accept)];

const AGEING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(86_400));
const DEFAULT_AGEING: Duration = Duration::from_secs(300);
const MAX_MAC_LIMIT: u32 = 1 << 20;
const DEFAULT_MAC_LIMIT: u32 = 4096;

#[derive(Debug)]
pub(super) struct NetworkDraft {
    pub(super) name: Option<At<String>>,
    pub(super) vni: Option<At<Vni>>,
    pub(super) peers: Vec<At<String>>,
    pub(super) unknown_unicast: UnknownUnicast,
    pub(super) tenant: Option<At<String>>,
    /// Empty when there is no gateway, or a wrong one.
    pub(super) gateway: Vec<At<GatewayAddress>>,
    /// Where the gateway is written, right or wrong.
    pub(super) gateway_at: Option<Offset>,
    pub(super) gateway_mac: Option<At<Mac>>,
    pub(super) learning: Option<Learning>,
    pub(super) snooping: bool,
    pub(super) groups: Vec<GroupDraft>,
}

#[derive(Debug)]
pub(super) struct GroupDraft {
    pub(super) address: Option<At<IpAddr>>,
    pub(super) ports: Vec<At<String>>,
    pub(super) peers: Vec<At<String>>,
}

#[derive(Debug)]
pub(super) struct PortDraft {
    pub(super) at: Offset,
    pub(super) name: Option<At<String>>,
    pub(super) interface: Option<At<InterfaceName>>,
    pub(super) network: Option<At<String>>,
    pub(super) native: Option<At<String>>,
    pub(super) vlans: Vec<VlanDraft>,
    pub(super) steer: Steer,
    pub(super) macs: Vec<At<Mac>>,
    pub(super) ips: Vec<At<IpAddr>>,
    pub(super) spoofing: Option<At<Admit>>,
    pub(super) mtu: Option<u16>,
}

impl PortDraft {
    /// Names of the networks that the port is in.
    pub(super) fn networks(&self) -> impl Iterator<Item = &At<String>> {
        self.network.iter().chain(self.vlans.iter().filter_map(|vlan| vlan.network.as_ref()))
    }
}

#[derive(Debug)]
pub(super) struct VlanDraft {
    pub(super) at: Offset,
    pub(super) network: Option<At<String>>,
    /// `None`: untagged.
    pub(super) id: Option<At<VlanId>>,
    /// Whether an id is written, right or wrong.
    pub(super) tagged: bool,
}

/// Reads networks into `drafts`, and groups into the network that they belong to.
pub(super) fn networks(
    drafts: &mut Vec<NetworkDraft>,
    tables: Vec<Fields<'_>>,
    continued: bool,
    errors: &mut Errors<'_>,
) {
    for (mut f, fresh) in with_fresh(tables, continued) {
        if fresh {
            drafts.push(network(&mut f));
        }
        let groups = f.tables("group", "[[network.group]]");
        let Some(target) = drafts.last_mut() else {
            f.orphans("network", "group", groups);
            f.finish(errors, String::new);
            continue;
        };
        let owner = culprit("network", target.name.as_ref());
        target.groups.extend(groups.into_iter().map(|fields| group(fields, &owner, errors)));
        f.finish(errors, || owner.clone());
    }
}

fn network(f: &mut Fields<'_>) -> NetworkDraft {
    let gateway_at = f.at_of("gateway");
    let draft = NetworkDraft {
        name: f.required("name", value::name),
        vni: f.required("vni", value::vni),
        peers: f.list("peers", value::reference).map_or_else(Vec::new, |list| list.value),
        unknown_unicast: f
            .optional("unknown_unicast", value::choice(UNKNOWN_UNICAST))
            .map_or(UnknownUnicast::Drop, |v| v.value),
        tenant: f.optional("tenant", value::reference),
        gateway: f.set("gateway", MAX_GATEWAY_IPS, value_tenant::gateway),
        gateway_at,
        gateway_mac: f.optional("gateway_mac", value::station_mac),
        learning: learning(f),
        snooping: f.optional("snooping", value::boolean).is_some_and(|on| on.value),
        groups: Vec::new(),
    };
    if let (Some(mac), None) = (draft.gateway_mac, gateway_at) {
        f.problem(mac.at, Problem::NoEffect { key: "gateway_mac", needs: "gateway" });
    }
    draft
}

fn learning(f: &mut Fields<'_>) -> Option<Learning> {
    let on = f.optional("learning", value::boolean).is_some_and(|on| on.value);
    let ageing = f.optional("ageing", value::duration(AGEING.0, AGEING.1));
    let mac_limit = f.optional("mac_limit", value::integer(1u32, MAX_MAC_LIMIT));
    if !on {
        let needs = "learning = true";
        let keys = [("ageing", ageing.map(|v| v.at)), ("mac_limit", mac_limit.map(|v| v.at))];
        for (key, at) in keys {
            at.into_iter().for_each(|at| f.problem(at, Problem::NoEffect { key, needs }));
        }
    }
    on.then(|| Learning {
        ageing: ageing.map_or(DEFAULT_AGEING, |v| v.value),
        mac_limit: mac_limit.map_or(DEFAULT_MAC_LIMIT, |v| v.value),
    })
}

fn group(mut f: Fields<'_>, owner: &str, errors: &mut Errors<'_>) -> GroupDraft {
    let address = f.required("address", value_tenant::group);
    if !f.has("ports") && !f.has("peers") {
        f.problem(f.at, Problem::GroupWithoutReceivers);
    }
    let draft = GroupDraft {
        address,
        ports: f.list("ports", value::reference).map_or_else(Vec::new, |list| list.value),
        peers: f.list("peers", value::reference).map_or_else(Vec::new, |list| list.value),
    };
    f.finish(errors, || group_culprit(owner, &draft));
    draft
}

/// How messages call a group.
pub(super) fn group_culprit(owner: &str, draft: &GroupDraft) -> String {
    draft.address.map_or_else(|| format!("{owner}, group"), |ip| format!("{owner}, group {}", ip.value))
}

/// Reads ports into `drafts`, and VLANs into the port that they belong to.
pub(super) fn ports(
    drafts: &mut Vec<PortDraft>,
    tables: Vec<Fields<'_>>,
    continued: bool,
    errors: &mut Errors<'_>,
) {
    for (mut f, fresh) in with_fresh(tables, continued) {
        if fresh {
            drafts.push(port(&mut f));
        }
        let vlans = f.tables("vlan", "[[port.vlan]]");
        let Some(target) = drafts.last_mut() else {
            f.orphans("port", "vlan", vlans);
            f.finish(errors, String::new);
            continue;
        };
        let owner = culprit("port", target.name.as_ref());
        target.vlans.extend(vlans.into_iter().map(|fields| vlan(fields, &owner, errors)));
        f.finish(errors, || owner.clone());
    }
}

fn port(f: &mut Fields<'_>) -> PortDraft {
    let interface = f.required("interface", value::interface);
    let given = f.has("macs");
    let macs = f.list("macs", value::station_mac);
    // A wrong list is a problem of its own.
    let has_macs = macs.as_ref().map_or(given, |list| !list.value.is_empty());
    let draft = PortDraft {
        at: f.at,
        name: f.optional("name", value::name).or_else(|| default_name(interface.as_ref())),
        interface,
        network: f.optional("network", value::reference),
        native: f.optional("native", value::reference),
        vlans: Vec::new(),
        steer: f.optional("steer", value::choice(STEER)).map_or(Steer::All, |steer| steer.value),
        macs: macs.map_or_else(Vec::new, |list| list.value),
        ips: f.set("ips", MAX_PORT_IPS, value::host_ip),
        spoofing: f.optional("spoofing", value::choice(SPOOFING)),
        mtu: f.optional("mtu", value::integer(MIN_MTU, MAX_MTU)).map(|mtu| mtu.value),
    };
    let needs = match (&draft.native, has_macs) {
        (Some(_), _) => "network or [[port.vlan]]",
        (None, false) => "macs",
        (None, true) => return draft,
    };
    let keys =
        [("ips", draft.ips.first().map(|ip| ip.at)), ("spoofing", draft.spoofing.as_ref().map(|s| s.at))];
    for (key, at) in keys {
        at.into_iter().for_each(|at| f.problem(at, Problem::NoEffect { key, needs }));
    }
    draft
}

fn vlan(mut f: Fields<'_>, owner: &str, errors: &mut Errors<'_>) -> VlanDraft {
    let tagged = f.has("id");
    let draft = VlanDraft {
        at: f.at,
        network: f.required("network", value::reference),
        id: f.optional("id", value::vlan),
        tagged,
    };
    f.finish(errors, || vlan_culprit(owner, &draft));
    draft
}

/// How messages call a VLAN of a port.
pub(super) fn vlan_culprit(owner: &str, draft: &VlanDraft) -> String {
    match (draft.id, draft.tagged) {
        (Some(id), _) => format!("{owner}, vlan {}", id.value.get()),
        (None, true) => format!("{owner}, vlan"),
        (None, false) => format!("{owner}, untagged vlan"),
    }
}
