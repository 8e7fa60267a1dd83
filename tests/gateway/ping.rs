//! Ping to gateway addresses: from ports of this host and through the L3VNI, whole and over several UMEM frames.

use etherparse::{IpHeaders, IpNumber, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use flowrail::datapath::{Answer, Verdict};
use flowrail::tables::network::link_local;
use flowrail::wire::drop::DropReason;

use crate::checks::gateway::Input;
use crate::checks::site::mac;
use crate::checks::tenant::{
    BLUE_VLAN, BLUE_VNI, BOUND, GATEWAY, KNOWN, L3VNI, OPEN, PEER_ROUTER, ROUTED, ROUTER, TRUNK, TRUNK_MTU,
    UNRESOLVED, UPLINK, v4, v6,
};
use crate::frames::{Icmp6, Outcome, mend4, on, padding, ping4, ping6, send, tagged};

/// The reply has swapped addresses and MACs and the same data; lengths and checksums were judged before.
#[track_caller]
fn is_reply(asked: &[u8], outcome: Outcome) {
    assert_eq!(outcome.seen.answers, [Answer::Echo]);
    let answer = outcome.answer();
    let sliced = SlicedPacket::from_ethernet(&answer).unwrap();
    let (kind, l4) = match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(_)), Some(TransportSlice::Icmpv4(icmp))) => {
            assert_eq!((&answer[26..30], &answer[30..34]), (&asked[30..34], &asked[26..30]));
            (icmp.type_u8(), 34)
        }
        (Some(NetSlice::Ipv6(_)), Some(TransportSlice::Icmpv6(icmp))) => {
            assert_eq!((&answer[22..38], &answer[38..54]), (&asked[38..54], &asked[22..38]));
            (icmp.type_u8(), 54)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(kind, if l4 == 34 { 0 } else { 129 });
    assert_eq!(answer[l4 + 4..asked.len()], asked[l4 + 4..]);
}

fn requests(len: usize) -> [Vec<u8>; 2] {
    [ping4(mac(5), v4(1, 5), v4(1, 1), len), ping6(mac(5), v6(1, 5), v6(1, 1), len)]
}

#[test]
fn a_local_station_gets_its_data_back_with_swapped_macs() {
    for len in [0, 1, 7, 56, 1472, 8952] {
        for asked in requests(len) {
            let outcome = on(BOUND, &asked);
            assert_eq!(outcome.frame[..12], [mac(5).0, GATEWAY.0].concat());
            is_reply(&asked, outcome);
        }
    }
}

#[test]
fn a_jumbo_ping_over_any_frames_is_the_same() {
    for asked in requests(8951) {
        for head_len in [128, 1000, 1001, 3840] {
            is_reply(&asked, send(Input { head_len, ..Input::on(BOUND, &asked) }));
        }
    }
}

#[test]
fn any_gateway_address_of_the_vrf_and_the_link_local_one_answer() {
    let other = ping4(mac(5), v4(1, 5), v4(2, 1), 8);
    is_reply(&other, on(BOUND, &other));
    let asked = ping6(mac(5), link_local(mac(5)), link_local(GATEWAY), 8);
    is_reply(&asked, on(BOUND, &asked));
    let asked = ping6(mac(5), v6(1, 5), link_local(GATEWAY), 8);
    is_reply(&asked, on(BOUND, &asked));
}

#[test]
fn a_trunk_gets_its_tag_back_and_no_more_than_its_mtu() {
    let asked = ping4(mac(8), v4(1, 8), v4(1, 1), 100);
    is_reply(&asked, on(TRUNK, &tagged(BLUE_VLAN, &asked)));
    let long = ping4(mac(8), v4(1, 8), v4(1, 1), usize::from(TRUNK_MTU));
    on(TRUNK, &tagged(BLUE_VLAN, &long)).dropped(DropReason::PortMtuExceeded);
}

/// As a peer routes a packet into the L3VNI.
fn routed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..12].copy_from_slice(&[ROUTER.0, PEER_ROUTER.0].concat());
    frame
}

