//! Which memory a batch's look-ups will touch, told ahead so that the caller can have it fetched. Worth it only with
//! tables larger than the cache ([`Snapshot::large`]): it parses part of the packets twice.
//!
//! A look-up is a chain of reads that each say where the next one is. Alone, a packet waits for memory at every link; a
//! batch takes each step for all its packets before the next, so that they wait together. What an access port's packets
//! read first, network and VRF, is the same for the whole batch, and is read at once; packets of an uplink are of any
//! tenant.

use arrayvec::ArrayVec;

use crate::ids::PortId;
use crate::tables::fdb::Dest;
use crate::tables::fib::Pending;
use crate::tables::network::Network;
use crate::tables::snapshot::{Role, Snapshot, VniTarget};
use crate::tables::vrf::{Route, Vrf};
use crate::tables::vtep::VtepRow;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::vxlan::Vni;

/// Offset of the VNI behind untagged Ethernet, IPv4 without options, UDP: the common case, and a wrong guess costs
/// nothing but a useless fetch.
const VNI: usize = 46;
/// Offset of the inner frame in the same case.
const INNER: usize = 50;

/// Packets that take a step together.
const GROUP: usize = 64;
/// Steps of an access port's packet: FDB or routes, VTEP row.
const ACCESS_STEPS: usize = 2;
/// Steps of an uplink's: VRF, routes, slots, network of a station, its FDB.
const UPLINK_STEPS: usize = 5;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Calls `prefetch` with the address of each cache line that looking up a batch of `port` will read. `heads` are the first
/// bytes of its packets.
#[inline]
pub fn fetch<'p>(
    t: &Snapshot,
    port: PortId,
    heads: impl Iterator<Item = &'p [u8]>,
    prefetch: impl FnMut(*const u8),
) {
    match t.port(port).map(|row| row.role) {
        Some(Role::Access(id)) => {
            let Some(network) = t.network(id) else { return };
            let vrf = routes_of(t, network);
            walk(
                t,
                ACCESS_STEPS,
                heads.map(|frame| Chain::of_known(network, vrf, frame).unwrap_or(Chain::End)),
                prefetch,
            );
        }
        Some(Role::Uplink { .. }) => {
            let begun = heads.map(|head| Chain::of_tunnel(t, head).unwrap_or(Chain::End));
            walk(t, UPLINK_STEPS, begun, prefetch);
        }
        Some(Role::Trunk(_) | Role::Native(_) | Role::Closed) | None => {}
    }
}

/// Takes chains to their end, each step for a group of them.
#[inline]
fn walk<'t, 'p>(
    t: &'t Snapshot,
    steps: usize,
    mut begun: impl Iterator<Item = Chain<'t, 'p>>,
    mut prefetch: impl FnMut(*const u8),
) {
    loop {
        let mut chains: ArrayVec<Chain<'t, 'p>, GROUP> = ArrayVec::new();
        for chain in begun.by_ref().take(GROUP) {
            chain.announce(&mut prefetch);
            chains.push(chain);
        }
        if chains.is_empty() {
            return;
        }
        for _ in 1..steps {
            for chain in &mut chains {
                *chain = chain.next(t).unwrap_or(Chain::End);
                chain.announce(&mut prefetch);
            }
        }
    }
}

