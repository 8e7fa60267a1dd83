//! The file as read: legal values, references still names. `resolve` turns it into a `Config`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toml::Spanned;
use toml::de::DeValue;

use crate::control::plan::AddressPlan;
use crate::wire::ethernet::Mac;

use super::document::{At, Errors, Offset, Piece, Place};
use super::error::Problem;
use super::fields::{Fields, printable, split_tables};
use super::model::{InterfaceName, MAX_ENCAP_IPS, VlanId};
use super::read_network::{NetworkDraft, PortDraft};
use super::read_tenant::TenantDraft;
use super::settings::{Control, Neighbors, Routing, Vxlan, Workers, Xdp};
use super::suggest::Hint;
use super::tenant::MAX_ENDPOINT_IPS;
use super::{read_network, read_tenant, sections, value};

const SECTIONS: [&str; 13] = [
    "workers",
    "xdp",
    "vxlan",
    "control",
    "neighbors",
    "routing",
    "address_plan",
    "tenant",
    "uplink",
    "network",
    "port",
    "peer",
    "neighbor",
];

/// Largest MTU of a device that carries Ethernet frames.
pub(super) const MAX_MTU: u16 = 65_535;
/// What every IPv4 host must accept (RFC 791); also the least a port may have.
pub(super) const MIN_MTU: u16 = 576;

#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) workers: Option<Workers>,
    pub(super) xdp: Option<Xdp>,
    pub(super) vxlan: Option<Vxlan>,
    pub(super) control: Option<Control>,
    pub(super) neighbors: Option<Neighbors>,
    pub(super) routing: Option<Routing>,
    /// The section, and the plan when its pattern is right.
    pub(super) address_plan: Option<Option<AddressPlan>>,
    pub(super) tenants: Vec<TenantDraft>,
    pub(super) uplinks: Vec<UplinkDraft>,
    pub(super) networks: Vec<NetworkDraft>,
    pub(super) ports: Vec<PortDraft>,
    pub(super) peers: Vec<PeerDraft>,
    pub(super) static_neighbors: Vec<NeighborDraft>,
    /// Names of the networks that endpoints are in, so that an endpoint holds a number.
    pub(super) endpoint_networks: Names,
}

/// Names, each once.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) list: Vec<String>,
    index: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.index.get(name) {
            return number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(name.to_owned());
        self.index.insert(name.to_owned(), number);
        number
    }
}

#[derive(Debug)]
pub(super) struct UplinkDraft {
    pub(super) name: Option<At<String>>,
    pub(super) interface: Option<At<InterfaceName>>,
    pub(super) encap_ips: Option<At<Vec<At<IpAddr>>>>,
    pub(super) mac: Option<Mac>,
    pub(super) mtu: Option<At<u16>>,
    pub(super) vlan: Option<VlanId>,
}

#[derive(Debug)]
pub(super) struct PeerDraft {
    pub(super) name: Option<At<String>>,
    pub(super) encap_ips: Option<At<Vec<At<IpAddr>>>>,
    pub(super) router_mac: Option<At<Mac>>,
    /// Whether a router MAC is written, right or wrong.
    pub(super) has_router_mac: bool,
    pub(super) endpoints: Vec<EndpointDraft>,
    /// Addresses of endpoints, as in `Peer`.
    pub(super) addresses_v4: Vec<(u32, Ipv4Addr)>,
    pub(super) addresses_v6: Vec<(u32, Ipv6Addr)>,
}

impl PeerDraft {
    /// Every address of an endpoint with its endpoint.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&EndpointDraft, IpAddr)> {
        let v4 = self.addresses_v4.iter().map(|&(index, ip)| (index, IpAddr::V4(ip)));
        let v6 = self.addresses_v6.iter().map(|&(index, ip)| (index, IpAddr::V6(ip)));
        v4.chain(v6).filter_map(|(index, ip)| Some((self.endpoints.get(index as usize)?, ip)))
    }
}

/// Kept small: there may be millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointDraft {
    /// Where the MAC is written.
    pub(super) at: Offset,
    /// Number in [`Draft::endpoint_networks`].
    pub(super) network: u32,
    pub(super) mac: Mac,
    pub(super) encap_ip: Option<u8>,
}

const _: () = assert!(size_of::<EndpointDraft>() == 16);

