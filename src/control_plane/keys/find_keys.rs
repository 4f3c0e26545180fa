//! Search for the keys and certificates of a control plane: in the cluster's Secrets first, then in `~/.fleet`.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::existing_keys;
use super::local_files;
use super::local_files::Written;
use crate::api::labels::{KEYS_MANAGER, LABEL_INSTALL, LABEL_PART_OF};
use crate::api::names::ControlPlaneName;
use crate::apply::{self, Engine};
use crate::control_plane::error::InstallError;
use crate::control_plane::plan::Plan;
use crate::control_plane::values::PkiSource;
use crate::install::admin_access::LocalKubeconfigError;
use crate::install::fleet_home::Home;
use crate::k8s::MANAGER;
use crate::pki::secrets::{self, ADMIN_KUBECONFIG, ADMIN_SECRET};
use crate::pki::{self, AuthorityKind, Files, FolderError, Kubeconfig, PkiError};

/// Reads the key set of an installed (or kept) control plane from the Secrets of its namespace.
///
/// Only Secrets that carry the control plane's name are read, or the one that its own pods read; entries that are not there
/// are left out.
pub async fn from_cluster(client: &Client, namespace: &str, name: &str) -> Result<Files, kube::Error> {
    Ok(from_secrets(client, namespace, name).await?.files)
}

/// The key set of a control plane, and who put it into its namespace.
#[derive(Debug)]
pub(in crate::control_plane) struct KeysInSecrets {
    /// The files that exist.
    pub(in crate::control_plane) files: Files,
    /// Who makes and renews them.
    pub(in crate::control_plane) source: PkiSource,
    /// Name of the Secret of the user's own, where they are in one.
    pub(in crate::control_plane) existing: Option<String>,
}

/// As [`from_cluster`], with where the keys come from.
pub(in crate::control_plane) async fn from_secrets(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<KeysInSecrets, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels(&format!("{LABEL_INSTALL}={name},{LABEL_PART_OF}=fleet"));
    let list = api.list(&ours).await?;
    let files = secrets::collect_key_set(|entry| {
        let secret = list.iter().find(|secret| secret.name_any() == entry.secret)?;
        Some(secret.data.as_ref()?.get(entry.key)?.0.as_slice())
    });
    if files.file_names().next().is_some() {
        let entries = list.iter().flat_map(kube::ResourceExt::managed_fields);
        let managers: BTreeSet<&str> = entries.filter_map(|entry| entry.manager.as_deref()).collect();
        // Secrets of an install are renewed by the same manager that makes those of the cluster.
        let by_job = managers.contains(KEYS_MANAGER) && !managers.contains(MANAGER);
        let source = if by_job { PkiSource::InCluster } else { PkiSource::Installer };
        return Ok(KeysInSecrets { files, source, existing: None });
    }
    let found = existing_keys::in_use(client, namespace, name).await?;
    Ok(match found {
        Some(found) => KeysInSecrets { files: found.files, source: PkiSource::Existing, existing: Some(found.secret) },
        None => KeysInSecrets { files, source: PkiSource::Installer, existing: None },
    })
}

/// Reason that the operator's kubeconfig cannot be had from the cluster.
#[derive(Debug, thiserror::Error)]
pub enum AdminKubeconfigError {
    /// The API server refuses the read, or does not answer.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// It is not what an install writes. Whoever may write Secrets in the namespace can have changed it.
    #[error("Secret {secret} is not used: {source}; {remedy}")]
    Refused {
        /// The Secret, as `NAMESPACE/NAME`.
        secret: String,
        /// The remedy, a clause.
        remedy: String,
        /// The problem with it.
        source: PkiError,
    },
}

/// The operator's kubeconfig in a namespace, unread.
struct AdminEntry {
    /// The Secret, as `NAMESPACE/NAME`.
    secret: String,
    /// Its text; None where the Secret has none that is text.
    text: Option<String>,
    /// Whether an install writes it, and not whoever makes the keys.
    is_installed: bool,
}

impl AdminEntry {
    /// Finds it: what an install of this control plane wrote, else what its own pods read. None where there is neither.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    async fn find_admin_entry(client: &Client, namespace: &str, name: &str) -> Result<Option<Self>, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let written = secrets.get_opt(ADMIN_SECRET).await?;
        let written = written.filter(|secret| secret.labels().get(LABEL_INSTALL).is_some_and(|whose| whose == name));
        if let Some(written) = written {
            let bytes = written.data.and_then(|mut data| data.remove("kubeconfig"));
            let text = bytes.and_then(|bytes| String::from_utf8(bytes.0).ok());
            return Ok(Some(Self { secret: format!("{namespace}/{ADMIN_SECRET}"), text, is_installed: true }));
        }
        Ok(existing_keys::in_use(client, namespace, name).await?.map(|found| Self {
            secret: format!("{namespace}/{}", found.secret),
            text: found.files.get(ADMIN_KUBECONFIG).map(str::to_owned),
            is_installed: false,
        }))
    }
}

