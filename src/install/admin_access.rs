//! The way to a control plane's own API by its administrator's kubeconfig.
//!
//! That kubeconfig comes out of a Secret of the hosting cluster or out of a file that may be a copy of one, so only what
//! [`Kubeconfig::parse`] takes is ever used to connect.

use super::fleet_home::Home;
use crate::api::names::ControlPlaneName;
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
    let unusable = |error: &(dyn std::error::Error + 'static)| error_sentences(error).join(": ");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(text.expose()).map_err(|error| unusable(&error))?;
    connect_with(kubeconfig).await.map_err(|error| unusable(&error))
}

/// The kubeconfig that an install wrote into the folder of a control plane on this machine; none where there is no such
/// file.
///
/// # Errors
/// [`PkiError`] with the path of the file where it is not what an install writes.
pub fn read_local_kubeconfig(home: &Home, name: &ControlPlaneName) -> Result<Option<Kubeconfig>, PkiError> {
    let file = home.kubeconfig_path(name);
    let Ok(text) = fs_err::read_to_string(&file).map(SecretText::new) else { return Ok(None) };
    Kubeconfig::parse(&file.to_string_lossy(), text.expose()).map(|read| Some(read.of_control_plane(name.as_str())))
}
