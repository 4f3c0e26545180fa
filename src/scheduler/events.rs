//! Kubernetes Events about decisions on an object.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

use crate::k8s::connect::daemon_client::call_with_timeout;

/// An event to write.
#[derive(Debug)]
pub(super) struct NewEvent<'a> {
    /// Normal, or Warning.
    pub(super) type_: EventType,
    /// One word for the activity.
    pub(super) action: &'a str,
    /// One word.
    pub(super) reason: &'a str,
    /// For people.
    pub(super) message: &'a str,
}

/// Writes an event, within the timeout of any call: the caller holds the lock of names. An event that is lost is no reason
/// to fail what it is about.
pub(super) async fn publish_event(recorder: &Recorder, regarding: &ObjectReference, new: NewEvent<'_>) {
    let event = Event {
        type_: new.type_,
        reason: new.reason.to_owned(),
        note: Some(new.message.to_owned()),
        action: new.action.to_owned(),
        secondary: None,
    };
    if let Err(error) = call_with_timeout(recorder.publish(&event, regarding)).await {
        tracing::debug!(%error, "writing an event failed");
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
    use crate::k8s::connect::daemon_client::CALL_TIMEOUT;

    #[tokio::test]
    async fn an_unanswered_event_times_out() {
        let deaf = tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let recorder = Recorder::new(Client::new(deaf, "default"), reporter);
        let new = NewEvent { type_: EventType::Normal, action: "Testing", reason: "Deaf", message: "nobody listens" };
        let regarding = ObjectReference::default();
        let published = publish_event(&recorder, &regarding, new);
        let in_time = tokio::time::timeout(CALL_TIMEOUT + Duration::from_secs(5), published).await;
        assert!(in_time.is_ok());
    }
}
