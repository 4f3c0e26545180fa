//! The operator's kubeconfig, written again: from the cluster's own Secrets, else from the local folder.

use std::path::PathBuf;

use jiff::Timestamp;
use kube::Client;

use super::keys::{self, ADMIN_KUBECONFIG};
use super::plan::OWNER_KIND;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::apply::{self, Engine, Owner};
use crate::install::home::Home;
use crate::pki::{self, FolderError, PkiError, SecretText, Subject};

/// Where a kubeconfig came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The Secret in the hosting cluster.
    Cluster,
    /// Issued now, by the authority that the hosting cluster keeps.
    Issued,
    /// The folder in the home directory.
    Folder,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// Nothing was found, neither there nor here.
    #[error("there is no kubeconfig of control plane {name}: neither in namespace {namespace} nor in {}", folder.display())]
    NotFound {
        /// The control plane.
        name: ControlPlaneName,
        /// Where it was looked in the cluster.
        namespace: NamespaceName,
        /// Where it was looked on this machine.
        folder: PathBuf,
    },
    /// The hosting cluster refuses the read.
    #[error("cannot read the Secrets of the control plane")]
    Cluster(#[from] kube::Error),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] apply::Error),
    /// The keys are damaged.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// A local file cannot be used.
    #[error("a local file cannot be used")]
    Local(#[from] FolderError),
}

/// Finds the kubeconfig. `hosting` is the hosting cluster, where it can be reached.
///
/// # Errors
/// [`KubeconfigError`].
pub async fn find(
    hosting: Option<&Client>,
    home: &Home,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Result<(SecretText, Source), KubeconfigError> {
    if let Some(client) = hosting {
        let files = keys::from_cluster(client, namespace.as_str(), name.as_str()).await?;
        if let Some(text) = files.get(ADMIN_KUBECONFIG) {
            return Ok((SecretText::new(text.to_owned()), Source::Cluster));
        }
        if pki::Authorities::any_in(&files)
            && let Some(endpoint) = recorded_endpoint(client, name, namespace).await?
        {
            let subject = Subject {
                control_plane: name.to_string(),
                namespace: namespace.to_string(),
                public: endpoint,
                internal: Subject::internal_endpoint(namespace.as_str()),
                extra_sans: Vec::new(),
            };
            let mut completed = pki::ensure(&files, &subject, Timestamp::now(), &pki::Lifetimes::default())?;
            if let Some(text) = completed.files.remove(ADMIN_KUBECONFIG) {
                return Ok((text, Source::Issued));
            }
        }
    }
    let file = home.kubeconfig(name);
    let local = keys::from_folder(&home.keys(name))?.remove(ADMIN_KUBECONFIG);
    let written = || fs_err::read_to_string(&file).ok().map(SecretText::new);
    let found = local.or_else(written).map(|text| (text, Source::Folder));
    found.ok_or_else(|| KubeconfigError::NotFound {
        name: name.clone(),
        namespace: namespace.clone(),
        folder: home.control_plane(name),
    })
}

/// Where the record says that the API is reached; nothing when nothing is installed.
async fn recorded_endpoint(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Result<Option<pki::Endpoint>, KubeconfigError> {
    let owner = Owner::new(OWNER_KIND, name.as_str(), namespace.as_str());
    let state = Engine::reader(client.clone(), owner).state().await?;
    let record = state.record.filter(|record| record.phase == apply::Phase::Installed);
    let Some(url) = record.and_then(|record| record.release.facts.get("server").cloned()) else { return Ok(None) };
    let address = url.strip_prefix("https://").unwrap_or(&url);
    let Some((host, port)) = address.rsplit_once(':') else { return Ok(None) };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(port.parse().ok().map(|port| host.parse().map(|host| pki::Endpoint { host, port })).transpose()?)
}

/// Writes it where the install writes it. Gives the path.
///
/// # Errors
/// A file that cannot be written.
pub fn write(home: &Home, name: &ControlPlaneName, text: &SecretText) -> Result<PathBuf, FolderError> {
    pki::write_file(&home.control_plane(name), "fleet-kubeconfig", text.expose())
}
