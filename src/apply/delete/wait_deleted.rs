//! Waits until objects are deleted, and reports what blocks the others.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::report::ObjectReason;
use super::stuck_deletion::{HoldFinder, Survey};
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::k8s::object::{ObjectRef, object_uid};
use crate::k8s::request::server::Server;
use crate::k8s::run_event::Event;

/// Time after which an object that is still there is explained.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);
/// Interval of the polls.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// An object whose deletion was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingDeletion {
    pub(crate) kind: Kind,
    pub(crate) object: ObjectRef,
    pub(crate) uid: String,
}

impl Engine {
    /// Waits until each of these very objects is gone. What takes long is explained by an event, once.
    pub(crate) async fn wait_gone(
        &self,
        server: &Server,
        pending: Vec<PendingDeletion>,
        end: Instant,
    ) -> Result<(), Error> {
        // The end is ours to keep: a request that ends with it would hide what is being waited for.
        let server = &server.with_deadline(None);
        let begun = Instant::now();
        let mut left = pending;
        let mut survey = Survey::default();
        let holds = HoldFinder { owner: &self.owner, parallel: self.options.parallel };
        let mut explained: Vec<(ObjectRef, String)> = Vec::new();
        loop {
            let found: Vec<Result<Option<(PendingDeletion, Value)>, Error>> = stream::iter(left)
                .map(|pending| async move {
                    let live = server.get_metadata_or_whole(&pending.kind, &pending.object).await;
                    let live = live.map_err(|e| Error::for_object("read", &pending.object, e))?;
                    Ok(live.filter(|live| object_uid(live) == pending.uid).map(|live| (pending, live)))
                })
                .buffer_unordered(self.options.parallel)
                .collect()
                .await;
            let found: Vec<(PendingDeletion, Value)> =
                found.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
            if found.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let mut objects = Vec::new();
                for (pending, live) in found {
                    let because = holds.explain_hold(server, &pending.object, &live, &mut survey).await;
                    objects.push(ObjectReason { object: pending.object, reason: because });
                }
                return Err(Error::Stuck { objects });
            }
            if begun.elapsed() >= EXPLAIN_AFTER {
                for (pending, live) in &found {
                    let told =
                        (pending.object.clone(), holds.explain_hold(server, &pending.object, live, &mut survey).await);
                    if !explained.contains(&told) {
                        self.events.send_event(Event::Stuck { object: told.0.clone(), message: told.1.clone() });
                        explained.push(told);
                    }
                }
            }
            left = found.into_iter().map(|(pending, _)| pending).collect();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Server {
    /// Metadata, but the whole of a namespace: its conditions say what blocks its deletion.
    async fn get_metadata_or_whole(
        &self,
        kind: &Kind,
        object: &ObjectRef,
    ) -> Result<Option<Value>, crate::k8s::ApiError> {
        if object.is_kind("", "Namespace") {
            self.get_object(kind, None, &object.name).await
        } else {
            self.get_metadata(kind, object.namespace.as_deref(), &object.name).await
        }
    }
}
