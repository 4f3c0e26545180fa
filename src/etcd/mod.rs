//! Access to the members of etcd: messages of its API, calls, the stream of a snapshot, and the comparison of members.
//!
//! ```text
//! identity   client certificate made for one run, in memory
//! connect    TLS and HTTP/2 over any stream to a port of a pod (`PodPorts`)
//! client     one call each: status, members, alarms, hash, value of a key
//! snapshot   bytes of a member's store, checked against etcd's own hash while they pass
//! agreement  comparison of the reports of several members
//! ```
//!
//! The room knows no Kubernetes API: the implementation of [`PodPorts`] reaches a port by port-forward or from a pod. Every
//! answer is treated as data: texts are truncated and escaped before they are printed.

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
