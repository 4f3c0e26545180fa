//! Deletes objects that are no longer part of the release, if record, uid and labels all say that they are ours.

use std::fmt::Display;

use serde_json::Value;

use super::engine::Engine;
use super::error::Error;
use super::object::strip_server_fields;
use super::run::Run;
use crate::api::kinds::Kind;
use crate::inventory::journal::{JournalStep, Undo};
use crate::inventory::record::Item;
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, object_uid};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::server::Server;
use crate::k8s::run_event::{Done, Event};

/// Reason to keep an object that is no longer part of the release: it was recreated by someone else, or lost our
/// labels.
pub(crate) const THEIRS: &str = "it now has a different owner";

/// Present state of an object that is no longer part of the release.
pub(crate) enum Unplanned {
    /// Ours still.
    Ours(Kind, Value),
    /// Another's.
    Theirs,
    /// It may not be read.
    Unread(ApiError),
    /// Not there any more.
    Gone,
}

impl Engine {
    /// Looks at an object that is planned no more.
    pub(crate) async fn observe_unplanned(&self, server: &Server, item: &Item) -> Result<Unplanned, Error> {
        let target = &item.object;
        let kind = server.find_served_kind(&target.group, &target.kind).await;
        let kind = kind.map_err(|e| Error::for_object("find the kind of", target, e))?;
        Ok(match server.get_object(&kind, target.namespace.as_deref(), &target.name).await {
            Ok(Some(live)) if object_uid(&live) == item.uid && self.is_prunable(&live, target) => {
                Unplanned::Ours(kind, live)
            }
            Ok(Some(_)) => Unplanned::Theirs,
            Ok(None) => Unplanned::Gone,
            Err(error) if error.is_forbidden() => Unplanned::Unread(error),
            Err(error) => return Err(Error::for_object("read", target, error)),
        })
    }
}

impl Engine {
    /// Returns whether a live object tells itself that it is ours: the inventory that names it, with its uid, may be
    /// forged. Outside of the owner's namespace labels may be those of manifests that somebody else has applied.
    fn is_prunable(&self, live: &Value, target: &ObjectRef) -> bool {
        let here = target.namespace.as_ref() == Some(&self.owner.namespace);
        self.owner.has_owner_labels(live) && (here || managed_fields::owned_entry(live).is_some())
    }
}

impl Run {
    /// Deletes what is no longer part of the release. Returns what cannot be read or deleted, which remains recorded.
    pub(crate) async fn prune_unplanned(&mut self) -> Result<Vec<Item>, Error> {
        let mut remaining = Vec::new();
        let mut pending = Vec::new();
        for item in self.plan.prune.clone() {
            match self.engine.observe_unplanned(&self.server, &item).await? {
                Unplanned::Ours(kind, live) => pending.push((item, kind, live)),
                Unplanned::Theirs => self.report_retained_item(&item, THEIRS),
                // It is recorded still, and the next run tries again.
                Unplanned::Unread(error) => {
                    self.report_retained_item(&item, error);
                    remaining.push(item);
                }
                Unplanned::Gone => {}
            }
        }
        let journal = self.store.lock_store().await.state.journal.clone();
        let mut entries = Vec::new();
        for (item, kind, live) in &pending {
            let mut manifest = managed_fields::owned_entry(live)
                .map_or_else(|| strip_server_fields(live), |ours| managed_fields::extract_fields(live, ours));
            let known = journal.as_ref().and_then(|journal| journal.find_step(&item.object));
            match known.map(|step| &step.undo) {
                None => {}
                // An interrupted run changed it first: made again, it is as it was before that.
                Some(Undo::Reapply { patch, .. }) => managed_fields::apply_merge_patch(&mut manifest, patch),
                Some(_) => continue,
            }
            entries.push(JournalStep {
                object: item.object.clone(),
                api_version: kind.api_version(),
                policy: item.policy,
                uid: object_uid(live).to_owned(),
                witnessed: known.is_none_or(|known| known.witnessed),
                undo: Undo::Recreate { manifest },
            });
        }
        if !entries.is_empty() {
            self.append_journal_entries(&entries).await?;
        } else if !pending.is_empty() {
            self.store.lock_store().await.still_ours().await?;
        }
        for (item, kind, _) in pending {
            let deleted = self.server.delete_object(&kind, &item.object, &item.uid).await;
            match deleted {
                Ok(_) => self.engine.events.send_event(Event::Object { object: item.object, done: Done::Deleted }),
                Err(error) if error.is_forbidden() => {
                    self.report_retained_item(&item, error);
                    remaining.push(item);
                }
                Err(error) => return Err(Error::for_object("delete", &item.object, error)),
            }
        }
        Ok(remaining)
    }

    /// Reports that an object is kept, and why.
    fn report_retained_item(&self, item: &Item, why: impl Display) {
        let message = format!("no longer part of the release, but kept: {why}");
        self.engine.events.send_event(Event::Warning { object: item.object.clone(), message });
    }
}
