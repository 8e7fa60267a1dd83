//! Why a packet stopped: one enum that is the counter's index and the metric's label, and the notes that count
//! oddities of packets which go on.

macro_rules! labelled {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $label:literal, $doc:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $(#[doc = $doc] $variant,)* }
        impl $name {
            /// Every value, in index order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Number of values: the length of a counter array.
            pub const COUNT: usize = Self::ALL.len();
            /// Label in counters, metrics and `trace`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
            /// One sentence for an operator.
            #[must_use]
            pub const fn explain(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
            /// Index into a counter array.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

labelled! {
    /// The reason a packet was dropped. Every dropped packet has exactly one.
    DropReason {
        FrameTooShort = "frame_too_short", "The frame is shorter than an Ethernet header.";
        IpHeaderInvalid = "ip_header_invalid", "The outer IP header has a wrong version, length or checksum.";
        IpLengthInvalid = "ip_length_invalid", "The outer IP length disagrees with the frame.";
        OuterFragment = "outer_fragment", "A fragment of a VXLAN packet (RFC 7348 section 4.3): raise the underlay MTU.";
        OuterSrcInvalid = "outer_src_invalid", "The outer source address is multicast, broadcast, zero, loopback or our own.";
        UdpLengthInvalid = "udp_length_invalid", "The outer UDP length disagrees with the IP length.";
        UdpChecksumInvalid = "udp_checksum_invalid", "The outer UDP checksum is wrong.";
        Udp6ChecksumZero = "udp6_checksum_zero", "Outer UDP checksum zero over IPv6 (RFC 6935), not accepted by configuration.";
        VxlanTruncated = "vxlan_truncated", "The UDP payload is shorter than a VXLAN header.";
        VniFlagClear = "vni_flag_clear", "The VXLAN header's I flag is 0 (RFC 7348 section 5).";
        GpeNotSupported = "gpe_not_supported", "VXLAN-GPE on the VXLAN port: its payload is not an Ethernet frame.";
        UnknownVni = "unknown_vni", "No network has this VNI.";
        UnknownSourceVtep = "unknown_source_vtep", "The outer source address is no configured peer.";
        SourceVtepNotInVni = "source_vtep_not_in_vni", "The sending peer is not a member of this network.";
        InnerTooShort = "inner_too_short", "The inner frame is shorter than an Ethernet header.";
        InnerIpTruncated = "inner_ip_truncated", "The inner IP header is cut, so the outer ECN mark has nowhere to go.";
        InnerVlan = "inner_vlan", "A VLAN tag inside a network that has none (RFC 7348 section 6.1).";
        InnerSrcInvalid = "inner_src_invalid", "The inner source MAC is a group address.";
        LinkLocalReservedMac = "link_local_reserved_mac", "Destination 01:80:c2:00:00:0x (pause, LLDP, LACP) never leaves its link.";
        EcnCeOnNotEct = "ecn_ce_on_not_ect", "Outer CE on a packet that is not ECN capable (RFC 6040 section 4.2).";
        UnknownUnicast = "unknown_unicast", "The destination MAC is in no FDB entry of this network.";
        VlanNotInTrunk = "vlan_not_in_trunk", "The port carries no network with this VLAN tag.";
        PortSecurityMac = "port_security_mac", "The source MAC is not one of the port's.";
        PortSecurityIp = "port_security_ip", "The source IP address is not one of the port's.";
        PortSecurityArp = "port_security_arp", "An ARP message claims an address that is not the port's, or the gateway's.";
        PortSecurityNd = "port_security_nd", "A neighbor discovery message claims an address that is not the port's, or the gateway's.";
        InnerSrcIsLocalMac = "inner_src_is_local_mac", "The inner source MAC is our own router MAC: a loop, or a forgery.";
        L3vniWrongMac = "l3vni_wrong_mac", "A routed packet for another router MAC than ours.";
        NotRoutable = "not_routable", "To a router MAC, but no whole unicast IP packet.";
        TtlExpired = "ttl_expired", "TTL or hop limit does not last for this hop.";
        NoRouteInVrf = "no_route_in_vrf", "The VRF has no route for the destination.";
        Blackhole = "blackhole", "A blackhole route.";
        RouterMacMissing = "router_mac_missing", "The route's peer has no router MAC.";
        L3vniMissing = "l3vni_missing", "The route leads to a remote VTEP, and the VRF has no L3VNI.";
        NeighborUnknown = "neighbor_unknown", "The destination is in a connected subnet, and no station with its address is known.";
        LeakLoop = "leak_loop", "A leaked route leads to another leak.";
        PolicyDenied = "policy_denied", "The tenant's policy does not allow it.";
        ToGateway = "to_gateway", "For the gateway itself, which answers ARP, ND and ping alone.";
        Reconfigured = "reconfigured", "The port moved to another network while the packet waited.";
        SplitHorizon = "split_horizon", "A packet from the underlay would go back to the underlay.";
        SamePort = "same_port", "The destination is behind the port the packet came from.";
        NoReceiver = "no_receiver", "A group packet with nobody else in its network.";
        EncapMtuExceeded = "encap_mtu_exceeded", "Encapsulated, the packet exceeds the underlay MTU, and a VTEP must not fragment.";
        PortMtuExceeded = "port_mtu_exceeded", "The packet exceeds the output port's MTU.";
        NoHeadroom = "no_headroom", "No room in front of the packet for the outer headers.";
        NoPath = "no_path", "No uplink has an encap IP of the remote VTEP's address family.";
        NeighborUnresolved = "neighbor_unresolved", "The next hop's MAC was not found in time.";
        NeighborQueueFull = "neighbor_queue_full", "Too many packets wait for a next hop's MAC.";
        TxQueueFull = "tx_queue_full", "The output port could not take the packet.";
        TxFailed = "tx_failed", "The output port is down or gone.";
        HandoffFull = "handoff_full", "The worker that owns the output port's queue could not take the packet.";
        ChainTooLong = "chain_too_long", "The packet spans more frames than a packet may.";
        FramesExhausted = "frames_exhausted", "No free frame for a copy of the packet.";
        Misdirected = "misdirected", "Steered here though it belongs to the kernel: the XDP program and the tables disagree.";
        Shutdown = "shutdown", "Still queued when the worker stopped.";
    }
}

labelled! {
    /// Oddities of packets that go on, counted but not dropped.
    Note {
        ReservedBits = "vxlan_reserved_bits", "Reserved VXLAN bits were set, and ignored (RFC 7348 section 5).";
        PartialOuterChecksum = "outer_checksum_partial", "The outer UDP checksum was a bare pseudo-header sum (checksum offload on a virtual link).";
        Udp6ZeroAccepted = "udp6_checksum_zero_accepted", "Outer UDP checksum zero over IPv6, accepted by configuration.";
        ChecksumCompleted = "inner_checksum_completed", "A partial TCP or UDP checksum of a local port was completed.";
        EcnUnexpected = "ecn_unexpected", "An outer/inner ECN pair that RFC 6040 asks to log.";
        NeighborQueued = "neighbor_queued", "Waited for a next hop's MAC.";
        CopiesSent = "copies_sent", "Copies made of group packets.";
        IcmpSent = "icmp_sent", "ICMP errors sent to a packet's source.";
        IcmpSuppressed = "icmp_suppressed", "ICMP errors not sent, for their rate.";
        FdbConflict = "fdb_static_conflict", "A source MAC was seen at another place than its static FDB entry.";
        CopiesLost = "copies_lost", "Copies of group packets that could not be made or sent.";
    }
}

labelled! {
    /// Why a packet belongs to the kernel rather than to the datapath. The XDP program never steers such a packet.
    PuntReason {
        NotIp = "not_ip", "Neither IPv4 nor IPv6.";
        Vlan = "vlan_not_ours", "The VLAN tag is not the uplink's.";
        Malformed = "malformed", "Not identifiable as VXLAN: headers are cut or of another version.";
        NotUdp = "not_udp", "Not UDP.";
        Fragment = "fragment", "A later fragment, which has no UDP header.";
        NotLocal = "outer_dst_not_local", "VXLAN, but not to one of our encap IPs.";
        OtherPort = "udp_port_not_vxlan", "Another UDP port.";
        NotRoce = "not_roce", "The port steers RoCEv2 only.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_indexes_dense() {
        let names: std::collections::HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
    }
}
