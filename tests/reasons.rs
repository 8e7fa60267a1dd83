//! A packet for each drop reason of the datapath that the packet cases do not have.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may fail loudly")]

use std::sync::Arc;

use etherparse::PacketBuilder;
use flowrail::control::config::Config;
use flowrail::control::publish::{self, Facts};
use flowrail::ids::{PortId, VrfId};
use flowrail::tables::snapshot::Snapshot;
use flowrail::tables::vtep::{NextHop, VtepRow};
use flowrail::trace::{self, Fate};
use flowrail::wire::drop::DropReason;

const CONFIG: &str = r#"
[[uplink]]
interface = "u0"
encap_ips = ["192.0.2.1", "2001:db8::1"]
mac = "02:00:00:00:01:01"
mtu = 1600
[[neighbor]]
uplink = "u0"
ip = "192.0.2.2"
mac = "02:00:00:00:02:02"
[[neighbor]]
uplink = "u0"
ip = "192.0.2.3"
mac = "02:00:00:00:03:03"
[[peer]]
name = "h2"
encap_ips = ["192.0.2.2", "2001:db8::2"]
router_mac = "02:00:00:00:fe:02"
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0a:02"
ips = ["10.1.0.2"]
[[peer]]
name = "h3"
encap_ips = ["192.0.2.3"]
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0a:03"
ips = ["10.1.0.3"]
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:fe:01"
[[tenant.route]]
prefix = "10.8.0.0/16"
peer = "h2"
[[tenant.route]]
prefix = "10.9.0.0/16"
leak = "blue"
[[tenant]]
name = "blue"
router_mac = "02:00:00:00:fe:01"
[[tenant.route]]
prefix = "10.9.0.0/16"
leak = "red"
[[network]]
name = "red"
vni = 100
tenant = "red"
peers = ["h2", "h3"]
gateway = ["10.1.0.254/24"]
[[network]]
name = "lone"
vni = 200
[[port]]
interface = "p0"
network = "red"
macs = ["02:00:00:00:0a:01"]
ips = ["10.1.0.1"]
[[port]]
interface = "p1"
network = "lone"
"#;

const UPLINK: PortId = PortId(0);
const RED: PortId = PortId(1);
const LONE: PortId = PortId(2);
const STATION: [u8; 6] = [2, 0, 0, 0, 0x0a, 1];
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0x0a, 2];
/// Router MAC of red on this host, its gateway's too.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0xfe, 1];
const FAR_ROUTER: [u8; 6] = [2, 0, 0, 0, 0xfe, 2];

fn tables() -> Snapshot {
    let config = Config::parse(CONFIG, "test").unwrap_or_else(|errors| panic!("{errors}"));
    publish::snapshot(&config, &Facts::offline(&config).unwrap())
}

fn udp(src: [u8; 6], dst: [u8; 6], from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ethernet2(src, dst).ipv4(from, to, 64).udp(50_000, 9);
    builder.write(&mut packet, &[7; 40]).unwrap();
    packet
}

