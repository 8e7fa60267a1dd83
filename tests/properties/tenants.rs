//! Tenants stay apart. `checks::datapath` holds every output against the network it came from; here are the packets that
//! would cross if anything let them.

use flowrail::datapath::Verdict;
use flowrail::ids::PortId;
use flowrail::wire::drop::DropReason;
use flowrail::wire::ethernet::Mac;
use proptest::prelude::*;

use crate::checks::datapath::{Input, judge};
use crate::checks::oracle;
use crate::checks::site::{BLUE, BLUE_TOO, BLUE_VNI, RED, RED_VNI, Site, UPLINK, mac};
use crate::packets::{Checksum, Outer, site, tenant};

/// Endpoints of both networks, groups, nobody.
fn destination() -> impl Strategy<Value = Mac> {
    let known = [0x01, 0x11, 0x02, 0x03, 0x04, 0x05, 0x21, 0x22, 0x7f].map(mac);
    prop_oneof![
        prop::sample::select(known.to_vec()),
        Just(Mac::BROADCAST),
        Just(Mac([0x33, 0x33, 0, 0, 0, 1])),
        any::<[u8; 6]>().prop_map(Mac),
    ]
}

fn access_port() -> impl Strategy<Value = PortId> {
    prop::sample::select(vec![BLUE, BLUE_TOO, RED])
}

/// VXLAN as a tenant, or an attacker, may write it.
fn outer(site: Site) -> impl Strategy<Value = Outer> {
    let vni = prop_oneof![Just(BLUE_VNI), Just(RED_VNI), 0u32..1 << 24];
    let vlan = prop_oneof![4 => Just(site.vlan), 1 => Just(Some(9))];
    let dst = prop_oneof![6 => Just(1u8), 1 => Just(9)];
    let checksum =
        prop_oneof![6 => Just(Checksum::Right), 1 => Just(Checksum::Zero), 1 => Just(Checksum::Wrong)];
    (0u8..7, dst, vlan, any::<u8>(), vni, checksum).prop_map(move |(src, dst, vlan, tos, vni, checksum)| {
        Outer { src, dst, v6: site.v6, vlan, tos, vni, checksum }
    })
}

proptest! {
    #[test]
    fn no_packet_of_a_tenant_leaves_its_network(
        site in site(), port in access_port(), packet in destination().prop_flat_map(tenant),
    ) {
        let red = [0x21, 0x22].map(mac);
        let (verdict, _) = judge(&Input::whole(site, port, &packet.frame()));
        if port != RED && red.contains(&packet.dst) && !site.flood {
            prop_assert_eq!(verdict, Verdict::Drop(DropReason::UnknownUnicast));
        }
    }

    #[test]
    fn no_packet_of_the_underlay_reaches_another_network(
        (site, outer) in site().prop_flat_map(|site| (Just(site), outer(site))),
        packet in destination().prop_flat_map(tenant), cut in prop_oneof![2 => Just(usize::MAX), 1 => 0usize..80],
    ) {
        let inner = packet.frame();
        let frame = outer.wrap(&inner[..cut.min(inner.len())]);
        let (verdict, _) = judge(&Input::whole(site, UPLINK, &frame));
        let delivered = match verdict {
            Verdict::Forward(port) => Site::vni(port),
            Verdict::Replicate(to) => Some(to.vni.get()),
            _ => None,
        };
        prop_assert!(delivered.is_none_or(|vni| vni == outer.vni && outer.dst == 1), "{:?}", verdict);
        let ours = outer.dst == 1 && outer.vlan == site.vlan;
        if ours && outer.checksum == Checksum::Right && outer.src == 3 && outer.vni == RED_VNI {
            let foreign = Verdict::Drop(DropReason::SourceVtepNotInVni);
            prop_assert_eq!(verdict == foreign, !site.accept_unknown_vtep, "{:?}", verdict);
        }
        // One in 65536 is right by chance, or partial.
        let wrong = oracle::tunnel(&frame, site.vlan).is_some_and(|t| t.checksum == oracle::Checksum::Wrong);
        if ours && wrong && outer.src == 2 {
            prop_assert_eq!(verdict, Verdict::Drop(DropReason::UdpChecksumInvalid));
        }
    }

    /// A tenant that writes VXLAN, to one of our encap IPs or anywhere else, has written a payload.
    #[test]
    fn nothing_of_a_tenant_is_decapsulated(
        site in site(), forged in site().prop_flat_map(outer), inner in tenant(mac(0x21)), to in 1u8..4,
    ) {
        let mut frame = forged.wrap(&inner.frame());
        frame[..6].copy_from_slice(&mac(if to == 1 { 0x11 } else { to }).0);
        let (verdict, end) = judge(&Input::whole(site, BLUE, &frame));
        if forged.vlan.is_some() {
            prop_assert_eq!(verdict, Verdict::Drop(DropReason::InnerVlan));
        } else if to == 1 {
            prop_assert_eq!((verdict, end), (Verdict::Forward(BLUE_TOO), frame));
        } else if frame.len() <= site.max_inner_len() {
            prop_assert_eq!(verdict, Verdict::Forward(UPLINK));
            prop_assert_eq!(&end[site.outer_len()..], &frame);
        } else {
            prop_assert_eq!(verdict, Verdict::Drop(DropReason::EncapMtuExceeded));
        }
    }
}
