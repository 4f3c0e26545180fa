//! The init kubeconfig: address of a control plane, CA that it is known by, and token to ask it for a certificate with.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Config;
use serde::Deserialize;
use serde_json::json;

use super::proxy::ProxyError;
use super::{kubeconfig_check, proxy};
use crate::api::bootstrap_token::Token;
use crate::api::labels::INIT_SECRET_KEY;
use crate::api::util::digest;

/// Address and CA of the control plane, and the token to ask it for a certificate with. `Debug` shows neither token nor
/// CA.
#[derive(Clone, PartialEq, Eq)]
pub struct Init {
    /// URL of its API.
    pub server: String,
    /// CA of the certificate that the API server shows, as PEM.
    pub ca: Vec<u8>,
    token: String,
}

impl std::fmt::Debug for Init {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Init").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Reason that the init kubeconfig is of no use. Its text, which is secret, is never quoted.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The file is missing or cannot be read.
    #[error("{0}; check that the Secret fleet-cluster-init-kubeconfig is in this namespace")]
    Read(std::io::Error),
    /// The text is not what the control plane wrote: this part is missing or cannot be used.
    #[error("the init kubeconfig has no {0}; copy the Secret fleet-cluster-init-kubeconfig again")]
    Lacks(&'static str),
}

#[derive(Deserialize)]
struct File {
    clusters: Vec<FileCluster>,
    users: Vec<FileUser>,
}

#[derive(Deserialize)]
struct FileCluster {
    cluster: FileServer,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FileServer {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct FileUser {
    user: FileToken,
}

#[derive(Deserialize)]
struct FileToken {
    token: String,
}

impl Init {
    /// Reads the mounted file.
    ///
    /// # Errors
    /// [`InitError::Read`] where the file cannot be read, [`InitError::Lacks`] with what it lacks.
    pub fn read_mounted_file(path: &Path) -> Result<Self, InitError> {
        Self::parse(&fs_err::read_to_string(path).map_err(InitError::Read)?)
    }

    /// Reads the Secret.
    ///
    /// # Errors
    /// [`InitError::Lacks`] with what the Secret lacks.
    pub fn from_init_secret(secret: &Secret) -> Result<Self, InitError> {
        let text = secret.data.as_ref().and_then(|data| data.get(INIT_SECRET_KEY));
        let text = text.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
        Self::parse(text.ok_or(InitError::Lacks("key `kubeconfig` with text"))?)
    }

    /// Reads the text of the kubeconfig.
    ///
    /// # Errors
    /// [`InitError::Lacks`] with what the text lacks; the text itself is never quoted.
    pub fn parse(text: &str) -> Result<Self, InitError> {
        let file: File = serde_saphyr::from_str(text).map_err(|_| InitError::Lacks("cluster and token"))?;
        let cluster = file.clusters.into_iter().next().ok_or(InitError::Lacks("cluster"))?.cluster;
        // The token would go over the network as it is.
        if !cluster.server.starts_with("https://") {
            return Err(InitError::Lacks("`https://` server"));
        }
        let token = file.users.into_iter().next().ok_or(InitError::Lacks("token"))?.user.token;
        if !kubeconfig_check::is_sendable(&token) {
            return Err(InitError::Lacks("single-line token"));
        }
        let ca = STANDARD.decode(cluster.certificate_authority_data).map_err(|_| InitError::Lacks("readable CA"))?;
        Ok(Self { server: cluster.server, ca, token })
    }

    /// Returns a digest of address and CA, which tells whether this is the same control plane: with another one,
    /// everything starts again. The token is not part of it, as tokens come and go.
    pub fn control_plane_digest(&self) -> String {
        digest::short_digest(&[self.server.as_bytes(), b"\0", &self.ca].concat())
    }

    /// Returns whether the CA has signed the first certificate of this PEM text; false where either cannot be read.
    pub fn has_issued(&self, certificate: &[u8]) -> bool {
        let [certificate, ca] =
            [certificate, &self.ca].map(|pem| x509_parser::pem::Pem::iter_from_buffer(pem).flatten().next());
        let Some((certificate, ca)) = certificate.zip(ca) else { return false };
        let (Ok(certificate), Ok(ca)) = (certificate.parse_x509(), ca.parse_x509()) else { return false };
        certificate.verify_signature(Some(ca.public_key())).is_ok()
    }

    /// Returns a digest of address, CA and token, to see a new token.
    pub fn content_digest(&self) -> String {
        digest::short_digest(&[self.control_plane_digest().as_bytes(), self.token.as_bytes()].concat())
    }

    /// Returns the proxy of the environment that the server is reached through, if there is one.
    ///
    /// # Errors
    /// The variable that is not the URL of a proxy.
    pub fn find_proxy(&self) -> Result<Option<http::Uri>, ProxyError> {
        self.server.parse().map_or(Ok(None), |server| proxy::of_environment(&server))
    }

    fn connection_config(&self) -> Result<Config, kube::Error> {
        let url = kubeconfig_check::server_url(&self.server, None);
        let url = url.map_err(|problem| kube::Error::Service(format!("its server {problem}").into()))?;
        let url = url.parse().map_err(|e: http::uri::InvalidUri| kube::Error::Service(Box::new(e)))?;
        let mut config = Config::new(url);
        config.proxy_url = self.find_proxy().map_err(|error| kube::Error::Service(Box::new(error)))?;
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        let certificates = x509_parser::pem::Pem::iter_from_buffer(&self.ca).flatten();
        config.root_cert = Some(certificates.map(|pem| pem.contents).collect());
        Ok(config)
    }

    /// Builds the configuration of a client that may ask for a certificate.
    ///
    /// # Errors
    /// A server address that cannot be used.
    pub fn token_config(&self) -> Result<Config, kube::Error> {
        let mut config = self.connection_config()?;
        config.auth_info.token = Some(self.token.clone().into());
        Ok(config)
    }

    /// Builds the configuration of a client with an identity: certificate and key as PEM.
    ///
    /// # Errors
    /// A server address that cannot be used.
    pub fn identity_config(&self, certificate: &str, key: &str) -> Result<Config, kube::Error> {
        let mut config = self.connection_config()?;
        config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        Ok(config)
    }
}

/// Builds the kubeconfig that an agent starts from, as YAML.
pub fn build_init_kubeconfig(server: &str, ca_pem: &[u8], token: &Token) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "fleet",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca_pem) },
        }],
        "users": [{ "name": "fleet-agent-bootstrap", "user": { "token": token.bearer_token() } }],
        "contexts": [{ "name": "fleet", "context": { "cluster": "fleet", "user": "fleet-agent-bootstrap" } }],
        "current-context": "fleet",
    });
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, folded_wrap_chars: 1_000_000 };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, &config, options).expect("plain data");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_init_kubeconfig_is_read_without_showing_it() {
        let ca = STANDARD.encode("-----BEGIN CERTIFICATE-----");
        let text = format!(
            "clusters: [{{name: fleet, cluster: {{server: 'https://x:1', certificate-authority-data: {ca}}}}}]\nusers: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]"
        );
        let init = Init::parse(&text).unwrap();
        assert_eq!(init.server, "https://x:1");
        assert!(!format!("{init:?}").contains("0123456789abcdef"));
        let other = Init { token: "other".to_owned(), ..init.clone() };
        assert_eq!(init.control_plane_digest(), other.control_plane_digest());
        assert_ne!(init.content_digest(), other.content_digest());
        let plain = Init::parse(&text.replace("https://", "http://")).unwrap_err().to_string();
        assert!(plain.contains("no `https://` server"), "{plain}");
        let unusable = Init { server: "x:1".to_owned(), ..init.clone() };
        assert!(unusable.token_config().is_err(), "the library would panic at its first request");
        assert!(Init::parse(&text.replace("abcdef.", "\"a\\nb\" #")).is_err());
        for text in ["", "{}", "clusters: []\nusers: []", "token: abcdef.0123456789abcdef"] {
            let error = Init::parse(text).unwrap_err().to_string();
            assert!(!error.contains("0123456789abcdef"), "{error}");
        }
    }

    /// A new CA: its certificate, and what it signs with.
    fn generate_authority() -> (String, rcgen::Issuer<'static, rcgen::KeyPair>) {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), rcgen::Issuer::new(params, key))
    }

    #[test]
    fn a_certificate_tells_whether_this_authority_has_issued_it() {
        let ((ca, issuer), (other, _)) = (generate_authority(), generate_authority());
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().signed_by(&key, &issuer).unwrap().pem();
        let [own, other, without] =
            [ca.as_str(), &other, ""].map(|ca| Init { server: String::new(), ca: ca.into(), token: String::new() });
        // Both authorities have the same name.
        assert!(own.has_issued(certificate.as_bytes()) && !other.has_issued(certificate.as_bytes()));
        assert!(!own.has_issued(b"") && !without.has_issued(certificate.as_bytes()));
    }
}
