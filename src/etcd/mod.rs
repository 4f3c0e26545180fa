//! Access to the members of etcd: messages of its API, calls, the stream of a snapshot, and what members agree on.
//!
//! ```text
//! identity   client certificate made for one run, in memory
//! connect    TLS and HTTP/2 over any stream to a port of a pod (`PodPorts`)
//! client     one call each: status, members, alarms, hash, value of a key
//! snapshot   bytes of a member's store, checked against etcd's own hash while they pass
//! agreement  what several members report, and where they differ
//! ```
//!
//! The room knows no Kubernetes API: who implements [`PodPorts`] decides whether a port is reached by port-forward or from a
//! pod. Every answer is data: numbers are taken as they are, texts are cut and escaped before anybody prints them.

pub mod agreement;
mod client;
mod connect;
mod error;
mod identity;
mod member;
mod messages;
mod snapshot;

pub use client::{EtcdClient, KeyPages};
pub use connect::{CLIENT_PORT, MemberAddress, PodPorts};
pub use error::EtcdError;
pub use identity::{ClientIdentity, VALID_FOR};
pub use member::{Alarm, AlarmKind, KvHash, MAX_LAG, Member, MemberId, MemberStatus};
pub use prost::bytes::Bytes;
pub use snapshot::Snapshot;
