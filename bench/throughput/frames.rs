//! The traffic: RoCEv2 SEND-only frames as an inner frame, and their VXLAN form, byte for byte what the wire carries.

/// MAC of the tenant's NIC (`g0`), source of every inner frame.
pub const MAC_TENANT: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC of the forwarder's access port (`l0`).
pub const MAC_ACCESS: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC of the tenant's peer behind the far VTEP, destination of every inner frame on its way out.
pub const MAC_FAR: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// MAC of the forwarder's uplink (`r0`).
pub const MAC_UPLINK: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// MAC of the far VTEP (`s0`).
pub const MAC_VTEP: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Encap IP of the forwarder.
pub const IP_NEAR: [u8; 4] = [10, 0, 0, 1];
/// Encap IP of the far VTEP.
pub const IP_FAR: [u8; 4] = [10, 0, 0, 2];
/// The one tenant network.
pub const VNI: u32 = 100;
/// Outer Ethernet, IPv4, UDP and VXLAN headers.
pub const OUTER_LEN: usize = 50;
/// Offset of the UDP source port in an IPv4 frame without options; its low byte tells flows apart.
pub const OFF_UDP_SPORT: usize = 34;

const TENANT_IP: [u8; 4] = [192, 168, 1, 2];
const PEER_IP: [u8; 4] = [192, 168, 2, 2];
const VXLAN_PORT: u16 = 4789;
const ROCE_PORT: u16 = 4791;
const HEADERS: usize = 42;

/// Which way the traffic runs, and so which frames the source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Direction {
    /// Inner frames enter the access port, VXLAN leaves the uplink.
    Encap,
    /// VXLAN enters the uplink, inner frames leave the access port.
    Decap,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Encap => "encap",
            Self::Decap => "decap",
        }
    }

    /// The frame the source sends for an inner frame of `len` bytes.
    pub fn frame(self, len: usize) -> Vec<u8> {
        match self {
            Self::Encap => inner(len, MAC_FAR, MAC_TENANT, TENANT_IP, PEER_IP),
            Self::Decap => outer(&inner(len, MAC_TENANT, MAC_FAR, PEER_IP, TENANT_IP)),
        }
    }
}

fn inner(len: usize, dst: [u8; 6], src: [u8; 6], from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut frame = udp_frame(len, dst, src, from, to, 0xc000, ROCE_PORT);
    let bth = [0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 0];
    frame[HEADERS..HEADERS + bth.len()].copy_from_slice(&bth);
    frame
}

fn outer(inner: &[u8]) -> Vec<u8> {
    let len = inner.len() + OUTER_LEN;
    let mut frame = udp_frame(len, MAC_UPLINK, MAC_VTEP, IP_FAR, IP_NEAR, 0xd000, VXLAN_PORT);
    let [_, a, b, c] = VNI.to_be_bytes();
    frame[HEADERS..OUTER_LEN].copy_from_slice(&[0x08, 0, 0, 0, a, b, c, 0]);
    frame[OUTER_LEN..].copy_from_slice(inner);
    frame
}

fn udp_frame(
    len: usize,
    dst: [u8; 6],
    src: [u8; 6],
    from: [u8; 4],
    to: [u8; 4],
    source_port: u16,
    port: u16,
) -> Vec<u8> {
    let mut frame = vec![0xa5; len];
    let be16 = |n: usize| u16::try_from(n).expect("frame fits in an IPv4 packet").to_be_bytes();
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&src);
    frame[12..14].copy_from_slice(&[0x08, 0]);
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&be16(len - 14));
    ip[12..16].copy_from_slice(&from);
    ip[16..].copy_from_slice(&to);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[14..34].copy_from_slice(&ip);
    frame[34..36].copy_from_slice(&source_port.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&be16(len - 34));
    // the UDP checksum stays 0, as soft-RoCE and VXLAN over IPv4 send it
    frame[40..42].fill(0);
    frame
}

fn checksum(header: &[u8; 20]) -> u16 {
    let sum: u32 = header.as_chunks().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("two folds leave 16 bits")
}

/// `02:00:00:00:00:01`, as `ip` and the configuration take it.
pub fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// `10.0.0.1`.
pub fn ip(address: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(address).to_string()
}
