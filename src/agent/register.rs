//! Requests a certificate: posts a CertificateSigningRequest and waits for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rand::RngExt as _;
use rcgen::{KeyPair, PublicKeyData as _};

use super::identity::{Certificate, signing_request};
use super::settings::Args;
use crate::api::labels::{ANNOTATION_AGENT_VERSION, ANNOTATION_CLUSTER_ID};
use crate::api::protocol::{ANNOTATION_REJOIN, SIGNER, USAGES, key_fingerprint, user_name};
use crate::api::registration::{ANNOTATION_LEAVE, gone, validity};
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Time between two reads of the request.
const POLL: Duration = Duration::from_millis(if cfg!(test) { 15 } else { 1500 });

/// Validity of the certificates that are requested, in seconds: as configured, until the control plane allows less. That
/// is remembered until the agent is restarted.
#[derive(Debug, Clone)]
pub struct Validity(Arc<AtomicI32>);

impl Validity {
    /// Creates the validity as configured.
    pub fn new(seconds: i32) -> Self {
        Self(Arc::new(AtomicI32::new(seconds)))
    }

    fn seconds(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Reduces the validity to what a denial allows, and returns it. None where the denial was about something else, or
    /// another request would be of no use.
    fn reduce_to_allowed(&self, denial: &RegisterError) -> Option<i32> {
        let RegisterError::Denied { reason, max_validity, .. } = denial else { return None };
        let allowed = max_validity.filter(|_| reason == validity::NOT_ALLOWED)?;
        let shorter = (validity::MIN_SECONDS..self.seconds()).contains(&allowed);
        shorter.then(|| self.0.store(allowed, Ordering::Relaxed)).map(|()| allowed)
    }
}

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The control plane denied it, with its own message.
    #[error("{reason}: {message}")]
    Denied {
        /// One word.
        reason: String,
        /// For people.
        message: String,
        /// Longest validity that it allows, in seconds, where it says so.
        max_validity: Option<i32>,
    },
    /// The request disappeared before it was answered.
    #[error("the request was deleted before it was answered")]
    Withdrawn,
    /// The control plane issued a certificate in answer to a deregistration.
    #[error("the control plane does not support withdrawing a registration")]
    NotDeregistered,
    /// The key cannot sign.
    #[error("the agent's key cannot sign the certificate request")]
    Key(#[from] rcgen::Error),
    /// The answer is no certificate.
    #[error("the control plane did not send a certificate")]
    InvalidCertificate,
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Returns the user name that the agent requests with its private key, in PEM.
///
/// # Errors
/// A key that cannot be read.
pub fn user_of(args: &Args, cluster_id: &str, key: &str) -> Result<String, rcgen::Error> {
    let fingerprint = key_fingerprint(&KeyPair::from_pem(key)?.subject_public_key_info());
    Ok(user_name(args.cluster_name.as_str(), cluster_id, &fingerprint))
}

/// Returns the CertificateSigningRequest of a certificate that is valid for some seconds.
fn request_object(
    args: &Args,
    seconds: i32,
    cluster_id: &str,
    key: &str,
) -> Result<CertificateSigningRequest, RegisterError> {
    let pem = signing_request(key, &user_of(args, cluster_id, key)?)?;
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
            usages: Some(USAGES.map(ToOwned::to_owned).into()),
            expiration_seconds: Some(seconds),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

fn annotated_request_object(
    args: &Args,
    seconds: i32,
    cluster_id: &str,
    key: &str,
    annotation: &str,
) -> Result<CertificateSigningRequest, RegisterError> {
    let mut request = request_object(args, seconds, cluster_id, key)?;
    request.annotations_mut().insert(annotation.to_owned(), "true".to_owned());
    Ok(request)
}

/// Deregisters a cluster without a certificate, and waits until the control plane has removed it.
///
/// It is requested by a CSR of the same key, which the control plane denies once nothing of this cluster is left there.
pub async fn request_withdrawal(
    control_plane: &Client,
    args: &Args,
    validity: &Validity,
    cluster_id: &str,
    key: &str,
) -> Result<(), RegisterError> {
    let answered = request_with_validity(
        control_plane,
        validity,
        |seconds| annotated_request_object(args, seconds, cluster_id, key, ANNOTATION_LEAVE),
        async |_, _| {},
    );
    match answered.await {
        Err(RegisterError::Denied { reason, .. }) if [gone::CLUSTER_LEFT, gone::NOT_REGISTERED].contains(&&*reason) => {
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => Err(RegisterError::NotDeregistered),
    }
}

/// Requests a certificate and waits for it, however long an operator takes to accept the cluster.
///
/// `waiting` is called when the request was created, and when it is approved.
pub async fn request_certificate(
    control_plane: &Client,
    args: &Args,
    validity: &Validity,
    cluster_id: &str,
    key: &str,
    waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    // Whoever accepts this cluster compares it with what the control plane shows.
    let fingerprint = key_fingerprint(&KeyPair::from_pem(key)?.subject_public_key_info());
    tracing::info!(cluster_id, key = fingerprint, "requesting a certificate");
    request_with_validity(control_plane, validity, |seconds| request_object(args, seconds, cluster_id, key), waiting)
        .await
}

/// Requests as [`request_certificate`] does, by init token, with a key for which a certificate was issued before.
///
/// # Errors
/// A denial with the reason [`crate::api::protocol::NEW_KEY_NEEDED`], where the key is not on record any more.
pub async fn request_rejoin(
    control_plane: &Client,
    args: &Args,
    validity: &Validity,
    cluster_id: &str,
    key: &str,
    waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    request_with_validity(
        control_plane,
        validity,
        |seconds| annotated_request_object(args, seconds, cluster_id, key, ANNOTATION_REJOIN),
        waiting,
    )
    .await
}

/// Requests the validity that is known to be allowed. Where it is not any more, the denial says what is, and the request is
/// repeated with that.
async fn request_with_validity(
    control_plane: &Client,
    validity: &Validity,
    request: impl Fn(i32) -> Result<CertificateSigningRequest, RegisterError>,
    mut waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    let answered = post_and_wait(control_plane, &request(validity.seconds())?, &mut waiting).await;
    match answered.as_ref().err().and_then(|refusal| validity.reduce_to_allowed(refusal)) {
        None => answered,
        Some(seconds) => {
            tracing::info!(seconds, "the control plane allows only certificates with a shorter validity");
            post_and_wait(control_plane, &request(seconds)?, waiting).await
        }
    }
}

/// Posts a request and waits for its answer.
async fn post_and_wait(
    control_plane: &Client,
    request: &CertificateSigningRequest,
    mut waiting: impl AsyncFnMut(&'static str, String),
) -> Result<Certificate, RegisterError> {
    let api: Api<CertificateSigningRequest> = Api::all(control_plane.clone());
    let name = request.name_any();
    call_with_timeout(api.create(&PostParams::default(), request)).await?;
    waiting("RequestPosted", format!("request {name} is pending")).await;
    let mut approved = false;
    loop {
        tokio::time::sleep(add_jitter(POLL, 0.3)).await;
        let found = match call_with_timeout(api.get_opt(&name)).await {
            Ok(found) => found.ok_or(RegisterError::Withdrawn)?,
            // The request exists; an outage is no reason for another one.
            Err(e) if e.status_code().is_none_or(|c| c >= 429) => continue,
            Err(e) => return Err(e.into()),
        };
        let annotated = found.annotations().get(validity::ANNOTATION_MAX_SECONDS).and_then(|max| max.parse().ok());
        let status = found.status.unwrap_or_default();
        for condition in status.conditions.unwrap_or_default() {
            if ["Denied", "Failed"].contains(&condition.type_.as_str()) {
                let (reason, message) = (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
                let max_validity = annotated.or_else(|| validity::max_in_message(&message));
                return Err(RegisterError::Denied { reason, message, max_validity });
            }
            if condition.type_ == "Approved" && !approved {
                waiting("Approved", "the control plane approved; waiting for the signature".to_owned()).await;
                approved = true;
            }
        }
        if let Some(ByteString(pem)) = status.certificate {
            let pem = String::from_utf8(pem).map_err(|_| RegisterError::InvalidCertificate)?;
            return Certificate::parse(&pem).ok_or(RegisterError::InvalidCertificate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use clap::Parser as _;
    use rcgen::CertificateParams;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::settings::Cli;
    use crate::k8s::test_api;

    const WANTED: i32 = 90 * 86_400;
    const ALLOWED: i32 = 2 * 86_400;

    /// A control plane that denies a validity of more than `ALLOWED`, as `says` it, and answers everything else with
    /// `otherwise`; and the validities that it was asked for.
    fn control_plane_of(says: Says, otherwise: Value) -> (Client, Arc<Mutex<Vec<i64>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let client = test_api::api(move |_, brought| {
            let mut seen = seen.lock().unwrap();
            seen.extend(brought["spec"]["expirationSeconds"].as_i64());
            let too_long = seen.last().is_none_or(|seconds| *seconds > i64::from(ALLOWED));
            let (annotations, message) = match says {
                Says::ByAnnotation => {
                    (json!({ validity::ANNOTATION_MAX_SECONDS: ALLOWED.to_string() }), "too long".to_owned())
                }
                Says::ByMessage => (json!({}), validity::format_denial_message(ALLOWED)),
            };
            let status = if too_long { denied(validity::NOT_ALLOWED, &message) } else { otherwise.clone() };
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": { "name": "fleet-west-1", "annotations": annotations }, "spec": { "request": "", "signerName": SIGNER },
                "status": status,
            })
        });
        (client, asked)
    }

    /// Form in which a scheduler says what it allows; those of the line before say it by message alone.
    #[derive(Clone, Copy)]
    enum Says {
        ByAnnotation,
        ByMessage,
    }

    fn denied(reason: &str, message: &str) -> Value {
        json!({ "conditions": [{ "type": "Denied", "status": "True", "reason": reason, "message": message }] })
    }

    fn args() -> Args {
        Cli::parse_from(["fleet-agent", "--cluster-name", "west"]).args.unwrap()
    }

    const ID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    #[tokio::test]
    async fn the_allowed_validity_is_requested() {
        let pair = KeyPair::generate().unwrap();
        let pem = CertificateParams::default().self_signed(&pair).unwrap().pem();
        for says in [Says::ByAnnotation, Says::ByMessage] {
            let (control_plane, asked) = control_plane_of(says, json!({ "certificate": STANDARD.encode(&pem) }));
            let validity = Validity::new(WANTED);
            for expected in [vec![WANTED, ALLOWED], vec![WANTED, ALLOWED, ALLOWED]] {
                let key = pair.serialize_pem();
                let found =
                    request_certificate(&control_plane, &args(), &validity, ID, &key, async |_, _| {}).await.unwrap();
                assert_eq!(found.pem, pem);
                let expected: Vec<i64> = expected.into_iter().map(i64::from).collect();
                assert_eq!(*asked.lock().unwrap(), expected);
            }
        }
    }

    #[tokio::test]
    async fn a_deregistration_reduces_validity_too() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let (control_plane, asked) = control_plane_of(Says::ByAnnotation, denied(gone::CLUSTER_LEFT, "taken back"));
        request_withdrawal(&control_plane, &args(), &Validity::new(WANTED), ID, &key).await.unwrap();
        assert_eq!(*asked.lock().unwrap(), [i64::from(WANTED), i64::from(ALLOWED)]);
    }

    #[test]
    fn other_denials_do_not_reduce_validity() {
        let validity = Validity::new(WANTED);
        for (reason, max_validity) in [
            ("ClusterNameInUse", Some(ALLOWED)),
            (validity::NOT_ALLOWED, None),
            (validity::NOT_ALLOWED, Some(validity::MIN_SECONDS - 1)),
            (validity::NOT_ALLOWED, Some(WANTED)),
        ] {
            let denial = RegisterError::Denied { reason: reason.to_owned(), message: String::new(), max_validity };
            assert_eq!(validity.reduce_to_allowed(&denial), None, "{denial} {max_validity:?}");
        }
        assert_eq!(validity.seconds(), WANTED);
    }
}
