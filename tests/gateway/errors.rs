//! ICMP errors: when, about what, from whom, with how much of the packet. `checks::gateway` judges every checksum and quote.

use etherparse::{Icmpv4Slice, Icmpv6Slice, NetSlice, SlicedPacket, TransportSlice};
use flowrail::datapath::Answer;
use flowrail::wire::drop::{DropReason, Note};

use crate::checks::gateway::{Input, Seen, judge};
use crate::checks::site::mac;
use crate::checks::tenant::{
    BLUE_VLAN, BOUND, GATEWAY, GREEN, L3VNI, PEER_ROUTER, ROUTED, ROUTER, TRUNK, TRUNK_MTU, UNDERLAY_MTU,
    UNRESOLVED, UPLINK, v4, v6,
};
use crate::frames::{Icmp6, mend4, on, send, tagged, udp4, udp6};

const TTL: DropReason = DropReason::TtlExpired;

/// Type, code, the four bytes behind the checksum, source and destination, and length of the IP packet.
fn read(frame: &[u8]) -> (u8, u8, u32, Vec<u8>, usize) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let rest = |bytes: &[u8]| u32::from_be_bytes(bytes[4..8].try_into().unwrap());
    match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
            let icmp = Icmpv4Slice::from_slice(icmp.slice()).unwrap();
            let header = ip.header();
            assert_eq!((header.dcp().value() << 2, header.dont_fragment()), (0xc0, true), "RFC 1812 4.3.2.5");
            let len = usize::from(header.total_len());
            (icmp.type_u8(), icmp.code_u8(), rest(icmp.slice()), frame[26..34].to_vec(), len)
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
            let icmp = Icmpv6Slice::from_slice(icmp.slice()).unwrap();
            let len = 40 + usize::from(ip.header().payload_length());
            (icmp.type_u8(), icmp.code_u8(), rest(icmp.slice()), frame[22..54].to_vec(), len)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn time_exceeded_comes_from_the_gateway_of_the_network() {
    let outcome = on(BOUND, &udp4(mac(5), v4(1, 5), v4(2, 7), 1, 30));
    assert_eq!(
        (&outcome.seen.answers[..], &outcome.seen.notes[..]),
        (&[Answer::TimeExceeded][..], &[Note::IcmpSent][..])
    );
    let frame = outcome.error(TTL);
    assert_eq!(frame[..12], [mac(5).0, GATEWAY.0].concat());
    assert_eq!(read(&frame), (11, 0, 0, [v4(1, 1), v4(1, 5)].concat(), 28 + 20 + 8 + 30));
    let frame = on(GREEN, &udp6(mac(7), v6(2, 7), v6(1, 5), 1, 30)).error(TTL);
    assert_eq!(read(&frame), (3, 0, 0, [v6(2, 1), v6(2, 7)].concat(), 48 + 40 + 8 + 30));
}

#[test]
fn ttl_zero_gets_no_answer() {
    on(BOUND, &udp4(mac(5), v4(1, 5), v4(2, 7), 0, 30)).dropped(TTL);
    on(BOUND, &udp6(mac(5), v6(1, 5), v6(2, 7), 0, 30)).dropped(TTL);
}

#[test]
fn unreachable_tells_net_from_host() {
    let net = |frame: &[u8]| read(&on(BOUND, frame).error(DropReason::NoRouteInVrf));
    let host = |frame: &[u8]| read(&on(BOUND, frame).error(DropReason::NeighborUnknown));
    let (four, six) = (|dst| udp4(mac(5), v4(1, 5), dst, 9, 8), |dst| udp6(mac(5), v6(1, 5), dst, 9, 8));
    assert_eq!((net(&four(v4(7, 7))).0, net(&four(v4(7, 7))).1), (3, 0));
    assert_eq!((net(&six(v6(7, 7))).0, net(&six(v6(7, 7))).1), (1, 0));
    assert_eq!((host(&four(v4(2, 77))).0, host(&four(v4(2, 77))).1), (3, 1));
    assert_eq!((host(&six(v6(2, 77))).0, host(&six(v6(2, 77))).1), (1, 3));
    on(BOUND, &four(v4(9, 66))).dropped(DropReason::Blackhole);
}

#[test]
fn rfc_1191_too_big_tells_the_mtu_with_df_and_without() {
    for flags in [0x40, 0] {
        let mut long = udp4(mac(5), v4(1, 5), v4(1, 8), 9, 1500);
        long[20] = flags;
        mend4(&mut long);
        let outcome = on(BOUND, &long);
        assert_eq!(outcome.seen.answers, [Answer::TooBig(TRUNK_MTU)]);
        let frame = outcome.error(DropReason::PortMtuExceeded);
        assert_eq!(read(&frame), (3, 4, u32::from(TRUNK_MTU), [v4(1, 1), v4(1, 5)].concat(), 576));
    }
    let frame = on(BOUND, &udp6(mac(5), v6(1, 5), v6(1, 8), 9, 1500)).error(DropReason::PortMtuExceeded);
    assert_eq!(read(&frame), (2, 0, u32::from(TRUNK_MTU), [v6(1, 1), v6(1, 5)].concat(), 1280));
}

