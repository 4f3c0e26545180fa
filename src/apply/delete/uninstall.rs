//! Removing an installation: what record, labels and uid say is ours, in an order in which nothing is missed. What is kept is
//! decided in [`super::data_retention`].

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::data_retention::{
    Fate, decide_deletion, is_adoption_pending, kept_data, sort_out, stays_with_data, without_data,
};
use super::found::Found;
use super::namespace::THERE_BEFORE;
use super::orphans::Volume;
use super::owned::given_back;
use super::owner_refs::{Labelled, claim_of};
use super::recorded_release::Former;
use super::report::{ObjectReason, Removed};
use super::wait_deleted::PendingDeletion;
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory;
use crate::inventory::history::Outcome;
use crate::inventory::journal::Journal;
use crate::inventory::locked_store::LockedStore;
use crate::inventory::owner::NAMESPACE_CREATED_ANNOTATION;
use crate::inventory::record::{Item, Origin, Phase, Record, State};
use crate::inventory::release::Policy;
use crate::inventory::store::Store;
use crate::k8s::object::{ObjectRef, is_terminating, object_annotation, object_uid, text_at};
use crate::k8s::request::server::{Selection, Server};
use crate::k8s::run_event::{Done, Event};

/// Options of a removal.
#[derive(Debug, Clone, Default)]
pub struct Removal {
    /// Deletes also what cannot be recreated: volume claims, keys. CustomResourceDefinitions are kept even then.
    pub delete_data: bool,
    /// Skips the search of the whole cluster for orphaned objects.
    pub skip_search: bool,
    /// Service version that the data is of by now, where that is not the recorded one.
    pub data_version: Option<String>,
}

/// A removal that has begun.
struct Removing<'a> {
    server: &'a Server,
    removal: &'a Removal,
    /// Metadata of the owner's namespace as it was at the first look; none where it is not there.
    namespace: Option<Value>,
    /// The record, with the lock held. None where the namespace is missing, or goes already, so that nothing can be
    /// written in it.
    store: Option<LockedStore>,
    state: State,
    install_uid: String,
    end: Instant,
}

impl Engine {
    /// The plan of a removal, made by reads alone: what would be deleted and what would be kept.
    ///
    /// # Errors
    /// [`Error::MadeByOthers`], [`Error::JournalRefused`], or whatever the server refuses to read.
    pub async fn plan_removal(&self, removal: Removal) -> Result<Removed, Error> {
        let server = self.server();
        let state = crate::inventory::store::load_state(&server, &self.owner).await?;
        self.check_journal_steps(state.journal.as_ref())?;
        let labelled = self.what_is_ours(&server, &state).await?;
        let claims = self.claims_among(&server, &state, &labelled).await?;
        let (pending, mut kept) = sort_out(labelled.ours, &state, &claims, removal.delete_data);
        let (claims, bound) = without_data(claims, removal.delete_data);
        kept.extend(bound.iter().map(kept_data));
        let volumes: Vec<Volume> = claims.iter().filter_map(|claim| Volume::from_volume_claim(&claim.live)).collect();
        kept.extend(self.volumes_now(&server, &volumes).await.0);
        let deleted: Vec<ObjectRef> = pending.iter().chain(&claims).map(|f| f.object.clone()).collect();
        Ok(Removed {
            nothing_found: deleted.is_empty() && kept.is_empty() && state.is_empty(),
            deleted,
            kept,
            ..Removed::default()
        })
    }

