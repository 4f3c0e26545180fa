//! Undoing one step of a journal: the object is deleted, gets its former fields back, or is recreated.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::journal_check::{self, FOREIGN, RECORDED, Source};
use super::lost_journal::values_lost;
use super::recorded_release::Former;
use super::wait_deleted::PendingDeletion;
use crate::api::kinds::{Kind, split_api_version};
use crate::apply::conflict;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::apply::object::strip_server_fields;
use crate::inventory::journal::{JournalStep, Theirs, Undo};
use crate::inventory::record::State;
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, is_terminating, object_label, object_uid, text_at};
use crate::k8s::request::server::{ApplyOptions, Server};
use crate::k8s::run_event::{Done, Event};

/// Outcome of undoing a step.
pub(crate) enum StepOutcome {
    /// There was nothing to undo.
    Nothing,
    /// It is not changed, for this reason.
    Stays(&'static str),
    Restored,
    Deleted(PendingDeletion),
    Recreated(String),
}

impl StepOutcome {
    /// Outcome of an object that was restored: nothing where the write changed nothing, because the step was recorded
    /// and never done, or undone before.
    fn from_restored_object(live: &Value, restored: &Value) -> Self {
        let [before, after] = [live, restored].map(|object| text_at(object, "/metadata/resourceVersion"));
        if before == after { Self::Nothing } else { Self::Restored }
    }
}

/// An object without a single field: applying it lets go of all of ours.
fn identity_manifest(live: &Value) -> Value {
    let (group, version) = split_api_version(text_at(live, "/apiVersion").unwrap_or_default());
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut metadata = json!({"name": text_at(live, "/metadata/name")});
    if let Some(namespace) = text_at(live, "/metadata/namespace") {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": api_version, "kind": text_at(live, "/kind"), "metadata": metadata})
}

impl Engine {
    /// Undoes one step. `former` is the recorded release, for steps that are undone from it.
    ///
    /// # Errors
    /// Whatever the server refuses; [`Error::NotRendered`] where the former state is to be had from the recorded release
    /// only, and is not.
    pub(crate) async fn undo_step(
        &self,
        server: &Server,
        step: &JournalStep,
        state: &State,
        former: &Former,
    ) -> Result<StepOutcome, Error> {
        let target = &step.object;
        let kind = server.kind_of(&step.api_version, &target.kind).await;
        let kind = match kind {
            Ok(kind) => kind,
            // The definition of this kind was made by the same run and is gone with its objects.
            Err(error) if error.is_not_found() => return Ok(StepOutcome::Nothing),
            Err(error) => return Err(Error::for_object("find the kind of", target, error)),
        };
        let live = server.get_object(&kind, target.namespace.as_deref(), &target.name).await;
        let live = live.map_err(|e| Error::for_object("read", target, e))?;
        let source = step.restore_source();
        match (&step.undo, live) {
            (undo, Some(_)) if source == Source::Journal && undo.is_without_values() => {
                Err(Error::Input(values_lost(target)))
            }
            (_, Some(live)) if state.is_recorded_earlier(step, object_uid(&live)) => Ok(StepOutcome::Stays(RECORDED)),
            (Undo::Delete, Some(live)) if self.is_undoable(step, &live, state) => {
                let uid = object_uid(&live).to_owned();
                server.delete_object(&kind, target, &uid).await.map_err(|e| Error::for_object("delete", target, e))?;
                self.events.send_event(Event::Object { object: target.clone(), done: Done::Deleted });
                Ok(StepOutcome::Deleted(PendingDeletion { kind, object: target.clone(), uid }))
            }
            (Undo::Reapply { .. }, Some(live)) if !self.is_undoable(step, &live, state) => {
                Ok(StepOutcome::Stays(FOREIGN))
            }
            (Undo::Reapply { .. }, Some(live)) if source == Source::Release => {
                let restored =
                    self.reapply_manifest(server, &kind, target, former.former_manifest(target, Some(&live))?).await?;
                Ok(StepOutcome::from_restored_object(&live, &restored))
            }
            (Undo::Reapply { patch, theirs }, Some(live)) => {
                let mut former = managed_fields::owned_entry(&live)
                    .map_or_else(|| identity_manifest(&live), |ours| managed_fields::extract_fields(&live, ours));
                managed_fields::apply_merge_patch(&mut former, patch);
                if !step.witnessed && !self.owner.has_owner_labels(&former) {
                    return Err(Error::Input(format!("{target} would lose the labels of this installation")));
                }
                // First, so that what is not ours to give back has an owner when we let go of it.
                if let Some(Theirs { manager, patch }) = theirs {
                    if step.witnessed {
                        let merged = server.merge_as(manager, &kind, target, patch).await;
                        merged.map_err(|e| Error::for_object("restore", target, e))?;
                    } else {
                        let message = "values set by other field managers are not restored: they are recorded only \
                                       in the in-cluster journal, which is not trusted";
                        self.events.send_event(Event::Warning { object: target.clone(), message: message.to_owned() });
                    }
                }
                let restored = self.reapply_manifest(server, &kind, target, &former).await?;
                Ok(StepOutcome::from_restored_object(&live, &restored))
            }
            (Undo::Release { .. }, Some(live)) if !step.uid.is_empty() && step.uid != object_uid(&live) => {
                Ok(StepOutcome::Nothing)
            }
            // What has no fields of ours was never taken over; who says so otherwise is not believed.
            (Undo::Release { .. }, Some(live)) if !step.witnessed && managed_fields::owned_entry(&live).is_none() => {
                Ok(StepOutcome::Nothing)
            }
            // Without a uid it was made by others while the run was at work, and had no former fields.
            (Undo::Release { patch, entries }, Some(live))
                if step.witnessed || source == Source::Journal && !step.uid.is_empty() =>
            {
                self.release_ownership(server, &kind, target, &live, patch, entries).await?;
                Ok(StepOutcome::Restored)
            }
            (Undo::Release { patch, .. }, Some(live)) => {
                if patch.as_object().is_none_or(|patch| !patch.is_empty()) {
                    let message = "its former fields are not restored: they are recorded only in the in-cluster \
                                   journal, which is not trusted";
                    self.events.send_event(Event::Warning { object: target.clone(), message: message.to_owned() });
                }
                self.release_ownership(server, &kind, target, &live, &self.without_labels(&live), &[]).await?;
                Ok(StepOutcome::Restored)
            }
            // It was to be deleted, and was not; or an undoing that was interrupted has made it again.
            (Undo::Recreate { manifest }, live)
                if live.as_ref().is_none_or(|live| self.is_undoable(step, live, state) && !is_terminating(live)) =>
            {
                let manifest =
                    if source == Source::Release { former.former_manifest(target, live.as_ref())? } else { manifest };
                let made = self.reapply_manifest(server, &kind, target, manifest).await?;
                Ok(StepOutcome::Recreated(object_uid(&made).to_owned()))
            }
            // It never came to be, is gone, or is somebody else's by now.
            _ => Ok(StepOutcome::Nothing),
        }
    }

    /// Returns whether a live object may be deleted or written to by this step. That of a journal out of a cluster has
    /// no record beside it that says more: both lie in one Secret.
    pub(crate) fn is_undoable(&self, step: &JournalStep, live: &Value, state: &State) -> bool {
        if step.witnessed {
            return self.is_ours(live, &step.object, state);
        }
        self.owner.has_owner_labels(live) && managed_fields::owned_entry(live).is_some()
    }

    /// The merge patch that takes our labels off, where they are ours.
    fn without_labels(&self, live: &Value) -> Value {
        let labels =
            self.owner.owner_labels().into_iter().filter(|(key, value)| object_label(live, key) == Some(value));
        let nulls: serde_json::Map<String, Value> = labels.map(|(key, _)| (key.to_owned(), Value::Null)).collect();
        json!({"metadata": {"labels": nulls}})
    }

    /// Gives back what was taken over: our fields go, and those of its former managers are as they were and theirs.
    async fn release_ownership(
        &self,
        server: &Server,
        kind: &Kind,
        target: &ObjectRef,
        live: &Value,
        former: &Value,
        entries: &[Value],
    ) -> Result<(), Error> {
        let patch = match server.apply_object(kind, &identity_manifest(live), ApplyOptions::default()).await {
            Ok(_) => former.clone(),
            // Some fields cannot be let go of, for no such object can be without them: the containers of a workload.
            Err(error) if error.code == 422 && managed_fields::owned_entry(live).is_some() => {
                self.remove_managed_fields(server, kind, target).await?;
                // Of a whole object it is known, too, what has to go.
                let whole = former.get("kind").is_some();
                if whole { managed_fields::merge_diff(&strip_server_fields(live), former) } else { former.clone() }
            }
            Err(error) => return Err(Error::for_object("restore", target, error)),
        };
        if patch.as_object().is_some_and(|map| !map.is_empty()) {
            server
                .patch_object(kind, target, &patch)
                .await
                .map_err(|error| Error::for_object("restore", target, error))?;
        }
        self.hand_over(server, kind, target, entries).await?;
        self.events.send_event(Event::Object { object: target.clone(), done: Done::Restored });
        Ok(())
    }

    /// Applies our former fields. Manual changes since then are undone, as an install would; replicas that an
    /// autoscaler owns now are left to it.
    async fn reapply_manifest(
        &self,
        server: &Server,
        kind: &Kind,
        target: &ObjectRef,
        manifest: &Value,
    ) -> Result<Value, Error> {
        if !journal_check::is_manifest_of(manifest, kind, target) {
            return Err(Error::Input(format!("the recorded manifest of {target} names another object")));
        }
        let mut manifest = Cow::Borrowed(manifest);
        let mut options = ApplyOptions::default();
        let written = loop {
            let error = match server.apply_object(kind, &manifest, options).await {
                Ok(written) => break written,
                Err(error) if error.is_conflict_with_manager() && !options.force => error,
                Err(error) => return Err(Error::for_object("restore", target, error)),
            };
            let live = server.get_object(kind, target.namespace.as_deref(), &target.name).await.ok().flatten();
            let conflicts = conflict::parse_conflicts(&error, target, &manifest, live.as_ref());
            let (by_hand, others): (Vec<_>, Vec<_>) =
                conflicts.into_iter().partition(|conflict| managed_fields::by_hand(&conflict.manager));
            if others.is_empty() && !by_hand.is_empty() {
                options.force = true;
            } else if !others.is_empty() && others.iter().all(|conflict| conflict.field == managed_fields::REPLICAS) {
                let spec = manifest.to_mut().get_mut("spec").and_then(Value::as_object_mut);
                if spec.and_then(|spec| spec.remove("replicas")).is_none() {
                    return Err(Error::Conflicts { conflicts: others });
                }
            } else {
                return Err(Error::Conflicts { conflicts: others });
            }
        };
        self.events.send_event(Event::Object { object: target.clone(), done: Done::Restored });
        Ok(written.object)
    }
}
