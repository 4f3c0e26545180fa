//! The copies of this control plane in the workload cluster, each reduced to what is decided by and reported.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::resource::{self, desired_pods, is_finished};
use super::task::CopyKey;
use crate::api::labels::{AGENT_MANAGER, ANNOTATION_SCHEDULE_UID, LABEL_PLACED_BY};
use crate::api::util::digest;
use crate::diagnose::kstatus::{Status, evaluate_status};
use crate::k8s::object::{is_terminating, items_at, number_at, object_annotation, object_label, object_uid, text_at};

/// An object as it was last seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// UID.
    pub uid: String,
    /// `resourceVersion` as a number, to tell an older state from a newer one; 0 where it is none.
    pub version: u64,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub terminating: bool,
    /// Value of the label that makes it a copy of some control plane.
    pub placed_by: Option<String>,
    /// UID of its Schedule.
    pub schedule_uid: Option<String>,
    /// Digest of the set of fields that the agent owns; it changes when somebody takes or removes one.
    pub fields: String,
    /// The other field managers, each with a digest of its fields and of the time at which it changed them.
    pub managers: BTreeMap<String, String>,
    /// The part of its status that is reported.
    pub resource: Option<Map<String, Value>>,
    /// Its availability, by the rules of its kind.
    pub status: Status,
    /// It ran to its end.
    pub finished: bool,
    /// Number of pods that it asks for; `None` for kinds that run no pods.
    pub desired: Option<i64>,
}

impl Seen {
    /// Reduces an object, which has to have `apiVersion` and `kind`.
    pub fn of(object: &Value) -> Self {
        let version = text_at(object, "/metadata/resourceVersion").and_then(|version| version.parse().ok());
        Self {
            uid: object_uid(object).to_owned(),
            version: version.unwrap_or(0),
            generation: number_at(object, "/metadata/generation"),
            terminating: is_terminating(object),
            placed_by: object_label(object, LABEL_PLACED_BY).map(str::to_owned),
            schedule_uid: object_annotation(object, ANNOTATION_SCHEDULE_UID).map(str::to_owned),
            fields: digest::short_digest(owned_fields(object).map(Value::to_string).unwrap_or_default().as_bytes()),
            managers: other_managers(object),
            resource: resource::extract_reported_status(object),
            status: evaluate_status(object, None),
            finished: is_finished(object),
            desired: desired_pods(object),
        }
    }
}

/// Returns the fields that the agent applied; `None` where there is no such entry.
pub fn owned_fields(object: &Value) -> Option<&Value> {
    own_entries(object).find(|entry| text_at(entry, "/operation") == Some("Apply"))?.get("fieldsV1")
}

/// Returns the entries of managed fields that say that the agent has written the object, in whatever way.
pub fn own_entries(object: &Value) -> impl Iterator<Item = &Value> {
    items_at(object, "/metadata/managedFields").iter().filter(|entry| is_own_entry(entry))
}

/// Returns whether an entry of managed fields says that the agent has written the object, and not its status alone.
pub fn is_own_entry(entry: &Value) -> bool {
    text_at(entry, "/manager") == Some(AGENT_MANAGER) && text_at(entry, "/subresource").unwrap_or_default().is_empty()
}

/// Returns the managers beside the agent, without those that only write the status.
fn other_managers(object: &Value) -> BTreeMap<String, String> {
    let mut managers: BTreeMap<String, String> = BTreeMap::new();
    for entry in items_at(object, "/metadata/managedFields") {
        let name = text_at(entry, "/manager").unwrap_or_default();
        if name != AGENT_MANAGER && text_at(entry, "/subresource") != Some("status") {
            let fields = entry.get("fieldsV1").map(Value::to_string).unwrap_or_default();
            let time = text_at(entry, "/time").unwrap_or_default();
            let known = managers.entry(name.to_owned()).or_default();
            *known = digest::short_digest(format!("{known}{time}{fields}").as_bytes());
        }
    }
    managers
}

