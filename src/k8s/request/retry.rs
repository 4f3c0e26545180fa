//! The one policy of repeats: which failures can heal, how often and for how long a request is sent again, and who is told.
//!
//! kubectl is the measure: it sends a read again up to ten times, after a second each or the time that the server asks for,
//! where a connection broke or a server asked to come back. What kubectl gets through, every command gets through.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::api_error::ApiError;
use super::transport_error::{TIMEOUT, TRANSPORT, UNREACHED};
use crate::k8s::backoff::Backoff;
use crate::k8s::run_event::{Event, Events};

/// Number of times that a request is sent whose connection breaks, or whose server asks to come back: kubectl repeats it
/// ten times.
const PATIENT_TRIES: u32 = 11;
/// Number of times that any other request is sent.
const TRIES: u32 = 6;
/// Number of times that a server is called that does not take the connection: most of these are switched off.
const UNREACHED_TRIES: u32 = 5;
/// Time after which a server is not called any more that does not take the connection.
const UNREACHED_PATIENCE: Duration = Duration::from_secs(5);
/// Pauses: the first, doubled up to the longest. Ten of them take at least as long as ten seconds of kubectl's.
const FIRST: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(3);
/// The longest pause that a server can ask for.
const RETRY_AFTER_CAP: Duration = Duration::from_secs(60);
/// Time after which a request without a deadline is not sent again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true where the same request can succeed when it is sent again.
///
/// Every request of this room may be repeated: applies and merges give the same result twice, deletes carry a uid, and
/// the only creation (the journal's) recognises itself.
pub(crate) fn can_heal(error: &ApiError) -> bool {
    match error.code {
        0 => matches!(error.reason.as_str(), TRANSPORT | UNREACHED | TIMEOUT),
        // 500: a webhook or the storage had a hiccup.
        408 | 429 | 500 | 502 | 503 | 504 => true,
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

/// Returns true where the server has certainly not acted on the request, so that any request may be sent again.
pub(crate) fn was_not_taken(error: &ApiError) -> bool {
    error.code == 429 || error.code == 0 && error.reason == UNREACHED
}

/// Retries of one request.
#[derive(Debug)]
pub(crate) struct Retries {
    /// Point in time after which nothing is sent again.
    deadline: Option<Instant>,
    began: Instant,
    tries: u32,
    backoff: Backoff,
}

impl Retries {
    /// Without a deadline, nothing is sent again after [`PATIENCE`], except for one more try after a time-out.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, began: Instant::now(), tries: 0, backoff: Backoff::new(FIRST, CAP) }
    }

    /// Number of times that the request was sent.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the pause before the next try, or nothing when this error is the answer.
    pub(crate) fn next_pause(&mut self, error: &ApiError) -> Option<Duration> {
        self.tries += 1;
        let is_unreached = error.code == 0 && error.reason == UNREACHED;
        let is_broken = error.code == 0 && error.reason == TRANSPORT;
        let most = match error.retry_after {
            Some(_) => PATIENT_TRIES,
            None if is_broken => PATIENT_TRIES,
            None if is_unreached => UNREACHED_TRIES,
            None => TRIES,
        };
        if self.tries >= most || !can_heal(error) || is_unreached && self.began.elapsed() > UNREACHED_PATIENCE {
            return None;
        }
        let jitter = self.backoff.next_wait();
        let asked = error.retry_after.map(|pause| pause.min(RETRY_AFTER_CAP));
        // The jitter is added to what the server asked for, or all clients come back in the same moment.
        let pause = asked.map_or(jitter, |asked| asked + jitter.min(Duration::from_millis(250)));
        let is_second_chance = self.tries < 2 && error.code == 0 && error.reason == TIMEOUT;
        let is_in_time = match self.deadline {
            Some(deadline) => Instant::now() + pause < deadline,
            None => is_second_chance || self.began.elapsed() + pause < PATIENCE,
        };
        is_in_time.then_some(pause)
    }

    /// Reports a request that has failed twice and is sent again.
    pub(crate) fn report_retry(&self, events: &Events, request: impl FnOnce() -> String, error: &ApiError) {
        if self.tries >= 2 {
            events.send_event(Event::Retrying { request: request(), tries: self.tries, error: error.to_string() });
        }
    }
}

/// Mark of a request whose sender retries it by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfRetrying;

/// Receiver of the retries of reads that have no [`Events`] of their own.
static RECEIVER: OnceLock<Events> = OnceLock::new();

/// Has the retries of reads reported to `events`, from now to the end of the process. Only the first call counts.
pub fn report_retries_to(events: Events) {
    let _ = RECEIVER.set(events);
}

/// The receiver of the retries of reads; without one they are logged.
pub(super) fn retry_events() -> Events {
    RECEIVER.get().cloned().unwrap_or_else(|| {
        Events::new(|numbered| {
            if let Event::Retrying { request, tries, error } = numbered.event {
                tracing::warn!(request, tries, error, "retrying a read request");
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::transport_error::TLS;
    use super::*;
    use http::HeaderMap;

    fn answer(code: u16, body: &str) -> ApiError {
        ApiError::from_answer(code, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn tries_and_deadline_limit_retries() {
        let mut retries = Retries::new(None);
        let pauses: Vec<_> = std::iter::from_fn(|| retries.next_pause(&answer(503, ""))).collect();
        assert_eq!((pauses.len(), retries.tries()), (5, 6));
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
        let moved = r#"{"kind":"Status","reason":"Conflict","message":"Operation cannot be fulfilled: the object has been modified; please apply your changes"}"#;
        assert!(can_heal(&answer(409, moved)));
        let held = r#"{"kind":"Status","reason":"Conflict","message":"x","details":{"causes":[{"reason":"FieldManagerConflict","field":".a"}]}}"#;
        assert!(!can_heal(&answer(409, held)));
        for (code, heals) in [
            (400, false),
            (401, false),
            (403, false),
            (404, false),
            (422, false),
            (408, true),
            (500, true),
            (504, true),
        ] {
            assert_eq!(can_heal(&answer(code, "")), heals, "{code}");
        }
    }

    #[test]
    fn tls_errors_are_not_retried() {
        let error = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let error = ApiError::from_transport_error(&error);
        assert_eq!(error.reason, TLS);
        assert!(!can_heal(&error));
        assert!(can_heal(&ApiError::from_transport_error(&std::io::Error::other("connection refused"))));
    }

    fn list_pauses(error: &ApiError) -> Vec<Duration> {
        let mut retries = Retries::new(None);
        std::iter::from_fn(|| retries.next_pause(error)).collect()
    }

    #[test]
    fn broken_connections_get_the_patience_of_kubectl() {
        let [broken, refused] = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::ConnectionRefused]
            .map(|kind| list_pauses(&ApiError::from_transport_error(&std::io::Error::from(kind))));
        assert_eq!(broken.len(), 10);
        assert!(broken.iter().sum::<Duration>() >= Duration::from_secs(10), "{broken:?}");
        assert!((1..4).contains(&refused.iter().sum::<Duration>().as_secs()), "{refused:?}");
        let mut asks = answer(503, "");
        asks.retry_after = Some(Duration::from_secs(1));
        assert_eq!(list_pauses(&asks).len(), 10);
        let mut asks_too_much = answer(429, "");
        asks_too_much.retry_after = Some(Duration::from_secs(600));
        assert!(list_pauses(&asks_too_much).is_empty());
    }
}
