//! The way to the control plane: what the init kubeconfig says, clients for it, and which hop of the way fails.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use serde::Deserialize;

use crate::daemon::client::CallError;
use crate::daemon::digest;

/// Where the control plane is, and the token to ask it for a certificate with. `Debug` shows neither token nor CA.
#[derive(Clone, PartialEq, Eq)]
pub struct Init {
    /// URL of its API.
    pub server: String,
    /// The CA that it shows a certificate of, as PEM.
    pub ca: Vec<u8>,
    token: String,
}

impl std::fmt::Debug for Init {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Init").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Why the init kubeconfig is of no use. Its text, which is secret, is never quoted.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The file is missing or cannot be read.
    #[error("{0}: is the Secret fleet-cluster-init-kubeconfig in this namespace?")]
    Read(std::io::Error),
    /// It is not what the control plane wrote.
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
    pub fn read(path: &Path) -> Result<Self, InitError> {
        Self::parse(&fs_err::read_to_string(path).map_err(InitError::Read)?)
    }

    fn parse(text: &str) -> Result<Self, InitError> {
        let file: File = serde_saphyr::from_str(text).map_err(|_| InitError::Lacks("cluster and token"))?;
        let cluster = file.clusters.into_iter().next().ok_or(InitError::Lacks("cluster"))?.cluster;
        let token = file.users.into_iter().next().ok_or(InitError::Lacks("token"))?.user.token;
        let ca = STANDARD.decode(cluster.certificate_authority_data).map_err(|_| InitError::Lacks("readable CA"))?;
        Ok(Self { server: cluster.server, ca, token })
    }

    /// Which control plane this is: with another one, everything starts again. Tokens come and go.
    pub fn hub(&self) -> String {
        digest::short(&[self.server.as_bytes(), b"\0", &self.ca].concat())
    }

    /// A digest of all of it, to see a new token.
    pub fn digest(&self) -> String {
        digest::short(&[self.hub().as_bytes(), self.token.as_bytes()].concat())
    }

    fn config(&self) -> Result<Config, kube::Error> {
        let url = self.server.parse().map_err(|e: http::uri::InvalidUri| kube::Error::Service(Box::new(e)))?;
        let mut config = Config::new(url);
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        let certificates = x509_parser::pem::Pem::iter_from_buffer(&self.ca).flatten();
        config.root_cert = Some(certificates.map(|pem| pem.contents).collect());
        Ok(config)
    }

    /// A client that may ask for a certificate.
    pub fn token_client(&self) -> Result<Client, kube::Error> {
        let mut config = self.config()?;
        config.auth_info.token = Some(self.token.clone().into());
        Client::try_from(config)
    }

    /// A client with an identity. Each has a connection of its own.
    pub fn client(&self, certificate: &str, key: &str) -> Result<Client, kube::Error> {
        let mut config = self.config()?;
        config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        Client::try_from(config)
    }
}

/// The hop at which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// The name has no address.
    Dns,
    /// The address does not answer.
    Tcp,
    /// The server is not who it should be, or does not speak TLS.
    Tls,
    /// The credential is not accepted: expired, revoked, or of another control plane.
    Unauthorized,
    /// The credential is accepted and not enough.
    Forbidden,
    /// Anything else.
    Server,
}

impl Hop {
    /// One word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::Server => "server",
        }
    }
}

/// Where a call failed.
pub fn hop(error: &CallError) -> Hop {
    match (error, error.code()) {
        (CallError::TimedOut, _) => Hop::Tcp,
        (_, Some(401)) => Hop::Unauthorized,
        (_, Some(403)) => Hop::Forbidden,
        (_, Some(_)) => Hop::Server,
        (CallError::Kube(error), None) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            hop_of(&text.to_lowercase())
        }
    }
}

fn hop_of(text: &str) -> Hop {
    // The libraries' errors are private types, so their texts are all there is.
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["dns error", "failed to lookup", "name or service not known", "no addresses"]) {
        Hop::Dns
    } else if has(&["certificate", "tls", "handshake", "corrupt message"]) {
        Hop::Tls
    } else if has(&["connect", "refused", "reset", "unreachable", "timed out", "broken pipe", "closed"]) {
        Hop::Tcp
    } else {
        Hop::Server
    }
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
        assert_eq!(init.hub(), other.hub());
        assert_ne!(init.digest(), other.digest());
        for text in ["", "{}", "clusters: []\nusers: []", "token: abcdef.0123456789abcdef"] {
            let error = Init::parse(text).unwrap_err().to_string();
            assert!(!error.contains("0123456789abcdef"), "{error}");
        }
    }

    #[test]
    fn the_failing_hop_is_told_apart() {
        for (text, hop) in [
            ("client error (connect): dns error: failed to lookup address information", Hop::Dns),
            ("client error (connect): tcp connect error: connection refused", Hop::Tcp),
            ("client error (connect): invalid peer certificate: unknownissuer", Hop::Tls),
            ("client error (connect): deadline has elapsed: timed out", Hop::Tcp),
        ] {
            assert_eq!(hop_of(text), hop, "{text}");
        }
    }
}
