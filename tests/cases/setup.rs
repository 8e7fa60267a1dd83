//! The manifest's configuration as a flowrail configuration file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::manifest::{Case, ManifestConfig};

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
        "[vxlan]\nudp6_zero_checksum = \"accept\"\n\
         [[uplink]]\nname = \"underlay\"\ninterface = \"{}\"\nencap_ips = [\"{}\", \"{}\"]\nmac = \"{}\"\nmtu = {mtu}\n",
        names.uplink, local.ipv4, local.ipv6, local.mac
    );
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
        let macs: Vec<String> = network.local.keys().map(|mac| format!("\"{mac}\"")).collect();
        writeln!(
            text,
            "[[port]]\nname = \"{}\"\ninterface = \"{}\"\nnetwork = \"vni{vni}\"\nmtu = 9000\nmacs = [{}]",
            port_name(network.access_port.as_ref().unwrap()),
            names.access[vni],
            macs.join(", ")
        )
        .unwrap();
    }
    for (name, ips) in &peers {
        let list: Vec<String> = ips.iter().map(|ip| format!("\"{ip}\"")).collect();
        writeln!(text, "[[peer]]\nname = \"{name}\"\nencap_ips = [{}]", list.join(", ")).unwrap();
        for (vni, network) in bridged() {
            for (mac, _) in network.remote.iter().filter(|(_, [_, via])| ips.contains(via)) {
                writeln!(text, "[[peer.endpoint]]\nnetwork = \"vni{vni}\"\nmac = \"{mac}\"").unwrap();
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
