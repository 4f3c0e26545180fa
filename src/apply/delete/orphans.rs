//! The last step of a removal: is anything of ours left anywhere in the cluster?
//!
//! Labels can be taken off, so what carries our fields or the record's name is looked for too, where we may have
//! written: in the namespaces of the installation, and among objects without a namespace.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::owned::everywhere_or_newer;
use super::owner_refs::controlling_owner;
use super::report::ObjectReason;
use super::wait_deleted::PendingDeletion;
use crate::api::kinds::Kind;
use crate::api::shell::foreign_word;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory::owner::INSTALL_LABEL;
use crate::k8s::object::{ObjectRef, is_terminating, items_at, object_label, object_uid, text_at};
use crate::k8s::request::server::{Selection, Server};
use crate::k8s::{discovery, managed_fields};

/// Time that the garbage collector may take before what it should have collected counts as left over.
const COLLECTED_WITHIN: Duration = Duration::from_secs(20);

/// Time that a volume may take to go after its claim: a cloud detaches its disk first, which takes a minute and more.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(120);

/// The volume that a claim names, and the uid by which the volume names the claim.
#[derive(Debug)]
pub(crate) struct Volume {
    name: String,
    claim_uid: String,
}

impl Volume {
    pub(crate) fn from_volume_claim(claim: &Value) -> Option<Self> {
        let name = text_at(claim, "/spec/volumeName")?.to_owned();
        Some(Self { name, claim_uid: object_uid(claim).to_owned() })
    }

    /// A claim may also name the volume of another.
    fn is_bound(&self, live: &Value) -> bool {
        text_at(live, "/spec/claimRef/uid") == Some(&self.claim_uid)
    }
}

/// Result of a search of the whole cluster.
#[derive(Debug, Default)]
pub struct Searched {
    /// Orphaned objects of this installation, sorted.
    pub leftovers: Vec<ObjectReason>,
    /// The kinds or groups that did not answer.
    pub unsearched: Vec<String>,
    /// The other namespaces that hold an installation of the same name, sorted; nothing of those is left over.
    pub elsewhere: Vec<String>,
}

