//! The agent's identity: a key and a certificate, stored in a Secret of the workload cluster.
//!
//! The key is saved before it is first used, so that an agent that crashes in between keeps its identity. Renewals keep it,
//! as it is the proof by which the control plane recognises this cluster; it is replaced when the control plane does not
//! have it on record any more, so that certificates of a registration that ended stay worthless.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rand::RngExt as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use x509_parser::prelude::FromDer as _;

use crate::api::extra_kind::{self, ExtraKind};
use crate::api::labels::{AGENT_MANAGER, AGENTS_GROUP, ANNOTATION_PLACED_KINDS, LABEL_PLACED_BY};
use crate::api::registration::{
    ANNOTATION_DRAIN, ANNOTATION_LEAVE, ANNOTATION_STATE, IDENTITY_CERTIFICATE as CERTIFICATE, IDENTITY_HUB as ISSUER,
    Registration, is_asked,
};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Keys of the Secret; the other two are known to installers as well.
const KEY: &str = "tls.key";
/// Annotation in which a passive agent reports which Lease it waits for.
const ANNOTATION_CONFLICT: &str = "fleet-scheduler.io/identity-conflict";
/// Time between two reads of the deregistration request.
const POLL: Duration = Duration::from_secs(3);

/// A certificate that the control plane issued.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// PEM.
    pub pem: String,
    /// Start of its validity, in seconds of Unix time.
    pub from: i64,
    /// End of its validity.
    pub until: i64,
}

impl Certificate {
    /// Reads the times out of a PEM certificate.
    pub fn parse(pem: &str) -> Option<Self> {
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
        let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&block.contents).ok()?;
        let validity = certificate.validity();
        Some(Self { pem: pem.to_owned(), from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
    }

    /// Returns true where it is of `key`, and so can be used with it.
    fn is_of(&self, key: &KeyPair) -> bool {
        let Ok((_, block)) = x509_parser::pem::parse_x509_pem(self.pem.as_bytes()) else { return false };
        x509_parser::certificate::X509Certificate::from_der(&block.contents)
            .is_ok_and(|(_, found)| key.public_key_raw() == found.public_key().subject_public_key.as_ref())
    }

    /// Returns true where it names this user.
    pub fn is_issued_to(&self, user: &str) -> bool {
        let Ok((_, block)) = x509_parser::pem::parse_x509_pem(self.pem.as_bytes()) else { return false };
        x509_parser::certificate::X509Certificate::from_der(&block.contents).is_ok_and(|(_, found)| {
            found.subject().iter_common_name().map(x509_parser::x509::AttributeTypeAndValue::as_str).eq([Ok(user)])
        })
    }

    /// Returns true while it can be used, with a minute to spare.
    pub fn is_valid(&self, now: i64) -> bool {
        now + 60 < self.until
    }

    /// Returns the time to renew it: at `share` of its validity.
    pub fn renew_at(&self, share: f64) -> i64 {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // Seconds of a validity of months.
        let after = ((self.until - self.from) as f64 * share) as i64;
        self.from + after
    }

    /// Returns a share of a certificate's validity between 70 and 80 %, at random, so that agents installed together do not renew
    /// together.
    pub fn random_share() -> f64 {
        rand::rng().random_range(0.7..0.8)
    }
}

/// Content of the Secret. `Debug` shows no key.
#[derive(Clone)]
pub struct Identity {
    /// The private key, PEM.
    pub key: String,
    /// The certificate, if there is one of the control plane in `issuer`.
    pub certificate: Option<Certificate>,
    /// The control plane that issued it and, as far as is known, accepts it; empty: none does.
    pub issuer: String,
    /// An uninstall requested deregistration.
    pub leave: bool,
    /// An uninstall requests a drain of the cluster.
    pub drain: bool,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("issuer", &self.issuer).field("leave", &self.leave).finish_non_exhaustive()
    }
}

