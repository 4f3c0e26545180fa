//! The Secrets with keys as they are written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::complete::KeyTarget;
use crate::api::applyset;
use crate::api::labels::{LABEL_APP_VERSION, LABEL_KEEP, LABEL_PART_OF};
use crate::pki::Files;
use crate::pki::secrets::{KEPT_SECRET, SCHEDULER_SECRET, SECRET_ENTRIES, SERVER_FILE};

/// Returns the data that a Secret has to hold.
pub(super) fn data_of(name: &str, files: &Files, target: &KeyTarget) -> BTreeMap<String, ByteString> {
    let own = SECRET_ENTRIES.iter().filter(|entry| entry.secret == name).map(|entry| (entry.key, entry.file));
    let etcd_ca = (name == "etcd-certs").then_some(("etcd-ca.crt", "etcd-ca.crt"));
    let data = own.chain(etcd_ca).map(|(key, file)| {
        let text = files.get(file).unwrap_or_default();
        (key.to_owned(), ByteString(text.as_bytes().to_vec()))
    });
    let mut data: BTreeMap<String, ByteString> = data.collect();
    if name == SCHEDULER_SECRET && target.makes_missing {
        // Manifests that leave the address to the load balancer cannot say where agents reach it.
        let server = target.endpoint.endpoint_url();
        data.insert(SERVER_FILE.to_owned(), ByteString(server.into_bytes()));
    }
    data
}

pub(super) fn has_secret_data(secret: &Secret, data: &BTreeMap<String, ByteString>) -> bool {
    let known = secret.data.as_ref();
    data.iter().all(|(key, value)| known.is_some_and(|known| known.get(key) == Some(value)))
}

/// The Secret as it is written: what others added to one that exists stays.
pub(super) fn build_keys_secret(
    target: &KeyTarget,
    name: &str,
    data: BTreeMap<String, ByteString>,
    known: Option<&Secret>,
) -> Secret {
    let component = match name {
        KEPT_SECRET => "pki",
        "etcd-certs" => "etcd",
        "apiserver-certs" => "apiserver",
        "controller-manager-kubeconfig" => "kube-controller-manager",
        SCHEDULER_SECRET => "fleet-scheduler",
        _ => "admin",
    };
    let mut body = known.cloned().unwrap_or_default();
    if !target.makes_missing {
        // The labels and everything else are those of the install.
        body.metadata.managed_fields = None;
        body.data.get_or_insert_default().extend(data);
        return body;
    }
    let is_remade = body.immutable == Some(true);
    // Without `app.kubernetes.io/instance`: Argo CD before version 3 knows its own objects by that label, and removes those that
    // are not in its repository.
    let mut labels: BTreeMap<String, String> = body.metadata.labels.take().unwrap_or_default();
    labels.extend(
        [
            ("app.kubernetes.io/name", component),
            ("app.kubernetes.io/component", component),
            (LABEL_PART_OF, "fleet"),
            (LABEL_APP_VERSION, &target.service_version),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    // By these an install and a removal know it.
    let installed =
        applyset::installation_labels(applyset::CONTROL_PLANE, target.name.as_str(), target.namespace.as_str());
    labels.extend(installed.map(|(key, value)| (key.to_owned(), value)));
    if name == KEPT_SECRET {
        labels.insert(LABEL_KEEP.to_owned(), "data".to_owned());
        // As an annotation it counts where no record says that the Secret stays with the data.
        body.metadata.annotations.get_or_insert_default().insert(LABEL_KEEP.to_owned(), "true".to_owned());
    }
    body.metadata.name = Some(name.to_owned());
    body.metadata.labels = Some(labels);
    body.metadata.managed_fields = None;
    if is_remade {
        body.metadata.uid = None;
        body.metadata.resource_version = None;
    }
    body.immutable = None;
    body.type_ = Some("Opaque".to_owned());
    body.data.get_or_insert_default().extend(data);
    body
}
