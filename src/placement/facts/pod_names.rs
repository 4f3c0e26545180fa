//! What pods name: volumes of every kind, environment, pull secrets, account and classes.

use std::collections::BTreeMap;

use serde_json::Value;

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
        let is_own = |name: &&str| !(name.is_empty() || kind == "ConfigMap" && *name == "kube-root-ca.crt");
        if let Some(name) = name.filter(is_own) {
            self.add_name(ObjectKey::new("", kind, namespace, name), required);
        }
    }

    fn add_volume(&mut self, namespace: &str, volume: &Value) {
        for (kind, source) in volume.as_object().into_iter().flatten() {
            let text = |pointer: &str| text_at_pointer(source, pointer);
            match kind.as_str() {
                "configMap" => self.add_core(namespace, "ConfigMap", text("/name"), is_required(source)),
                "secret" => self.add_core(namespace, "Secret", text("/secretName"), is_required(source)),
                "persistentVolumeClaim" => {
                    self.add_core(namespace, "PersistentVolumeClaim", text("/claimName"), true);
                }
                "csi" => self.add_core(namespace, "Secret", text("/nodePublishSecretRef/name"), true),
                "ephemeral" => {
                    if let Some(class) = text("/volumeClaimTemplate/spec/storageClassName") {
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
                    self.add_core(namespace, "Secret", text("/secretRef/name"), true);
                    self.add_core(namespace, "Secret", text("/secretName"), true);
                }
            }
        }
    }

    fn add_container(&mut self, namespace: &str, container: &Value, starts: bool) {
        let list = |name: &str| container.get(name).and_then(Value::as_array).into_iter().flatten();
        let from_env = list("envFrom").map(|source| (source, ["configMapRef", "secretRef"]));
        let variables = list("env").filter_map(|variable| variable.get("valueFrom"));
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
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let list = |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
    let text = |name: &str| spec.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    for volume in list("volumes") {
        let name = text_at_pointer(volume, "/name").unwrap_or_default();
        if !claim_templates.contains(&name) {
            names.add_volume(namespace, volume);
        }
    }
    for (field, starts) in [("containers", true), ("initContainers", true), ("ephemeralContainers", false)] {
        for container in list(field) {
            names.add_container(namespace, container, starts);
        }
    }
    for secret in list("imagePullSecrets") {
        names.add_core(namespace, "Secret", text_at_pointer(secret, "/name"), true);
    }
    let account = text("serviceAccountName").or_else(|| text("serviceAccount")).unwrap_or("default");
    names.add_core(namespace, "ServiceAccount", Some(account), account != "default");
    // Classes are each cluster's own: pods name them, and nobody is told that one is missing.
    if let Some(class) = text("priorityClassName") {
        names.add_name(ObjectKey::new("scheduling.k8s.io", "PriorityClass", "", class), false);
    }
    if let Some(class) = text("runtimeClassName") {
        names.add_name(ObjectKey::new("node.k8s.io", "RuntimeClass", "", class), false);
    }
    names
}
