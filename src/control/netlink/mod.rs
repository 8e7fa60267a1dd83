//! Kernel state over rtnetlink: links, routes, neighbors. `client` asks, `event` listens, `cache` remembers neighbors,
//! `resolver` keeps the next-hop MAC of every remote encap IP up to date. Runs on the control thread only.

mod cache;
mod client;
mod event;
mod facts;
mod resolver;

pub use cache::NeighborCache;
pub use client::{Client, NetlinkError, Question};
pub use event::{Event, Events};
pub use facts::{Link, LocalAddress, Neighbor, NeighborState, Prefix};
pub use resolver::{Change, NextHop, Remote, Resolver, Route, Update};
