//! What answers is looked at before it is believed: a page of a proxy, a log-in, or JSON of something else is no answer of
//! a Kubernetes API. Of such an answer only what it is, and its first words, are shown.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::first_words::first_words;
use crate::api::util::text::{visible_cell, visible_word};

/// The answer of an API server, and of every other server in Go, to a path that it does not serve.
const NO_SUCH_PATH: &str = "404 page not found";
/// Number of bytes of text that an API server says by itself instead of a `Status`, as when it is too busy.
const SHORT: usize = 300;

/// An answer that no Kubernetes API gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {} {what}", format_subject(*status), format_status(*status))]
pub(crate) struct ForeignAnswer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// What came, as a clause.
    what: String,
}

/// The fields by which an answer of a Kubernetes API is known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    metadata: Option<IgnoredAny>,
    git_version: Option<IgnoredAny>,
}

/// A proxy or load balancer tells by these that the server behind it does not answer.
const fn format_subject(status: u16) -> &'static str {
    match status {
        408 | 429 | 500.. => "something in front of the API server answers",
        _ => "the server is not a Kubernetes API: it answers",
    }
}

fn format_status(status: u16) -> String {
    let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    name.map_or_else(|| status.to_string(), |name| format!("{status} {name}"))
}

/// Checks that an answer is one of a Kubernetes API. `path` is that of the request, without the prefix of the server.
///
/// # Errors
/// What came instead.
pub(crate) fn check_origin(path: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Result<(), ForeignAnswer> {
    let path = path.split('?').next().unwrap_or_default();
    let is_known = match status {
        300..400 => false,
        ..300 => !is_checked(path) || is_json_type(headers) && is_object(path, body),
        _ => is_refusal(status, headers, body),
    };
    if is_known { Ok(()) } else { Err(describe_answer(status, headers, body)) }
}

/// Returns true where an answer by its head alone is none that is worth reading to its end.
pub(crate) fn is_foreign_head(path: &str, status: u16, headers: &HeaderMap) -> bool {
    status < 400 && (status >= 300 || is_checked(path) && !is_json_type(headers))
}

/// Returns true for paths whose answers are objects; logs, proxied services and files of discovery are whatever they are.
fn is_checked(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let is_of_api = path == "/version" || ["/api", "/apis"].iter().any(|root| is_below(path, root));
    is_of_api && !path.ends_with("/log") && !path.contains("/proxy/") && !path.ends_with("/proxy")
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn content_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// JSON, or what does not say what it is and may be.
fn is_json_type(headers: &HeaderMap) -> bool {
    content_type(headers).is_none_or(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    })
}

/// Returns true for JSON that has what answers to this path have.
fn is_object(path: &str, body: &[u8]) -> bool {
    // An API server writes one of them first; lists of many megabytes need not be read twice.
    if body.starts_with(br#"{"kind":""#) || body.starts_with(br#"{"apiVersion":""#) {
        return true;
    }
    let known: Option<Known<'_>> = serde_json::from_slice(body).ok();
    known.is_some_and(|known| match path {
        "/version" => known.git_version.is_some(),
        _ => known.kind.is_some_and(|kind| !kind.is_empty()) || known.metadata.is_some(),
    })
}

/// Returns true for what an API server answers when it refuses: a `Status`, or a few words.
fn is_refusal(status: u16, headers: &HeaderMap, body: &[u8]) -> bool {
    if let Ok(known) = serde_json::from_slice::<Known<'_>>(body) {
        return known.kind.is_some_and(|kind| kind == "Status");
    }
    let text = std::str::from_utf8(body).unwrap_or("<").trim();
    let is_text = content_type(headers).is_none_or(|kind| kind.starts_with("text/plain"));
    match status {
        404 => is_text && text == NO_SUCH_PATH,
        // Whoever stands before the server says these two as well.
        401 | 403 => false,
        _ => is_text && text.len() <= SHORT && !text.starts_with(['<', '{', '[']),
    }
}

