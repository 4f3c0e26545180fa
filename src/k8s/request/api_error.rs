//! Errors of a Kubernetes API server, or of the way to it, when it does not do what was asked.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use super::foreign::check_origin;
use super::transport_error::{NOT_KUBERNETES, TIMEOUT};
use crate::api::util::text::{contains_any, visible_cell, visible_lines};
use crate::k8s::object::{items_at, text_at};

/// One cause in a `Status`: a field with its error, or with the manager that owns it.
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
    /// The `Status` reason, such as `NotFound`; without an answer `Transport`, `Unreached`, `Tls`, `Auth`, `Timeout` or
    /// `Unreadable`; `NotKubernetes` for one of something else.
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
        // A sentence about a stranger has the status in it.
        if self.code > 0 && self.reason != NOT_KUBERNETES {
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
    pub(crate) fn new_synthetic(code: u16, reason: &str, message: String) -> Self {
        Self { code, reason: reason.to_owned(), message, causes: Vec::new(), retry_after: None, tries: 1 }
    }

    pub(crate) fn from_timeout(limit: Duration) -> Self {
        Self::new_synthetic(0, TIMEOUT, format!("no answer from the API server within {} s", limit.as_secs().max(1)))
    }

    /// An answer with a status of 300 or more: a `Status`, a few words of the server, or anything from something before it.
    pub(crate) fn from_answer(code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let seconds = headers.get("retry-after").and_then(|v| v.to_str().ok()?.trim().parse().ok());
        let seconds = seconds.or_else(|| status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64));
        let retry_after = seconds.map(Duration::from_secs);
        if let Err(foreign) = check_origin("", code, headers, body) {
            return Self { retry_after, ..Self::from_foreign(&foreign) };
        }
        Self {
            code,
            reason: text_at(&status, "/reason").filter(|r| !r.is_empty()).unwrap_or("Unknown").to_owned(),
            message: text_at(&status, "/message")
                .filter(|m| !m.is_empty())
                .map_or_else(|| describe_body(code, body), str::to_owned),
            causes: items_at(&status, "/details/causes")
                .iter()
                .map(|cause| Cause {
                    reason: text_at(cause, "/reason").unwrap_or_default().to_owned(),
                    field: text_at(cause, "/field").unwrap_or_default().to_owned(),
                    message: text_at(cause, "/message").unwrap_or_default().to_owned(),
                })
                .collect(),
            retry_after,
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
        Self { causes: causes.collect(), ..Self::new_synthetic(status.code, reason, status.message.clone()) }
    }

    pub(crate) fn with_tries(self, tries: u32) -> Self {
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
            // One that has another resourceVersion only is there.
            409 if self.message.contains("ResourceVersion in precondition") => false,
            409 => contains_any(
                &self.message,
                &["UID in the precondition", "UID in precondition", "Precondition failed", "uid mismatch"],
            ),
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
        let mut texts = self.causes.iter().map(|cause| &cause.message).chain([&self.message]);
        self.code == 422
            && texts.any(|text| contains_any(text, &["immutable", "updates to statefulset spec for fields"]))
    }

    /// The error without the values that it refuses; what is wrong with them is kept.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.message = hide_values(&self.message);
        for cause in &mut self.causes {
            cause.message = hide_values(&cause.message);
        }
        self
    }
}

/// The text of an answer without a message, or what its status code means.
fn describe_body(code: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let phrase = http::StatusCode::from_u16(code).ok().and_then(|c| c.canonical_reason()).unwrap_or("refused");
    if text.trim().is_empty() { phrase.to_owned() } else { text.trim().to_owned() }
}

/// Words in front of a value that an API server refuses.
const REFUSED_VALUES: [&str; 3] = ["Invalid value: ", "Duplicate value: ", "Unsupported value: "];

