//! Owner of an installation: its names, and the labels that mark its objects.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::applyset;
pub use crate::api::applyset::{MANAGED_BY_LABEL, PART_OF_LABEL};
pub use crate::api::labels::{LABEL_INSTALL as INSTALL_LABEL, LABEL_INSTALL_KIND as OWNER_KIND_LABEL};
/// The annotation on a namespace that we created: the install uid of its creator.
pub const NAMESPACE_CREATED_ANNOTATION: &str = "fleet-scheduler.io/namespace-created-by";
/// The annotation on objects that only a deletion of data removes, so that a lost record loses no keys.
pub use crate::api::labels::LABEL_KEEP as KEEP_ANNOTATION;
/// The label on the parent of an ApplySet: its id.
pub const APPLYSET_ID_LABEL: &str = "applyset.kubernetes.io/id";
/// The annotation on the parent: the tool that writes the set.
pub const APPLYSET_TOOLING: &str = "applyset.kubernetes.io/tooling";
/// The annotation on the parent: the sorted kinds of the members.
pub const APPLYSET_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// The annotation on the parent: namespaces of members beside the parent's own.
pub const APPLYSET_NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// An installation: the kind of thing that is installed, its name and its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Kind of thing that is installed, a DNS label such as `control-plane` or `agent`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The namespace of its record and of objects that name none.
    pub namespace: String,
}

impl Owner {
    /// An owner; the three texts are DNS labels, checked by the caller.
    pub fn new(kind: &str, name: &str, namespace: &str) -> Self {
        Self { kind: kind.to_owned(), name: name.to_owned(), namespace: namespace.to_owned() }
    }

    /// The name of the record's Secret: `fleetctl.<name>` for a control plane, `fleetctl.<kind>.<name>` for others.
    pub fn record_name(&self) -> String {
        applyset::record_name(&self.kind, &self.name)
    }

    /// The id of our ApplySet, whose parent is the record's Secret.
    pub fn applyset_id(&self) -> String {
        applyset::applyset_id(&self.kind, &self.name, &self.namespace)
    }

    /// The selector of everything that carries this owner's label, pods and volume claims included.
    pub fn owner_selector(&self) -> String {
        format!("{INSTALL_LABEL}={},{OWNER_KIND_LABEL}={}", self.name, self.kind)
    }

    /// The labels that every applied object gets.
    pub fn owner_labels(&self) -> [(&'static str, String); 4] {
        applyset::installation_labels(&self.kind, &self.name, &self.namespace)
    }

    /// Returns whether an object (or its metadata alone) carries all labels of an applied object of this owner.
    pub fn has_owner_labels(&self, object: &Value) -> bool {
        self.owner_labels().iter().all(|(key, value)| crate::k8s::object::object_label(object, key) == Some(value))
    }

    /// Returns whether an object carries the labels that pods and volume claims inherit.
    pub fn labelled_as_dependent(&self, object: &Value) -> bool {
        crate::k8s::object::object_label(object, INSTALL_LABEL) == Some(&self.name)
            && crate::k8s::object::object_label(object, OWNER_KIND_LABEL) == Some(&self.kind)
    }

    /// Returns whether an object that carries this owner's name and kind is of an installation in another namespace, of
    /// which `elsewhere` are known.
    ///
    /// Applied objects tell it by their set, which needs no record: manifests that `kubectl apply` has applied have none,
    /// and a record can be lost. What was made of them is in no set, and is told by its namespace.
    pub fn is_anothers(&self, object: &Value, elsewhere: &BTreeSet<String>) -> bool {
        match crate::k8s::object::object_label(object, PART_OF_LABEL) {
            Some(_) => self.is_of_another_set(object),
            None => crate::k8s::object::text_at(object, "/metadata/namespace")
                .is_some_and(|place| elsewhere.contains(place)),
        }
    }

    /// Returns whether an object is in a set, and not in this owner's.
    pub(crate) fn is_of_another_set(&self, object: &Value) -> bool {
        crate::k8s::object::object_label(object, PART_OF_LABEL).is_some_and(|set| set != self.applyset_id())
    }

    /// Puts the owner's labels on an object, and on the pods and volume claims that it makes.
    ///
    /// Pods and claims get only the install labels: the set's other labels belong to applied objects alone. The same
    /// function serves a caller that exports manifests, so that exported and installed objects are equal.
    pub fn set_owner_labels(&self, object: &mut Value) {
        let labels = self.owner_labels();
        merge_labels(object, &labels);
        for pointer in ["/spec/template", "/spec/jobTemplate/spec/template"] {
            if let Some(template) = object.pointer_mut(pointer).filter(|t| t.pointer("/spec/containers").is_some()) {
                merge_labels(template, &labels[..2]);
            }
        }
        if let Some(claims) = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut) {
            for claim in claims {
                merge_labels(claim, &labels[..2]);
            }
        }
    }
}

