//! `fleet-scheduler keys`: makes the Secrets with keys of a control plane inside its hosting cluster, so that no private
//! key ever leaves that.
//!
//! It is meant for a Job with the rights of its service account (value `pki.source: InCluster`). It makes what is
//! missing and never what exists; certificates that are due, or that lack an address, are reissued from the authorities
//! that are there. Pods wait for their Secrets by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::api::applyset;
use crate::api::labels::{KEYS_MANAGER, LABEL_APP_VERSION, LABEL_INSTALL, LABEL_KEEP, LABEL_PART_OF};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::daemon::log::{self, LogFormat};
use crate::k8s::connect::daemon_client;
use crate::pki::secrets::{self, ETCD_CLAIM, KEPT_SECRET, SCHEDULER_SECRET, SECRET_ENTRIES, SERVER_FILE, SecretEntry};
use crate::pki::{self, Endpoint, Files, Leaf, Lifetimes, PkiError, San, Subject};

/// Number of attempts; another one is made where somebody else wrote meanwhile.
const ATTEMPTS: usize = 5;
/// Time between two looks at the Service whose address is awaited.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The first member of etcd, to which [`ETCD_CLAIM`] with the number 0 belongs.
const ETCD_POD: &str = "etcd-0";
/// Time after a claim within which a StatefulSet makes the pod that the claim was made for. A later one may have taken the
/// place of a pod that wrote to it.
const FIRST_POD_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// Annotation on the pod templates of what reads its kubeconfig at start only.
const KEYS_ANNOTATION: &str = "fleet-scheduler.io/keys";

/// The control plane and the address of its API.
#[derive(Debug, Clone, Args)]
pub struct KeysArgs {
    /// Name of the control plane
    #[arg(long)]
    pub name: ControlPlaneName,

    /// Its namespace
    #[arg(long)]
    pub namespace: NamespaceName,

    /// Service version that the Secrets are labelled with
    #[arg(long)]
    pub service_version: String,

    /// Address in kubeconfigs [default: the load balancer's address of Service `apiserver`]
    #[arg(long)]
    pub host: Option<San>,

    /// Port in kubeconfigs
    #[arg(long, default_value_t = 443)]
    pub port: u16,

    /// Additional SAN of the API server's certificate; may be repeated
    #[arg(long = "san")]
    pub sans: Vec<San>,
}

/// Reason that the keys could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The hosting cluster does not answer or refuses.
    #[error("a request to the hosting cluster failed")]
    Api(#[from] kube::Error),
    /// The existing keys cannot be used.
    #[error(
        "the existing keys cannot be used; restore them from a backup, because new ones would lock out every agent"
    )]
    Damaged(#[source] PkiError),
    /// Nothing is wrong with the keys that are there, but new ones cannot be made.
    #[error("keys and certificates cannot be created")]
    NotMade(#[source] PkiError),
    /// The Service has an address that no certificate can name.
    #[error("the load balancer gave Service apiserver an address that cannot be in a certificate")]
    Address(#[source] PkiError),
    /// The CAs are missing, but something that was created with them exists.
    #[error(
        "Secret {KEPT_SECRET} is missing, but {0} still exists; restore the Secret from a backup, because new keys \
         would make the data and the agents unusable"
    )]
    Lost(String),
    /// A Secret of the name is not this control plane's.
    #[error("Secret {0} belongs to another control plane; install into another namespace, or remove it")]
    NotOurs(String),
    /// Other processes write at the same time, again and again.
    #[error("another process writes the Secrets at the same time")]
    Contended,
}

impl From<PkiError> for KeysError {
    fn from(error: PkiError) -> Self {
        match error {
            PkiError::Random | PkiError::Make { .. } | PkiError::Time { .. } => Self::NotMade(error),
            _ => Self::Damaged(error),
        }
    }
}

/// Secrets that a run wrote.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KeysDone {
    /// Secrets that were made.
    pub made: Vec<&'static str>,
    /// Secrets whose certificates were reissued.
    pub renewed: Vec<&'static str>,
}

/// An attempt that has to be made again.
enum Attempt {
    Done(KeysDone),
    /// Somebody else wrote first.
    Again,
}

