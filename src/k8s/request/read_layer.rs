//! The policy of repeats for requests of kube's typed API: reads are sent again while that can heal, their answers are read
//! to the end before they count, and what is no answer of a Kubernetes API is an error.
//!
//! A write is sent again only where the server has certainly not taken it. Requests of a [`Server`](super::server::Server)
//! pass: it repeats them by itself.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::response::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use super::api_error::ApiError;
use super::foreign::is_foreign_head;
use super::retry::{Retries, SelfRetrying, retry_events, was_not_taken};
use super::send::{check_answer, read_body};
use super::server::REQUEST_TIMEOUT;
use super::transport_error::{NOT_KUBERNETES, TIMEOUT};

/// The body of an answer: read already, or a stream.
type Answered = UnsyncBoxBody<Bytes, BoxError>;

/// Puts [`Repeated`] around a service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeats {
    /// Time after which nothing is sent again. Less than the time after which the caller gives up, so that he gets the
    /// error itself.
    pub(crate) patience: Duration,
    /// Opens watches again, too. Not where their reader does so with a pause of its own.
    pub(crate) reopens_watches: bool,
}

/// A service whose reads are repeated.
#[derive(Debug, Clone)]
pub(crate) struct Repeated<S> {
    inner: S,
    policy: Repeats,
}

impl<S> Layer<S> for Repeats {
    type Service = Repeated<S>;

    fn layer(&self, inner: S) -> Repeated<S> {
        Repeated { inner, policy: *self }
    }
}

/// How often a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeatable {
    /// Its sender repeats it, or it is a probe, whose answer is what it asks for.
    Never,
    /// One time; what answers is looked at.
    Once,
    /// Until the server takes it.
    UntilTaken,
    /// Until it is answered.
    UntilAnswered,
}

fn classify_request(request: &Request<Body>) -> Repeatable {
    let path = request.uri().path();
    let repeats_itself = request.extensions().get::<SelfRetrying>().is_some();
    if repeats_itself || request.headers().contains_key(header::UPGRADE) || path == "/readyz" {
        return Repeatable::Never;
    }
    let is_question =
        ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"].iter().any(|group| path.starts_with(group))
            && path.ends_with("reviews");
    match request.method() {
        &Method::GET | &Method::HEAD => Repeatable::UntilAnswered,
        &Method::POST if is_question => Repeatable::UntilAnswered,
        _ => Repeatable::UntilTaken,
    }
}

/// Returns true for answers that have no end of their own.
fn is_endless(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
}

impl<S, B> Service<Request<Body>> for Repeated<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Answered>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let repeatable = match classify_request(&request) {
            Repeatable::UntilAnswered if is_endless(&request) && !self.policy.reopens_watches => Repeatable::Once,
            repeatable => repeatable,
        };
        if repeatable == Repeatable::Never {
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await.map_err(Into::into)?.map(pass_body)) });
        }
        let next = self.inner.clone();
        // The one that is ready is used, and the other one is for further tries.
        let service = std::mem::replace(&mut self.inner, next);
        Box::pin(send_repeatedly(service, request, repeatable, Instant::now() + self.policy.patience))
    }
}

fn pass_body<B>(body: B) -> Answered
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

fn read_already(body: Bytes) -> Answered {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

async fn send_repeatedly<S, B>(
    mut service: S,
    mut request: Request<Body>,
    repeatable: Repeatable,
    end: Instant,
) -> Result<Response<Answered>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut retries = Retries::new(Some(end));
    let name = format!("{} {}", request.method(), request.uri().path());
    loop {
        let again = copy_request(&request);
        let (path, endless) = (request.uri().path().to_owned(), is_endless(&request));
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, read_once(service.call(request), &path, endless)).await;
        let failure = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failure)) => failure,
            Err(_) => Failure { api: ApiError::from_timeout(REQUEST_TIMEOUT), came: Came::Nothing },
        };
        // Who has waited for as long as an answer may take is told so. A server whose own wait was too long (504) is asked twice.
        let is_late = failure.api.reason == TIMEOUT && (failure.api.code == 0 || retries.tries() > 0);
        let may_repeat = match repeatable {
            Repeatable::UntilAnswered => failure.api.code != 409 && !is_late,
            Repeatable::UntilTaken => was_not_taken(&failure.api),
            Repeatable::Never | Repeatable::Once => false,
        };
        let pause = retries.next_pause(&failure.api).filter(|_| may_repeat);
        let Some((pause, again)) = pause.zip(again) else { return failure.into_answer(retries.tries()) };
        retries.report_retry(&retry_events(), || name.clone(), &failure.api);
        request = again;
        tokio::time::sleep(pause).await;
        service.ready().await.map_err(Into::into)?;
    }
}

/// The same request once more; none where its body can only be read once.
fn copy_request(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

/// One try, to the end of its answer.
async fn read_once<B, E>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    path: &str,
    endless: bool,
) -> Result<Response<Answered>, Failure>
where
    E: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = answer.await.map_err(|error| Failure::from_broken(error.into()))?.into_parts();
    if endless && head.status.is_success() && !is_foreign_head(path, head.status.as_u16(), &head.headers) {
        return Ok(Response::from_parts(head, pass_body(body)));
    }
    let body = read_body(path, &head, body).await.map_err(Failure::from_broken)?;
    match check_answer(path, &head, &body) {
        Ok(()) => Ok(Response::from_parts(head, read_already(body))),
        Err(api) => Err(Failure { api, came: Came::Answer(Box::new(head), body) }),
    }
}

/// A try that failed: the error by which the policy of repeats goes, and what came.
struct Failure {
    api: ApiError,
    came: Came,
}

