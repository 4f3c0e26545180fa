//! An API in this process, for tests of what the agent says to it.

use std::convert::Infallible;
use std::sync::Arc;

use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// A client whose requests `answer` answers, by their URI and what they bring; `Null` for those that bring nothing.
pub(super) fn api(answer: impl Fn(&http::Uri, Value) -> Value + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let serve = move |request: http::Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let uri = request.uri().clone();
            let brought = request.into_body().collect_bytes().await.unwrap_or_default();
            let said = answer(&uri, serde_json::from_slice(&brought).unwrap_or_default());
            Ok::<_, Infallible>(http::Response::new(Body::from(said.to_string().into_bytes())))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}