/// Returns a server's sentence without the values in it. What does not end is left out to the end of the sentence.
fn hide_values(message: &str) -> String {
    let mut shown = String::new();
    let mut rest = message;
    while let Some((at, words)) =
        REFUSED_VALUES.iter().filter_map(|words| Some((rest.find(words)?, *words))).min_by_key(|(at, _)| *at)
    {
        shown.push_str(&rest[..at]);
        shown.push_str(words.trim_end_matches(": "));
        shown.push_str(" (not shown)");
        let behind = &rest[at + words.len()..];
        rest = end_of_value(behind).map_or("", |end| &behind[end..]);
    }
    shown.push_str(rest);
    shown
}

/// Returns where a value ends that is printed as Go or JSON print it: before the colon, the comma or the bracket behind it, outside
/// of quotes and brackets.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' | '(' => depth += 1,
            '}' | ')' | ']' if depth > 0 => depth -= 1,
            ']' => return Some(at),
            ':' | ',' if depth == 0 && text[at + 1..].starts_with(' ') => return Some(at),
            _ => {}
        }
    }
    // A value without anything behind it.
    (depth == 0 && !quoted).then_some(text.len())
}

/// Returns the messages of an error and of all those behind it, the outermost first, made visible. Of a server's answer
/// that is its sentence, not every field of it.
pub fn error_sentences(error: &(dyn StdError + 'static)) -> Vec<String> {
    let mut said = Vec::new();
    let mut link = Some(error);
    while let Some(error) = link {
        match error.downcast_ref() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                said.push(visible_lines(&status.message).into_owned());
                break;
            }
            // It only says that there is an error, which comes next.
            Some(kube::Error::Service(_)) => {}
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
        assert_eq!(error_sentences(&refused), ["you may not"]);
    }

    #[test]
    fn a_status_gives_reason_causes_and_the_pause() {
        let body = br#"{"kind":"Status","status":"Failure","message":"Apply failed with 1 conflict","reason":"Conflict","code":409,
            "details":{"retryAfterSeconds":3,"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl-edit\" using apps/v1","field":".spec.replicas"}]}}"#;
        let error = ApiError::from_answer(409, &HeaderMap::new(), body);
        assert!(error.is_conflict_with_manager() && !error.is_already_exists());
        assert_eq!(error.causes[0].field, ".spec.replicas");
        assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_page_of_html_from_a_proxy_is_not_printed() {
        let error = ApiError::from_answer(502, &HeaderMap::new(), b"<html><body>bad</body></html>");
        let told = "something in front of the API server answers 502 Bad Gateway with unexpected content: \"bad\"";
        assert_eq!((error.to_string().as_str(), error.code), (told, 502));
        let missing = ApiError::from_answer(404, &HeaderMap::new(), b"<html><body>no such page</body></html>");
        assert!(!missing.is_not_found(), "a page does not tell that an object is missing");
    }

    fn message_without_values(message: &str) -> String {
        let body = serde_json::json!({"kind": "Status", "message": message, "reason": "Invalid"}).to_string();
        ApiError::from_answer(422, &HeaderMap::new(), body.as_bytes()).without_values().message
    }

    #[test]
    fn a_refused_value_is_not_shown_and_what_is_wrong_with_it_is() {
        let pod = r#"core.PodTemplateSpec{Env:[]core.EnvVar{core.EnvVar{Name:"P", Value:"hunter2: \"}]"}}, At:time.Date(1, 1)}"#;
        for (value, behind) in [
            (r#""hunter2""#, ": no"),
            (pod, ": field is immutable"),
            (r#"{"env":[{"name":"P","value":"hunter2"}]}"#, ": field is immutable"),
            ("hunter2", ": must be positive"),
            (r#""hunter2""#, ""),
            (r#""hunter2"#, ""),
            ("{hunter2", ""),
        ] {
            let said = message_without_values(&format!("Job \"a\" is invalid: spec.b: Invalid value: {value}{behind}"));
            assert_eq!(said, format!("Job \"a\" is invalid: spec.b: Invalid value (not shown){behind}"));
        }
        let two = message_without_values(
            r#"[a: Duplicate value: "hunter2", b: Unsupported value: "hunter2": supported values: "x"]"#,
        );
        assert_eq!(two, r#"[a: Duplicate value (not shown), b: Unsupported value (not shown): supported values: "x"]"#);
    }
}
