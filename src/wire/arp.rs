//! ARP for IPv4 over Ethernet (RFC 826), 28 bytes: hardware type 2, protocol type 2, their address lengths 1 each,
//! operation 2, sender MAC 6, sender IP 4, target MAC 6, target IP 4.

use super::ethernet::Mac;

/// Length of a message.
pub const LEN: usize = 28;
/// Operation of a request.
pub const REQUEST: u16 = 1;
/// Operation of a reply.
pub const REPLY: u16 = 2;

/// Ethernet and IPv4, with address lengths 6 and 4.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub operation: u16,
    /// MAC that the sender claims.
    pub sender_mac: Mac,
    /// IP address that the sender claims; 0.0.0.0 in a probe (RFC 5227 section 1.1).
    pub sender_ip: [u8; 4],
    /// MAC asked for or told; a request has no meaning here.
    pub target_mac: Mac,
    /// IP address asked for.
    pub target_ip: [u8; 4],
}

impl Message {
    /// Reads the first 28 bytes; `None` when there are fewer, or it is not about IPv4 over Ethernet. Hardware type 6
    /// (IEEE 802), which some hosts take for 1, is refused.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk::<6>()?;
        let (operation, rest) = rest.split_first_chunk::<2>()?;
        let (sender_mac, rest) = rest.split_first_chunk::<6>()?;
        let (sender_ip, rest) = rest.split_first_chunk::<4>()?;
        let (target_mac, rest) = rest.split_first_chunk::<6>()?;
        let target_ip = *rest.first_chunk::<4>()?;
        (*kind == KIND).then_some(Self {
            operation: u16::from_be_bytes(*operation),
            sender_mac: Mac(*sender_mac),
            sender_ip: *sender_ip,
            target_mac: Mac(*target_mac),
            target_ip,
        })
    }

    /// The message as it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let fields = (KIND.into_iter().chain(self.operation.to_be_bytes()))
            .chain(self.sender_mac.0.into_iter().chain(self.sender_ip))
            .chain(self.target_mac.0.into_iter().chain(self.target_ip));
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// A request that asks whether anybody has the address, before the sender takes it (RFC 5227 section 2.1).
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.operation == REQUEST && self.sender_ip == [0; 4]
    }

    /// Tells where the sender is rather than asks (RFC 5944 section 4.6, RFC 5227 section 3).
    #[must_use]
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_BYTES: [u8; LEN] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 5, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];

    #[test]
    fn a_message_round_trips() {
        let message = Message::parse(&REQUEST_BYTES).unwrap();
        assert_eq!((message.sender_ip, message.target_ip), ([10, 0, 0, 5], [10, 0, 0, 1]));
        assert_eq!(message.encode(), REQUEST_BYTES);
        assert!(!message.is_probe() && !message.is_gratuitous());
        assert!(Message { sender_ip: [0; 4], ..message }.is_probe());
        assert!(Message { sender_ip: [10, 0, 0, 1], ..message }.is_gratuitous());
    }

    #[test]
    fn other_hardware_protocols_and_lengths_are_refused() {
        assert_eq!(Message::parse(&REQUEST_BYTES[..27]), None);
        for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16)] {
            let mut bytes = REQUEST_BYTES;
            bytes[at] = value;
            assert_eq!(Message::parse(&bytes), None, "byte {at} is {value}");
        }
    }
}
