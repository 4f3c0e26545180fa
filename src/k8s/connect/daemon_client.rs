//! Clients: from a kubeconfig file to a `kube::Client`, and calls that cannot hang.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::connection;
use super::init_kubeconfig::Init;
use super::kubeconfig::config_of;
use super::kubeconfig_check;
use super::kubeconfig_check::ReadError;
use super::server_identity::Fields;
use crate::api::util::text::with_causes;
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::read_layer::Repeats;

/// Time that a single call may take; watches are exempt.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// No read is sent again after so long that its error would come after the call is given up. Watches are opened again by
/// their readers.
const REPEATS: Repeats = Repeats { patience: Duration::from_secs(8), reopens_watches: false };

/// Reason that no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum DaemonClientError {
    /// The file cannot be read.
    #[error("cannot read the kubeconfig {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        #[source]
        source: std::io::Error,
    },
    /// The text is no kubeconfig.
    #[error("{path} is not a kubeconfig")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Reason that the text is no kubeconfig; no line of it is in the reason.
        #[source]
        source: ReadError,
    },
    /// The kubeconfig names something that is missing or broken.
    #[error("the kubeconfig {path} cannot be used")]
    Use {
        /// The file.
        path: PathBuf,
        /// Reason that it cannot be used.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Reads a kubeconfig file.
pub fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, DaemonClientError> {
    kubeconfig_check::read_kubeconfig_file(path).map_err(|error| match error {
        ReadError::Read(source) => DaemonClientError::Read { path: path.into(), source },
        source => DaemonClientError::Parse { path: path.into(), source },
    })
}

/// The settings that a kubeconfig's current context stands for, with our time-outs and without hidden retries. A proxy
/// of the environment is taken except for what `NO_PROXY` names.
pub async fn build_config(kubeconfig: Kubeconfig, path: &Path) -> Result<Config, DaemonClientError> {
    let context = kubeconfig.current_context.clone().unwrap_or_default();
    let config = config_of(kubeconfig, &context, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|source| DaemonClientError::Use { path: path.into(), source })?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// A client for the current context of the kubeconfig at `path`.
pub async fn build_daemon_client(path: &Path) -> Result<Client, DaemonClientError> {
    let kubeconfig = read_kubeconfig(path)?;
    let fields = kubeconfig_fields(&kubeconfig, path);
    client_of(build_config(kubeconfig, path).await?, fields, path)
}

fn kubeconfig_fields(kubeconfig: &Kubeconfig, path: &Path) -> Fields {
    let context = kubeconfig.current_context.as_deref().unwrap_or_default();
    Fields::from_context(kubeconfig, context, &path.display().to_string())
}

fn client_of(config: Config, fields: Fields, path: &Path) -> Result<Client, DaemonClientError> {
    connection::build_client(config, fields, REPEATS)
        .map_err(|source| DaemonClientError::Use { path: path.into(), source })
}

/// A client with the rights of the pod.
///
/// # Errors
/// None of the files and variables that a pod has, or what cannot be used of them.
pub fn in_cluster() -> anyhow::Result<Client> {
    let mut config = Config::incluster()?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    connection::build_client(config, Fields::default(), REPEATS).map_err(anyhow::Error::from_boxed)
}

/// A client that may ask a control plane for a certificate.
///
/// # Errors
/// The address or the token is invalid.
pub fn token_client(init: &Init) -> kube::Result<Client> {
    connection::build_client(init.token_config()?, Fields::default(), REPEATS).map_err(kube::Error::Service)
}

/// A client of a control plane with an identity. Each has a connection of its own.
///
/// # Errors
/// The address, the certificate or the key is invalid.
pub fn identity_client(init: &Init, certificate: &str, key: &str) -> kube::Result<Client> {
    let config = init.identity_config(certificate, key)?;
    connection::build_client(config, Fields::default(), REPEATS).map_err(kube::Error::Service)
}

/// The same, with connections that are given up when the server has said nothing for `silence`. Not for watches that may
/// be silent for longer.
pub async fn client_that_tires(path: &Path, silence: Duration) -> Result<Client, DaemonClientError> {
    let kubeconfig = read_kubeconfig(path)?;
    let fields = kubeconfig_fields(&kubeconfig, path);
    let mut config = build_config(kubeconfig, path).await?;
    config.read_timeout = Some(silence);
    // A connection may be unused for longer, and is not to be blamed for it.
    config.reset_reader_on_write = true;
    client_of(config, fields, path)
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in [`CALL_TIMEOUT`].
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// The server refused, or could not be reached.
    #[error("{}", describe_error(.0))]
    Kube(#[from] kube::Error),
}

impl CallError {
    /// The HTTP status, when the server answered.
    pub fn status_code(&self) -> Option<u16> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Returns the server's answer, when it answered.
    pub fn to_api_error(&self) -> Option<ApiError> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(ApiError::of_status(status)),
            _ => None,
        }
    }

    /// Returns whether the object that was asked for by its UID does not exist: there is none, or another one has its name.
    pub fn is_gone(&self) -> bool {
        self.to_api_error().is_some_and(|answer| answer.is_gone())
    }

    /// Returns whether the server said that the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
    }

    /// Returns whether the server found fault with what was sent.
    pub fn is_invalid(&self) -> bool {
        matches!(self.status_code(), Some(400 | 422))
    }

    /// Returns whether somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        self.status_code() == Some(409)
    }
}

/// A kube error with its causes on one line, each said once.
pub fn describe_error(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("{} ({} {})", status.message, status.code, status.reason);
    }
    match error {
        // The library's name for an error of the connection says nothing.
        kube::Error::Service(source) => with_causes(source.to_string(), &**source),
        _ => with_causes(error.to_string(), error),
    }
}

/// Makes a call that is given up after [`CALL_TIMEOUT`].
pub async fn call_with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::k8s::connect::connect_error::{Hop, classify_hop};

    /// A client of a server that tires soon.
    async fn client_of(server: &str) -> Client {
        let kubeconfig = format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}],
            clusters: [{{name: a, cluster: {{server: 'http://{server}'}}}}], users: [{{name: a, user: {{}}}}]}}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        fs_err::write(&path, kubeconfig).unwrap();
        client_that_tires(&path, Duration::from_millis(200)).await.unwrap()
    }

    #[tokio::test]
    async fn a_server_that_is_not_reached_is_named() {
        for server in ["127.0.0.1:1", "tls-certificate.localhost:1"] {
            let error = client_of(server).await.apiserver_version().await.unwrap_err();
            let text = describe_error(&error);
            assert!(text.contains(&format!("no connection to {server}: ")), "{text}");
            let hop = classify_hop(&CallError::from(error));
            assert!(matches!(hop, Hop::Tcp | Hop::Dns), "{hop:?}: {text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_takes_a_request_and_says_nothing_is_given_up() {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client_of(&deaf.local_addr().unwrap().to_string()).await;
        let asked = tokio::time::timeout(Duration::from_secs(5), client.apiserver_version()).await;
        assert!(asked.expect("it is given up").is_err());
    }
}
