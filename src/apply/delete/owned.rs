//! Objects of an installation in the cluster, found by its labels, its record and its journal.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::found::Found;
use super::owner_refs::{Labelled, claim_of, made_by_others};
use crate::api::kinds::Kind;
use crate::apply::adopt;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory::journal::{JournalStep, Undo};
use crate::inventory::record::State;
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::request::server::{Selection, Server};

/// The kinds that an installation may have objects of, whichever minor its cluster is of.
pub(super) fn everywhere_or_newer() -> impl Iterator<Item = Kind> {
    Kind::all_kinds().into_iter().chain(Kind::newer_kinds())
}

impl Engine {
    /// The objects of this installation; refused where all that there is was made by others: without a record, and with one
    /// whose objects others have put back, since the removal would forget the record and remove nothing.
    pub(crate) async fn what_is_ours(&self, server: &Server, state: &State) -> Result<Labelled, Error> {
        let labelled = self.find_labelled(server, state).await?;
        if state.is_empty()
            || labelled.ours.is_empty() && labelled.others.iter().any(|found| is_in_inventory(state, found))
        {
            labelled.not_only_others()?;
        }
        // Those that an interrupted adoption would only give back: nothing would be removed but the record.
        let returned: Vec<&JournalStep> = given_back(state).collect();
        if labelled.ours.iter().any(|found| is_in_inventory(state, found))
            && labelled.ours.iter().all(|found| returned.iter().any(|step| step.object == found.object))
        {
            return Err(made_by_others(labelled.ours.iter().chain(&labelled.others)));
        }
        Ok(labelled)
    }

    /// The claims of this installation that there are now.
    pub(crate) async fn claims_among(
        &self,
        server: &Server,
        state: &State,
        labelled: &Labelled,
    ) -> Result<Vec<Found>, Error> {
        let mut claims = labelled.without_others(self.list_persistent_volume_claims(server).await?);
        // Nor is the data ours of a set that is given back.
        claims.retain(|claim| {
            !given_back(state).any(|step| {
                step.object.is_kind("apps", "StatefulSet") && claim_of(&claim.object.name, &step.object.name)
            })
        });
        Ok(claims)
    }

    /// Everything in the cluster that carries our labels, except for the namespace, the record and what controllers
    /// make.
    pub(crate) async fn find_labelled(&self, server: &Server, state: &State) -> Result<Labelled, Error> {
        let mut kinds: BTreeMap<(String, String), Kind> =
            everywhere_or_newer().map(|kind| ((kind.group.to_string(), kind.kind.to_string()), kind)).collect();
        let recorded = state.record.iter().flat_map(|record| record.inventory.iter().map(|item| &item.object));
        let begun = state
            .journal
            .iter()
            .flat_map(|j| j.steps.iter())
            .filter(|step| step.undo == Undo::Delete)
            .map(|step| &step.object);
        for object in recorded.chain(begun) {
            let key = (object.group.clone(), object.kind.clone());
            if Kind::needed_versions(&object.group, &object.kind).len() != 1
                && let Ok(kind) = server.find_served_kind(&object.group, &object.kind).await
            {
                kinds.insert(key, kind);
            }
        }
        let selector = self.owner.owner_selector();
        let selection = Selection { labels: Some(&selector), metadata_only: true, ..Selection::default() };
        let kinds: Vec<Kind> = kinds.into_values().collect();
        let answers: Vec<(&Kind, Result<Vec<Value>, crate::k8s::ApiError>)> = stream::iter(&kinds)
            .map(|kind| async move {
                let everywhere = server.list_objects(kind, &selection).await;
                // Whoever may not read the whole cluster can still remove what is in the namespace.
                let answer = match everywhere {
                    Err(error) if error.is_forbidden() && kind.namespaced => {
                        server
                            .list_objects(kind, &Selection { namespace: Some(&self.owner.namespace), ..selection })
                            .await
                    }
                    other => other,
                };
                (kind, answer)
            })
            .buffer_unordered(self.options.parallel)
            .collect()
            .await;
        let mut found = Labelled::default();
        for (kind, answer) in answers {
            let objects = match answer {
                Ok(objects) => objects,
                // A kind of which nothing is recorded need not be readable, nor one that newer clusters have be served.
                Err(error) if (error.is_forbidden() || error.is_not_found()) && !records_kind(state, kind) => continue,
                Err(error) => return Err(Error::from_api_error(format!("list {}", kind.plural), error)),
            };
            for live in objects {
                let Some(object) = ObjectRef::of(&live) else { continue };
                let own = object.is_kind("", "Namespace")
                    || object.is_kind("", "Secret") && object.name == self.owner.record_name();
                if own || !self.owner.has_owner_labels(&live) {
                    continue;
                }
                if self.is_ours(&live, &object, state) {
                    found.ours.push(Found { kind: kind.clone(), object, live });
                } else if !kind.mirrors_a_service() {
                    found.others.push(Found { kind: kind.clone(), object, live });
                }
            }
        }
        found.ours.sort_by(|a, b| a.object.cmp(&b.object));
        found.others.sort_by(|a, b| a.object.cmp(&b.object));
        Ok(found)
    }

