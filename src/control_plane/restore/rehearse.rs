//! A rehearsal of a backup: its store and its keys are given to a real etcd and a real API server in a pod of their own, and
//! everything that they serve is read. Nothing of the control plane is changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};

use super::archive_parts::read_small_parts;
use super::check::{check_api_server, compare_fingerprints};
use super::error::RestoreError;
use super::pod_parts::RECEIVE;
use super::pods::{check_pod, delete_pods, describe_wait, wait_for_receiver};
use super::rehearsal_pod::{COMPONENT, KEY_FILES, PROBE, RECEIVE_KEYS, RehearsalSite, build_rehearsal_pod};
use super::send::{send_bundle, send_snapshot};
use super::start::API_PORT;
use super::{ArchiveSource, RestoreTarget};
use crate::api::rbac::{Right, merge_rights};
use crate::api::rehearsal::{MOST_REPORT_BYTES, RehearsalReport};
use crate::check::access::list_forbidden_rights;
use crate::control_plane::etcd::access::etcd_rights;
use crate::control_plane::keys::find_keys::from_cluster;
use crate::diagnose::pod::{current_termination, main_statuses};
use crate::inventory::release::random_id;
use crate::pki::{Endpoint, Files, Lifetimes, San, SecretText, Subject, ensure_key_set, fingerprint_keys};

/// Files that are those of the backup: with them its data is read. The others are made for the rehearsal.
const ARCHIVED: [&str; 3] = ["encryption.yaml", "sa.key", "sa.pub"];

/// The rights in its namespace that a rehearsal needs.
pub fn rehearsal_rights() -> Vec<Right> {
    merge_rights(
        [
            etcd_rights(),
            Right::needed_namespace_rights("", "pods", &["get", "list", "create", "delete"]),
            Right::needed_namespace_rights("apps", "statefulsets", &["get"]),
            Right::needed_namespace_rights("apps", "deployments", &["get"]),
        ]
        .concat(),
    )
}

