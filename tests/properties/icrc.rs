//! The invariant CRC of RoCEv2, from its definition (IBTA volume 1 annex A17.3.3), and what it says of forwarded packets.

use flowrail::datapath::Verdict;
use proptest::prelude::*;

use crate::checks::datapath::{Input, judge, run};
use crate::checks::oracle;
use crate::checks::site::{BLUE, Site, UPLINK, mac};
use crate::corpus::FRAMES;
use crate::packets::{roce, site, tenant_with};

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// Where the RoCEv2 packet of a frame begins and ends, and its UDP header. `None` for anything else.
fn parts(frame: &[u8]) -> Option<(usize, usize)> {
    let ip = frame.get(14..)?;
    let (udp, end) = match frame[12..14] {
        [8, 0] if ip[9] == 17 => (usize::from(ip[0] & 15) * 4, usize::from(ip[2]) << 8 | usize::from(ip[3])),
        [0x86, 0xdd] if ip[6] == 17 => (40, 40 + (usize::from(ip[4]) << 8 | usize::from(ip[5]))),
        _ => return None,
    };
    (ip.get(udp + 2..udp + 4)? == 4791u16.to_be_bytes() && end >= udp + 24).then_some((14 + udp, 14 + end))
}

/// The CRC over 8 bytes of ones, then headers and payload, with all that a router may change masked to ones.
fn icrc(frame: &[u8]) -> Option<u32> {
    let (udp, end) = parts(frame)?;
    let mut masked = frame[14..end - 4].to_vec();
    let ones: &[usize] = if masked[0] >> 4 == 4 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    if masked[0] >> 4 == 6 {
        masked[0] |= 0x0f;
    }
    let udp = udp - 14;
    for at in ones.iter().copied().chain([udp + 6, udp + 7, udp + 12]) {
        masked[at] = 0xff;
    }
    Some(crc32([0xff; 8].into_iter().chain(masked)))
}

/// Whether a frame is RoCEv2 with a right ICRC.
pub fn is_intact(frame: &[u8]) -> bool {
    parts(frame).is_some_and(|(_, end)| {
        icrc(frame).map(u32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice) == frame.get(end - 4..end)
    })
}

/// Makes a RoCEv2 frame complete: ICRC at the end, UDP checksum none, as soft-RoCE sends it.
pub fn seal(frame: &mut [u8]) {
    let (udp, end) = parts(frame).unwrap();
    frame[udp + 6..udp + 8].fill(0);
    let crc = icrc(frame).unwrap().to_le_bytes();
    frame[end - 4..end].copy_from_slice(&crc);
}

/// The frames of the corpus have the ICRC of another implementation.
#[test]
fn the_oracle_agrees_with_the_corpus() {
    let roce = FRAMES.iter().filter(|(case, frame)| case.starts_with("e_roce") && parts(frame).is_some());
    let intact = roce.map(|(case, frame)| assert!(is_intact(frame), "{case}")).count();
    assert!(intact >= 2, "only {intact} RoCEv2 frames in the corpus");
    assert_eq!(crc32("123456789".bytes()), 0xcbf4_3926);
}

/// Marks an encapsulated packet on its way: outer CE and another DSCP.
fn congest(frame: &mut [u8], site: &Site, dscp: u8) {
    let ip = if site.vlan.is_some() { 18 } else { 14 };
    let tos = dscp << 2 | 3;
    if site.v6 {
        frame[ip] = 0x60 | tos >> 4;
        frame[ip + 1] = frame[ip + 1] & 0x0f | tos << 4;
        return;
    }
    frame[ip + 1] = tos;
    frame[ip + 10..ip + 12].fill(0);
    let sum = oracle::sum(&[&frame[ip..ip + 20]]).to_ne_bytes();
    frame[ip + 10..ip + 12].copy_from_slice(&sum);
}

proptest! {
    /// A congested fabric marks the outer header; the mark must reach the NIC, and the ICRC must still be right.
    #[test]
    fn roce_arrives_intact_and_marked(
        site in site(), dscp in 0u8..64, packet in tenant_with(mac(0x02), roce(), 1024),
    ) {
        let sent = packet.frame();
        prop_assert!(is_intact(&sent));
        let (verdict, mut wire) = judge(&Input::whole(site, BLUE, &sent));
        prop_assert_eq!(verdict, Verdict::Forward(UPLINK));
        prop_assert!(is_intact(&wire[site.outer_len()..]), "encap broke the ICRC");
        congest(&mut wire, &site, dscp);
        let arrival = Input::whole(site, UPLINK, &wire);
        let peer = site.tables_of_peer(2);
        let (verdict, arrived) = run(&arrival, |p| flowrail::datapath::receive(&peer, &mut (), UPLINK, p));
        if packet.tos & 3 == 0 {
            // Nobody at the other end would hear the mark (RFC 6040).
            prop_assert!(matches!(verdict, Verdict::Drop(_)), "{:?}", verdict);
            return Ok(());
        }
        prop_assert!(matches!(verdict, Verdict::Forward(_)), "{:?}", verdict);
        prop_assert!(is_intact(&arrived), "decap broke the ICRC");
        let tos = if packet.v6 { arrived[14] << 4 | arrived[15] >> 4 } else { arrived[15] };
        prop_assert_eq!(tos & 3, 3, "CE was lost");
        prop_assert_eq!(tos >> 2, if site.uniform { dscp } else { packet.tos >> 2 });
    }
}
