//! Objects of known kinds, deserialized once from what a server answered.

use jiff::Timestamp;
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::evidence::Subject;
use crate::k8s::object::ObjectRef;

/// Fields with a time, of all kinds that are read here.
const TIMES: [&str; 11] = [
    "creationTimestamp",
    "deletionTimestamp",
    "eventTime",
    "finishedAt",
    "firstTimestamp",
    "lastObservedTime",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "startTime",
    "startedAt",
];

/// Deserializes an object; none where it has not the shape of its kind. Times that cannot be represented are absent.
pub(super) fn deserialize_object<K: DeserializeOwned>(object: &Value) -> Option<K> {
    K::deserialize(object).ok().or_else(|| {
        let mut repaired = object.clone();
        if let Some(metadata) = repaired.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        drop_unreadable_times(&mut repaired);
        K::deserialize(repaired).ok()
    })
}

/// Deserializes a list without the objects that have not the shape of their kind.
pub(super) fn read_list<K: DeserializeOwned>(objects: &[Value]) -> Vec<K> {
    objects.iter().filter_map(deserialize_object).collect()
}

fn drop_unreadable_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if !TIMES.contains(&name.as_str()) {
                    drop_unreadable_times(field);
                } else if field.as_str().and_then(|time| time.parse::<Timestamp>().ok()).is_none() {
                    // An object is being deleted whatever the time, which a long grace period moves out of reach.
                    let deleted = name == "deletionTimestamp" && field.is_string();
                    *field = if deleted { Timestamp::MAX.to_string().into() } else { Value::Null };
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_unreadable_times),
        _ => {}
    }
}

