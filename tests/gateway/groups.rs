//! Membership reports: who is told, and who gets them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IgmpType, PacketBuilder, igmp};
use flowrail::datapath::{self, GroupChange, Verdict};
use flowrail::ids::{NetworkId, PortId, VtepId};
use flowrail::tables::fdb::Dest;
use flowrail::tables::network::link_local;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::packet::Packet;

use crate::checks::gateway::{Input, Seen};
use crate::checks::site::mac;
use crate::checks::tenant::{BLUE_VNI, BOUND, OPEN, UPLINK, tables, v4};
use crate::frames::{Icmp6, on, padding, send};

const GROUP: [u8; 4] = [239, 1, 2, 3];

fn igmp(message: IgmpType) -> Vec<u8> {
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2(mac(5).0, [1, 0, 0x5e, 1, 2, 3]);
    link.ipv4(v4(1, 5), GROUP, 1).igmp(message).write(&mut frame, &[]).unwrap();
    frame
}

fn report() -> Vec<u8> {
    igmp(IgmpType::MembershipReportV2(igmp::MembershipReportV2Type { group_address: GROUP.into() }))
}

fn mld(kind: u8) -> Vec<u8> {
    let group: Ipv6Addr = "ff05::1:3".parse().unwrap();
    let src = link_local(mac(5));
    let mut message = Icmp6::nd(
        kind,
        (Mac([0x33, 0x33, 0, 1, 0, 3]), mac(5)),
        (src, group.octets()),
        group.octets().to_vec(),
    );
    message.hop_limit = 1;
    message.extensions.hop_by_hop_options = Some(padding());
    message.frame()
}

fn change(group: IpAddr, at: Dest, joined: bool) -> GroupChange {
    GroupChange { network: NetworkId(0), group, at, joined }
}

#[test]
fn joins_and_leaves_of_local_and_remote_stations_are_told() {
    let (four, six): (IpAddr, IpAddr) = (GROUP.into(), "ff05::1:3".parse().unwrap());
    let leave = igmp(IgmpType::LeaveGroup(igmp::LeaveGroupType { group_address: GROUP.into() }));
    for (frame, group, joined) in
        [(report(), four, true), (leave, four, false), (mld(131), six, true), (mld(132), six, false)]
    {
        let outcome = on(BOUND, &frame).goes_on();
        assert_eq!(outcome.seen.groups, [change(group, Dest::Port(BOUND), joined)]);
        assert!(matches!(outcome.verdict, Verdict::Replicate(to) if to.group.is_none()));
        let outcome = send(Input { vni: BLUE_VNI, ..Input::on(UPLINK, &frame) }).goes_on();
        assert_eq!(outcome.seen.groups, [change(group, Dest::Vtep(VtepId(0)), joined)]);
    }
}

#[test]
fn wrong_checksums_queries_and_groups_of_every_station_join_nothing() {
    let mut wrong = report();
    wrong[36] ^= 1;
    let of_everyone = igmp(IgmpType::MembershipReportV2(igmp::MembershipReportV2Type {
        group_address: igmp::GroupAddress::from(Ipv4Addr::new(224, 0, 0, 251)),
    }));
    for frame in [
        of_everyone,
        wrong,
        mld(130),
        igmp(IgmpType::MembershipQuery(igmp::MembershipQueryType {
            max_response_time: 1,
            group_address: igmp::GroupAddress::from(Ipv4Addr::from(GROUP)),
        })),
    ] {
        let outcome = on(OPEN, &resent(&frame)).goes_on();
        assert!(outcome.seen.groups.is_empty());
        assert!(matches!(outcome.verdict, Verdict::Replicate(to) if to.group.is_none()));
    }
}

/// From another station, whose port has no guard.
fn resent(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[6..12].copy_from_slice(&mac(6).0);
    frame
}

#[test]
fn reports_and_queries_reach_everyone_and_data_its_receivers() {
    let mut tables = tables(false).as_ref().clone();
    let network = tables.network_mut(NetworkId(0)).unwrap();
    std::sync::Arc::make_mut(&mut network.flood).set_group(GROUP.into(), &[OPEN], &[]);
    network.snooping = false;
    let group_of = |frame: &[u8]| {
        let mut seen = Seen::default();
        let mut buffer = [vec![0; 256], frame.to_vec(), vec![0; 64]].concat();
        let mut packet = Packet::new(&mut buffer, 256, frame.len(), &[]);
        let verdict = datapath::receive(&tables, &mut seen, PortId(1), &mut packet);
        assert!(seen.groups.is_empty(), "told without snooping");
        let Verdict::Replicate(to) = verdict else { panic!("{verdict:?}") };
        to.group
    };
    assert_eq!(group_of(&report()), None);
    let mut data = Vec::new();
    let link = PacketBuilder::ethernet2(mac(5).0, [1, 0, 0x5e, 1, 2, 3]);
    link.ipv4(v4(1, 5), GROUP, 1).udp(1, 4791).write(&mut data, &[0; 20]).unwrap();
    assert_eq!(group_of(&data), Some(GROUP.into()));
}
