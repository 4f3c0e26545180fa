//! Trust in servers: those are believed that Go believes, for that is what kubectl is built on.
//!
//! A certificate that is itself among the trusted ones is accepted, whoever has signed it; and a server may show one that
//! says of itself that it is a CA, as `openssl req -x509` makes them. Everything else is left to webpki.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Config;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use super::tls::TlsError;

/// CAs between a certificate and a trusted one, at most.
const DEPTH: usize = 8;
/// Signatures that are checked for one certificate, at most: a server chooses what it shows, and may show the same CA again and
/// again.
const SIGNATURES: usize = 100;
/// Time after which a file of trusted certificates is read again.
const FILE_AGE: Duration = Duration::from_secs(60);

/// Returns the verifier of the server's certificate for a configuration.
///
/// # Errors
/// The system's certificates, where they are needed and cannot be had.
pub(in crate::k8s) fn build_verifier(
    config: &Config,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let rule = if config.accept_invalid_certs {
        Rule::Any
    } else {
        let Some(certificates) = &config.root_cert else { return of_system(provider) };
        let certificates = certificates.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let trusted = Trusted::new(certificates, provider);
        match &config.root_cert_file {
            Some(file) => {
                let kept = Mutex::new((Arc::new(trusted), Instant::now()));
                Rule::Renewed(Renewed { file: file.clone(), kept })
            }
            None => Rule::Trusted(trusted),
        }
    };
    Ok(Arc::new(Verifier { rule, provider: Arc::clone(provider) }))
}

/// Returns a verifier that accepts every certificate whose key the server has: for looking at what is served.
pub(super) fn build_accepting_verifier(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier { rule: Rule::Any, provider: Arc::clone(provider) })
}

/// Returns the verifier by the system's certificates. Where Go reads them from files, it takes the variables
/// SSL_CERT_FILE and SSL_CERT_DIR, too, and so does this.
#[cfg(all(unix, not(target_vendor = "apple")))]
#[expect(clippy::unnecessary_wraps, reason = "where the system has an interface for it, that can fail")]
fn of_system(provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let trusted = Trusted::new(rustls_native_certs::load_native_certs().certs, provider);
    Ok(Arc::new(Verifier { rule: Rule::Trusted(trusted), provider: Arc::clone(provider) }))
}

#[cfg(not(all(unix, not(target_vendor = "apple"))))]
fn of_system(provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
    Ok(Arc::new(verifier.map_err(|error| TlsError::System(error.to_string()))?))
}

/// Accepts what these certificates have signed, and these themselves.
#[derive(Debug)]
struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    /// None where there is no certificate that could have signed one.
    chains: Option<Arc<WebPkiServerVerifier>>,
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().ok();
        Self { certificates, chains }
    }

    /// Returns whether a certificate was signed by a trusted one, over CAs that the server showed.
    fn has_issued(
        &self,
        certificate: &X509Certificate<'_>,
        shown: &[CertificateDer<'_>],
        between: usize,
        left: &Cell<usize>,
    ) -> bool {
        if self.certificates.iter().any(|der| has_signed(der, certificate, between, left)) {
            return true;
        }
        let mut further = shown.iter().filter(|der| between < DEPTH && has_signed(der, certificate, between, left));
        further.any(|der| {
            X509Certificate::from_der(der).is_ok_and(|(_, issuer)| self.has_issued(&issuer, shown, between + 1, left))
        })
    }
}

/// Returns whether a CA has signed a certificate, as one of the signatures that are `left` to be checked.
fn has_signed(
    issuer: &CertificateDer<'_>,
    certificate: &X509Certificate<'_>,
    between: usize,
    left: &Cell<usize>,
) -> bool {
    let Ok((_, issuer)) = X509Certificate::from_der(issuer) else { return false };
    if !may_issue(&issuer, between) || issuer.subject().as_raw() != certificate.issuer().as_raw() {
        return false;
    }
    let Some(rest) = left.get().checked_sub(1) else { return false };
    left.set(rest);
    certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// Returns whether a CA may sign, with this many CAs between it and the server's certificate. One whose names are
/// constrained is left to webpki.
fn may_issue(issuer: &X509Certificate<'_>, between: usize) -> bool {
    let Ok(Some(constraints)) = issuer.basic_constraints() else { return false };
    let length = constraints.value.path_len_constraint;
    constraints.value.ca
        && length.is_none_or(|length| usize::try_from(length).is_ok_and(|length| length >= between))
        && issuer.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
        && matches!(issuer.name_constraints(), Ok(None))
        && issuer.validity().is_valid()
        && !has_unknown_critical(issuer)
}

fn has_unknown_critical(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| {
        extension.critical
            && matches!(
                extension.parsed_extension(),
                ParsedExtension::UnsupportedExtension { .. } | ParsedExtension::ParseError { .. }
            )
    })
}

