//! What goes with an object: what it names, and what it belongs to by its names and its selector.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod_names::{PodNames, read_pod_names, storage_class_key};
use super::shape::find_pod_template;
use super::{ObjectKey, read_string_map, text_at_pointer};
use crate::api::kinds;

/// Most names of an object that are read; of more the first of these in the order of keys count.
pub const MOST_NAMES: usize = 1_000;

/// Relations of one object, of its source or of a copy after overrides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Relations {
    /// Objects that it names and that go with it, in the order of keys, each with whether its pods cannot start without.
    pub names: Vec<(ObjectKey, bool)>,
    /// Objects that it belongs to, by their names, in the order of keys.
    pub belongs_to: Vec<ObjectKey>,
    /// Pods that it belongs to, by their labels.
    pub selects: PodSelection,
    /// Labels of its pods; absent for kinds without pods.
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Beginnings of the names of claims that it makes: `data-db` for the template `data` of the StatefulSet `db`.
    pub claim_prefixes: Vec<String>,
    /// Number of pull secrets that it lists, if it is a ServiceAccount.
    pub pull_secrets: usize,
    /// Object that controls it.
    pub controller: Option<ObjectKey>,
    /// Whether it names more than [`MOST_NAMES`].
    pub too_many_names: bool,
}

/// Pods that an object belongs to. An empty selector means something else in each kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum PodSelection {
    /// None: a kind without a selector, or a budget without one.
    #[default]
    Nothing,
    /// Everything that is decided in its namespace: a Service without a selector, which somebody else fills.
    Namespace,
    /// Pods with these labels; `{}` is all pods of the namespace.
    Pods(Box<LabelSelector>),
}

/// Returns the key of an object of the core group.
fn core_key(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("", kind, namespace, name)
}

pub(super) fn array_at<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn read_selector(value: &Value) -> PodSelection {
    // A selector that no API server would accept selects nothing.
    LabelSelector::deserialize(value).map_or(PodSelection::Nothing, |selector| PodSelection::Pods(Box::new(selector)))
}

fn is_empty_selector(value: &Value) -> bool {
    is_empty_field(value, "matchLabels") && is_empty_field(value, "matchExpressions")
}

fn is_empty_field(value: &Value, name: &str) -> bool {
    match value.get(name) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        _ => true,
    }
}

/// Returns the pods that an object picks: a Service without labels picks none and is for its namespace; `{}` of a budget
/// picks all, and picked none in its beta version; a NetworkPolicy without a selector picks all.
fn read_selection(key: &ObjectKey, version: &str, manifest: &Value) -> PodSelection {
    match (key.group(), key.kind()) {
        ("", "Service") => {
            let labels = read_string_map(manifest.pointer("/spec/selector"));
            if labels.is_empty() {
                return PodSelection::Namespace;
            }
            PodSelection::Pods(Box::new(LabelSelector { match_labels: Some(labels), match_expressions: None }))
        }
        ("policy", "PodDisruptionBudget") => match manifest.pointer("/spec/selector") {
            Some(selector) if selector.is_object() && !(version == "v1beta1" && is_empty_selector(selector)) => {
                read_selector(selector)
            }
            _ => PodSelection::Nothing,
        },
        ("networking.k8s.io", "NetworkPolicy") => match manifest.pointer("/spec/podSelector") {
            Some(selector) if selector.is_object() => read_selector(selector),
            _ => PodSelection::Pods(Box::default()),
        },
        _ => PodSelection::Nothing,
    }
}

