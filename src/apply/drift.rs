//! Drift: changes of others to owned objects since they were applied, from the record and from metadata alone.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::autoscaler::{Scaler, find_scalers};
use super::engine::Engine;
use super::error::Error;
use crate::inventory::record::{Item, Phase};
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, object_uid};
use crate::k8s::request::server::{MANAGER, Selection, Server};

/// Drift of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drifted {
    /// It is gone.
    Missing,
    /// Another one has its name.
    Replaced,
    /// Another one has its name, which others made, such as a tool that restores from a backup; the latest first.
    Copied {
        /// Their names as managers.
        by: Vec<String>,
    },
    /// Fields of ours are held or were removed by others, the latest first.
    Fields {
        /// Their names as managers.
        by: Vec<String>,
    },
}

/// An object that is not as it was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The object.
    pub object: ObjectRef,
    /// Kind of its drift.
    pub strayed: Drifted,
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.strayed {
            Drifted::Missing => write!(f, "{} was deleted", self.object),
            Drifted::Replaced => write!(f, "{} was replaced since it was installed", self.object),
            Drifted::Copied { by } => {
                write!(f, "{} was replaced since it was installed, by {}", self.object, by.join(", "))
            }
            Drifted::Fields { by } if by.is_empty() => write!(f, "fields of {} were removed", self.object),
            Drifted::Fields { by } => write!(f, "fields of {} were changed, last by {}", self.object, by[0]),
        }
    }
}

impl Engine {
    /// Compares the recorded objects with the existing ones.
    ///
    /// # Errors
    /// Whatever the server refuses to read.
    pub async fn find_drift(&self) -> Result<Vec<Drift>, Error> {
        let server = self.server();
        let state = crate::inventory::store::load_state(&server, &self.owner).await?;
        let installed = state.record.filter(|record| record.phase == Phase::Installed);
        let mut inventory: Vec<Item> = installed.map(|record| record.inventory).unwrap_or_default();
        // A claim that an uninstall kept is its set's again, and none that takes its place is made by an install.
        inventory.retain(|item| !item.object.is_kind("", "PersistentVolumeClaim"));
        let mut groups: BTreeMap<(&str, &str, Option<&str>), Vec<&Item>> = BTreeMap::new();
        for item in &inventory {
            let object = &item.object;
            groups.entry((&object.group, &object.kind, object.namespace.as_deref())).or_default().push(item);
        }
        let looks: Vec<Result<Vec<Drift>, Error>> = stream::iter(groups)
            .map(|(place, items)| find_kind_drift(&server, place, items))
            .buffered(self.options.parallel)
            .collect()
            .await;
        let mut all = Vec::new();
        for look in looks {
            all.extend(look?);
        }
        Ok(all)
    }
}

async fn find_kind_drift(
    server: &Server,
    (group, kind, namespace): (&str, &str, Option<&str>),
    items: Vec<&Item>,
) -> Result<Vec<Drift>, Error> {
    let kind = server
        .find_served_kind(group, kind)
        .await
        .map_err(|e| Error::from_api_error(format!("find the kind {kind}"), e))?;
    let mut live: BTreeMap<String, Value> = BTreeMap::new();
    if namespace.is_some() && items.len() > 1 {
        let selection = Selection { namespace, metadata_only: true, ..Selection::default() };
        let found = server
            .list_objects(&kind, &selection)
            .await
            .map_err(|e| Error::from_api_error(format!("read {}", kind.plural), e))?;
        live.extend(found.into_iter().filter_map(|object| Some((ObjectRef::of(&object)?.name, object))));
    } else {
        for item in &items {
            let found = server
                .get_metadata(&kind, namespace, &item.object.name)
                .await
                .map_err(|e| Error::from_api_error(format!("read {}", kind.plural), e))?;
            live.extend(found.map(|object| (item.object.name.clone(), object)));
        }
    }
    let there = items.iter().filter_map(|item| Some((&item.object, live.get(&item.object.name)?)));
    let scalers = find_scalers(server, there).await;
    let judged = items.into_iter().filter_map(|item| {
        let strayed = evaluate_drift(item, live.get(&item.object.name), scalers.get(&item.object))?;
        Some(Drift { object: item.object.clone(), strayed })
    });
    Ok(judged.collect())
}

