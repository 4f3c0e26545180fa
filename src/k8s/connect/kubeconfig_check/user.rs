//! The fields of a user.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fields::UNKNOWN_MODE;
use super::size_limit::{MAX_KUBECONFIG_BYTES, read_bounded};
use super::{Wrong, check_placeholder, is_given, take_bytes};

/// Versions of the protocol of `exec` plugins: the current one, and the one before it.
const PLUGIN_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Auth providers that Kubernetes no longer has, and what takes their place.
const GONE: [(&str, &str); 3] = [
    ("gcp", "the `exec` plugin gke-gcloud-auth-plugin: `gcloud container clusters get-credentials` writes it"),
    ("azure", "the `exec` plugin kubelogin: `kubelogin convert-kubeconfig` writes it"),
    ("openstack", "an `exec` plugin, client-keystone-auth"),
];

/// Checks the fields of a user, and makes them what the client library takes.
pub(super) fn check_user(user: &mut AuthInfo) -> Result<(), Wrong> {
    // The type that holds secrets can only be read by writing it out.
    let written = serde_json::to_value(&*user).unwrap_or_default();
    let [token, password, key] = ["token", "password", "client-key-data"]
        .map(|field| written[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned));
    user.username.take_if(|name| name.is_empty());
    if token.is_none() {
        user.token = None;
    }
    if token.is_some() && (user.username.is_some() || password.is_some()) {
        return Err(("token", "is set together with `username` or `password`; leave one of them out".to_owned()));
    }
    // A name or a password alone is sent with the other one empty.
    if user.username.is_some() || password.is_some() {
        user.username.get_or_insert_default();
        user.password = Some(password.unwrap_or_default().into());
    }
    check_certificate(user, key)?;
    if let Some(token) = &token {
        check_token("token", token)?;
    }
    check_token_file(user)?;
    check_impersonation(user)?;
    if user.exec.is_some() && user.auth_provider.is_some() {
        return Err(("auth-provider", "is set together with `exec`; leave one of them out".to_owned()));
    }
    user.exec.as_mut().map_or(Ok(()), check_plugin)?;
    check_provider(user)
}

/// Takes away everything that proves who somebody is.
pub(super) fn forget_secrets(user: &mut AuthInfo) {
    *user = AuthInfo {
        impersonate: user.impersonate.take(),
        impersonate_uid: user.impersonate_uid.take(),
        impersonate_groups: user.impersonate_groups.take(),
        impersonate_user_extra: user.impersonate_user_extra.take(),
        ..AuthInfo::default()
    };
}

fn check_certificate(user: &mut AuthInfo, mut key: Option<String>) -> Result<(), Wrong> {
    let certificate = take_bytes(
        ["client-certificate", "client-certificate-data"],
        &mut user.client_certificate,
        &mut user.client_certificate_data,
    )?;
    user.client_key_data = None;
    // A key without a certificate is not used.
    let Some((field, certificate)) = certificate else {
        user.client_key = None;
        return Ok(());
    };
    if CertificateDer::from_pem_slice(&certificate).is_err() {
        return Err((field, "contains no PEM certificate".to_owned()));
    }
    let Some((field, bytes)) = take_bytes(["client-key", "client-key-data"], &mut user.client_key, &mut key)? else {
        return Err(("client-key-data", "is missing, but a client certificate is set".to_owned()));
    };
    if PrivateKeyDer::from_pem_slice(&bytes).is_err() {
        return Err((field, "contains no unencrypted PEM private key".to_owned()));
    }
    user.client_certificate_data = Some(STANDARD.encode(certificate));
    user.client_key_data = Some(STANDARD.encode(bytes).into());
    Ok(())
}

fn check_token(field: &'static str, token: &str) -> Result<(), Wrong> {
    check_placeholder(field, token)?;
    if is_sendable(token) {
        return Ok(());
    }
    Err((field, "contains a line break or another control character".to_owned()))
}

/// Returns whether a token can be sent in a header, which the library takes for granted.
pub fn is_sendable(token: &str) -> bool {
    HeaderValue::try_from(format!("Bearer {token}")).is_ok()
}

/// Checks the token file, which counts before a token as long as it can be read.
fn check_token_file(user: &mut AuthInfo) -> Result<(), Wrong> {
    user.token_file.take_if(|file| file.is_empty());
    let Some(file) = &user.token_file else { return Ok(()) };
    let problem = match read_token(Path::new(file)) {
        Ok(token) => match check_token("tokenFile", &token) {
            Ok(()) => {
                user.token = None;
                return Ok(());
            }
            Err((_, problem)) => problem,
        },
        Err(problem) => problem,
    };
    if user.token.is_some() {
        user.token_file = None;
        return Ok(());
    }
    Err(("tokenFile", problem))
}

