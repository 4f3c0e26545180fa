//! The plan of an undo, made by reads alone: shown before it is done.

use serde::Serialize;

use super::journal_check::Source;
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::apply::plan::metadata_of;
use crate::inventory::journal::{Journal, JournalStep, Undo};
use crate::inventory::record::State;
use crate::inventory::release::Release;
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, object_uid};
use crate::k8s::request::server::Server;

/// Action on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// Deletes an object that the run made.
    Delete,
    /// Gives its former fields back to an object that the run changed.
    Restore,
    /// Recreates an object that the run deleted.
    Recreate,
    /// Gives back, to its former managers, an object that the run adopted.
    GiveBack,
}

/// One object of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedUndo {
    /// The object.
    pub object: ObjectRef,
    /// Action on it.
    pub deed: Deed,
    /// Source of its former state; none where it is deleted.
    pub source: Option<Source>,
}

/// The plan of an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoPlan {
    /// The objects of the journal, the last change first.
    pub steps: Vec<PlannedUndo>,
    /// Claims that go with their data.
    pub claims: Vec<ObjectRef>,
    /// Claims that are kept, because it is unknown whether the run created their data.
    pub kept: Vec<ObjectRef>,
    /// The namespace, which is deleted unless something else is in it.
    pub namespace: Option<ObjectRef>,
    /// The recorded release, where objects are restored from it.
    pub release: Option<Release>,
}

impl UndoPlan {
    /// Returns whether nothing would be done.
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.claims.is_empty() && self.namespace.is_none()
    }
}

impl Engine {
    /// Plans what [`Engine::rollback_of`] would do with this state, and with the copy of its journal, by reads alone.
    ///
    /// # Errors
    /// [`Error::JournalRefused`] where no run can have written the journal, a journal file on this machine that cannot be read,
    /// and what the server refuses to read.
    pub async fn plan_undo(&self, state: &State, copy: Option<&Journal>) -> Result<UndoPlan, Error> {
        let server = &self.server();
        let namespace = ObjectRef::new(&Kind::from_table("", "Namespace"), None, &self.owner.namespace);
        let mut plan = UndoPlan::default();
        let Some(mut journal) = state.journal.as_ref().or(copy).cloned() else {
            let unused = state.record.is_none() && self.made_and_not_used(server, state).await?;
            plan.namespace = unused.then_some(namespace);
            return Ok(plan);
        };
        self.check_journal_steps(Some(&journal))?;
        self.confirm_local_steps(&mut journal)?;
        self.find_keys(server, &mut journal).await?;
        for step in journal.steps.iter().rev() {
            plan.steps.extend(self.planned_undo(server, step, state).await?);
        }
        if plan.steps.iter().any(|step| step.source == Some(Source::Release)) {
            plan.release = state.record.as_ref().map(|record| record.release.clone());
        }
        let (made, kept) = self.claims_of_run(server, &journal, state).await?;
        plan.claims = made.into_iter().map(|claim| claim.object).collect();
        plan.kept = kept.into_iter().map(|claim| claim.object).collect();
        if !plan.kept.is_empty() || journal.from_copy {
            plan.steps.retain(|step| {
                step.deed != Deed::Delete
                    || journal.find_step(&step.object).is_none_or(|step| step.policy != crate::inventory::Policy::Keep)
            });
        } else if journal.namespace_created && state.record.is_none() && self.made_namespace().await?.is_some() {
            plan.namespace = Some(namespace);
        }
        Ok(plan)
    }

    async fn planned_undo(
        &self,
        server: &Server,
        step: &JournalStep,
        state: &State,
    ) -> Result<Option<PlannedUndo>, Error> {
        let object = &step.object;
        let live = metadata_of(server, step).await?;
        if live.as_ref().is_some_and(|live| state.is_recorded_earlier(step, object_uid(live))) {
            return Ok(None);
        }
        let ours = live.as_ref().is_some_and(|live| self.is_undoable(step, live, state));
        let deed = match &step.undo {
            Undo::Delete if ours => Deed::Delete,
            Undo::Reapply { .. } if ours => Deed::Restore,
            Undo::Recreate { .. } if ours || live.is_none() => Deed::Recreate,
            Undo::Release { .. } if live.as_ref().is_some_and(|live| is_adopted_by_step(step, live)) => Deed::GiveBack,
            _ => return Ok(None),
        };
        let source = (deed != Deed::Delete).then(|| step.restore_source());
        Ok(Some(PlannedUndo { object: object.clone(), deed, source }))
    }
}

/// Returns whether an object is the one that a step took over.
fn is_adopted_by_step(step: &JournalStep, live: &serde_json::Value) -> bool {
    (step.uid.is_empty() || step.uid == object_uid(live))
        && (step.witnessed || managed_fields::owned_entry(live).is_some())
}
