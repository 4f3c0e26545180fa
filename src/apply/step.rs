//! One object of a plan, and the action on it.

use serde_json::Value;

use super::autoscaler::Scaler;
use super::conflict;
use crate::api::kinds::Kind;
use crate::inventory::release::Policy;
use crate::k8s::managed_fields;
use crate::k8s::object::ObjectRef;

/// Action on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is not there (or is going away) and will be made.
    Create,
    /// It is ours and gets other fields, or fields back that others changed.
    Change,
    /// It is there, not ours, and will be taken over.
    Adopt,
    /// Nothing to do.
    Unchanged,
    /// It is there, not ours, and stays as it is: an existing namespace.
    Leave,
}

impl Action {
    /// Returns whether it sends a write.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Change | Self::Adopt)
    }
}

/// One object of a plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// The stage that it is applied in.
    pub stage: u32,
    /// Its kind, with the path.
    pub kind: Kind,
    /// Its name.
    pub target: ObjectRef,
    /// The manifest as it will be sent, with our labels.
    pub manifest: Value,
    /// Its deletion policy.
    pub policy: Policy,
    /// The action.
    pub action: Action,
    /// Our fields that others changed since: paths into the manifest.
    pub drift: Vec<String>,
    /// Metadata of the live object.
    pub(crate) live: Option<Value>,
    /// The digest of the manifest, for the record.
    pub(crate) digest: String,
    /// Owner of the replicas, where somebody has scaled them; none where we set none, or the user wants them back.
    pub(crate) scaler: Option<Scaler>,
    /// Labels and annotations that the manifest asked for in claim templates which cannot be changed, a noun phrase each.
    pub(crate) unset: Vec<String>,
}

impl Step {
    /// Returns notes on what the object will not have of the manifest: replicas that are left to somebody, with the field to
    /// take to hold them, and metadata of claim templates that cannot be changed.
    pub(crate) fn describe_omissions(&self) -> impl Iterator<Item = String> {
        let keeper = self.scaler.as_ref().and_then(Scaler::describe_replica_owner);
        let left = keeper.map(|keeper| {
            let flag = conflict::format_take_fields_flag(&self.target, managed_fields::REPLICAS);
            format!("replicas are left to {keeper}; to set them, take ownership of the field `{flag}`")
        });
        let unset = self.unset.iter().map(|what| format!("{what} is not set: claim templates cannot be changed"));
        left.into_iter().chain(unset)
    }
}
