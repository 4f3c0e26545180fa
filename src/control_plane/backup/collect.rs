//! What an archive has beside the snapshot: Secrets with keys, values, record, and facts about the control plane.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Request;
use super::error::BackupError;
use crate::api::crd::cluster::Cluster;
use crate::api::lenient::Lenient;
use crate::apply::Engine;
use crate::backup::{ClusterId, KeyFile};
use crate::chart::output::format_yaml;
use crate::control_plane::charts::SECRET_VALUES;
use crate::control_plane::health::{connect_control_plane_api, format_error_chain};
use crate::control_plane::keys::find_keys::from_secrets;
use crate::control_plane::plan::OWNER_KIND;
use crate::install::progress::Progress;
use crate::install::recorded_values::PATCHES;
use crate::inventory::Owner;
use crate::k8s::request::pages::all_pages;
use crate::pki::secrets::{ADMIN_KUBECONFIG, KEPT_SECRET};
use crate::pki::{Files, Kubeconfig, SecretText};

/// Longest wait for the API of the control plane: a backup is also made when it does not run.
const API_WITHIN: Duration = Duration::from_secs(15);

/// What was found.
pub(super) struct Collected {
    /// The key set, for fingerprints.
    pub(super) files: Files,
    /// Secrets of the archive.
    pub(super) keys: Vec<KeyFile>,
    pub(super) values: Option<String>,
    pub(super) record: Option<String>,
    pub(super) install_uid: Option<String>,
    pub(super) service: Option<String>,
    pub(super) patches: Option<String>,
    pub(super) control_plane_uid: Option<String>,
    pub(super) api_server: Option<String>,
    pub(super) clusters: Option<Vec<ClusterId>>,
}

/// Reads everything but the snapshot. Without the API of the control plane, what only that knows is left out.
pub(super) async fn collect_facts(request: &Request<'_>, progress: &dyn Progress) -> Result<Collected, BackupError> {
    let (client, namespace) = (request.client, request.namespace.as_str());
    let found = from_secrets(client, namespace, request.name.as_str()).await?;
    let keys = if request.with_keys {
        let main = found.existing.as_deref().unwrap_or(KEPT_SECRET);
        read_stored_keys(client, namespace, main).await?
    } else {
        Vec::new()
    };
    let owner = Owner::new(OWNER_KIND, request.name.as_str(), namespace);
    let record = Engine::new_reader(client.clone(), owner).read_state().await?.record;
    let release = record.as_ref().map(|record| &record.release);
    let api = match tokio::time::timeout(API_WITHIN, read_served_api(&found.files, request.name.as_str())).await {
        Ok(Ok(api)) => Some(api),
        Ok(Err(why)) => report_silent_api(progress, &why),
        Err(_) => report_silent_api(progress, &format!("no answer within {} s", API_WITHIN.as_secs())),
    };
    let (control_plane_uid, api_server, clusters) =
        api.map_or((None, None, None), |api| (api.uid, Some(api.version), Some(api.clusters)));
    Ok(Collected {
        keys,
        values: release.and_then(|release| release.values.as_ref()).map(format_yaml),
        service: release.map(|release| release.version.clone()),
        patches: release.and_then(|release| release.facts.get(PATCHES).cloned()),
        install_uid: record.as_ref().map(|record| record.install_uid.clone()),
        record: record.as_ref().and_then(|record| serde_json::to_string_pretty(record).ok()),
        files: found.files,
        control_plane_uid,
        api_server,
        clusters,
    })
}

fn report_silent_api<T>(progress: &dyn Progress, why: &str) -> Option<T> {
    progress.report_warning(&format!(
        "the backup does not list the workload clusters, because the API of the control plane did not answer: {why}"
    ));
    None
}

/// The Secrets that decrypt and rebuild a control plane: the one with its authorities, and those with values that a record
/// leaves out.
async fn read_stored_keys(client: &Client, namespace: &str, main: &str) -> Result<Vec<KeyFile>, BackupError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut keys = Vec::new();
    let further = SECRET_VALUES.iter().map(|entry| entry.secret);
    for name in std::iter::once(main).chain(further) {
        match api.get_opt(name).await? {
            Some(secret) => keys.push(build_key_file(name, secret)),
            None if name == main => return Err(BackupError::KeysMissing(name.to_owned())),
            None => {}
        }
    }
    Ok(keys)
}

/// A Secret as a manifest that can be applied: without what its cluster has added.
fn build_key_file(name: &str, secret: Secret) -> KeyFile {
    let metadata = json!({"name": name, "labels": secret.labels()});
    let manifest: Value = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": secret.type_,
        "data": secret.data,
    });
    KeyFile { secret: name.to_owned(), manifest: SecretText::new(format_yaml(&manifest)) }
}

/// What only the API of a control plane knows.
struct OwnApi {
    uid: Option<String>,
    version: String,
    clusters: Vec<ClusterId>,
}

/// Reads the API of the control plane, by the kubeconfig in its hosting cluster.
async fn read_served_api(files: &Files, name: &str) -> Result<OwnApi, String> {
    let text = files.get(ADMIN_KUBECONFIG).ok_or("no kubeconfig of the control plane was found")?;
    let kubeconfig = Kubeconfig::parse(ADMIN_KUBECONFIG, text).map_err(|error| error.to_string())?;
    let client = connect_control_plane_api(&kubeconfig.of_control_plane(name)).await?;
    query_own_api(client).await.map_err(|error| format_error_chain(&error))
}

async fn query_own_api(client: Client) -> Result<OwnApi, kube::Error> {
    let version = client.apiserver_version().await?.git_version;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let uid = namespaces.get_opt("kube-system").await?.and_then(|namespace| namespace.uid());
    let api: Api<Lenient<Cluster>> = Api::all(client);
    let clusters = all_pages(ListParams::default(), async |page| api.list(&page).await).await?;
    let clusters = clusters
        .into_iter()
        .map(|Lenient(cluster)| ClusterId { name: cluster.name_any(), id: cluster.spec.cluster_id });
    Ok(OwnApi { uid, version, clusters: clusters.collect() })
}