/// From h2, in VXLAN.
fn tunnel(vni: u32, tos: u8, inner: &[u8]) -> Vec<u8> {
    let payload = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), inner].concat();
    let mut packet = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 1, 1])
        .ipv4([192, 0, 2, 2], [192, 0, 2, 1], 64)
        .udp(50_001, 4789)
        .write(&mut packet, &payload)
        .unwrap();
    packet[15] = tos;
    let sum: u32 = (14..34)
        .step_by(2)
        .filter(|i| *i != 24)
        .map(|i| u32::from(packet[i]) << 8 | u32::from(packet[i + 1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) & 0xffff;
    packet[24..26].copy_from_slice(&sum.to_be_bytes()[2..]);
    packet
}

#[track_caller]
fn dropped(tables: &Snapshot, port: PortId, frame: &[u8], reason: DropReason) {
    let report = trace::run(tables, port, false, frame);
    assert_eq!(report.fate, Fate::Drop(reason), "{:?}", report.steps);
}

#[test]
fn an_ipv6_tunnel_without_checksum() {
    let inner = udp(REMOTE, STATION, [10, 1, 0, 2], [10, 1, 0, 1]);
    let payload = [&[8, 0, 0, 0, 0, 0, 100, 0][..], &inner].concat();
    let mut packet = Vec::new();
    let (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
        ("2001:db8::2".parse().unwrap(), "2001:db8::1".parse().unwrap());
    PacketBuilder::ethernet2([2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 1, 1])
        .ipv6(src.octets(), dst.octets(), 64)
        .udp(50_001, 4789)
        .write(&mut packet, &payload)
        .unwrap();
    let forwarded = trace::run(&tables(), UPLINK, false, &packet);
    assert_eq!(forwarded.fate, Fate::Forward(RED));
    packet[60..62].fill(0);
    dropped(&tables(), UPLINK, &packet, DropReason::Udp6ChecksumZero);
}

#[test]
fn a_mark_without_a_place_to_go() {
    // CE outside, and an inner IPv4 header of which 10 bytes are there.
    let inner = &udp(REMOTE, STATION, [10, 1, 0, 2], [10, 1, 0, 1])[..24];
    dropped(&tables(), UPLINK, &tunnel(100, 3, inner), DropReason::InnerIpTruncated);
}

#[test]
fn a_group_as_source() {
    let frame = udp([3, 0, 0, 0, 0, 1], REMOTE, [10, 1, 0, 1], [10, 1, 0, 2]);
    dropped(&tables(), RED, &frame, DropReason::InnerSrcInvalid);
    dropped(&tables(), UPLINK, &tunnel(100, 0, &frame), DropReason::InnerSrcInvalid);
}

#[test]
fn a_routed_packet_for_another_router() {
    let frame = udp(FAR_ROUTER, [2, 0, 0, 0, 0xfe, 9], [10, 8, 0, 1], [10, 1, 0, 1]);
    dropped(&tables(), UPLINK, &tunnel(5000, 0, &frame), DropReason::L3vniWrongMac);
    let frame = udp(FAR_ROUTER, ROUTER, [10, 8, 0, 1], [10, 1, 0, 1]);
    assert_eq!(trace::run(&tables(), UPLINK, false, &tunnel(5000, 0, &frame)).fate, Fate::Forward(RED));
}

#[test]
fn what_is_no_unicast_ip_packet_cannot_be_routed() {
    let mut frame = udp(STATION, ROUTER, [10, 1, 0, 1], [10, 8, 0, 1]);
    assert_eq!(trace::run(&tables(), RED, false, &frame).fate, Fate::Forward(UPLINK));
    frame[24] ^= 1;
    dropped(&tables(), RED, &frame, DropReason::NotRoutable);
    let frame = udp(STATION, ROUTER, [10, 1, 0, 1], [224, 0, 0, 9]);
    dropped(&tables(), RED, &frame, DropReason::NotRoutable);
    let frame = udp(STATION, ROUTER, [10, 1, 0, 1], [169, 254, 0, 9]);
    assert!(matches!(trace::run(&tables(), RED, false, &frame).fate, Fate::Drop(_)));
}

#[test]
fn a_peer_without_router_mac_and_a_vrf_without_l3vni() {
    let mut tables = tables();
    let frame = udp(STATION, ROUTER, [10, 1, 0, 1], [10, 1, 0, 3]);
    dropped(&tables, RED, &frame, DropReason::RouterMacMissing);
    tables.vrf_mut(VrfId(0)).unwrap().l3vni = None;
    let frame = udp(STATION, ROUTER, [10, 1, 0, 1], [10, 8, 0, 1]);
    dropped(&tables, RED, &frame, DropReason::L3vniMissing);
}

#[test]
fn leaks_lead_no_further_than_one() {
    let frame = udp(STATION, ROUTER, [10, 1, 0, 1], [10, 9, 0, 1]);
    dropped(&tables(), RED, &frame, DropReason::LeakLoop);
}

#[test]
fn what_came_from_the_underlay_never_goes_back() {
    let bridged = udp([2, 0, 0, 0, 0x0a, 3], REMOTE, [10, 1, 0, 3], [10, 1, 0, 2]);
    dropped(&tables(), UPLINK, &tunnel(100, 0, &bridged), DropReason::SplitHorizon);
    let routed = udp(FAR_ROUTER, ROUTER, [10, 8, 0, 1], [10, 8, 0, 2]);
    dropped(&tables(), UPLINK, &tunnel(5000, 0, &routed), DropReason::SplitHorizon);
}

#[test]
fn a_group_packet_with_nobody_to_hear_it() {
    let frame = udp([2, 0, 0, 0, 0x0b, 1], [0xff; 6], [10, 5, 0, 1], [10, 5, 0, 255]);
    dropped(&tables(), LONE, &frame, DropReason::NoReceiver);
}

#[test]
fn a_peer_that_no_uplink_leads_to() {
    let mut tables = tables();
    let row = VtepRow::unusable("192.0.2.2".parse().unwrap(), NextHop::NoPath);
    Arc::make_mut(&mut tables.vteps).insert(row);
    let frame = udp(STATION, REMOTE, [10, 1, 0, 1], [10, 1, 0, 2]);
    dropped(&tables, RED, &frame, DropReason::NoPath);
}
