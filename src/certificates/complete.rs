//! Completing the key Secrets: what is good stays, certificates that are due are issued again, and what is missing is made
//! where that is allowed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};

use super::KeysError;
use super::lost::refuse_lost;
use super::secret::{build_keys_secret, data_of, has_secret_data};
use crate::api::labels::{KEYS_MANAGER, LABEL_INSTALL};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::pki::secrets::{self, KEPT_SECRET, SECRET_ENTRIES};
use crate::pki::{
    self, AuthorityKind, CertificateFacts, Choice, Completed, Endpoint, Files, Kubeconfig, Leaf, Lifetimes, PkiError,
    San, Subject,
};

/// Number of attempts; another one is made where somebody else wrote meanwhile.
const ATTEMPTS: usize = 5;

/// The control plane whose key Secrets are completed.
#[derive(Debug, Clone)]
pub struct KeyTarget {
    /// Its name.
    pub name: ControlPlaneName,
    /// Its namespace in the hosting cluster.
    pub namespace: NamespaceName,
    /// Service version that new Secrets are labelled with.
    pub service_version: String,
    /// Address in the operator's kubeconfig.
    pub endpoint: Endpoint,
    /// Further SANs of the API server's certificate.
    pub sans: Vec<San>,
    /// Validity of what is issued.
    pub lifetimes: Lifetimes,
    /// Whether missing Secrets are made; else only existing ones are changed.
    pub makes_missing: bool,
    /// The certificates that are issued again.
    pub choice: Choice,
    /// Whether the operator's certificate gets a new key.
    pub new_admin_key: bool,
}

impl KeyTarget {
    /// The target of a renewal of what exists: its addresses are those in the present certificates.
    ///
    /// # Errors
    /// [`PkiError`] if the operator's kubeconfig or the API server's certificate is missing or cannot be read.
    pub fn from_present(
        name: &ControlPlaneName,
        namespace: &NamespaceName,
        files: &Files,
        choice: Choice,
    ) -> Result<Self, PkiError> {
        let admin = Leaf::Admin.leaf_store().stored_file();
        let server = Kubeconfig::parse(admin, files.require_file(admin)?)?.server;
        let served = Leaf::ApiServer.leaf_store().stored_file();
        Ok(Self {
            name: name.clone(),
            namespace: namespace.clone(),
            service_version: String::new(),
            endpoint: Endpoint::from_url(&server)?,
            sans: CertificateFacts::from_pem(served, files.require_file(served)?)?.sans,
            lifetimes: Lifetimes::default(),
            makes_missing: false,
            choice,
            new_admin_key: false,
        })
    }

    /// The key set that a run would write, in memory.
    ///
    /// # Errors
    /// [`PkiError`] for keys that are damaged or cannot be made.
    pub fn complete(&self, files: &Files, now: Timestamp) -> Result<Completed, PkiError> {
        pki::ensure_chosen(files, &self.pki_subject(), now, &self.lifetimes, &self.choice, self.new_admin_key)
    }

    fn pki_subject(&self) -> Subject {
        Subject {
            control_plane: self.name.to_string(),
            namespace: self.namespace.to_string(),
            public: self.endpoint.clone(),
            internal: Subject::internal_endpoint(self.namespace.as_str()),
            extra_sans: self.sans.clone(),
        }
    }
}

/// The complete key set, and the Secrets that a run wrote.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KeysDone {
    /// Secrets that were made.
    pub made: Vec<&'static str>,
    /// Secrets whose certificates were issued again.
    pub renewed: Vec<&'static str>,
    /// CAs that were signed again.
    pub authorities: Vec<AuthorityKind>,
    /// The CAs that had ended.
    pub ended_authorities: Vec<AuthorityKind>,
    /// Times of earlier renewals of Secrets, by the clock of the hosting cluster.
    pub written: BTreeMap<&'static str, Timestamp>,
    /// Every file of the set.
    pub files: Files,
}

impl KeysDone {
    /// Returns whether nothing was written.
    pub fn is_unchanged(&self) -> bool {
        self.made.is_empty() && self.renewed.is_empty()
    }
}

/// The CAs of a key set that have ended.
pub fn list_ended_authorities(files: &Files, now: Timestamp) -> Vec<AuthorityKind> {
    let ended = AuthorityKind::ALL.into_iter().filter(|kind| {
        let file = kind.certificate_file();
        let facts = files.get(file).and_then(|pem| CertificateFacts::from_pem(file, pem).ok());
        facts.is_some_and(|facts| facts.not_after <= now)
    });
    ended.collect()
}