/// Reads a token from its file, without the space around it.
///
/// # Errors
/// The problem with the file, to be said behind the name of its field.
pub fn read_token(file: &Path) -> Result<String, String> {
    let bytes = read_bounded(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => format!("is a file larger than {} MiB", MAX_KUBECONFIG_BYTES >> 20),
        _ => format!("cannot be read: {}: {error}", file.display()),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| format!("cannot be read: {}: it is not text", file.display()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("is an empty file: {}", file.display()));
    }
    Ok(token.to_owned())
}

fn check_impersonation(user: &mut AuthInfo) -> Result<(), Wrong> {
    user.impersonate.take_if(|name| name.is_empty());
    user.impersonate_uid.take_if(|uid| uid.is_empty());
    user.impersonate_groups.take_if(|groups| groups.is_empty());
    user.impersonate_user_extra.take_if(|extra| extra.is_empty());
    let more = [
        ("as-uid", user.impersonate_uid.is_some()),
        ("as-groups", user.impersonate_groups.is_some()),
        ("as-user-extra", user.impersonate_user_extra.is_some()),
    ];
    if let Some((field, _)) = more.iter().find(|(_, given)| *given && user.impersonate.is_none()) {
        return Err((field, "requires `as`".to_owned()));
    }
    let sent = [("as", user.impersonate.iter().collect::<Vec<_>>()), ("as-uid", user.impersonate_uid.iter().collect())]
        .into_iter()
        .chain([("as-groups", user.impersonate_groups.iter().flatten().collect())])
        .chain([(
            "as-user-extra",
            user.impersonate_user_extra.iter().flat_map(|extra| extra.values().flatten()).collect(),
        )]);
    for (field, values) in sent {
        if values.iter().any(|value| HeaderValue::from_str(value).is_err()) {
            return Err((field, "contains a line break or another control character".to_owned()));
        }
    }
    Ok(())
}

fn check_plugin(exec: &mut ExecConfig) -> Result<(), Wrong> {
    if !is_given(exec.command.as_ref()) {
        return Err(("exec.command", "is missing: it names the plugin to run".to_owned()));
    }
    let version = exec.api_version.as_deref().unwrap_or_default();
    if !PLUGIN_VERSIONS.contains(&version) {
        let problem = if version.is_empty() { "is missing" } else { "is no longer supported by Kubernetes" };
        return Err(("exec.apiVersion", format!("{problem}: use {} or {}", PLUGIN_VERSIONS[0], PLUGIN_VERSIONS[1])));
    }
    let names = exec.env.iter().flatten().map(|variable| variable.get("name"));
    if names.into_iter().any(|name| !name.is_some_and(|name| is_variable(name))) {
        return Err(("exec.env", "has a variable without a valid name".to_owned()));
    }
    let modes = "use Never, IfAvailable or Always";
    if exec.other.contains_key(UNKNOWN_MODE) {
        return Err(("exec.interactiveMode", format!("is unknown: {modes}")));
    }
    if exec.interactive_mode.is_none() {
        if version == PLUGIN_VERSIONS[0] {
            return Err(("exec.interactiveMode", format!("is missing: {modes}")));
        }
        exec.interactive_mode = Some(ExecInteractiveMode::IfAvailable);
    }
    Ok(())
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn check_provider(user: &AuthInfo) -> Result<(), Wrong> {
    let Some(provider) = &user.auth_provider else { return Ok(()) };
    if let Some((name, instead)) = GONE.iter().find(|(name, _)| *name == provider.name) {
        let problem = format!("names the provider {name}, which Kubernetes has removed; use {instead}");
        return Err(("auth-provider", problem));
    }
    if provider.name != "oidc" {
        let problem = format!(
            "names the provider {}, which does not exist; log in with an `exec` plugin",
            super::visible_name(&provider.name)
        );
        return Err(("auth-provider", problem));
    }
    let token = provider.config.get("id-token").filter(|token| !token.is_empty());
    let missing =
        "has no token, and this program does not renew tokens: log in, for example with the `exec` plugin kubelogin";
    let token = token.ok_or_else(|| ("auth-provider.config.id-token", missing.to_owned()))?;
    check_token("auth-provider.config.id-token", token)
}
