//! Reads kubeconfig files within bounds, and checks the fields of a context before the client library gets them: over some
//! texts it panics, others it takes for something else than kubectl does.
//!
//! What kubectl connects with is made into what the library connects with in the same way; of what kubectl refuses, the
//! field is named. No value is ever in an error, for it may be a secret in the wrong place.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Authority;
use http::{HeaderValue, Uri};
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};

/// Number of bytes that a kubeconfig may have, and each file that it names.
pub const MAX_BYTES: usize = 4 << 20;

/// What `kubectl config view` prints for data and for secrets, without `--raw`.
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

/// Reads a file to its end, unless it has more than [`MAX_BYTES`]: devices and pipes need not have an end.
///
/// # Errors
/// Whatever the file system refuses, and a file that is too large.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        let message = format!("it has more than {} MiB", MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The text of a file in UTF-8, or in UTF-16 with a byte order mark as some shells write it.
fn text_of(bytes: &[u8]) -> io::Result<String> {
    let wrong = |encoding: &str| io::Error::new(io::ErrorKind::InvalidData, format!("it is not text in {encoding}"));
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty()).ok_or_else(|| wrong("UTF-16"))
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).map_err(|_| wrong("UTF-8")),
    }
}

/// Reads a kubeconfig file. Relative paths in it are those from its folder, as kubectl has it.
///
/// # Errors
/// A file that cannot be read, is too large, or is no kubeconfig. The lines of the file are not in the error.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = read_bounded(path).and_then(|bytes| text_of(&bytes));
    let mut kubeconfig = parse(&text.map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let resolve = |file: &mut Option<String>| {
        if let Some(name) = file.as_deref().filter(|name| !name.is_empty() && Path::new(name).is_relative()) {
            *file = folder.join(name).to_str().map_or(Some(name.to_owned()), |path| Some(path.to_owned()));
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        resolve(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        resolve(&mut user.client_certificate);
        resolve(&mut user.client_key);
        resolve(&mut user.token_file);
        // A command without a separator is looked for on PATH.
        let command = user.exec.as_mut().map(|exec| &mut exec.command);
        if let Some(command) = command.filter(|name| name.as_ref().is_some_and(|name| name.contains('/'))) {
            resolve(command);
        }
    }
    Ok(kubeconfig)
}

/// Reads the text of a kubeconfig, which may be several documents.
///
/// # Errors
/// What is no kubeconfig, with its place; the lines around it are not in the error.
pub fn parse(text: &str) -> Result<Kubeconfig, KubeconfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Kubeconfig> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| KubeconfigError::Parse(Box::new(error)))?;
    documents.into_iter().try_fold(Kubeconfig::default(), Kubeconfig::merge)
}

/// Checks what a context leads to, and gives it as the client library takes it. What the context does not find is left
/// to the library.
///
/// # Errors
/// The first field that cannot be used.
pub fn checked(mut kubeconfig: Kubeconfig, context: &str) -> Result<Kubeconfig, FieldError> {
    let context =
        kubeconfig.contexts.iter().find(|named| named.name == context).and_then(|named| named.context.clone());
    let Some(context) = context else { return Ok(kubeconfig) };
    let user =
        context.user.as_deref().and_then(|user| kubeconfig.auth_infos.iter_mut().find(|named| named.name == user));
    let (user, mut nobody) = (user.and_then(|named| named.auth_info.as_mut()), AuthInfo::default());
    let user_name = context.user.clone().unwrap_or_default();
    let user = user.unwrap_or(&mut nobody);
    check_user(user)
        .map_err(|(field, problem)| FieldError { field: format!("users[name={user_name}].user.{field}"), problem })?;
    let cluster = kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster);
    if let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) {
        let name = &context.cluster;
        check_cluster(cluster, user).map_err(|(field, problem)| FieldError {
            field: format!("clusters[name={name}].cluster.{field}"),
            problem,
        })?;
    }
    Ok(kubeconfig)
}

/// A field's own name, and what is wrong with it.
type Wrong = (&'static str, String);

fn is_given(field: Option<&String>) -> bool {
    field.is_some_and(|text| !text.is_empty())
}

fn check_user(user: &mut AuthInfo) -> Result<(), Wrong> {
    // The type that holds secrets can only be read by writing it out.
    let written = serde_json::to_value(&*user).unwrap_or_default();
    let secret = |field: &str| written[field].as_str().map(str::to_owned);
    let mut key = secret("client-key-data");
    embed(
        "client-certificate",
        "client-certificate-data",
        &mut user.client_certificate,
        &mut user.client_certificate_data,
    )?;
    embed("client-key", "client-key-data", &mut user.client_key, &mut key)?;
    user.client_key_data = key.map(Into::into);
    // Empty is none.
    user.token_file.take_if(|file| file.is_empty());
    match secret("token") {
        Some(token) if token.is_empty() => user.token = None,
        Some(token) => check_token("token", &token)?,
        None => {}
    }
    if let Some(file) = &user.token_file {
        let too_large = |length| {
            (length > MAX_BYTES as u64)
                .then(|| ("tokenFile", format!("is a file of more than {} MiB", MAX_BYTES >> 20)))
        };
        let found = std::fs::metadata(file).ok().and_then(|meta| {
            if meta.is_file() { too_large(meta.len()) } else { endless(file).then(|| too_large(u64::MAX)).flatten() }
        });
        if let Some(wrong) = found {
            return Err(wrong);
        }
    }
    let Some(provider) = &user.auth_provider else { return Ok(()) };
    if ["gcp", "azure"].contains(&provider.name.as_str()) {
        let problem =
            format!("names the provider {}, which Kubernetes no longer has; log in by an `exec` plugin", provider.name);
        return Err(("auth-provider", problem));
    }
    provider.config.get("id-token").map_or(Ok(()), |token| check_token("auth-provider.config.id-token", token))
}

fn check_token(field: &'static str, token: &str) -> Result<(), Wrong> {
    omitted(field, token)?;
    if is_sendable(token) {
        return Ok(());
    }
    Err((field, "has a line break or another control character".to_owned()))
}

/// Returns whether a token can be sent in a header, which the library takes for granted.
pub fn is_sendable(token: &str) -> bool {
    HeaderValue::try_from(format!("Bearer {token}")).is_ok()
}

fn omitted(field: &'static str, text: &str) -> Result<(), Wrong> {
    if OMITTED.contains(&text.trim()) {
        return Err((
            field,
            format!("is the placeholder {}: copy the kubeconfig with `kubectl config view --raw`", text.trim()),
        ));
    }
    Ok(())
}

/// Returns whether a device goes on after [`MAX_BYTES`].
fn endless(path: &str) -> bool {
    #[cfg(unix)]
    let is_device =
        std::fs::metadata(path).is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_char_device(&meta.file_type()));
    #[cfg(not(unix))]
    let is_device = false;
    is_device && read_bounded(Path::new(path)).is_err()
}

