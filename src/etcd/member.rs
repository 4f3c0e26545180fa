//! What members of etcd report, as closed types.

use serde::{Serialize, Serializer};

use super::messages::{AlarmMember, MemberMessage, StatusResponse};
use crate::api::util::text::visible_cell;

/// Identifier of a member: etcd prints it in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl Serialize for MemberId {
    /// As text: numbers of 64 bits are cut by readers of JSON.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A member, as some member lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Identifier, unique in the cluster.
    pub id: MemberId,
    /// Its name; empty if it has never started.
    pub name: String,
    /// Whether it only learns the data and has no vote yet.
    pub learner: bool,
}

impl Member {
    pub(super) fn from_message(message: &MemberMessage) -> Self {
        Self { id: MemberId(message.id), name: visible_cell(&message.name).into_owned(), learner: message.is_learner }
    }
}

/// State of one member, as it reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Identifier of the member that answered.
    pub id: MemberId,
    /// Version of etcd.
    pub version: String,
    /// The member that it takes for the leader; none if it knows of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<MemberId>,
    /// Latest revision of its store.
    pub revision: i64,
    /// Size of its store on disk, in bytes.
    pub size_bytes: u64,
    /// Part of it that contains data, in bytes. The rest is free after a defragmentation.
    pub size_in_use_bytes: u64,
    /// Term of the leadership.
    pub raft_term: u64,
    /// Last entry of its log.
    pub raft_index: u64,
    /// Last entry that its store has.
    pub raft_applied_index: u64,
    /// Whether it only learns the data and has no vote yet.
    pub learner: bool,
}

/// Entries of the log by which a member may be behind and still be in sync.
pub const MAX_LAG: u64 = 1000;

impl MemberStatus {
    /// Returns the entries of the log that its store lacks, of those up to `newest`.
    pub fn lag_behind(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.raft_applied_index)
    }

    pub(super) fn from_message(message: &StatusResponse) -> Self {
        let header = message.header.clone().unwrap_or_default();
        Self {
            id: MemberId(header.member_id),
            version: visible_cell(&message.version).into_owned(),
            leader: (message.leader != 0).then_some(MemberId(message.leader)),
            revision: header.revision,
            size_bytes: u64::try_from(message.db_size).unwrap_or_default(),
            size_in_use_bytes: u64::try_from(message.db_size_in_use).unwrap_or_default(),
            raft_term: message.raft_term,
            raft_index: message.raft_index,
            raft_applied_index: message.raft_applied_index,
            learner: message.is_learner,
        }
    }
}

/// An alarm that is raised. It stays raised until somebody disarms it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// The member that it is about.
    pub member: MemberId,
    /// Its kind.
    pub kind: AlarmKind,
}

/// Kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum AlarmKind {
    /// The store is as large as its quota: etcd takes no more writes.
    #[serde(rename = "NOSPACE")]
    NoSpace,
    /// The member has other data than the others.
    #[serde(rename = "CORRUPT")]
    Corrupt,
    /// One that this program does not know.
    #[serde(rename = "UNKNOWN")]
    Unknown,
}

impl std::fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
            Self::Unknown => "UNKNOWN",
        })
    }
}

impl Alarm {
    pub(super) const fn from_message(message: &AlarmMember) -> Self {
        let kind = match message.alarm {
            1 => AlarmKind::NoSpace,
            2 => AlarmKind::Corrupt,
            _ => AlarmKind::Unknown,
        };
        Self { member: MemberId(message.member_id), kind }
    }
}

/// Hash of all keys and values of a member up to a revision. Members that have the same data have the same hash, if their
/// compacted revision is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KvHash {
    /// The revision up to which keys are counted.
    pub revision: i64,
    /// The hash.
    pub hash: u32,
    /// Oldest revision that the member still has.
    pub compact_revision: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_member_are_escaped_and_cut() {
        let message =
            MemberMessage { id: 255, name: format!("a\u{1b}[31m{}", "x".repeat(5000)), ..MemberMessage::default() };
        let member = Member::from_message(&message);
        assert!(!member.name.contains('\u{1b}') && member.name.chars().count() < 300, "{}", member.name);
        assert_eq!(serde_json::to_value(&member).unwrap()["id"], "ff");
        assert_eq!(Alarm::from_message(&AlarmMember { member_id: 1, alarm: 77 }).kind, AlarmKind::Unknown);
    }

    #[test]
    fn a_member_without_a_leader_and_of_negative_size_is_read() {
        let status = MemberStatus::from_message(&StatusResponse { db_size: -5, ..StatusResponse::default() });
        assert_eq!((status.leader, status.size_bytes, status.revision), (None, 0, 0));
    }
}
