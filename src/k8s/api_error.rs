//! Errors of a Kubernetes API server, or of the way to it, when it does not do what was asked.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use super::object::{list, text};
use crate::api::text::{visible_cell, visible_lines};

/// One cause in a `Status`: a field with what is wrong about it, or with who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldManagerConflict`, `FieldValueInvalid`, `UIDConflict` …
    pub reason: String,
    /// The field's path, such as `.spec.replicas`.
    pub field: String,
    /// The server's sentence.
    pub message: String,
}

/// An answer that is not a success, or none at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status; 0 when there was no answer.
    pub code: u16,
    /// The `Status` reason, such as `NotFound`; `Transport`, `Tls`, `Auth` or `Timeout` without an answer.
    pub reason: String,
    /// The server's sentence, or what went wrong on the way.
    pub message: String,
    /// Details.
    pub causes: Vec<Cause>,
    /// Wait that the server asked for (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// Number of tries so far.
    pub tries: u32,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible_lines(&self.message))?;
        if self.code > 0 {
            write!(f, " ({} {})", self.code, visible_cell(&self.reason))?;
        }
        if self.tries > 1 {
            write!(f, ", tried {} times", self.tries)?;
        }
        Ok(())
    }
}

impl StdError for ApiError {}

impl ApiError {
    pub(crate) fn synthetic(code: u16, reason: &str, message: String) -> Self {
        Self { code, reason: reason.to_owned(), message, causes: Vec::new(), retry_after: None, tries: 1 }
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        Self::synthetic(0, "Timeout", format!("no answer from the API server within {} s", limit.as_secs().max(1)))
    }

    /// An error on the way: name look-up, connection, TLS, log-in.
    pub(crate) fn transport(error: &(dyn StdError + 'static)) -> Self {
        let mut chain: Vec<String> = Vec::new();
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(error) = next {
            let line = error.to_string();
            // Outer errors of the client repeat the inner text: keep the innermost wording once.
            chain.retain(|outer| !outer.contains(&line));
            chain.push(line);
            next = error.source();
        }
        let message = chain.join(": ");
        let lower = message.to_lowercase();
        // A connection that ends in the middle is no fault of its encryption, though that is who notices.
        if lower.contains("close_notify") || lower.contains("unexpected eof") {
            return Self::synthetic(0, "Transport", "the connection was closed without an answer".to_owned());
        }
        let reason = if lower.contains("certificate") || lower.contains("tls") {
            "Tls"
        } else if lower.contains("auth error") || lower.contains("auth exec") {
            "Auth"
        } else {
            "Transport"
        };
        Self::synthetic(0, reason, message)
    }

    /// An answer with a status of 300 or more. The body is a `Status`, or any text from something before the server.
    pub(crate) fn answer(code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let seconds = headers.get("retry-after").and_then(|v| v.to_str().ok()?.trim().parse().ok());
        let seconds = seconds.or_else(|| status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64));
        let fallback = || {
            let text = String::from_utf8_lossy(body);
            let text = text.trim();
            let phrase = http::StatusCode::from_u16(code).ok().and_then(|c| c.canonical_reason()).unwrap_or("refused");
            if text.is_empty() || text.len() > 300 || text.starts_with('<') {
                phrase.to_owned()
            } else {
                text.to_owned()
            }
        };
        Self {
            code,
            reason: text(&status, "/reason").filter(|r| !r.is_empty()).unwrap_or("Unknown").to_owned(),
            message: text(&status, "/message").filter(|m| !m.is_empty()).map_or_else(fallback, str::to_owned),
            causes: list(&status, "/details/causes")
                .iter()
                .map(|cause| Cause {
                    reason: text(cause, "/reason").unwrap_or_default().to_owned(),
                    field: text(cause, "/field").unwrap_or_default().to_owned(),
                    message: text(cause, "/message").unwrap_or_default().to_owned(),
                })
                .collect(),
            retry_after: seconds.map(Duration::from_secs),
            tries: 1,
        }
    }

    /// An answer that a typed client has read already.
    pub(crate) fn of_status(status: &kube::core::Status) -> Self {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let causes = causes.map(|cause| Cause {
            reason: cause.reason.clone(),
            field: cause.field.clone(),
            message: cause.message.clone(),
        });
        let reason = if status.reason.is_empty() { "Unknown" } else { &status.reason };
        Self { causes: causes.collect(), ..Self::synthetic(status.code, reason, status.message.clone()) }
    }

    pub(crate) fn after(self, tries: u32) -> Self {
        Self { tries: tries.max(1), ..self }
    }

