//! Kubeconfigs with one cluster, one user and one context: writing them, and reading back what we wrote.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::{PkiError, SecretText};

/// How the user of a kubeconfig proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigUser {
    /// By a client certificate.
    Certificate {
        /// The certificate in PEM form.
        certificate: String,
        /// Its private key in PEM form.
        key: SecretText,
    },
    /// By a bearer token.
    Token(SecretText),
}

/// A kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The name of the context, which is current, and of the cluster.
    pub context: String,
    /// The URL of the API server.
    pub server: String,
    /// The certificate of the authority that the server is checked against, in PEM form.
    pub authority: String,
    /// The name of the user entry.
    pub user: String,
    /// How that user proves who it is.
    pub credential: KubeconfigUser,
}

impl Kubeconfig {
    /// The kubeconfig as YAML, with everything embedded. The same input gives the same bytes.
    pub fn to_yaml(&self, entry: &str) -> Result<SecretText, PkiError> {
        let credential = match &self.credential {
            KubeconfigUser::Certificate { certificate, key } => Credential {
                client_certificate_data: Some(STANDARD.encode(certificate)),
                client_key_data: Some(STANDARD.encode(key.expose())),
                token: None,
            },
            KubeconfigUser::Token(token) => Credential {
                client_certificate_data: None,
                client_key_data: None,
                token: Some(token.expose().to_owned()),
            },
        };
        let document = Document {
            api_version: "v1".to_owned(),
            kind: "Config".to_owned(),
            clusters: vec![Cluster {
                name: self.context.clone(),
                cluster: ClusterEntry {
                    certificate_authority_data: STANDARD.encode(&self.authority),
                    server: self.server.clone(),
                },
            }],
            users: vec![User { name: self.user.clone(), user: credential }],
            contexts: vec![Context {
                name: self.context.clone(),
                context: ContextEntry { cluster: self.context.clone(), user: self.user.clone() },
            }],
            current_context: self.context.clone(),
        };
        // Block scalars off: Kubernetes' reader does not take every one that the writer would choose.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
        serde_saphyr::to_string_with_options(&document, options)
            .map(SecretText::new)
            .map_err(|_| PkiError::Write { entry: entry.to_owned() })
    }

    /// Reads a kubeconfig with embedded data: the current context, or the only one.
    pub fn parse(entry: &str, text: &str) -> Result<Self, PkiError> {
        let unreadable =
            || PkiError::Unreadable { entry: entry.to_owned(), expected: "a kubeconfig with embedded certificates" };
        let document: Document = serde_saphyr::from_str(text).map_err(|_| unreadable())?;
        let decode = |data: &str| {
            STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(unreadable)
        };
        let context = document.contexts.iter().find(|c| c.name == document.current_context).ok_or_else(unreadable)?;
        let cluster = document.clusters.iter().find(|c| c.name == context.context.cluster).ok_or_else(unreadable)?;
        let user = document.users.iter().find(|u| u.name == context.context.user).ok_or_else(unreadable)?;
        let credential = match &user.user {
            Credential { client_certificate_data: Some(certificate), client_key_data: Some(key), .. } => {
                KubeconfigUser::Certificate { certificate: decode(certificate)?, key: SecretText::new(decode(key)?) }
            }
            Credential { token: Some(token), .. } => KubeconfigUser::Token(SecretText::new(token.clone())),
            Credential { .. } => return Err(unreadable()),
        };
        Ok(Self {
            context: context.name.clone(),
            server: cluster.cluster.server.clone(),
            authority: decode(&cluster.cluster.certificate_authority_data)?,
            user: user.name.clone(),
            credential,
        })
    }

    /// The client certificate and its key, unless the user has a token.
    pub fn certificate(&self) -> Option<(&str, &SecretText)> {
        match &self.credential {
            KubeconfigUser::Certificate { certificate, key } => Some((certificate, key)),
            KubeconfigUser::Token(_) => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    clusters: Vec<Cluster>,
    users: Vec<User>,
    contexts: Vec<Context>,
    #[serde(rename = "current-context")]
    current_context: String,
}

#[derive(Serialize, Deserialize)]
struct Cluster {
    name: String,
    cluster: ClusterEntry,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    certificate_authority_data: String,
    server: String,
}

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    user: Credential,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Credential {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Drop for Credential {
    fn drop(&mut self) {
        self.client_key_data.zeroize();
        self.token.zeroize();
    }
}

#[derive(Serialize, Deserialize)]
struct Context {
    name: String,
    context: ContextEntry,
}

#[derive(Serialize, Deserialize)]
struct ContextEntry {
    cluster: String,
    user: String,
}
