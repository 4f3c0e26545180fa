//! Reasons that a server, or a client, was not believed to be who it says, told by the field of the kubeconfig that
//! decides it.

use std::error::Error as StdError;
use std::io;

use http::Uri;
use kube::config::{Cluster, Kubeconfig};
use rustls::{CertificateError, Error};
use tower::BoxError;

use super::exec_plugin::LogInError;
use super::proxy;
use super::tls::TlsError;
use crate::api::util::text::visible_cell;

/// Fields of a kubeconfig that say by what a server is known, and by what its client, for errors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    files: String,
    cluster: String,
    user: String,
    /// The field that holds the trusted certificates; none where the system's count.
    trusted: Option<&'static str>,
    client: [&'static str; 2],
    has_proxy: bool,
}

/// A failure of TLS in terms of a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotBelieved(String);

impl Fields {
    /// The fields of a context, before its files are read into it.
    pub(crate) fn from_context(kubeconfig: &Kubeconfig, context: &str, files: &str) -> Self {
        let named = kubeconfig.contexts.iter().find(|named| named.name == context);
        let found = named.and_then(|named| named.context.clone()).unwrap_or_default();
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == found.cluster);
        let user = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == found.user.as_ref());
        let certificate =
            user.and_then(|named| named.auth_info.as_ref()).and_then(|user| user.client_certificate.as_ref());
        let client = if certificate.is_some_and(|file| !file.is_empty()) {
            ["client-certificate", "client-key"]
        } else {
            ["client-certificate-data", "client-key-data"]
        };
        Self {
            files: files.to_owned(),
            trusted: cluster.and_then(|named| named.cluster.as_ref()).and_then(trusted_ca_field),
            cluster: visible_cell(&found.cluster).into_owned(),
            user: visible_cell(&found.user.unwrap_or_default()).into_owned(),
            client,
            has_proxy: cluster
                .and_then(|named| named.cluster.as_ref()?.proxy_url.as_ref())
                .is_some_and(|url| !url.is_empty()),
        }
    }

    /// The field or the variable that has the proxy to a server.
    pub(in crate::k8s) fn proxy_setting(&self, server: &Uri) -> String {
        let variable = if self.has_proxy { None } else { proxy::find_variable(server) };
        variable.map_or_else(|| self.cluster_field("proxy-url"), str::to_owned)
    }

    fn cluster_field(&self, field: &str) -> String {
        format!("`clusters[name={}].cluster.{field}`", self.cluster)
    }

    /// The error of a log-in.
    pub(in crate::k8s) fn of_log_in(&self, error: LogInError) -> BoxError {
        match error {
            LogInError::NotInteractive { command } => NotBelieved(format!(
                "`users[name={}].user.exec.interactiveMode` says that the log-in plugin `{command}` needs a \
                 terminal, but standard input is not a terminal",
                self.user
            ))
            .into(),
            other => other.into(),
        }
    }

    /// The error of a client's own certificate.
    pub(in crate::k8s) fn of_client(&self, error: TlsError) -> BoxError {
        let [certificate, key] = self.client.map(|field| format!("`users[name={}].user.{field}`", self.user));
        match error {
            TlsError::Certificate(why) => NotBelieved(format!("{certificate} cannot be used: {why}")).into(),
            TlsError::Key(why) => NotBelieved(format!("{key} cannot be used: {why}")).into(),
            other @ TlsError::System(_) => other.into(),
        }
    }

    /// The error of a request; one that is about the server's certificate with the field that decides it.
    pub(in crate::k8s) fn of_server(&self, error: BoxError) -> BoxError {
        let Some(why) = certificate_error(&*error) else { return error };
        let place = if self.files.is_empty() { String::new() } else { format!(" of {}", self.files) };
        let trusted = self.cluster_field(self.trusted.unwrap_or("certificate-authority-data"));
        let is_unknown = is_unknown(why);
        let text = match why {
            _ if is_unknown && self.files.is_empty() => {
                "the server's certificate is not signed by a trusted CA".to_owned()
            }
            _ if is_unknown => match self.trusted {
                Some(_) => format!(
                    "the server's certificate is not signed by a CA in {trusted}{place}: copy the CA of this cluster \
                     there"
                ),
                None => format!(
                    "this system does not trust the server's certificate (UnknownIssuer): set {trusted}{place} to \
                     the CA of the cluster"
                ),
            },
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                let names = match why {
                    CertificateError::NotValidForNameContext { expected, presented } => {
                        format!(": expected {}, but it has {}", expected.to_str(), presented.join(" and "))
                    }
                    _ => String::new(),
                };
                let field = self.cluster_field("tls-server-name");
                format!(
                    "the server's certificate is not valid for the server's name{names}; {field}{place} sets the \
                     expected name"
                )
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("the server's certificate, or its CA, has expired; see {}{place}", self.cluster_field("server"))
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet, according to this machine's clock".to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                format!(
                    "the server's certificate does not allow server authentication (extended key usage); see {}{place}",
                    self.cluster_field("server")
                )
            }
            other => {
                format!("the server's certificate cannot be used: {other}; see {}{place}", self.cluster_field("server"))
            }
        };
        NotBelieved(text).into()
    }
}

/// Returns whether no trusted certificate has signed one; one of the same name with another key counts as none.
fn is_unknown(why: &CertificateError) -> bool {
    matches!(why, CertificateError::UnknownIssuer | CertificateError::BadSignature)
        || matches!(why, CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. })
}

/// The field of the trusted certificates of a cluster.
fn trusted_ca_field(cluster: &Cluster) -> Option<&'static str> {
    let fields = [
        ("certificate-authority-data", &cluster.certificate_authority_data),
        ("certificate-authority", &cluster.certificate_authority),
    ];
    let given = fields.into_iter().find(|(_, value)| value.as_ref().is_some_and(|text| !text.is_empty()));
    given.map(|(field, _)| field)
}

/// Returns what is wrong with a certificate, by an error or one behind it; `None` where neither is about a certificate.
fn certificate_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e CertificateError> {
    let mut link = Some(error);
    while let Some(cause) = link {
        // An error of the system shows the causes of what it holds, and not that itself.
        let held = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let held = held.map(|held| held as &(dyn StdError + 'static));
        for candidate in [Some(cause), held].into_iter().flatten() {
            if let Some(Error::InvalidCertificate(found)) = candidate.downcast_ref::<Error>() {
                return Some(found);
            }
        }
        link = match held {
            Some(held) if held.downcast_ref::<io::Error>().is_some() => Some(held),
            _ => cause.source(),
        };
    }
    None
}
