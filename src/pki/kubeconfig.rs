//! Kubeconfigs of a control plane, with one cluster, one user and one context: writing them, and reading back what was
//! written and nothing else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroize;

use super::{Leaf, PkiError, SecretText};
use crate::api::util::text::visible_cell;

/// Credential by which the user of a kubeconfig proves who it is.
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
    /// Credential of that user.
    pub credential: KubeconfigUser,
}

impl Kubeconfig {
    /// The kubeconfig as YAML, with everything embedded. The same input gives the same bytes.
    pub fn to_yaml(&self, entry: &str) -> Result<SecretText, PkiError> {
        // Block scalars off: Kubernetes' reader does not take every one that the writer would choose.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
        serde_saphyr::to_string_with_options(&self.to_document(), options)
            .map(SecretText::new)
            .map_err(|_| PkiError::Write { entry: entry.to_owned() })
    }

    /// The kubeconfig as it is written.
    pub(super) fn to_document(&self) -> impl Serialize {
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
        Document {
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
        }
    }

    /// Reads a kubeconfig as a control plane has it: one server over https, an embedded authority, and an embedded
    /// certificate with its key, or a token. `entry` names it in errors.
    ///
    /// What is read may come from a Secret that somebody has changed, or from a file that an earlier release copied from
    /// one. So it is a closed type: a field that makes a client run a program, read a file or call somebody else (`exec`,
    /// `tokenFile`, `client-key`, `proxy-url` and every other one that [`Kubeconfig::to_yaml`] does not write) is an error.
    /// What kubectl adds without any such meaning (`preferences`, `extensions`, the namespace of a context) is dropped.
    ///
    /// # Errors
    /// [`PkiError::Unreadable`], [`PkiError::Empty`], [`PkiError::Cut`], [`PkiError::ForeignField`] and
    /// [`PkiError::NotHttps`]; none carries a value of the text but the server.
    pub fn parse(entry: &str, text: &str) -> Result<Self, PkiError> {
        Self::parse_fields(entry, text).map_err(|error| match error {
            PkiError::Unreadable { expected, .. } => PkiError::from_unreadable_text(entry, text, expected),
            error => error,
        })
    }

    fn parse_fields(entry: &str, text: &str) -> Result<Self, PkiError> {
        let document: Value = serde_saphyr::from_str(text).map_err(|_| kubeconfig_unreadable_error(entry))?;
        let document = Part { entry, path: String::new(), value: &document };
        document.has_only(&["apiVersion", "kind", "clusters", "users", "contexts", "current-context"])?;
        let clusters = document.read_named_parts("clusters", "cluster", &["server", "certificate-authority-data"])?;
        let users =
            document.read_named_parts("users", "user", &["client-certificate-data", "client-key-data", "token"])?;
        let contexts = document.read_named_parts("contexts", "context", &["cluster", "user", "namespace"])?;
        let context_name = document.require_part_text("current-context")?;
        let context = document.require_part(&contexts, context_name)?;
        let cluster = document.require_part(&clusters, context.require_part_text("cluster")?)?;
        let user_name = context.require_part_text("user")?;
        let user = document.require_part(&users, user_name)?;
        let server = cluster.require_part_text("server")?;
        if !is_https(server) {
            return Err(PkiError::NotHttps { entry: entry.to_owned(), server: visible_cell(server).into_owned() });
        }
        let credential = if user.part_text("client-certificate-data").is_some() {
            KubeconfigUser::Certificate {
                certificate: user.decode_embedded_text("client-certificate-data")?,
                key: SecretText::new(user.decode_embedded_text("client-key-data")?),
            }
        } else {
            KubeconfigUser::Token(SecretText::new(user.require_part_text("token")?.to_owned()))
        };
        let authority = cluster.decode_embedded_text("certificate-authority-data")?;
        let [context, server, user] = [context_name, server, user_name].map(str::to_owned);
        Ok(Self { context, server, authority, user, credential })
    }

    /// The same server and credential under the names that an install gives them: the context of control plane `name` and
    /// the administrator. Whoever wrote the text that this was read from may have chosen the names of somebody's other
    /// contexts and users, which would be hidden by them in a list of files.
    #[must_use]
    pub fn of_control_plane(self, name: &str) -> Self {
        Self { context: name.to_owned(), user: admin_user(name), ..self }
    }

    /// The client certificate and its key, unless the user has a token.
    pub fn client_certificate(&self) -> Option<(&str, &SecretText)> {
        match &self.credential {
            KubeconfigUser::Certificate { certificate, key } => Some((certificate, key)),
            KubeconfigUser::Token(_) => None,
        }
    }
}

