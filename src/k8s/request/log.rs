//! A line in the log for each request: method, path, status, time. Never a header or a body, so no credential and no
//! value of a Secret.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use tower::{Layer, Service};

/// Puts [`Traced`] around a service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace;

/// A service whose requests are logged.
#[derive(Debug, Clone)]
pub(crate) struct Traced<S>(S);

impl<S> Layer<S> for Trace {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced(inner)
    }
}

impl<S, B, C> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
    S::Error: std::fmt::Display,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let started = Instant::now();
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            match &answer {
                Ok(answer) => {
                    tracing::info!(%method, path, watch, status = answer.status().as_u16(), ms, "request");
                }
                Err(error) => tracing::info!(%method, path, watch, %error, ms, "request failed"),
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_request_is_logged_without_query_header_and_body() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(log);
        let inner = tower::service_fn(|_: Request<String>| async {
            Ok::<_, std::io::Error>(Response::builder().status(201).body("answer-body").unwrap())
        });
        let mut traced = Trace.layer(inner);
        let request = Request::post("https://x/api/v1/secrets?token=query-text")
            .header("authorization", "Bearer header-text")
            .body("request-body".to_owned())
            .unwrap();
        traced.call(request).await.unwrap();
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        for part in ["POST", "/api/v1/secrets", "status=201", "ms="] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for secret in ["query-text", "header-text", "request-body", "answer-body"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