/// Checks what does not depend on who has signed a certificate: its time, its use and its name.
fn check_leaf(der: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, leaf) = X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let now = ASN1Time::from_timestamp(seconds).map_err(|_| CertificateError::BadEncoding)?;
    if now > leaf.validity().not_after {
        return Err(CertificateError::Expired.into());
    }
    if now < leaf.validity().not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if has_unknown_critical(&leaf) {
        return Err(CertificateError::UnhandledCriticalExtension.into());
    }
    match leaf.extended_key_usage() {
        Ok(usage) if usage.as_ref().is_none_or(|usage| usage.value.any || usage.value.server_auth) => {}
        Ok(_) => return Err(CertificateError::InvalidPurpose.into()),
        Err(_) => return Err(CertificateError::BadEncoding.into()),
    }
    verify_server_name(&ParsedCertificate::try_from(der)?, name)
}

impl Trusted {
    /// Returns an error for a certificate that is not believed.
    fn verify_certificate(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.certificates.contains(leaf) {
            return check_leaf(leaf, name, now);
        }
        let unknown = Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let Some(chains) = &self.chains else { return unknown };
        let error = match chains.verify_server_cert(leaf, shown, name, ocsp, now) {
            Err(error) if is_about_a_ca(&error) => error,
            other => return other.map(drop),
        };
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return Err(error) };
        if !self.has_issued(&certificate, shown, 0, &Cell::new(SIGNATURES)) {
            return unknown;
        }
        check_leaf(leaf, name, now)
    }
}

/// As [`Trusted`], of a file that others rewrite, as that of a pod's service account.
#[derive(Debug)]
struct Renewed {
    file: PathBuf,
    kept: Mutex<(Arc<Trusted>, Instant)>,
}

impl Renewed {
    fn current_trusted(&self, provider: &Arc<CryptoProvider>) -> Arc<Trusted> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.1.elapsed() >= FILE_AGE {
            let certificates: Vec<_> =
                CertificateDer::pem_file_iter(&self.file).into_iter().flatten().flatten().collect();
            // A file that is gone, or is being written, leaves the former ones in use.
            if !certificates.is_empty() {
                kept.0 = Arc::new(Trusted::new(certificates, provider));
            }
            kept.1 = Instant::now();
        }
        Arc::clone(&kept.0)
    }
}

/// Rule by which servers are believed.
#[derive(Debug)]
enum Rule {
    /// All: `insecure-skip-tls-verify`.
    Any,
    /// Those of some certificates.
    Trusted(Trusted),
    /// Those of the certificates in a file.
    Renewed(Renewed),
}

/// Checks the certificate of a server by a rule, and that the server has its key.
#[derive(Debug)]
struct Verifier {
    rule: Rule,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.rule {
            Rule::Any => {}
            Rule::Trusted(trusted) => trusted.verify_certificate(leaf, shown, name, ocsp, now)?,
            Rule::Renewed(renewed) => {
                renewed.current_trusted(&self.provider).verify_certificate(leaf, shown, name, ocsp, now)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns whether the error is that a CA is shown as a server. Its type is webpki's own.
fn is_about_a_ca(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(OtherError(other))) if format!("{other:?}") == "CaUsedAsEndEntity")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
    }

    /// A self-signed CA certificate with its own name.
    fn authority(key: &rcgen::KeyPair) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(["ca".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(key).unwrap()
    }

    #[test]
    fn a_server_that_shows_the_same_authority_again_and_again_keeps_nobody_busy() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trusted = Trusted::new(vec![certificate("other").cert.der().clone()], &provider);
        let key = rcgen::KeyPair::generate().unwrap();
        // Each is the issuer of each, so that there are as many chains as powers of their number.
        let shown: Vec<_> = (0..100).map(|_| authority(&key).der().clone()).collect();
        let (_, leaf) = X509Certificate::from_der(&shown[0]).unwrap();
        let left = Cell::new(SIGNATURES);
        assert!(!trusted.has_issued(&leaf, &shown, 0, &left));
        assert_eq!(left.get(), 0);
    }

    fn accepts_server(renewed: &Renewed, shown: &rcgen::CertifiedKey<rcgen::KeyPair>, name: &'static str) -> bool {
        let name = ServerName::try_from(name).unwrap();
        renewed
            .current_trusted(&Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .verify_certificate(shown.cert.der(), &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    /// Makes the trusted certificates so old that their file is read again.
    fn age_trusted_file(renewed: &Renewed) {
        let mut kept = renewed.kept.lock().unwrap();
        kept.1 = kept.1.checked_sub(FILE_AGE).unwrap();
    }

    #[test]
    fn a_file_of_trusted_certificates_is_read_again_and_its_last_ones_stay_when_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let (first, second) = (certificate("first"), certificate("second"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trusted = Trusted::new(vec![first.cert.der().clone()], &provider);
        let renewed = Renewed { file: file.clone(), kept: Mutex::new((Arc::new(trusted), Instant::now())) };
        fs_err::write(&file, second.cert.pem()).unwrap();
        assert!(
            accepts_server(&renewed, &first, "first")
                && !accepts_server(&renewed, &first, "second")
                && !accepts_server(&renewed, &second, "second")
        );
        age_trusted_file(&renewed);
        assert!(!accepts_server(&renewed, &first, "first") && accepts_server(&renewed, &second, "second"));
        fs_err::remove_file(&file).unwrap();
        age_trusted_file(&renewed);
        assert!(accepts_server(&renewed, &second, "second"));
    }
}