/// The administrator's certificate of a control plane in a kubeconfig that others use too; none where it is not merged
/// there.
pub fn find_merged_certificate(text: &str, control_plane: &str) -> Option<String> {
    let document: Value = serde_saphyr::from_str(text).ok()?;
    let own = admin_user(control_plane);
    let user = document["users"].as_array()?.iter().find(|user| user["name"] == own.as_str())?;
    let decoded = STANDARD.decode(user["user"]["client-certificate-data"].as_str()?).ok()?;
    String::from_utf8(decoded).ok()
}

/// The name of the administrator's entry. It names the control plane, for in a list of kubeconfigs kubectl takes each name
/// from the first file that has it.
pub(super) fn admin_user(control_plane: &str) -> String {
    format!("{}@{control_plane}", Leaf::Admin.common_name())
}

/// Returns whether a server is reached over TLS at a host, with nothing in its address that a client could take for
/// more.
fn is_https(server: &str) -> bool {
    let uri: Option<http::Uri> = server.parse().ok();
    uri.is_some_and(|uri| {
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        uri.scheme_str() == Some("https") && !authority.is_empty() && !authority.contains('@') && uri.query().is_none()
    })
}

/// A part of a kubeconfig that is read, with its place for errors.
#[derive(Clone)]
struct Part<'v> {
    entry: &'v str,
    path: String,
    value: &'v Value,
}

impl<'v> Part<'v> {
    /// Fields that kubectl writes into any part, and that mean nothing to a client.
    const MEANINGLESS: [&'static str; 2] = ["preferences", "extensions"];

    fn unreadable_error(&self) -> PkiError {
        kubeconfig_unreadable_error(self.entry)
    }

    /// Refuses every field but these.
    fn has_only(&self, fields: &[&str]) -> Result<(), PkiError> {
        let map = self.value.as_object().ok_or_else(|| self.unreadable_error())?;
        let mut names = map.keys().map(String::as_str);
        match names.find(|name| !fields.contains(name) && !Self::MEANINGLESS.contains(name)) {
            // The name is somebody else's text, too.
            Some(name) => Err(PkiError::ForeignField {
                entry: self.entry.to_owned(),
                field: format!("{}{}", self.path, visible_cell(name)),
            }),
            None => Ok(()),
        }
    }

    /// The items of a list of named things: each name with its content, which has only these fields.
    fn read_named_parts(&self, list: &str, key: &str, fields: &[&str]) -> Result<Vec<(String, Self)>, PkiError> {
        let items = self.value[list].as_array().ok_or_else(|| self.unreadable_error())?;
        let parts = items.iter().enumerate().map(|(index, value)| {
            let path = format!("{}{list}[{index}].", self.path);
            let item = Self { entry: self.entry, path, value };
            item.has_only(&["name", key])?;
            let content = Self { path: format!("{}{key}.", item.path), value: &item.value[key], ..item.clone() };
            content.has_only(fields)?;
            Ok((item.part_text("name").ok_or_else(|| self.unreadable_error())?.to_owned(), content))
        });
        parts.collect()
    }

    fn find_named_part<'l>(list: &'l [(String, Self)], name: &str) -> Option<&'l Self> {
        list.iter().find(|(known, _)| known == name).map(|(_, part)| part)
    }

    fn require_part<'p>(&self, list: &'p [(String, Self)], name: &str) -> Result<&'p Self, PkiError> {
        Self::find_named_part(list, name).ok_or_else(|| self.unreadable_error())
    }

    fn part_text(&self, key: &str) -> Option<&'v str> {
        self.value[key].as_str()
    }

    fn require_part_text(&self, key: &str) -> Result<&'v str, PkiError> {
        self.part_text(key).ok_or_else(|| self.unreadable_error())
    }

    /// The text that is embedded in base64, which is not empty.
    fn decode_embedded_text(&self, key: &str) -> Result<String, PkiError> {
        let bytes = STANDARD.decode(self.require_part_text(key)?).map_err(|_| self.unreadable_error())?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty()).ok_or_else(|| self.unreadable_error())
    }
}

fn kubeconfig_unreadable_error(entry: &str) -> PkiError {
    PkiError::Unreadable { entry: entry.to_owned(), expected: "a kubeconfig with embedded certificates" }
}

#[derive(Serialize)]
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

#[derive(Serialize)]
struct Cluster {
    name: String,
    cluster: ClusterEntry,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    certificate_authority_data: String,
    server: String,
}

#[derive(Serialize)]
struct User {
    name: String,
    user: Credential,
}

#[derive(Serialize)]
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

#[derive(Serialize)]
struct Context {
    name: String,
    context: ContextEntry,
}

#[derive(Serialize)]
struct ContextEntry {
    cluster: String,
    user: String,
}
