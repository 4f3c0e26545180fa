//! Reads kubeconfig files within bounds, and checks the fields of a context before the client library gets them: over some
//! texts it panics, others it takes for something else than kubectl does.
//!
//! What kubectl connects with is made into what the library connects with in the same way; of what kubectl refuses, the
//! field is named. No value is ever in an error, for it may be a secret in the wrong place. docs/kubeconfig.md has what
//! becomes of each field, and where that differs from kubectl.

mod cluster;
mod fields;
mod size_limit;
mod user;

use std::borrow::Cow;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Kubeconfig};

use crate::api::util::text::{visible_cell, visible_line};

pub use cluster::{parse_proxy_url, server_url};
pub use fields::{FIELDS, FieldShape};
pub use size_limit::{MAX_KUBECONFIG_BYTES, read_bounded};
pub use user::{is_sendable, read_token};

/// Placeholders that `kubectl config view` prints for data and for secrets, without `--raw`.
const OMITTED: [&str; 2] = ["DATA+OMITTED", "REDACTED"];

/// A field of a kubeconfig that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct FieldError {
    /// The field: `clusters[name=demo].cluster.server`.
    pub field: String,
    /// The problem with it, without its value.
    pub problem: String,
}

impl FieldError {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Reason that a file is no kubeconfig. No line of the file is in the error.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The text is not YAML, with the place, or YAML of something else than a kubeconfig.
    #[error("{0}")]
    Syntax(String),
    /// A field has the wrong type.
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// The text of a file in UTF-8, or in UTF-16 with a byte order mark as some shells write it.
fn text_of(bytes: &[u8]) -> io::Result<String> {
    let (text, encoding) = match bytes {
        [0xff, 0xfe, rest @ ..] => (decode_utf16(rest, u16::from_le_bytes), "UTF-16"),
        [0xfe, 0xff, rest @ ..] => (decode_utf16(rest, u16::from_be_bytes), "UTF-16"),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => (String::from_utf8(rest.to_vec()).ok(), "UTF-8"),
    };
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("it is not text in {encoding}")))
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    String::from_utf16(&units).ok().filter(|_| rest.is_empty())
}

/// Reads a kubeconfig file. Relative paths in it are those from its folder, as kubectl has it.
///
/// # Errors
/// [`ReadError`].
pub fn read_kubeconfig_file(path: &Path) -> Result<Kubeconfig, ReadError> {
    let mut kubeconfig = parse_kubeconfig(&text_of(&read_bounded(path)?)?)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        resolve_path(&mut cluster.certificate_authority, folder);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        resolve_path(&mut user.client_certificate, folder);
        resolve_path(&mut user.client_key, folder);
        resolve_path(&mut user.token_file, folder);
        // A command without a separator is looked for on PATH.
        let command = user.exec.as_mut().map(|exec| &mut exec.command);
        if let Some(command) = command.filter(|name| name.as_ref().is_some_and(|name| name.contains('/'))) {
            resolve_path(command, folder);
        }
    }
    Ok(kubeconfig)
}

fn resolve_path(file: &mut Option<String>, folder: &Path) {
    if let Some(name) = file.as_deref().filter(|name| !name.is_empty() && Path::new(name).is_relative()) {
        *file = folder.join(name).to_str().map_or(Some(name.to_owned()), |path| Some(path.to_owned()));
    }
}

/// Reads the text of a kubeconfig. Of several documents the first one counts, as for kubectl; of several values of one key
/// the last one.
///
/// # Errors
/// A text that is no kubeconfig, with the place or the field; the lines around it are not in the error.
pub fn parse_kubeconfig(text: &str) -> Result<Kubeconfig, ReadError> {
    let last = serde_saphyr::DuplicateKeyPolicy::LastWins;
    let options = serde_saphyr::options! { with_snippet: false, duplicate_keys: last };
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ReadError::Syntax(visible_line(&error.without_snippet().to_string()).into()))?;
    let file = fields::normalize_kubeconfig(documents.into_iter().next().unwrap_or_default())?;
    // What is wrong with its fields was found; the message of another error could show a value.
    serde_json::from_value(file).map_err(|_| ReadError::Syntax("it is not a kubeconfig".to_owned()))
}