fn merge_labels(object: &mut Value, labels: &[(&'static str, String)]) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let target = metadata.entry("labels").or_insert_with(|| json!({}));
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Some(target) = target.as_object_mut() {
        for (key, value) in labels {
            target.insert((*key).to_owned(), Value::String(value.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_applyset_id_is_the_one_that_kubectl_computes() {
        // printf %s fleetctl.demo.fleet.Secret. | openssl dgst -sha256 -binary | openssl base64 | tr +/ -_ | tr -d =
        let owner = Owner::new("control-plane", "demo", "fleet");
        assert_eq!(owner.applyset_id(), "applyset-1A-GDuWTcD7UuNwwQbZpswDhNjIcuarwDMa7bWTiGGg-v1");
        assert!(owner.applyset_id().len() <= 63, "a label value");
    }

    #[test]
    fn pods_and_claims_are_found_by_the_owner_but_are_not_members_of_the_set() {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let mut set = json!({"kind": "StatefulSet", "metadata": {"name": "etcd", "labels": {"app": "etcd"}}, "spec": {
            "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        owner.set_owner_labels(&mut set);
        assert!(owner.has_owner_labels(&set));
        assert_eq!(set["metadata"]["labels"]["app"], "etcd");
        for pointer in ["/spec/template", "/spec/volumeClaimTemplates/0"] {
            let part = set.pointer(pointer).unwrap();
            assert!(owner.labelled_as_dependent(part) && !owner.has_owner_labels(part), "{pointer}");
        }
        assert!(!Owner::new("agent", "demo", "fleet").labelled_as_dependent(&set));
    }

    #[test]
    fn what_is_of_a_namesake_is_told_by_its_set_or_by_a_namespace_where_there_is_one() {
        let one = Owner::new("control-plane", "demo", "fleet");
        let other = Owner { namespace: "elsewhere".to_owned(), ..one.clone() };
        let elsewhere = BTreeSet::from([other.namespace.clone()]);
        for (namespace, set, anothers) in [
            (None, Some(&other), true),
            (None, Some(&one), false),
            (Some("elsewhere"), Some(&one), false),
            (Some("elsewhere"), None, true),
            (Some("third"), None, false),
            (Some("fleet"), None, false),
            (None, None, false),
        ] {
            let labels: Map<String, Value> =
                set.map(|owner| (PART_OF_LABEL.to_owned(), owner.applyset_id().into())).into_iter().collect();
            let object = json!({"metadata": {"namespace": namespace, "labels": labels}});
            assert_eq!(one.is_anothers(&object, &elsewhere), anothers, "{namespace:?} {set:?}");
        }
    }

    #[test]
    fn the_record_of_a_control_plane_has_the_documented_name() {
        assert_eq!(Owner::new("control-plane", "demo", "fleet").record_name(), "fleetctl.demo");
        assert_eq!(Owner::new("agent", "demo", "fleet").record_name(), "fleetctl.agent.demo");
    }
}