enum Came {
    Nothing,
    /// The library's error, whose causes tell more.
    Broken(BoxError),
    Answer(Box<Parts>, Bytes),
}

impl Failure {
    fn from_broken(error: BoxError) -> Self {
        Self { api: ApiError::from_transport_error(&*error), came: Came::Broken(error) }
    }

    /// What kube's client is given after so many tries: a refusal as a `Status`, anything else as an error.
    fn into_answer(self, tries: u32) -> Result<Response<Answered>, BoxError> {
        let api = self.api.with_tries(tries);
        let (mut head, body) = match self.came {
            Came::Broken(error) if api.reason != NOT_KUBERNETES => return Err(error),
            Came::Answer(head, body) if api.code > 0 => (*head, body),
            _ => return Err(api.into()),
        };
        let is_status = serde_json::from_slice::<kube::core::Status>(&body).is_ok_and(|status| status.code > 0);
        if is_status && api.reason != NOT_KUBERNETES {
            return Ok(Response::from_parts(head, read_already(body)));
        }
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": api.message, "reason": api.reason, "code": api.code,
        });
        Ok(Response::from_parts(head, read_already(status.to_string().into())))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::{Api, Patch, PatchParams, PostParams, WatchParams};

    use super::*;
    use crate::k8s::request::transport_error::is_not_kubernetes;

    /// A client whose first answer is this one, or no answer, and the next a namespace; and how often it has asked.
    fn client(first: Option<(u16, &'static str, &'static str)>) -> (kube::Client, Arc<AtomicUsize>) {
        client_with(first, Repeats { patience: Duration::from_secs(8), reopens_watches: true })
    }

    fn client_with(
        first: Option<(u16, &'static str, &'static str)>,
        repeats: Repeats,
    ) -> (kube::Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<Body>| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                let (status, kind, body) = match first {
                    None if is_first => return Err(Error::from(ErrorKind::ConnectionReset)),
                    Some(first) if is_first => first,
                    _ => (200, "application/json", r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a"}}"#),
                };
                let answer = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
                answer.body(Full::new(Bytes::from_static(body.as_bytes()))).map_err(Error::other)
            }
        });
        (kube::Client::new(repeats.layer(service), "default"), asked)
    }

    #[tokio::test]
    async fn reads_heal_and_writes_are_sent_once() {
        let busy = (503, "text/plain", "service unavailable");
        for first in [None, Some(busy)] {
            let (read, asked) = client(first);
            assert!(Api::<Namespace>::all(read).get("a").await.is_ok(), "{first:?}");
            assert_eq!(asked.load(Ordering::SeqCst), 2, "{first:?}");
            let (write, asked) = client(first);
            let namespace = Namespace::default();
            assert!(
                Api::<Namespace>::all(write).create(&PostParams::default(), &namespace).await.is_err(),
                "{first:?}"
            );
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{first:?}");
        }
    }

    #[tokio::test]
    async fn a_write_that_was_not_taken_is_sent_again() {
        let (write, asked) = client(Some((429, "text/plain", "Too many requests, please try again later.")));
        let created = Api::<Namespace>::all(write).create(&PostParams::default(), &Namespace::default()).await;
        assert!(created.is_ok() && asked.load(Ordering::SeqCst) == 2, "{created:?}");
    }

    #[tokio::test]
    async fn a_write_that_may_have_been_carried_out_is_not_sent_again() {
        let timeout = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504}"#;
        for first in [None, Some((504, "application/json", timeout)), Some((500, "text/plain", "webhook failed"))] {
            let (write, asked) = client(first);
            let (apply, namespace) = (PatchParams::apply("fleet").force(), Namespace::default());
            let applied = Api::<Namespace>::all(write).patch("a", &apply, &Patch::Apply(&namespace)).await;
            assert!(applied.is_err() && asked.load(Ordering::SeqCst) == 1, "{first:?}: {applied:?}");
        }
    }

    #[tokio::test]
    async fn watches_are_opened_again_where_their_reader_does_not() {
        for (reopens_watches, requests) in [(true, 2), (false, 1)] {
            let (read, asked) = client_with(None, Repeats { patience: Duration::from_secs(8), reopens_watches });
            let opened = Api::<Namespace>::all(read).watch(&WatchParams::default(), "1").await;
            assert_eq!(
                (opened.is_ok(), asked.load(Ordering::SeqCst)),
                (reopens_watches, requests),
                "{reopens_watches}"
            );
        }
    }

    #[tokio::test]
    async fn a_page_is_an_error_and_not_a_missing_object() {
        for status in [200, 403, 404] {
            let (read, asked) = client(Some((status, "text/html", "<p>Sign in</p>")));
            let error = Api::<Namespace>::all(read).get_opt("a").await.unwrap_err();
            assert!(is_not_kubernetes(&error), "{status}: {error:?}");
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{status}");
        }
    }

    #[test]
    fn requests_are_classified() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/nodes", Repeatable::UntilAnswered),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Repeatable::UntilAnswered),
            ("PATCH", "/api/v1/namespaces/fleet", Repeatable::UntilTaken),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/fleet/leases/a", Repeatable::UntilTaken),
            ("POST", "/api/v1/namespaces", Repeatable::UntilTaken),
            ("GET", "/readyz", Repeatable::Never),
        ] {
            let request = Request::builder().method(method).uri(uri);
            assert_eq!(classify_request(&request.body(Body::empty()).unwrap()), expected, "{method} {uri}");
        }
        let own = Request::get("/api/v1/nodes").extension(SelfRetrying).body(Body::empty()).unwrap();
        assert_eq!(classify_request(&own), Repeatable::Never);
    }
}
