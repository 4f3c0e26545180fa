//! What pods name: volumes of every kind, environment, pull secrets, account and classes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::relations::array_at;
use super::{ObjectKey, text_at_pointer};

/// Objects by key, each with whether pods cannot start without it.
#[derive(Debug, Default)]
pub(super) struct PodNames(pub(super) BTreeMap<ObjectKey, bool>);

impl PodNames {
    /// Adds a name. One that is required in one place and optional in another is required.
    pub(super) fn add_name(&mut self, key: ObjectKey, required: bool) {
        *self.0.entry(key).or_default() |= required;
    }

    fn add_core(&mut self, namespace: &str, kind: &str, name: Option<&str>, required: bool) {
        if let Some(name) = name.filter(|name| !(name.is_empty() || kind == "ConfigMap" && *name == "kube-root-ca.crt"))
        {
            self.add_name(ObjectKey::new("", kind, namespace, name), required);
        }
    }

    fn add_volume(&mut self, namespace: &str, volume: &Value) {
        for (kind, source) in volume.as_object().into_iter().flatten() {
            match kind.as_str() {
                "configMap" => {
                    self.add_core(namespace, "ConfigMap", text_at_pointer(source, "/name"), is_required(source));
                }
                "secret" => {
                    self.add_core(namespace, "Secret", text_at_pointer(source, "/secretName"), is_required(source));
                }
                "persistentVolumeClaim" => {
                    self.add_core(namespace, "PersistentVolumeClaim", text_at_pointer(source, "/claimName"), true);
                }
                "csi" => {
                    self.add_core(namespace, "Secret", text_at_pointer(source, "/nodePublishSecretRef/name"), true);
                }
                "ephemeral" => {
                    if let Some(class) = text_at_pointer(source, "/volumeClaimTemplate/spec/storageClassName") {
                        self.add_name(storage_class_key(class), false);
                    }
                }
                "projected" => {
                    for part in source.get("sources").and_then(Value::as_array).into_iter().flatten() {
                        for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
                            let Some(part) = part.get(field) else { continue };
                            self.add_core(namespace, kind, text_at_pointer(part, "/name"), is_required(part));
                        }
                    }
                }
                // The kinds of volumes of before CSI: azureFile, cephfs, cinder, flexVolume, iscsi, rbd, scaleIO, storageos.
                _ => {
                    self.add_core(namespace, "Secret", text_at_pointer(source, "/secretRef/name"), true);
                    self.add_core(namespace, "Secret", text_at_pointer(source, "/secretName"), true);
                }
            }
        }
    }

    fn add_container(&mut self, namespace: &str, container: &Value, starts: bool) {
        let from_env = array_at(container, "/envFrom").map(|source| (source, ["configMapRef", "secretRef"]));
        let variables = array_at(container, "/env").filter_map(|variable| variable.get("valueFrom"));
        let from_variables = variables.map(|source| (source, ["configMapKeyRef", "secretKeyRef"]));
        for (source, fields) in from_env.chain(from_variables) {
            for (field, kind) in fields.into_iter().zip(["ConfigMap", "Secret"]) {
                let Some(part) = source.get(field) else { continue };
                self.add_core(namespace, kind, text_at_pointer(part, "/name"), starts && is_required(part));
            }
        }
    }
}

pub(super) fn storage_class_key(name: &str) -> ObjectKey {
    ObjectKey::new("storage.k8s.io", "StorageClass", "", name)
}

fn is_required(source: &Value) -> bool {
    source.get("optional").and_then(Value::as_bool) != Some(true)
}

/// Reads what the pods of a template name. A volume that is called as a claim template is that template's claim, whatever
/// else it says. Ephemeral containers are started later: nothing that they name is required.
pub(super) fn read_pod_names(namespace: &str, template: &Value, claim_templates: &[&str]) -> PodNames {
    let mut names = PodNames::default();
    for volume in array_at(template, "/spec/volumes") {
        let name = text_at_pointer(volume, "/name").unwrap_or_default();
        if !claim_templates.contains(&name) {
            names.add_volume(namespace, volume);
        }
    }
    for (field, starts) in
        [("/spec/containers", true), ("/spec/initContainers", true), ("/spec/ephemeralContainers", false)]
    {
        for container in array_at(template, field) {
            names.add_container(namespace, container, starts);
        }
    }
    for secret in array_at(template, "/spec/imagePullSecrets") {
        names.add_core(namespace, "Secret", text_at_pointer(secret, "/name"), true);
    }
    let account = nonempty_text_at(template, "/spec/serviceAccountName")
        .or_else(|| nonempty_text_at(template, "/spec/serviceAccount"))
        .unwrap_or("default");
    names.add_core(namespace, "ServiceAccount", Some(account), account != "default");
    // Classes are each cluster's own: pods name them, and nobody is told that one is missing.
    if let Some(class) = nonempty_text_at(template, "/spec/priorityClassName") {
        names.add_name(ObjectKey::new("scheduling.k8s.io", "PriorityClass", "", class), false);
    }
    if let Some(class) = nonempty_text_at(template, "/spec/runtimeClassName") {
        names.add_name(ObjectKey::new("node.k8s.io", "RuntimeClass", "", class), false);
    }
    names
}

fn nonempty_text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    text_at_pointer(value, pointer).filter(|text| !text.is_empty())
}
