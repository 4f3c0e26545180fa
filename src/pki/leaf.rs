//! The leaves: every certificate that an authority issues, each for one use, and when one is still good. Their
//! validity is in `certificate_lifetime.rs`.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, PublicKeyData as _};
use time::OffsetDateTime;

use super::authority::{distinguished_name, random_serial_number, validity_period};
use super::certificate::{signed_by, with_parsed_certificate};
use super::private_key::PrivateKey;
use super::{Authorities, AuthorityKind, CertificateFacts, Lifetimes, PkiError, San, SecretText};
use crate::api::util::digest;

/// Use of a certificate (extended key usage).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// To stand for a server.
    Server,
    /// To stand for a client.
    Client,
    /// Both: etcd's members are each other's servers and clients.
    Peer,
}

/// Place in which a leaf's certificate and key are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafStore {
    /// In two files.
    Pair {
        /// File name of the certificate.
        certificate: &'static str,
        /// File name of the private key.
        key: &'static str,
    },
    /// Inside a kubeconfig, and nowhere else, so that the key exists once.
    Kubeconfig(&'static str),
}

impl LeafStore {
    /// The file with the certificate, alone or in a kubeconfig.
    pub const fn stored_file(self) -> &'static str {
        match self {
            Self::Pair { certificate, .. } => certificate,
            Self::Kubeconfig(file) => file,
        }
    }
}

/// Every leaf of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// The API server's serving certificate.
    ApiServer,
    /// The API server as etcd's client.
    ApiServerEtcdClient,
    /// The API server as front proxy of aggregated APIs.
    FrontProxyClient,
    /// etcd's serving certificate.
    EtcdServer,
    /// etcd's members among themselves.
    EtcdPeer,
    /// etcd's probes and metrics readers.
    EtcdHealthClient,
    /// The operator.
    Admin,
    /// The controller manager.
    ControllerManager,
    /// The scheduler, which also brings up the inside of the control plane.
    Scheduler,
}

impl Leaf {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ApiServer,
        Self::ApiServerEtcdClient,
        Self::FrontProxyClient,
        Self::EtcdServer,
        Self::EtcdPeer,
        Self::EtcdHealthClient,
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    /// The authority that issues it.
    pub const fn issuing_authority(self) -> AuthorityKind {
        match self {
            Self::FrontProxyClient => AuthorityKind::FrontProxy,
            Self::ApiServerEtcdClient | Self::EtcdServer | Self::EtcdPeer | Self::EtcdHealthClient => {
                AuthorityKind::Etcd
            }
            Self::ApiServer | Self::Admin | Self::ControllerManager | Self::Scheduler => AuthorityKind::Cluster,
        }
    }

    /// Its one use.
    pub const fn leaf_usage(self) -> Usage {
        match self {
            Self::ApiServer | Self::EtcdServer => Usage::Server,
            Self::EtcdPeer => Usage::Peer,
            _ => Usage::Client,
        }
    }

