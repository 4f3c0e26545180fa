//! One request as data.

use http::{Method, Request};
use kube::client::Body;

use super::api_error::ApiError;
use super::retry::SelfRetrying;

/// One request, as data, so that it can be sent again.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(in crate::k8s) method: Method,
    pub(in crate::k8s) path: String,
    pub(in crate::k8s) accept: &'static str,
    pub(in crate::k8s) content_type: Option<&'static str>,
    pub(in crate::k8s) body: Vec<u8>,
    /// The caller wants to see a 409 at once: it sent a resource version and will read the object again.
    pub(in crate::k8s) versioned: bool,
}

impl Call {
    pub(crate) const fn new_get(path: String, accept: &'static str) -> Self {
        Self { method: Method::GET, path, accept, content_type: None, body: Vec::new(), versioned: false }
    }

    pub(crate) fn build_request(&self) -> Result<Request<Body>, ApiError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.path).header("accept", self.accept);
        if let Some(content_type) = self.content_type {
            request = request.header("content-type", content_type);
        }
        request
            .extension(SelfRetrying)
            .body(Body::from(self.body.clone()))
            .map_err(|error| ApiError::new_synthetic(0, "Invalid", format!("cannot request `{}`: {error}", self.path)))
    }
}
