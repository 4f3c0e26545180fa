//! An object as it was found in the cluster, before anything is decided about it.

use serde_json::Value;

use super::wait_deleted::PendingDeletion;
use crate::api::kinds::Kind;
use crate::k8s::object::{ObjectRef, object_uid};

/// An object found in the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) object: ObjectRef,
    pub(crate) live: Value,
}

impl Found {
    pub(crate) fn to_pending_deletion(&self) -> PendingDeletion {
        PendingDeletion { kind: self.kind.clone(), object: self.object.clone(), uid: object_uid(&self.live).to_owned() }
    }
}
