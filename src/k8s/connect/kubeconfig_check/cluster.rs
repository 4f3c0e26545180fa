//! The fields of a cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::uri::Authority;
use kube::config::{AuthInfo, Cluster};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::{Wrong, check_placeholder, is_given, take_bytes};

/// Schemes of a proxy in a kubeconfig.
const PROXY_SCHEMES: [&str; 3] = ["http", "https", "socks5"];
const AUTHORITY: [&str; 2] = ["certificate-authority", "certificate-authority-data"];

/// Checks that data are no placeholders, before anything else is said of a file that has them.
pub(super) fn check_placeholders(cluster: &Cluster) -> Result<(), Wrong> {
    cluster.certificate_authority_data.as_deref().map_or(Ok(()), |text| check_placeholder(AUTHORITY[1], text))
}

/// Checks the certificates that a server is known by; afterwards they are in `certificate-authority-data`, or there are
/// none.
pub(super) fn check_certificates(cluster: &mut Cluster) -> Result<(), Wrong> {
    let given = take_bytes(AUTHORITY, &mut cluster.certificate_authority, &mut cluster.certificate_authority_data)?;
    // An empty file is none.
    let Some((field, pem)) = given.filter(|(_, pem)| !pem.is_empty()) else { return Ok(()) };
    if cluster.insecure_skip_tls_verify == Some(true) {
        let problem = format!("is true, so `{field}` has no effect; leave one of them out");
        return Err(("insecure-skip-tls-verify", problem));
    }
    let (trusted, expired) = select_valid_certificates(&pem);
    if trusted.is_empty() {
        let problem = if expired {
            "contains only certificates that have expired or are not valid yet"
        } else {
            "contains no PEM certificate"
        };
        return Err((field, problem.to_owned()));
    }
    cluster.certificate_authority_data = Some(STANDARD.encode(trusted));
    Ok(())
}

/// The certificates of a text that can be read and are valid now, as PEM; and whether there are others that are not valid.
/// What else there is does not matter, as kubectl has it.
fn select_valid_certificates(pem: &[u8]) -> (String, bool) {
    let (mut trusted, mut expired) = (String::new(), false);
    for der in CertificateDer::pem_slice_iter(pem).flatten() {
        let Ok((_, certificate)) = X509Certificate::from_der(&der) else { continue };
        if !certificate.validity().is_valid() {
            expired = true;
            continue;
        }
        let lines = STANDARD.encode(&der);
        trusted.push_str(&format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"));
    }
    (trusted, expired)
}

/// Checks the address of the server, the name that its certificate is checked for, and the proxy.
pub(super) fn check_cluster_entry(cluster: &mut Cluster, user: &AuthInfo) -> Result<(), Wrong> {
    cluster.tls_server_name.take_if(|name| name.is_empty());
    if cluster.tls_server_name.as_ref().is_some_and(|name| ServerName::try_from(name.as_str()).is_err()) {
        return Err(("tls-server-name", "is neither a DNS name nor an IP address".to_owned()));
    }
    let is_tls = cluster.certificate_authority_data.is_some()
        || user.client_certificate_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true);
    let has_secret = user.token.is_some()
        || user.token_file.is_some()
        || user.password.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some();
    // What has no scheme is meant for TLS where anything about TLS is said. kubectl goes without TLS then, which hardly any
    // server answers, and does not say who asks.
    let implied = if is_tls {
        Some("https")
    } else if has_secret {
        None
    } else {
        Some("http")
    };
    let server = cluster.server.as_deref().unwrap_or_default();
    cluster.server = Some(server_url(server, implied).map_err(|problem| ("server", problem))?);
    if is_given(cluster.proxy_url.as_ref()) {
        let proxy = cluster.proxy_url.as_deref().unwrap_or_default();
        let url = parse_proxy_url(proxy, &PROXY_SCHEMES).map_err(|problem| ("proxy-url", problem))?;
        cluster.proxy_url = Some(url.to_string());
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
    const MISSING_SCHEME: &str = "has neither http:// nor https:// before the host";
    if server.is_empty() {
        return Err("is missing: it is the address of the API server, https://HOST:PORT".to_owned());
    }
    let (scheme, rest) = match scheme_of(server) {
        Some((scheme, rest)) if scheme == "http" || scheme == "https" => (scheme, rest),
        Some((scheme, _)) => return Err(format!("has the scheme {scheme}://, but http:// or https:// is required")),
        // A path is only understood behind a scheme, which kubectl says in other words.
        None if server.trim_end_matches('/').contains('/') => return Err(MISSING_SCHEME.to_owned()),
        None => (implied.ok_or(MISSING_SCHEME)?.to_owned(), server),
    };
    let url: Uri = format!("{scheme}://{rest}").parse().map_err(|error| format!("is not a URL: {error}"))?;
    let authority = url.authority().ok_or("has no host")?;
    check_authority(authority)?;
    // A name and a password before the host are not sent to the server, and not shown either.
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    Ok(format!("{scheme}://{host}{}", url.path()))
}

/// The URL of a proxy as the library takes it, with one of these schemes in lower case.
///
/// # Errors
/// The problem with it, to be said behind its name; no part of it is in the error.
pub fn parse_proxy_url(proxy: &str, schemes: &[&str]) -> Result<Uri, String> {
    let needed = "http://, https:// or socks5:// is required";
    let (scheme, rest) = match scheme_of(proxy) {
        Some((scheme, rest)) if schemes.contains(&scheme.as_str()) => (scheme, rest),
        Some((scheme, _)) => return Err(format!("has the scheme {scheme}://, but {needed}")),
        None => return Err(format!("has no scheme: {needed}")),
    };
    let is_socks = scheme.starts_with("socks5");
    let scheme = if is_socks { "socks5" } else { &scheme };
    let url: Uri = format!("{scheme}://{rest}").parse().map_err(|error| {
        let escaped = if rest.contains('@') { "; in its user and password, write such characters as %XX" } else { "" };
        format!("is not a URL: {error}{escaped}")
    })?;
    let authority = url.authority().ok_or("has no host")?;
    check_authority(authority)?;
    // The library knows no port of this scheme.
    let port = if is_socks && url.port().is_none() { ":1080" } else { "" };
    let authority = authority.as_str().trim_end_matches(':');
    format!("{scheme}://{authority}{port}/").parse().map_err(|error| format!("is not a URL: {error}"))
}

/// Checks host and port. The library takes its default for a port that it cannot read.
fn check_authority(authority: &Authority) -> Result<(), String> {
    let host = authority.host();
    if host.is_empty() {
        return Err("has no host".to_owned());
    }
    let address = authority.as_str().rsplit('@').next().unwrap_or_default();
    match address.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        Some(port) if !port.is_empty() && port.parse::<u16>().is_err() => Err("has an invalid port".to_owned()),
        None if address != host => Err("has an invalid port".to_owned()),
        _ => Ok(()),
    }
}