/// The last time at which a renewal wrote a Secret.
fn last_renewal(secret: &Secret) -> Option<Timestamp> {
    let by_renewal = secret.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(KEYS_MANAGER));
    by_renewal.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max()
}

/// An attempt that must be repeated.
enum Attempt {
    Done(Box<KeysDone>),
    /// Somebody else wrote first.
    Again,
}

/// Makes what is missing, where that is allowed, and renews what is due.
///
/// # Errors
/// [`KeysError`]; nothing that exists was replaced then but certificates that were due.
pub async fn complete_key_secrets(client: &Client, target: &KeyTarget, now: Timestamp) -> Result<KeysDone, KeysError> {
    for _ in 0..ATTEMPTS {
        if let Attempt::Done(done) = try_complete(client, target, now).await? {
            return Ok(*done);
        }
    }
    Err(KeysError::Contended)
}

/// Reads the key Secrets that exist.
async fn read_key_secrets(
    api: &Api<Secret>,
    target: &KeyTarget,
    names: &BTreeSet<&'static str>,
) -> Result<BTreeMap<&'static str, Secret>, KeysError> {
    let mut found: BTreeMap<&str, Secret> = BTreeMap::new();
    for name in names {
        let Some(secret) = api.get_opt(name).await? else {
            if target.makes_missing {
                continue;
            }
            return Err(KeysError::NotInstalled((*name).to_owned()));
        };
        if secret.labels().get(LABEL_INSTALL).map(String::as_str) != Some(target.name.as_str()) {
            return Err(KeysError::NotOurs((*name).to_owned()));
        }
        found.insert(name, secret);
    }
    Ok(found)
}

async fn try_complete(client: &Client, target: &KeyTarget, now: Timestamp) -> Result<Attempt, KeysError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), target.namespace.as_str());
    let names: BTreeSet<&'static str> = SECRET_ENTRIES.iter().map(|entry| entry.secret).collect();
    let found = read_key_secrets(&api, target, &names).await?;
    let files =
        secrets::collect_key_set(|entry| Some(found.get(entry.secret)?.data.as_ref()?.get(entry.key)?.0.as_slice()));
    if !pki::Authorities::any_in(&files) {
        if !target.makes_missing {
            return Err(KeysError::NotInstalled(KEPT_SECRET.to_owned()));
        }
        refuse_lost(client, target, &found).await?;
    }
    let completed = target.complete(&files, now)?;
    let written = found.iter().filter_map(|(name, secret)| Some((*name, last_renewal(secret)?))).collect();
    let mut done = KeysDone {
        authorities: completed.renewed_authorities.clone(),
        ended_authorities: list_ended_authorities(&files, now),
        written,
        ..KeysDone::default()
    };
    // The CAs first: whoever makes them decides for everybody.
    for name in std::iter::once(KEPT_SECRET).chain(names.into_iter().filter(|name| *name != KEPT_SECRET)) {
        let known = found.get(name);
        let data = data_of(name, &completed.files, target);
        if known.is_some_and(|known| has_secret_data(known, &data)) {
            continue;
        }
        if !target.makes_missing && known.is_none_or(|known| known.immutable == Some(true)) {
            return Err(KeysError::NotInstalled(name.to_owned()));
        }
        match write_secret(&api, name, &build_keys_secret(target, name, data, known), known).await {
            Ok(()) if known.is_some() => done.renewed.push(name),
            Ok(()) => done.made.push(name),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => return Ok(Attempt::Again),
            Err(error) => return Err(error.into()),
        }
    }
    done.files = completed.files;
    Ok(Attempt::Done(Box::new(done)))
}

/// Writes a Secret in place of the one that was read; nothing is written where that has changed.
async fn write_secret(api: &Api<Secret>, name: &str, body: &Secret, known: Option<&Secret>) -> Result<(), kube::Error> {
    let post = PostParams { field_manager: Some(KEYS_MANAGER.to_owned()), ..PostParams::default() };
    match known {
        None => api.create(&post, body).await?,
        // What `template` printed before is immutable, and can only be made again.
        Some(known) if known.immutable == Some(true) => {
            let uid = Some(Preconditions { uid: known.uid(), resource_version: None });
            api.delete(name, &DeleteParams { preconditions: uid, ..DeleteParams::default() }).await?;
            api.create(&post, body).await?
        }
        Some(_) => api.replace(name, &post, body).await?,
    };
    Ok(())
}
