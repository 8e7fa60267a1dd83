//! Every station that the configuration knows: its MAC, its place, its addresses.

use std::net::IpAddr;

use crate::control::config::{Config, Endpoint, Peer, PeerId};
use crate::ids::{NetworkId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::vtep::VtepTable;
use crate::wire::ethernet::Mac;

/// A station's MAC in one of its networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) network: NetworkId,
    pub(super) mac: Mac,
    pub(super) at: Dest,
}

/// A station's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'c> {
    pub(super) network: NetworkId,
    pub(super) ip: IpAddr,
    pub(super) mac: Mac,
    /// Peer and endpoint of a remote station.
    pub(super) remote: Option<(&'c Peer, &'c Endpoint)>,
}

/// Stations of all networks: local ones first.
pub(super) fn stations<'c>(
    config: &'c Config,
    vteps: &'c VtepTable,
) -> impl Iterator<Item = Station> + use<'c> {
    let local = config.access_ports().flat_map(|(id, port)| {
        let macs = move |network| {
            port.macs.iter().map(move |mac| Station { network, mac: *mac, at: Dest::Port(id) })
        };
        port.role.networks().flat_map(macs)
    });
    let remote = config.peers.iter().flat_map(move |peer| {
        peer.endpoints.iter().filter_map(move |endpoint| {
            let at = Dest::Vtep(vtep_of(peer, endpoint, vteps)?);
            Some(Station { network: endpoint.network, mac: endpoint.mac, at })
        })
    });
    local.chain(remote)
}

/// Addresses of all stations: local ones first.
pub(super) fn addresses(config: &Config) -> impl Iterator<Item = Address<'_>> {
    let local = config.ports.iter().flat_map(move |port| {
        let ips =
            port.macs.first().into_iter().flat_map(move |mac| port.ips.iter().map(move |ip| (*mac, *ip)));
        ips.flat_map(move |(mac, ip)| {
            let homes = config.homes(port, ip).into_iter();
            homes.map(move |network| Address { network, ip, mac, remote: None })
        })
    });
    let remote = config.peers.iter().flat_map(|peer| {
        peer.addresses().map(move |(endpoint, ip)| Address {
            network: endpoint.network,
            ip,
            mac: endpoint.mac,
            remote: Some((peer, endpoint)),
        })
    });
    local.chain(remote)
}

/// The VTEP that an endpoint is reached at: the one it is pinned to, else its peer's first.
pub(super) fn vtep_of(peer: &Peer, endpoint: &Endpoint, vteps: &VtepTable) -> Option<VtepId> {
    let ip = peer.pinned_encap_ip(endpoint).or(peer.encap_ips.first().copied())?;
    vteps.by_ip(ip)
}

/// Every VTEP of a peer, its first encap IP's first.
pub(super) fn vteps_of<'c>(
    config: &'c Config,
    vteps: &'c VtepTable,
    peer: PeerId,
) -> impl Iterator<Item = VtepId> + use<'c> {
    let ips = config.peer(peer).into_iter().flat_map(|peer| &peer.encap_ips);
    ips.filter_map(|ip| vteps.by_ip(*ip))
}
