//! ARP and neighbor discovery: who is answered, with what, and which addresses are learned.

use etherparse::{ArpOperation, NetSlice, SlicedPacket, TransportSlice};
use flowrail::datapath::{Answer, Learned};
use flowrail::ids::{NetworkId, PortId};
use flowrail::tables::fdb::Dest;
use flowrail::tables::network::link_local;
use flowrail::wire::drop::DropReason;
use flowrail::wire::ethernet::Mac;

use crate::checks::gateway::Input;
use crate::checks::site::mac;
use crate::checks::tenant::{BLUE_VLAN, BLUE_VNI, BOUND, GATEWAY, GREEN, KNOWN, OPEN, TRUNK, UPLINK, v4, v6};
use crate::frames::{
    ALL_NODES, Arp, Icmp6, Outcome, UNSPECIFIED, group_mac, mac_of, on, option, padding, send,
    solicited_node, tagged,
};

const STATION: [u8; 4] = [10, 0, 1, 5];

/// Who says in an ARP reply that he is who, and to whom.
fn arp_of(frame: &[u8]) -> (Mac, [u8; 4], Mac, [u8; 4]) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Arp(arp)) = sliced.net else { panic!("{sliced:?}") };
    let arp = arp.to_packet().try_eth_ipv4().unwrap();
    assert_eq!(arp.operation, ArpOperation::REPLY);
    assert_eq!((&frame[..6], &frame[6..12]), (&arp.target_mac[..], &arp.sender_mac[..]));
    assert!(frame.len() == 60 && frame[42..].iter().all(|byte| *byte == 0), "padding shows old data");
    (Mac(arp.sender_mac), arp.sender_ipv4, Mac(arp.target_mac), arp.target_ipv4)
}

fn ask(port: PortId, target: [u8; 4]) -> Arp {
    let (subnet, host) = crate::checks::tenant::station(port);
    Arp::request(mac(host), v4(subnet, host), target)
}

#[test]
fn arp_for_a_gateway_address_gets_the_gateways_mac() {
    let answer = on(BOUND, &ask(BOUND, v4(1, 1)).frame()).answer();
    assert_eq!(arp_of(&answer), (GATEWAY, v4(1, 1), mac(5), STATION));
    // Unicast, as a host asks again before an entry expires.
    let unicast = Arp { dst: GATEWAY, ..ask(BOUND, v4(1, 1)) };
    assert_eq!(arp_of(&on(BOUND, &unicast.frame()).answer()).0, GATEWAY);
    let outcome = on(GREEN, &ask(GREEN, v4(2, 1)).frame());
    assert_eq!(outcome.seen.answers, [Answer::Arp(v4(2, 1).into())]);
    assert_eq!(arp_of(&outcome.answer()).1, v4(2, 1));
    on(GREEN, &ask(GREEN, v4(1, 1)).frame()).goes_on();
}

#[test]
fn arp_for_a_known_station_is_answered_in_its_place() {
    let answer = on(BOUND, &ask(BOUND, v4(1, KNOWN)).frame()).answer();
    assert_eq!(arp_of(&answer), (mac(KNOWN), v4(1, KNOWN), mac(5), STATION));
    on(BOUND, &ask(BOUND, v4(1, 200)).frame()).goes_on();
    // Whether it is still there, only the station itself knows.
    on(BOUND, &Arp { dst: mac(KNOWN), ..ask(BOUND, v4(1, KNOWN)) }.frame()).goes_on();
    // Asked for its own address, it stays silent for itself.
    on(OPEN, &ask(OPEN, v4(1, 6)).frame()).goes_on();
    on(OPEN, &Arp::request(mac(6), v4(1, 60), v4(1, 6)).frame()).goes_on();
}

#[test]
fn rfc_5227_a_probe_for_a_gateway_address_is_answered_and_others_are_the_owners_to_answer() {
    for port in [BOUND, OPEN] {
        let probe = Arp { sender: (mac_of(port), [0; 4]), ..ask(port, v4(1, 1)) };
        let outcome = on(port, &probe.frame());
        assert_eq!(outcome.seen.learned.len(), 1, "a probe tells no address, but the frame a MAC");
        assert_eq!(arp_of(&outcome.answer()), (GATEWAY, v4(1, 1), mac_of(port), [0; 4]));
    }
    on(OPEN, &Arp { sender: (mac(6), [0; 4]), ..ask(OPEN, v4(1, KNOWN)) }.frame()).goes_on();
}

