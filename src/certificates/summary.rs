//! ConfigMap `fleet-certificates`: the certificates of a control plane with their holders, as the last renewal found them,
//! and how that run ended. Nothing in it is secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::labels::{CERTIFICATES_CONFIG_MAP, KEYS_MANAGER};
use crate::pki::secrets::SECRET_ENTRIES;
use crate::pki::{CertificateFacts, Files, facts_of};

/// Metric of the end of each certificate at each holder.
pub const EXPIRY_METRIC: &str = "fleet_certificate_expiry_timestamp_seconds";
/// Help of [`EXPIRY_METRIC`].
pub const EXPIRY_HELP: &str =
    "Unix time at which a certificate expires. The holder is the Secret that contains it or the pod that serves it.";

/// Key of the list of certificates, as JSON.
pub const CERTIFICATES_KEY: &str = "certificates.json";
/// Key of the time of the last run that succeeded, in RFC 3339.
const SUCCESS_KEY: &str = "last-success";
/// Key of the time of the last run that failed since then.
const FAILURE_KEY: &str = "last-failure";
/// Key of the reason that it failed.
const ERROR_KEY: &str = "last-error";

/// A certificate and one place where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldCertificate {
    /// Its file in the key set, such as `apiserver.crt`.
    pub certificate: String,
    /// The Secret, or the pod with its port, that has it.
    pub holder: String,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Its last moment.
    pub not_after: Timestamp,
}

impl HeldCertificate {
    /// The certificate of a file with its holder.
    pub fn new(certificate: &str, holder: String, facts: &CertificateFacts) -> Self {
        Self { certificate: certificate.to_owned(), holder, serial: facts.serial.clone(), not_after: facts.not_after }
    }
}

/// The certificates of a key set with the Secrets that hold them.
pub fn list_in_secrets(files: &Files) -> Vec<HeldCertificate> {
    let read = facts_of(files).into_iter().filter_map(|(file, facts)| Some((file, facts.ok()?)));
    let held = read.map(|(file, facts)| {
        let secret = SECRET_ENTRIES.iter().find(|entry| entry.file == file).map_or("", |entry| entry.secret);
        HeldCertificate::new(&file, format!("Secret {secret}"), &facts)
    });
    held.collect()
}

/// How the last renewal ended, and what it found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Certificates as the last successful run found them.
    pub certificates: Vec<HeldCertificate>,
    /// End of the last successful run.
    pub succeeded: Option<Timestamp>,
    /// End of the last run, if it failed, and the reason.
    pub failed: Option<(Timestamp, String)>,
}

impl Summary {
    /// Reads it; a ConfigMap that no run has written to yet is an empty one.
    pub fn from_config_map(found: &ConfigMap) -> Self {
        let none = BTreeMap::new();
        let data = found.data.as_ref().unwrap_or(&none);
        let failed_at = data.get(FAILURE_KEY).and_then(|time| time.parse().ok());
        Self {
            certificates: data
                .get(CERTIFICATES_KEY)
                .and_then(|list| serde_json::from_str(list).ok())
                .unwrap_or_default(),
            succeeded: data.get(SUCCESS_KEY).and_then(|time| time.parse().ok()),
            failed: failed_at.map(|at| (at, data.get(ERROR_KEY).cloned().unwrap_or_default())),
        }
    }
}

/// Writes how a run ended.
///
/// # Errors
/// An API that does not answer or refuses. A ConfigMap that is missing is no error: the install that makes it may not be
/// that far.
pub(super) async fn write_summary(
    client: &Client,
    namespace: &str,
    ended: Result<&[HeldCertificate], String>,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let data = match ended {
        Ok(certificates) => json!({
            CERTIFICATES_KEY: serde_json::to_string_pretty(certificates).unwrap_or_default(),
            SUCCESS_KEY: now.to_string(), FAILURE_KEY: null, ERROR_KEY: null,
        }),
        Err(why) => json!({FAILURE_KEY: now.to_string(), ERROR_KEY: why}),
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams { field_manager: Some(KEYS_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(CERTIFICATES_CONFIG_MAP, &params, &Patch::Merge(json!({ "data": data }))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
