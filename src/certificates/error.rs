//! Reasons that keys and certificates of a control plane are not complete.

use crate::pki::PkiError;
use crate::pki::secrets::KEPT_SECRET;

/// Reason that the keys could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The hosting cluster does not answer or refuses.
    #[error("a request to the hosting cluster failed")]
    Api(#[from] kube::Error),
    /// The existing keys cannot be used.
    #[error(
        "the existing keys cannot be used; restore them from a backup, because new ones would lock out every agent"
    )]
    Damaged(#[source] PkiError),
    /// Nothing is wrong with the keys that exist, but new ones cannot be made.
    #[error("keys and certificates cannot be created")]
    NotMade(#[source] PkiError),
    /// The Service has an address that no certificate can name.
    #[error("the load balancer gave Service apiserver an address that cannot be in a certificate")]
    Address(#[source] PkiError),
    /// The CAs are missing, but something that was created with them exists.
    #[error(
        "Secret {KEPT_SECRET} is missing, but {0} still exists; restore the Secret from a backup, because new keys \
         would make the data and the agents unusable"
    )]
    Lost(String),
    /// A Secret of the name is not this control plane's.
    #[error("Secret {0} belongs to another control plane; install into another namespace, or delete the Secret")]
    NotOurs(String),
    /// A Secret that an install makes is missing, or cannot be changed.
    #[error("Secret {0} is missing or immutable; the next install of the control plane creates it again")]
    NotInstalled(String),
    /// Other processes write at the same time, again and again.
    #[error("another process writes the Secrets at the same time")]
    Contended,
    /// A workload does not roll out its new pods.
    #[error("the rollout of {0} did not complete in time")]
    NotRolledOut(String),
    /// A pod still shows another certificate than the one in its Secret.
    #[error("{}", .0.join("; "))]
    NotServed(Vec<String>),
}

impl From<PkiError> for KeysError {
    fn from(error: PkiError) -> Self {
        match error {
            PkiError::Random | PkiError::Make { .. } | PkiError::Time { .. } => Self::NotMade(error),
            _ => Self::Damaged(error),
        }
    }
}
