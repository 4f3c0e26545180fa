//! The Secret that agents start from: the public address, the CA and an init token, as a kubeconfig.
//!
//! Operators copy it into workload clusters. So it carries no owner, finalizer or immutable flag: with an owner that
//! does not exist there, the garbage collector of the workload cluster would delete the copy.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use crate::api::labels::{
    INIT_SECRET, INIT_SECRET_KEY, LABEL_APP_VERSION, LABEL_INSTANCE, LABEL_PART_OF, SCHEDULER_MANAGER,
};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::scheduler::settings::Settings;

/// Labels that travel with every copy: whose Secret it is, and of which service version.
fn bootstrap_secret_labels(settings: &Settings) -> BTreeMap<String, String> {
    let known = [
        (LABEL_PART_OF, Some("fleet")),
        (LABEL_INSTANCE, settings.name.as_deref()),
        (LABEL_APP_VERSION, settings.version.as_deref()),
    ];
    known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
}

fn build_bootstrap_secret(settings: &Settings, kubeconfig: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(INIT_SECRET.to_owned()),
            namespace: Some(settings.namespace.clone()),
            labels: Some(bootstrap_secret_labels(settings)),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([(INIT_SECRET_KEY.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))])),
        ..Secret::default()
    }
}

/// Returns true where the Secret needs no write.
fn is_current(found: &Secret, settings: &Settings, kubeconfig: &str) -> bool {
    let data = found.data.as_ref().and_then(|d| d.get(INIT_SECRET_KEY));
    let labelled = bootstrap_secret_labels(settings).iter().all(|(key, value)| found.labels().get(key) == Some(value));
    labelled && data.is_some_and(|bytes| bytes.0 == kubeconfig.as_bytes()) && found.immutable != Some(true)
}

/// Writes `kubeconfig` into the Secret. Returns false where it was there already.
pub async fn ensure_bootstrap_secret(
    client: &Client,
    settings: &Settings,
    kubeconfig: &str,
) -> Result<bool, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &settings.namespace);
    let found = call_with_timeout(api.get_opt(INIT_SECRET)).await?;
    match found {
        Some(found) if is_current(&found, settings, kubeconfig) => return Ok(false),
        Some(found) if found.immutable == Some(true) => {
            // An immutable Secret can only be recreated.
            let same = Preconditions { uid: found.uid(), resource_version: None };
            call_with_timeout(api.delete(INIT_SECRET, &DeleteParams::default().preconditions(same))).await?;
        }
        _ => {}
    }
    let params = PatchParams::apply(SCHEDULER_MANAGER).force();
    call_with_timeout(api.patch(INIT_SECRET, &params, &Patch::Apply(&build_bootstrap_secret(settings, kubeconfig))))
        .await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        serde_saphyr::from_str("{name: demo, version: v0.6.1}").unwrap()
    }

    #[test]
    fn the_secret_can_be_copied() {
        let secret = build_bootstrap_secret(&settings(), "k");
        assert_eq!(secret.metadata.owner_references, None);
        assert_eq!(secret.metadata.finalizers, None);
        assert_eq!(secret.immutable, None);
    }

    #[test]
    fn only_a_different_secret_is_rewritten() {
        let mut found = build_bootstrap_secret(&settings(), "k");
        assert!(is_current(&found, &settings(), "k"));
        let upgraded = Settings { version: Some("v0.7.1".to_owned()), ..settings() };
        assert!(!is_current(&found, &upgraded, "k"));
        assert!(!is_current(&found, &settings(), "other"));
        found.immutable = Some(true);
        assert!(!is_current(&found, &settings(), "k"));
        assert!(!is_current(&Secret::default(), &settings(), "k"));
    }
}
