//! Clients, names and kinds that all operations share, and objects as JSON.

use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::task::Target;
use crate::api::Schedule;
use crate::api::labels::LABEL_PLACED_BY;
use crate::api::placeable::{Kinds, Placeable};
use crate::k8s::object::object_label;

/// Clients and names that all operations share.
#[derive(Clone)]
pub struct Context {
    /// Client of the control plane.
    pub control_plane: Client,
    /// Client of the workload cluster.
    pub local: Client,
    /// Registered name of the cluster.
    pub cluster: String,
    /// Namespace of the cluster in the control plane.
    pub namespace: String,
    /// UID of the control plane's namespace `kube-system`.
    pub control_plane_uid: String,
    /// Value of the label of all copies: its first 8 characters.
    pub placed_by: String,
    /// The kinds that are placed here.
    pub kinds: Kinds,
}

impl Context {
    /// Returns the API of a copy's kind and namespace.
    pub fn copies_api(&self, target: &Target) -> Api<DynamicObject> {
        target.kind.api_in_version(&self.local, target.key.namespace.as_deref(), &target.api_version)
    }

    /// Returns the API of a kind in all namespaces.
    pub fn all_namespaces_api(&self, kind: &'static Placeable) -> Api<DynamicObject> {
        kind.objects_api(&self.local, None)
    }

    /// Returns the API of the cluster's Schedules.
    pub fn own_schedules_api(&self) -> Api<Schedule> {
        Api::namespaced(self.control_plane.clone(), &self.namespace)
    }

    /// Returns true for an object that carries our label.
    pub fn is_own(&self, object: &Value) -> bool {
        object_label(object, LABEL_PLACED_BY) == Some(self.placed_by.as_str())
    }
}

/// Returns true for kinds that the agent may list and watch.
pub fn is_listed(kind: &Placeable) -> bool {
    !(kind.group.is_empty() && kind.kind == "Secret")
}

/// Returns an object as JSON, with its kind.
pub fn copy_json(target: &Target, object: &DynamicObject) -> Value {
    object_json(object, &target.api_version, target.key.kind)
}

/// Returns an object as JSON with the kind that lists leave out.
pub fn object_json(object: &DynamicObject, api_version: &str, kind: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = json!(api_version);
    value["kind"] = json!(kind);
    value
}