#[test]
fn the_mtu_of_the_way_through_the_tunnel_is_the_underlays_less_its_headers() {
    for (over_v6, overhead) in [(false, 50), (true, 70)] {
        for head_len in [usize::MAX, 128, 301] {
            let long = udp4(mac(5), v4(1, 5), v4(9, ROUTED), 9, 8990);
            let input = Input { over_v6, head_len, ..Input::on(BOUND, &long) };
            let frame = send(input).error(DropReason::EncapMtuExceeded);
            assert_eq!(read(&frame).2, u32::from(UNDERLAY_MTU - overhead));
            let long = udp6(mac(5), v6(1, 5), v6(9, ROUTED), 9, 8990);
            let frame = send(Input { frame: &long, ..input }).error(DropReason::EncapMtuExceeded);
            assert_eq!((read(&frame).2, read(&frame).4), (u32::from(UNDERLAY_MTU - overhead), 1280));
        }
    }
}

#[test]
fn a_trunk_is_told_in_its_vlan() {
    let frame = udp4(mac(8), v4(1, 8), v4(2, 7), 1, 8);
    assert_eq!(read(&on(TRUNK, &tagged(BLUE_VLAN, &frame)).error(TTL)).0, 11);
}

#[test]
fn a_remote_source_is_told_through_the_vrf_by_its_own_address() {
    for over_v6 in [false, true] {
        let ends = [(v4(9, ROUTED).to_vec(), v4(1, 1).to_vec()), (v6(9, ROUTED).to_vec(), v6(1, 1).to_vec())];
        let frames =
            [udp4(mac(9), v4(9, ROUTED), v4(1, 5), 1, 900), udp6(mac(9), v6(9, ROUTED), v6(1, 5), 1, 900)];
        for (mut frame, (src, own)) in frames.into_iter().zip(ends) {
            frame[..12].copy_from_slice(&[ROUTER.0, PEER_ROUTER.0].concat());
            let outcome = send(Input { over_v6, ..Input::on(UPLINK, &frame) });
            assert_eq!(
                (outcome.vni, &outcome.frame[..12]),
                (Some(L3VNI), &[PEER_ROUTER.0, ROUTER.0].concat()[..])
            );
            assert_eq!(read(&outcome.error(TTL)).3, [own, src].concat());
        }
    }
}

#[test]
fn without_a_way_back_the_packet_is_just_dropped() {
    for src in [v4(9, UNRESOLVED), v4(8, 8), v4(1, 5)] {
        let mut frame = udp4(mac(9), src, v4(1, 6), 1, 8);
        frame[..12].copy_from_slice(&[ROUTER.0, PEER_ROUTER.0].concat());
        let outcome = on(UPLINK, &frame).dropped(TTL);
        assert!(outcome.seen.answers.is_empty() && !outcome.seen.notes.contains(&Note::IcmpSent));
    }
}

#[test]
fn rfc_1122_3_2_2_nothing_is_said_about_errors_and_later_fragments() {
    let base = udp4(mac(5), v4(1, 5), v4(2, 7), 1, 40);
    let edited = |edits: &[(usize, u8)]| {
        let mut frame = base.clone();
        edits.iter().for_each(|(at, value)| frame[*at] = *value);
        mend4(&mut frame);
        on(BOUND, &frame)
    };
    for kind in [3, 4, 5, 11, 12] {
        edited(&[(23, 1), (34, kind)]).dropped(TTL);
    }
    for kind in [0, 8, 13] {
        edited(&[(23, 1), (34, kind)]).error(TTL);
    }
    edited(&[(20, 0x20), (21, 0)]).error(TTL);
    edited(&[(20, 0x20), (21, 1)]).dropped(TTL);
    edited(&[(20, 0), (21, 1)]).dropped(TTL);
}

#[test]
fn rfc_4443_2_4_e_nothing_is_said_about_errors_wherever_they_hide() {
    let icmp = |kind| {
        let mut icmp = Icmp6::nd(kind, (GATEWAY, mac(5)), (v6(1, 5), v6(2, 7)), vec![0; 40]);
        icmp.hop_limit = 1;
        icmp
    };
    for kind in [1, 2, 3, 4, 100, 127] {
        on(BOUND, &icmp(kind).frame()).dropped(TTL);
        let mut hidden = icmp(kind);
        hidden.extensions.destination_options = Some(crate::frames::padding());
        on(BOUND, &hidden.frame()).dropped(TTL);
    }
    on(BOUND, &icmp(128).frame()).error(TTL);
    let mut fragment = icmp(128).frame();
    fragment[20] = 44;
    fragment[54..62].copy_from_slice(&[58, 0, 0, 8, 0, 0, 0, 1]);
    on(BOUND, &fragment).dropped(TTL);
    fragment[57] = 1;
    fragment[62] = 128;
    on(BOUND, &fragment).error(TTL);
}

#[test]
fn the_rate_of_errors_is_kept() {
    let mut seen = Seen { silent: true, ..Seen::default() };
    let frame = udp4(mac(5), v4(1, 5), v4(2, 7), 1, 30);
    let (verdict, _) = judge(&Input::on(BOUND, &frame), &mut seen);
    assert_eq!((verdict, &seen.notes[..]), (TTL.into(), &[Note::IcmpSuppressed][..]));
    // What is never answered takes nothing of the rate.
    let mut seen = Seen { silent: true, ..Seen::default() };
    let frame = udp4(mac(5), v4(1, 5), v4(2, 7), 0, 30);
    let (verdict, _) = judge(&Input::on(BOUND, &frame), &mut seen);
    assert_eq!(verdict, TTL.into());
    assert!(seen.notes.is_empty());
}
