//! Applying one object: waiting for its predecessor to go, conflicts, late definitions, and the way back beforehand.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::adopt;
use super::applied::Applied;
use super::autoscaler::Scaler;
use super::conflict::{self, Conflict};
use super::delete::wait_deleted::PendingDeletion;
use super::engine::Engine;
use super::error::Error;
use super::step::{Action, Step};
use crate::api::kinds::Kind;
use crate::api::labels::KEYS_MANAGER;
use crate::inventory::journal::{Theirs, Undo};
use crate::inventory::record::Origin;
use crate::k8s::managed_fields;
use crate::k8s::object::{is_terminating, object_uid, text_at};
use crate::k8s::request::server::{ApplyOptions, MANAGER, Server};
use crate::k8s::run_event::{Done, Event};

/// Time that the API may take to serve a kind after its definition is established.
const DEFINITION_LAG: Duration = Duration::from_secs(10);
/// Time that an object that is on its way out may keep its successor waiting.
const TERMINATING: Duration = Duration::from_secs(60);

/// Largest size of a step in the journal, in bytes. A step that would be larger leaves out what can be done without.
const LARGEST_STEP: usize = 4 * 1024;

/// Reason that one object was not applied.
pub(crate) enum Failure {
    Conflicts(Vec<Conflict>),
    Error(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Conflicts(conflicts) => Error::Conflicts { conflicts },
            Self::Error(error) => error,
        }
    }
}

