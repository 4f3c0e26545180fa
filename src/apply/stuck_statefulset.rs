//! Rolling out what has never worked: a set of pods continues to the next only when the one before is ready, which
//! those of a revision that cannot start never are.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::engine::Engine;
use super::error::Error;
use crate::api::kinds::Kind;
use crate::k8s::object::{ObjectRef, items_at, number_at, object_label, object_uid, status_condition, text_at};
use crate::k8s::request::server::Selection;
use crate::k8s::run_event::Event;

/// Time that the controller may take to see a change.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The label by which a set tells its revisions apart.
const REVISION: &str = "controller-revision-hash";

impl Engine {
    /// Deletes the pods of former revisions of a stateful set of several, where none of its pods is ready: its controller
    /// replaces one, and then waits for a quorum that the others do not let come about.
    ///
    /// # Errors
    /// Reads that the server refuses. A pod that cannot be deleted is reported as a warning.
    pub async fn replace_broken_pods(&self, set: &ObjectRef) -> Result<(), Error> {
        let (server, sets, pods) =
            (self.server(), Kind::from_table("apps", "StatefulSet"), Kind::from_table("", "Pod"));
        let end = Instant::now() + SEEN_WITHIN;
        let live = loop {
            let live = server.get_object(&sets, set.namespace.as_deref(), &set.name).await;
            let Some(live) = live.map_err(|e| Error::for_object("read", set, e))? else { return Ok(()) };
            let seen = number_at(&live, "/status/observedGeneration") >= number_at(&live, "/metadata/generation");
            if seen || Instant::now() >= end {
                break live;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let Some(revision) = text_at(&live, "/status/updateRevision") else { return Ok(()) };
        let selector = self.owner.owner_selector();
        let selection =
            Selection { namespace: set.namespace.as_deref(), labels: Some(&selector), ..Selection::default() };
        let found = server.list_objects(&pods, &selection).await.map_err(|e| Error::from_api_error("list pods", e))?;
        let of_set = found.iter().filter(|pod| {
            items_at(pod, "/metadata/ownerReferences")
                .iter()
                .any(|owner| text_at(owner, "/uid") == Some(object_uid(&live)))
        });
        let of_set: Vec<&Value> = of_set.collect();
        if of_set.len() < 2 || of_set.iter().any(|pod| is_ready(pod)) {
            return Ok(());
        }
        for pod in of_set.into_iter().filter(|pod| object_label(pod, REVISION) != Some(revision)) {
            let Some(object) = ObjectRef::of(pod) else { continue };
            if let Err(error) = server.delete_object(&pods, &object, object_uid(pod)).await {
                let message = format!("pod of an old revision blocks the rollout: {error}");
                self.events.send_event(Event::Warning { object, message });
            }
        }
        Ok(())
    }
}

fn is_ready(pod: &Value) -> bool {
    status_condition(pod, "Ready").is_some_and(|ready| text_at(ready, "/status") == Some("True"))
}
