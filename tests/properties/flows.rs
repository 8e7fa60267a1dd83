//! Entropy: the outer source port is one for all packets of a flow, and another for another flow or QP.

use std::collections::HashSet;

use flowrail::datapath::{self, Verdict};
use flowrail::wire::packet::Packet;
use proptest::prelude::*;

use crate::checks::datapath::{Input, judge, run};
use crate::checks::site::{BLUE, Site, UPLINK, mac};
use crate::packets::{Layer4, Tenant, site, tenant};

/// The outer source port that a packet gets.
fn source_port(site: Site, packet: &Tenant) -> u16 {
    source_port_of(site, &packet.frame())
}

fn source_port_of(site: Site, frame: &[u8]) -> u16 {
    let (verdict, end) = judge(&Input::whole(site, BLUE, frame));
    assert_eq!(verdict, Verdict::Forward(UPLINK));
    let udp = site.outer_len() - 16;
    u16::from_be_bytes([end[udp], end[udp + 1]])
}

proptest! {
    #[test]
    fn a_flow_keeps_its_source_port(
        site in site(), packet in tenant(mac(0x02)), tos: u8, ttl: u8, len in 0usize..1200, psn in 0u32..1 << 24,
    ) {
        let mut later = Tenant { tos, ttl, payload: vec![0x5a; len], ..packet.clone() };
        if let Layer4::Roce { psn: old, .. } = &mut later.layer4 {
            *old = psn;
        }
        prop_assert_eq!(source_port(site, &packet), source_port(site, &later));
    }

    /// Only the first fragment has ports, so none may count them.
    #[test]
    fn fragments_keep_together(site in site(), packet in tenant(mac(0x02)), offset in 1u16..100, first: u16) {
        let mut packet = Tenant { v6: false, ..packet };
        packet.payload.resize(packet.payload.len().max(64), 1);
        let fragment = |field: u16, start: u16| {
            let mut frame = packet.frame();
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            frame[34..36].copy_from_slice(&start.to_be_bytes());
            frame
        };
        let head = source_port_of(site, &fragment(0x2000, first));
        prop_assert_eq!(source_port_of(site, &fragment(0x2000 | offset, !first)), head);
        prop_assert_eq!(source_port_of(site, &fragment(offset, first.rotate_left(3))), head);
    }
}

/// No pair of hosts is unlucky: 64 draws from 16384 ports collide in one of eight tries, and never in many of them.
#[test]
fn queue_pairs_in_a_row_spread_for_every_pair_of_hosts() {
    let site = Site::from_bits(0);
    let tables = site.tables();
    for (v6, host) in [false, true].into_iter().flat_map(|v6| (0..1024u16).map(move |host| (v6, host))) {
        let ports: HashSet<u16> = (0..64)
            .map(|qp| Tenant {
                dst: mac(0x02),
                v6,
                tos: 0,
                ttl: 64,
                addresses: ((host & 31) as u8, (host >> 5) as u8),
                layer4: Layer4::Roce { src: 0xc001, qp: 0x11 + qp, psn: 0 },
                payload: Vec::new(),
            })
            .map(|packet| {
                let frame = packet.frame();
                let push = |p: &mut Packet<'_>| datapath::receive(&tables, &mut (), BLUE, p);
                let (_, end) = run(&Input::whole(site, BLUE, &frame), push);
                u16::from_be_bytes([end[34], end[35]])
            })
            .collect();
        assert!(ports.len() >= 58, "{} ports for 64 queue pairs of pair {host}, IPv6 {v6}", ports.len());
    }
}