impl Engine {
    /// Applies one object; the answer says whether it was made.
    pub(crate) async fn apply_one(&self, server: &Server, step: &Step) -> Result<Applied, Failure> {
        if let Some(live) = step.live.as_ref().filter(|live| is_terminating(live)) {
            self.wait_for_absence(server, step, live).await.map_err(Failure::Error)?;
        }
        if step.action == Action::Adopt {
            self.take_over(server, step).await.map_err(Failure::Error)?;
        }
        let begun = Instant::now();
        let mut force = false;
        let written = loop {
            match server.apply_object(&step.kind, &step.manifest, ApplyOptions { force, dry_run: false }).await {
                Ok(written) => break written,
                Err(error) if error.is_conflict_with_manager() && !force => {
                    let live = server
                        .get_object(&step.kind, step.target.namespace.as_deref(), &step.target.name)
                        .await
                        .ok()
                        .flatten();
                    let mut found = conflict::parse_conflicts(&error, &step.target, &step.manifest, live.as_ref());
                    found.retain(|conflict| !self.may_take(conflict, step));
                    if !found.is_empty() {
                        return Err(Failure::Conflicts(found));
                    }
                    force = true;
                }
                // A definition is established a moment before its kind is served.
                Err(error) if error.is_not_found() && !is_builtin(&step.kind) && begun.elapsed() < DEFINITION_LAG => {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                Err(error) => return Err(Failure::Error(Error::for_object("apply", &step.target, error))),
            }
        };
        for message in written.warnings.iter().cloned().chain(step.describe_omissions()) {
            self.events.send_event(Event::Warning { object: step.target.clone(), message });
        }
        let before = step.live.as_ref().and_then(|live| text_at(live, "/metadata/resourceVersion"));
        // A repeated request finds what the first one made, whose answer was lost, and controllers may have written to it.
        // What a run that died had sent may have come late: nobody else has written to it then.
        let made = written.created
            || (step.action == Action::Create
                && (written.repeated
                    || managed_fields::list_managers(&written.object).iter().all(|manager| manager == MANAGER)));
        let done = match step.action {
            _ if made => Done::Created,
            Action::Adopt | Action::Create => Done::Adopted,
            _ if before == text_at(&written.object, "/metadata/resourceVersion") => Done::Unchanged,
            _ => Done::Changed,
        };
        self.events.send_event(Event::Object { object: step.target.clone(), done });
        let origin = if done == Done::Adopted { Origin::Adopted } else { Origin::Created };
        Ok(Applied::new(step, &written.object, done, origin))
    }

    /// Returns whether a field may be taken from its manager: the user said so, or somebody edited our own object by
    /// hand.
    ///
    /// An install repairs drift. Editing by hand means kubectl; controllers and other appliers keep what they hold,
    /// except for the replicas of an autoscaler that is gone.
    pub(crate) fn may_take(&self, conflict: &Conflict, step: &Step) -> bool {
        let by_hand = managed_fields::by_hand(&conflict.manager);
        // What an object had before anyone applied it server-side, and what Helm wrote: adopting was asked for.
        let former = by_hand || matches!(conflict.manager.as_str(), "before-first-apply" | "helm");
        // Keys that are ours to render again hold what was made of them in the cluster.
        let by_us = step.action == Action::Change && conflict.manager == KEYS_MANAGER;
        let left_over = step.scaler == Some(Scaler::Gone) && conflict.manager == managed_fields::AUTOSCALERS;
        conflict::may_take_field(&conflict.object, &conflict.field, &self.options.take_fields)
            || by_us
            || (left_over && conflict.field == managed_fields::REPLICAS)
            || (step.action == Action::Change && by_hand && conflict.field != managed_fields::REPLICAS)
            || (step.action == Action::Adopt && former)
    }

    async fn wait_for_absence(&self, server: &Server, step: &Step, live: &Value) -> Result<(), Error> {
        let end = Instant::now() + TERMINATING;
        let end = self.options.deadline.map_or(end, |deadline| deadline.min(end));
        let pending =
            PendingDeletion { kind: step.kind.clone(), object: step.target.clone(), uid: object_uid(live).to_owned() };
        self.wait_gone(server, vec![pending], end).await
    }

    /// The undo of applying a step to an object that an interrupted run has written to, or was about to: it was known
    /// how that is undone, and may not be what undoes this. None if nothing is to be added.
    pub(crate) async fn wider_undo(&self, server: &Server, step: &Step, known: &Undo) -> Result<Option<Undo>, Error> {
        // What was made is deleted, and what was taken over is given back as a whole.
        let Undo::Reapply { patch, theirs } = known else { return Ok(None) };
        let live = server.get_object(&step.kind, step.target.namespace.as_deref(), &step.target.name).await;
        let live = live.map_err(|e| Error::for_object("read", &step.target, e))?;
        let Some(live) = live.as_ref().filter(|live| managed_fields::owned_entry(live).is_some()) else {
            return Ok(None);
        };
        let applied = managed_fields::owned_entry(live)
            .map(|ours| managed_fields::extract_fields(live, ours))
            .unwrap_or_default();
        let mut former = applied.clone();
        managed_fields::apply_merge_patch(&mut former, patch);
        let mut wider = patch.clone();
        managed_fields::unite_patches(&mut wider, &managed_fields::merge_diff(&step.manifest, &former));
        // What somebody has set since the run that was interrupted; what was there before it comes first.
        let since = theirs_of(step, live, &applied);
        let all = match (theirs.clone(), since) {
            (Some(mut known), Some(since)) => {
                managed_fields::unite_patches(&mut known.patch, &since.patch);
                Some(known)
            }
            (known, since) => known.or(since),
        };
        Ok((wider != *patch || all != *theirs).then_some(Undo::Reapply { patch: wider, theirs: all }))
    }

    /// The undo of applying a step.
    pub(crate) async fn undo_of(&self, server: &Server, step: &Step) -> Result<Undo, Error> {
        if step.action == Action::Create {
            return Ok(Undo::Delete);
        }
        let live = server.get_object(&step.kind, step.target.namespace.as_deref(), &step.target.name).await;
        let Some(live) = live.map_err(|e| Error::for_object("read", &step.target, e))? else { return Ok(Undo::Delete) };
        Ok(match managed_fields::owned_entry(&live) {
            Some(ours) if step.action == Action::Change => {
                let applied = managed_fields::extract_fields(&live, ours);
                Undo::Reapply {
                    patch: managed_fields::merge_diff(&step.manifest, &applied),
                    theirs: theirs_of(step, &live, &applied),
                }
            }
            // Taking over drops what the former manager set and we do not: all of it is remembered.
            _ if step.action == Action::Adopt => {
                let patch = strip_server_fields(&live);
                let entries = adopt::find_tool_entries(&live, LARGEST_STEP.saturating_sub(patch.to_string().len()));
                Undo::Release { patch, entries }
            }
            _ => Undo::Release { patch: former_values(&step.manifest, &live), entries: Vec::new() },
        })
    }
}

/// Returns the values that somebody else had set in our fields and the step withdraws, with the manager who gets them
/// on an undo; none where there are none.
fn theirs_of(step: &Step, live: &Value, applied: &Value) -> Option<Theirs> {
    if step.drift.is_empty() {
        return None;
    }
    let managers: Vec<String> =
        managed_fields::list_managers(live).into_iter().filter(|manager| manager != MANAGER).collect();
    let manager = managers.iter().find(|manager| managed_fields::by_hand(manager)).or(managers.first())?.clone();
    let patch = subtract_applied_values(&former_values(&step.manifest, live), applied)?;
    Some(Theirs { manager, patch })
}

/// The values that are not in what we had applied.
fn subtract_applied_values(values: &Value, applied: &Value) -> Option<Value> {
    match (values, applied) {
        (Value::Object(values), Value::Object(applied)) => {
            let rest: serde_json::Map<String, Value> = values
                .iter()
                .filter_map(|(key, value)| {
                    Some((
                        key.clone(),
                        applied.get(key).map_or(Some(value.clone()), |known| subtract_applied_values(value, known))?,
                    ))
                })
                .collect();
            (!rest.is_empty()).then_some(Value::Object(rest))
        }
        _ => (values != applied).then(|| values.clone()),
    }
}

fn is_builtin(kind: &Kind) -> bool {
    !kind.group.contains('.') || kind.group.ends_with(".k8s.io")
}

/// The live values at the places that a manifest sets to something else: what taking fields from others would lose.
fn former_values(manifest: &Value, live: &Value) -> Value {
    let (Value::Object(manifest), Value::Object(live)) = (manifest, live) else { return live.clone() };
    let mut former = serde_json::Map::new();
    for (key, value) in manifest {
        if let Some(was) = live.get(key).filter(|was| *was != value) {
            let part = former_values(value, was);
            if part.as_object().is_none_or(|map| !map.is_empty()) {
                former.insert(key.clone(), part);
            }
        }
    }
    Value::Object(former)
}

/// A live object without what the server added, to make it again.
pub(crate) fn strip_server_fields(live: &Value) -> Value {
    let mut manifest = live.clone();
    if let Some(map) = manifest.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata
            .retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations" | "finalizers"));
    }
    if !manifest.is_object() {
        manifest = json!({});
    }
    manifest
}
