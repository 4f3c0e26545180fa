//! Getting a certificate: post a request, wait for the answer, keep what comes back.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rand::RngExt as _;

use super::identity::{Certificate, signing_request};
use super::settings::Args;
use crate::api::keys::{AGENT_USER_PREFIX, ANNOTATION_AGENT_VERSION, ANNOTATION_CLUSTER_ID};
use crate::api::registration::{ANNOTATION_LEAVE, gone};
use crate::daemon::backoff::jittered;
use crate::daemon::client::{CallError, call};

/// The signer that issues client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Time between two looks at the answer.
const POLL: Duration = Duration::from_millis(1500);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The control plane refused, in its own words.
    #[error("{reason}: {message}")]
    Denied {
        /// One word.
        reason: String,
        /// For people.
        message: String,
    },
    /// The request disappeared before it was answered.
    #[error("the request was removed before it was answered")]
    Withdrawn,
    /// The control plane does not take a registration back.
    #[error("the control plane does not take a registration back")]
    Kept,
    /// The key cannot sign.
    #[error("the key cannot sign a request")]
    Key(#[from] rcgen::Error),
    /// What came back is no certificate.
    #[error("the control plane sent something that is no certificate")]
    Garbage,
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The user name that the agent asks for.
pub fn user_name(args: &Args, cluster_id: &str) -> String {
    format!("{AGENT_USER_PREFIX}{}:{}", args.cluster_name, cluster_id.get(..8).unwrap_or(cluster_id))
}

/// The request object.
pub fn request_object(args: &Args, cluster_id: &str, key: &str) -> Result<CertificateSigningRequest, RegisterError> {
    let pem = signing_request(key, &user_name(args, cluster_id))?;
    let name = format!("fleet-{}-{:08x}", args.cluster_name, rand::rng().random::<u32>());
    let annotations = [(ANNOTATION_CLUSTER_ID, cluster_id), (ANNOTATION_AGENT_VERSION, env!("CARGO_PKG_VERSION"))];
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(annotations.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(args.certificate_seconds),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

/// Takes back a registration that has brought no certificate yet, and waits until the control plane has forgotten it.
///
/// It is said by a request of the same key, which the control plane refuses once nothing of this cluster is left there.
pub async fn withdraw(hub: &Client, args: &Args, cluster_id: &str, key: &str) -> Result<(), RegisterError> {
    let mut request = request_object(args, cluster_id, key)?;
    request.annotations_mut().insert(ANNOTATION_LEAVE.to_owned(), "true".to_owned());
    match answer(hub, &request, async |_, _| {}).await {
        Err(RegisterError::Denied { reason, .. }) if [gone::CLUSTER_LEFT, gone::NOT_REGISTERED].contains(&&*reason) => {
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => Err(RegisterError::Kept),
    }
}

/// Asks for a certificate and waits for it, however long an operator takes to accept the cluster.
///
/// `waiting` is told when the request is in, and when it is approved.
pub async fn certificate(
    hub: &Client,
    args: &Args,
    cluster_id: &str,
    key: &str,
    waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    answer(hub, &request_object(args, cluster_id, key)?, waiting).await
}

/// Posts a request and waits for its answer.
async fn answer(
    hub: &Client,
    request: &CertificateSigningRequest,
    mut waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    let api: Api<CertificateSigningRequest> = Api::all(hub.clone());
    let name = request.name_any();
    call(api.create(&PostParams::default(), request)).await?;
    waiting("RequestPosted", format!("request {name} is in")).await;
    let mut said = false;
    loop {
        tokio::time::sleep(jittered(POLL, 0.3)).await;
        let found = match call(api.get_opt(&name)).await {
            Ok(found) => found.ok_or(RegisterError::Withdrawn)?,
            // The request is in; an outage is no reason for another one.
            Err(e) if e.code().is_none_or(|c| c >= 429) => continue,
            Err(e) => return Err(e.into()),
        };
        let status = found.status.unwrap_or_default();
        for condition in status.conditions.unwrap_or_default() {
            if ["Denied", "Failed"].contains(&condition.type_.as_str()) {
                let reason = condition.reason.unwrap_or_default();
                return Err(RegisterError::Denied { reason, message: condition.message.unwrap_or_default() });
            }
            if condition.type_ == "Approved" && !said {
                waiting("Approved", "the control plane approved; waiting for the signature".to_owned()).await;
                said = true;
            }
        }
        if let Some(ByteString(pem)) = status.certificate {
            let pem = String::from_utf8(pem).map_err(|_| RegisterError::Garbage)?;
            return Certificate::parse(&pem).ok_or(RegisterError::Garbage);
        }
    }
}