/// Reads data from its file, if it has one and is not given itself; afterwards there is data or none, and no file.
///
/// Line breaks in base64 do not count, and empty data are none, as kubectl has it.
fn embed(
    file_field: &'static str,
    data_field: &'static str,
    file: &mut Option<String>,
    data: &mut Option<String>,
) -> Result<(), Wrong> {
    if let Some(text) = data {
        omitted(data_field, text)?;
        text.retain(|c| c != '\n' && c != '\r');
    }
    data.take_if(|text| text.is_empty());
    let path = file.take().filter(|path| !path.is_empty() && data.is_none());
    if let Some(path) = path {
        let bytes =
            read_bounded(&PathBuf::from(path)).map_err(|error| (file_field, format!("cannot be read: {error}")))?;
        *data = (!bytes.is_empty()).then(|| STANDARD.encode(bytes));
    }
    Ok(())
}

fn check_cluster(cluster: &mut Cluster, user: &AuthInfo) -> Result<(), Wrong> {
    embed(
        "certificate-authority",
        "certificate-authority-data",
        &mut cluster.certificate_authority,
        &mut cluster.certificate_authority_data,
    )?;
    cluster.tls_server_name.take_if(|name| name.is_empty());
    let is_tls = cluster.certificate_authority_data.is_some()
        || user.client_certificate_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true);
    let has_secret = user.token.is_some()
        || user.token_file.is_some()
        || user.password.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some();
    // What has no scheme is meant for TLS where anything about TLS is said, as kubectl has it. Unlike kubectl, a secret is
    // not sent without TLS where nobody asked for that.
    let implied = if is_tls {
        Some("https")
    } else if has_secret {
        None
    } else {
        Some("http")
    };
    if let Some(server) = &mut cluster.server {
        *server = server_url(server, implied).map_err(|problem| ("server", problem))?;
    }
    if is_given(cluster.proxy_url.as_ref()) {
        let proxy = cluster.proxy_url.as_deref().unwrap_or_default();
        check_proxy(proxy).map_err(|problem| ("proxy-url", problem))?;
    }
    Ok(())
}

/// The scheme in lower case, and what follows it.
fn scheme_of(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// The URL of an API server as the library takes it. `implied` is the scheme of one without.
///
/// # Errors
/// The problem with it, to be said behind the name of its field.
pub fn server_url(server: &str, implied: Option<&str>) -> Result<String, String> {
    let missing = || "has neither http:// nor https:// before the host".to_owned();
    if server.is_empty() {
        return Err("is empty".to_owned());
    }
    let (scheme, rest) = match scheme_of(server) {
        Some((scheme, rest)) if scheme == "http" || scheme == "https" => (scheme, rest),
        Some((scheme, _)) => return Err(format!("has the scheme {scheme}:// where http:// or https:// is needed")),
        // A path is only understood behind a scheme, which kubectl says in other words.
        None if server.trim_end_matches('/').contains('/') => return Err(missing()),
        None => (implied.ok_or_else(missing)?.to_owned(), server),
    };
    let url: Uri = format!("{scheme}://{rest}").parse().map_err(|error| format!("is not a URL: {error}"))?;
    let authority = url.authority().ok_or("has no host")?;
    check_authority(authority)?;
    // A name and a password before the host are not sent to the server, and not shown either.
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    Ok(format!("{scheme}://{host}{}", url.path()))
}

fn check_proxy(proxy: &str) -> Result<(), String> {
    let needed = "http://, https:// or socks5:// is needed";
    match scheme_of(proxy) {
        Some((scheme, _)) if ["http", "https", "socks5"].contains(&scheme.as_str()) => {}
        Some((scheme, _)) => return Err(format!("has the scheme {scheme}:// where {needed}")),
        None => return Err(format!("has no scheme where {needed}")),
    }
    let url: Uri = proxy.parse().map_err(|error| format!("is not a URL: {error}"))?;
    check_authority(url.authority().ok_or("has no host")?)
}

/// Checks host and port. The library takes its default for a port that it cannot read.
fn check_authority(authority: &Authority) -> Result<(), String> {
    let host = authority.host();
    if host.is_empty() {
        return Err("has no host".to_owned());
    }
    let address = authority.as_str().rsplit('@').next().unwrap_or_default();
    match address.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        Some(port) if !port.is_empty() && port.parse::<u16>().is_err() => Err("has a port that is none".to_owned()),
        None if address != host => Err("has a port that is none".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