/// Reads the operator's kubeconfig that an installed control plane keeps in its namespace.
///
/// # Errors
/// [`AdminKubeconfigError`].
pub async fn admin_kubeconfig(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Kubeconfig>, AdminKubeconfigError> {
    let Some(entry) = AdminEntry::find_admin_entry(client, namespace, name).await? else { return Ok(None) };
    let Some(text) = &entry.text else { return Ok(None) };
    Kubeconfig::parse("kubeconfig", text).map(|read| Some(read.of_control_plane(name))).map_err(|source| {
        let remedy = if entry.is_installed {
            format!("install control plane {name} again to restore the Secret")
        } else {
            format!("correct it yourself: it is the existing Secret of control plane {name}, which no install changes")
        };
        AdminKubeconfigError::Refused { secret: entry.secret, remedy, source }
    })
}

/// Reads the key set that `template` keeps in a local folder; empty where there is none.
pub fn from_folder(folder: &Path) -> Result<Files, FolderError> {
    pki::read_folder(folder)
}

/// Returns whether a kubeconfig of the control plane lies here that does not come from the keys that `template` keeps:
/// an install has written it, whose keys only the cluster has.
///
/// # Errors
/// A kubeconfig or a key that cannot be read, and a kubeconfig that is damaged: it may be such a one.
pub fn are_elsewhere(home: &Home, name: &ControlPlaneName) -> Result<bool, LocalKubeconfigError> {
    let written = match Written::read_from_home(home, name)? {
        Written::Nothing => return Ok(false),
        written => written,
    };
    let keys = from_folder(&home.keys_folder(name))?;
    let own = keys.get(AuthorityKind::Cluster.certificate_file()).filter(|own| local_files::is_whole_certificate(own));
    match (written, own) {
        // Where a part of a set is left, its use tells what is missing or damaged.
        (_, None) if pki::Authorities::any_in(&keys) => Ok(false),
        (Written::Unreadable(error), _) if error.is_of_damaged_text() => Err(error.into()),
        (_, None) => Ok(true),
        (written, Some(own)) => Ok(!written.is_trusting_ca(own)),
    }
}

/// Finds the key set of a control plane: in the Secrets of its namespace, else in the backup of one that is lost, else in the
/// folder where `template` keeps it, unless what is left in the cluster shows that those are of another. That of a new one is empty.
///
/// # Errors
/// [`InstallError::KeysLost`] where there is none, and volumes hold what only the lost ones can read;
/// [`InstallError::Keys`] or [`InstallError::LocalKeys`] where it is damaged, before anything is made that would need it;
/// [`InstallError::ExistingKeys`] where others make them, and something about them is wrong.
pub async fn find_key_set(
    client: &Client,
    plan: &Plan,
    home: &Home,
    engine: &Engine,
    stopped: impl FnOnce(apply::Error) -> InstallError,
) -> Result<Files, InstallError> {
    if plan.values.pki.source == PkiSource::Existing {
        return existing_keys::read_existing_keys(client, plan, Timestamp::now()).await;
    }
    let found = from_cluster(client, plan.package.namespace.as_str(), plan.name.as_str()).await?;
    if plan.values.pki.source == PkiSource::InCluster {
        // Whoever makes them there judges what is there.
        return Ok(found);
    }
    if pki::Authorities::any_in(&found) {
        pki::Authorities::from_map(&found)?;
        return Ok(found);
    }
    if let Some(origin) = &plan.origin {
        return Ok(origin.keys.clone());
    }
    let folder = home.keys_folder(&plan.name);
    let in_cluster = local_files::find_ca_certificate(&found);
    let found = from_folder(&folder)?;
    // What runs under another authority than these keys have would be locked out by them.
    let is_other = in_cluster.is_some_and(|authority| local_files::is_of_another(&found, &authority));
    if !is_other && pki::Authorities::any_in(&found) {
        let judged = pki::Authorities::from_map(&found);
        return judged.map(|_| found).map_err(|source| InstallError::LocalKeys { folder, source });
    }
    match engine.list_bound_volume_claims().await.map_err(stopped)?.into_iter().next() {
        Some(claim) => Err(InstallError::KeysLost(claim)),
        None => Ok(Files::new()),
    }
}