fn evaluate_drift(item: &Item, live: Option<&Value>, scaler: Option<&Scaler>) -> Option<Drifted> {
    let Some(live) = live else { return Some(Drifted::Missing) };
    if object_uid(live) != item.uid {
        let by = managed_fields::list_managers(live);
        let applied = managed_fields::owned_entry(live).is_some() || managed_fields::is_of_keys(live);
        return Some(if applied || by.is_empty() { Drifted::Replaced } else { Drifted::Copied { by } });
    }
    // Replicas that are not left to whoever scaled are missing like any other field.
    let left = scaler.is_none_or(Scaler::is_replica_owner);
    let held = if left {
        managed_fields::count_owned_fields(live)
    } else {
        managed_fields::owned_entry(live).map_or(0, managed_fields::count_fields)
    };
    let renewed = if item.object.is_kind("", "Secret") { managed_fields::count_renewed_fields(live) } else { 0 };
    (item.fields > held + renewed).then(|| {
        let mut by =
            if left { managed_fields::list_managers(live) } else { managed_fields::managers_and_scalers(live) };
        by.retain(|manager| manager != MANAGER);
        Drifted::Fields { by }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Origin, Policy};
    use serde_json::json;

    fn live(fields: &Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "managedFields": [
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]}})
    }

    /// An object `a` of which two fields are recorded.
    fn item(group: &str, kind: &str) -> Item {
        let object = ObjectRef { group: group.into(), kind: kind.into(), namespace: None, name: "a".into() };
        let (origin, policy) = (Origin::Created, Policy::Delete);
        Item { object, uid: "u".into(), origin, policy, digest: String::new(), fields: 2 }
    }

    #[test]
    fn an_object_strays_when_it_is_gone_or_another_or_has_fewer_fields_of_ours() {
        let item = item("", "ConfigMap");
        let whole = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
        assert_eq!(evaluate_drift(&item, Some(&live(&whole)), None), None);
        let by = vec!["kubectl-edit".to_owned()];
        assert_eq!(
            evaluate_drift(&item, Some(&live(&json!({"f:data": {"f:a": {}}}))), None),
            Some(Drifted::Fields { by })
        );
        assert_eq!(evaluate_drift(&item, None, None), Some(Drifted::Missing));
        let other = Item { uid: "v".into(), ..item.clone() };
        assert_eq!(evaluate_drift(&other, Some(&live(&whole)), None), Some(Drifted::Replaced));
        let copy = json!({"metadata": {"name": "a", "uid": "w", "managedFields": [
            {"manager": "backup-server", "operation": "Update", "fieldsV1": {"f:data": {}}}]}});
        let by = vec!["backup-server".to_owned()];
        assert_eq!(evaluate_drift(&item, Some(&copy), None), Some(Drifted::Copied { by }));
        let unknown = Item { fields: 0, ..item };
        assert_eq!(
            evaluate_drift(&unknown, Some(&live(&json!({"f:data": {"f:a": {}}}))), None),
            None,
            "an older record knows no number"
        );
    }

    fn object_written_by(manager: &str) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "managedFields": [
            {"manager": manager, "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}]}})
    }

    #[test]
    fn what_a_renewal_wrote_is_no_drift_and_what_others_wrote_is() {
        let secret = item("", "Secret");
        let renewed = object_written_by(crate::api::labels::KEYS_MANAGER);
        assert_eq!(evaluate_drift(&secret, Some(&renewed), None), None);
        assert!(evaluate_drift(&secret, Some(&object_written_by("kubectl-edit")), None).is_some());
        assert!(evaluate_drift(&item("", "ConfigMap"), Some(&renewed), None).is_some(), "it renews Secrets only");
    }

    #[test]
    fn replicas_that_are_not_an_autoscalers_are_missing_and_who_scaled_is_named() {
        let item = item("apps", "Deployment");
        let live = json!({"metadata": {"name": "a", "uid": "u", "managedFields": [
            {"manager": "oc", "operation": "Update", "subresource": "scale", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}}]}});
        for kept in [Scaler::Autoscaler("a".into()), Scaler::Unread("oc".into())] {
            assert_eq!(evaluate_drift(&item, Some(&live), Some(&kept)), None);
        }
        for not_kept in [Scaler::Gone, Scaler::Other] {
            let by = vec!["oc".to_owned()];
            assert_eq!(evaluate_drift(&item, Some(&live), Some(&not_kept)), Some(Drifted::Fields { by }));
        }
    }
}
