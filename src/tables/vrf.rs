//! A tenant's routing: VRF, its L3VNI, its FIB, its policy.

use std::net::IpAddr;
use std::sync::Arc;

use super::fib::Fib;
use super::network::VtepSet;
use super::policy::Policy;
use crate::ids::{NetworkId, VrfId, VtepId};
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To a station of a network of this host; the network's FDB says where its MAC is.
    Host {
        /// Its network.
        network: NetworkId,
        /// Its MAC.
        mac: Mac,
    },
    /// Through the VRF's L3VNI to a remote VTEP (RFC 9136).
    Vtep {
        /// The remote VTEP.
        vtep: VtepId,
        /// Its router MAC: destination of the inner frame.
        router_mac: Mac,
    },
    /// Remote, but no router MAC of the peer is known.
    NoRouterMac,
    /// A subnet of this network, where no station of this address is known.
    Connected(NetworkId),
    /// An address of this network's gateway: ours.
    Gateway(NetworkId),
    /// Looked up again in another tenant's VRF, whose policy applies too: a route leak.
    Leak(VrfId),
    /// Dropped on purpose.
    Blackhole,
}

const _: () = assert!(size_of::<Route>() <= 12);

/// A VRF.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// VNI of routed packets between VTEPs; without it, routing stays on this host.
    pub l3vni: Option<Vni>,
    /// Our router MAC: source of what we route into the L3VNI, and the only destination accepted from it.
    pub router_mac: Mac,
    /// Remote VTEPs that may send the L3VNI.
    pub members: Arc<VtepSet>,
    /// Where addresses are.
    pub fib: Fib,
    /// What may pass; `None`: everything.
    pub policy: Option<Arc<Policy>>,
    /// Source of ICMP errors about packets that came by the L3VNI: the VRF's first gateway address of each family.
    pub own: [Option<IpAddr>; 2],
}