impl Engine {
    /// Searches all kinds of the whole cluster for objects of this installation, except for those kept on purpose.
    ///
    /// # Errors
    /// When the list of kinds cannot be read.
    pub async fn find_orphaned_objects(&self, kept: &[ObjectReason]) -> Result<Searched, Error> {
        let server = self.server();
        let unlabelled = self.find_unlabelled_objects(&server, kept).await;
        let (kinds, silent) = discovery::list_kinds(&server, self.options.parallel)
            .await
            .map_err(|e| Error::from_api_error("list the kinds of the API", e))?;
        let begun = Instant::now();
        loop {
            let (found, collectable) = self.search_orphans_once(&server, &kinds, kept).await;
            // The garbage collector needs a moment for what its owner leaves behind.
            if collectable && begun.elapsed() < COLLECTED_WITHIN {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            let known: Vec<ObjectRef> = found.leftovers.iter().map(|leftover| leftover.object.clone()).collect();
            let more = unlabelled.into_iter().filter(|leftover| !known.contains(&leftover.object));
            return Ok(Searched {
                leftovers: found.leftovers.into_iter().chain(more).collect(),
                unsearched: silent.into_iter().chain(found.unsearched).collect(),
                elsewhere: found.elsewhere,
            });
        }
    }

    /// The volumes of deleted claims that keep the data, which are not ours to delete, and those that go by themselves; by
    /// their policies.
    ///
    /// What may not be read is left out: the removal has done its part without it.
    pub(crate) async fn volumes_now(
        &self,
        server: &Server,
        volumes: &[Volume],
    ) -> (Vec<ObjectReason>, Vec<PendingDeletion>) {
        let kind = Kind::from_table("", "PersistentVolume");
        let (mut kept, mut pending) = (Vec::new(), Vec::new());
        for volume in volumes {
            let Ok(Some(live)) = server.get_object(&kind, None, &volume.name).await else { continue };
            let object = ObjectRef::new(&kind, None, &volume.name);
            match text_at(&live, "/spec/persistentVolumeReclaimPolicy").filter(|_| volume.is_bound(&live)) {
                Some("Delete") => {
                    pending.push(PendingDeletion { kind: kind.clone(), object, uid: object_uid(&live).to_owned() });
                }
                Some("Retain") if !is_terminating(&live) => kept.push(retained_volume_reason(object)),
                _ => {}
            }
        }
        (kept, pending)
    }

    /// Waits for volumes that go by themselves. Those that do not are left over by their provisioner: the removal itself is
    /// not stopped by it.
    pub(crate) async fn not_reclaimed(
        &self,
        server: &Server,
        volumes: Vec<PendingDeletion>,
        end: Instant,
    ) -> Vec<ObjectReason> {
        let end = end.min(Instant::now() + RECLAIMED_WITHIN);
        let Err(Error::Stuck { objects }) = self.wait_gone(server, volumes, end).await else { return Vec::new() };
        let left = objects.into_iter().map(|stuck| ObjectReason {
            reason: format!(
                "its reclaim policy is Delete, so it should be deleted with its claim, but {}",
                stuck.reason
            ),
            object: stuck.object,
        });
        left.collect()
    }

    /// Objects without our labels that we have applied, or that have the record's name. What may not be listed is left
    /// out: the search by label names it.
    async fn find_unlabelled_objects(&self, server: &Server, kept: &[ObjectReason]) -> Vec<ObjectReason> {
        let namespace = self.owner.namespace.as_str();
        let there = server.get_metadata(&Kind::from_table("", "Namespace"), None, namespace).await;
        let there = there.is_ok_and(|found| found.is_some());
        let kinds: Vec<Kind> = everywhere_or_newer()
            // Pods and what else controllers make is never applied by us.
            .filter(|kind| {
                let made = ["Node", "Pod", "Event", "ReplicaSet", "ControllerRevision", "Lease"];
                !made.contains(&kind.kind.as_ref()) && !kind.mirrors_a_service()
            })
            .filter(|kind| there || !kind.namespaced)
            .collect();
        let answers: Vec<Vec<Value>> = stream::iter(&kinds)
            .map(|kind| async move {
                let place = kind.namespaced.then_some(namespace);
                let selection = Selection { namespace: place, metadata_only: true, ..Selection::default() };
                server.list_objects(kind, &selection).await.unwrap_or_default()
            })
            .buffer_unordered(self.options.parallel)
            .collect()
            .await;
        let mut found: Vec<ObjectReason> =
            answers.into_iter().flatten().filter_map(|object| self.unlabelled_leftover(&object, kept)).collect();
        found.sort_by(|a, b| a.object.cmp(&b.object));
        // A kind that is served in two versions is listed twice.
        found.dedup();
        found
    }

    fn unlabelled_leftover(&self, object: &Value, kept: &[ObjectReason]) -> Option<ObjectReason> {
        let reference = ObjectRef::of(object)?;
        let record = self.owner.record_name();
        let is_record = reference.is_secret() && reference.name == record && !kept.is_empty();
        let others = object_label(object, INSTALL_LABEL).is_some();
        let leaving = text_at(object, "/metadata/deletionTimestamp").is_some();
        if others || leaving || is_record || kept.iter().any(|kept| kept.object == reference) {
            return None;
        }
        let named =
            reference.is_secret() && (reference.name == record || reference.name.starts_with(&format!("{record}.")));
        let because = match (managed_fields::owned_entry(object).is_some(), named) {
            (true, _) => "this installation manages fields of it, but its labels were removed",
            (false, true) => "it has the name of this installation's record",
            (false, false) => return None,
        };
        Some(ObjectReason { object: reference, reason: because.to_owned() })
    }

    /// One look, and whether any of what is left has an owner and may yet be collected.
    async fn search_orphans_once(&self, server: &Server, kinds: &[Kind], kept: &[ObjectReason]) -> (Searched, bool) {
        let selector = self.owner.owner_selector();
        let selection = Selection { labels: Some(&selector), metadata_only: true, ..Selection::default() };
        let (objects, refused) = discovery::list_metadata(server, kinds, &selection, self.options.parallel).await;
        let elsewhere = self.find_record_namespaces(&objects);
        let others = self.places_of_others(&objects, &elsewhere);
        let theirs = of_the_kept(&objects, kept);
        let mut found = Vec::new();
        let mut collectable = false;
        for (kind, object) in objects {
            if theirs.contains(object_uid(&object)) {
                continue;
            }
            let Some(reference) = ObjectRef::of(&object) else { continue };
            let on_purpose = kept.iter().any(|kept| kept.object == reference);
            let record = reference.kind == "Secret" && reference.name == self.owner.record_name() && !kept.is_empty();
            if on_purpose || record || is_terminating(&object) || self.owner.is_anothers(&object, &others) {
                continue;
            }
            // Endpoints follow their Service a moment later, without being owned by it.
            collectable |= kind.mirrors_a_service() || !items_at(&object, "/metadata/ownerReferences").is_empty();
            let because = if managed_fields::owned_entry(&object).is_some() {
                "it has the label and fields of this installation"
            } else {
                "it has the label of this installation"
            };
            found.push(ObjectReason { object: reference, reason: because.to_owned() });
        }
        found.sort_by(|a, b| a.object.cmp(&b.object));
        (Searched { leftovers: found, unsearched: refused, elsewhere }, collectable)
    }

    /// The other namespaces of which something says that an installation of this name and kind is there: its record, or an
    /// object of another set.
    fn places_of_others(&self, objects: &[(Kind, Value)], recorded: &[String]) -> BTreeSet<String> {
        let placed = objects.iter().map(|(_, object)| object).filter(|object| self.owner.is_of_another_set(object));
        let places = placed.filter_map(|object| text_at(object, "/metadata/namespace")).map(str::to_owned);
        places.filter(|place| *place != self.owner.namespace).chain(recorded.iter().cloned()).collect()
    }

    /// The other namespaces that hold a record of this name and kind.
    fn find_record_namespaces(&self, objects: &[(Kind, Value)]) -> Vec<String> {
        let record = self.owner.record_name();
        let mut namespaces: Vec<String> = objects
            .iter()
            .filter(|(_, object)| text_at(object, "/metadata/deletionTimestamp").is_none())
            .filter_map(|(_, object)| ObjectRef::of(object))
            .filter(|object| object.is_secret() && object.name == record)
            .filter_map(|object| object.namespace)
            .filter(|namespace| *namespace != self.owner.namespace)
            .collect();
        namespaces.sort();
        // A kind that is served in two versions is listed twice.
        namespaces.dedup();
        namespaces
    }
}

/// A volume that outlives its claim. To delete the object deletes nothing of what is stored.
fn retained_volume_reason(object: ObjectRef) -> ObjectReason {
    let why = format!(
        "its reclaim policy is Retain, so it still contains the data; `kubectl delete pv {}` deletes the object \
         only: delete the data in the storage system by hand",
        foreign_word(&object.name)
    );
    ObjectReason { object, reason: why }
}

/// The uids of what controllers made of kept workloads, by our templates: it goes with those.
fn of_the_kept(objects: &[(Kind, Value)], kept: &[ObjectReason]) -> BTreeSet<String> {
    let mut theirs: BTreeSet<String> = BTreeSet::new();
    loop {
        let before = theirs.len();
        for (_, object) in objects {
            let Some(owner) = controlling_owner(object) else { continue };
            if is_kept_controller(object, owner, kept) || theirs.contains(text_at(owner, "/uid").unwrap_or_default()) {
                theirs.insert(object_uid(object).to_owned());
            }
        }
        if theirs.len() == before {
            return theirs;
        }
    }
}

/// Returns whether the controller of an object is among those that are kept.
fn is_kept_controller(object: &Value, owner: &Value, kept: &[ObjectReason]) -> bool {
    kept.iter().any(|kept| {
        text_at(owner, "/kind") == Some(&kept.object.kind)
            && text_at(owner, "/name") == Some(&kept.object.name)
            && text_at(object, "/metadata/namespace") == kept.object.namespace.as_deref()
    })
}