/// Checks the cluster and the user that a context leads to, and returns the kubeconfig as the client library takes it.
///
/// # Errors
/// The first field that cannot be used.
pub fn check_context(mut kubeconfig: Kubeconfig, context: &str) -> Result<Kubeconfig, FieldError> {
    let found = kubeconfig.contexts.iter().find(|named| named.name == context).and_then(|named| named.context.clone());
    let Some(found) = found else { return Ok(kubeconfig) };
    let cluster = kubeconfig.clusters.iter_mut().find(|named| named.name == found.cluster);
    let Some(cluster) = cluster.map(|named| named.cluster.get_or_insert_default()) else {
        let problem = if found.cluster.is_empty() {
            "is missing: it names the cluster of the context".to_owned()
        } else {
            format!("names the cluster {}, which is not in the file", visible_name(&found.cluster))
        };
        return Err(entry_error(["contexts", "context"], context, ("cluster", problem)));
    };
    let user_name = found.user.unwrap_or_default();
    let mut nobody = AuthInfo::default();
    let user = kubeconfig.auth_infos.iter_mut().find(|named| named.name == user_name);
    let user = match user {
        Some(named) => named.auth_info.get_or_insert_default(),
        None if user_name.is_empty() => &mut nobody,
        None => {
            let problem = format!("names the user {}, which is not in the file", visible_name(&user_name));
            return Err(entry_error(["contexts", "context"], context, ("user", problem)));
        }
    };
    cluster::check_placeholders(cluster)
        .and_then(|()| cluster::check_certificates(cluster))
        .map_err(|wrong| entry_error(["clusters", "cluster"], &found.cluster, wrong))?;
    user::check_user(user).map_err(|wrong| entry_error(["users", "user"], &user_name, wrong))?;
    cluster::check_cluster_entry(cluster, user)
        .map_err(|wrong| entry_error(["clusters", "cluster"], &found.cluster, wrong))?;
    // Without TLS, kubectl keeps to itself who asks.
    if cluster.server.as_deref().is_some_and(|server| server.starts_with("http://")) {
        user::forget_secrets(user);
    }
    Ok(kubeconfig)
}

/// The error of a field of an entry: `list` names the entries, `below` the mapping in each.
fn entry_error([list, below]: [&str; 2], name: &str, (field, problem): Wrong) -> FieldError {
    FieldError::new(format!("{list}[name={}].{below}.{field}", visible_name(name)), problem)
}

/// A field's own name, and what is wrong with it.
type Wrong = (&'static str, String);

/// Makes a name fit for an error.
fn visible_name(name: &str) -> Cow<'_, str> {
    visible_cell(name)
}

fn is_given(field: Option<&String>) -> bool {
    field.is_some_and(|text| !text.is_empty())
}

fn check_placeholder(field: &'static str, text: &str) -> Result<(), Wrong> {
    if OMITTED.contains(&text.trim()) {
        return Err((
            field,
            format!("is the placeholder {}: copy the kubeconfig with `kubectl config view --raw`", text.trim()),
        ));
    }
    Ok(())
}

/// Takes the data in a field or in the file that another field names, read once; both fields are without a value
/// afterwards.
///
/// Line breaks in base64 do not count, and empty data are none, as kubectl has it.
fn take_bytes(
    [file_field, data_field]: [&'static str; 2],
    file: &mut Option<String>,
    data: &mut Option<String>,
) -> Result<Option<(&'static str, Vec<u8>)>, Wrong> {
    let (file, mut data) = (file.take().filter(|path| !path.is_empty()), data.take());
    if let Some(text) = &mut data {
        check_placeholder(data_field, text)?;
        text.retain(|c| c != '\n' && c != '\r');
    }
    match (data.filter(|text| !text.is_empty()), file) {
        (Some(_), Some(_)) => Err((data_field, format!("is set together with `{file_field}`; leave one of them out"))),
        (Some(text), None) => {
            let bytes = STANDARD.decode(text).map_err(|_| (data_field, "is not base64".to_owned()))?;
            Ok(Some((data_field, bytes)))
        }
        (None, Some(path)) => {
            let bytes = read_bounded(Path::new(&path))
                .map_err(|error| (file_field, format!("cannot be read: {}: {error}", visible_line(&path))))?;
            Ok(Some((file_field, bytes)))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
