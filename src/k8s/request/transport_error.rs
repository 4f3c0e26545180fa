//! Errors on the way to an API server: what broke, by the types of the libraries where they tell it, else by their words.

use std::error::Error as StdError;
use std::io::ErrorKind;

use super::api_error::ApiError;
use super::foreign::ForeignAnswer;
use super::response_limit::TooLarge;
use crate::api::util::text::contains_any;
use crate::k8s::connect::exec_plugin::LogInError;
use crate::k8s::connect::proxy_connector::ProxyFailed;

/// The connection broke, and the answer is lost.
pub(crate) const TRANSPORT: &str = "Transport";
/// No connection came up, so that nothing was sent.
pub(crate) const UNREACHED: &str = "Unreached";
/// No answer in the time that a request may take.
pub(crate) const TIMEOUT: &str = "Timeout";
/// The name does not exist, the proxy requires a log-in, or the answer is longer than what is read: the same request ends
/// the same way.
pub(crate) const UNREADABLE: &str = "Unreadable";
/// The certificate of the server, or TLS itself, is refused.
pub(crate) const TLS: &str = "Tls";
/// The log-in failed before anything was sent.
pub(crate) const AUTH: &str = "Auth";
/// What answered is no Kubernetes API.
pub(crate) const NOT_KUBERNETES: &str = "NotKubernetes";

/// Remedy where something else answers in place of a Kubernetes API.
pub(crate) const CHECK_SERVER: &str = "check that `server` in the kubeconfig is the address of a Kubernetes API server, and \
     that no proxy and no log-in page answers in its place: `kubectl get --raw /version`";

/// Returns true for the error of a request that something else than a Kubernetes API has answered.
pub(crate) fn is_not_kubernetes(error: &(dyn StdError + 'static)) -> bool {
    let refused = find_cause::<kube::Error>(error);
    let refused = refused.is_some_and(|error| matches!(error, kube::Error::Api(api) if api.reason == NOT_KUBERNETES));
    refused || find_cause::<ApiError>(error).is_some_and(|error| error.reason == NOT_KUBERNETES)
}

impl ApiError {
    /// An error on the way: name look-up, connection, TLS, log-in.
    pub(crate) fn from_transport_error(error: &(dyn StdError + 'static)) -> Self {
        if let Some(known) = find_cause::<Self>(error) {
            return known.clone();
        }
        let mut chain: Vec<String> = Vec::new();
        for error in causes(error) {
            let line = error.to_string();
            // Outer errors of the client repeat the inner text: keep the innermost wording once.
            chain.retain(|outer| !outer.contains(&line));
            chain.push(line);
        }
        let message = chain.join(": ");
        let lower = message.to_lowercase();
        // A connection that ends in the middle is no fault of its encryption, though that is who notices.
        if lower.contains("close_notify") || lower.contains("unexpected eof") {
            return Self::new_synthetic(0, TRANSPORT, "the connection was closed without an answer".to_owned());
        }
        if contains_any(&lower, &["invalidcontenttype", "invalid content type"]) {
            let message =
                "the server is not a Kubernetes API: it does not speak TLS, but its address begins with https://";
            return Self::new_synthetic(0, NOT_KUBERNETES, message.to_owned());
        }
        if is_not_http(error) {
            let message = "the server is not a Kubernetes API: it does not speak HTTP/1.1";
            return Self::new_synthetic(0, NOT_KUBERNETES, message.to_owned());
        }
        let reason = if find_cause::<LogInError>(error).is_some() {
            // Asked again, a plugin would ask its user again.
            AUTH
        } else if contains_any(&lower, &["certificate", "tls"]) {
            TLS
        } else if contains_any(&lower, &["auth error", "auth exec"]) {
            AUTH
        } else if find_cause::<TooLarge>(error).is_some()
            // Sent again, a wrong password may lock its user out.
            || matches!(find_cause(error), Some(ProxyFailed::LogIn(_)))
            || contains_any(&lower, &["name or service not known", "no such host"])
        {
            UNREADABLE
        } else if is_unreached(error) {
            UNREACHED
        } else if innermost_kind(error) == Some(ErrorKind::TimedOut) {
            TIMEOUT
        } else {
            TRANSPORT
        };
        Self::new_synthetic(0, reason, message)
    }

    /// What answered and is no Kubernetes API. Its status counts only where every server means the same by it: that it
    /// cannot answer now, or does not accept the credential.
    pub(crate) fn from_foreign(foreign: &ForeignAnswer) -> Self {
        let is_plain = matches!(foreign.status, 401 | 408 | 429 | 500..);
        let code = if is_plain { foreign.status } else { 0 };
        Self::new_synthetic(code, NOT_KUBERNETES, foreign.to_string())
    }
}

/// An error and all those behind it, the outermost first.
fn causes<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn StdError + 'static)| (*error).source())
}

/// The first error of this type in a chain.
pub(crate) fn find_cause<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    causes(error).find_map(|error| {
        // An error of the system shows the causes of what it holds, and not that itself.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        error.downcast_ref().or_else(|| held.and_then(|held| held.downcast_ref()))
    })
}

/// Returns true where the peer sent bytes that are no HTTP.
fn is_not_http(error: &(dyn StdError + 'static)) -> bool {
    find_cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse)
}

/// What the system said: errors of the system hold others, whose kind is the more exact one.
fn innermost_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let mut kind = None;
    for cause in causes(error) {
        let mut next = cause.downcast_ref::<std::io::Error>();
        while let Some(found) = next {
            kind = Some(found.kind());
            next = found.get_ref().and_then(|held| held.downcast_ref());
        }
    }
    kind
}

/// Returns true where no connection came up.
fn is_unreached(error: &(dyn StdError + 'static)) -> bool {
    let connects = find_cause::<hyper_util::client::legacy::Error>(error)
        .is_some_and(hyper_util::client::legacy::Error::is_connect);
    let kind = innermost_kind(error);
    // A connection that was reset in its handshake did come up: the server, or what stands before it, ended it.
    let broke = matches!(
        kind,
        Some(
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        )
    );
    (connects && !broke) || kind == Some(ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn a_log_in_that_fails_is_not_asked_for_again() {
        let error = ApiError::from_transport_error(&LogInError::NoCredential { command: "log-in".to_owned() });
        assert!(error.reason == AUTH && !super::super::retry::can_heal(&error), "{error:?}");
    }

    #[test]
    fn a_connection_that_breaks_is_sent_again_and_a_certificate_that_is_wrong_is_not() {
        let broken = Error::other("peer closed connection without sending TLS close_notify: https://docs.example");
        let error = ApiError::from_transport_error(&broken);
        assert_eq!(
            (error.reason.as_str(), error.message.as_str()),
            (TRANSPORT, "the connection was closed without an answer")
        );
        let stranger = Error::other("invalid peer certificate: UnknownIssuer");
        assert_eq!(ApiError::from_transport_error(&stranger).reason, TLS);
    }

    #[test]
    fn kinds_of_faults_are_told_apart() {
        for (error, reason) in [
            (Error::from(ErrorKind::ConnectionRefused), UNREACHED),
            (Error::from(ErrorKind::ConnectionReset), TRANSPORT),
            (Error::other("dns error: failed to lookup address information: Name or service not known"), UNREADABLE),
            (Error::from(ErrorKind::TimedOut), TIMEOUT),
            (Error::other(TooLarge(1 << 20)), UNREADABLE),
            (Error::other("received corrupt message of type InvalidContentType"), NOT_KUBERNETES),
        ] {
            assert_eq!(ApiError::from_transport_error(&error).reason, reason, "{error}");
        }
    }
}