    /// The volume claims of our workloads: they carry the install labels and are nobody's dependents.
    pub(crate) async fn list_persistent_volume_claims(&self, server: &Server) -> Result<Vec<Found>, Error> {
        let kind = Kind::from_table("", "PersistentVolumeClaim");
        Ok(self
            .list_dependents(server, &kind)
            .await?
            .into_iter()
            .filter(|f| !self.owner.has_owner_labels(&f.live))
            .collect())
    }

    /// The volume claims of our workloads that contain data.
    ///
    /// # Errors
    /// Refusals of the server.
    pub async fn list_bound_volume_claims(&self) -> Result<Vec<ObjectRef>, Error> {
        let claims = self.list_persistent_volume_claims(&self.server()).await?.into_iter();
        Ok(claims.filter(|claim| is_bound(&claim.live)).map(|claim| claim.object).collect())
    }

    pub(crate) async fn list_dependents(&self, server: &Server, kind: &Kind) -> Result<Vec<Found>, Error> {
        let selector = self.owner.owner_selector();
        let selection =
            Selection { namespace: Some(&self.owner.namespace), labels: Some(&selector), ..Selection::default() };
        let objects = server
            .list_objects(kind, &selection)
            .await
            .map_err(|e| Error::from_api_error(format!("list {}", kind.plural), e))?;
        Ok(objects
            .into_iter()
            .filter_map(|live| Some(Found { kind: kind.clone(), object: ObjectRef::of(&live)?, live }))
            .collect())
    }
}

/// Returns whether the record has an object that was found.
fn is_in_inventory(state: &State, found: &Found) -> bool {
    state.record.iter().flat_map(|record| &record.inventory).any(|item| item.object == found.object)
}

/// Returns whether record or journal has an object of a kind, other than the namespace.
fn records_kind(state: &State, kind: &Kind) -> bool {
    let items = state.record.iter().flat_map(|record| record.inventory.iter().map(|item| &item.object));
    let begun = state.journal.iter().flat_map(|journal| journal.steps.iter().map(|step| &step.object));
    items.chain(begun).any(|object| object.is_kind(&kind.group, &kind.kind) && !object.is_kind("", "Namespace"))
}

/// The steps of objects that an interrupted run adopted from others. Objects that the record had before that run, or that a
/// backup restored together with the record, belong to this installation.
pub(crate) fn given_back(state: &State) -> impl Iterator<Item = &JournalStep> {
    let steps = state.journal.iter().flat_map(|journal| &journal.steps);
    steps.filter(|step| {
        matches!(step.undo, Undo::Release { .. })
            && !state.is_recorded_earlier(step, &step.uid)
            && !is_recorded_copy(state, step)
    })
}

/// Returns whether a step adopted a copy of an object that the record has: a tool wrote it with the labels of an
/// installation, as one does that restores a backup.
fn is_recorded_copy(state: &State, step: &JournalStep) -> bool {
    let Undo::Release { entries, .. } = &step.undo else { return false };
    let recorded = state.record.as_ref().is_some_and(|record| record.find_item(&step.object).is_some());
    recorded && entries.iter().any(adopt::is_copy)
}

/// A claim that was never bound contains no data, and may lack the class that it needs.
pub(crate) fn is_bound(claim: &Value) -> bool {
    matches!(text_at(claim, "/status/phase"), Some("Bound" | "Lost"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Number of the objects that are given back where the record has `recorded`, and the journal a step that releases
    /// ConfigMap `config` to `entries`.
    fn count_given_back(recorded: &str, entries: Value) -> usize {
        let step = json!({"kind": "ConfigMap", "namespace": "fleet", "name": "config", "uid": "new", "apiVersion": "v1",
            "undo": "release", "patch": {}, "entries": entries});
        let state = State {
            record: serde_json::from_value(json!({"format": 1, "installUid": "u", "phase": "installed",
                "namespaceCreated": true, "owner": {"kind": "control-plane", "name": "demo", "namespace": "fleet"},
                "written": "", "release": {"chart": "", "version": "", "valuesDigest": ""}, "inventory": [
                    {"kind": "ConfigMap", "namespace": "fleet", "name": recorded, "uid": "old", "origin": "created"}]}))
            .unwrap(),
            journal: serde_json::from_value(
                json!({"run": "", "command": "install", "started": "", "installUid": "u", "steps": [step]}),
            )
            .unwrap(),
            ..State::default()
        };
        given_back(&state).count()
    }

    fn restored_entry(operation: &str, labels: Value) -> Value {
        json!([{"manager": "backup-server", "operation": operation, "fieldsV1": {"f:metadata": {"f:labels": labels}}}])
    }

    #[test]
    fn what_came_back_from_a_backup_is_not_given_back() {
        let labels = json!({format!("f:{}", crate::inventory::owner::INSTALL_LABEL): {}});
        assert_eq!(
            count_given_back("config", restored_entry("Update", labels.clone())),
            0,
            "a copy of what the record has"
        );
        assert_eq!(
            count_given_back("another", restored_entry("Update", labels.clone())),
            1,
            "the record does not have it"
        );
        assert_eq!(
            count_given_back("config", restored_entry("Update", json!({}))),
            1,
            "somebody made it without our labels"
        );
        assert_eq!(count_given_back("config", restored_entry("Apply", labels.clone())), 1, "somebody applies it");
        assert_eq!(count_given_back("config", json!([])), 1, "nothing is known of who made it");
    }
}
