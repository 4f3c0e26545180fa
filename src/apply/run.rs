//! One run: the lock, the journal before each stage, the stages, and the record at the end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use futures::stream::{self, StreamExt as _};
use serde_json::{Map, Value};

use super::applied::Applied;
use super::delete::owner_refs::claim_of;
use super::delete::report::RefusedStep;
use super::engine::Engine;
use super::error::Error;
use super::object::Failure;
use super::plan::Plan;
use super::step::{Action, Step};
use crate::inventory;
use crate::inventory::history::Outcome;
use crate::inventory::journal::{Journal, JournalStep, Undo};
use crate::inventory::journal_file::LocalJournal;
use crate::inventory::locked_store::LockedStore;
use crate::inventory::record::{Item, Origin, Phase, Record};
use crate::inventory::release::{Policy, Release};
use crate::inventory::store::Store;
use crate::k8s::object::{ObjectRef, object_uid};
use crate::k8s::request::server::Server;
use crate::k8s::run_event::{Done, Event};

/// A run that holds the lock. End it with [`Run::commit_run`], [`Run::rollback_run`] or [`Run::release_run`]; a run that is merely
/// dropped leaves its journal, and its lock until that expires.
#[derive(Debug)]
pub struct Run {
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) plan: Plan,
    pub(crate) store: LockedStore,
    local: Option<LocalJournal>,
    applied: BTreeMap<ObjectRef, Applied>,
    /// The write that took the lock has journalled the first stage as well.
    opened: bool,
}

impl Engine {
    /// Starts a run: makes the namespace where it is missing and planned, takes the lock, opens the journal, the last two
    /// in one write.
    ///
    /// A journal that an interrupted run left is continued, so that a rollback leads back to before both.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when objects are in the way, [`inventory::Error::Locked`], or whatever the server refuses. Nothing but
    /// the namespace has been written then.
    pub async fn begin_run(&self, plan: Plan) -> Result<Run, Error> {
        if !plan.foreign.is_empty() {
            return Err(Error::NotOurs { objects: plan.foreign });
        }
        let server = self.server();
        let mut fresh = Journal::new("install", &plan.install_uid);
        let mut journal = plan.state.journal.clone().unwrap_or_else(|| fresh.clone());
        "install".clone_into(&mut journal.command);
        let mut local =
            self.options.journal.as_deref().map(|path| LocalJournal::open_journal_file(path, &journal)).transpose()?;
        let mut applied = BTreeMap::new();
        self.begun.store(false, Ordering::SeqCst);
        let own = plan.steps.iter().find(|step| self.is_own_namespace(&step.target));
        if let Some(step) = own.filter(|step| step.action == Action::Create) {
            let steps = [build_journal_entry(step, Undo::Delete)];
            if let Some(local) = &mut local {
                local.append_steps(&steps)?;
            }
            self.begun.store(true, Ordering::SeqCst);
            let done = self.apply_one(&server, step).await.map_err(Failure::into_error)?;
            fresh.namespace_created = done.done == Done::Created;
            journal.namespace_created |= fresh.namespace_created;
            applied.insert(step.target.clone(), done);
        }
        let (begun, seen) = (&self.begun, &plan.state);
        let first = plan.opening_undo_steps(|step| applied.contains_key(&step.target));
        let mut store = Store::acquire_lock(&server, &self.owner, self.lock_options(), seen, |state| {
            // Another run may have come and gone while the lock was waited for: its journal is closed then, and what
            // stood in it is not ours to undo.
            *state = self.discard_untrusted_steps(std::mem::take(state));
            state.journal = Some(match &state.journal {
                None => fresh.clone(),
                Some(found) => Journal {
                    command: "install".to_owned(),
                    namespace_created: found.namespace_created || journal.namespace_created,
                    ..found.clone()
                },
            });
            if let Some(journal) = state.journal.as_mut().filter(|_| state.version == seen.version) {
                journal.add_steps(&first, plan.release.as_ref());
            }
            state.history.begin_revision(self.options.command, &self.options.holder, plan.release.as_ref());
        })
        .await
        .inspect_err(|error| {
            // Whoever holds the lock has the namespace as well, though this run may have made it.
            if matches!(error, inventory::Error::Locked { .. } | inventory::Error::PlanOutdated) {
                begun.store(false, Ordering::SeqCst);
            }
        })?;
        // Whatever another run wrote since then, the plan knows nothing of: what it made, or the keys that it made up.
        if store.found != plan.state.version {
            store
                .finish_run(|state| {
                    state.journal = state.journal.take().filter(|journal| !journal.steps.is_empty());
                    state.history.forget_begun();
                })
                .await?;
            self.begun.store(false, Ordering::SeqCst);
            return Err(inventory::Error::PlanOutdated.into());
        }
        for RefusedStep { object, why } in plan.refused.clone() {
            let message = format!(
                "the journal's step for this object is ignored, because this installation did not write it: {why}"
            );
            self.events.send_event(Event::Warning { object, message });
        }
        let opened = !first.is_empty();
        let store = LockedStore::new(store);
        let server = server.with_write_guard(store.write_guard());
        let mut run = Run { engine: self.clone(), server, plan, store, local, applied, opened };
        if let Err(error) = run.local.as_mut().map_or(Ok(()), |local| local.append_steps(&first)) {
            // The lock expires by itself where it cannot be let go of.
            let _ = run.release_run().await;
            return Err(error.into());
        }
        Ok(run)
    }

