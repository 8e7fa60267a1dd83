//! What a port's station may say it is, and every way to hide a lie that the RFCs warn of.

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, PacketBuilder,
};
use flowrail::ids::PortId;
use flowrail::tables::network::link_local;
use flowrail::wire::drop::DropReason::{
    self, PortSecurityArp, PortSecurityIp, PortSecurityMac, PortSecurityNd,
};
use flowrail::wire::ethernet::Mac;

use crate::checks::site::mac;
use crate::checks::tenant::{BOUND, GATEWAY, KNOWN, OPEN, v4, v6};
use crate::frames::{
    ALL_NODES, Arp, Icmp6, UNSPECIFIED, mac_of, mend4, on, option, padding, ping6, udp4, udp6,
};

const OWN4: [u8; 4] = [10, 0, 1, 5];

#[track_caller]
fn refused(port: PortId, frame: &[u8], reason: DropReason) {
    on(port, frame).dropped(reason);
}

/// To a known station of the same network.
fn bridged(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac(KNOWN).0);
    frame
}

#[test]
fn the_source_mac_is_the_ports_and_never_the_gateways() {
    let own = bridged(udp4(mac(5), OWN4, v4(1, KNOWN), 9, 8));
    on(BOUND, &own).goes_on();
    refused(BOUND, &bridged(udp4(mac(6), OWN4, v4(1, KNOWN), 9, 8)), PortSecurityMac);
    for port in [BOUND, OPEN] {
        refused(port, &bridged(udp4(GATEWAY, OWN4, v4(1, KNOWN), 9, 8)), PortSecurityMac);
    }
}

#[test]
fn the_source_address_is_the_ports_and_never_the_gateways() {
    let four = |src| bridged(udp4(mac(5), src, v4(1, KNOWN), 9, 8));
    let six = |src| bridged(udp6(mac(5), src, v6(1, KNOWN), 9, 8));
    on(BOUND, &six(v6(1, 5))).goes_on();
    on(BOUND, &six(link_local(mac(5)))).goes_on();
    for src in [v4(1, 6), v4(1, 1), [0; 4], [255; 4], [224, 0, 0, 5]] {
        refused(BOUND, &four(src), PortSecurityIp);
    }
    for src in [v6(1, 6), v6(1, 1), link_local(mac(6)), link_local(GATEWAY), UNSPECIFIED, ALL_NODES] {
        refused(BOUND, &six(src), PortSecurityIp);
    }
    on(OPEN, &bridged(udp4(mac(6), v4(1, 60), v4(1, KNOWN), 9, 8))).goes_on();
    refused(OPEN, &bridged(udp4(mac(6), v4(1, 1), v4(1, KNOWN), 9, 8)), PortSecurityIp);
    for src in [v6(1, 1), link_local(GATEWAY)] {
        refused(OPEN, &bridged(udp6(mac(6), src, v6(1, KNOWN), 9, 8)), PortSecurityIp);
    }
}

#[test]
fn a_fragment_and_a_header_that_cannot_be_read_have_no_other_source() {
    let mut fragment = bridged(udp4(mac(5), v4(1, 6), v4(1, KNOWN), 9, 80));
    fragment[20..22].copy_from_slice(&[0, 9]);
    mend4(&mut fragment);
    refused(BOUND, &fragment, PortSecurityIp);
    let mut broken = bridged(udp4(mac(5), OWN4, v4(1, KNOWN), 9, 8));
    broken[14] = 0x44;
    refused(BOUND, &broken, PortSecurityIp);
    refused(BOUND, &broken[..30], PortSecurityIp);
    let mut broken = bridged(udp6(mac(5), v6(1, 5), v6(1, KNOWN), 9, 8));
    broken[14] = 0x40;
    refused(BOUND, &broken, PortSecurityIp);
}

#[test]
fn rfc_2131_4_1_a_dhcp_client_has_no_address_yet() {
    let from_zero = |ports: (u16, u16)| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(mac(5).0, [0xff; 6])
            .ipv4([0; 4], [255; 4], 64)
            .udp(ports.0, ports.1)
            .write(&mut frame, &[1; 240])
            .unwrap();
        frame
    };
    on(BOUND, &from_zero((68, 67))).goes_on();
    for ports in [(67, 68), (68, 68), (68, 53)] {
        refused(BOUND, &from_zero(ports), PortSecurityIp);
    }
    let mut fragment = from_zero((68, 67));
    fragment[20] = 0x20;
    mend4(&mut fragment);
    refused(BOUND, &fragment, PortSecurityIp);
}

