//! An API in this process, for tests of requests.

use std::sync::Arc;

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A client whose requests `answer` answers, by their URI and what they bring; `Null` for those that bring nothing. A
/// [`failure`] is answered as one.
pub(crate) fn api(answer: impl Fn(&http::Uri, Value) -> Value + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let uri = request.uri().clone();
            let brought = request.into_body().collect_bytes().await.unwrap_or_default();
            let answer = answer(&uri, serde_json::from_slice(&brought).unwrap_or_default());
            let code = answer["code"].as_u64().filter(|_| answer["kind"] == "Status").unwrap_or(200);
            let response = http::Response::builder().status(u16::try_from(code).unwrap_or(500));
            response.body(Body::from(answer.to_string().into_bytes()))
        }
    });
    Client::new(service, "default")
}

/// Returns the answer to a failed request.
pub(crate) fn failure(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "" };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "", "reason": reason, "code": code,
    })
}
