//! The denial of a certificate signing request.

use crate::api::registration::validity;
use crate::api::util::text::visible_line;

/// Denial of a request; the agent logs reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// One word.
    pub reason: &'static str,
    /// For people, with the remedy where there is one.
    pub message: String,
    /// Longest validity of certificates, in seconds, where that is what the request exceeds.
    pub max_validity: Option<i32>,
}

impl Denial {
    /// Creates a denial. The message may quote a stranger's request, so control characters are escaped and it is cut.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: visible_line(&message.into()).into_owned(), max_validity: None }
    }

    /// Denial of a validity beyond `max` seconds.
    pub(super) fn of_validity(max: i32) -> Self {
        Self { max_validity: Some(max), ..Self::new(validity::NOT_ALLOWED, validity::format_denial_message(max)) }
    }
}
