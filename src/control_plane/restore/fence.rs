//! The fence around a restore: the selector of the API's Service, and the replicas of what runs.
//!
//! Fields that are changed belong to whoever installed. Their ownership is given back with the values, so that no later
//! install finds them taken.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::components::{API_SERVER, CONTROLLERS, ETCD, LABEL_COMPONENT};
use super::error::RestoreError;
use super::facts::{RestoreFacts, SERVICE};
use super::{RESTORE_MANAGER, RestoreTarget};
use crate::api::labels::LABEL_INSTANCE;
use crate::k8s::managed_fields::REPLICAS;

/// Label in the selector of the Service while it is fenced: no pod has it.
const FENCED: &str = "fleet-scheduler.io/fenced";
/// Path of the selector in an entry of `managedFields`.
const SELECTOR: &str = ".spec.selector";

/// The entry of `managedFields` that a field was in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldOwner {
    /// The field manager.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
}

/// Reads the replicas of a component, and who owns that field.
pub(super) async fn read_scale(
    target: &RestoreTarget<'_>,
    component: &str,
) -> Result<(i32, Option<FieldOwner>), RestoreError> {
    let (replicas, fields) = if component == ETCD {
        let set = sets(target).get(component).await?;
        (set.spec.as_ref().and_then(|spec| spec.replicas), managed_fields(&set))
    } else {
        let deployment = deployments(target).get(component).await?;
        (deployment.spec.as_ref().and_then(|spec| spec.replicas), managed_fields(&deployment))
    };
    Ok((replicas.unwrap_or(1), find_owner(&fields, REPLICAS)))
}

/// Reads who owns the selector of the API's Service.
pub(super) async fn read_selector_owner(target: &RestoreTarget<'_>) -> Result<Option<FieldOwner>, RestoreError> {
    Ok(find_owner(&managed_fields(&services(target).get(API_SERVER).await?), SELECTOR))
}

impl RestoreTarget<'_> {
    /// Leads nobody to the API server, and stops all but etcd. Returns when their pods are gone.
    pub(super) async fn fence_api(&self) -> Result<(), RestoreError> {
        let fence = json!({"spec": {"selector": {FENCED: "true"}}});
        services(self).patch(API_SERVER, &restore_patch_params(), &Patch::Merge(fence)).await?;
        for component in CONTROLLERS.into_iter().chain([API_SERVER]) {
            self.set_replicas(component, 0).await?;
        }
        for component in CONTROLLERS.into_iter().chain([API_SERVER]) {
            self.wait_until_gone(component).await?;
        }
        Ok(())
    }

    /// Runs the controllers again, and leads everybody to the API server.
    pub(super) async fn open_api(&self, facts: &RestoreFacts) -> Result<(), RestoreError> {
        for component in CONTROLLERS {
            self.restore_replicas(component, facts).await?;
        }
        let open = json!({"spec": {"selector": {FENCED: null}}});
        let service = services(self).patch(API_SERVER, &restore_patch_params(), &Patch::Merge(open)).await?;
        if let Some(fields) = facts.owners.get(SERVICE).and_then(|owner| give_back(managed_fields(&service), owner)) {
            services(self).patch(API_SERVER, &restore_patch_params(), &owners_patch(fields)).await?;
        }
        Ok(())
    }

    /// Stops all members of etcd. Returns when their pods are gone.
    pub(super) async fn stop_etcd(&self) -> Result<(), RestoreError> {
        self.set_replicas(ETCD, 0).await?;
        self.wait_until_gone(ETCD).await
    }

    /// Gives a component its former replicas, and the field its former owner.
    pub(super) async fn restore_replicas(&self, component: &str, facts: &RestoreFacts) -> Result<(), RestoreError> {
        let fields = self.set_replicas(component, facts.replicas_of(component)).await?;
        let Some(fields) = facts.owners.get(component).and_then(|owner| give_back(fields, owner)) else {
            return Ok(());
        };
        self.patch_component(component, &owners_patch(fields)).await.map(drop)
    }

    /// Sets the replicas of a component. Returns the entries of its `managedFields`.
    async fn set_replicas(&self, component: &str, replicas: i32) -> Result<Vec<Value>, RestoreError> {
        self.patch_component(component, &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await
    }

    async fn patch_component(&self, component: &str, patch: &Patch<Value>) -> Result<Vec<Value>, RestoreError> {
        Ok(if component == ETCD {
            managed_fields(&sets(self).patch(component, &restore_patch_params(), patch).await?)
        } else {
            managed_fields(&deployments(self).patch(component, &restore_patch_params(), patch).await?)
        })
    }

    async fn wait_until_gone(&self, component: &str) -> Result<(), RestoreError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let selector = format!("{LABEL_COMPONENT}={component},{LABEL_INSTANCE}={}", self.name);
        loop {
            let left = pods.list(&ListParams::default().labels(&selector)).await?;
            let Some(pod) = left.items.first() else { return Ok(()) };
            self.wait_a_moment(&format!("pod {} still exists", pod.name_any())).await?;
        }
    }
}

pub(super) fn sets(target: &RestoreTarget<'_>) -> Api<StatefulSet> {
    Api::namespaced(target.client.clone(), target.namespace.as_str())
}

pub(super) fn deployments(target: &RestoreTarget<'_>) -> Api<Deployment> {
    Api::namespaced(target.client.clone(), target.namespace.as_str())
}

fn services(target: &RestoreTarget<'_>) -> Api<Service> {
    Api::namespaced(target.client.clone(), target.namespace.as_str())
}

fn restore_patch_params() -> PatchParams {
    PatchParams { field_manager: Some(RESTORE_MANAGER.to_owned()), ..PatchParams::default() }
}

fn owners_patch(fields: Vec<Value>) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"managedFields": fields}}))
}

fn managed_fields(object: &impl kube::Resource) -> Vec<Value> {
    let entries = object.meta().managed_fields.iter().flatten();
    entries.filter_map(|entry| serde_json::to_value(entry).ok()).collect()
}

/// Finds who owns a field, such as `.spec.replicas`, other than a restore.
pub(super) fn find_owner(entries: &[Value], field: &str) -> Option<FieldOwner> {
    let pointer = format!("/fieldsV1{}", field.replace('.', "/f:"));
    let entry = entries.iter().find(|entry| entry.pointer(&pointer).is_some() && !is_of_restore(entry))?;
    let (manager, operation) = (entry["manager"].as_str()?, entry["operation"].as_str()?);
    Some(FieldOwner { manager: manager.to_owned(), operation: operation.to_owned() })
}

/// Moves the fields of a restore into the entry of their former owner. None where either has no entry.
pub(super) fn give_back(mut entries: Vec<Value>, owner: &FieldOwner) -> Option<Vec<Value>> {
    let own = entries.iter().position(is_of_restore)?;
    let fields = entries.remove(own).get("fieldsV1").cloned()?;
    let former = entries.iter_mut().find(|entry| {
        entry["manager"] == *owner.manager
            && entry["operation"] == *owner.operation
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })?;
    merge_fields(&mut former["fieldsV1"], fields);
    Some(entries)
}

fn is_of_restore(entry: &Value) -> bool {
    entry["manager"] == RESTORE_MANAGER
}

fn merge_fields(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    for (key, value) in from {
        merge_fields(into.entry(key).or_insert_with(|| Value::Object(Map::new())), value);
    }
}
