//! Events, by which people are told of what was decided about an object.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

use crate::k8s::daemon_client::call;

/// What is told.
#[derive(Debug)]
pub(super) struct Note<'a> {
    /// Whether it is as it should be.
    pub(super) type_: EventType,
    /// One word for what was being done.
    pub(super) action: &'a str,
    /// One word.
    pub(super) reason: &'a str,
    /// For people.
    pub(super) text: &'a str,
}

/// Writes an event, within the time that any call may take: who waited for it for longer would do nothing else, and hold
/// the lock of names. One that is lost is no reason to fail what it tells of.
pub(super) async fn publish(recorder: &Recorder, regarding: &ObjectReference, note: Note<'_>) {
    let event = Event {
        type_: note.type_,
        reason: note.reason.to_owned(),
        note: Some(note.text.to_owned()),
        action: note.action.to_owned(),
        secondary: None,
    };
    if let Err(error) = call(recorder.publish(&event, regarding)).await {
        tracing::debug!(%error, "an event could not be written");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::time::Duration;

    use kube::Client;
    use kube::client::Body;
    use kube::runtime::events::Reporter;

    use super::*;
    use crate::k8s::daemon_client::CALL_TIMEOUT;

    #[tokio::test]
    async fn an_event_that_nobody_takes_holds_up_nothing() {
        let deaf = tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let recorder = Recorder::new(Client::new(deaf, "default"), reporter);
        let note = Note { type_: EventType::Normal, action: "Testing", reason: "Deaf", text: "nobody listens" };
        let regarding = ObjectReference::default();
        let published = publish(&recorder, &regarding, note);
        let in_time = tokio::time::timeout(CALL_TIMEOUT + Duration::from_secs(5), published).await;
        assert!(in_time.is_ok());
    }
}
