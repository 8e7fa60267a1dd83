//! RoCEv2 frames as bytes: building the ones the probe sends, reading the ones it receives or finds in a capture.

use std::net::IpAddr;

use crate::icrc::icrc;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// UDP destination port of VXLAN.
const VXLAN_PORT: u16 = 4789;
/// Bytes of the base transport header.
const BTH: usize = 12;
/// Bytes of the ICRC.
const ICRC: usize = 4;
/// A sent payload starts with the time stamp (8 B, ns) and the TOS byte as sent.
const STAMP: usize = 9;

pub type Mac = [u8; 6];

/// What stays the same for every frame of one queue pair.
#[derive(Clone, Debug)]
pub struct Flow {
    pub from_mac: Mac,
    pub to_mac: Mac,
    pub from: IpAddr,
    pub to: IpAddr,
    pub source_port: u16,
    pub qp: u32,
    /// TOS or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Payload bytes per frame, the path MTU of the queue pair.
    pub path_mtu: usize,
}

/// Opcodes of an RC SEND message of four frames: first, middle, middle, last.
fn opcode(psn: u32) -> u8 {
    [0x00, 0x01, 0x01, 0x02][psn as usize % 4]
}

impl Flow {
    /// Writes frame number `psn`, stamped with `now` (ns), into `out`.
    pub fn build(&self, psn: u32, now: u64, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.extend_from_slice(&self.to_mac);
        out.extend_from_slice(&self.from_mac);
        let udp_len = (8 + BTH + self.path_mtu + ICRC) as u16;
        let ip_at = 14;
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend_from_slice(&[0x08, 0x00, 0x45, self.tos]);
                out.extend_from_slice(&(20 + udp_len).to_be_bytes());
                out.extend_from_slice(&(psn.wrapping_add(1) as u16).to_be_bytes());
                // DF, offset 0, TTL 64, UDP, checksum filled below.
                out.extend_from_slice(&[0x40, 0, 64, 17, 0, 0]);
                out.extend_from_slice(&from.octets());
                out.extend_from_slice(&to.octets());
                let sum = internet_checksum(&out[ip_at..]);
                out[ip_at + 10..ip_at + 12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let word = 6 << 28 | u32::from(self.tos) << 20;
                out.extend_from_slice(&[0x86, 0xdd]);
                out.extend_from_slice(&word.to_be_bytes());
                out.extend_from_slice(&udp_len.to_be_bytes());
                out.extend_from_slice(&[17, 64]);
                out.extend_from_slice(&from.octets());
                out.extend_from_slice(&to.octets());
            }
            (from, to) => return Err(format!("--from {from} and --to {to} are of different IP versions")),
        }
        let udp_at = out.len();
        out.extend_from_slice(&self.source_port.to_be_bytes());
        out.extend_from_slice(&ROCE_PORT.to_be_bytes());
        out.extend_from_slice(&udp_len.to_be_bytes());
        // RoCEv2 over UDP carries no checksum: the ICRC does that work.
        out.extend_from_slice(&[0, 0]);
        let ib_at = out.len();
        let op = opcode(psn);
        out.extend_from_slice(&[op, 0x00, 0xff, 0xff]);
        out.extend_from_slice(&(self.qp & 0xff_ffff).to_be_bytes());
        // The last frame of a message asks for an acknowledgement.
        out.extend_from_slice(&(u32::from(op == 0x02) << 31 | psn & 0xff_ffff).to_be_bytes());
        out.extend_from_slice(&now.to_be_bytes());
        out.push(self.tos);
        out.resize(ib_at + BTH + self.path_mtu, psn as u8);
        push_icrc(out, ip_at, udp_at, ib_at)
    }
}

fn push_icrc(frame: &mut Vec<u8>, ip_at: usize, udp_at: usize, ib_at: usize) -> Result<(), String> {
    let udp = frame[udp_at..].first_chunk().ok_or("frame ends inside the UDP header")?;
    let crc = icrc(&frame[ip_at..udp_at], udp, &frame[ib_at..]).ok_or("headers too short for an ICRC")?;
    frame.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// RFC 1071 sum over an IPv4 header whose checksum field is zero.
fn internet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A RoCEv2 packet found in a frame, bare or inside one VXLAN header.
#[derive(Debug)]
pub struct Roce<'a> {
    /// TOS and UDP source port of the outer header when the frame is VXLAN.
    pub outer: Option<(u8, u16)>,
    pub tos: u8,
    pub udp_checksum: u16,
    pub opcode: u8,
    pub qp: u32,
    pub psn: u32,
    /// Whether the ICRC of the packet is the one its bytes ask for.
    pub icrc_ok: bool,
    payload: &'a [u8],
    offsets: Offsets,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    ip: usize,
    udp: usize,
    ib: usize,
    end: usize,
}