#[test]
fn arp_tells_the_ports_own_binding() {
    let own = Arp::request(mac(5), OWN4, v4(1, 200));
    for operation in [1, 2] {
        let own = Arp { operation, ..own };
        on(BOUND, &own.frame()).goes_on();
        on(BOUND, &Arp { target: OWN4, ..own }.frame()).goes_on();
        for sender in
            [(mac(5), v4(1, 6)), (mac(6), OWN4), (mac(5), v4(1, 1)), (GATEWAY, OWN4), (mac(5), [255; 4])]
        {
            refused(BOUND, &Arp { sender, ..own }.frame(), PortSecurityArp);
        }
    }
    refused(BOUND, &Arp { operation: 2, sender: (mac(5), [0; 4]), ..own }.frame(), PortSecurityArp);
}

#[test]
fn arp_of_another_kind_is_refused() {
    // Linux takes hardware type 6 for Ethernet.
    for (at, value) in [(15, 6), (16, 0x86), (18, 8), (19, 16)] {
        let mut frame = Arp::request(mac(5), OWN4, v4(1, 200)).frame();
        frame[at] = value;
        refused(BOUND, &frame, PortSecurityArp);
        refused(BOUND, &frame[..40], PortSecurityArp);
    }
}

#[test]
fn rfc_5227_a_probe_is_for_the_ports_own_address() {
    let probe = |target| Arp::request(mac(5), [0; 4], target).frame();
    on(BOUND, &probe(OWN4)).goes_on();
    on(BOUND, &probe(v4(1, 1))).answer();
    // Whoever probes that address as well would give it up.
    refused(BOUND, &probe(v4(1, 6)), PortSecurityArp);
}

#[test]
fn nobody_claims_the_gateway_by_arp() {
    let arp = Arp::request(mac(6), v4(1, 60), v4(1, 200));
    on(OPEN, &arp.frame()).goes_on();
    on(OPEN, &Arp { sender: (mac(77), v4(1, 60)), ..arp }.frame()).goes_on();
    for operation in [1, 2] {
        for sender in [(mac(6), v4(1, 1)), (GATEWAY, v4(1, 60))] {
            refused(OPEN, &Arp { operation, sender, ..arp }.frame(), PortSecurityArp);
        }
    }
}

#[test]
fn advertisements_are_for_the_ports_own_address() {
    let own = Icmp6::advertisement(mac(5), v6(1, 5), v6(1, 5), mac(5));
    on(BOUND, &own.frame()).goes_on();
    let told = |target, mac_option| Icmp6::advertisement(mac(5), v6(1, 5), target, mac_option).frame();
    on(BOUND, &told(link_local(mac(5)), mac(5))).goes_on();
    for (target, mac_option) in [
        (v6(1, 6), mac(5)),
        (v6(1, 1), mac(5)),
        (v6(1, 5), mac(6)),
        (v6(1, 5), GATEWAY),
        (link_local(mac(6)), mac(5)),
    ] {
        refused(BOUND, &told(target, mac_option), PortSecurityNd);
    }
    let both = [&v6(1, 5)[..], &option(2, mac(5)), &option(2, mac(6))].concat();
    refused(BOUND, &Icmp6 { body: both, ..own.clone() }.frame(), PortSecurityNd);
    refused(BOUND, &Icmp6 { src: UNSPECIFIED, ..own }.frame(), PortSecurityNd);
    // Without a guard, all but the gateway's.
    let foreign = |target, mac_option| Icmp6::advertisement(mac(6), v6(1, 60), target, mac_option).frame();
    on(OPEN, &foreign(v6(1, 61), mac(61))).goes_on();
    for (target, mac_option) in [(v6(1, 1), mac(6)), (link_local(GATEWAY), mac(6)), (v6(1, 61), GATEWAY)] {
        refused(OPEN, &foreign(target, mac_option), PortSecurityNd);
    }
}

