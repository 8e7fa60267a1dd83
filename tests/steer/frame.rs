//! Frames put together layer by layer. Lengths and checksums stay 0: steering must not look at them.

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const ARP: u16 = 0x0806;
pub const VLAN: u16 = 0x8100;
pub const SERVICE_VLAN: u16 = 0x88a8;

pub const HOP_BY_HOP: u8 = 0;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const ESP: u8 = 50;
pub const AUTHENTICATION: u8 = 51;
pub const DESTINATION: u8 = 60;

pub const OUR_IP4: [u8; 4] = [192, 0, 2, 1];
pub const OTHER_IP4: [u8; 4] = [192, 0, 2, 9];
pub const OUR_IP6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const OTHER_IP6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

pub const MORE_FRAGMENTS: u16 = 0x2000;
pub const DONT_FRAGMENT: u16 = 0x4000;

#[derive(Clone)]
pub struct Frame(pub Vec<u8>);

impl Frame {
    pub fn ethernet(kind: u16) -> Self {
        let mut bytes = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 2, 2];
        bytes.extend(kind.to_be_bytes());
        Self(bytes)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn ipv4(self, protocol: u8, dst: [u8; 4], fragment: u16, options: &[u8]) -> Self {
        let words = u8::try_from(5 + options.len() / 4).unwrap();
        self.bytes(&[0x40 | words, 0, 0, 0, 0x12, 0x34])
            .bytes(&fragment.to_be_bytes())
            .bytes(&[64, protocol, 0, 0, 192, 0, 2, 2])
            .bytes(&dst)
            .bytes(options)
    }

    pub fn ipv6(self, next: u8, dst: [u8; 16]) -> Self {
        self.bytes(&[0x60, 0, 0, 0, 0, 0, next, 64]).bytes(&OTHER_IP6).bytes(&dst)
    }

    /// Hop-by-hop or destination options, or any header of that shape, of `8 + 8 * units` bytes.
    pub fn options(self, next: u8, units: u8) -> Self {
        // Bytes that a parser at a fixed offset takes for UDP ports 4789.
        let filler: Vec<u8> = [0x12, 0xb5].repeat(3 + 4 * usize::from(units));
        self.bytes(&[next, units]).bytes(&filler)
    }

    pub fn fragment(self, next: u8, offset_units: u16, more: bool) -> Self {
        self.bytes(&[next, 0])
            .bytes(&(offset_units << 3 | u16::from(more)).to_be_bytes())
            .bytes(&[0, 0, 0, 7])
    }

    pub fn udp(self, port: u16) -> Self {
        self.bytes(&0xc000u16.to_be_bytes()).bytes(&port.to_be_bytes()).bytes(&[0; 4])
    }

    pub fn payload(self, length: usize) -> Self {
        self.bytes(&vec![0x78; length])
    }

    pub fn vxlan4() -> Self {
        Self::ethernet(IPV4).ipv4(UDP, OUR_IP4, DONT_FRAGMENT, &[]).udp(4789).payload(80)
    }

    pub fn vxlan6() -> Self {
        Self::ethernet(IPV6).ipv6(UDP, OUR_IP6).udp(4789).payload(80)
    }

    pub fn roce4() -> Self {
        Self::ethernet(IPV4).ipv4(UDP, OTHER_IP4, DONT_FRAGMENT, &[]).udp(4791).payload(80)
    }

    pub fn roce6() -> Self {
        Self::ethernet(IPV6).ipv6(UDP, OTHER_IP6).udp(4791).payload(80)
    }

    /// The same frame with a tag between the addresses and the EtherType.
    pub fn tagged(self, tpid: u16, vid: u16) -> Self {
        let (addresses, rest) = self.0.split_at(12);
        Self(addresses.to_vec()).bytes(&tpid.to_be_bytes()).bytes(&(0x6000 | vid).to_be_bytes()).bytes(rest)
    }
}