impl<'a> Roce<'a> {
    /// Reads `frame`; `None` when it is not RoCEv2, cut short, or a fragment.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        Self::parse_at(frame, 0, None)
    }

    fn parse_at(frame: &'a [u8], start: usize, outer: Option<(u8, u16)>) -> Option<Self> {
        let mut ip = start + 14;
        let mut ethertype = be16(frame, start + 12)?;
        while matches!(ethertype, 0x8100 | 0x88a8) {
            ethertype = be16(frame, ip + 2)?;
            ip += 4;
        }
        let (udp, end, tos) = match ethertype {
            0x0800 => {
                let fragment = be16(frame, ip + 6)? & 0x3fff != 0;
                if *frame.get(ip + 9)? != 17 || fragment {
                    return None;
                }
                let header = usize::from(frame.get(ip)? & 0x0f) * 4;
                (ip + header, ip + usize::from(be16(frame, ip + 2)?), *frame.get(ip + 1)?)
            }
            0x86dd if *frame.get(ip + 6)? == 17 => {
                let class = (be16(frame, ip)? >> 4) as u8;
                (ip + 40, ip + 40 + usize::from(be16(frame, ip + 4)?), class)
            }
            _ => return None,
        };
        let source_port = be16(frame, udp)?;
        match be16(frame, udp + 2)? {
            VXLAN_PORT if outer.is_none() => {
                return Self::parse_at(frame, udp + 16, Some((tos, source_port)));
            }
            ROCE_PORT => {}
            _ => return None,
        }
        let ib = udp + 8;
        let body = frame.get(ib..end)?;
        let (body, found) = body.split_last_chunk::<ICRC>()?;
        let bth: &[u8; BTH] = body.first_chunk()?;
        let expected = icrc(frame.get(ip..udp)?, frame.get(udp..)?.first_chunk()?, body)?;
        Some(Self {
            outer,
            tos,
            udp_checksum: be16(frame, udp + 6)?,
            opcode: bth[0],
            qp: u32::from_be_bytes([0, bth[5], bth[6], bth[7]]),
            psn: u32::from_be_bytes([0, bth[9], bth[10], bth[11]]),
            icrc_ok: u32::from_le_bytes(*found) == expected,
            payload: &body[BTH..],
            offsets: Offsets { ip, udp, ib, end },
        })
    }

    /// When and with which TOS a frame of this probe was sent; `None` for another's frame.
    pub fn stamp(&self) -> Option<(u64, u8)> {
        let (time, rest) = self.payload.get(..STAMP)?.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*time), *rest.first()?))
    }

    /// Turns a bare frame round to its sender: addresses and ports swapped, ICRC made right again.
    pub fn turn_round(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let Offsets { ip, udp, ib, end } = self.offsets;
        out.clear();
        out.extend_from_slice(&frame[..end - ICRC]);
        out[0..12].rotate_left(6);
        let address = if frame[ip] >> 4 == 4 { 4 } else { 16 };
        let from = if address == 4 { ip + 12 } else { ip + 8 };
        out[from..from + 2 * address].rotate_left(address);
        // Destination port and queue pair stay: the sender's probe listens on the RoCEv2 port too.
        push_icrc(out, ip, udp, ib)
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: &str, to: &str, path_mtu: usize) -> Flow {
        Flow {
            from_mac: [2, 0, 0, 0, 0, 1],
            to_mac: [2, 0, 0, 0, 0, 2],
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            source_port: 49152,
            qp: 0x11,
            tos: 26 << 2 | 2,
            path_mtu,
        }
    }

    #[test]
    fn full_frames_have_the_lengths_of_soft_roce() {
        let mut frame = Vec::new();
        for (path_mtu, len) in [(1024, 1082), (4096, 4154)] {
            flow("10.0.0.1", "10.0.0.2", path_mtu).build(0, 0, &mut frame).unwrap();
            assert_eq!(frame.len(), len);
        }
        flow("fd00::1", "fd00::2", 1024).build(0, 0, &mut frame).unwrap();
        assert_eq!(frame.len(), 1102);
    }

    #[test]
    fn what_was_built_is_what_is_read() {
        let mut frame = Vec::new();
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            for psn in [0, 1, 2, 3, 0xff_ffff] {
                flow(from, to, 256).build(psn, 77, &mut frame).unwrap();
                let roce = Roce::parse(&frame).unwrap();
                assert!(roce.icrc_ok);
                assert_eq!((roce.psn, roce.qp), (psn, 0x11));
                assert_eq!((roce.tos, roce.stamp()), (106, Some((77, 106))));
                assert_eq!(roce.payload.len(), 256);
            }
        }
    }

    #[test]
    fn a_router_may_rewrite_the_masked_fields_and_nothing_else() {
        let mut frame = Vec::new();
        flow("10.0.0.1", "10.0.0.2", 256).build(5, 0, &mut frame).unwrap();
        // TOS, TTL, IP checksum, UDP checksum, BTH byte 4.
        let masked = [15, 22, 24, 25, 40, 41, 46];
        for at in 14..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x01;
            match Roce::parse(&changed) {
                Some(roce) => assert_eq!(roce.icrc_ok, masked.contains(&at), "byte {at}"),
                None => assert!(!masked.contains(&at), "byte {at} made the frame unreadable"),
            }
        }
    }

    #[test]
    fn a_frame_turned_round_comes_back_whole() {
        let (mut frame, mut back) = (Vec::new(), Vec::new());
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            flow(from, to, 1024).build(9, 0, &mut frame).unwrap();
            Roce::parse(&frame).unwrap().turn_round(&frame, &mut back).unwrap();
            let roce = Roce::parse(&back).unwrap();
            assert!(roce.icrc_ok);
            assert_eq!((&back[0..6], &back[6..12]), (&frame[6..12], &frame[0..6]));
        }
    }

    #[test]
    fn cut_frames_are_not_read() {
        let mut frame = Vec::new();
        flow("10.0.0.1", "10.0.0.2", 256).build(5, 0, &mut frame).unwrap();
        for len in 0..frame.len() {
            assert!(Roce::parse(&frame[..len]).is_none(), "cut at {len}");
        }
    }
}
