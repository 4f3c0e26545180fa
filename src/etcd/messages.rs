//! Messages of etcd's API v3: of `rpc.proto` and `kv.proto` the fields that are used, by their numbers.

use prost::Message;
use prost::bytes::Bytes;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// With no more than a key, the range is that key, and the answer is one that a majority of the members agrees on.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// The first key behind the range.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// Largest number of keys in the answer; all if it is 0.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// The present one if it is 0.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// Number of keys in the range, in the answer or not.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

/// The request for the status, for a snapshot and for a list of alarms: none of them has a field that is set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(uint64, tag = "5")]
    pub(super) raft_index: u64,
    #[prost(uint64, tag = "6")]
    pub(super) raft_term: u64,
    #[prost(uint64, tag = "7")]
    pub(super) raft_applied_index: u64,
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub(super) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SnapshotResponse {
    #[prost(uint64, tag = "2")]
    pub(super) remaining_bytes: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) blob: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HashKvRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HashKvResponse {
    #[prost(uint32, tag = "2")]
    pub(super) hash: u32,
    #[prost(int64, tag = "3")]
    pub(super) compact_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub(super) member_id: u64,
    #[prost(int32, tag = "2")]
    pub(super) alarm: i32,
}

/// With `linearizable` false, the answer is the list as this member has it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberListRequest {
    #[prost(bool, tag = "1")]
    pub(super) linearizable: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<MemberMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberMessage {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) peer_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}
