//! Reasons that a restore stopped.

use std::io;

use super::RestoreStage;
use crate::apply;
use crate::backup::ArchiveError;
use crate::control_plane::etcd::access::EtcdAccessError;
use crate::inventory::{self, Operation};
use crate::pki::PkiError;

/// Reason that a restore stopped.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The hosting cluster, or the API of the control plane, does not answer or refuses.
    #[error("a request failed")]
    Api(#[from] kube::Error),
    /// Record or lock cannot be read or written.
    #[error(transparent)]
    Engine(#[from] apply::Error),
    /// There is no access to etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdAccessError),
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The keys in the hosting cluster cannot be used.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// Rights that are missing.
    #[error("you may not {}", .0.join(", "))]
    Forbidden(Vec<String>),
    /// The backup was made with other keys than the control plane has.
    #[error("the keys that the backup needs are missing or different: {}", .0.join(", "))]
    KeysMissing(Vec<String>),
    /// The backup was made without keys, and a control plane that is lost has none.
    #[error("the backup has no keys: it was made with `--no-keys`")]
    WithoutKeys,
    /// The backup does not say how the control plane was installed, or says what this program cannot install.
    #[error("{0}")]
    NotInstallable(String),
    /// There is something in the place of the control plane that is lost.
    #[error("{0}")]
    AlreadyInstalled(String),
    /// The API server of the control plane is older than that of the backup.
    #[error("the backup was made with API server {archive}, but the control plane runs {present}")]
    OlderApiServer {
        /// Minor in the backup.
        archive: String,
        /// Minor that runs.
        present: String,
    },
    /// The hosting cluster rejects the rehearsal pod.
    #[error("the hosting cluster rejects the rehearsal pod: {0}")]
    NotPossible(String),
    /// A volume has no room for a second store.
    #[error("{claim} has {capacity} bytes, but the present and the restored store need {needed} together")]
    NoSpace {
        /// The claim.
        claim: String,
        /// Its size.
        capacity: u64,
        /// Size that is needed.
        needed: u64,
    },
    /// A pod found no room on its volume.
    #[error("the volume of pod {pod} has no space for the restored data: {why}")]
    VolumeFull {
        /// The pod.
        pod: String,
        /// What it said.
        why: String,
    },
    /// Others apply the objects that a restore changes.
    #[error("other tools apply the control plane: {}", .0.join(", "))]
    AppliedByOthers(Vec<String>),
    /// Agents that do not know how to hold deletions.
    #[error("these agents do not support holding deletions: {}", .0.join(", "))]
    AgentsBehind(Vec<String>),
    /// Another operation is open, or the same with another archive.
    #[error("an operation is open: {0}")]
    OperationOpen(Box<Operation>),
    /// What the open operation has recorded is not what this program writes.
    #[error("the record of the open operation cannot be read: {0}")]
    BadOperation(String),
    /// There is no restore to undo.
    #[error("no restore of this control plane is open")]
    NothingOpen,
    /// There is no restore that keeps former stores.
    #[error("no restore of this control plane keeps former etcd data")]
    NothingToCommit,
    /// The stage cannot be undone.
    #[error(
        "the restore is in stage {}: the API server has already served the restored data, so the former etcd data is \
         out of date",
        .0.name()
    )]
    PastRollback(RestoreStage),
    /// The control plane is not one that can be restored.
    #[error("{0}")]
    Unsuitable(String),
    /// A pod on a volume failed.
    #[error("pod {pod} failed: {why}")]
    PodFailed {
        /// The pod.
        pod: String,
        /// The reason, a clause.
        why: String,
    },
    /// The snapshot did not get into a pod.
    #[error("the snapshot could not be sent to pod {pod}")]
    Send {
        /// The pod.
        pod: String,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// The API of the control plane cannot be reached through a port-forward.
    #[error("the API of the control plane cannot be reached: {0}")]
    NoAccess(String),
    /// The time has passed.
    #[error("timed out waiting for the condition: {0}")]
    TimedOut(String),
}

impl From<inventory::Error> for RestoreError {
    fn from(error: inventory::Error) -> Self {
        match error {
            inventory::Error::OperationOpen { operation } => Self::OperationOpen(operation),
            error => Self::Engine(error.into()),
        }
    }
}

impl RestoreError {
    /// The stable identifier.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api(_) | Self::Etcd(_) => "RequestFailed",
            Self::Engine(error) => error.reason(),
            Self::Archive(error) => error.reason(),
            Self::Keys(_) => "BadKeys",
            Self::Forbidden(_) => "PreflightRefused",
            Self::KeysMissing(_) | Self::WithoutKeys => "KeysMissing",
            Self::NotInstallable(_) => "BackupNotInstallable",
            Self::AlreadyInstalled(_) => "AlreadyInstalled",
            Self::OlderApiServer { .. } => "OlderApiServer",
            Self::NoSpace { .. } | Self::VolumeFull { .. } => "NoSpaceToRestore",
            Self::NotPossible(_) => "RehearsalNotPossible",
            Self::AppliedByOthers(_) => "AppliedByOthers",
            Self::AgentsBehind(_) => "AgentsBehind",
            Self::OperationOpen(_) | Self::BadOperation(_) | Self::PastRollback(_) => "OperationOpen",
            Self::NothingOpen | Self::NothingToCommit => "NothingToRestore",
            Self::Unsuitable(_) | Self::PodFailed { .. } | Self::Send { .. } | Self::NoAccess(_) => "RestoreFailed",
            Self::TimedOut(_) => "RestoreTimedOut",
        }
    }
}
