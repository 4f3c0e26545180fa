//! Reasons that a backup was not made.

use crate::apply;
use crate::backup::WriteError;
use crate::etcd::EtcdError;

/// Reason that a backup was not made. Nothing of the control plane was changed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The hosting cluster does not answer or refuses a read.
    #[error("cannot read the hosting cluster")]
    Cluster(#[from] kube::Error),
    /// The record cannot be read.
    #[error("cannot read the record of the control plane")]
    Record(#[from] apply::Error),
    /// A Secret that the archive has to have is not there.
    #[error("Secret {0} with the keys of the control plane does not exist")]
    KeysMissing(String),
    /// A member of etcd does not answer, or breaks off.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// No member is asked for, and none knows a leader.
    #[error("etcd has no quorum: {0}")]
    NoQuorum(String),
    /// No member that is in sync answers.
    #[error("no member of etcd is in sync: {0}")]
    NotInSync(String),
    /// The member that is asked for does not exist.
    #[error("etcd has no member {name}; its members are {members}")]
    NoSuchMember {
        /// The name that was given.
        name: String,
        /// The members, as a list.
        members: String,
    },
    /// The archive cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The stream broke, and what was written cannot be withdrawn.
    #[error(
        "the snapshot stream was interrupted; the backup cannot be started again, because standard output already \
         contains part of it"
    )]
    NotRepeatable,
}

impl BackupError {
    /// The stable identifier.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "RequestFailed",
            Self::Record(_) => "BadRecord",
            Self::KeysMissing(_) => "KeysMissing",
            Self::NoQuorum(_) => "QuorumLost",
            Self::NoSuchMember { .. } => "NoSuchMember",
            Self::Etcd(error) => error.reason(),
            Self::NotInSync(_) | Self::Write(_) | Self::NotRepeatable => "BackupFailed",
        }
    }
}
