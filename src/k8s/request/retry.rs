//! Retries of requests: at most six tries, with full jitter, after the time that the server asks for, never beyond the
//! deadline.

use std::time::{Duration, Instant};

use http::{Method, Request, Response, header};
use kube::client::Body;
use kube::client::retry::{InvalidBackoff, RetryPolicy};
use tower::BoxError;
use tower::retry::Policy;

use super::api_error::ApiError;
use crate::k8s::backoff::Backoff;

const TRIES: u32 = 6;
const FIRST: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(2);
/// The longest pause that a server can ask for.
const RETRY_AFTER_CAP: Duration = Duration::from_secs(10);

/// Returns true where the same request can succeed when it is sent again.
///
/// Every request of this room may be repeated: applies and merges give the same result twice, deletes carry a uid, and
/// the only creation (the journal's) recognises itself.
pub(crate) fn can_heal(error: &ApiError) -> bool {
    match error.code {
        0 => matches!(error.reason.as_str(), "Transport" | "Timeout"),
        // 500: a webhook or the storage had a hiccup.
        429 | 500 | 502 | 503 | 504 => true,
        // The object changed between the server's read and write. With a manager's name in it, it is a real conflict.
        409 => {
            !error.is_conflict_with_manager()
                && !error.is_already_exists()
                && !error.is_uid_mismatch()
                && error.message.contains("object has been modified")
        }
        _ => false,
    }
}

/// Retries of one request.
#[derive(Debug)]
pub(crate) struct Retries {
    deadline: Option<Instant>,
    tries: u32,
    backoff: Backoff,
}

impl Retries {
    pub(crate) const fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, tries: 0, backoff: Backoff::full_jitter(FIRST, CAP) }
    }

    /// Number of times that the request was sent.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the pause before the next try, or nothing when this error is the answer.
    pub(crate) fn next_pause(&mut self, error: &ApiError) -> Option<Duration> {
        self.tries += 1;
        if self.tries >= TRIES || !can_heal(error) {
            return None;
        }
        let jitter = self.backoff.next_wait();
        let asked = error.retry_after.map(|pause| pause.min(RETRY_AFTER_CAP));
        // The jitter is added to what the server asked for, or all clients come back in the same moment.
        let pause = asked.map_or(jitter, |asked| asked + jitter.min(Duration::from_millis(250)));
        match self.deadline {
            Some(deadline) if Instant::now() + pause >= deadline => None,
            _ => Some(pause),
        }
    }
}

/// Mark of a request whose sender retries it by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfRetrying;

/// Retry policy of reads outside the engine: those of checks, listings and the like, which want an answer and not its
/// history. Only a server that asks for it (429, 503, 504) is asked again; one that does not answer is reported at once.
#[derive(Clone)]
pub(crate) struct OfReads(RetryPolicy);

impl OfReads {
    pub(crate) fn new() -> Result<Self, InvalidBackoff> {
        Ok(Self(RetryPolicy::new(FIRST / 2, CAP, TRIES - 1, true)?))
    }
}

/// Returns true for reads, also those that Kubernetes has sent by POST.
fn is_read<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::GET || path.starts_with("/apis/authorization.k8s.io/")
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for OfReads {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let asked = result.as_ref().ok().and_then(|answer| answer.headers().get(header::RETRY_AFTER)?.to_str().ok());
        let pause = asked.and_then(|seconds| seconds.trim().parse().ok()).map_or(Duration::ZERO, Duration::from_secs);
        if pause > RETRY_AFTER_CAP { None } else { self.0.retry(request, result) }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let own = request.extensions().get::<SelfRetrying>().is_some();
        if own || !is_read(request) { None } else { Policy::<_, Response<B>, _>::clone_request(&mut self.0, request) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn answer(code: u16, body: &str) -> ApiError {
        ApiError::from_answer(code, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn tries_and_deadline_limit_retries() {
        let mut retries = Retries::new(None);
        let pauses: Vec<_> = std::iter::from_fn(|| retries.next_pause(&answer(503, ""))).collect();
        assert_eq!(pauses.len(), 5);
        assert_eq!(retries.tries(), 6);
        assert!(pauses.iter().all(|pause| *pause <= CAP));
        let mut late = Retries::new(Some(Instant::now()));
        assert_eq!(late.next_pause(&answer(503, "")), None);
    }

    #[test]
    fn retry_after_is_respected() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "1".parse().unwrap());
        let pause = Retries::new(None).next_pause(&ApiError::from_answer(429, &headers, b"")).unwrap();
        assert!(pause >= Duration::from_secs(1) && pause < Duration::from_secs(2), "{pause:?}");
    }

    #[test]
    fn conflicts_of_managers_are_not_retried() {
        let moved = r#"{"reason":"Conflict","message":"Operation cannot be fulfilled: the object has been modified; please apply your changes"}"#;
        assert!(can_heal(&answer(409, moved)));
        let held = r#"{"reason":"Conflict","message":"x","details":{"causes":[{"reason":"FieldManagerConflict","field":".a"}]}}"#;
        assert!(!can_heal(&answer(409, held)));
        for (code, heals) in
            [(400, false), (401, false), (403, false), (404, false), (422, false), (500, true), (504, true)]
        {
            assert_eq!(can_heal(&answer(code, "")), heals, "{code}");
        }
    }

    #[test]
    fn tls_errors_are_not_retried() {
        let error = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let error = ApiError::from_transport_error(&error);
        assert_eq!(error.reason, "Tls");
        assert!(!can_heal(&error));
        assert!(can_heal(&ApiError::from_transport_error(&std::io::Error::other("connection refused"))));
    }

    /// Returns true where an answer with this code and `Retry-After` makes a read be sent again.
    fn is_retried(code: u16, after: Option<&str>) -> bool {
        let mut answer = Response::builder().status(code);
        if let Some(after) = after {
            answer = answer.header(header::RETRY_AFTER, after);
        }
        let mut result = Ok(answer.body(()).unwrap());
        OfReads::new().unwrap().retry(&mut Request::new(Body::empty()), &mut result).is_some()
    }

    #[tokio::test]
    async fn reads_are_retried_on_request() {
        for (code, after, again) in [
            (503, None, true),
            (429, Some("1"), true),
            (429, Some("10"), true),
            (429, Some("600"), false),
            (500, None, false),
            (403, None, false),
        ] {
            assert_eq!(is_retried(code, after), again, "{code} {after:?}");
        }
    }

    #[test]
    fn writes_are_sent_once() {
        let again = |method: &str, uri: &str, own: bool| {
            let request = Request::builder().method(method).uri(uri);
            let request = if own { request.extension(SelfRetrying) } else { request };
            let request = request.body(Body::empty()).unwrap();
            Policy::<_, Response<()>, _>::clone_request(&mut OfReads::new().unwrap(), &request).is_some()
        };
        assert!(again("GET", "/api/v1/nodes", false));
        assert!(again("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false));
        assert!(!again("GET", "/api/v1/nodes", true));
        assert!(!again("POST", "/api/v1/namespaces", false));
        assert!(!again("PATCH", "/api/v1/namespaces/fleet", false));
    }
}