/// Store of the identity: a Secret of the workload cluster.
#[derive(Clone)]
pub struct IdentityStore {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl IdentityStore {
    /// Returns the store in the Secret `name` in `namespace`.
    pub fn new(local: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(local, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Reads the identity; creates and saves a key if there is none.
    pub async fn load_identity(&self) -> Result<Identity, CallError> {
        let found = call_with_timeout(self.api.get_opt(&self.name)).await?;
        if let Some(identity) = found.as_ref().and_then(read_identity) {
            return Ok(identity);
        }
        let data = new_key()?;
        let secret = if let Some(mut secret) = found {
            // It holds something else, or is damaged: its data is replaced.
            secret.data = Some(data);
            call_with_timeout(self.api.replace(&self.name, &PostParams::default(), &secret)).await?
        } else {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    labels: Some([("app.kubernetes.io/name".to_owned(), "fleet-agent".to_owned())].into()),
                    ..ObjectMeta::default()
                },
                type_: Some("Opaque".to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            let params = PostParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PostParams::default() };
            call_with_timeout(self.api.create(&params, &secret)).await?
        };
        read_identity(&secret).ok_or(CallError::TimedOut)
    }

    /// Replaces the key `refused`, which the control plane does not have on record any more, and drops its certificate.
    /// Does nothing where another replica has done so: they share the Secret, and a key replaced twice would leave one of
    /// them with a key that is not saved.
    ///
    /// # Errors
    /// A call that failed, except for a conflict: the next read of the Secret shows the other write.
    pub async fn replace_key(&self, refused: &str) -> Result<(), CallError> {
        let mut secret = call_with_timeout(self.api.get(&self.name)).await?;
        if read_identity(&secret).is_none_or(|identity| identity.key != refused) {
            return Ok(());
        }
        secret.data = Some(new_key()?);
        match call_with_timeout(self.api.replace(&self.name, &PostParams::default(), &secret)).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// Saves a certificate, its key and its issuer. The key as well, as the Secret may have been recreated since it was read.
    pub async fn save_certificate(&self, key: &str, certificate: &Certificate, issuer: &str) -> Result<(), CallError> {
        let data = BTreeMap::from([
            (KEY, ByteString(key.as_bytes().to_vec())),
            (CERTIFICATE, ByteString(certificate.pem.clone().into_bytes())),
            (ISSUER, ByteString(issuer.as_bytes().to_vec())),
        ]);
        self.patch_secret(&json!({ "data": data })).await
    }

    /// Records that no control plane accepts the certificate any more. It is retained, as the control plane may still have the
    /// registration.
    pub async fn mark_unaccepted(&self) -> Result<(), CallError> {
        self.patch_secret(&json!({ "data": { ISSUER: "" } })).await
    }

    /// Returns true where an uninstall withdrew its deregistration request. A Secret that does not exist was deleted by an
    /// uninstall that went on.
    pub async fn is_leave_withdrawn(&self) -> bool {
        let found = call_with_timeout(self.api.get_metadata_opt(&self.name)).await;
        found.is_ok_and(|secret| secret.is_some_and(|secret| !is_asked(secret.annotations(), ANNOTATION_LEAVE)))
    }

    /// Records the label of the copies of the control plane, and their kinds beside those of the table, for an uninstall.
    /// Kinds stay on record when they are no longer placed: there may be copies still.
    ///
    /// # Errors
    /// A call that failed.
    pub async fn report_copies(&self, placed_by: &str, extra_kinds: &[ExtraKind]) -> Result<(), CallError> {
        let found = call_with_timeout(self.api.get_metadata_opt(&self.name)).await?;
        let mut kinds = found.map(|secret| extra_kind::read_recorded_kinds(secret.annotations())).unwrap_or_default();
        kinds.extend(extra_kinds.iter().cloned());
        let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let kinds = (!kinds.is_empty()).then(|| kinds.join(","));
        let annotations = json!({ LABEL_PLACED_BY: placed_by, ANNOTATION_PLACED_KINDS: kinds });
        self.patch_secret(&json!({ "metadata": { "annotations": annotations } })).await
    }

    /// Waits until an uninstall withdraws its deregistration request.
    pub async fn leave_withdrawn(&self) {
        loop {
            tokio::time::sleep(POLL).await;
            if self.is_leave_withdrawn().await {
                return;
            }
        }
    }

    /// Returns the last report about the registration, by whichever replica.
    pub async fn last_report(&self) -> Result<Option<Registration>, CallError> {
        let found = call_with_timeout(self.api.get_metadata_opt(&self.name)).await?;
        Ok(found.and_then(|secret| Registration::from_secret_annotations(secret.annotations())))
    }

    /// Reports the state of the registration, for an install or uninstall that waits for it.
    pub async fn report_registration(&self, state: &str, reason: &str, message: &str) -> Result<(), CallError> {
        let report = Registration {
            state: state.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: Timestamp::now().to_string(),
        };
        self.patch_secret(&json!({ "metadata": { "annotations": { ANNOTATION_STATE: json!(report).to_string() } } }))
            .await
    }

    /// Reports that an agent is passive, apart from [`Self::report_registration`]: replicas share the Secret, and the report there is that
    /// of the active one. `None` when it is active itself.
    pub async fn report_standby(&self, why: Option<&str>) -> Result<(), CallError> {
        self.patch_secret(&json!({ "metadata": { "annotations": { ANNOTATION_CONFLICT: why } } })).await
    }

    async fn patch_secret(&self, change: &serde_json::Value) -> Result<(), CallError> {
        call_with_timeout(self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(change))).await?;
        Ok(())
    }
}

/// Returns the data of a Secret that holds a new key and nothing else.
fn new_key() -> Result<BTreeMap<String, ByteString>, CallError> {
    let key = KeyPair::generate().map_err(|e| kube::Error::Service(Box::new(e)))?.serialize_pem();
    Ok(BTreeMap::from([(KEY.to_owned(), ByteString(key.into_bytes()))]))
}

fn read_identity(secret: &Secret) -> Option<Identity> {
    let [key, certificate, issuer] =
        [KEY, CERTIFICATE, ISSUER].map(|key| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok());
    let key = key?;
    let pair = KeyPair::from_pem(&key).ok()?;
    Some(Identity {
        key,
        // One of another key cannot be used, however long it is valid.
        certificate: certificate.and_then(|pem| Certificate::parse(&pem)).filter(|found| found.is_of(&pair)),
        issuer: issuer.unwrap_or_default(),
        leave: is_asked(secret.annotations(), ANNOTATION_LEAVE),
        drain: is_asked(secret.annotations(), ANNOTATION_DRAIN),
    })
}

/// Returns a certificate signing request for `user`, signed by `key`, in PEM.
pub fn signing_request(key: &str, user: &str) -> Result<String, rcgen::Error> {
    let key = KeyPair::from_pem(key)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, AGENTS_GROUP);
    params.distinguished_name.push(DnType::CommonName, user);
    params.serialize_request(&key)?.pem()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::k8s::test_api;