#[derive(Debug)]
pub(super) struct NeighborDraft {
    pub(super) uplink: Option<At<String>>,
    pub(super) ip: Option<At<IpAddr>>,
    pub(super) mac: Option<Mac>,
}

/// How messages call a thing that should have a name.
pub(super) fn culprit(kind: &str, name: Option<&At<String>>) -> String {
    name.map_or_else(|| format!("{kind} without a name"), |name| format!("{kind} {}", name.value))
}

/// A top-level entry of a piece.
struct Section<'p> {
    at: Offset,
    value: Spanned<DeValue<'p>>,
    place: Place,
}

impl<'p> Section<'p> {
    /// Reads a section that may appear once.
    fn once<T>(
        self,
        slot: &mut Option<T>,
        header: &'static str,
        errors: &mut Errors<'_>,
        read: impl FnOnce(Fields<'p>, &mut Errors<'_>) -> T,
    ) {
        let DeValue::Table(table) = self.value.into_inner() else {
            errors.push(self.at, String::new, Problem::Shape(header));
            return;
        };
        if slot.is_some() {
            errors.push(self.at, String::new, Problem::SectionTwice);
        }
        *slot = Some(read(Fields::new(table, self.at, self.place), errors));
    }

    /// The tables of a section that may appear many times.
    fn each(self, header: &'static str, errors: &mut Errors<'_>) -> Vec<Fields<'p>> {
        split_tables(self.value, header, self.place, |at, problem| errors.push(at, String::new, problem))
    }
}

impl Draft {
    /// Reads one piece of the file.
    pub(super) fn read(&mut self, piece: Piece<'_>, errors: &mut Errors<'_>) {
        let Piece { table, place, continued } = piece;
        for (key, value) in table {
            let section = Section { at: place.offset(key.span()), value, place };
            match key.get_ref().as_ref() {
                "workers" => section.once(&mut self.workers, "[workers]", errors, sections::workers),
                "xdp" => section.once(&mut self.xdp, "[xdp]", errors, sections::xdp),
                "vxlan" => section.once(&mut self.vxlan, "[vxlan]", errors, sections::vxlan),
                "control" => section.once(&mut self.control, "[control]", errors, sections::control),
                "neighbors" => {
                    section.once(&mut self.neighbors, "[neighbors]", errors, sections::neighbors);
                }
                "uplink" => {
                    let tables = section.each("[[uplink]]", errors);
                    self.uplinks.extend(tables.into_iter().map(|f| uplink(f, errors)));
                }
                "routing" => section.once(&mut self.routing, "[routing]", errors, sections::routing),
                "address_plan" => {
                    section.once(&mut self.address_plan, "[address_plan]", errors, sections::address_plan);
                }
                "tenant" => {
                    let tables = section.each("[[tenant]]", errors);
                    read_tenant::tenants(&mut self.tenants, tables, continued, errors);
                }
                "network" => {
                    let tables = section.each("[[network]]", errors);
                    read_network::networks(&mut self.networks, tables, continued, errors);
                }
                "port" => {
                    let tables = section.each("[[port]]", errors);
                    read_network::ports(&mut self.ports, tables, continued, errors);
                }
                "peer" => {
                    let tables = section.each("[[peer]]", errors);
                    self.peers(tables, continued, errors);
                }
                "neighbor" => {
                    let tables = section.each("[[neighbor]]", errors);
                    self.static_neighbors.extend(tables.into_iter().map(|f| neighbor(f, errors)));
                }
                unknown => {
                    let hint = Hint::nearest(unknown, SECTIONS);
                    let problem = Problem::UnknownSection { key: printable(unknown), hint };
                    errors.push(section.at, String::new, problem);
                }
            }
        }
    }

    fn peers(&mut self, tables: Vec<Fields<'_>>, continued: bool, errors: &mut Errors<'_>) {
        for (mut f, fresh) in with_fresh(tables, continued) {
            if fresh {
                self.peers.push(peer(&mut f));
            }
            let endpoints = f.tables("endpoint", "[[peer.endpoint]]");
            let Some(target) = self.peers.last_mut() else {
                f.orphans("peer", "endpoint", endpoints);
                f.finish(errors, String::new);
                continue;
            };
            for fields in endpoints {
                endpoint(fields, target, &mut self.endpoint_networks, errors);
            }
            f.finish(errors, || culprit("peer", target.name.as_ref()));
        }
    }
}