fn describe_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> ForeignAnswer {
    let location = headers.get(header::LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let kind = content_type(headers);
    let named = kind.as_ref().map_or_else(String::new, |kind| format!(" ({})", visible_word(kind)));
    let what = if let Some(location) = location.filter(|_| (300..400).contains(&status)) {
        // A query holds states of log-ins, and the part before a host may hold passwords.
        format!("and redirects to {}", visible_cell(&without_secrets(&location)))
    } else if let Ok(fields) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body) {
        let names: Vec<_> = fields.keys().take(5).map(|name| format!("`{}`", visible_word(name))).collect();
        match names.as_slice() {
            [] => "with an empty JSON object".to_owned(),
            _ => format!("with JSON that is not a Kubernetes object (fields {})", names.join(", ")),
        }
    } else {
        match first_words(body) {
            words if words.is_empty() && body.is_empty() => format!("without content{named}"),
            words if words.is_empty() => format!("with content that has no text{named}"),
            words => format!("with unexpected content{named}: \"{}\"", visible_cell(&words)),
        }
    };
    ForeignAnswer { status, what }
}

/// An address without user, query and fragment.
fn without_secrets(location: &str) -> String {
    let plain = location.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "/api/v1/pods";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn told(path: &str, status: u16, pairs: &[(&'static str, &str)], body: &str) -> Option<String> {
        check_origin(path, status, &headers(pairs), body.as_bytes()).err().map(|foreign| foreign.to_string())
    }

    #[test]
    fn answers_of_an_api_are_believed() {
        let json = [("content-type", "application/json")];
        let text = [("content-type", "text/plain; charset=utf-8")];
        for (path, status, pairs, body) in [
            (PODS, 200, &json[..], r#"{"kind":"PodList","items":[]}"#),
            (PODS, 200, &json, "{\"metadata\": {},\n \"kind\": \"PodList\"}"),
            (PODS, 200, &[], r#"{"kind":"PodList"}"#),
            ("/version", 200, &json, r#"{"major":"1","gitVersion":"v1.31.0"}"#),
            ("/api/v1/namespaces/a/pods/b/log", 200, &text, "<html>"),
            (PODS, 404, &json, r#"{"kind":"Status","reason":"NotFound","code":404}"#),
            ("/apis/none", 404, &text, "404 page not found\n"),
            (PODS, 429, &text, "Too many requests, please try again later.\n"),
            (PODS, 400, &text, "Client sent an HTTP request to an HTTPS server.\n"),
        ] {
            assert_eq!(told(path, status, pairs, body), None, "{path} {status} {body}");
        }
    }

    #[test]
    fn answers_of_others_are_described() {
        let page = "<!DOCTYPE html><title>Sign in</title><script>let token = 'SECRET';</script>\u{1b}[31m\
                    <form><input name=csrf value='SECRET'>Who are you?</form>";
        for (path, status, pairs, body, words) in [
            (
                PODS,
                200,
                &[("content-type", "text/html")][..],
                page,
                r#"200 OK with unexpected content (text/html): "Sign in \u{1b}[31m Who are you?""#,
            ),
            (
                PODS,
                403,
                &[("content-type", "text/html")],
                page,
                r#"403 Forbidden with unexpected content (text/html): "Sign in"#,
            ),
            (
                PODS,
                302,
                &[("location", "https://a:SECRET@sso.example/login?state=SECRET")],
                "",
                "302 Found and redirects to https://sso.example/login",
            ),
            (
                PODS,
                200,
                &[("content-type", "application/json")],
                r#"{"status":"ok","token":"SECRET"}"#,
                "200 OK with JSON that is not a Kubernetes object (fields `status`, `token`)",
            ),
            ("/version", 200, &[("content-type", "application/json")], r#"{"version":"2.1"}"#, "(fields `version`)"),
            (
                PODS,
                404,
                &[("content-type", "text/plain")],
                "default backend - 404",
                r#"404 Not Found with unexpected content (text/plain): "default backend - 404""#,
            ),
            (PODS, 404, &[], "", "404 Not Found without content"),
            (
                PODS,
                401,
                &[("content-type", "application/json")],
                r#"{"message":"SECRET"}"#,
                "401 Unauthorized with JSON",
            ),
            (
                PODS,
                200,
                &[("content-type", "application/json")],
                "[1]",
                "200 OK with unexpected content (application/json)",
            ),
        ] {
            let told = told(path, status, pairs, body).unwrap_or_default();
            assert!(told.contains(words) && !told.contains("SECRET"), "{told}");
        }
    }
}
