//! The authorities of one control plane: what is made once and kept for its life.

use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, KeyIdMethod, KeyUsagePurpose,
    SerialNumber,
};
use time::OffsetDateTime;
use x509_parser::asn1_rs::Tag;
use x509_parser::extensions::ParsedExtension;

use super::certificate::with_parsed_certificate;
use super::encryption::{self, ENCRYPTION_FILE};
use super::private_key::PrivateKey;
use super::{CertificateFacts, Files, Lifetimes, PkiError};

/// The three authorities. They are separate, so that none can vouch for another's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthorityKind {
    /// Signs the API server and all its clients.
    Cluster,
    /// Signs the one client that may say on whose behalf it speaks.
    FrontProxy,
    /// Signs etcd's servers, peers and clients.
    Etcd,
}

impl AuthorityKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::FrontProxy, Self::Etcd];

    /// The common name in its certificate.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Cluster => "kubernetes-ca",
            Self::FrontProxy => "kubernetes-front-proxy-ca",
            Self::Etcd => "etcd-ca",
        }
    }

    /// The file name of its certificate.
    pub const fn certificate_file(self) -> &'static str {
        match self {
            Self::Cluster => "ca.crt",
            Self::FrontProxy => "front-proxy-ca.crt",
            Self::Etcd => "etcd-ca.crt",
        }
    }

    /// The file name of its private key.
    pub const fn key_file(self) -> &'static str {
        match self {
            Self::Cluster => "ca.key",
            Self::FrontProxy => "front-proxy-ca.key",
            Self::Etcd => "etcd-ca.key",
        }
    }
}

const SIGNING_KEY_FILE: &str = "sa.key";
const VERIFYING_KEY_FILE: &str = "sa.pub";

/// The file names of everything that is kept, sorted.
pub const AUTHORITY_FILES: [&str; 9] = [
    "ca.crt",
    "ca.key",
    ENCRYPTION_FILE,
    "etcd-ca.crt",
    "etcd-ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    SIGNING_KEY_FILE,
    VERIFYING_KEY_FILE,
];

/// Key material that a control plane keeps: three authorities, the pair that signs service-account tokens and the key
/// for encryption at rest. A value of this type has been checked: nothing missing, keys fitting, nothing expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    files: Files,
}

impl Authorities {
    /// Makes a new set.
    pub fn generate_authorities(now: Timestamp, lifetimes: &Lifetimes) -> Result<Self, PkiError> {
        let mut files = Files::new();
        for kind in AuthorityKind::ALL {
            let key = PrivateKey::generate_key(kind.key_file())?;
            files.insert(kind.certificate_file(), self_signed(kind, &key, now, lifetimes.authority)?);
            files.insert(kind.key_file(), key.to_text());
        }
        let pair = PrivateKey::generate_key(SIGNING_KEY_FILE)?;
        files.insert(VERIFYING_KEY_FILE, pair.0.public_key_pem());
        files.insert(SIGNING_KEY_FILE, pair.to_text());
        files.insert(ENCRYPTION_FILE, encryption::generate_encryption_config()?);
        Ok(Self { files })
    }

    /// Takes a kept set out of a map that may hold more, and checks it. Whether a CA has expired is not checked: one that
    /// has can be signed again.
    ///
    /// The error names the first entry that is missing, unreadable or not fitting.
    pub fn from_map(map: &Files) -> Result<Self, PkiError> {
        let mut files = Files::new();
        for name in AUTHORITY_FILES {
            files.insert(name, map.require_file(name)?.to_owned());
        }
        let kept = Self { files };
        for kind in AuthorityKind::ALL {
            kept.verify_authority(kind)?;
        }
        let pair = PrivateKey::parse(SIGNING_KEY_FILE, kept.file_text(SIGNING_KEY_FILE))?;
        let public = kept.file_text(VERIFYING_KEY_FILE);
        if public.trim() != pair.0.public_key_pem().trim() {
            let damaged = PkiError::from_unreadable_text(VERIFYING_KEY_FILE, public, "");
            if matches!(damaged, PkiError::Empty { .. } | PkiError::Cut { .. }) {
                return Err(damaged);
            }
            return Err(mismatch_error(VERIFYING_KEY_FILE, SIGNING_KEY_FILE));
        }
        encryption::check_encryption_config(kept.file_text(ENCRYPTION_FILE))?;
        Ok(kept)
    }

    /// Signs each CA again that has less than [`Lifetimes::renew_authority_before`] left: with its own key, name and key
    /// identifier, so that certificates that it issued stay valid. Returns those that it signed.
    ///
    /// # Errors
    /// [`PkiError::Expired`] for a CA that has expired and is not to be signed again.
    pub(super) fn renew_authorities(
        &mut self,
        now: Timestamp,
        lifetimes_of: impl Fn(&str) -> Lifetimes,
    ) -> Result<Vec<AuthorityKind>, PkiError> {
        let mut renewed = Vec::new();
        for kind in AuthorityKind::ALL {
            let entry = kind.certificate_file();
            let facts = CertificateFacts::from_pem(entry, self.file_text(entry))?;
            let lifetimes = lifetimes_of(entry);
            let spare = lifetimes.renew_authority_before;
            if !spare.is_zero() && now >= facts.not_after.checked_sub(spare).unwrap_or(Timestamp::MIN) {
                let key = self.authority_key(kind)?;
                let params = renewed_params(kind, self.file_text(entry))?;
                self.files.insert(entry, sign_authority(kind, params, &key, now, lifetimes.authority)?);
                renewed.push(kind);
            } else if facts.not_after <= now {
                return Err(PkiError::Expired { entry: entry.to_owned(), not_after: facts.not_after });
            }
        }
        Ok(renewed)
    }