#[test]
fn replies_and_gratuitous_requests_go_on() {
    on(BOUND, &Arp { operation: 2, ..ask(BOUND, v4(1, 1)) }.frame()).goes_on();
    on(BOUND, &ask(BOUND, STATION).frame()).goes_on();
    // An address that moved: who had it is not the answer.
    let moved = on(OPEN, &Arp::request(mac(6), v4(1, KNOWN), v4(1, KNOWN)).frame()).goes_on();
    assert_eq!(moved.seen.learned.last().unwrap().ip, Some(v4(1, KNOWN).into()));
}

#[test]
fn the_underlay_gets_no_arp_answer() {
    let request = ask(BOUND, v4(1, 1)).frame();
    let outcome = send(Input { vni: BLUE_VNI, ..Input::on(UPLINK, &request) }).goes_on();
    assert!(outcome.seen.answers.is_empty());
}

#[test]
fn a_trunk_is_answered_in_its_vlan() {
    let asked = tagged(BLUE_VLAN, &ask(TRUNK, v4(1, 1)).frame());
    let outcome = on(TRUNK, &asked);
    assert_eq!(outcome.vni, Some(BLUE_VNI));
    let request = Arp::request(mac(4), v4(2, 4), v4(2, 1));
    let outcome = on(TRUNK, &request.frame());
    assert_eq!((outcome.vni, arp_of(&outcome.answer()).1), (None, v4(2, 1)));
}

/// Flags, target, option and addresses of an advertisement.
fn advertised(frame: &[u8]) -> (u8, [u8; 16], Mac, [u8; 16]) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) = (&sliced.net, &sliced.transport)
    else {
        panic!("{sliced:?}")
    };
    assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.slice().len()), (136, 0, 32));
    assert_eq!((ip.header().hop_limit(), &icmp.slice()[24..26]), (255, &[2, 1][..]));
    let target: [u8; 16] = icmp.slice()[8..24].try_into().unwrap();
    assert_eq!(ip.header().source(), target);
    let mac = Mac(icmp.slice()[26..32].try_into().unwrap());
    assert_eq!(frame[6..12], mac.0);
    (icmp.slice()[4], target, mac, ip.header().destination())
}

fn solicit(target: [u8; 16]) -> Icmp6 {
    Icmp6::solicitation(mac(5), v6(1, 5), target)
}

#[test]
fn a_solicitation_for_the_gateway_gets_router_solicited_and_override() {
    for target in [v6(1, 1), link_local(GATEWAY)] {
        let outcome = on(BOUND, &solicit(target).frame());
        assert_eq!(outcome.seen.answers, [Answer::Nd(target.into())]);
        assert_eq!(advertised(&outcome.answer()), (0xe0, target, GATEWAY, v6(1, 5)));
        let mut unicast = solicit(target);
        (unicast.macs.0, unicast.dst) = (GATEWAY, target);
        assert_eq!(advertised(&on(BOUND, &unicast.frame()).answer()).0, 0xe0);
        // RFC 4861 section 4.3: without the option, the cache of the asker has the MAC already.
        unicast.body.truncate(16);
        assert_eq!(advertised(&on(BOUND, &unicast.frame()).answer()).3, v6(1, 5));
    }
    let from_link_local = Icmp6 { src: link_local(mac(5)), ..solicit(v6(1, 1)) };
    assert_eq!(advertised(&on(BOUND, &from_link_local.frame()).answer()).3, link_local(mac(5)));
}

#[test]
fn rfc_4861_7_2_4_a_probe_is_answered_to_all_nodes_without_solicited() {
    for port in [BOUND, OPEN] {
        let probe = Icmp6::solicitation(mac_of(port), UNSPECIFIED, v6(1, 1));
        let answer = on(port, &probe.frame()).answer();
        assert_eq!(advertised(&answer), (0xa0, v6(1, 1), GATEWAY, ALL_NODES));
        assert_eq!(answer[..6], group_mac(ALL_NODES).0);
    }
    on(OPEN, &Icmp6::solicitation(mac(6), UNSPECIFIED, v6(1, KNOWN)).frame()).goes_on();
}

