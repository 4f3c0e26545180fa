//! TLS to API servers: the settings of a connection. Keys on P-521 are why the library below is aws-lc-rs: ring has none.
//! CONTRIBUTING.md has what that costs.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error};

use super::credential::Identity;
use super::trust;

/// Reason that a connection cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// The certificate of a client cannot be used.
    #[error("the client's certificate cannot be used: {0}")]
    Certificate(String),
    /// Its key cannot be used, or belongs to another certificate.
    #[error("the client's key cannot be used: {0}")]
    Key(String),
    /// The system's certificates cannot be read.
    #[error("the system's trusted certificates cannot be used: {0}")]
    System(String),
}

/// The TLS side of a configuration, with the identity of a plugin before that of the file.
pub(crate) fn client_config(config: &Config, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = trust::build_verifier(config, &provider)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::System(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let identity = match identity {
        Some(identity) => Some(identity.clone()),
        None => of_user(config)?,
    };
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| TlsError::Certificate(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    let key = key.map_err(|_| TlsError::Key("it is not a PEM private key".to_owned()))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => TlsError::Key("it does not match the certificate".to_owned()),
        other => TlsError::Key(other.to_string()),
    })
}

/// The identity of a user, as the kubeconfig has it.
fn of_user(config: &Config) -> Result<Option<Identity>, TlsError> {
    let Some(certificate) = &config.auth_info.client_certificate_data else { return Ok(None) };
    // The type that holds secrets can only be read by writing it out.
    let written = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let [certificate, key] = [Some(certificate.as_str()), written["client-key-data"].as_str()]
        .map(|data| String::from_utf8(STANDARD.decode(data?).ok()?).ok());
    let certificate = certificate.ok_or_else(|| TlsError::Certificate("it is not text".to_owned()))?;
    Ok(Some(Identity { certificate, key: key.ok_or_else(|| TlsError::Key("it is not text".to_owned()))? }))
}