    /// The object, or the kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// The caller may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// Another manager holds a field that was applied.
    pub fn is_conflict_with_manager(&self) -> bool {
        self.code == 409 && self.causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
    }

    /// The object has another uid than was asked for: by the precondition of a delete, or in a patch.
    pub(crate) fn is_uid_mismatch(&self) -> bool {
        match self.code {
            // Before a delete, in the storage, and of an apply to what is not there, in this order (Kubernetes 1.25 and 1.31).
            409 => ["UID in the precondition", "UID in precondition", "Precondition failed", "uid mismatch"]
                .iter()
                .any(|words| self.message.contains(words)),
            422 => self.causes.iter().any(|cause| cause.field == "metadata.uid"),
            _ => false,
        }
    }

    /// The object that was asked for by its uid does not exist: there is none, or another one has its name.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_not_found() || self.is_uid_mismatch()
    }

    /// There is an object of that name already.
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// The namespace is being deleted, so nothing can be made in it.
    pub fn is_namespace_terminating(&self) -> bool {
        self.code == 403 && self.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// A webhook or a policy of the cluster does not admit the object: it is not wrong in itself.
    pub(crate) fn is_denied_by_policy(&self) -> bool {
        self.message.contains("denied the request") || self.message.contains("ValidatingAdmissionPolicy")
    }

    /// A field that cannot be changed once set.
    pub fn is_immutable(&self) -> bool {
        let says = |text: &str| text.contains("immutable") || text.contains("updates to statefulset spec for fields");
        self.code == 422 && (says(&self.message) || self.causes.iter().any(|cause| says(&cause.message)))
    }

    /// The error without anything that could be a value: for objects whose values are secret.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        let cut = |text: &str| {
            text.find("Invalid value:")
                .map_or_else(|| text.to_owned(), |at| format!("{}Invalid value (not shown)", &text[..at]))
        };
        self.message = cut(&self.message);
        for cause in &mut self.causes {
            cause.message = cut(&cause.message);
        }
        self
    }
}

/// Returns the messages of an error and of all those behind it, the outermost first, made visible. Of a server's answer
/// that is its sentence, not every field of it.
pub fn sentences(error: &(dyn StdError + 'static)) -> Vec<String> {
    let mut said = Vec::new();
    let mut link = Some(error);
    while let Some(error) = link {
        match error.downcast_ref() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                said.push(visible_lines(&status.message).into_owned());
                break;
            }
            _ => said.push(visible_lines(&error.to_string()).into_owned()),
        }
        link = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_servers_answer_only_its_sentence_is_said() {
        let status =
            serde_json::json!({"code": 403, "reason": "Forbidden", "message": "you may not", "details": {"kind": "x"}});
        let refused = kube::Error::Api(serde_json::from_value(status).unwrap());
        assert_eq!(sentences(&refused), ["you may not"]);
    }

    #[test]
    fn a_connection_that_breaks_is_sent_again_and_a_certificate_that_is_wrong_is_not() {
        let broken =
            std::io::Error::other("peer closed connection without sending TLS close_notify: https://docs.example");
        let error = ApiError::transport(&broken);
        assert_eq!(
            (error.reason.as_str(), error.message.as_str()),
            ("Transport", "the connection was closed without an answer")
        );
        let stranger = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        assert_eq!(ApiError::transport(&stranger).reason, "Tls");
    }

    #[test]
    fn a_status_gives_reason_causes_and_the_pause() {
        let body = br#"{"kind":"Status","status":"Failure","message":"Apply failed with 1 conflict","reason":"Conflict","code":409,
            "details":{"retryAfterSeconds":3,"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl-edit\" using apps/v1","field":".spec.replicas"}]}}"#;
        let error = ApiError::answer(409, &HeaderMap::new(), body);
        assert!(error.is_conflict_with_manager() && !error.is_already_exists());
        assert_eq!(error.causes[0].field, ".spec.replicas");
        assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_page_of_html_from_a_proxy_is_not_printed() {
        let error = ApiError::answer(502, &HeaderMap::new(), b"<html><body>bad</body></html>");
        assert_eq!(error.to_string(), "Bad Gateway (502 Unknown)");
    }

    #[test]
    fn a_refused_value_of_a_secret_is_cut_off() {
        let body =
            br#"{"message":"Secret \"a\" is invalid: data[k]: Invalid value: \"hunter2\": no","reason":"Invalid"}"#;
        let error = ApiError::answer(422, &HeaderMap::new(), body).without_values();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
