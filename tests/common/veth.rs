//! Veth pairs between two namespaces.

use super::netns::Netns;

/// What a veth pair is like; the ends are alike.
#[derive(Clone, Copy)]
pub struct Veth {
    pub mtu: u32,
    /// RX and TX queues of each end.
    pub queues: u32,
    /// Whether the ends leave checksums to the far end, as veth does unless told otherwise.
    pub offload: bool,
}

/// One end: its namespace, its name, its MAC address.
#[derive(Clone, Copy)]
pub struct End<'a> {
    pub netns: &'a Netns,
    pub name: &'a str,
    pub mac: &'a str,
}

impl Veth {
    /// Creates the pair and sets both ends up.
    pub fn connect(self, a: End<'_>, b: End<'_>) {
        let Self { mtu, queues, .. } = self;
        let shape = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
        a.netns.run(&format!(
            "ip link add {} address {} {shape} type veth peer name {} netns {} address {} {shape}",
            a.name,
            a.mac,
            b.name,
            b.netns.name(),
            b.mac
        ));
        for End { netns, name, .. } in [a, b] {
            if !self.offload {
                netns.run(&format!("ethtool -K {name} tx off tso off gso off"));
            }
            netns.run(&format!("ip link set {name} up"));
        }
    }
}