#[test]
fn a_remote_station_is_answered_through_the_l3vni() {
    for over_v6 in [false, true] {
        for asked in
            [ping4(mac(9), v4(9, ROUTED), v4(1, 1), 80), ping6(mac(9), v6(9, ROUTED), v6(2, 1), 8000)]
                .map(routed)
        {
            for head_len in [usize::MAX, 300] {
                let outcome = send(Input { over_v6, head_len, ..Input::on(UPLINK, &asked) });
                assert_eq!(outcome.vni, Some(L3VNI));
                assert_eq!(outcome.frame[..12], [PEER_ROUTER.0, ROUTER.0].concat());
                is_reply(&asked, outcome);
            }
        }
    }
}

#[test]
fn a_remote_station_of_a_bridged_network_is_answered_in_it() {
    let asked = ping4(mac(KNOWN), v4(1, KNOWN), v4(1, 1), 80);
    let outcome = send(Input { vni: BLUE_VNI, ..Input::on(UPLINK, &asked) });
    assert_eq!(outcome.vni, Some(BLUE_VNI));
    assert_eq!(outcome.frame[..12], [mac(KNOWN).0, GATEWAY.0].concat());
    is_reply(&asked, outcome);
}

#[test]
fn a_reply_waits_for_its_next_hop_and_without_a_route_there_is_none() {
    let asked = routed(ping4(mac(9), v4(9, UNRESOLVED), v4(1, 1), 80));
    assert!(matches!(on(UPLINK, &asked).verdict, Verdict::Unresolved(..)));
    // No route, a source that lives here, a blackhole.
    for src in [v4(8, 8), v4(1, 5), v4(9, 66)] {
        on(UPLINK, &routed(ping4(mac(9), src, v4(1, 1), 80))).dropped(DropReason::ToGateway);
    }
}

#[test]
fn nothing_but_a_whole_right_echo_request_is_answered() {
    let [four, six] = requests(56);
    let edited = |frame: &[u8], at: usize, value: u8| {
        let mut frame = frame.to_vec();
        frame[at] = value;
        if frame[12] == 8 {
            mend4(&mut frame);
        }
        on(BOUND, &frame).dropped(DropReason::ToGateway);
    };
    edited(&four, 20, 0x20); // more fragments
    edited(&four, 23, 17); // UDP
    edited(&four, 34, 13); // timestamp request
    edited(&four, 35, 1); // a code
    edited(&four, 36, four[36] ^ 1); // the checksum
    edited(&six, 20, 17);
    edited(&six, 54, 129);
    edited(&six, 56, six[56] ^ 1);
    let mut header = etherparse::Ipv4Header::new(0, 3, IpNumber::ICMP, v4(1, 5), v4(1, 1)).unwrap();
    // An option that looks like an echo request.
    header.options = [8, 0, 0xf7, 0xff].into();
    let mut routed = Vec::new();
    let link = PacketBuilder::ethernet2(mac(5).0, GATEWAY.0).ip(IpHeaders::Ipv4(header, Default::default()));
    link.icmpv4_echo_request(1, 1).write(&mut routed, &[1; 8]).unwrap();
    on(BOUND, &routed).dropped(DropReason::ToGateway);
    let mut extended = Icmp6::nd(128, (GATEWAY, mac(5)), (v6(1, 5), v6(1, 1)), vec![1; 8]);
    on(BOUND, &extended.frame()).answer();
    extended.extensions.destination_options = Some(padding());
    on(BOUND, &extended.frame()).dropped(DropReason::ToGateway);
}

#[test]
fn what_follows_the_packet_is_not_sent_back() {
    let asked = ping4(mac(6), v4(1, 6), v4(1, 1), 4);
    let padded = [&asked[..], &[0xee; 30]].concat();
    let outcome = on(OPEN, &padded);
    assert!(outcome.frame.len() == 60 && outcome.frame[asked.len()..].iter().all(|byte| *byte == 0));
    is_reply(&asked, outcome);
}
