//! Undoes a run from its journal: deletes what it created, restores the former fields of what it changed, keeps the
//! rest.
//!
//! A journal out of a cluster is not believed (see [`super::journal_check`]): objects that grant rights or run programs are restored
//! from the recorded release, and data is deleted only where this machine knows that the run made it.

use std::time::{Duration, Instant};

use super::data_retention::keeps_data;
use super::found::Found;
use super::journal_check::Source;
use super::owner_refs::claim_of;
use super::recorded_release::Former;
use super::report::ObjectReason;
use super::undo_step::StepOutcome;
use super::wait_deleted::PendingDeletion;
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::apply::plan::metadata_of;
use crate::apply::run::Run;
use crate::inventory;
use crate::inventory::history::{Outcome, ROLLBACK};
use crate::inventory::journal::{Journal, JournalStep, Undo};
use crate::inventory::journal_file::{LocalJournal, remove_file};
use crate::inventory::locked_store::LockedStore;
use crate::inventory::owner::KEEP_ANNOTATION;
use crate::inventory::record::State;
use crate::inventory::release::Policy;
use crate::inventory::store::Store;
use crate::k8s::object::{ObjectRef, is_terminating, object_annotation, object_uid};
use crate::k8s::request::server::Server;

/// Time that a rollback waits for what it deleted.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// Result of a rollback.
#[derive(Debug, Default)]
pub struct RolledBack {
    /// Objects that are as they were before, the last change first.
    pub undone: Vec<ObjectRef>,
    /// Objects that are retained: data and keys, where nothing but a copy of the journal, or the cluster's, tells that they were
    /// not there before; and objects that are not of this installation.
    pub kept: Vec<ObjectReason>,
    /// Objects that could not be restored. The journal is kept open while there is any.
    pub problems: Vec<Error>,
}

impl Run {
    /// Undoes everything that this run, and an interrupted one that it continued, has done.
    ///
    /// # Errors
    /// When the record cannot be written; failures of single objects are in [`RolledBack::problems`].
    pub async fn rollback_run(mut self) -> Result<RolledBack, Error> {
        let engine = self.engine.clone();
        // The deadline that may have ended the run must not end its undoing.
        let server = engine.server.with_deadline(None);
        self.store.lock_store().await.without_deadline();
        let result = engine.undo_journal(&server, &self.store).await;
        let result = engine.release_failed_run(result).await?;
        if result.problems.is_empty() {
            self.close_local()?;
        }
        Ok(result)
    }
}

impl Engine {
    /// Undoes a run that was interrupted. Without a journal there is nothing to undo but a namespace that we made and
    /// never got to use; the result is empty then.
    ///
    /// # Errors
    /// [`inventory::Error::Locked`] when that run is still at work; [`Error::JournalRefused`] where no run can have written the journal;
    /// what [`Engine::copy_of_journal`] refuses; whatever the server refuses to read.
    pub async fn rollback_interrupted_run(&self) -> Result<RolledBack, Error> {
        let mut outdated = false;
        loop {
            let state = self.read_state().await?;
            let copy = self.copy_of_journal(&state).await?;
            match self.undo_of_state(state, copy, false).await {
                // The run that was waited for, or seen, has gone with its namespace.
                Err(Error::Inventory(inventory::Error::PlanOutdated)) if !outdated => outdated = true,
                done => return self.release_failed_run(done).await,
            }
        }
    }

    /// The same for the state that a caller has looked at, and for the copy of its journal where that is lost.
    ///
    /// # Errors
    /// [`inventory::Error::PlanOutdated`] where a run has written since then, such as one that held the lock until now; nothing was
    /// undone then.
    pub async fn rollback_of(&self, seen: State, copy: Option<Journal>) -> Result<RolledBack, Error> {
        let undone = self.undo_of_state(seen, copy, true).await;
        self.release_failed_run(undone).await
    }

