//! Any frame of a station, true or not, through `checks::gateway`: nothing panics, whatever is answered is a whole packet for
//! the asker, and what a guarded port lets through claims nothing that is not the port's.

use etherparse::Ipv6Extensions;
use flowrail::ids::PortId;
use flowrail::tables::network::link_local;
use flowrail::wire::ethernet::Mac;
use proptest::prelude::*;

use crate::checks::gateway::{self, Input, Seen, judge};
use crate::checks::site::mac;
use crate::checks::tenant::{
    BLUE_VLAN, BLUE_VNI, BOUND, GATEWAY, GREEN, KNOWN, L3VNI, OPEN, PEER_ROUTER, PORTS, ROUTED, ROUTER,
    TRUNK, UPLINK, v4, v6,
};
use crate::frames::{
    ALL_NODES, Arp, Icmp6, UNSPECIFIED, group_mac, option, padding, solicited_node, tagged, udp4, udp6,
};

fn any_mac() -> impl Strategy<Value = Mac> {
    let known = [mac(5), mac(6), mac(7), mac(8), mac(KNOWN), GATEWAY, ROUTER, PEER_ROUTER, Mac::BROADCAST];
    prop_oneof![4 => Just(mac(5)), 4 => prop::sample::select(known.to_vec()), 1 => any::<[u8; 6]>().prop_map(Mac)]
}

fn any_v4() -> impl Strategy<Value = [u8; 4]> {
    let known =
        [v4(1, 5), v4(1, 6), v4(1, 1), v4(2, 1), v4(1, KNOWN), v4(2, 7), v4(9, ROUTED), v4(1, 77), [0; 4]];
    prop_oneof![3 => Just(v4(1, 5)), 4 => prop::sample::select(known.to_vec()), 1 => any::<[u8; 4]>()]
}

fn any_v6() -> impl Strategy<Value = [u8; 16]> {
    let known = [
        v6(1, 5),
        v6(1, 6),
        v6(1, 1),
        v6(2, 1),
        v6(1, KNOWN),
        v6(2, 7),
        v6(9, ROUTED),
        v6(1, 77),
        UNSPECIFIED,
        ALL_NODES,
        link_local(mac(5)),
        link_local(GATEWAY),
        solicited_node(v6(1, 1)),
        solicited_node(v6(1, KNOWN)),
    ];
    prop_oneof![3 => Just(v6(1, 5)), 4 => prop::sample::select(known.to_vec()), 1 => any::<[u8; 16]>()]
}

fn arp() -> impl Strategy<Value = Vec<u8>> {
    (any_mac(), any_mac(), 0u16..4, any_mac(), any_v4(), any_v4()).prop_map(
        |(dst, src, operation, mac, ip, target)| {
            Arp { dst, src, operation, sender: (mac, ip), target }.frame()
        },
    )
}

fn extensions() -> impl Strategy<Value = Ipv6Extensions> {
    let fragment = (prop_oneof![Just(0u16), 0u16..9], any::<bool>()).prop_map(|(offset, more)| {
        etherparse::Ipv6FragmentHeader::new(
            etherparse::IpNumber::IPV6_ICMP,
            offset.try_into().unwrap(),
            more,
            1,
        )
    });
    (any::<(bool, bool)>(), prop::option::weighted(0.3, fragment)).prop_map(|((hop, dst), fragment)| {
        Ipv6Extensions {
            hop_by_hop_options: hop.then(padding),
            destination_options: dst.then(padding),
            fragment,
            ..Default::default()
        }
    })
}

fn icmp6() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![6 => 133u8..138, 2 => 128u8..133, 1 => any::<u8>()];
    let hop_limit = prop_oneof![6 => Just(255u8), 1 => 0u8..3];
    let body = (
        any_v6(),
        prop::collection::vec((0u8..4, any_mac()), 0..3),
        prop::collection::vec(any::<u8>(), 0..9),
    )
        .prop_map(|(target, options, rest)| {
            let options: Vec<u8> = options.into_iter().flat_map(|(kind, mac)| option(kind, mac)).collect();
            let rest = if rest.len() > 6 { rest } else { vec![] };
            [&target[..], &options, &rest].concat()
        });
    let extensions = prop_oneof![2 => Just(Ipv6Extensions::default()), 1 => extensions()];
    let link = (any_mac(), any_mac(), any::<bool>());
    let code = prop_oneof![9 => Just(0u8), 1 => any::<u8>()];
    (link, any_v6(), any_v6(), kind, code, hop_limit, body, extensions).prop_map(
        |((dst_mac, src_mac, to_group), src, dst, kind, code, hop_limit, body, extensions)| {
            let dst_mac = if to_group { group_mac(dst) } else { dst_mac };
            let message = Icmp6::nd(kind, (dst_mac, src_mac), (src, dst), body);
            Icmp6 { hop_limit, code, extensions, ..message }.frame()
        },
    )
}

/// To be routed, with any TTL and any length.
fn routed() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![4 => 0usize..200, 1 => 0usize..9100];
    (any::<bool>(), any_mac(), (any_v4(), any_v4()), (any_v6(), any_v6()), 0u8..4, len, 0u8..8).prop_map(
        |(is_v6, src, four, six, ttl, len, dst)| {
            let mut frame =
                if is_v6 { udp6(src, six.0, six.1, ttl, len) } else { udp4(src, four.0, four.1, ttl, len) };
            match dst {
                0 => frame[..6].copy_from_slice(&mac(KNOWN).0),
                1 | 2 => frame[..6].copy_from_slice(&ROUTER.0),
                _ => {}
            }
            frame
        },
    )
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![arp(), icmp6(), routed()]
}

/// Bytes of a frame changed, and its end cut or grown.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((0usize..90, any::<u8>()), 0..4);
    (frame(), changes, prop_oneof![3 => Just(0isize), 1 => -40isize..40]).prop_map(
        |(mut frame, changes, by)| {
            for (at, byte) in changes {
                let at = at % frame.len();
                frame[at] = byte;
            }
            frame.resize(frame.len().saturating_add_signed(by).max(14), 0x3a);
            frame
        },
    )
}

fn port() -> impl Strategy<Value = PortId> {
    prop::sample::select(vec![BOUND, BOUND, BOUND, OPEN, GREEN, TRUNK, UPLINK])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_frame_of_a_station_keeps_the_rules(
        port in port(), frame in changed(), over_v6: bool, l3: bool, tag: bool,
        head_len in prop_oneof![3 => Just(usize::MAX), 1 => 60usize..400],
    ) {
        let vni = if l3 { L3VNI } else { BLUE_VNI };
        let frame = if tag && port == TRUNK { tagged(BLUE_VLAN, &frame) } else { frame };
        let _ = judge(&Input { port, vni, over_v6, head_len, frame: &frame }, &mut Seen::default());
    }

    #[test]
    fn any_bytes_keep_the_rules(bytes in prop::collection::vec(any::<u8>(), 0..200), port in 0u8..PORTS as u8) {
        let data = [&[port, 0], &bytes[..]].concat();
        gateway::check(&data);
        // As a frame of the guarded port's station, of each kind that is read further.
        for ethertype in [[8, 0], [8, 6], [0x86, 0xdd]] {
            let frame = [&GATEWAY.0[..], &mac(5).0, &ethertype, &bytes].concat();
            let _ = judge(&Input::on(BOUND, &frame), &mut Seen::default());
        }
    }
}