    /// Its common name: for clients of the API server the user name that RBAC sees. Of [`Leaf::Admin`] it is the first
    /// part, see [`LeafSpec::names_key`].
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ApiServerEtcdClient => "kube-apiserver-etcd-client",
            Self::FrontProxyClient => "front-proxy-client",
            Self::EtcdServer => "etcd-server",
            Self::EtcdPeer => "etcd-peer",
            Self::EtcdHealthClient => "etcd-health-client",
            Self::Admin => "fleet-admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "fleet:scheduler",
        }
    }

    /// Its organisation: the group that RBAC sees.
    ///
    /// Only [`Leaf::Scheduler`] is in `system:masters`: in an empty API someone must create the first role, and a user
    /// who may create roles and issue certificates has that power anyway.
    pub const fn organization(self) -> Option<&'static str> {
        match self {
            Self::Admin => Some("fleet:admins"),
            Self::Scheduler => Some("system:masters"),
            _ => None,
        }
    }

    /// Returns the place in which it is stored.
    pub const fn leaf_store(self) -> LeafStore {
        match self {
            Self::ApiServer => LeafStore::Pair { certificate: "apiserver.crt", key: "apiserver.key" },
            Self::ApiServerEtcdClient => {
                LeafStore::Pair { certificate: "apiserver-etcd-client.crt", key: "apiserver-etcd-client.key" }
            }
            Self::FrontProxyClient => {
                LeafStore::Pair { certificate: "front-proxy-client.crt", key: "front-proxy-client.key" }
            }
            Self::EtcdServer => LeafStore::Pair { certificate: "etcd-server.crt", key: "etcd-server.key" },
            Self::EtcdPeer => LeafStore::Pair { certificate: "etcd-peer.crt", key: "etcd-peer.key" },
            Self::EtcdHealthClient => {
                LeafStore::Pair { certificate: "etcd-health-client.crt", key: "etcd-health-client.key" }
            }
            Self::Admin => LeafStore::Kubeconfig("admin.kubeconfig"),
            Self::ControllerManager => LeafStore::Kubeconfig("controller-manager.kubeconfig"),
            Self::Scheduler => LeafStore::Kubeconfig("scheduler.kubeconfig"),
        }
    }

    /// The certificate that this leaf should be, answering for `sans`.
    pub fn to_spec(self, sans: Vec<San>) -> LeafSpec {
        let entry = match self.leaf_store() {
            LeafStore::Pair { certificate, .. } => certificate,
            LeafStore::Kubeconfig(name) => name,
        };
        LeafSpec {
            entry: entry.to_owned(),
            authority: self.issuing_authority(),
            usage: self.leaf_usage(),
            common_name: self.common_name().to_owned(),
            organization: self.organization().map(str::to_owned),
            names_key: self == Self::Admin,
            sans,
        }
    }
}

/// A certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafSpec {
    /// Name of the certificate in errors: the file it is stored in.
    pub entry: String,
    /// Authority that issues it.
    pub authority: AuthorityKind,
    /// Its one use.
    pub usage: Usage,
    /// Its common name.
    pub common_name: String,
    /// Its organisation.
    pub organization: Option<String>,
    /// True if the common name ends with the fingerprint of the key, `fleet-admin:<16 hexadecimal digits>`. Each
    /// certificate is then a separate user, so that rights can be granted and revoked for each.
    pub names_key: bool,
    /// The addresses it answers for. A certificate with more of them is as good.
    pub sans: Vec<San>,
}

impl LeafSpec {
    /// The whole common name, with this public key (`SubjectPublicKeyInfo` in DER).
    fn full_name(&self, public_key_info: &[u8]) -> String {
        let name = &self.common_name;
        if self.names_key { format!("{name}:{}", digest::short_digest(public_key_info)) } else { name.clone() }
    }
}

/// Reason that a leaf is reissued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Renewal {
    /// It did not exist.
    #[error("it did not exist")]
    Missing,
    /// Certificate or key cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The key belongs to another certificate.
    #[error("its key does not match")]
    KeyMismatch,
    /// Another CA signed it.
    #[error("another CA signed it")]
    OtherAuthority,
    /// It names another user, group or use.
    #[error("it has another subject or key usage")]
    OtherSubject,
    /// It has no SAN for some addresses.
    #[error("it has no SAN for {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    MissingAddresses(Vec<San>),
    /// It expires soon, or has expired.
    #[error("it expires at {0}")]
    Ends(Timestamp),
    /// A new key was asked for.
    #[error("it gets a new key")]
    NewKey,
}