impl Seen {
    /// Returns the manager that changed the object since `before`; `None` where that cannot be told, as where a field was
    /// removed.
    pub fn changed_by(&self, before: &BTreeMap<String, String>) -> Option<&str> {
        self.managers.iter().find(|(name, fields)| before.get(*name) != Some(fields)).map(|(name, _)| name.as_str())
    }
}

/// All copies that were seen.
#[derive(Debug, Default)]
pub struct Index {
    copies: BTreeMap<CopyKey, Seen>,
}

impl Index {
    /// Returns a copy.
    pub fn get(&self, key: &CopyKey) -> Option<&Seen> {
        self.copies.get(key)
    }

    /// Returns the copies with a UID in their keys.
    pub fn copies_with_uid(&self) -> impl Iterator<Item = (&str, &CopyKey)> {
        self.copies.iter().map(|(key, seen)| (seen.uid.as_str(), key))
    }

    /// Records a copy. Returns false where a newer state of it is known already.
    pub fn put_copy(&mut self, key: CopyKey, seen: Seen) -> bool {
        if self.copies.get(&key).is_some_and(|known| known.uid == seen.uid && known.version > seen.version) {
            return false;
        }
        self.copies.insert(key, seen);
        true
    }

    /// Removes a copy that was deleted. Returns false where another object has its name by now.
    pub fn remove_deleted_copy(&mut self, key: &CopyKey, uid: &str) -> bool {
        let is_known = self.copies.get(key).is_some_and(|known| known.uid == uid);
        is_known && self.copies.remove(key).is_some()
    }

    /// Replaces all copies of a kind. Returns the keys of those that are not there any more.
    pub fn replace_kind(&mut self, group: &str, kind: &str, all: Vec<(CopyKey, Seen)>) -> Vec<CopyKey> {
        let mut before: BTreeMap<CopyKey, Seen> = BTreeMap::new();
        self.copies.retain(|key, seen| {
            let is_of_kind = key.group == group && key.kind == kind;
            if is_of_kind {
                before.insert(key.clone(), seen.clone());
            }
            !is_of_kind
        });
        for (key, seen) in all {
            // The list may be older than an answer that came in between.
            match before.remove(&key) {
                Some(known) if known.uid == seen.uid && known.version > seen.version => self.copies.insert(key, known),
                _ => self.copies.insert(key, seen),
            };
        }
        before.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(version: &str, fields: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "uid": "u",
            "resourceVersion": version, "labels": {"fleet-scheduler.io/placed-by": "0a1b2c3d"},
            "managedFields": [
                {"manager": "fleet-agent", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
                {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {}}]}})
    }

    fn key() -> CopyKey {
        CopyKey { group: "", kind: "ConfigMap", namespace: Some("n".to_owned()), name: "a".to_owned() }
    }

    #[test]
    fn a_field_that_was_taken_changes_the_digest() {
        let (whole, less) = (json!({"f:data": {"f:a": {}, "f:b": {}}}), json!({"f:data": {"f:a": {}}}));
        let [whole, again, less] = [&whole, &whole, &less].map(|fields| Seen::of(&object("1", fields)));
        assert_eq!(whole.fields, again.fields);
        assert_ne!(whole.fields, less.fields);
        assert_eq!(less.placed_by.as_deref(), Some("0a1b2c3d"));
        assert_eq!(less.changed_by(&whole.managers), None);
        assert_eq!(less.changed_by(&BTreeMap::new()), Some("kubectl-edit"));
    }

    #[test]
    fn an_older_state_does_not_replace_a_newer_one() {
        let mut index = Index::default();
        let [newer, older] = ["9", "8"].map(|version| Seen::of(&object(version, &json!({}))));
        assert!(index.put_copy(key(), newer));
        assert!(!index.put_copy(key(), older.clone()));
        assert!(index.replace_kind("", "ConfigMap", vec![(key(), older)]).is_empty());
        assert_eq!(index.get(&key()).unwrap().version, 9);
        assert!(index.replace_kind("", "Secret", Vec::new()).is_empty(), "another kind");
        assert!(!index.remove_deleted_copy(&key(), "other"));
        assert_eq!(index.replace_kind("", "ConfigMap", Vec::new()), [key()]);
        assert!(index.get(&key()).is_none());
    }
}
