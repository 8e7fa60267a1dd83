//! The parsers and editors of `wire`, held against etherparse or against the rule written out a second time.

use etherparse::{
    Ethernet2HeaderSlice, Ipv4HeaderSlice, Ipv6HeaderSlice, UdpHeaderSlice, checksum::Sum16BitWords,
};
use flowrail::wire::checksum::{Sum, pseudo_header};
use flowrail::wire::drop::DropReason;
use flowrail::wire::ethernet::{self, Mac};
use flowrail::wire::packet::{Layout, Packet};
use flowrail::wire::{ipv4, ipv6, roce, udp, vxlan};

/// Ethernet header and MAC text.
pub fn ethernet(data: &[u8]) {
    let parsed = ethernet::Header::parse(data);
    let expected = Ethernet2HeaderSlice::from_slice(data).ok();
    assert_eq!(parsed.is_some(), expected.is_some());
    if let (Some(parsed), Some(expected)) = (parsed, expected) {
        assert_eq!(parsed.dst.0, expected.destination());
        assert_eq!(parsed.src.0, expected.source());
        assert_eq!(parsed.ethertype.0, expected.ether_type().0);
        assert_eq!(parsed.dst.to_string().parse(), Ok(parsed.dst));
        assert_eq!(parsed.dst.to_u64().to_be_bytes()[2..], parsed.dst.0);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(mac) = text.parse::<Mac>()
    {
        assert_eq!(mac.to_string(), text.to_ascii_lowercase());
    }
}

/// IPv4 header and TOS edit.
pub fn ipv4(data: &[u8]) {
    let parsed = ipv4::Header::parse(data);
    let expected = Ipv4HeaderSlice::from_slice(data).ok();
    // etherparse also refuses a total length below the header's, which is a later step here.
    assert!(parsed.is_some() || expected.is_none());
    let Some(parsed) = parsed else { return };
    assert!((20..=60).contains(&parsed.header_len) && parsed.header_len <= data.len());
    let Some(expected) = expected else { return };
    assert_eq!(parsed.header_len, expected.slice().len());
    assert_eq!(parsed.tos, expected.dcp().value() << 2 | expected.ecn().value());
    assert_eq!(parsed.total_len, expected.total_len());
    assert_eq!(parsed.is_fragment(), expected.is_fragmenting_payload());
    assert_eq!(parsed.fragment_offset, expected.fragments_offset().value());
    assert_eq!(parsed.protocol, expected.protocol().0);
    assert_eq!((parsed.src, parsed.dst), (expected.source(), expected.destination()));
    let valid = Sum16BitWords::new().add_slice(expected.slice()).ones_complement() == 0;
    assert_eq!(ipv4::checksum_is_valid(data, parsed.header_len), valid);
    edit_tos(data, &parsed);
}

/// A new TOS changes TOS and checksum alone, and neither repairs nor breaks the checksum.
fn edit_tos(data: &[u8], parsed: &ipv4::Header) {
    let mut edited = data.to_vec();
    let tos = !parsed.tos;
    ipv4::set_tos(&mut edited, tos);
    assert_eq!(ipv4::Header::parse(&edited), Some(ipv4::Header { tos, ..*parsed }));
    let was = ipv4::checksum_is_valid(data, parsed.header_len);
    assert_eq!(ipv4::checksum_is_valid(&edited, parsed.header_len), was);
    assert_eq!((edited[0], &edited[2..10], &edited[12..]), (data[0], &data[2..10], &data[12..]));
}

/// IPv6 header, extension headers and traffic class edit.
pub fn ipv6(data: &[u8]) {
    let parsed = ipv6::Header::parse(data);
    let expected = Ipv6HeaderSlice::from_slice(data).ok();
    assert_eq!(parsed.is_some(), expected.is_some());
    let (Some(parsed), Some(expected)) = (parsed, expected) else { return };
    assert_eq!(parsed.traffic_class, expected.traffic_class());
    assert_eq!(parsed.flow_label, expected.flow_label().value());
    assert_eq!(parsed.payload_len, expected.payload_length());
    assert_eq!(parsed.next_header, expected.next_header().0);
    assert_eq!((parsed.src, parsed.dst), (expected.source(), expected.destination()));
    assert_eq!(ipv6::upper_layer(data, parsed.next_header), upper_layer(data, parsed.next_header));
    let mut edited = data.to_vec();
    let traffic_class = !parsed.traffic_class;
    ipv6::set_traffic_class(&mut edited, traffic_class);
    assert_eq!(ipv6::Header::parse(&edited), Some(ipv6::Header { traffic_class, ..parsed }));
    assert_eq!(edited[4..], data[4..]);
}

/// RFC 8200 section 4, header by header.
fn upper_layer(data: &[u8], first: u8) -> Option<ipv6::Upper> {
    let mut upper = ipv6::Upper { protocol: first, offset: 40, first_fragment: false, later_fragment: false };
    for walked in 0.. {
        let header = data.get(upper.offset..).unwrap_or_default();
        match upper.protocol {
            0 | 44 | 60 if walked == 6 || header.len() < 8 => return None,
            0 | 60 => upper.offset += (usize::from(header[1]) + 1) * 8,
            44 => {
                let field = u16::from_be_bytes([header[2], header[3]]);
                upper.offset += 8;
                upper.later_fragment = field >> 3 != 0;
                upper.first_fragment |= field >> 3 == 0 && field & 1 == 1;
            }
            _ => return Some(upper),
        }
        upper.protocol = header[0];
        if upper.later_fragment {
            return Some(upper);
        }
    }
    None
}

/// UDP header.
pub fn udp(data: &[u8]) {
    let parsed = udp::Header::parse(data);
    let expected = UdpHeaderSlice::from_slice(data).ok();
    assert_eq!(parsed.is_some(), expected.is_some());
    if let (Some(parsed), Some(expected)) = (parsed, expected) {
        assert_eq!(parsed.src, expected.source_port());
        assert_eq!(parsed.dst, expected.destination_port());
        assert_eq!(parsed.len, expected.length());
        assert_eq!(u16::from_be_bytes(parsed.checksum), expected.checksum());
    }
}

/// VXLAN header (RFC 7348 section 5).
pub fn vxlan(data: &[u8]) {
    let expected = match data {
        [flags, ..] if data.len() >= 8 && flags & 0x08 == 0 => Err(DropReason::VniFlagClear),
        [flags, ..] if data.len() >= 8 && flags & 0x04 != 0 => Err(DropReason::GpeNotSupported),
        [flags, r0, r1, r2, v0, v1, v2, r3, ..] => {
            let vni = u32::from(*v0) << 16 | u32::from(*v1) << 8 | u32::from(*v2);
            Ok((vni, [*flags, *r0, *r1, *r2, *r3] != [8, 0, 0, 0, 0]))
        }
        _ => Err(DropReason::VxlanTruncated),
    };
    let parsed = vxlan::Header::parse(data);
    assert_eq!(parsed.map(|header| (header.vni.get(), header.reserved_bits)), expected);
    if let Ok(header) = parsed {
        let sent = vxlan::encode(header.vni);
        assert_eq!(vxlan::Header::parse(&sent), Ok(vxlan::Header { reserved_bits: false, ..header }));
    }
}

/// RoCEv2 base transport header.
pub fn roce(data: &[u8]) {
    let number = |at: usize| u32::from_be_bytes([0, data[at], data[at + 1], data[at + 2]]);
    let expected = (data.len() >= 12).then(|| (data[0], number(5), number(9)));
    assert_eq!(roce::Bth::parse(data).map(|bth| (bth.opcode, bth.dest_qp, bth.psn)), expected);
}

/// The Internet checksum, in one piece and in two, and with a pseudo-header. The first byte says where to cut.
pub fn checksum(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let expected = Sum16BitWords::new().add_slice(bytes).ones_complement();
    assert_eq!(Sum::ZERO.bytes(bytes).finish(), expected.to_ne_bytes());
    let (a, b) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let sum = Sum::ZERO.bytes(a);
    let sum = if a.len() % 2 == 0 { sum.bytes(b) } else { sum.bytes_at_odd(b) };
    assert_eq!(sum.finish(), expected.to_ne_bytes());
    assert_eq!(sum.is_valid(), expected == 0);
    if let Some((addresses, payload)) = bytes.split_first_chunk::<8>() {
        let (src, dst) = addresses.split_at(4);
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let expected = Sum16BitWords::new()
            .add_slice(src)
            .add_slice(dst)
            .add_2bytes([0, 17])
            .add_2bytes(length.to_be_bytes())
            .add_slice(payload)
            .to_ones_complement_with_no_zero();
        let sum = pseudo_header(src, dst, 17, u32::from(length)).bytes(payload);
        assert_eq!(sum.finish_udp(), expected.to_ne_bytes());
    }
}

/// A packet over several frames, held against a plain vector through any sequence of edits: bytes of the packet are
/// those of the vector, all others stay as they were.
pub fn packet(data: &[u8]) {
    let Some(([size, start, len, first, ops @ ..], bytes)) = data.split_first_chunk::<12>() else { return };
    let mut buffer: Vec<u8> = (0..size.to_owned()).map(|i| i ^ 0x5a).collect();
    let old = buffer.clone();
    let (a, b) = bytes.split_at(usize::from(*first).min(bytes.len()));
    let tail = [a, b];
    let mut packet = Packet::new(&mut buffer, usize::from(*start), usize::from(*len), &tail);
    let mut model = [packet.head(), bytes].concat();
    let mut touched = range(&packet);
    for op in ops {
        let n = usize::from(op >> 2);
        match op & 3 {
            0 if packet.push_front(&[*op; 7]).is_ok() => drop(model.splice(0..0, [*op; 7])),
            0 => {}
            1 => {
                let fits = n <= packet.head().len();
                assert_eq!(packet.pop_front(n), fits);
                model.drain(..if fits { n } else { 0 });
            }
            2 => {
                packet.truncate(n * 8);
                model.truncate(n * 8);
            }
            _ => {
                packet.pad_to_minimum();
                model.resize(packet.len(), 0);
            }
        }
        assert_eq!(packet.len(), model.len());
        assert_eq!(packet.is_empty(), model.is_empty());
        same_sum(&packet, &model, n);
        let range = range(&packet);
        touched = touched.start.min(range.start)..touched.end.max(range.end);
    }
    let (range, tail_len) = (range(&packet), packet.layout().tail_len);
    assert_eq!([&buffer[range], &bytes[..tail_len]].concat(), model);
    for (i, (now, then)) in buffer.iter().zip(&old).enumerate().filter(|(i, _)| !touched.contains(i)) {
        assert_eq!(now, then, "byte {i} is not the packet's");
    }
}

/// Where the packet is in the buffer of its first frame.
fn range(packet: &Packet<'_>) -> std::ops::Range<usize> {
    let Layout { start, head_len, .. } = packet.layout();
    start..start + head_len
}

fn same_sum(packet: &Packet<'_>, model: &[u8], offset: usize) {
    let len = model.len().saturating_sub(offset);
    if let Some(sum) = packet.sum(offset, len) {
        assert_eq!(sum.finish(), Sum::ZERO.bytes(&model[offset.min(model.len())..]).finish());
        assert!(packet.sum(offset, len + 1).is_none());
    } else {
        assert!(offset > packet.head().len());
    }
}
