//! Tenants' packets, built by etherparse, and strategies for them.

use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader};
use flowrail::wire::ethernet::Mac;
use proptest::prelude::*;

use crate::checks::site::{Site, mac};
use crate::icrc;

/// Layer 4 of a tenant's packet.
#[derive(Clone, Debug)]
pub enum Layer4 {
    Udp {
        src: u16,
        dst: u16,
    },
    Tcp {
        src: u16,
        dst: u16,
    },
    /// RoCEv2 with its ICRC.
    Roce {
        src: u16,
        qp: u32,
        psn: u32,
    },
}

/// A tenant's IP packet.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub dst: Mac,
    pub v6: bool,
    pub tos: u8,
    pub ttl: u8,
    /// Last bytes of the addresses.
    pub addresses: (u8, u8),
    pub layer4: Layer4,
    pub payload: Vec<u8>,
}

impl Tenant {
    /// The frame, with right checksums.
    pub fn frame(&self) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2(mac(0x01).0, self.dst.0).ip(self.ip());
        let mut frame = Vec::new();
        match &self.layer4 {
            Layer4::Udp { src, dst } => builder.udp(*src, *dst).write(&mut frame, &self.payload).unwrap(),
            Layer4::Tcp { src, dst } => {
                let header = TcpHeader::new(*src, *dst, 7, 64);
                builder.tcp_header(header).write(&mut frame, &self.payload).unwrap();
            }
            Layer4::Roce { src, qp, psn } => {
                let [_, q0, q1, q2] = qp.to_be_bytes();
                let [_, p0, p1, p2] = psn.to_be_bytes();
                let bth = [0x04, 0x40, 0xff, 0xff, 0, q0, q1, q2, 0, p0, p1, p2];
                let body = [&bth, &self.payload[..], &[0; 4]].concat();
                builder.udp(*src, 4791).write(&mut frame, &body).unwrap();
                icrc::seal(&mut frame);
            }
        }
        frame
    }

    fn ip(&self) -> IpHeaders {
        let (src, dst) = self.addresses;
        if self.v6 {
            let address = |last| [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            let header = Ipv6Header {
                traffic_class: self.tos,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: 0,
                next_header: IpNumber::UDP,
                hop_limit: self.ttl,
                source: address(src),
                destination: address(dst),
            };
            return IpHeaders::Ipv6(header, Default::default());
        }
        let mut header =
            Ipv4Header::new(0, self.ttl, IpNumber::UDP, [10, 100, 0, src], [10, 100, 0, dst]).unwrap();
        header.dscp = (self.tos >> 2).try_into().unwrap();
        header.ecn = (self.tos & 3).try_into().unwrap();
        header.identification = 0x0777;
        IpHeaders::Ipv4(header, Default::default())
    }
}

pub fn site() -> impl Strategy<Value = Site> {
    (0u16..512).prop_map(Site::from_bits)
}

fn layer4() -> impl Strategy<Value = Layer4> {
    prop_oneof![
        (any::<u16>(), any::<u16>()).prop_map(|(src, dst)| Layer4::Udp { src, dst }),
        (any::<u16>(), any::<u16>()).prop_map(|(src, dst)| Layer4::Tcp { src, dst }),
        roce(),
    ]
}

pub fn roce() -> impl Strategy<Value = Layer4> {
    (0xc000u16.., 0u32..1 << 24, 0u32..1 << 24).prop_map(|(src, qp, psn)| Layer4::Roce { src, qp, psn })
}

/// A packet to `dst` with this layer 4; payload of up to `max` bytes.
pub fn tenant_with(
    dst: Mac,
    layer4: impl Strategy<Value = Layer4>,
    max: usize,
) -> impl Strategy<Value = Tenant> {
    let payload = (0..=max, any::<u8>()).prop_map(|(len, seed)| {
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<_>>()
    });
    (any::<bool>(), any::<u8>(), any::<u8>(), any::<(u8, u8)>(), layer4, payload).prop_map(
        move |(v6, tos, ttl, addresses, layer4, payload)| Tenant {
            dst,
            v6,
            tos,
            ttl,
            addresses,
            layer4,
            payload,
        },
    )
}

pub fn tenant(dst: Mac) -> impl Strategy<Value = Tenant> {
    tenant_with(dst, layer4(), 1200)
}

/// Outer UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Right,
    Zero,
    Wrong,
}

/// VXLAN in UDP with these addresses, as another VTEP would send it.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// Last bytes of the encap IPs.
    pub src: u8,
    pub dst: u8,
    pub v6: bool,
    pub vlan: Option<u16>,
    pub tos: u8,
    pub vni: u32,
    pub checksum: Checksum,
}

impl Outer {
    pub fn wrap(&self, inner: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, self.src, self.src], [2, 0, 0, 0, 1, 1]);
        let host = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let ip = if self.v6 {
            let header = Ipv6Header {
                traffic_class: self.tos,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: 0,
                next_header: IpNumber::UDP,
                hop_limit: 64,
                source: host(self.src),
                destination: host(self.dst),
            };
            IpHeaders::Ipv6(header, Default::default())
        } else {
            let mut header =
                Ipv4Header::new(0, 64, IpNumber::UDP, [192, 0, 2, self.src], [192, 0, 2, self.dst]).unwrap();
            header.dscp = (self.tos >> 2).try_into().unwrap();
            header.ecn = (self.tos & 3).try_into().unwrap();
            IpHeaders::Ipv4(header, Default::default())
        };
        let [_, v0, v1, v2] = self.vni.to_be_bytes();
        let payload = [&[8, 0, 0, 0, v0, v1, v2, 0], inner].concat();
        let mut frame = Vec::new();
        match self.vlan {
            Some(vlan) => {
                let tagged = link.single_vlan(vlan.try_into().unwrap()).ip(ip);
                tagged.udp(50000, 4789).write(&mut frame, &payload).unwrap();
            }
            None => link.ip(ip).udp(50000, 4789).write(&mut frame, &payload).unwrap(),
        }
        let field = frame.len() - payload.len() - 2;
        match self.checksum {
            Checksum::Right => {}
            Checksum::Zero => frame[field..field + 2].fill(0),
            Checksum::Wrong => frame[field] ^= 0x10,
        }
        frame
    }
}
