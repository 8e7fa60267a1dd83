//! A packet as the datapath sees it: the writable buffer of its first frame, and read-only views of the rest.
//!
//! ```text
//! buffer:  | headroom | head (headers, payload) | tailroom |     tail: [frame 2] [frame 3] …
//!                     ^start                    ^end
//! ```
//! Encap and decap move `start`; no byte of payload moves. The owner of the frames reads [`Packet::layout`] back.

use super::checksum::Sum;
use super::drop::DropReason;
use super::ethernet::MIN_FRAME_LEN;

/// One packet, borrowed from whoever owns its frames.
pub struct Packet<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
    tail: &'a [&'a [u8]],
    tail_len: usize,
}

/// Where a packet's bytes are after the datapath is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the first byte in the first frame's buffer.
    pub start: usize,
    /// Bytes in the first frame.
    pub head_len: usize,
    /// Bytes in all further frames together.
    pub tail_len: usize,
}

impl<'a> Packet<'a> {
    /// A packet whose first `len` bytes stand at `start` of `buffer`, continued by `tail`. A range outside the buffer
    /// is cut to it.
    #[inline]
    #[must_use]
    pub fn new(buffer: &'a mut [u8], start: usize, len: usize, tail: &'a [&'a [u8]]) -> Self {
        let end = start.saturating_add(len).min(buffer.len());
        let tail_len = tail.iter().map(|t| t.len()).sum();
        Self { start: start.min(end), end, buffer, tail, tail_len }
    }

    /// Length in bytes, all frames together.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start + self.tail_len
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in the first frame. All headers are here: a frame holds at least 1.7 kB.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The bytes in the first frame, writable.
    #[inline]
    pub fn head_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Where the bytes are.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout { start: self.start, head_len: self.end - self.start, tail_len: self.tail_len }
    }

    /// Grows by `N` bytes into the headroom, writes `header` there, moves nothing.
    ///
    /// # Errors
    /// `NoHeadroom` when there is not enough; the packet is unchanged.
    #[inline]
    pub fn push_front<const N: usize>(&mut self, header: &[u8; N]) -> Result<(), DropReason> {
        let start = self.start.checked_sub(N).ok_or(DropReason::NoHeadroom)?;
        let room = self.buffer.get_mut(start..).and_then(|b| b.first_chunk_mut::<N>());
        *room.ok_or(DropReason::NoHeadroom)? = *header;
        self.start = start;
        Ok(())
    }

    /// Gives up the first `n` bytes. Returns `false`, and does nothing, when the first frame has fewer.
    #[inline]
    #[must_use]
    pub fn pop_front(&mut self, n: usize) -> bool {
        let fits = n <= self.end - self.start;
        if fits {
            self.start += n;
        }
        fits
    }

    /// Takes an 802.1Q tag from behind the MACs: moves the 12 bytes in front of it. Returns its VLAN id, or `None` and does
    /// nothing when the frame ends before the tag does.
    #[inline]
    pub fn pop_vlan(&mut self) -> Option<u16> {
        let [.., t0, t1] = *self.head().first_chunk::<16>()?;
        self.head_mut().copy_within(..12, 4);
        self.start += 4;
        Some(u16::from_be_bytes([t0, t1]) & 0x0fff)
    }

    /// Puts an 802.1Q tag behind the MACs.
    ///
    /// # Errors
    /// `NoHeadroom`; the packet is unchanged.
    #[inline]
    pub fn push_vlan(&mut self, vlan: u16) -> Result<(), DropReason> {
        let macs = *self.head().first_chunk::<12>().ok_or(DropReason::FrameTooShort)?;
        let mut header = [0; 16];
        let (to, tag) = header.split_at_mut(12);
        to.copy_from_slice(&macs);
        let [v0, v1] = vlan.to_be_bytes();
        tag.copy_from_slice(&[0x81, 0x00, v0, v1]);
        self.start += 12;
        let pushed = self.push_front(&header);
        if pushed.is_err() {
            self.start -= 12;
        }
        pushed
    }

    /// Replaces the whole packet by these bytes, at its present start.
    ///
    /// # Errors
    /// `NoHeadroom` when the first frame has no room for them; the packet is unchanged.
    pub fn rewrite(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        let end = self.start + bytes.len();
        self.buffer.get_mut(self.start..end).ok_or(DropReason::NoHeadroom)?.copy_from_slice(bytes);
        self.end = end;
        self.tail_len = 0;
        Ok(())
    }

