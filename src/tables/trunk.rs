//! A port that carries several networks, each with a VLAN tag.

use hashbrown::HashMap;

use crate::ids::NetworkId;

/// VLAN tag ↔ network of one port.
#[derive(Clone, Debug, Default)]
pub struct Trunk {
    /// Network of untagged and priority-tagged frames.
    native: Option<NetworkId>,
    by_vlan: HashMap<u16, NetworkId, foldhash::fast::RandomState>,
    by_network: HashMap<NetworkId, Option<u16>, foldhash::fast::RandomState>,
}

impl Trunk {
    /// A trunk of these networks by VLAN tag; `None` is untagged. Each network and each tag once.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = (Option<u16>, NetworkId)>) -> Self {
        let mut trunk = Self::default();
        for (vlan, network) in networks {
            match vlan {
                Some(vlan) => drop(trunk.by_vlan.insert(vlan, network)),
                None => trunk.native = Some(network),
            }
            trunk.by_network.insert(network, vlan);
        }
        trunk
    }

    /// Network of a frame with this VLAN id; `None` and 0 (a priority tag) are untagged.
    #[inline]
    #[must_use]
    pub fn network(&self, vlan: Option<u16>) -> Option<NetworkId> {
        match vlan {
            None | Some(0) => self.native,
            Some(vlan) => self.by_vlan.get(&vlan).copied(),
        }
    }

    /// Tag of a network's frames, `Some(None)` being untagged; `None` when the port does not carry the network.
    #[inline]
    #[must_use]
    pub fn tag(&self, network: NetworkId) -> Option<Option<u16>> {
        self.by_network.get(&network).copied()
    }

    /// Its networks.
    pub fn networks(&self) -> impl Iterator<Item = NetworkId> {
        self.by_network.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_tag_is_untagged_and_unknown_tags_lead_nowhere() {
        let trunk = Trunk::new([(None, NetworkId(1)), (Some(20), NetworkId(2))]);
        assert_eq!(
            [None, Some(0), Some(20), Some(21)].map(|v| trunk.network(v)),
            [Some(NetworkId(1)), Some(NetworkId(1)), Some(NetworkId(2)), None]
        );
        assert_eq!([1, 2, 3].map(|n| trunk.tag(NetworkId(n))), [Some(None), Some(Some(20)), None]);
    }
}
