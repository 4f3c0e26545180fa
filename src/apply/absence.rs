//! Waiting until objects are gone, and saying what holds those that are not.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::engine::Engine;
use super::error::{Error, StuckObject};
use super::event::Event;
use crate::api::kinds::Kind;
use super::object::{ObjectRef, list, text, uid};
use super::server::Server;

/// After how long an object that is still there is explained.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// An object whose deletion was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) kind: Kind,
    pub(crate) object: ObjectRef,
    pub(crate) uid: String,
}

impl Engine {
    /// Waits until each of these very objects is gone. What takes long is explained by an event, once.
    pub(crate) async fn wait_gone(&self, server: &Server, doomed: Vec<Doomed>, end: Instant) -> Result<(), Error> {
        // The end is ours to keep: a request that ends with it would hide what is being waited for.
        let server = &server.until(None);
        let begun = Instant::now();
        let mut left = doomed;
        let mut explained: Vec<(ObjectRef, String)> = Vec::new();
        loop {
            let found: Vec<Result<Option<(Doomed, Value)>, Error>> = stream::iter(left)
                .map(|doomed| async move {
                    let live = server.get_metadata_or_whole(&doomed.kind, &doomed.object).await;
                    let live = live.map_err(|e| Error::on("read", &doomed.object, e))?;
                    Ok(live.filter(|live| uid(live) == doomed.uid).map(|live| (doomed, live)))
                })
                .buffer_unordered(self.options.parallel)
                .collect()
                .await;
            let found: Vec<(Doomed, Value)> =
                found.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
            if found.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let objects = found
                    .into_iter()
                    .map(|(doomed, live)| StuckObject { object: doomed.object, because: holds(&live) });
                return Err(Error::Stuck { objects: objects.collect() });
            }
            if begun.elapsed() >= EXPLAIN_AFTER {
                for (doomed, live) in &found {
                    let told = (doomed.object.clone(), holds(live));
                    if !explained.contains(&told) {
                        self.events.send(Event::Stuck { object: told.0.clone(), message: told.1.clone() });
                        explained.push(told);
                    }
                }
            }
            left = found.into_iter().map(|(doomed, _)| doomed).collect();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Server {
    /// Metadata, but the whole of a namespace: its conditions say what holds it.
    async fn get_metadata_or_whole(&self, kind: &Kind, object: &ObjectRef) -> Result<Option<Value>, super::ApiError> {
        if object.is("", "Namespace") {
            self.get(kind, None, &object.name).await
        } else {
            self.get_metadata(kind, object.namespace.as_deref(), &object.name).await
        }
    }
}

/// Whether somebody has asked for its deletion, which cannot be taken back.
pub(super) fn is_going(live: &Value) -> bool {
    text(live, "/metadata/deletionTimestamp").is_some()
}

/// What keeps an object that is being deleted: its finalizers, the conditions of a namespace, or its grace period.
pub(crate) fn holds(live: &Value) -> String {
    let remaining: Vec<&str> = list(live, "/status/conditions")
        .iter()
        .filter(|condition| text(condition, "/status") == Some("True"))
        .filter(|condition| text(condition, "/type").is_some_and(|kind| kind.starts_with("Namespace")))
        .filter_map(|condition| text(condition, "/message"))
        .collect();
    let finalizers: Vec<&str> = list(live, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if !remaining.is_empty() {
        remaining.join("; ")
    } else if !finalizers.is_empty() {
        format!("its finalizer {} has not been removed by its controller", finalizers.join(", "))
    } else if is_going(live) {
        "it is being deleted".to_owned()
    } else {
        "its deletion has not begun".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_finalizer_or_the_rest_of_a_namespace_is_named() {
        let pvc = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["kubernetes.io/pvc-protection"]}});
        assert!(holds(&pvc).contains("kubernetes.io/pvc-protection"));
        let namespace = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"conditions": [
            {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "ok"},
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances"}]}});
        assert_eq!(holds(&namespace), "Some resources are remaining: pods. has 1 resource instances");
    }
}