    fn is_own_namespace(&self, object: &ObjectRef) -> bool {
        object.is_kind("", "Namespace") && object.name == self.owner.namespace
    }
}

impl Plan {
    /// Returns the undo steps of the first stage, where they need no further look: all of it is new, and none of it
    /// finds data. Else there are none.
    fn opening_undo_steps(&self, is_done: impl Fn(&Step) -> bool) -> Vec<JournalStep> {
        if self.state.journal.is_some() {
            return Vec::new();
        }
        let mut due: Vec<&Step> = self.steps.iter().filter(|step| step.action.is_write() && !is_done(step)).collect();
        let first = due.iter().map(|step| step.stage).min();
        due.retain(|step| Some(step.stage) == first);
        if due.iter().any(|step| step.action != Action::Create) {
            return Vec::new();
        }
        let steps: Vec<JournalStep> = due.into_iter().map(|step| build_journal_entry(step, Undo::Delete)).collect();
        if steps.iter().any(|step| step.made_set().is_some()) { Vec::new() } else { steps }
    }
}

impl Run {
    /// The plan of this run.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Objects applied so far, and what needed no write.
    pub const fn applied_objects(&self) -> &BTreeMap<ObjectRef, Applied> {
        &self.applied
    }

    /// Goes on with another plan of the same installation, typically the whole one after a part.
    ///
    /// Objects that this run has applied with the same content are not written again.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when objects are in the way.
    pub fn extend_plan(&mut self, mut plan: Plan) -> Result<(), Error> {
        if !plan.foreign.is_empty() {
            return Err(Error::NotOurs { objects: plan.foreign });
        }
        for step in &mut plan.steps {
            if self.applied.get(&step.target).is_some_and(|applied| applied.item.digest == step.digest)
                && step.drift.is_empty()
            {
                step.action = if step.action == Action::Leave { Action::Leave } else { Action::Unchanged };
            }
        }
        self.plan = plan;
        Ok(())
    }

    /// Applies all stages in order.
    ///
    /// # Errors
    /// As [`Run::apply_stage`].
    pub async fn apply_all_stages(&mut self) -> Result<(), Error> {
        for stage in self.plan.stages() {
            self.apply_stage(stage).await?;
        }
        Ok(())
    }

    /// Applies the objects of one stage: first the journal, then one PATCH an object, many at once.
    ///
    /// # Errors
    /// All conflicts of the stage together, else the first refusal; the other objects of the stage have been tried.
    pub async fn apply_stage(&mut self, stage: u32) -> Result<(), Error> {
        self.apply_part(stage, |_| true).await
    }

