//! The manifest's configuration as a flowrail configuration file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::judge;
use super::manifest::{Case, ManifestConfig, NetworkEntry};

/// Interface names of the ports, so that one text serves offline and live.
pub struct Names {
    pub uplink: String,
    /// VNI → interface.
    pub access: BTreeMap<String, String>,
}

impl Names {
    pub fn offline(config: &ManifestConfig) -> Self {
        let access = config.vnis.keys().map(|vni| (vni.clone(), format!("acc{vni}"))).collect();
        Self { uplink: "u0".to_owned(), access }
    }
}

/// Configuration for `case`. The names of access ports are the manifest's.
pub fn config(manifest: &ManifestConfig, case: &Case, names: &Names) -> String {
    let peers = peers(manifest);
    let local = &manifest.local_vtep;
    let mtu = case.underlay_mtu().unwrap_or(manifest.underlay.mtu);
    let mut text = format!(
        "[vxlan]\nudp6_zero_checksum = \"accept\"\n[routing]\nicmp_unreachable = \"drop\"\n\
         [[uplink]]\nname = \"underlay\"\ninterface = \"{}\"\nencap_ips = [\"{}\", \"{}\"]\nmac = \"{}\"\nmtu = {mtu}\n",
        names.uplink, local.ipv4, local.ipv6, local.mac
    );
    tenants(&mut text, manifest, &peers);
    let bridged = || manifest.vnis.iter().filter(|(_, network)| network.access_port.is_some());
    for (vni, network) in bridged() {
        let members: Vec<String> =
            network.flood.iter().map(|ip| format!("\"{}\"", peer_of(&peers, ip))).collect();
        let members = members.join(", ");
        writeln!(
            text,
            "[[network]]\nname = \"vni{vni}\"\nvni = {vni}\npeers = [{members}]\nunknown_unicast = \"flood\""
        )
        .unwrap();
        if let Some(tenant) = &network.vrf {
            writeln!(text, "tenant = \"{tenant}\"").unwrap();
        }
        if let (Some(gateway), Some(subnet)) = (&network.gw, &network.subnet) {
            let len = subnet.split('/').nth(1).unwrap();
            writeln!(text, "gateway = [\"{gateway}/{len}\"]").unwrap();
            // Hosts that share their gateway's MAC send from it to each other; only a router MAC apart from it is ours alone.
            if judge::names_reason(case) == Some("inner_src_is_local_mac") {
                writeln!(text, "gateway_mac = \"02:00:00:00:0a:fd\"").unwrap();
            }
        }
        let macs: Vec<String> = network.local.keys().map(|mac| format!("\"{mac}\"")).collect();
        let ips = network.local.values().flat_map(|ip| [ip.clone(), v6_of(vni, ip)]);
        let ips: Vec<String> = ips.map(|ip| format!("\"{ip}\"")).collect();
        writeln!(
            text,
            "[[port]]\nname = \"{}\"\ninterface = \"{}\"\nnetwork = \"vni{vni}\"\nmtu = 9000\nmacs = [{}]\nips = [{}]",
            port_name(network.access_port.as_ref().unwrap()),
            names.access[vni],
            macs.join(", "),
            ips.join(", ")
        )
        .unwrap();
    }
    for (name, ips) in &peers {
        let list: Vec<String> = ips.iter().map(|ip| format!("\"{ip}\"")).collect();
        writeln!(text, "[[peer]]\nname = \"{name}\"\nencap_ips = [{}]", list.join(", ")).unwrap();
        if let Some(mac) = router_mac(manifest, ips) {
            writeln!(text, "router_mac = \"{mac}\"").unwrap();
        }
        for (vni, network) in bridged() {
            for (mac, [ip, _]) in network.remote.iter().filter(|(_, [_, via])| ips.contains(via)) {
                writeln!(
                    text,
                    "[[peer.endpoint]]\nnetwork = \"vni{vni}\"\nmac = \"{mac}\"\nips = [\"{ip}\"]"
                )
                .unwrap();
                if let Some(v6) = ips.iter().find(|ip| case.outer_is_v6() && ip.contains(':')) {
                    writeln!(text, "encap_ip = \"{v6}\"").unwrap();
                }
            }
        }
    }
    for (ip, mac) in &manifest.remote_vteps {
        writeln!(text, "[[neighbor]]\nuplink = \"underlay\"\nip = \"{ip}\"\nmac = \"{mac}\"").unwrap();
    }
    text
}

/// A tenant for each VRF, with its L3VNI. The manifest has routes of one tenant, the one with an L3VNI.
fn tenants(text: &mut String, manifest: &ManifestConfig, peers: &BTreeMap<String, Vec<String>>) {
    let names: BTreeSet<&String> =
        manifest.vnis.values().filter_map(|network| network.vrf.as_ref()).collect();
    for name in names {
        writeln!(text, "[[tenant]]\nname = \"{name}\"").unwrap();
        let is_its = |(_, network): &(&String, &NetworkEntry)| network.l3vni_for.as_ref() == Some(name);
        let Some((l3vni, entry)) = manifest.vnis.iter().find(is_its) else { continue };
        writeln!(text, "l3vni = {l3vni}\nrouter_mac = \"{}\"", entry.router_mac.as_ref().unwrap()).unwrap();
        for (prefix, [via, mac]) in &manifest.routes_tenant_a {
            assert_eq!(
                entry.remote_router_macs.get(via),
                Some(mac),
                "{prefix}: another router MAC than its host's"
            );
            let peer = peer_of(peers, via);
            writeln!(
                text,
                "[[tenant.route]]\nprefix = \"{prefix}\"\npeer = \"{peer}\"\nencap_ip = \"{via}\""
            )
            .unwrap();
        }
    }
}

/// The IPv6 address of a local station. The manifest names IPv4 addresses only; its frames have 2001:db8:100::1 for
/// 10.100.0.1.
fn v6_of(vni: &str, ip: &str) -> String {
    format!("2001:db8:{vni}::{}", ip.rsplit('.').next().unwrap())
}

/// Router MAC of the host with these encap IPs.
fn router_mac<'a>(manifest: &'a ManifestConfig, ips: &[String]) -> Option<&'a String> {
    let macs = manifest.vnis.values().flat_map(|network| &network.remote_router_macs);
    macs.filter(|(ip, _)| ips.contains(ip)).map(|(_, mac)| mac).next()
}

/// The manifest's port name in the letters that a configuration allows.
pub fn port_name(name: &str) -> String {
    name.replace(':', "-")
}

/// Remote chassis by name: encap IPs with one MAC are one host's, IPv4 first.
fn peers(manifest: &ManifestConfig) -> BTreeMap<String, Vec<String>> {
    let mut peers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (ip, mac) in &manifest.remote_vteps {
        peers.entry(format!("host-{}", mac.replace(':', ""))).or_default().push(ip.clone());
    }
    peers.values_mut().for_each(|ips| ips.sort_by_key(|ip| ip.contains(':')));
    peers
}

fn peer_of<'a>(peers: &'a BTreeMap<String, Vec<String>>, ip: &String) -> &'a str {
    peers.iter().find(|(_, ips)| ips.contains(ip)).map(|(name, _)| name.as_str()).unwrap()
}