    async fn undo_of_state(&self, state: State, copy: Option<Journal>, only_this: bool) -> Result<RolledBack, Error> {
        let server = self.server();
        self.check_journal_steps(state.journal.as_ref())?;
        self.check_journal_steps(copy.as_ref())?;
        if state.journal.is_none() && copy.is_none() {
            let mut result = RolledBack::default();
            if state.record.is_none() && self.unused_namespace(&server, &state).await? {
                result.undone.push(ObjectRef::new(&Kind::from_table("", "Namespace"), None, &self.owner.namespace));
            }
            // A copy that is not about what is here may be about a namesake elsewhere.
            if let Some(path) = self.options.journal.as_deref()
                && (!state.is_empty() || LocalJournal::read_journal_file(path)?.is_none())
            {
                remove_file(path)?;
            }
            return Ok(result);
        }
        let mut store = Store::acquire_lock(&server, &self.owner, self.lock_options(), &state, |state| {
            if state.is_empty() {
                state.journal.clone_from(&copy);
            }
            let release = state.record.as_ref().map(|record| &record.release);
            state.history.begin_revision(ROLLBACK, &self.options.holder, release);
        })
        .await?;
        if only_this && store.found != state.version {
            store.finish_run(|state| state.history.forget_begun()).await?;
            return Err(inventory::Error::PlanOutdated.into());
        }
        if let Err(refused) = self.check_journal_steps(store.state.journal.as_ref()) {
            store.finish_run(|state| state.history.forget_begun()).await?;
            return Err(refused);
        }
        let confirmed = store.state.journal.as_mut().map_or(Ok(()), |journal| self.confirm_local_steps(journal));
        if let Err(error) = confirmed {
            store.finish_run(|state| state.history.forget_begun()).await?;
            return Err(error);
        }
        let result = self.undo_journal(&server, &LockedStore::new(store)).await?;
        if let Some(path) = self.options.journal.as_deref().filter(|_| result.problems.is_empty()) {
            remove_file(path)?;
        }
        Ok(result)
    }

    /// Deletes the namespace of a run that ended before it could write its journal: ours, with nothing of ours in it.
    ///
    /// An installation whose record was lost has such a namespace too, and is known by its objects.
    async fn unused_namespace(&self, server: &Server, state: &State) -> Result<bool, Error> {
        if !self.made_and_not_used(server, state).await? {
            return Ok(false);
        }
        let end = Instant::now() + GONE_WITHIN;
        let kept = self.delete_namespace(server, None, end).await?;
        Ok(kept.is_none())
    }

    /// Returns whether an install of this owner made the namespace, and nothing of ours is in it.
    pub(crate) async fn made_and_not_used(&self, server: &Server, state: &State) -> Result<bool, Error> {
        let kind = Kind::from_table("", "Namespace");
        let live = server.get_metadata(&kind, None, &self.owner.namespace).await;
        let live = live.map_err(|e| Error::from_api_error(format!("read Namespace {}", self.owner.namespace), e))?;
        Ok(live.is_some_and(|live| self.has_made(&live))
            && self.find_labelled(server, state).await?.ours.is_empty()
            && self.list_persistent_volume_claims(server).await?.is_empty())
    }

    async fn undo_journal(&self, server: &Server, store: &LockedStore) -> Result<RolledBack, Error> {
        // Whoever lost the lock undoes nothing: what stands there by now is the work of another run.
        store.lock_store().await.still_ours().await?;
        let state = store.lock_store().await.state.clone();
        let Some(mut journal) = state.journal.clone() else {
            store.lock_store().await.finish_run(|state| state.history.forget_begun()).await?;
            return Ok(RolledBack::default());
        };
        self.check_journal_steps(Some(&journal))?;
        let server = &server.with_write_guard(store.write_guard());
        self.find_keys(server, &mut journal).await?;
        let mut undoing = Undoing::default();
        // What keys the data is written under is known as long as there is any.
        let (keys, rest): (Vec<&JournalStep>, Vec<&JournalStep>) =
            journal.steps.iter().rev().partition(|step| is_key_step(&journal, step));
        // After the Secrets, of which a release that is rendered again takes its secret values.
        let (again, rest): (Vec<&JournalStep>, Vec<&JournalStep>) =
            rest.into_iter().partition(|step| step.undo != Undo::Delete && step.restore_source() == Source::Release);
        self.undo_steps(server, rest, &state, &Former::default(), &mut undoing).await?;
        let end = Instant::now() + GONE_WITHIN;
        let gone = self.wait_gone(server, std::mem::take(&mut undoing.pending), end).await;
        if !again.is_empty() {
            let former = self.render_former_release(server, &state).await;
            self.undo_steps(server, again, &state, &former, &mut undoing).await?;
        }
        let gone = match gone {
            Ok(()) => self.undo_claims(server, store, &journal, &state, end).await,
            Err(error) => Err(error),
        };
        let data_stays = gone.as_ref().is_ok_and(|claims| !claims.is_empty());
        match gone {
            Ok(claims) => undoing.result.kept.extend(claims.into_iter().map(kept_data)),
            Err(error) => undoing.result.problems.push(error),
        }
        if journal.from_copy || data_stays {
            self.report_retained_data(server, &keys, &state, &mut undoing.result).await?;
        } else if undoing.result.problems.is_empty() {
            self.undo_steps(server, keys, &state, &Former::default(), &mut undoing).await?;
            let gone = self.wait_gone(server, std::mem::take(&mut undoing.pending), end).await;
            undoing.result.problems.extend(gone.err());
        }
        let Undoing { mut result, recreated, .. } = undoing;
        if !result.problems.is_empty() {
            store
                .lock_store()
                .await
                .finish_run(|state| {
                    state.history.end_revision(Outcome::Failed, None);
                    note_uids(state, &recreated);
                })
                .await?;
            return Ok(result);
        }
        self.close_rollback(server, store, &journal, &state, &recreated, &mut result).await?;
        Ok(result)
    }

