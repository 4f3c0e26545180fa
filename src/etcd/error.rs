//! Reasons that a member of etcd gives no answer, or none that can be used.

use tonic::{Code, Status};

use super::connect::CALL_WITHIN;
use crate::api::util::text::{visible_line, with_causes};

/// Reason that a call to a member of etcd failed. Members are named by their pod or by their URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// The connection does not come up or has broken: the network, the port-forward or TLS on either side.
    #[error("{member} cannot be reached: {why}")]
    Unreachable {
        /// The member.
        member: String,
        /// The error with its causes.
        why: String,
    },
    /// It takes the request and does not answer.
    #[error("{member} does not answer within {} s", CALL_WITHIN.as_secs())]
    TimedOut {
        /// The member.
        member: String,
    },
    /// It answers with an error.
    #[error("{member} refuses the request: {message}")]
    Refused {
        /// The member.
        member: String,
        /// Its words, escaped and cut.
        message: String,
    },
    /// The bytes of a snapshot are not those that the member hashed, or not all of them.
    #[error("the snapshot of {member} is damaged: {why}")]
    SnapshotDamaged {
        /// The member.
        member: String,
        /// What is wrong, with the number of bytes.
        why: String,
    },
}

impl EtcdError {
    /// A stable identifier, for scripts.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => "EtcdUnreachable",
            Self::Refused { .. } => "EtcdRefused",
            Self::SnapshotDamaged { .. } => "SnapshotDamaged",
        }
    }

    /// The remedy, a clause.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "look at the pods and logs of etcd in the namespace of the control plane"
            }
            Self::Refused { .. } => "look at the log of this member of etcd",
            Self::SnapshotDamaged { .. } => "take the snapshot again; do not use this one",
        }
    }

    /// Returns whether the same call may succeed when it is repeated.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::SnapshotDamaged { .. })
    }

    /// The error of a call. What the transport says and what etcd says come as the same type.
    pub(super) fn from_status(member: &str, status: &Status) -> Self {
        let member = member.to_owned();
        let is_of_transport = std::error::Error::source(status).is_some();
        if is_of_transport || matches!(status.code(), Code::Unknown if status.message() == "transport error") {
            let why = visible_line(&with_causes(status.message().to_owned(), status)).into_owned();
            return Self::Unreachable { member, why };
        }
        Self::Refused { member, message: visible_line(status.message()).into_owned() }
    }
}
