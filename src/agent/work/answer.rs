//! Answers to the scheduler's questions whether what it reads of the copies is true.
//!
//! ```text
//! annotation `ask` ──> list of all copies and of all Schedules ──> what is due is applied, what differs is written
//!                                                                    └──> `status.answered` of the Cluster is the text
//! ```
//!
//! The lists are made after the question: a watch may lag, and a status may have been lost in the control plane. Secrets
//! cannot be listed; they are as they were last applied. One question is answered after the other, of several the last one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::ask::Missing;
use super::context::{Context, is_listed, object_json};
use super::index::Seen;
use super::task::CopyKey;
use super::worker::{Done, Worker, entry_of};
use crate::api::crd::schedule::ScheduleStatus;
use crate::api::labels::{API_VERSION, CLUSTER_GROUP, LABEL_PLACED_BY};
use crate::api::lenient::Lenient;
use crate::api::placeable::Placeable;
use crate::api::{Cluster, Schedule};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::request::pages::all_pages;

/// Field manager of the answer, so that it is written without the rest of the Cluster's status.
const ANSWER_MANAGER: &str = "fleet-agent-answer";

/// Copies and statuses as the servers have them.
#[derive(Debug, Default)]
pub struct Look {
    /// Copies by kind.
    copies: Vec<(&'static Placeable, Vec<(CopyKey, Seen)>)>,
    /// Name, UID and status of each Schedule.
    stored: Vec<(String, String, ScheduleStatus)>,
}

/// Lists the copies of some kinds, then the Schedules.
///
/// # Errors
/// The first list that failed: half of what exists proves nothing.
async fn list_everything(context: &Context, kinds: Vec<&'static Placeable>) -> Result<Look, CallError> {
    let mut look = Look::default();
    let label = format!("{LABEL_PLACED_BY}={}", context.placed_by);
    for kind in kinds {
        let api: Api<DynamicObject> = context.all_namespaces_api(kind);
        let listed = all_pages(ListParams::default().labels(&label), |page| {
            let api = api.clone();
            async move { call_with_timeout(api.list(&page)).await }
        });
        let found = match listed.await {
            Ok(found) => found,
            // A kind that is not served has no copies.
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error),
        };
        look.copies.push((kind, found.iter().map(|object| read_copy(kind, object)).collect()));
    }
    let api: Api<Lenient<Schedule>> = Api::namespaced(context.control_plane.clone(), &context.namespace);
    let stored = all_pages(ListParams::default(), |page| {
        let api = api.clone();
        async move { call_with_timeout(api.list(&page)).await }
    });
    look.stored = stored.await?.into_iter().map(read_stored_status).collect();
    Ok(look)
}

fn read_copy(kind: &'static Placeable, object: &DynamicObject) -> (CopyKey, Seen) {
    let key = CopyKey::new(kind, object.namespace().as_deref(), &object.name_any());
    (key, Seen::of(&object_json(object, &kind.api_version(), kind.kind)))
}

/// Returns name, UID and status of a Schedule.
fn read_stored_status(Lenient(schedule): Lenient<Schedule>) -> (String, String, ScheduleStatus) {
    (schedule.name_any(), schedule.uid().unwrap_or_default(), schedule.status.unwrap_or_default())
}

/// Writes an answer into the status of the Cluster.
async fn write_answer(context: &Context, text: &str) -> Result<(), CallError> {
    let object = json!({
        "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
        "kind": "Cluster",
        "metadata": { "name": context.cluster },
        "status": { "answered": text },
    });
    let clusters: Api<Cluster> = Api::all(context.control_plane.clone());
    let params = PatchParams::apply(ANSWER_MANAGER).force();
    call_with_timeout(clusters.patch_status(&context.cluster, &params, &Patch::Apply(object))).await.map(drop)
}

impl Worker {
    /// Goes on with the answer to a question.
    pub(super) fn advance_answer(&mut self, now: Instant) {
        if self.synced && self.namespaces.are_known() && self.answers.begin_look(now) {
            let targets = self.entries.values().filter_map(|entry| entry.task.target.as_ref().ok());
            let kinds: BTreeMap<_, _> = targets
                .filter(|target| is_listed(target.kind))
                .map(|target| ((target.kind.group, target.kind.kind), target.kind))
                .collect();
            let context = self.context.clone();
            self.operations
                .spawn(async move { Done::Looked(list_everything(&context, kinds.into_values().collect()).await) });
        }
        let entries = &self.entries;
        let answer = self.answers.take_states(|name| {
            let entry = entries.get(name)?;
            let is_busy = entry.running || entry.writing || entry.next.is_some_and(|at| at <= now);
            let differs = entry.status != entry.reported;
            if is_busy { Some(Missing::Work) } else { differs.then_some(Missing::Write) }
        });
        for name in self.answers.unwritten() {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.write_status_at(now);
            }
        }
        if let Some(text) = answer {
            let context = self.context.clone();
            self.operations.spawn(async move {
                let result = write_answer(&context, &text).await;
                Done::Answered { text, result }
            });
        }
    }

    /// Compares the copies and statuses that were listed with what is known.
    pub(super) fn on_looked(&mut self, result: Result<Look, CallError>) {
        let now = Instant::now();
        let look = match result {
            Ok(look) => look,
            Err(error) => {
                if self.logged.record_if_changed("ask", &error.to_string()) {
                    tracing::warn!(%error, "listing copies and Schedules for the scheduler failed; will retry");
                }
                self.answers.record_failure(now);
                return;
            }
        };
        for (kind, copies) in look.copies {
            let listed: BTreeSet<CopyKey> = copies.iter().map(|(key, _)| key.clone()).collect();
            for (key, seen) in copies {
                if self.index.get(&key).is_some_and(|known| known.uid == seen.uid) {
                    if self.index.put_copy(key.clone(), seen) {
                        self.on_copy(&key);
                    }
                } else if let Some(entry) = entry_of(&self.by_key, &mut self.entries, &key) {
                    entry.work_at(now);
                }
            }
            for entry in self.entries.values_mut() {
                let key = entry.task.key().filter(|key| (key.group, key.kind) == (kind.group, kind.kind));
                let is_missing = key.is_some_and(|key| !listed.contains(key));
                let is_expected =
                    entry.baseline.is_some() || entry.status.available.is_some_and(|available| available > 0);
                if is_missing && is_expected && !entry.task.deleting && !entry.is_over() {
                    entry.work_at(now);
                }
            }
        }
        let mut names = Vec::new();
        for (name, uid, stored) in look.stored {
            if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.task.uid == uid) {
                entry.take_stored_status(stored);
                names.push(name);
            }
        }
        self.answers.end_look(names.into_iter());
    }

    pub(super) fn on_answered(&mut self, text: String, result: Result<(), CallError>) {
        let failure = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if self.logged.record_if_changed("ask", &failure) && !failure.is_empty() {
            tracing::warn!(error = failure, "answering the scheduler failed; will retry");
        }
        if result.is_ok() {
            tracing::debug!(text, at = %Timestamp::now(), "answered the scheduler");
            self.answers.record_answer(text);
        } else {
            self.answers.record_failure(Instant::now());
        }
    }
}