/// Returns the objects that an object belongs to by their names.
fn read_owners(key: &ObjectKey, manifest: &Value) -> Vec<ObjectKey> {
    let namespace = key.namespace();
    match (key.group(), key.kind()) {
        ("autoscaling", "HorizontalPodAutoscaler") => {
            let target = &manifest["spec"]["scaleTargetRef"];
            let (Some(kind), Some(name)) = (target["kind"].as_str(), target["name"].as_str()) else {
                return Vec::new();
            };
            let group = target["apiVersion"].as_str().map_or("apps", |version| kinds::split_api_version(version).0);
            vec![ObjectKey::new(group, kind, namespace, name)]
        }
        ("networking.k8s.io", "Ingress") => {
            let paths = array_at(manifest, "/spec/rules").flat_map(|rule| array_at(rule, "/http/paths"));
            let backends = paths.filter_map(|path| text_at_pointer(path, "/backend/service/name"));
            let default = text_at_pointer(manifest, "/spec/defaultBackend/service/name");
            backends.chain(default).map(|name| core_key("Service", namespace, name)).collect()
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            let accounts = array_at(manifest, "/subjects")
                .filter(|subject| text_at_pointer(subject, "/kind") == Some("ServiceAccount"));
            let keys = accounts.filter_map(|subject| {
                let of = text_at_pointer(subject, "/namespace").filter(|of| !of.is_empty()).unwrap_or(namespace);
                Some(core_key("ServiceAccount", of, text_at_pointer(subject, "/name")?))
            });
            // A RoleBinding is for its own namespace: nothing follows over a namespace.
            keys.filter(|account| namespace.is_empty() || account.namespace() == namespace).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns what an object without pods names and what goes with it.
fn read_object_names(key: &ObjectKey, manifest: &Value) -> Vec<ObjectKey> {
    let namespace = key.namespace();
    match (key.group(), key.kind()) {
        ("", "ServiceAccount") => array_at(manifest, "/imagePullSecrets")
            .filter_map(|secret| text_at_pointer(secret, "/name"))
            .map(|name| core_key("Secret", namespace, name))
            .collect(),
        ("", "PersistentVolumeClaim") => {
            text_at_pointer(manifest, "/spec/storageClassName").into_iter().map(storage_class_key).collect()
        }
        ("networking.k8s.io", "Ingress") => {
            let secrets = array_at(manifest, "/spec/tls").filter_map(|tls| text_at_pointer(tls, "/secretName"));
            let class = text_at_pointer(manifest, "/spec/ingressClassName");
            let class = class.map(|name| ObjectKey::new("networking.k8s.io", "IngressClass", "", name));
            secrets.map(|name| core_key("Secret", namespace, name)).chain(class).collect()
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            let name = text_at_pointer(manifest, "/roleRef/name");
            let role = match text_at_pointer(manifest, "/roleRef/kind") {
                Some("Role") => name.map(|name| ObjectKey::new(key.group(), "Role", namespace, name)),
                _ => name.map(|name| ObjectKey::new(key.group(), "ClusterRole", "", name)),
            };
            role.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether a reference to an owner names the controller of the object.
pub(super) fn is_controller(owner: &Value) -> bool {
    owner.get("controller").and_then(Value::as_bool) == Some(true)
}

/// Returns the object that controls one, which lives in its namespace.
fn read_controller(key: &ObjectKey, manifest: &Value) -> Option<ObjectKey> {
    let owner = array_at(manifest, "/metadata/ownerReferences").find(|owner| is_controller(owner))?;
    let (group, _) = kinds::split_api_version(text_at_pointer(owner, "/apiVersion")?);
    Some(ObjectKey::new(group, text_at_pointer(owner, "/kind")?, key.namespace(), text_at_pointer(owner, "/name")?))
}

impl Relations {
    /// Reads the relations of an object, of its source or of a copy.
    pub fn from_manifest(key: &ObjectKey, manifest: &Value) -> Self {
        let api_version = text_at_pointer(manifest, "/apiVersion").unwrap_or_default();
        let (_, version) = kinds::split_api_version(api_version);
        let templates: Vec<&Value> = if key.is_of_kind("apps", "StatefulSet") {
            array_at(manifest, "/spec/volumeClaimTemplates").collect()
        } else {
            Vec::new()
        };
        let template_names: Vec<&str> =
            templates.iter().filter_map(|template| text_at_pointer(template, "/metadata/name")).collect();
        let template = find_pod_template(key, manifest);
        let mut names = template.map(|pods| read_pod_names(key.namespace(), pods, &template_names)).unwrap_or_default();
        for class in templates.iter().filter_map(|one| text_at_pointer(one, "/spec/storageClassName")) {
            names.add_name(storage_class_key(class), false);
        }
        for name in read_object_names(key, manifest) {
            names.add_name(name, false);
        }
        let mut belongs_to = read_owners(key, manifest);
        belongs_to.sort();
        belongs_to.dedup();
        let PodNames(mut names) = names;
        let too_many_names = names.len() > MOST_NAMES || belongs_to.len() > MOST_NAMES;
        while names.len() > MOST_NAMES {
            names.pop_last();
        }
        belongs_to.truncate(MOST_NAMES);
        Self {
            names: names.into_iter().collect(),
            belongs_to,
            selects: read_selection(key, version, manifest),
            pod_labels: template.map(|pods| read_string_map(pods.pointer("/metadata/labels"))),
            claim_prefixes: template_names.iter().map(|name| format!("{name}-{}", key.name())).collect(),
            pull_secrets: array_at(manifest, "/imagePullSecrets")
                .filter(|_| key.is_of_kind("", "ServiceAccount"))
                .count(),
            controller: read_controller(key, manifest),
            too_many_names,
        }
    }

    /// Returns whether pods mount claims, or a template makes claims for them.
    pub fn mounts_claims(&self) -> bool {
        !self.claim_prefixes.is_empty() || self.name_keys().any(|key| key.is_of_kind("", "PersistentVolumeClaim"))
    }

    /// Returns the keys of what it names, as `spec.uses` of a Schedule records them, in the order of keys.
    pub fn name_keys(&self) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        self.names.iter().map(|(key, _)| key)
    }
}