/// Tables of a piece, each with whether it is new: the first one may stand for the last one of the piece before.
pub(super) fn with_fresh(
    tables: Vec<Fields<'_>>,
    continued: bool,
) -> impl Iterator<Item = (Fields<'_>, bool)> {
    tables.into_iter().enumerate().map(move |(i, table)| (table, i > 0 || !continued))
}

fn uplink(mut f: Fields<'_>, errors: &mut Errors<'_>) -> UplinkDraft {
    let interface = f.required("interface", value::interface);
    let draft = UplinkDraft {
        name: f.optional("name", value::name).or_else(|| default_name(interface.as_ref())),
        interface,
        encap_ips: encap_ips(&mut f),
        mac: f.optional("mac", value::station_mac).map(|mac| mac.value),
        mtu: f.optional("mtu", value::integer(MIN_MTU, MAX_MTU)),
        vlan: f.optional("vlan", value::vlan).map(|vlan| vlan.value),
    };
    f.finish(errors, || culprit("uplink", draft.name.as_ref()));
    draft
}

fn peer(f: &mut Fields<'_>) -> PeerDraft {
    let has_router_mac = f.has("router_mac");
    PeerDraft {
        name: f.required("name", value::name),
        encap_ips: encap_ips(f),
        router_mac: f.optional("router_mac", value::station_mac),
        has_router_mac,
        endpoints: Vec::new(),
        addresses_v4: Vec::new(),
        addresses_v6: Vec::new(),
    }
}

fn endpoint(mut f: Fields<'_>, peer: &mut PeerDraft, networks: &mut Names, errors: &mut Errors<'_>) {
    let network = f.required("network", value::reference);
    let mac = f.required("mac", value::station_mac);
    let encap_ip = f.optional("encap_ip", value::encap_ip).and_then(|ip| {
        let known = &peer.encap_ips.as_ref()?.value;
        let index = known.iter().position(|known| known.value == ip.value);
        if index.is_none() {
            f.problem(ip.at, Problem::ForeignEncapIp { ip: ip.value });
        }
        index.and_then(|index| u8::try_from(index).ok())
    });
    let ips = f.set("ips", MAX_ENDPOINT_IPS, value::host_ip);
    f.finish(errors, || {
        let peer = culprit("peer", peer.name.as_ref());
        mac.map_or_else(|| format!("{peer}, endpoint"), |mac| format!("{peer}, endpoint {}", mac.value))
    });
    let (Some(network), Some(mac)) = (network, mac) else { return };
    let index = u32::try_from(peer.endpoints.len()).unwrap_or(u32::MAX);
    for ip in ips {
        match ip.value {
            IpAddr::V4(ip) => peer.addresses_v4.push((index, ip)),
            IpAddr::V6(ip) => peer.addresses_v6.push((index, ip)),
        }
    }
    let network = networks.number(&network.value);
    peer.endpoints.push(EndpointDraft { at: mac.at, network, mac: mac.value, encap_ip });
}

fn neighbor(mut f: Fields<'_>, errors: &mut Errors<'_>) -> NeighborDraft {
    let draft = NeighborDraft {
        uplink: f.required("uplink", value::reference),
        ip: f.required("ip", value::host_ip),
        mac: f.required("mac", value::station_mac).map(|mac| mac.value),
    };
    f.finish(errors, || neighbor_culprit(&draft));
    draft
}

/// How messages call a static neighbor.
pub(super) fn neighbor_culprit(draft: &NeighborDraft) -> String {
    draft.ip.map_or_else(|| "neighbor".to_owned(), |ip| format!("neighbor {}", ip.value))
}

fn encap_ips(f: &mut Fields<'_>) -> Option<At<Vec<At<IpAddr>>>> {
    let list = f.required_list("encap_ips", value::encap_ip)?;
    let count = list.value.len();
    if count > MAX_ENCAP_IPS {
        f.problem(list.at, Problem::TooMany { what: "encap_ips", count, max: MAX_ENCAP_IPS });
    }
    Some(list)
}

pub(super) fn default_name(interface: Option<&At<InterfaceName>>) -> Option<At<String>> {
    interface.map(|interface| At { value: interface.value.as_str().to_owned(), at: interface.at })
}