#[test]
fn a_known_station_is_advertised_as_no_router_and_without_override() {
    let answer = on(BOUND, &solicit(v6(1, KNOWN)).frame()).answer();
    assert_eq!(advertised(&answer), (0x40, v6(1, KNOWN), mac(KNOWN), v6(1, 5)));
    on(BOUND, &solicit(v6(1, 200)).frame()).goes_on();
    let mut unicast = solicit(v6(1, KNOWN));
    (unicast.macs.0, unicast.dst) = (mac(KNOWN), v6(1, KNOWN));
    on(BOUND, &unicast.frame()).goes_on();
}

/// Neither answered nor learned from; a guarded port may still send it.
#[track_caller]
fn is_ignored(frame: &[u8]) {
    let outcome: Outcome = on(OPEN, frame).goes_on();
    assert!(outcome.seen.learned.iter().all(|seen| seen.ip.is_none()), "{:?}", outcome.seen.learned);
}

#[test]
fn rfc_4861_7_1_1_invalid_solicitations_are_not_answered() {
    let good = Icmp6::solicitation(mac(6), v6(1, 6), v6(1, 1));
    on(OPEN, &good.frame()).answer();
    for hop_limit in [0, 1, 64, 254] {
        is_ignored(&Icmp6 { hop_limit, ..good.clone() }.frame());
    }
    is_ignored(&Icmp6 { code: 1, ..good.clone() }.frame());
    let mut wrong_sum = good.frame();
    wrong_sum[14 + 42] ^= 1;
    is_ignored(&wrong_sum);
    let group = Icmp6 { body: [&ALL_NODES[..], &option(1, mac(6))].concat(), ..good.clone() };
    is_ignored(&group.frame());
    // From `::`, to another group than a solicited-node one, or with a source option.
    let probe = Icmp6::solicitation(mac(6), UNSPECIFIED, v6(1, 1));
    is_ignored(&Icmp6 { dst: ALL_NODES, ..probe.clone() }.frame());
    is_ignored(&Icmp6 { body: good.body.clone(), ..probe }.frame());
    // For another address than the one that its group is for.
    on(OPEN, &Icmp6 { dst: solicited_node(v6(1, 2)), ..good }.frame()).goes_on();
}

#[test]
fn rfc_4861_7_1_1_short_messages_and_options_without_length_are_refused() {
    let good = Icmp6::solicitation(mac(6), v6(1, 6), v6(1, 1));
    for body in [&good.body[..15], &good.body[..20], &[&good.body[..16], &[14, 0, 0, 0, 0, 0, 0, 0]].concat()]
    {
        let bad = Icmp6 { body: body.to_vec(), ..good.clone() };
        on(OPEN, &bad.frame()).dropped(DropReason::PortSecurityNd);
    }
}

#[test]
fn extension_headers_hide_no_answer() {
    let mut hidden = Icmp6::solicitation(mac(6), v6(1, 6), v6(1, 1));
    hidden.extensions.destination_options = Some(padding());
    is_ignored(&hidden.frame());
}

#[test]
fn bindings_of_local_stations_are_told() {
    let told = |outcome: Outcome| {
        let with_address: Vec<Learned> =
            outcome.seen.learned.into_iter().filter(|seen| seen.ip.is_some()).collect();
        with_address
    };
    let expected = |ip| {
        let at = Dest::Port(BOUND);
        vec![Learned { network: NetworkId(0), mac: mac(5), at, known: Some(at), ip: Some(ip) }]
    };
    assert_eq!(told(on(BOUND, &ask(BOUND, v4(1, 1)).frame())), expected(STATION.into()));
    assert_eq!(
        told(on(BOUND, &Arp { operation: 2, ..ask(BOUND, v4(1, 9)) }.frame())),
        expected(STATION.into())
    );
    assert_eq!(told(on(BOUND, &solicit(v6(1, 1)).frame())), expected(v6(1, 5).into()));
    let advertisement = Icmp6::advertisement(mac(5), v6(1, 5), v6(1, 5), mac(5));
    assert_eq!(told(on(BOUND, &advertisement.frame())), expected(v6(1, 5).into()));
    // From the underlay, and of somebody else's MAC, nothing.
    let request = ask(BOUND, v4(1, 1)).frame();
    assert_eq!(told(send(Input { vni: BLUE_VNI, ..Input::on(UPLINK, &request) })), []);
    let foreign = Arp { sender: (mac(77), v4(1, 6)), ..ask(OPEN, v4(1, 1)) };
    assert_eq!(told(on(OPEN, &foreign.frame()).goes_on()), []);
}
