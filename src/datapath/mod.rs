//! Packet decisions, pure.