#[test]
fn solicitations_have_the_ports_own_source() {
    on(BOUND, &Icmp6::solicitation(mac(5), v6(1, 5), v6(1, 200)).frame()).goes_on();
    refused(BOUND, &Icmp6::solicitation(mac(5), v6(1, 6), v6(1, 200)).frame(), PortSecurityIp);
    let mut other = Icmp6::solicitation(mac(5), v6(1, 5), v6(1, 200));
    other.body = [&v6(1, 200)[..], &option(1, mac(6))].concat();
    refused(BOUND, &other.frame(), PortSecurityNd);
    // RFC 4862 section 5.4.3: a probe for an address that another one probes makes him give it up.
    on(BOUND, &Icmp6::solicitation(mac(5), UNSPECIFIED, v6(1, 5)).frame()).goes_on();
    on(BOUND, &Icmp6::solicitation(mac(5), UNSPECIFIED, v6(1, 1)).frame()).answer();
    refused(BOUND, &Icmp6::solicitation(mac(5), UNSPECIFIED, v6(1, 6)).frame(), PortSecurityNd);
}

fn router_message(kind: u8, port: PortId) -> Icmp6 {
    let (src, ip) = (mac_of(port), link_local(mac_of(port)));
    let len = if kind == 134 { 8 } else { 32 };
    Icmp6::nd(kind, (Mac([0x33, 0x33, 0, 0, 0, 1]), src), (ip, ALL_NODES), vec![0; len])
}

#[test]
fn a_tenant_is_no_router() {
    for kind in [134, 137] {
        refused(BOUND, &router_message(kind, BOUND).frame(), PortSecurityNd);
        on(OPEN, &router_message(kind, OPEN).frame()).goes_on();
        refused(
            OPEN,
            &Icmp6 { src: link_local(GATEWAY), ..router_message(kind, OPEN) }.frame(),
            PortSecurityIp,
        );
    }
    // Asking for routers is for everybody, with an address and without.
    for src in [link_local(mac(5)), UNSPECIFIED] {
        let asks =
            |body| Icmp6::nd(133, (Mac([0x33, 0x33, 0, 0, 0, 2]), mac(5)), (src, ALL_NODES), body).frame();
        on(BOUND, &asks(option(1, mac(5)))).goes_on();
        refused(BOUND, &asks(option(1, mac(6))), PortSecurityNd);
    }
}

/// An advertisement of the gateway's address, and one of a router, with what `hide` does to its headers.
#[track_caller]
fn cannot_hide(hide: impl Fn(&mut Ipv6Extensions)) {
    for port in [BOUND, OPEN] {
        let (mac, ip) = (mac_of(port), if port == BOUND { v6(1, 5) } else { v6(1, 6) });
        let mut claim = Icmp6::advertisement(mac, ip, v6(1, 1), mac);
        hide(&mut claim.extensions);
        refused(port, &claim.frame(), PortSecurityNd);
    }
    let mut router = router_message(134, BOUND);
    hide(&mut router.extensions);
    refused(BOUND, &router.frame(), PortSecurityNd);
}

#[test]
fn rfc_7113_extension_headers_hide_nothing() {
    cannot_hide(|headers| headers.hop_by_hop_options = Some(padding()));
    cannot_hide(|headers| headers.destination_options = Some(padding()));
    cannot_hide(|headers| {
        headers.routing = Some(etherparse::Ipv6RoutingExtensions {
            routing: padding(),
            final_destination_options: Some(padding()),
        });
    });
    cannot_hide(|headers| {
        headers.auth = Some(etherparse::IpAuthHeader::new(IpNumber::IPV6_ICMP, 1, 1, &[0; 4]).unwrap());
    });
    // Mobility, HIP and Shim6 headers, which etherparse does not know.
    for kind in [135, 139, 140] {
        let mut claim = Icmp6::advertisement(mac(5), v6(1, 5), v6(1, 1), mac(5));
        claim.extensions.destination_options = Some(padding());
        let mut frame = claim.frame();
        frame[20] = kind;
        refused(BOUND, &frame, PortSecurityNd);
    }
}

fn fragment_header(offset: u16, more: bool) -> Ipv6FragmentHeader {
    Ipv6FragmentHeader::new(IpNumber::IPV6_ICMP, IpFragOffset::try_new(offset).unwrap(), more, 7)
}