/// Runs `fleet-scheduler keys` with the rights of its pod.
///
/// # Errors
/// No in-cluster configuration, and [`KeysError`].
pub fn main(format: LogFormat, args: &KeysArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let client = daemon_client::in_cluster()?;
        anyhow::Ok(ensure_keys(&client, args).await?)
    })?;
    tracing::info!(made = ?done.made, renewed = ?done.renewed, "keys are complete");
    Ok(())
}

/// Makes what is missing, and renews what is due.
///
/// # Errors
/// [`KeysError`]; nothing that is there was replaced then but certificates that were due.
pub async fn ensure_keys(client: &Client, args: &KeysArgs) -> Result<KeysDone, KeysError> {
    let host = match &args.host {
        Some(host) => host.clone(),
        None => load_balancer(client, args.namespace.as_str()).await?,
    };
    for _ in 0..ATTEMPTS {
        if let Attempt::Done(done) = try_ensure_keys(client, args, &host, Timestamp::now()).await? {
            return Ok(done);
        }
    }
    Err(KeysError::Contended)
}

/// The address that the API server's Service gets, however long that takes: the Job's deadline ends it.
async fn load_balancer(client: &Client, namespace: &str) -> Result<San, KeysError> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    loop {
        let service = services.get_opt("apiserver").await?;
        let ingress = service.and_then(|service| service.status?.load_balancer?.ingress).unwrap_or_default();
        let address = ingress.into_iter().find_map(|one| one.hostname.filter(|name| !name.is_empty()).or(one.ip));
        match address {
            Some(address) => return address.parse().map_err(KeysError::Address),
            None => tracing::info!("waiting for the address of Service apiserver"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn try_ensure_keys(client: &Client, args: &KeysArgs, host: &San, now: Timestamp) -> Result<Attempt, KeysError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), args.namespace.as_str());
    let names: BTreeSet<&str> = SECRET_ENTRIES.iter().map(|entry| entry.secret).collect();
    let mut found: BTreeMap<&str, Secret> = BTreeMap::new();
    for name in &names {
        let Some(secret) = api.get_opt(name).await? else { continue };
        if secret.labels().get(LABEL_INSTALL).map(String::as_str) != Some(args.name.as_str()) {
            return Err(KeysError::NotOurs((*name).to_owned()));
        }
        found.insert(name, secret);
    }
    let bytes = |entry: &SecretEntry| Some(found.get(entry.secret)?.data.as_ref()?.get(entry.key)?.0.as_slice());
    let files = secrets::collect_key_set(bytes);
    if !pki::Authorities::any_in(&files) {
        refuse_lost(client, args, &found).await?;
    }
    let completed = pki::ensure_key_set(&files, &pki_subject(args, host), now, &Lifetimes::default())?;
    let mut done = KeysDone::default();
    let post = PostParams { field_manager: Some(KEYS_MANAGER.to_owned()), ..PostParams::default() };
    // The authorities first: whoever makes them decides for everybody.
    for name in std::iter::once(KEPT_SECRET).chain(names.into_iter().filter(|name| *name != KEPT_SECRET)) {
        let data = data_of(name, &completed.files, args, host);
        let known = found.get(name);
        if known.is_some_and(|known| has_secret_data(known, &data)) {
            continue;
        }
        let body = build_keys_secret(args, name, data, known);
        let written = match known {
            None => api.create(&post, &body).await,
            // What `template` printed before is immutable, and can only be made again.
            Some(known) if known.immutable == Some(true) => {
                let uid = Some(Preconditions { uid: known.uid(), resource_version: None });
                match api.delete(name, &DeleteParams { preconditions: uid, ..DeleteParams::default() }).await {
                    Ok(_) => api.create(&post, &body).await,
                    Err(error) => Err(error),
                }
            }
            Some(_) => api.replace(name, &post, &body).await,
        };
        match written {
            Ok(_) if known.is_some() => done.renewed.push(name),
            Ok(_) => done.made.push(name),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => return Ok(Attempt::Again),
            Err(error) => return Err(error.into()),
        }
    }
    restart_controller_manager(client, args, &done, &completed.files).await?;
    Ok(Attempt::Done(done))
}

