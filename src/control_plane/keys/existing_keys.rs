//! Own keys (value `pki.source: Existing`): one existing Secret of the namespace with the whole key set, one entry per
//! file. It is validated before anything is written, and never changed.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::complete_keys;
use crate::api::labels::LABEL_INSTALL;
use crate::control_plane::endpoint::exposure::endpoint_from_values;
use crate::control_plane::error::InstallError;
use crate::control_plane::plan::Plan;
use crate::pki::secrets::{self, SECRET_ENTRIES};
use crate::pki::{Files, Kubeconfig, Renewal};

/// Reads the Secret that the values name, and judges it.
///
/// # Errors
/// [`InstallError::ExistingKeys`] with all that is wrong with it; an API that does not answer or refuses.
pub(in crate::control_plane) async fn read_existing_keys(
    client: &Client,
    plan: &Plan,
    now: Timestamp,
) -> Result<Files, InstallError> {
    let namespace = plan.package.namespace.as_str();
    let name = plan.values.pki.existing_secret.as_deref().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut problems = Vec::new();
    if let Some(secret) = api.get_opt(name).await? {
        let files = files_of(&secret);
        problems = find_key_faults(&files, plan, now);
        if problems.is_empty() {
            return Ok(files);
        }
    }
    Err(InstallError::ExistingKeys { secret: name.to_owned(), namespace: namespace.to_owned(), problems })
}

/// The files of the key set that a Secret holds under their own names.
pub(in crate::control_plane) fn files_of(secret: &Secret) -> Files {
    secrets::collect_key_set(|entry| Some(secret.data.as_ref()?.get(entry.file)?.0.as_slice()))
}

/// Returns the faults that keep a key set from being that of the plan, a clause each: files that are missing, that do
/// not belong together or that have expired, and addresses that they do not answer for.
fn find_key_faults(files: &Files, plan: &Plan, now: Timestamp) -> Vec<String> {
    let missing = SECRET_ENTRIES.iter().filter(|entry| files.get(entry.file).is_none());
    let missing: Vec<String> = missing.map(|entry| format!("`{}` is missing", entry.file)).collect();
    if !missing.is_empty() {
        return missing;
    }
    // Values without an address are refused before this.
    let Ok(endpoint) = endpoint_from_values(&plan.values.exposure) else { return Vec::new() };
    let completed = match complete_keys::complete_at_end(files, plan, &endpoint, now) {
        Ok(completed) => completed,
        Err(error) => return vec![error.to_string()],
    };
    let issued = completed.issued.iter().map(|(leaf, reason)| match reason {
        Renewal::Ends(end) => format!("`{}`: it expired at {end}", leaf.leaf_store().stored_file()),
        other => format!("`{}`: {other}", leaf.leaf_store().stored_file()),
    });
    let rewritten = completed.rewritten.iter().filter_map(|leaf| {
        let file = leaf.leaf_store().stored_file();
        match [files, &completed.files].map(|files| Kubeconfig::parse(file, files.get(file).unwrap_or_default())) {
            [Err(error), _] => Some(error.to_string()),
            [Ok(found), Ok(wanted)] if found.server != wanted.server => {
                Some(format!("`{file}`: its server is {}, not {}", found.server, wanted.server))
            }
            [Ok(found), Ok(wanted)] if found.authority.trim() != wanted.authority.trim() => {
                Some(format!("`{file}`: it trusts a CA other than `ca.crt`"))
            }
            // Names of contexts and users are a matter of taste.
            _ => None,
        }
    });
    issued.chain(rewritten).collect()
}

/// A Secret of the user's own, with the key set that it holds.
pub(in crate::control_plane) struct InUse {
    pub(in crate::control_plane) secret: String,
    pub(in crate::control_plane) files: Files,
}

/// The key set of a control plane that runs with keys of others: the pods of etcd say in which Secret they are. None where
/// there is no such control plane, or where the Secret is gone.
///
/// # Errors
/// An API that does not answer or refuses.
pub(in crate::control_plane) async fn in_use(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<InUse>, kube::Error> {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let set = sets.get_opt("etcd").await?;
    let Some(set) = set.filter(|set| set.labels().get(LABEL_INSTALL).map(String::as_str) == Some(name)) else {
        return Ok(None);
    };
    let volumes = set.spec.and_then(|spec| spec.template.spec?.volumes).unwrap_or_default();
    let certs = volumes.into_iter().find(|volume| volume.name == "certs").and_then(|volume| volume.secret?.secret_name);
    let Some(secret) = certs else { return Ok(None) };
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(&secret).await?.map(|found| InUse { secret, files: files_of(&found) }))
}

#[cfg(test)]
#[path = "existing_keys_tests.rs"]
mod tests;