    /// Removes the installation, waits until it is gone, and searches the cluster for leftovers.
    ///
    /// Safe to repeat, and to continue with after it was interrupted anywhere.
    ///
    /// # Errors
    /// [`Error::MadeByOthers`] when all there is was not made by us, [`Error::JournalRefused`] when no run of this owner can
    /// have written the journal (nothing was written then), [`Error::Stuck`] when objects do not go away in time,
    /// [`inventory::Error::Locked`], or what the server refuses.
    pub async fn uninstall(&self, removal: Removal) -> Result<Removed, Error> {
        let before = self.list_persistent_volume_claims(&self.server()).await?;
        let removed = match self.uninstall_seen(&removal).await {
            // The run that was waited for, or seen, has removed all of it.
            Err(Error::Inventory(inventory::Error::PlanOutdated)) => self.uninstall_seen(&removal).await,
            done => done,
        };
        let removed = match removed {
            Ok(removed) => self.remove_late_claims(&removal, removed, &before).await,
            failed => failed,
        };
        self.release_failed_run(removed).await
    }

    fn removal_deadline(&self) -> Instant {
        self.options.deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(300))
    }

    /// Removes claims that the search found at the end and that were not there `before`: a controller that is slow makes them
    /// of a set after that set is gone, and nothing says when it has done so. A claim whose set is there is another's: of a
    /// set that was given back, or that somebody has installed since.
    async fn remove_late_claims(
        &self,
        removal: &Removal,
        mut removed: Removed,
        before: &[Found],
    ) -> Result<Removed, Error> {
        let server = self.server();
        let is_left = |found: &Found| removed.leftovers.iter().any(|left| left.object == found.object);
        let was_there = |found: &Found| before.iter().any(|one| object_uid(&one.live) == object_uid(&found.live));
        if !removed.leftovers.iter().any(|left| left.object.is_kind("", "PersistentVolumeClaim")) {
            return Ok(removed);
        }
        let mut late = self.list_persistent_volume_claims(&server).await?;
        late.retain(|found| is_left(found) && !was_there(found));
        let (mut late, _) = without_data(late, removal.delete_data);
        // After the claims: a set that is there by now has made its own.
        let kind = Kind::from_table("apps", "StatefulSet");
        let selection = Selection { namespace: Some(&self.owner.namespace), ..Selection::default() };
        let sets = server.list_objects(&kind, &selection).await;
        let sets = sets.map_err(|e| Error::from_api_error("list StatefulSets", e))?;
        late.retain(|found| {
            let mut names = sets.iter().filter_map(|set| text_at(set, "/metadata/name"));
            !names.any(|set| claim_of(&found.object.name, set))
        });
        let end = self.removal_deadline();
        let deleted = self.delete_wave(&server, None, late, end).await?;
        removed.leftovers.retain(|left| !deleted.contains(&left.object));
        removed.deleted.extend(deleted);
        Ok(removed)
    }

    async fn uninstall_seen(&self, removal: &Removal) -> Result<Removed, Error> {
        let server = self.server();
        let namespaces = Kind::from_table("", "Namespace");
        let namespace = server.get_metadata(&namespaces, None, &self.owner.namespace).await;
        let namespace =
            namespace.map_err(|e| Error::from_api_error(format!("read Namespace {}", self.owner.namespace), e))?;
        let state = crate::inventory::store::load_state(&server, &self.owner).await?;
        self.check_journal_steps(state.journal.as_ref())?;
        let end = self.removal_deadline();
        let mut result = Removed::default();
        let mut volumes = Vec::new();
        let labelled = self.what_is_ours(&server, &state).await?;
        let claims = self.claims_among(&server, &state, &labelled).await?;
        let own_namespace = namespace.as_ref().is_some_and(|n| self.owner.has_owner_labels(n));
        if labelled.ours.is_empty() && claims.is_empty() && state.is_empty() && !own_namespace {
            result.nothing_found = true;
        } else {
            let found = labelled.ours.len() + claims.len();
            if state.is_empty() && found > 0 {
                self.events.send_event(Event::RecordLost { found });
            }
            let install_uid = install_uid(&state, namespace.as_ref());
            let writable = namespace.as_ref().is_some_and(|n| !is_terminating(n));
            let store = if writable {
                Some(self.open_for_removal(&server, &state, &install_uid, removal).await?)
            } else {
                None
            };
            let (state, labelled) = match &store {
                Some(store) => {
                    let (now, version) = {
                        let store = store.lock_store().await;
                        (store.state.clone(), store.found.clone())
                    };
                    let now = self.discard_untrusted_steps(now);
                    // A run that was at work until now may have made more.
                    let same = version == state.version;
                    let labelled = if same { labelled } else { self.what_is_ours(&server, &now).await? };
                    (now, labelled)
                }
                None => (state, labelled),
            };
            let fenced =
                store.as_ref().map_or_else(|| server.clone(), |store| server.with_write_guard(store.write_guard()));
            let removing = Removing { server: &fenced, removal, namespace, store, state, install_uid, end };
            let (kept, reclaimed) = self.delete_all(&removing, labelled, &mut result).await?;
            volumes = reclaimed;
            if !self.namespace_goes(&removing, &mut result).await? {
                self.close_removal(removing, kept, &mut result).await?;
            }
        }
        if let Some(path) = self.options.journal.as_deref() {
            crate::inventory::journal_file::remove_file(path)?;
        }
        if !removal.skip_search {
            let searched = self.find_orphaned_objects(&result.kept).await?;
            (result.leftovers, result.unsearched) = (searched.leftovers, searched.unsearched);
            result.elsewhere = searched.elsewhere;
        }
        // Last, so that one that does not go takes no time from anything else.
        result.leftovers.extend(self.not_reclaimed(&server, volumes, end).await);
        Ok(result)
    }

    async fn open_for_removal(
        &self,
        server: &Server,
        seen: &State,
        install_uid: &str,
        removal: &Removal,
    ) -> Result<LockedStore, Error> {
        let store = Store::acquire_lock(server, &self.owner, self.lock_options(), seen, |state| {
            let journal = state.journal.take().unwrap_or_else(|| Journal::new("uninstall", install_uid));
            state.journal = Some(journal.into_removal());
            // From its first deletion on there is no whole installation, whatever comes next.
            if let Some(record) = &mut state.record {
                record.phase = Phase::Removed;
                // Nor can a second run find out of what version the data is: what tells that goes first.
                if let Some(version) = &removal.data_version {
                    record.release.version.clone_from(version);
                }
            }
            let release = state.record.as_ref().map(|record| &record.release);
            state.history.begin_revision("uninstall", &self.options.holder, release);
        })
        .await?;
        Ok(LockedStore::new(store))
    }

    /// Deletes workloads first, so that pods stop while what they need is still there; then the rest, the data, and last
    /// the keys without which it could not be read. Returns what stays, and the volumes that should go by themselves.
    async fn delete_all(
        &self,
        removing: &Removing<'_>,
        labelled: Labelled,
        result: &mut Removed,
    ) -> Result<(Vec<Found>, Vec<PendingDeletion>), Error> {
        let Removing { server, removal, store, state, end, .. } = removing;
        let store = store.as_ref();
        // What an interrupted run took over from others is given back, and is nothing of ours any more.
        for step in given_back(state) {
            self.undo_step(server, step, state, &Former::default()).await?;
        }
        let (workloads, rest): (Vec<Found>, Vec<Found>) = labelled.ours.iter().cloned().partition(|found| {
            is_workload(&found.object) && decide_deletion(found, state, removal.delete_data) == Fate::Goes
        });
        // A server whose store is gone before it does not end until its grace is over.
        let (stores, clients): (Vec<Found>, Vec<Found>) =
            workloads.into_iter().partition(|found| found.object.is_kind("apps", "StatefulSet"));
        for wave in [clients, stores].into_iter().filter(|wave| !wave.is_empty()) {
            result.deleted.extend(self.delete_wave(server, store, wave, *end).await?);
            self.pods_gone(server, *end).await?;
        }
        // Only now: as long as a set stands, claims are made for it, and bound.
        let claims = self.claims_among(server, state, &labelled).await?;
        let (pending, kept) = sort_out(rest.clone(), state, &claims, removal.delete_data);
        let stays = rest
            .into_iter()
            .filter(|f| kept.iter().any(|k| k.object == f.object) && !is_adoption_pending(state, &f.object));
        let stays: Vec<Found> = stays.collect();
        result.kept = kept;
        let (keys, rest): (Vec<Found>, Vec<Found>) = pending.into_iter().partition(|f| stays_with_data(f, state));
        result.deleted.extend(self.delete_wave(server, store, rest, *end).await?);
        let (claims, bound) = without_data(claims, removal.delete_data);
        let volumes: Vec<Volume> = claims.iter().filter_map(|claim| Volume::from_volume_claim(&claim.live)).collect();
        result.deleted.extend(self.delete_wave(server, store, claims, *end).await?);
        result.deleted.extend(self.delete_wave(server, store, keys, *end).await?);
        // A controller that was at work on a set when that went may have made a claim since; it holds nothing.
        let (late, _) = without_data(self.claims_among(server, state, &labelled).await?, removal.delete_data);
        result.deleted.extend(self.delete_wave(server, store, late, *end).await?);
        let (retained, reclaimed) = self.volumes_now(server, &volumes).await;
        result.kept.extend(retained);
        result.kept.extend(bound.iter().map(kept_data));
        Ok((stays.into_iter().chain(bound).collect(), reclaimed))
    }

    /// Deletes objects side by side and waits until they are gone. Returns them.
    ///
    /// Whoever lost the lock deletes nothing: it may be what another run has found and continues with.
    pub(crate) async fn delete_wave(
        &self,
        server: &Server,
        store: Option<&LockedStore>,
        wave: Vec<Found>,
        end: Instant,
    ) -> Result<Vec<ObjectRef>, Error> {
        if wave.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(store) = store {
            store.lock_store().await.still_ours().await?;
        }
        let answers: Vec<Result<PendingDeletion, Error>> = stream::iter(wave)
            .map(|found| async move {
                let pending = found.to_pending_deletion();
                let deleted = server.delete_object(&pending.kind, &pending.object, &pending.uid).await;
                // That it is gone already is said to a second try, too, where the answer to the first was lost.
                deleted.map_err(|e| Error::for_object("delete", &pending.object, e))?;
                self.events.send_event(Event::Object { object: pending.object.clone(), done: Done::Deleted });
                Ok(pending)
            })
            .buffer_unordered(self.options.parallel)
            .collect()
            .await;
        let mut gone = Vec::new();
        let mut first = None;
        for answer in answers {
            match answer {
                Ok(pending) => gone.push(pending),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let deleted = gone.iter().map(|pending| pending.object.clone()).collect();
        self.wait_gone(server, gone, end).await?;
        first.map_or(Ok(deleted), Err)
    }

    /// Waits for the pods of our workloads, which the garbage collector deletes after their owners.
    pub(crate) async fn pods_gone(&self, server: &Server, end: Instant) -> Result<(), Error> {
        let pods = self.pods_that_go(server).await?;
        self.wait_gone(server, pods.iter().map(Found::to_pending_deletion).collect(), end).await
    }

    /// Waits for the namespace where somebody deletes it, at first sight or since: nothing in it stays then, and nothing can
    /// be remembered there. False where it does not go.
    async fn namespace_goes(&self, removing: &Removing<'_>, result: &mut Removed) -> Result<bool, Error> {
        let kind = Kind::from_table("", "Namespace");
        let object = ObjectRef::new(&kind, None, &self.owner.namespace);
        let going = match &removing.store {
            None => removing.namespace.clone(),
            Some(_) => {
                let live = removing.server.get_metadata(&kind, None, &object.name).await;
                let Some(live) = live.map_err(|e| Error::for_object("read", &object, e))?.filter(is_terminating) else {
                    return Ok(false);
                };
                Some(live)
            }
        };
        result.kept.retain(|kept| kept.object.namespace.as_ref() != Some(&self.owner.namespace));
        if let Some(live) = going {
            let pending = PendingDeletion { kind, object: object.clone(), uid: object_uid(&live).to_owned() };
            self.wait_gone(removing.server, vec![pending], removing.end).await?;
            if self.owner.has_owner_labels(&live) {
                self.events.send_event(Event::Object { object: object.clone(), done: Done::Deleted });
                result.deleted.push(object);
            }
        }
        Ok(true)
    }

    /// Ends the removal: records what stays. Where nothing does, the record is removed, and the namespace too if we
    /// made it.
    async fn close_removal(&self, removing: Removing<'_>, kept: Vec<Found>, result: &mut Removed) -> Result<(), Error> {
        let Removing { server, removal, namespace, store, state, install_uid, end } = removing;
        // The namespace itself tells, too, where the record that did is lost.
        let created = namespace.as_ref().is_some_and(|live| self.has_made(live));
        let is_labelled = namespace.as_ref().is_some_and(|live| self.owner.has_owner_labels(live));
        for claim in kept.iter().filter(|found| found.object.is_kind("", "PersistentVolumeClaim")) {
            self.events.send_event(Event::Object { object: claim.object.clone(), done: Done::Kept });
        }
        let namespace = ObjectRef::new(&Kind::from_table("", "Namespace"), None, &self.owner.namespace);
        if kept.is_empty() {
            match self.delete_namespace(server, store.as_ref(), end).await? {
                None => {
                    result.deleted.push(namespace);
                    return Ok(());
                }
                Some(why) => result.kept.push(ObjectReason { object: namespace, reason: why }),
            }
        } else if created {
            result
                .kept
                .push(ObjectReason { object: namespace, reason: "it contains objects that are kept".to_owned() });
        } else if is_labelled {
            // Manifests that kubectl or a GitOps program applied label it as an install does.
            result.kept.push(ObjectReason { object: namespace, reason: THERE_BEFORE.to_owned() });
        }
        let Some(store) = store else { return Ok(()) };
        let mut store = store.lock_store().await;
        if kept.is_empty() {
            return Ok(store.delete_record().await?);
        }
        let inventory: Vec<Item> = kept.iter().map(|found| kept_item(found, &state)).collect();
        let owner = &self.owner;
        store
            .finish_run(|state| {
                let mut record = state.record.clone().unwrap_or_else(|| {
                    let begun = state.journal.as_ref().and_then(|journal| journal.release.clone());
                    Record::new(owner, install_uid.clone(), begun.unwrap_or_default())
                });
                if let Some(version) = &removal.data_version {
                    record.release.version.clone_from(version);
                }
                record.phase = Phase::Removed;
                record.namespace_created |= created;
                record.inventory.clone_from(&inventory);
                state.record = Some(record);
                state.journal = None;
                state.history.end_revision(Outcome::Succeeded, None);
            })
            .await?;
        Ok(())
    }
}

fn kept_item(found: &Found, state: &State) -> Item {
    let known = state
        .record
        .as_ref()
        .and_then(|record| record.find_item(&found.object))
        .filter(|item| item.uid == object_uid(&found.live));
    known.cloned().unwrap_or_else(|| Item {
        object: found.object.clone(),
        uid: object_uid(&found.live).to_owned(),
        origin: Origin::Created,
        policy: Policy::Keep,
        digest: String::new(),
        fields: 0,
    })
}

fn is_workload(object: &ObjectRef) -> bool {
    matches!(object.group.as_str(), "apps" | "batch") || object.is_kind("", "Pod")
}

fn install_uid(state: &State, namespace: Option<&Value>) -> String {
    let recorded = state.record.as_ref().map(|record| record.install_uid.clone());
    recorded
        .or_else(|| state.journal.as_ref().map(|journal| journal.install_uid.clone()))
        .or_else(|| namespace.and_then(|n| object_annotation(n, NAMESPACE_CREATED_ANNOTATION)).map(str::to_owned))
        .unwrap_or_default()
}
