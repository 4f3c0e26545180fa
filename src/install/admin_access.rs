//! The way to a control plane's own API by its administrator's kubeconfig.
//!
//! That kubeconfig comes out of a Secret of the hosting cluster or out of a file that may be a copy of one, so only what
//! [`Kubeconfig::parse`] takes is ever used to connect.

use super::fleet_home::Home;
use crate::api::names::ControlPlaneName;
use crate::api::remedy::Remedy;
use crate::api::util::file;
use crate::api::util::file::FileError;
use crate::k8s::connect::kubeconfig::connect_with;
use crate::k8s::{Connected, error_sentences};
use crate::pki::{Kubeconfig, PkiError, SecretText};

/// A client of the API that a kubeconfig leads to. Nothing is sent yet, and no program runs.
///
/// # Errors
/// What keeps the kubeconfig from being used, outermost first.
pub async fn connect_kubeconfig(kubeconfig: &Kubeconfig) -> Result<Connected, String> {
    // Written anew from the fields that were read, so that nothing else of the text that they came from is used.
    let text = kubeconfig.to_yaml("kubeconfig").map_err(|error| error.to_string())?;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(text.expose());
    let kubeconfig = kubeconfig.map_err(|error| error_sentences(&error).join(": "))?;
    connect_with(kubeconfig).await.map_err(|error| error_sentences(&error).join(": "))
}

/// Size of a kubeconfig, in bytes, beyond which it is not an install's.
const LARGEST: u64 = 1024 * 1024;

/// Reason that the kubeconfig of a control plane on this machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalKubeconfigError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not what an install writes.
    #[error(transparent)]
    Content(#[from] PkiError),
}

impl LocalKubeconfigError {
    /// The remedy of a file that cannot be read. Any other one is written again from the hosting cluster.
    pub fn remedy(&self) -> Option<Remedy> {
        if let Self::File(error) = self { error.remedy() } else { None }
    }
}

/// The kubeconfig that an install wrote into the folder of a control plane on this machine; none where there is no such
/// file.
///
/// # Errors
/// [`LocalKubeconfigError`] with the path of the file where it cannot be read, or is not what an install writes.
pub fn read_local_kubeconfig(home: &Home, name: &ControlPlaneName) -> Result<Option<Kubeconfig>, LocalKubeconfigError> {
    let file = home.kubeconfig_path(name);
    let Some(text) = file::read_linked_text(&file, LARGEST)?.map(SecretText::new) else { return Ok(None) };
    let read = Kubeconfig::parse(&file.to_string_lossy(), text.expose())?;
    Ok(Some(read.of_control_plane(name.as_str())))
}
