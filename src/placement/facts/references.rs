//! Objects that pods name and cannot start without.

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use serde::{Deserialize, Serialize};

use super::ObjectKey;

/// An object of the core group in the namespace of the pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reference {
    /// ConfigMap, Secret, PersistentVolumeClaim or ServiceAccount.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl Reference {
    /// Returns the key of the object in the namespace of the pods.
    pub fn object_key(&self, namespace: &str) -> ObjectKey {
        ObjectKey::new("", &self.kind, namespace, &self.name)
    }
}

fn make_reference(kind: &str, name: &str) -> Reference {
    Reference { kind: kind.to_owned(), name: name.to_owned() }
}

/// Returns a reference if a name is given and it is not optional.
fn required_reference(kind: &str, name: Option<&str>, optional: Option<bool>) -> Option<Reference> {
    name.filter(|name| !name.is_empty() && optional != Some(true)).map(|name| make_reference(kind, name))
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    let mut found = Vec::new();
    if let Some(v) = &volume.config_map {
        found.extend(required_reference("ConfigMap", Some(&v.name), v.optional));
    }
    if let Some(v) = &volume.secret {
        found.extend(required_reference("Secret", v.secret_name.as_deref(), v.optional));
    }
    if let Some(v) = &volume.persistent_volume_claim {
        found.push(make_reference("PersistentVolumeClaim", &v.claim_name));
    }
    for source in volume.projected.iter().flat_map(|v| v.sources.iter().flatten()) {
        if let Some(v) = &source.config_map {
            found.extend(required_reference("ConfigMap", Some(&v.name), v.optional));
        }
        if let Some(v) = &source.secret {
            found.extend(required_reference("Secret", Some(&v.name), v.optional));
        }
    }
    found
}

/// Returns what pods need, sorted and each once; what every cluster has by itself is left out.
pub(super) fn of_pods(spec: &PodSpec) -> Vec<Reference> {
    let mut found: Vec<Reference> = spec.volumes.iter().flatten().flat_map(of_volume).collect();
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for source in container.env_from.iter().flatten() {
            if let Some(v) = &source.config_map_ref {
                found.extend(required_reference("ConfigMap", Some(&v.name), v.optional));
            }
            if let Some(v) = &source.secret_ref {
                found.extend(required_reference("Secret", Some(&v.name), v.optional));
            }
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(v) = &source.config_map_key_ref {
                found.extend(required_reference("ConfigMap", Some(&v.name), v.optional));
            }
            if let Some(v) = &source.secret_key_ref {
                found.extend(required_reference("Secret", Some(&v.name), v.optional));
            }
        }
    }
    found.extend(spec.image_pull_secrets.iter().flatten().map(|secret| make_reference("Secret", &secret.name)));
    let account = spec.service_account_name.as_deref().filter(|name| *name != "default");
    found.extend(required_reference("ServiceAccount", account, None));
    found.retain(|one| one.name != "kube-root-ca.crt");
    found.sort();
    found.dedup();
    found
}