    /// Applies those objects of a stage that are wanted now, as [`Run::apply_stage`] does with all of them.
    ///
    /// # Errors
    /// As [`Run::apply_stage`].
    pub async fn apply_part(&mut self, stage: u32, wanted: impl Fn(&ObjectRef) -> bool) -> Result<(), Error> {
        let steps: Vec<Step> =
            self.plan.steps.iter().filter(|step| step.stage == stage && wanted(&step.target)).cloned().collect();
        for step in steps.iter().filter(|step| step.action == Action::Unchanged) {
            self.keep_known(step);
        }
        let due: Vec<&Step> = steps
            .iter()
            .filter(|step| step.action.is_write())
            .filter(|step| self.applied.get(&step.target).is_none_or(|applied| applied.item.digest != step.digest))
            .collect();
        self.write_undo_steps(&due).await?;
        let engine = &self.engine;
        let server = &self.server;
        // Whoever may not do everything may bind a role only when it is there.
        let (bindings, others): (Vec<&Step>, Vec<&Step>) = due.into_iter().partition(|step| is_binding(&step.target));
        let mut answers: Vec<(ObjectRef, Result<Applied, Failure>)> = Vec::new();
        for part in [others, bindings] {
            let applied = stream::iter(part)
                .map(|step| async move { (step.target.clone(), engine.apply_one(server, step).await) })
                .buffer_unordered(engine.options.parallel);
            answers.extend(applied.collect::<Vec<_>>().await);
        }
        let mut conflicts = Vec::new();
        let mut first = None;
        let mut theirs = Vec::new();
        for (target, answer) in answers {
            match answer {
                Ok(applied) => {
                    // What a run that was interrupted had sent may have come late.
                    let sent_before =
                        self.plan.state.journal.as_ref().is_some_and(|journal| journal.has_created(&target));
                    let met = steps.iter().find(|step| step.target == target && step.is_met_by(&applied));
                    theirs.extend(met.filter(|_| !sent_before));
                    self.applied.insert(target, applied);
                }
                Err(Failure::Conflicts(found)) => conflicts.extend(found),
                Err(Failure::Error(error)) => first = first.or(Some(error)),
            }
        }
        // Others made them between the look and the write: to undo it is to let go of them.
        let theirs = theirs.into_iter().map(|step| {
            build_journal_entry(step, Undo::Release { patch: Value::Object(Map::new()), entries: Vec::new() })
        });
        let theirs: Vec<JournalStep> = theirs.collect();
        if !theirs.is_empty() {
            self.append_journal_entries(&theirs).await?;
        }
        if conflicts.is_empty() { first.map_or(Ok(()), Err) } else { Err(Error::Conflicts { conflicts }) }
    }

    /// An unchanged object belongs into the inventory too, with what is known of it.
    fn keep_known(&mut self, step: &Step) {
        let Some(live) = &step.live else { return };
        let record = self.plan.state.record.as_ref();
        let origin = record.and_then(|r| r.find_item(&step.target)).map_or(Origin::Created, |item| item.origin);
        self.applied.entry(step.target.clone()).or_insert_with(|| Applied::new(step, live, Done::Unchanged, origin));
    }

    /// Writes down how each step is undone, in the cluster and on disk, unless that is written already.
    async fn write_undo_steps(&mut self, due: &[&Step]) -> Result<(), Error> {
        if due.is_empty() {
            return Ok(());
        }
        let known = self.store.lock_store().await.state.journal.clone();
        let (engine, server) = (&self.engine, &self.server);
        let entries: Vec<Result<Option<JournalStep>, Error>> = stream::iter(due)
            .map(|step| (*step, known.as_ref().and_then(|journal| journal.find_step(&step.target)).cloned()))
            .map(|(step, known)| async move {
                // What an interrupted run made is gone, if others have made it since: theirs is not to be deleted.
                let known = known.filter(|known| step.action != Action::Adopt || known.undo != Undo::Delete);
                Ok(match known {
                    None => Some(build_journal_entry(step, engine.undo_of(server, step).await?)),
                    // What leads back is not taken from it, so it need not be made wider.
                    Some(known) if known.is_hearsay() => None,
                    Some(known) => {
                        let wider = engine.wider_undo(server, step, &known.undo).await?;
                        // One that is only believed for its kind is no better known for being wider.
                        wider.map(|undo| JournalStep {
                            uid: known.uid,
                            witnessed: known.witnessed,
                            ..build_journal_entry(step, undo)
                        })
                    }
                })
            })
            .buffered(engine.options.parallel)
            .collect()
            .await;
        let entries: Vec<JournalStep> = entries.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let opened = std::mem::take(&mut self.opened);
        if entries.is_empty() {
            let mut store = self.store.lock_store().await;
            // Nothing to say, but whoever lost the lock meanwhile must not write either.
            if !(opened && store.is_fresh()) {
                store.still_ours().await?;
            }
            return Ok(());
        }
        self.append_journal_entries(&entries).await
    }

    /// The uids of the claims with which stateful sets that are to be made will find their data.
    async fn claims_before(&self, entries: &[JournalStep]) -> Result<Vec<String>, Error> {
        let sets: Vec<&str> = entries.iter().filter_map(JournalStep::made_set).collect();
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        let claims = self.engine.list_persistent_volume_claims(&self.server).await?.into_iter();
        let theirs = claims.filter(|claim| sets.iter().any(|set| claim_of(&claim.object.name, set)));
        Ok(theirs.map(|claim| object_uid(&claim.live).to_owned()).collect())
    }

