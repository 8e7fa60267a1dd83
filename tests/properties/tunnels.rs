//! What fits the underlay arrives as it was sent. `checks::datapath` takes every encapsulated packet out again at a model
//! of the peer; here is which packets must get that far, and in how many UMEM frames.

use flowrail::datapath::Verdict;
use flowrail::wire::drop::DropReason;
use proptest::prelude::*;

use crate::checks::datapath::{Input, judge};
use crate::checks::site::{BLUE, Site, UPLINK, mac};
use crate::packets::{site, tenant};

/// A frame of any length and content for the endpoint behind peer 2, IP or not.
fn raw(len: usize, seed: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect();
    frame[..6].copy_from_slice(&mac(0x02).0);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0x0a, 1, 0x22, 0xf0]);
    frame
}

proptest! {
    #[test]
    fn every_ip_packet_that_fits_arrives(site in site(), packet in tenant(mac(0x02))) {
        let (verdict, _) = judge(&Input::whole(site, BLUE, &packet.frame()));
        prop_assert_eq!(verdict, Verdict::Forward(UPLINK));
    }

    #[test]
    fn the_mtu_is_the_only_bound(
        site in site(), seed: u8, shrink in prop_oneof![Just(0usize), 0usize..1400], head in 64usize..4000, piece in 1usize..4096,
    ) {
        let max = site.max_inner_len();
        let verdict = |len: usize| {
            let frame = raw(len, seed);
            let whole = Input::whole(site, BLUE, &frame);
            judge(&Input { head_len: head.min(len), piece, ..whole }).0
        };
        prop_assert_eq!(verdict(max - shrink), Verdict::Forward(UPLINK));
        prop_assert_eq!(verdict(max + 1), Verdict::Drop(DropReason::EncapMtuExceeded));
    }

    /// Where UMEM frames end changes nothing, as long as the headers are in the first.
    #[test]
    fn a_packet_is_the_same_in_one_frame_and_in_many(
        site in site(), packet in tenant(mac(0x02)), head in 128usize..1300, piece in 1usize..600, bare: bool,
    ) {
        let mut frame = packet.frame();
        if bare && !packet.v6 {
            bare_checksum(&mut frame);
        }
        let whole = Input::whole(site, BLUE, &frame);
        let cut = Input { head_len: head.min(frame.len()), piece, ..whole };
        prop_assert_eq!(judge(&cut), judge(&whole));
    }

    #[test]
    fn without_headroom_nothing_is_pushed(site in site(), packet in tenant(mac(0x02)), headroom in 0usize..80) {
        let frame = packet.frame();
        let (verdict, end) = judge(&Input { headroom, ..Input::whole(site, BLUE, &frame) });
        if headroom < site.outer_len() {
            prop_assert_eq!((verdict, end), (Verdict::Drop(DropReason::NoHeadroom), frame));
        } else {
            prop_assert_eq!(verdict, Verdict::Forward(UPLINK));
        }
    }
}

/// Leaves the checksum to a NIC, as a sender on a virtual link does.
fn bare_checksum(frame: &mut [u8]) {
    let (field, len) = (if frame[23] == 6 { 50 } else { 40 }, frame.len() - 34);
    let pseudo = [&frame[26..34], &[0, frame[23]], &(len as u16).to_be_bytes()].concat();
    let bare = !crate::checks::oracle::sum(&[&pseudo]);
    frame[field..field + 2].copy_from_slice(&bare.to_ne_bytes());
}

#[test]
fn the_shortest_frames_arrive_padded() {
    for bits in 0..512 {
        let site = Site::from_bits(bits);
        for len in 14..61 {
            let (verdict, _) = judge(&Input::whole(site, BLUE, &raw(len, 3)));
            assert_eq!(verdict, Verdict::Forward(UPLINK), "{len} bytes, {site:?}");
        }
    }
}
