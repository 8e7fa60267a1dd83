//! Configuration text: any text gives a configuration that tables can be built from, or errors that can be printed.

use std::net::IpAddr;

use flowrail::control::config::{Config, PortRole, TenantId};
use flowrail::control::publish::{self, Facts};
use flowrail::ids::{NetworkId, PortId};
use flowrail::tables::fdb::Dest;
use flowrail::tables::snapshot::{Snapshot, VniTarget};
use flowrail::tables::vrf::Route;
use flowrail::wire::ethernet::Mac;

/// `data` is the text of a file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The end of a file is a place too, on the line behind the last.
    let lines = text.split('\n').count();
    match Config::parse(text, "fuzz.toml") {
        Ok(config) => builds(&config),
        Err(report) => {
            assert!(!report.errors.is_empty(), "refused, without saying why");
            for error in &report.errors {
                assert!((1..=lines).contains(&error.line), "line {} of {lines}: {error}", error.line);
            }
            for line in report.to_string().lines() {
                assert!(line.starts_with("fuzz.toml:"), "a line that names no place: {line}");
            }
        }
    }
}

/// Tables exist for every configuration that is right, and hold what it says.
fn builds(config: &Config) {
    let mut config = config.clone();
    for uplink in &mut config.uplinks {
        // What the interface would tell.
        uplink.mac = uplink.mac.or(Some("02:00:00:00:00:01".parse().unwrap()));
        uplink.mtu = uplink.mtu.or(Some(1600));
    }
    let tables = publish::snapshot(&config, &Facts::offline(&config).unwrap());
    for port in 0..config.port_names().count() {
        assert!(tables.port(PortId(u16::try_from(port).unwrap())).is_some(), "port {port} has no row");
    }
    for (id, network) in (0..).map(NetworkId).zip(&config.networks) {
        let target = tables.target_of(network.vni);
        assert_eq!(target, Some(VniTarget::Network(id)), "network {} has no row", network.name);
        let built = tables.network(id).unwrap();
        assert_eq!(built.vrf, network.tenant.map(TenantId::vrf));
        assert_eq!(built.gateway.is_some(), network.gateway.is_some());
        for address in network.gateway.iter().flat_map(|gateway| &gateway.addresses) {
            let tenant = network.tenant.expect("a gateway leads into a VRF");
            assert_eq!(route(&tables, tenant, address.ip), Some(Route::Gateway(id)), "{address}");
        }
    }
    for (id, tenant) in (0..).map(TenantId).zip(&config.tenants) {
        assert!(tables.vrf(id.vrf()).is_some(), "tenant {} has no VRF", tenant.name);
        if let Some(vni) = tenant.l3vni {
            assert_eq!(tables.target_of(vni), Some(VniTarget::Vrf(id.vrf())));
        }
        assert!(tenant.router_mac.is_some() || tenant.l3vni.is_none());
    }
    for (id, port) in config.access_ports() {
        for network in port.role.networks() {
            for mac in &port.macs {
                assert_eq!(tables.network(network).unwrap().fdb.get(*mac), Some(Dest::Port(id)));
            }
        }
        if let PortRole::Native(_) = port.role {
            assert!(port.ips.is_empty());
        }
        for ip in &port.ips {
            let homes = config.homes(port, *ip);
            assert!(!homes.is_empty(), "{ip} of {} is nowhere", port.name);
            homes.into_iter().for_each(|network| station(&config, &tables, network, *ip, port.macs[0]));
        }
    }
    for peer in &config.peers {
        for (endpoint, ip) in peer.addresses() {
            station(&config, &tables, endpoint.network, ip, endpoint.mac);
        }
    }
}

/// A station's address leads to it in its network, and in its tenant's VRF nowhere else.
fn station(config: &Config, tables: &Snapshot, id: NetworkId, ip: IpAddr, mac: Mac) {
    assert_eq!(tables.network(id).unwrap().neighbors.get(ip), Some(mac), "{ip}");
    let plan = config.address_plan.as_ref();
    let _ = plan.and_then(|plan| plan.decode(ip)).map(|position| position.to_string());
    let Some(tenant) = config.network(id).unwrap().tenant else { return };
    match route(tables, tenant, ip) {
        Some(Route::Host { network, mac: to }) => assert_eq!((network, to), (id, mac), "{ip}"),
        Some(Route::Gateway(_)) => panic!("{ip} of a station is a gateway's"),
        // Remote, link-local, or in a network without a gateway: then what covers the address has it.
        _ => {}
    }
}

fn route(tables: &Snapshot, tenant: TenantId, ip: IpAddr) -> Option<Route> {
    let fib = &tables.vrf(tenant.vrf()).unwrap().fib;
    match ip {
        IpAddr::V4(ip) => fib.get_v4(ip.octets()),
        IpAddr::V6(ip) => fib.get_v6(ip.octets()),
    }
}