    pub(crate) async fn append_journal_entries(&mut self, entries: &[JournalStep]) -> Result<(), Error> {
        let claims = self.claims_before(entries).await?;
        let release = self.plan.release.clone();
        if let Some(local) = &mut self.local {
            local.append_claims(&claims)?;
            local.append_steps(entries)?;
        }
        let mut store = self.store.lock_store().await;
        store
            .update_state(|state| {
                if let Some(journal) = &mut state.journal {
                    journal.claims.extend(claims.iter().cloned());
                    journal.add_steps(entries, release.as_ref());
                }
            })
            .await?;
        Ok(())
    }

    /// Ends the run well: prunes, writes the record, closes the journal and lets go of the lock.
    ///
    /// A run of a part only ([`Engine::plan_part`]) keeps its journal and lets go of the lock.
    ///
    /// # Errors
    /// Whatever the server refuses; the journal is still open then and the run can be repeated.
    pub async fn commit_run(mut self) -> Result<Record, Error> {
        let Some(release) = self.plan.release.clone() else {
            return Err(Error::Input("a partial run cannot be recorded as a complete installation".to_owned()));
        };
        for step in self.plan.steps.clone().iter().filter(|step| step.action == Action::Unchanged) {
            self.keep_known(step);
        }
        let remaining = self.prune_unplanned().await?;
        let record = self.new_record(release, remaining).await;
        self.store
            .lock_store()
            .await
            .finish_run(|state| {
                state.history.end_revision(Outcome::Succeeded, Some(&record.release));
                state.record = Some(record.clone());
                state.journal = None;
            })
            .await?;
        if let Some(local) = self.local.take() {
            local.close_journal()?;
        }
        Ok(record)
    }

    async fn new_record(&self, release: Release, remaining: Vec<Item>) -> Record {
        let former = self.plan.state.record.as_ref();
        let journal = self.store.lock_store().await.state.journal.clone();
        let mut record = Record::new(&self.engine.owner, self.plan.install_uid.clone(), release);
        // Where the record that knew it is lost, the namespace itself tells who made it.
        record.namespace_created = former.is_some_and(|r| r.namespace_created)
            || journal.as_ref().is_some_and(|j| j.namespace_created)
            || self.plan.steps.iter().any(|step| {
                self.engine.is_own_namespace(&step.target) && step.live.is_some() && step.action != Action::Leave
            });
        let kept = former
            .into_iter()
            .flat_map(|record| record.inventory.iter())
            .filter(|item| item.policy == Policy::Keep && !self.applied.contains_key(&item.object));
        record.inventory = kept.cloned().chain(remaining).collect();
        for (object, Applied { item, .. }) in &self.applied {
            let known = former.and_then(|r| r.find_item(object)).filter(|known| known.uid == item.uid);
            // What an interrupted run made is ours by creation, and what it took over is adopted, though this run found
            // both there as ours.
            let noted = journal.as_ref().and_then(|journal| journal.find_step(object));
            let noted = noted.and_then(|step| match step.undo {
                Undo::Delete => Some(Origin::Created),
                Undo::Release { .. } => Some(Origin::Adopted),
                _ => None,
            });
            let origin = known.map(|known| known.origin).or(noted).unwrap_or(item.origin);
            record.inventory.push(Item { origin, ..item.clone() });
        }
        record.inventory.sort_by(|a, b| a.object.cmp(&b.object));
        record.inventory.dedup_by(|a, b| a.object == b.object);
        record.phase = Phase::Installed;
        record
    }

    /// Ends the run early: keeps the journal for a later run or rollback, and releases the lock.
    ///
    /// # Errors
    /// Whatever the server refuses; the lock then expires by itself.
    pub async fn release_run(self) -> Result<(), Error> {
        Ok(self.store.lock_store().await.fail_run().await?)
    }

    pub(crate) fn close_local(&mut self) -> Result<(), Error> {
        self.local.take().map_or(Ok(()), |local| Ok(local.close_journal()?))
    }
}

impl Step {
    /// Returns whether the object to create existed already.
    fn is_met_by(&self, applied: &Applied) -> bool {
        self.action == Action::Create && applied.done == Done::Adopted
    }
}

/// Builds the journal's entry of a step whose undo this process has found out itself.
fn build_journal_entry(step: &Step, undo: Undo) -> JournalStep {
    let uid =
        step.live.as_ref().filter(|_| undo != Undo::Delete).map(|live| object_uid(live).to_owned()).unwrap_or_default();
    let (object, api_version) = (step.target.clone(), step.kind.api_version());
    JournalStep { object, api_version, policy: step.policy, uid, witnessed: true, undo }
}
/// Returns whether an object gives the rights of a role.
fn is_binding(object: &ObjectRef) -> bool {
    object.group == "rbac.authorization.k8s.io" && object.kind.ends_with("Binding")
}