/// Issues a leaf with a new key. Returns the certificate and the private key in PEM form.
pub fn issue_leaf(
    authorities: &Authorities,
    spec: &LeafSpec,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(String, SecretText), PkiError> {
    let key = PrivateKey::generate_key(&spec.entry)?;
    Ok((sign_leaf(authorities, spec, &key, now, lifetimes)?, key.to_text()))
}

/// Issues a leaf for the key that it had, in PEM form. Returns the certificate and the same key.
pub(super) fn reissue_leaf(
    authorities: &Authorities,
    spec: &LeafSpec,
    key: &SecretText,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(String, SecretText), PkiError> {
    let parsed = PrivateKey::parse(&spec.entry, key.expose())?;
    Ok((sign_leaf(authorities, spec, &parsed, now, lifetimes)?, key.clone()))
}

fn sign_leaf(
    authorities: &Authorities,
    spec: &LeafSpec,
    key: &PrivateKey,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<String, PkiError> {
    let (not_before, not_after) = validity_period(now, lifetimes.leaf)?;
    let mut params = CertificateParams::default();
    params.not_before = not_before;
    params.not_after = not_after.min(authority_end(authorities, spec.authority)?);
    // By default it follows from the key, and two certificates of one key would have the same.
    params.serial_number = Some(random_serial_number()?);
    let name = spec.full_name(&key.0.subject_public_key_info());
    params.distinguished_name = distinguished_name(spec.organization.as_deref(), &name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match spec.usage {
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.subject_alt_names = spec.sans.iter().map(San::to_rcgen).collect::<Result<_, _>>()?;

    let signing_key = authorities.authority_key(spec.authority)?;
    let issuer = Issuer::from_ca_cert_pem(authorities.authority_certificate(spec.authority), &signing_key.0);
    let signed = issuer.and_then(|issuer| params.signed_by(&key.0, &issuer));
    Ok(signed.map_err(|source| PkiError::Make { entry: spec.entry.clone(), source })?.pem())
}

fn authority_end(authorities: &Authorities, kind: AuthorityKind) -> Result<OffsetDateTime, PkiError> {
    let entry = kind.certificate_file();
    let end = CertificateFacts::from_pem(entry, authorities.authority_certificate(kind))?.not_after;
    OffsetDateTime::from_unix_timestamp(end.as_second()).map_err(|_| PkiError::Time { now: end })
}

/// Returns whether a leaf can continue being used: issuer, subject, use, addresses and key are as wanted and enough
/// time is left. The error is the reason to reissue it.
pub fn still_good(
    authorities: &Authorities,
    spec: &LeafSpec,
    certificate: &str,
    key: &str,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(), Renewal> {
    let issuer = authorities.authority_certificate(spec.authority);
    let judged = with_parsed_certificate(&spec.entry, certificate, |found| {
        with_parsed_certificate(spec.authority.certificate_file(), issuer, |issuer| {
            if !signed_by(found, issuer) {
                return Ok(Err(Renewal::OtherAuthority));
            }
            let authority_end = CertificateFacts::from_certificate(issuer).not_after;
            let name = spec.full_name(found.public_key().raw);
            Ok(check_renewal(spec, &name, &CertificateFacts::from_certificate(found), authority_end, now, lifetimes)
                .and_then(|()| {
                    let key = PrivateKey::parse(&spec.entry, key).map_err(|_| Renewal::Unreadable)?;
                    let fits = key.0.public_key_raw() == found.public_key().subject_public_key.as_ref();
                    fits.then_some(()).ok_or(Renewal::KeyMismatch)
                }))
        })
    });
    judged.unwrap_or(Err(Renewal::Unreadable))
}

fn check_renewal(
    spec: &LeafSpec,
    name: &str,
    facts: &CertificateFacts,
    authority_end: Timestamp,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(), Renewal> {
    let use_fits = match spec.usage {
        Usage::Server => facts.server && !facts.client,
        Usage::Client => facts.client && !facts.server,
        Usage::Peer => facts.client && facts.server,
    };
    let groups: Vec<&str> = facts.organizations.iter().map(String::as_str).collect();
    let wanted: Vec<&str> = spec.organization.as_deref().into_iter().collect();
    if !use_fits || facts.common_name != name || groups != wanted {
        return Err(Renewal::OtherSubject);
    }
    let missing: Vec<San> = spec.sans.iter().filter(|san| !facts.sans.contains(san)).cloned().collect();
    if !missing.is_empty() {
        return Err(Renewal::MissingAddresses(missing));
    }
    // A leaf that ends with its authority cannot be had any longer, so it is used up to its end.
    let spare = if facts.not_after >= authority_end { Duration::ZERO } else { lifetimes.renew_before };
    if now >= facts.not_after.checked_sub(spare).unwrap_or(Timestamp::MIN) {
        return Err(Renewal::Ends(facts.not_after));
    }
    Ok(())
}