#[test]
fn rfc_6980_neighbor_discovery_in_a_fragment_is_refused_even_with_a_true_claim() {
    for more in [false, true] {
        cannot_hide(|headers| headers.fragment = Some(fragment_header(0, more)));
        let mut own = Icmp6::advertisement(mac(5), v6(1, 5), v6(1, 5), mac(5));
        own.extensions.fragment = Some(fragment_header(0, more));
        refused(BOUND, &own.frame(), PortSecurityNd);
    }
}

/// A first fragment that ends after its destination options: the ICMPv6 header would come in the next one.
fn first_without_upper(trailer: &[u8]) -> Vec<u8> {
    let mut headers = Ipv6Extensions { fragment: Some(fragment_header(0, true)), ..Default::default() };
    headers.routing = Some(etherparse::Ipv6RoutingExtensions {
        routing: padding(),
        final_destination_options: Some(padding()),
    });
    let header = Ipv6Header {
        hop_limit: 255,
        source: v6(1, 5),
        destination: ALL_NODES,
        next_header: IpNumber::IPV6_ICMP,
        ..Default::default()
    };
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2(mac(5).0, [0x33, 0x33, 0, 0, 0, 1]);
    link.ip(IpHeaders::Ipv6(header, headers)).write(&mut frame, IpNumber::IPV6_ICMP, &[]).unwrap();
    [&frame, trailer].concat()
}

#[test]
fn rfc_7112_a_first_fragment_has_all_headers() {
    refused(BOUND, &first_without_upper(&[]), PortSecurityNd);
    // Bytes behind the packet look like an innocent type.
    refused(BOUND, &first_without_upper(&[200; 16]), PortSecurityNd);
}

#[test]
fn a_chain_of_headers_beyond_the_first_frame_is_refused() {
    let mut long = Icmp6::advertisement(mac(5), v6(1, 5), v6(1, 1), mac(5));
    let options = etherparse::Ipv6RawExtHeader::new_raw(IpNumber::IPV6_ICMP, &[0; 1998]).unwrap();
    long.extensions.destination_options = Some(options);
    let frame = long.frame();
    for head_len in [1700, 54 + 2000] {
        let input =
            crate::checks::gateway::Input { head_len, ..crate::checks::gateway::Input::on(BOUND, &frame) };
        crate::frames::send(input).dropped(PortSecurityNd);
    }
    long.extensions.hop_by_hop_options = long.extensions.destination_options.replace(padding());
    let frame = long.frame();
    for head_len in [1700, 54 + 2000] {
        let input =
            crate::checks::gateway::Input { head_len, ..crate::checks::gateway::Input::on(BOUND, &frame) };
        crate::frames::send(input).dropped(PortSecurityNd);
    }
}

#[test]
fn a_chain_of_more_headers_than_anybody_needs_is_refused() {
    for (count, legal) in [(16u16, true), (17, false), (150, false)] {
        let mut frame = bridged(udp6(mac(5), v6(1, 5), v6(1, KNOWN), 9, 8));
        let udp = frame.split_off(54);
        frame[18..20].copy_from_slice(&(count * 8 + 16).to_be_bytes());
        frame[20] = 60;
        for left in (0..count).rev() {
            frame.extend([if left == 0 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend(udp);
        match legal {
            true => drop(on(BOUND, &frame).goes_on()),
            false => refused(BOUND, &frame, PortSecurityNd),
        }
    }
}

#[test]
fn other_icmpv6_needs_no_more_than_its_source() {
    on(BOUND, &bridged(ping6(mac(5), v6(1, 5), v6(1, KNOWN), 8))).goes_on();
    refused(BOUND, &bridged(ping6(mac(5), UNSPECIFIED, v6(1, KNOWN), 8)), PortSecurityIp);
    // RFC 3590: a report before there is an address.
    for (kind, reason) in [(131, None), (132, None), (143, None), (130, Some(PortSecurityIp))] {
        let mut report =
            Icmp6::nd(kind, (Mac([0x33, 0x33, 0, 0, 0, 22]), mac(5)), (UNSPECIFIED, ALL_NODES), vec![0; 16]);
        report.extensions.hop_by_hop_options = Some(padding());
        match reason {
            None => drop(on(BOUND, &report.frame()).goes_on()),
            Some(reason) => refused(BOUND, &report.frame(), reason),
        }
    }
}