    /// Has the journal know which objects are kept with the data: what the object itself says outweighs a journal out of the
    /// cluster, which may be silent about it.
    pub(crate) async fn find_keys(&self, server: &Server, journal: &mut Journal) -> Result<(), Error> {
        let told =
            |step: &&mut JournalStep| step.undo == Undo::Delete && !step.witnessed && step.policy != Policy::Keep;
        for step in journal.steps.iter_mut().filter(told) {
            let live = metadata_of(server, step).await?;
            if live.is_some_and(|live| object_annotation(&live, KEEP_ANNOTATION) == Some("true")) {
                step.policy = Policy::Keep;
            }
        }
        Ok(())
    }

    /// Undoes step after step; what cannot be undone is among the problems.
    ///
    /// # Errors
    /// [`inventory::Error::LockLost`]: what stands there by now is the work of another run.
    async fn undo_steps(
        &self,
        server: &Server,
        steps: Vec<&JournalStep>,
        state: &State,
        former: &Former,
        undoing: &mut Undoing,
    ) -> Result<(), Error> {
        for step in steps {
            match self.undo_step(server, step, state, former).await {
                Ok(StepOutcome::Stays(why)) => {
                    undoing.result.kept.push(ObjectReason { object: step.object.clone(), reason: why.to_owned() });
                    continue;
                }
                // It was written down, and then not done.
                Ok(StepOutcome::Nothing) => continue,
                Ok(StepOutcome::Restored) => {}
                Ok(StepOutcome::Deleted(gone)) => undoing.pending.push(gone),
                Ok(StepOutcome::Recreated(uid)) => undoing.recreated.push((step.object.clone(), uid)),
                Err(error @ Error::Inventory(inventory::Error::LockLost { .. })) => return Err(error),
                Err(error) => {
                    undoing.result.problems.push(error);
                    continue;
                }
            }
            undoing.result.undone.push(step.object.clone());
        }
        Ok(())
    }

    /// Tells what exists of data and keys that the steps may have made, and leaves it.
    async fn report_retained_data(
        &self,
        server: &Server,
        steps: &[&JournalStep],
        state: &State,
        result: &mut RolledBack,
    ) -> Result<(), Error> {
        for step in steps {
            let target = &step.object;
            let live = metadata_of(server, step).await?;
            if live.is_some_and(|live| self.is_ours(&live, target, state) && !is_terminating(&live)) {
                result.kept.push(kept_data(target.clone()));
            }
        }
        Ok(())
    }

    /// Deletes the claims of StatefulSets that the run created. Claims that already existed stay with their data; and
    /// all of them where that is not known, which are returned.
    async fn undo_claims(
        &self,
        server: &Server,
        store: &LockedStore,
        journal: &Journal,
        state: &State,
        end: Instant,
    ) -> Result<Vec<ObjectRef>, Error> {
        if !journal.steps.iter().any(|step| step.made_set().is_some()) {
            return Ok(Vec::new());
        }
        self.pods_gone(server, end).await?;
        let (made, kept) = self.claims_of_run(server, journal, state).await?;
        self.delete_wave(server, Some(store), made, end).await?;
        Ok(kept.into_iter().map(|claim| claim.object).collect())
    }