/// How far a packet's look-up has come. Every table named is on its way, and not read yet.
#[derive(Clone, Copy)]
enum Chain<'t, 'p> {
    /// Bridged or routed, the network knows.
    Network(&'t Network, &'p [u8]),
    /// As before: the gateway's MAC decides.
    Gateway(&'t Network, &'t Vrf, &'p [u8]),
    /// Routed.
    Vrf(&'t Vrf, &'p [u8]),
    /// Routes of one address family.
    Routes(Pending<'t>),
    /// Their slots.
    Slots(Pending<'t>),
    /// A station's network.
    Station(&'t Network, Mac),
    /// The FDB bucket of a station.
    Fdb(&'t Network, Mac),
    /// Outer headers.
    Row(&'t VtepRow),
    /// Nothing more is to be read, or nobody knows what.
    End,
}

/// VNI and inner frame.
#[inline]
fn tunnelled(head: &[u8]) -> Option<(Vni, &[u8])> {
    let [a, b, c] = *head.get(VNI..)?.first_chunk()?;
    Some((Vni::new(u32::from_be_bytes([0, a, b, c]))?, head.get(INNER..)?))
}

impl<'t, 'p> Chain<'t, 'p> {
    /// A packet of the underlay: its VNI says the network or VRF.
    #[inline]
    fn of_tunnel(t: &'t Snapshot, head: &'p [u8]) -> Option<Self> {
        let (vni, frame) = tunnelled(head)?;
        match t.target_of(vni)? {
            VniTarget::Network(id) => Some(Self::Network(t.network(id)?, frame)),
            VniTarget::Vrf(id) => Some(Self::Vrf(t.vrf(id)?, frame)),
        }
    }

    /// A packet of a network that is near, and its VRF too.
    #[inline]
    fn of_known(network: &'t Network, vrf: Option<&'t Vrf>, frame: &'p [u8]) -> Option<Self> {
        let dst = Mac(*frame.first_chunk()?);
        match vrf.filter(|_| network.gateway.as_ref().is_some_and(|gateway| gateway.mac == dst)) {
            Some(vrf) => Some(Self::Slots(pending(vrf, frame)?)),
            None => Some(Self::Fdb(network, dst)),
        }
    }

    /// One step on: reads what the step before announced.
    #[inline(always)]
    fn next(self, t: &'t Snapshot) -> Option<Self> {
        match self {
            Self::Network(network, frame) => match routes_of(t, network) {
                Some(vrf) => Some(Self::Gateway(network, vrf, frame)),
                None => Some(Self::Fdb(network, Mac(*frame.first_chunk()?))),
            },
            Self::Gateway(network, vrf, frame) => match Self::of_known(network, Some(vrf), frame)? {
                Self::Slots(pending) => Some(Self::Routes(pending)),
                bridged => Some(bridged),
            },
            Self::Vrf(vrf, frame) => Some(Self::Routes(pending(vrf, frame)?)),
            Self::Routes(pending) => Some(Self::Slots(pending)),
            Self::Slots(pending) => match pending.get()? {
                Route::Vtep { vtep, .. } => t.vteps.get(vtep).map(Self::Row),
                Route::Host { network, mac } => Some(Self::Station(t.network(network)?, mac)),
                _ => None,
            },
            Self::Station(network, mac) => Some(Self::Fdb(network, mac)),
            Self::Fdb(network, mac) => match network.fdb.get(mac)? {
                Dest::Vtep(id) => t.vteps.get(id).map(Self::Row),
                Dest::Port(_) => None,
            },
            Self::Row(_) | Self::End => None,
        }
    }

    /// Tells the addresses that the next step, or the packet itself, will read.
    #[inline(always)]
    fn announce(&self, prefetch: &mut impl FnMut(*const u8)) {
        match self {
            Self::Network(network, _) | Self::Station(network, _) => lines(*network, prefetch),
            Self::Gateway(network, vrf, _) => {
                network.gateway.iter().for_each(|gateway| lines(&**gateway, prefetch));
                lines(*vrf, prefetch);
            }
            Self::Vrf(vrf, _) => lines(*vrf, prefetch),
            Self::Routes(pending) => range(pending.reads(), prefetch),
            Self::Slots(pending) => pending.reads_next(prefetch),
            Self::Fdb(network, mac) => prefetch(network.fdb.home(*mac).as_ptr()),
            Self::Row(row) => lines(*row, prefetch),
            Self::End => {}
        }
    }
}

/// The VRF that a network's gateway leads to.
#[inline]
fn routes_of<'t>(t: &'t Snapshot, network: &Network) -> Option<&'t Vrf> {
    network.gateway.as_ref().and(network.vrf).and_then(|id| t.vrf(id))
}

/// The look-up of a frame's destination.
#[inline]
fn pending<'t>(vrf: &'t Vrf, frame: &[u8]) -> Option<Pending<'t>> {
    let eth = ethernet::Header::parse(frame)?;
    let l3 = frame.get(ethernet::HEADER_LEN..)?;
    match eth.ethertype {
        EtherType::IPV4 => Some(vrf.fib.begin_v4(*l3.get(16..)?.first_chunk()?)),
        EtherType::IPV6 => Some(vrf.fib.begin_v6(*l3.get(24..)?.first_chunk()?)),
        _ => None,
    }
}

/// Every cache line of a value.
#[inline]
fn lines<T>(value: &T, prefetch: &mut impl FnMut(*const u8)) {
    range((std::ptr::from_ref(value).cast(), size_of::<T>()), prefetch);
}

#[inline]
fn range((first, len): (*const u8, usize), prefetch: &mut impl FnMut(*const u8)) {
    (0..len).step_by(LINE).for_each(|offset| prefetch(first.wrapping_add(offset)));
}