    /// Returns whether a map holds any part of a kept set. A part alone is a damaged set, not a missing one.
    pub fn any_in(map: &Files) -> bool {
        AUTHORITY_FILES.iter().any(|name| map.contains(name))
    }

    /// The kept set as files.
    pub fn to_map(&self) -> Files {
        self.files.clone()
    }

    /// An authority's certificate in PEM form.
    pub fn authority_certificate(&self, kind: AuthorityKind) -> &str {
        self.file_text(kind.certificate_file())
    }

    /// An authority's private key.
    pub(super) fn authority_key(&self, kind: AuthorityKind) -> Result<PrivateKey, PkiError> {
        PrivateKey::parse(kind.key_file(), self.file_text(kind.key_file()))
    }

    fn file_text(&self, name: &str) -> &str {
        self.files.get(name).unwrap_or_default()
    }

    fn verify_authority(&self, kind: AuthorityKind) -> Result<(), PkiError> {
        let entry = kind.certificate_file();
        let key = self.authority_key(kind)?;
        with_parsed_certificate(entry, self.file_text(entry), |certificate| {
            let facts = CertificateFacts::from_certificate(certificate);
            if !facts.authority {
                return Err(PkiError::NotAnAuthority { entry: entry.to_owned() });
            }
            if key.0.public_key_raw() != certificate.public_key().subject_public_key.as_ref() {
                return Err(mismatch_error(entry, kind.key_file()));
            }
            Ok(())
        })
    }
}

fn mismatch_error(certificate: &str, key: &str) -> PkiError {
    PkiError::KeyMismatch { certificate: certificate.to_owned(), key: key.to_owned() }
}

fn make_error(entry: &str, source: rcgen::Error) -> PkiError {
    PkiError::Make { entry: entry.to_owned(), source }
}

/// Time before now at which a certificate begins, for clocks that are a little behind.
const CLOCK_ALLOWANCE: Duration = Duration::from_secs(5 * 60);

/// First and last moment of a certificate made now.
pub(super) fn validity_period(now: Timestamp, life: Duration) -> Result<(OffsetDateTime, OffsetDateTime), PkiError> {
    let begin = now.checked_sub(CLOCK_ALLOWANCE).ok().and_then(to_certificate_time);
    let end = now.checked_add(life).ok().and_then(to_certificate_time);
    begin.zip(end).ok_or(PkiError::Time { now })
}

fn to_certificate_time(at: Timestamp) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).ok()
}

/// A subject or issuer name: organisations first, then the common name.
pub(super) fn distinguished_name(organization: Option<&str>, common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn self_signed(kind: AuthorityKind, key: &PrivateKey, now: Timestamp, life: Duration) -> Result<String, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(None, kind.common_name());
    sign_authority(kind, params, key, now, life)
}

/// The name and the key identifier of a CA certificate, for another one that takes its place.
fn renewed_params(kind: AuthorityKind, pem: &str) -> Result<CertificateParams, PkiError> {
    let entry = kind.certificate_file();
    with_parsed_certificate(entry, pem, |found| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for attribute in found.subject().iter_attributes() {
            let oid = attribute.attr_type().iter().ok_or_else(|| name_unreadable_error(entry))?.collect();
            let text = attribute.as_str().map_err(|_| name_unreadable_error(entry))?;
            // Clients compare names byte by byte.
            let value = match attribute.attr_value().tag() {
                Tag::Utf8String => DnValue::Utf8String(text.to_owned()),
                Tag::PrintableString => {
                    DnValue::PrintableString(text.try_into().map_err(|_| name_unreadable_error(entry))?)
                }
                _ => return Err(name_unreadable_error(entry)),
            };
            params.distinguished_name.push(DnType::CustomDnType(oid), value);
        }
        let identifier = found.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        if let Some(identifier) = identifier {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
        }
        Ok(params)
    })
}

fn name_unreadable_error(entry: &str) -> PkiError {
    PkiError::Unreadable { entry: entry.to_owned(), expected: "a certificate with a plain name" }
}

fn sign_authority(
    kind: AuthorityKind,
    mut params: CertificateParams,
    key: &PrivateKey,
    now: Timestamp,
    life: Duration,
) -> Result<String, PkiError> {
    (params.not_before, params.not_after) = validity_period(now, life)?;
    params.serial_number = Some(random_serial_number()?);
    // Path length 0: these sign leaves, never another authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key.0).map_err(|source| make_error(kind.certificate_file(), source))?;
    Ok(certificate.pem())
}

/// A serial number that no other certificate has: 127 random bits.
pub(super) fn random_serial_number() -> Result<SerialNumber, PkiError> {
    let mut bytes = [0_u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| PkiError::Random)?;
    // Serial numbers are positive, and none begins with a zero byte.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