    #[test]
    fn renewal_is_at_70_to_80_percent() {
        let certificate = Certificate { pem: String::new(), from: 1000, until: 2000 };
        for _ in 0..100 {
            let at = certificate.renew_at(Certificate::random_share());
            assert!((1700..1800).contains(&at), "{at}");
        }
        assert!(certificate.is_valid(1900) && !certificate.is_valid(1940));
    }

    #[tokio::test]
    async fn a_missing_secret_withdraws_nothing() {
        for (secret, stays) in [
            (json!({ "metadata": { "annotations": { ANNOTATION_LEAVE: "true" } } }), false),
            (json!({ "metadata": { "annotations": { "other": "true" } } }), true),
            (json!("no Secret"), false),
        ] {
            let store = IdentityStore::new(test_api::api(move |_, _| secret.clone()), "fleet", "fleet-agent-identity");
            assert_eq!(store.is_leave_withdrawn().await, stays);
        }
    }

    #[test]
    fn a_foreign_certificate_is_ignored() {
        let [own, other] = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        for (signer, fits) in [(&own, true), (&other, false)] {
            let certificate = CertificateParams::default().self_signed(signer).unwrap();
            let data = [(KEY, own.serialize_pem()), (CERTIFICATE, certificate.pem())];
            let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())));
            let secret = Secret { data: Some(data.into()), ..Secret::default() };
            assert_eq!(read_identity(&secret).unwrap().certificate.is_some(), fits);
        }
    }

    #[tokio::test]
    async fn replicas_replace_a_key_once() {
        let saved = Arc::new(Mutex::new(json!({})));
        let there = Arc::clone(&saved);
        let local = test_api::api(move |_, brought| {
            if brought.get("data").is_some() {
                *there.lock().unwrap() = brought;
            }
            let mut secret = there.lock().unwrap().clone();
            secret["metadata"]["name"] = json!("fleet-agent-identity");
            secret
        });
        let store = IdentityStore::new(local, "fleet", "fleet-agent-identity");
        let pair = KeyPair::generate().unwrap();
        let data = [(KEY, pair.serialize_pem()), (CERTIFICATE, "old".to_owned()), (ISSUER, "issuer".to_owned())];
        let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())));
        *saved.lock().unwrap() = json!(Secret { data: Some(data.into()), ..Secret::default() });
        store.replace_key(&pair.serialize_pem()).await.unwrap();
        let first = store.load_identity().await.unwrap();
        assert!(first.key != pair.serialize_pem() && first.certificate.is_none() && first.issuer.is_empty());
        store.replace_key(&pair.serialize_pem()).await.unwrap();
        assert_eq!(store.load_identity().await.unwrap().key, first.key);
    }

    #[test]
    fn the_user_of_a_certificate_is_compared() {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "fleet:agent:west:0a1b2c3d");
        let certificate = Certificate::parse(&params.self_signed(&pair).unwrap().pem()).unwrap();
        assert!(certificate.is_issued_to("fleet:agent:west:0a1b2c3d"));
        assert!(!certificate.is_issued_to("fleet:agent:west:0a1b2c3d:0123456789abcdef"));
    }

    #[tokio::test]
    async fn a_certificate_is_saved_with_its_key() {
        let saved = Arc::new(Mutex::new(serde_json::Value::Null));
        let there = Arc::clone(&saved);
        let local = test_api::api(move |_, brought| {
            *there.lock().unwrap() = brought["data"].clone();
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "fleet-agent-identity" } })
        });
        let pair = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&pair).unwrap();
        let certificate = Certificate::parse(&certificate.pem()).unwrap();
        let store = IdentityStore::new(local, "fleet", "fleet-agent-identity");
        store.save_certificate(&pair.serialize_pem(), &certificate, "issuer").await.unwrap();
        let data = serde_json::from_value(saved.lock().unwrap().clone()).unwrap();
        let identity = read_identity(&Secret { data: Some(data), ..Secret::default() }).unwrap();
        assert!(identity.certificate == Some(certificate) && identity.key == pair.serialize_pem());
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let mut secret =
            Secret { data: Some([(KEY.to_owned(), ByteString(key.clone().into_bytes()))].into()), ..Secret::default() };
        let identity = read_identity(&secret).unwrap();
        assert!(identity.certificate.is_none() && !identity.leave);
        assert!(!format!("{identity:?}").contains("PRIVATE"));
        secret.metadata.annotations = Some([(ANNOTATION_LEAVE.to_owned(), "true".to_owned())].into());
        assert!(read_identity(&secret).unwrap().leave);
        secret.data = Some([(KEY.to_owned(), ByteString(b"broken".to_vec()))].into());
        assert!(read_identity(&secret).is_none(), "a damaged key is replaced, not used");
    }
}