/// Refuses to make authorities where something of earlier ones is left.
async fn refuse_lost(client: &Client, args: &KeysArgs, found: &BTreeMap<&str, Secret>) -> Result<(), KeysError> {
    if let Some(name) = found.keys().next() {
        return Err(KeysError::Lost(format!("Secret {name}")));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), args.namespace.as_str());
    let name = format!("{ETCD_CLAIM}0");
    let Some(claim) = claims.get_opt(&name).await? else { return Ok(()) };
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    if !is_bound {
        return Ok(());
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), args.namespace.as_str());
    let pod = pods.get_opt(ETCD_POD).await?;
    if pod.is_some_and(|pod| is_waiting_since(&pod, &claim)) {
        return Ok(());
    }
    Err(KeysError::Lost(format!("PersistentVolumeClaim {name}")))
}

/// Returns whether a pod is the first one of a claim, and has not begun: then nothing was ever written there. A claim is bound
/// when its pod is scheduled, which waits for no Secret.
fn is_waiting_since(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let (Some(pod_made), Some(claim_made)) = (pod.creation_timestamp(), claim.creation_timestamp()) else {
        return false;
    };
    let has_begun = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        container.restart_count > 0
            || container.last_state.as_ref().is_some_and(|last| *last != ContainerState::default())
            || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    pod_made.0.duration_since(claim_made.0) <= FIRST_POD_WITHIN && !containers.iter().any(has_begun)
}

fn pki_subject(args: &KeysArgs, host: &San) -> Subject {
    Subject {
        control_plane: args.name.to_string(),
        namespace: args.namespace.to_string(),
        public: Endpoint { host: host.clone(), port: args.port },
        internal: Subject::internal_endpoint(args.namespace.as_str()),
        extra_sans: args.sans.clone(),
    }
}

/// Returns the data that a Secret has to hold.
fn data_of(name: &str, files: &Files, args: &KeysArgs, host: &San) -> BTreeMap<String, ByteString> {
    let text = |file: &str| ByteString(files.get(file).unwrap_or_default().as_bytes().to_vec());
    let own = SECRET_ENTRIES.iter().filter(|entry| entry.secret == name);
    let mut data: BTreeMap<String, ByteString> = own.map(|entry| (entry.key.to_owned(), text(entry.file))).collect();
    if name == "etcd-certs" {
        data.insert("etcd-ca.crt".to_owned(), text("etcd-ca.crt"));
    }
    if name == SCHEDULER_SECRET {
        // Manifests that leave the address to the load balancer cannot say where agents reach it.
        let server = pki_subject(args, host).public.endpoint_url();
        data.insert(SERVER_FILE.to_owned(), ByteString(server.into_bytes()));
    }
    data
}

fn has_secret_data(secret: &Secret, data: &BTreeMap<String, ByteString>) -> bool {
    let known = secret.data.as_ref();
    data.iter().all(|(key, value)| known.is_some_and(|known| known.get(key) == Some(value)))
}

/// The Secret as it is written: what others added to one that is there stays.
fn build_keys_secret(
    args: &KeysArgs,
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
    let is_remade = body.immutable == Some(true);
    // Without `app.kubernetes.io/instance`: Argo CD before version 3 knows its own objects by that label, and removes those that
    // are not in its repository.
    let mut labels: BTreeMap<String, String> = body.metadata.labels.take().unwrap_or_default();
    labels.extend(
        [
            ("app.kubernetes.io/name", component),
            ("app.kubernetes.io/component", component),
            (LABEL_PART_OF, "fleet"),
            (LABEL_APP_VERSION, &args.service_version),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    // By these an install and a removal know it.
    let installed = applyset::installation_labels(applyset::CONTROL_PLANE, args.name.as_str(), args.namespace.as_str());
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

/// Restarts the controller manager after a renewal of its kubeconfig, which it reads at start only. Everything else reads
/// its files again.
async fn restart_controller_manager(
    client: &Client,
    args: &KeysArgs,
    done: &KeysDone,
    files: &Files,
) -> Result<(), KeysError> {
    if !done.renewed.contains(&"controller-manager-kubeconfig") {
        return Ok(());
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), args.namespace.as_str());
    let text = files.get(Leaf::ControllerManager.leaf_store().stored_file()).unwrap_or_default();
    let annotations = json!({ KEYS_ANNOTATION: crate::api::util::digest::full_digest(text.as_bytes()) });
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    match deployments.patch("kube-controller-manager", &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        // It is not installed yet, and will read the new kubeconfig.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
