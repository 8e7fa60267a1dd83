//! Bytes and their meaning, no I/O.