/// The metadata of an object, read as [`crate::k8s::object`] reads that of a [`Value`].
pub(super) trait Typed: Metadata<Ty = ObjectMeta> {
    /// The uid, empty when there is none.
    fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> Option<&str> {
        self.metadata().name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata().namespace.as_deref()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata().annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns whether its deletion was requested, which cannot be revoked.
    fn is_terminating(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Returns whether an owner reference names one of these uids.
    fn is_owned_by(&self, owners: &[&str]) -> bool {
        self.metadata().owner_references.iter().flatten().any(|owner| owners.contains(&owner.uid.as_str()))
    }

    /// The reference to the object, or nothing when it lacks a name.
    fn object_ref(&self) -> Option<ObjectRef> {
        Some(ObjectRef {
            group: Self::GROUP.to_owned(),
            kind: Self::KIND.to_owned(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name()?.to_owned(),
        })
    }

    fn event_subject(&self) -> Subject<'_> {
        Subject { uid: self.uid(), kind: Self::KIND, name: self.name().unwrap_or_default() }
    }
}

impl<K: Metadata<Ty = ObjectMeta>> Typed for K {}

/// Deserializes the JSON of tests, all of which must have the shape of its kind.
#[cfg(test)]
pub(crate) fn typed_object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the shape of its kind")
}

/// As [`typed`], of a list.
#[cfg(test)]
pub(crate) fn typed_list<K: DeserializeOwned>(objects: Vec<Value>) -> Vec<K> {
    objects.into_iter().map(typed_object).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
    use k8s_openapi::api::storage::v1::StorageClass;
    use serde_json::json;

    use super::*;
    use crate::diagnose::evidence::event_time;

    const AT: &str = "2026-01-01T00:00:08Z";

    fn time(event: &Value) -> Option<String> {
        event_time(&deserialize_object::<Event>(event).expect("an event")).map(|at| at.to_string())
    }

    #[test]
    fn events_as_servers_write_them() {
        let series = json!({"count": 3, "lastObservedTime": "2026-01-01T00:00:08.000000Z"});
        let new = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a.1", "creationTimestamp": null},
            "involvedObject": {}, "reason": "Scheduled", "source": {}, "firstTimestamp": null, "lastTimestamp": null,
            "eventTime": "2026-01-01T00:00:07.900000Z", "series": series, "reportingComponent": "default-scheduler"});
        assert_eq!(time(&new).as_deref(), Some(AT));
        let old = json!({"metadata": {"namespace": "n"}, "involvedObject": {"kind": "Node", "name": "a"}, "type": "Normal",
            "source": {"component": "kubelet"}, "lastTimestamp": AT, "eventTime": null, "series": null,
            "reportingComponent": "", "reportingInstance": ""});
        assert_eq!(time(&old).as_deref(), Some(AT));
        assert_eq!(time(&json!({"involvedObject": null, "metadata": null, "message": null})), None);
    }

    fn event_with_field(field: &str, value: &Value) -> Value {
        let mut event = json!({"reason": "r", "metadata": {"uid": "u"}});
        event[field] = value.clone();
        event
    }

    #[test]
    fn unreadable_times_are_absent() {
        for broken in [json!("tomorrow"), json!("12026-01-01T00:00:00Z"), json!(""), json!(8)] {
            assert_eq!(time(&event_with_field("lastTimestamp", &broken)), None, "{broken}");
            let mut next = event_with_field("lastTimestamp", &broken);
            next["eventTime"] = AT.into();
            next["metadata"]["managedFields"] = json!([{"manager": "m", "time": broken}]);
            assert_eq!(time(&next).as_deref(), Some(AT), "{broken}");
            let mut series = event_with_field("lastTimestamp", &json!(AT));
            series["series"] = json!({"count": 2, "lastObservedTime": broken});
            assert_eq!(time(&series).as_deref(), Some(AT), "{broken}");
        }
    }

    #[test]
    fn pods_with_unreadable_times_stay() {
        let pod: Pod = deserialize_object(&json!({"metadata": {"name": "p", "deletionTimestamp": "12026-01-01T00:00:00Z"},
            "status": {"containerStatuses": [{"name": "c", "state": {"terminated": {"startedAt": null, "finishedAt": "?"}}}]}}))
        .expect("a pod");
        assert!(pod.is_terminating());
        assert_eq!(pod.object_ref().unwrap().to_string(), "Pod p");
        let there: Pod =
            deserialize_object(&json!({"metadata": {"deletionTimestamp": null, "creationTimestamp": "?"}})).unwrap();
        assert!(!there.is_terminating() && there.object_ref().is_none());
    }

    #[test]
    fn objects_of_another_shape_left_out() {
        let pods = [json!({"metadata": {"name": "a"}}), json!({"metadata": []}), json!({"status": "?"}), json!(null)];
        let read: Vec<Pod> = read_list(&pods);
        assert_eq!(read.iter().filter_map(Typed::name).collect::<Vec<_>>(), ["a"]);
        assert!(super::deserialize_object::<Pod>(&json!({"apiVersion": "v1", "kind": "Node"})).is_none());
    }

    #[test]
    fn quantities_and_empty_parts_are_read() {
        let pod = json!({"spec": {"containers": null, "volumes": [{"name": "v"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastProbeTime": null}]}});
        assert!(deserialize_object::<Pod>(&pod).is_some());
        for (memory, text) in [(json!("16Mi"), "16Mi"), (json!(1024), "1024")] {
            let container = json!({"name": "c", "resources": {"limits": {"memory": memory}}});
            let pod: Pod = deserialize_object(&json!({"spec": {"containers": [container]}})).unwrap();
            let resources = pod.spec.unwrap().containers[0].resources.clone().unwrap();
            assert_eq!(resources.limits.unwrap()["memory"].0, text);
        }
        let pvc =
            json!({"spec": {"storageClassName": null, "resources": {"requests": {"storage": "1Gi"}}}, "status": {}});
        assert!(deserialize_object::<PersistentVolumeClaim>(&pvc).is_some());
        assert!(deserialize_object::<StorageClass>(&json!({"provisioner": "p", "parameters": null})).is_some());
        let replica_set = json!({"metadata": {"ownerReferences": [{"uid": "d"}]}, "spec": {"selector": {}}});
        assert!(deserialize_object::<ReplicaSet>(&replica_set).unwrap().is_owned_by(&["d"]));
    }
}