impl RestoreTarget<'_> {
    /// Starts a backup in a pod of its own, and reads everything that it has. Returns what was found; the pod is gone then.
    ///
    /// # Errors
    /// [`RestoreError`]: [`RestoreError::NotPossible`] if the hosting cluster does not take the pod; of a pod that has
    /// failed, the reason.
    pub async fn rehearse_archive(&self, source: &ArchiveSource) -> Result<RehearsalReport, RestoreError> {
        let rights = rehearsal_rights();
        let forbidden = list_forbidden_rights(self.client, self.namespace.as_str(), &rights).await?;
        if !forbidden.is_empty() {
            return Err(RestoreError::Forbidden(forbidden));
        }
        let header = &source.verified.header;
        let site = RehearsalSite::read_api_server(self.client, self.name, self.namespace).await?;
        check_api_server(header, site.api_server.image.as_deref())?;
        let bundle = self.collect_bundle(source).await?;
        let run = random_id();
        let built = build_rehearsal_pod(&site, header, &run);
        let pod: Pod = serde_json::from_value(built).map_err(|error| RestoreError::Unsuitable(error.to_string()))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        // One of a rehearsal that was interrupted counts against a quota, too.
        self.delete_rehearsal().await?;
        // Quotas and policies of the cluster have their say before a byte is sent.
        let trial = PostParams { dry_run: true, ..PostParams::default() };
        pods.create(&trial, &pod).await.map_err(refuse_pod)?;
        let name = pod.name_any();
        pods.create(&PostParams::default(), &pod).await.map_err(refuse_pod)?;
        let report = self.follow_rehearsal(source, &pods, &name, &bundle).await;
        // The first error is the one to report, and the pod ends by itself.
        let deleted = self.delete_rehearsal().await;
        let report = report?;
        deleted.map(|()| report)
    }

    /// Deletes the pod of a rehearsal, if there is one.
    ///
    /// # Errors
    /// What the hosting cluster refuses; a pod that does not go in time.
    pub async fn delete_rehearsal(&self) -> Result<(), RestoreError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        delete_pods(self, &pods, COMPONENT).await
    }

    async fn follow_rehearsal(
        &self,
        source: &ArchiveSource,
        pods: &Api<Pod>,
        name: &str,
        bundle: &SecretText,
    ) -> Result<RehearsalReport, RestoreError> {
        wait_for_receiver(self, pods, name, RECEIVE_KEYS).await?;
        send_bundle(self, pods, name, bundle).await?;
        wait_for_receiver(self, pods, name, RECEIVE).await?;
        self.progress.update_step(&format!("sending the snapshot to {name}"));
        send_snapshot(self, pods, name, source).await?;
        loop {
            let pod = pods.get(name).await?;
            if let Some(report) = read_report(&pod) {
                return report;
            }
            check_pod(&pod)?;
            self.wait_a_moment(&describe_wait(&pod)).await?;
        }
    }

    /// The key set of a control plane of one hour, with what reads the data of the backup: from the backup, or from the
    /// control plane if the backup has no keys.
    async fn collect_bundle(&self, source: &ArchiveSource) -> Result<SecretText, RestoreError> {
        let header = &source.verified.header;
        let archived = if header.keys {
            read_archived_keys(source).await?
        } else {
            let files = from_cluster(self.client, self.namespace.as_str(), self.name.as_str()).await?;
            let foreign = compare_fingerprints(&header.fingerprints, &fingerprint_keys(&files));
            if !foreign.is_empty() {
                return Err(RestoreError::KeysMissing(foreign));
            }
            files
        };
        let loopback = Endpoint { host: San::Ip([127, 0, 0, 1].into()), port: API_PORT };
        let subject = Subject {
            control_plane: self.name.to_string(),
            namespace: self.namespace.to_string(),
            public: loopback.clone(),
            internal: loopback,
            extra_sans: Vec::new(),
        };
        let mut files = ensure_key_set(&Files::new(), &subject, Timestamp::now(), &Lifetimes::default())?.files;
        for file in ARCHIVED {
            let text =
                archived.get(file).ok_or_else(|| RestoreError::KeysMissing(vec![format!("{file} is missing")]))?;
            files.insert(file, text.to_owned());
        }
        let bundle: BTreeMap<&str, &str> = files.expose_all().filter(|(name, _)| KEY_FILES.contains(name)).collect();
        Ok(SecretText::new(serde_json::to_string(&bundle).unwrap_or_default()))
    }
}

/// A cluster that does not take a pod.
fn refuse_pod(error: kube::Error) -> RestoreError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 422) => {
            RestoreError::NotPossible(status.message.clone())
        }
        error => error.into(),
    }
}

/// What the probe has said, once it has ended well.
pub(super) fn read_report(pod: &Pod) -> Option<Result<RehearsalReport, RestoreError>> {
    let mut probes = main_statuses(pod).filter(|status| status.name == PROBE);
    let ended = probes.find_map(current_termination).filter(|ended| ended.exit_code == 0)?;
    let text = ended.message.as_deref().filter(|text| text.len() <= MOST_REPORT_BYTES).unwrap_or_default();
    Some(serde_json::from_str(text).map_err(|error| RestoreError::PodFailed {
        pod: pod.name_any(),
        why: format!("the report of container {PROBE} cannot be read: {error}"),
    }))
}

/// The key files in the Secrets of an archive.
async fn read_archived_keys(source: &ArchiveSource) -> Result<Files, RestoreError> {
    let parts = read_small_parts(source).await?;
    let mut files = Files::new();
    for secret in parts.parse_secrets()? {
        for file in ARCHIVED {
            let data = secret.data.as_ref().and_then(|data| std::str::from_utf8(&data.get(file)?.0).ok());
            if let Some(text) = data {
                files.insert(file, text.to_owned());
            }
        }
    }
    Ok(files)
}
