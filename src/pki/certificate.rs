//! Reading certificates: the facts that `status` shows and that decide whether one is still good.

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

use super::{PkiError, San};

/// Facts that a certificate states of itself. Nothing here is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The common name (CN), a user name for clients.
    pub common_name: String,
    /// The organisations (O), the groups of a client.
    pub organizations: Vec<String>,
    /// The common name of the authority that signed it.
    pub issuer: String,
    /// The addresses it answers for, sorted.
    pub sans: Vec<San>,
    /// Its first moment.
    pub not_before: Timestamp,
    /// Its last moment.
    pub not_after: Timestamp,
    /// True if it may sign others.
    pub authority: bool,
    /// True if it may stand for a server.
    pub server: bool,
    /// True if it may stand for a client.
    pub client: bool,
    /// The serial number in hexadecimal.
    pub serial: String,
}

impl CertificateFacts {
    /// Reads the first certificate of a PEM text; `entry` names it in errors.
    pub fn from_pem(entry: &str, pem: &str) -> Result<Self, PkiError> {
        with_parsed_certificate(entry, pem, |certificate| Ok(Self::from_certificate(certificate)))
    }

    /// Reads a certificate in DER, as a server shows it; `entry` names it in errors.
    pub fn from_der(entry: &str, der: &[u8]) -> Result<Self, PkiError> {
        let parsed = X509Certificate::from_der(der)
            .map_err(|_| PkiError::Unreadable { entry: entry.to_owned(), expected: "a certificate in DER form" })?;
        Ok(Self::from_certificate(&parsed.1))
    }

    /// Reads the facts of one parsed certificate.
    pub(super) fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let usage = certificate.extended_key_usage().ok().flatten();
        let mut sans: Vec<San> = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .map(|names| names.value.general_names.iter().filter_map(san_of).collect())
            .unwrap_or_default();
        sans.sort();
        Self {
            common_name: common_name(certificate.subject()),
            organizations: certificate
                .subject()
                .iter_organization()
                .filter_map(|name| name.as_str().ok().map(str::to_owned))
                .collect(),
            issuer: common_name(certificate.issuer()),
            sans,
            not_before: saturating_timestamp(certificate.validity().not_before.timestamp()),
            not_after: saturating_timestamp(certificate.validity().not_after.timestamp()),
            authority: certificate.is_ca(),
            server: usage.as_ref().is_some_and(|usage| usage.value.server_auth),
            client: usage.as_ref().is_some_and(|usage| usage.value.client_auth),
            serial: certificate.raw_serial_as_string(),
        }
    }
}

fn saturating_timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    name.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

fn san_of(name: &GeneralName<'_>) -> Option<San> {
    match name {
        GeneralName::DNSName(name) => Some(San::Dns(name.to_ascii_lowercase())),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|ip| San::Ip(ip.into())),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|ip| San::Ip(ip.into())),
        },
        _ => None,
    }
}

/// Parses the first certificate of a PEM text and hands it to `then`.
pub(super) fn with_parsed_certificate<T>(
    entry: &str,
    pem: &str,
    then: impl FnOnce(&X509Certificate<'_>) -> Result<T, PkiError>,
) -> Result<T, PkiError> {
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| certificate_unreadable_error(entry, pem))?;
    if block.label != "CERTIFICATE" {
        return Err(certificate_unreadable_error(entry, pem));
    }
    then(&block.parse_x509().map_err(|_| certificate_unreadable_error(entry, pem))?)
}

fn certificate_unreadable_error(entry: &str, pem: &str) -> PkiError {
    PkiError::from_unreadable_text(entry, pem, "a certificate in PEM form")
}

/// Returns whether `issuer` really signed `certificate`: the names agree and the signature verifies.
pub(super) fn signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    certificate.issuer().as_raw() == issuer.subject().as_raw()
        && certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// Returns whether two certificates in PEM form are of one CA: the same, or one signed again with its key and its name.
pub fn is_same_authority(one: &str, other: &str) -> bool {
    one.trim() == other.trim()
        || read_authority_identity(one).is_some_and(|one| read_authority_identity(other) == Some(one))
}

/// The name and the public key of a certificate.
fn read_authority_identity(pem: &str) -> Option<[Vec<u8>; 2]> {
    let identity = with_parsed_certificate("CA", pem, |found| {
        Ok([found.subject().as_raw().to_vec(), found.public_key().raw.to_vec()])
    });
    identity.ok()
}
