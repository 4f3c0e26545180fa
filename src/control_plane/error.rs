//! Errors of an install of a control plane.

use std::path::PathBuf;

use super::endpoint::exposure::NotYet;
use super::health::Health;
use super::version::upgrade::UpgradeRefused;
use crate::api::version::KubeMinor;
use crate::chart::Diagnostics;
use crate::check::Report;
use crate::install::recorded_values::ValuesForgotten;
use crate::install::session::Stopped;
use crate::k8s::ObjectRef;
use crate::pki::{FolderError, PkiError};

/// Reason that an install ended without success.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Preflight refused; nothing was written.
    #[error("preflight refused the install")]
    Preflight(Box<Report>),
    /// The control plane that is installed, or of which an uninstall has kept data, cannot become the wanted
    /// version; nothing was written.
    #[error("refused to change the version")]
    Upgrade {
        /// Reason of the refusal.
        #[source]
        refused: UpgradeRefused,
        /// Kubernetes minor of the hosting cluster, where it is known.
        cluster: Option<KubeMinor>,
    },
    /// Recorded values would be reset; nothing was written.
    #[error(transparent)]
    Forgotten(#[from] ValuesForgotten),
    /// The hosting cluster does not answer or refuses a read.
    #[error("cannot read the hosting cluster")]
    Cluster(#[from] kube::Error),
    /// The engine stopped.
    #[error(transparent)]
    Engine(#[from] Stopped),
    /// The chart cannot be rendered with these values.
    #[error("the chart cannot be rendered")]
    Render(#[from] Diagnostics),
    /// The address of the API server did not become known.
    #[error("timed out waiting for the condition: {0}")]
    NoAddress(NotYet),
    /// The keys in the cluster are damaged.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// The keys that were found on this machine, because the cluster has none, are damaged.
    #[error("the keys in {} cannot be used", folder.display())]
    LocalKeys {
        /// Folder that holds the keys.
        folder: PathBuf,
        /// The problem with them.
        #[source]
        source: PkiError,
    },
    /// The Secret with keys of one's own cannot be used; nothing was written.
    #[error("Secret {namespace}/{secret} {}", if problems.is_empty() { "with the keys does not exist" } else { "does not contain the keys of this control plane" })]
    ExistingKeys {
        /// Name of the Secret.
        secret: String,
        /// The namespace of the control plane.
        namespace: String,
        /// Faults of the keys in the Secret, a clause each; none where there is no such Secret.
        problems: Vec<String>,
    },
    /// etcd cannot grow or shrink in place.
    #[error("the number of etcd members cannot change from {now} to {wanted}")]
    Members {
        /// Number of members that etcd has.
        now: u64,
        /// Number of members that was asked for.
        wanted: u64,
    },
    /// The volumes of etcd stay as the first install made them.
    #[error(
        "`{value}` cannot change after the first install: it is {}, and would be {}",
        now.as_deref().unwrap_or("the default"),
        wanted.as_deref().unwrap_or("the default")
    )]
    Volume {
        /// Path of the value: `etcd.storage.size` or `etcd.storage.storageClass`.
        value: &'static str,
        /// Size or class that is installed; none where it was left out.
        now: Option<String>,
        /// Size or class that was asked for; none where it was left out.
        wanted: Option<String>,
        /// True if larger volumes were asked for.
        grows: bool,
    },
    /// There are no keys, but there is data that was written under lost ones.
    #[error("the keys of the control plane are lost, but its data still exists in {0}")]
    KeysLost(ObjectRef),
    /// A local file cannot be written.
    #[error("a local file cannot be used")]
    Local(#[from] FolderError),
    /// The control plane runs, but its API is not reached from here.
    #[error("the control plane runs, but its API at {url} cannot be reached from here")]
    Unreachable {
        /// The server URL of the kubeconfig.
        url: String,
        /// Failure of the last attempt.
        why: String,
    },
    /// All objects are there, but the control plane is not healthy.
    #[error("the control plane is not healthy")]
    Unhealthy(Box<Health>),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}