    /// The claims of StatefulSets that the run created, and those for which it is unknown whether they contain earlier
    /// data. Claims that are known to contain earlier data are in neither.
    pub(crate) async fn claims_of_run(
        &self,
        server: &Server,
        journal: &Journal,
        state: &State,
    ) -> Result<(Vec<Found>, Vec<Found>), Error> {
        let sets: Vec<&str> = journal.steps.iter().filter_map(JournalStep::made_set).collect();
        if sets.is_empty() {
            return Ok(Default::default());
        }
        let claims = self
            .list_persistent_volume_claims(server)
            .await?
            .into_iter()
            .filter(|claim| sets.iter().any(|set| claim_of(&claim.object.name, set)));
        if journal.from_copy {
            return Ok((Vec::new(), claims.filter(|claim| !is_terminating(&claim.live)).collect()));
        }
        let made = claims.filter(|claim| {
            let claim_uid = object_uid(&claim.live);
            let kept = state.record.as_ref().is_some_and(|record| record.has_object(&claim.object, claim_uid));
            !kept && !journal.claims.iter().any(|known| known == claim_uid)
        });
        // Who forges a journal would have it delete the data.
        let known = journal.made_data();
        Ok(made.partition(|claim| known || !keeps_data(&claim.live)))
    }

    /// The end of a rollback without problems: the record as it was, or nothing at all.
    async fn close_rollback(
        &self,
        server: &Server,
        store: &LockedStore,
        journal: &Journal,
        state: &State,
        recreated: &[(ObjectRef, String)],
        result: &mut RolledBack,
    ) -> Result<(), Error> {
        let made_here = journal.namespace_created && state.record.is_none();
        let namespace = ObjectRef::new(&Kind::from_table("", "Namespace"), None, &self.owner.namespace);
        if made_here && !result.kept.is_empty() {
            result
                .kept
                .push(ObjectReason { object: namespace, reason: "it contains objects that are kept".to_owned() });
        } else if made_here {
            let end = Instant::now() + GONE_WITHIN;
            let kept = self.delete_namespace(server, Some(store), end).await;
            match kept {
                Ok(None) => {
                    result.undone.push(namespace);
                    return Ok(());
                }
                Ok(Some(_)) => {}
                Err(error) => result.problems.push(error),
            }
        }
        let mut store = store.lock_store().await;
        if state.record.is_none() {
            return Ok(store.delete_record().await?);
        }
        store
            .finish_run(|state| {
                let release = state.journal.take().and_then(|journal| journal.release);
                state.history.end_undone(release.as_ref());
                note_uids(state, recreated);
            })
            .await?;
        Ok(())
    }
}

/// An undoing as it goes.
#[derive(Default)]
struct Undoing {
    result: RolledBack,
    /// Deleted objects that may still be there.
    pending: Vec<PendingDeletion>,
    /// Recreated objects with their new uids.
    recreated: Vec<(ObjectRef, String)>,
}

fn kept_data(object: ObjectRef) -> ObjectReason {
    let why =
        if object.is_kind("", "PersistentVolumeClaim") { "it may contain data" } else { "it cannot be recreated" };
    ObjectReason { object, reason: why.to_owned() }
}

/// Returns whether a step made a key that is kept as long as there is data, or restored data itself.
fn is_key_step(journal: &Journal, step: &JournalStep) -> bool {
    let is_data = journal.from_copy && step.object.is_kind("", "PersistentVolumeClaim");
    step.undo == Undo::Delete && (step.policy == Policy::Keep || is_data)
}

/// Has the record know objects by the uids that they have now.
fn note_uids(state: &mut State, recreated: &[(ObjectRef, String)]) {
    for item in state.record.iter_mut().flat_map(|record| record.inventory.iter_mut()) {
        if let Some((_, uid)) = recreated.iter().find(|(object, _)| *object == item.object) {
            item.uid.clone_from(uid);
        }
    }
}
