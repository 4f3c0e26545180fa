//! Sending requests: each with its own limit, tried again where that can help, reported when it takes long.

use std::future::Future;
use std::time::{Duration, Instant};

use http::response::Parts;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;

use super::api_error::ApiError;
use super::call::Call;
use super::foreign::{check_origin, is_foreign_head};
use super::response_limit::{MAX_BYTES, TooLarge};
use super::retry::Retries;
use super::server::{Server, Written};

/// Number of bytes that are read of what is no answer of an API server: its first words are shown.
const FOREIGN_BYTES: usize = 16 << 10;
/// Number of bytes that are read of a refusal.
const REFUSAL_BYTES: usize = 1 << 20;

/// Result of a request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// It was sent more than once: what is answered may be what a former try has done.
    pub(crate) repeated: bool,
}

impl Server {
    pub(crate) async fn send_write(
        &self,
        method: Method,
        path: String,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Written, ApiError> {
        let versioned = body.pointer("/metadata/resourceVersion").is_some();
        let body = serde_json::to_vec(body).map_err(|e| ApiError::new_synthetic(0, "Invalid", e.to_string()))?;
        self.call_for_object(&Call {
            method,
            path,
            accept: "application/json",
            content_type: Some(content_type),
            body,
            versioned,
        })
        .await
    }

    pub(crate) async fn call_for_object(&self, call: &Call) -> Result<Written, ApiError> {
        let Answer { status, headers, body, repeated } = self.send_with_retries(call).await?;
        let object = serde_json::from_slice(&body).map_err(|error| {
            ApiError::new_synthetic(status, "Unreadable", format!("the server's answer is not JSON: {error}"))
        })?;
        let warnings = headers.get_all("warning").iter().filter_map(|w| warning_text(w.to_str().ok()?)).collect();
        Ok(Written { object, created: status == 201, repeated, warnings })
    }

    pub(crate) async fn send_with_retries(&self, call: &Call) -> Result<Answer, ApiError> {
        let mut retries = Retries::new(self.deadline);
        loop {
            if let Some(guard) = self.guard.as_ref().filter(|_| call.method != Method::GET) {
                guard.check_write().await?;
            }
            let error = match self.send_once(call).await {
                Ok((status, headers, body)) => {
                    return Ok(Answer { status, headers, body, repeated: retries.tries() > 0 });
                }
                Err(error) => error,
            };
            let final_conflict = call.versioned && error.code == 409;
            let Some(pause) = retries.next_pause(&error).filter(|_| !final_conflict) else {
                return Err(error.with_tries(retries.tries()));
            };
            retries.report_retry(
                &self.events,
                || format!("{} {}", call.method, call.path.split('?').next().unwrap_or_default()),
                &error,
            );
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request one time, within its own limit and the deadline.
    pub(crate) async fn send_once(&self, call: &Call) -> Result<(u16, HeaderMap, Bytes), ApiError> {
        let left = self.deadline.map_or(self.request_timeout, |d| d.saturating_duration_since(Instant::now()));
        let limit = left.min(self.request_timeout);
        let request = call.build_request()?;
        with_time_limit(limit, async {
            let sent = jiff::Timestamp::now();
            let answer = self.client.send(request).await.map_err(|error| ApiError::from_transport_error(&error))?;
            let (parts, body) = answer.into_parts();
            self.clock.observe_date(&parts.headers, sent);
            let bytes = read_answer(&call.path, &parts, body).await?;
            Ok((parts.status.as_u16(), parts.headers, bytes))
        })
        .await
    }
}

/// Reads an answer to its end, and believes it where it is one of a Kubernetes API.
///
/// # Errors
/// A refusal, a body that broke off or is too long, an answer of something else.
pub(super) async fn read_answer(path: &str, head: &Parts, body: Body) -> Result<Bytes, ApiError> {
    let bytes = read_body(path, head, body).await.map_err(|error| ApiError::from_transport_error(&*error))?;
    check_answer(path, head, &bytes)?;
    Ok(bytes)
}

/// Checks that an answer is a success of a Kubernetes API.
pub(super) fn check_answer(path: &str, head: &Parts, body: &[u8]) -> Result<(), ApiError> {
    let status = head.status.as_u16();
    if head.status.is_success() {
        return check_origin(path, status, &head.headers, body).map_err(|foreign| ApiError::from_foreign(&foreign));
    }
    Err(ApiError::from_answer(status, &head.headers, body))
}

/// Reads a body to its end; of a refusal, and of what is no answer of an API server, at most the beginning.
pub(super) async fn read_body<B>(path: &str, head: &Parts, body: B) -> Result<Bytes, BoxError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (limit, is_enough) = match head.status.as_u16() {
        status if is_foreign_head(path, status, &head.headers) => (FOREIGN_BYTES, true),
        300.. => (REFUSAL_BYTES, true),
        _ => (MAX_BYTES, false),
    };
    let mut body = std::pin::pin!(body);
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Into::into)?.into_data() {
            read.extend_from_slice(&data);
        }
        if read.len() > limit {
            if is_enough {
                break;
            }
            return Err(TooLarge(limit).into());
        }
    }
    Ok(read.into())
}

pub(super) async fn with_time_limit<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(ApiError::from_timeout(limit)))
}

/// The text of a `Warning: 299 - "text"` header.
fn warning_text(header: &str) -> Option<String> {
    let start = header.find('"')? + 1;
    let end = header.rfind('"').filter(|end| *end > start)?;
    Some(header[start..end].replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_header_gives_its_text() {
        assert_eq!(
            warning_text(r#"299 - "would violate \"restricted\"""#).as_deref(),
            Some(r#"would violate "restricted""#)
        );
        assert_eq!(warning_text("299 -"), None);
    }
}