    /// Cuts bytes off the end until `len` are left; a packet that is shorter stays as it is.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let head = self.end - self.start;
        if len < head {
            self.end = self.start + len;
            self.tail_len = 0;
        } else {
            self.tail_len = self.tail_len.min(len - head);
        }
    }

    /// Pads with zeros to the smallest Ethernet frame; the buffer behind the packet holds old data.
    #[inline]
    pub fn pad_to_minimum(&mut self) {
        let missing = MIN_FRAME_LEN.saturating_sub(self.len());
        if missing > 0
            && self.tail_len == 0
            && let Some(padding) = self.buffer.get_mut(self.end..self.end + missing)
        {
            padding.fill(0);
            self.end += missing;
        }
    }

    /// One's complement sum of `len` bytes from `offset`, over frame borders. `None` when the packet is shorter or
    /// `offset` is not in the first frame.
    #[must_use]
    pub fn sum(&self, offset: usize, len: usize) -> Option<Sum> {
        let head = self.head().get(offset..)?;
        let mut left = len.saturating_sub(head.len());
        let mut at_odd = head.len() % 2 == 1;
        let mut sum = Sum::ZERO.bytes(head.get(..len).unwrap_or(head));
        if left > self.tail_len {
            return None;
        }
        for frame in self.tail {
            let piece = frame.get(..left).unwrap_or(frame);
            sum = if at_odd { sum.bytes_at_odd(piece) } else { sum.bytes(piece) };
            at_odd ^= piece.len() % 2 == 1;
            left -= piece.len();
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_is_taken_and_given_back_without_moving_payload() {
        let mut buffer = [7u8; 128];
        let mut p = Packet::new(&mut buffer, 60, 20, &[]);
        p.push_front(&[1; 50]).unwrap();
        assert_eq!(p.push_front(&[1; 11]), Err(DropReason::NoHeadroom));
        assert_eq!(p.layout(), Layout { start: 10, head_len: 70, tail_len: 0 });
        assert!(p.pop_front(50) && !p.pop_front(21));
        assert_eq!(p.head(), [7; 20]);
    }

    #[test]
    fn a_vlan_tag_comes_and_goes() {
        let mut buffer: Vec<u8> = (0..64).collect();
        let mut p = Packet::new(&mut buffer, 8, 40, &[]);
        let before = p.head().to_vec();
        p.push_vlan(77).unwrap();
        assert_eq!(
            (&p.head()[..12], &p.head()[12..16], &p.head()[16..]),
            (&before[..12], &[0x81, 0, 0, 77][..], &before[12..])
        );
        assert_eq!(p.pop_vlan(), Some(77));
        assert_eq!(p.head(), before);
        let mut p = Packet::new(&mut buffer, 3, 40, &[]);
        assert_eq!(p.push_vlan(1), Err(DropReason::NoHeadroom));
        assert_eq!(p.layout(), Layout { start: 3, head_len: 40, tail_len: 0 });
        let mut p = Packet::new(&mut buffer, 3, 15, &[]);
        assert_eq!(p.pop_vlan(), None);
    }

    #[test]
    fn padding_is_zero_and_reaches_the_minimum() {
        let mut buffer = [7u8; 128];
        let mut p = Packet::new(&mut buffer, 40, 14, &[]);
        p.pad_to_minimum();
        assert_eq!(p.len(), 60);
        assert!(p.head()[14..].iter().all(|b| *b == 0));
    }

    #[test]
    fn truncation_reaches_into_the_tail_and_the_head() {
        let tail: [&[u8]; 2] = [&[1; 10], &[2; 10]];
        let mut buffer = [0u8; 64];
        let mut p = Packet::new(&mut buffer, 0, 64, &tail);
        p.truncate(100);
        assert_eq!(p.len(), 84);
        p.truncate(70);
        assert_eq!(p.layout(), Layout { start: 0, head_len: 64, tail_len: 6 });
        p.truncate(14);
        assert_eq!(p.layout(), Layout { start: 0, head_len: 14, tail_len: 0 });
    }

    proptest::proptest! {
        #[test]
        fn sum_over_frames_equals_the_sum_of_the_whole(
            bytes in proptest::collection::vec(0u8.., 1..200), a: proptest::sample::Index, b: proptest::sample::Index,
            offset: proptest::sample::Index, len: proptest::sample::Index,
        ) {
            let (a, b) = (a.index(bytes.len()) + 1, b.index(bytes.len()) + 1);
            let (a, b) = (a.min(b), a.max(b));
            let tail = [&bytes[a..b], &bytes[b..]];
            let mut head = bytes[..a].to_vec();
            let p = Packet::new(&mut head, 0, a, &tail);
            let offset = offset.index(a);
            let len = len.index(bytes.len() - offset + 1);
            let expected = Sum::ZERO.bytes(&bytes[offset..offset + len]).finish();
            proptest::prop_assert_eq!(p.sum(offset, len).unwrap().finish(), expected);
            proptest::prop_assert!(p.sum(offset, bytes.len() - offset + 1).is_none());
        }
    }
}
