//! Read side of the forwarding state.
