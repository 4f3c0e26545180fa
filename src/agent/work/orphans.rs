//! Copies without a Schedule: deleted when they were without one for long, and only where it is certain that the control plane
//! does not have it and does not hold deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use super::apply::Context;
use super::delete::{Removed, Surroundings, is_listed, remove_copy};
use super::task::{CopyKey, Target, Task};
use crate::api::crd::schedule::ApplyPolicy;
use crate::api::deletion_hold::DeletionHold;
use crate::api::labels::{ANNOTATION_SCHEDULE_UID, LABEL_PLACED_BY};
use crate::api::placeable::Placeable;
use crate::api::{Cluster, Schedule};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::request::pages::all_pages;

/// A copy, as a list of metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The object.
    pub key: CopyKey,
    /// Its UID.
    pub uid: String,
    /// UID of its Schedule.
    pub schedule_uid: String,
}

/// A copy without a Schedule, and what is known of its place.
pub type Orphan = (Copy, Surroundings);

/// Lists all copies of this control plane; Secrets may not be listed.
///
/// # Errors
/// The first list that failed: half of what there is proves nothing.
pub async fn list_labelled_copies(context: &Context) -> Result<Vec<Copy>, CallError> {
    let mut copies = Vec::new();
    for kind in context.kinds.iter().filter(|kind| is_listed(kind)) {
        let api = context.all_namespaces_api(kind);
        let label = format!("{LABEL_PLACED_BY}={}", context.placed_by);
        let listed = all_pages(ListParams::default().labels(&label), |page| {
            let api = api.clone();
            async move { call_with_timeout(api.list_metadata(&page)).await }
        });
        let found = match listed.await {
            Ok(found) => found,
            // The kind is not served.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let living = found.iter().filter(|object| object.metadata.deletion_timestamp.is_none());
        copies.extend(living.map(|object| Copy {
            key: CopyKey::new(kind, object.namespace().as_deref(), &object.name_any()),
            uid: object.uid().unwrap_or_default(),
            schedule_uid: object.annotations().get(ANNOTATION_SCHEDULE_UID).cloned().unwrap_or_default(),
        }));
    }
    Ok(copies)
}

/// Times since which copies have had no Schedule, by the UID of the copy.
#[derive(Debug, Default)]
pub struct Orphans {
    since: BTreeMap<String, Instant>,
}

impl Orphans {
    /// Takes the copies that are there now and have no Schedule. Returns those that have had none for as long as `grace`.
    pub fn take_due_orphans(&mut self, orphans: Vec<Copy>, grace: Duration, now: Instant) -> Vec<Copy> {
        let uids: BTreeSet<String> = orphans.iter().map(|copy| copy.uid.clone()).collect();
        self.since.retain(|uid, _| uids.contains(uid));
        let is_due = |copy: &Copy| {
            let since = *self.since.entry(copy.uid.clone()).or_insert(now);
            now.duration_since(since) >= grace
        };
        orphans.into_iter().filter(is_due).collect()
    }
}

/// What became of copies without a Schedule.
#[derive(Debug, Default)]
pub struct Cleared {
    /// Those that were deleted.
    pub deleted: Vec<CopyKey>,
    /// Those that hold data, which nobody here deletes: their source may exist, and adopts them when it is placed here.
    pub kept: Vec<CopyKey>,
    /// The hold because of which no further copy was looked at.
    pub hold: Option<DeletionHold>,
}

/// Returns whether a copy holds data: a PersistentVolumeClaim, or a StatefulSet with templates of them.
///
/// # Errors
/// The StatefulSet cannot be read.
async fn holds_data(context: &Context, copy: &Copy, task: &Task) -> Result<bool, CallError> {
    if copy.key.is_core("PersistentVolumeClaim") {
        return Ok(true);
    }
    let Ok(target) = task.target.clone() else { return Ok(false) };
    if (copy.key.group, copy.key.kind) != ("apps", "StatefulSet") {
        return Ok(false);
    }
    let found = call_with_timeout(context.copies_api(&target).get_opt(&copy.key.name)).await?;
    let templates = found.as_ref().and_then(|found| found.data.pointer("/spec/volumeClaimTemplates"));
    Ok(templates.and_then(serde_json::Value::as_array).is_some_and(|templates| !templates.is_empty()))
}

/// Reads whether the control plane holds deletions.
async fn read_hold(context: &Context) -> anyhow::Result<Option<DeletionHold>> {
    let namespaces: Api<Namespace> = Api::all(context.control_plane.clone());
    let found = call_with_timeout(namespaces.get_metadata("kube-system")).await?;
    anyhow::ensure!(found.uid().as_ref() == Some(&context.control_plane_uid), "the control plane is another one");
    Ok(DeletionHold::from_metadata(&found.metadata))
}

/// Deletes copies whose Schedule the control plane does not have, those that contain others last; what holds data is kept.
///
/// The hold of deletions is read after the Schedules were listed, and before each copy: a restored control plane that lacks a
/// Schedule has the hold already, and one that is set meanwhile stops all but the deletion under way. If it cannot be read,
/// nothing is deleted until the next list, half the grace later; copies with a Schedule are not concerned.
///
/// # Errors
/// The control plane cannot be asked, is another one, or does not know this cluster.
pub async fn delete_orphaned_copies(context: &Context, mut orphans: Vec<Orphan>) -> anyhow::Result<Cleared> {
    let clusters: Api<Cluster> = Api::all(context.control_plane.clone());
    let cluster = call_with_timeout(clusters.get_metadata(&context.cluster)).await?;
    anyhow::ensure!(cluster.metadata.deletion_timestamp.is_none(), "the Cluster is being deleted");
    let known = schedule_uids(context).await?;
    orphans.retain(|(copy, _)| !known.contains(&copy.schedule_uid));
    let kind_of = |copy: &Copy| context.kinds.find_placeable(copy.key.group, copy.key.kind);
    orphans.sort_by_key(|(copy, _)| std::cmp::Reverse(kind_of(copy).map(|kind| kind.wave)));
    let mut cleared = Cleared::default();
    for (copy, place) in orphans {
        let Some(task) = kind_of(&copy).map(|kind| removal_task(&copy, kind)) else { continue };
        match read_hold(context).await {
            Ok(None) => {}
            Ok(hold) => {
                cleared.hold = hold;
                break;
            }
            Err(error) if cleared.deleted.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "whether deletions are held is unknown; the other copies without a Schedule are kept");
                break;
            }
        }
        match holds_data(context, &copy, &task).await {
            Ok(false) => {}
            Ok(true) => {
                cleared.kept.push(copy.key);
                continue;
            }
            Err(error) => {
                tracing::warn!(copy = %copy.key, %error, "whether an orphaned copy holds data is unknown");
                continue;
            }
        }
        match remove_copy(context, &task, &place).await {
            Ok(Removed::Done { .. }) => cleared.deleted.push(copy.key),
            Ok(Removed::Waiting { what: why, .. }) => {
                tracing::debug!(copy = %copy.key, why, "an orphaned copy is not deleted yet");
            }
            Err(problem) => {
                tracing::warn!(copy = %copy.key, why = problem.message, "deleting an orphaned copy failed");
            }
        }
    }
    Ok(cleared)
}

/// Lists the UIDs of all Schedules, from the store itself.
async fn schedule_uids(context: &Context) -> Result<BTreeSet<String>, CallError> {
    let api = context.own_schedules_api();
    let found = all_pages(ListParams::default(), |page| {
        let api = api.clone();
        async move { call_with_timeout(api.list_metadata(&page)).await }
    });
    Ok(found.await?.iter().filter_map(PartialObjectMeta::<Schedule>::uid).collect())
}

/// The task that removes an orphaned copy.
fn removal_task(copy: &Copy, kind: &'static Placeable) -> Task {
    Task {
        name: copy.key.to_string(),
        uid: copy.schedule_uid.clone(),
        hash: String::new(),
        content: String::new(),
        manifest: "".into(),
        target: Ok(Target { key: copy.key.clone(), kind, api_version: kind.api_version() }),
        source_uid: String::new(),
        source_generation: 0,
        epoch: 0,
        amount: 1,
        is_divided: false,
        policy: ApplyPolicy::default(),
        is_edited: false,
        deleting: true,
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use serde_json::json;

    use super::*;
    use crate::api::labels::ANNOTATION_HOLD_DELETIONS;
    use crate::api::placeable::Kinds;
    use crate::k8s::test_api;

    /// What is read of the namespace `kube-system`, by the number of copies that were deleted before.
    type KubeSystem = fn(usize) -> serde_json::Value;

    fn own(_: usize) -> serde_json::Value {
        json!({ "name": "kube-system", "uid": "0a1b2c3d-1" })
    }

    /// A context whose control plane has a Cluster that is `leaving` or not, and the Schedule `known`; and whose workload cluster
    /// has the ConfigMap of every name.
    fn context(kube_system: KubeSystem, leaving: bool) -> (Context, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let deleted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&deleted);
        let control_plane = test_api::api(move |uri, _| {
            let partial = |kind: &str, metadata: serde_json::Value| json!({ "apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": metadata });
            match uri.path() {
                path if path.ends_with("/kube-system") => {
                    match kube_system(count.load(std::sync::atomic::Ordering::SeqCst)) {
                        serde_json::Value::Null => test_api::failure(403),
                        metadata => partial("PartialObjectMetadata", metadata),
                    }
                }
                path if path.ends_with("/clusters/west") => {
                    let at = if leaving { json!("2026-01-01T00:00:00Z") } else { json!(null) };
                    partial("PartialObjectMetadata", json!({ "name": "west", "deletionTimestamp": at }))
                }
                path if path.ends_with("/schedules") => {
                    let mut list = partial("PartialObjectMetadataList", json!({}));
                    list["items"] = json!([partial("PartialObjectMetadata", json!({ "name": "s", "uid": "known" }))]);
                    list
                }
                _ => test_api::failure(404),
            }
        });
        let count = std::sync::Arc::clone(&deleted);
        let local = test_api::api(move |_, brought| {
            if brought["preconditions"]["uid"] == "copy" {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                return json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
            }
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "uid": "copy",
                "labels": { LABEL_PLACED_BY: "0a1b2c3d" } } })
        });
        (of(control_plane, local), deleted)
    }

    fn of(control_plane: Client, local: Client) -> Context {
        let (cluster, namespace) = ("west".to_owned(), "fleet-c-west".to_owned());
        let (control_plane_uid, placed_by) = ("0a1b2c3d-1".to_owned(), "0a1b2c3d".to_owned());
        Context { control_plane, local, cluster, namespace, control_plane_uid, placed_by, kinds: Kinds::default() }
    }

    #[tokio::test]
    async fn nothing_is_deleted_unless_the_control_plane_is_certain() {
        let other: KubeSystem = |_| json!({ "name": "kube-system", "uid": "0a1b2c3d-2" });
        for (kube_system, leaving, schedule, expected) in [
            (own as KubeSystem, false, "unknown", Some(1)),
            (own, false, "known", Some(0)),
            (own, true, "unknown", None),
            (other, false, "unknown", None),
        ] {
            let (context, deleted) = context(kube_system, leaving);
            let answer = delete_orphaned_copies(&context, vec![config_map(schedule)]).await;
            let found = answer.as_ref().ok().map(|cleared| cleared.deleted.len());
            assert_eq!(found, expected, "{:?} {leaving} {schedule}", kube_system(0));
            assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), expected.unwrap_or(0));
        }
    }

    /// A ConfigMap that was made for a Schedule.
    fn config_map(schedule: &str) -> Orphan {
        let key = CopyKey { group: "", kind: "ConfigMap", namespace: Some("n".to_owned()), name: "a".to_owned() };
        (Copy { key, uid: "copy".to_owned(), schedule_uid: schedule.to_owned() }, Surroundings::default())
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_deletions_are_held_or_may_be() {
        let held: KubeSystem = |_| {
            json!({ "name": "kube-system", "uid": "0a1b2c3d-1",
            "annotations": { ANNOTATION_HOLD_DELETIONS: "2027-03-12T10:15:00Z" } })
        };
        let (context_held, deleted) = context(held, false);
        let cleared = delete_orphaned_copies(&context_held, vec![config_map("unknown")]).await.unwrap();
        assert!(cleared.hold.is_some() && cleared.deleted.is_empty() && cleared.kept.is_empty(), "{cleared:?}");
        assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 0);

        let (context_unread, deleted) = context(|_| json!(null), false);
        delete_orphaned_copies(&context_unread, vec![config_map("unknown")]).await.unwrap_err();
        assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 0);

        // What becomes of it in the middle counts for what is left.
        let held_then: KubeSystem = |deleted| match deleted {
            0 => own(0),
            _ => {
                json!({ "name": "kube-system", "uid": "0a1b2c3d-1", "annotations": { ANNOTATION_HOLD_DELETIONS: "" } })
            }
        };
        let unread_then: KubeSystem = |deleted| if deleted == 0 { own(0) } else { json!(null) };
        for (kube_system, is_held) in [(held_then, true), (unread_then, false)] {
            let (context, deleted) = context(kube_system, false);
            let orphans = vec![config_map("one"), config_map("two")];
            let cleared = delete_orphaned_copies(&context, orphans).await.unwrap();
            assert_eq!((cleared.deleted.len(), cleared.hold.is_some()), (1, is_held));
            assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn what_holds_data_is_never_deleted() {
        let orphan = |group: &'static str, kind: &'static str| {
            let key = CopyKey { group, kind, namespace: Some("n".to_owned()), name: "a".to_owned() };
            (Copy { key, uid: "copy".to_owned(), schedule_uid: "unknown".to_owned() }, Surroundings::default())
        };
        let (control_plane, _) = context(own, false);
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&asked);
        let local = test_api::api(move |uri, brought| {
            if brought["preconditions"]["uid"] == "copy" {
                seen.lock().unwrap().push(uri.path().to_owned());
                return json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
            }
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": { "volumeClaimTemplates": [{}] },
                "metadata": { "name": "a", "uid": "copy", "labels": { LABEL_PLACED_BY: "0a1b2c3d" } } })
        });
        let context = Context { local, ..control_plane };
        let orphans =
            vec![orphan("", "PersistentVolumeClaim"), orphan("apps", "StatefulSet"), orphan("apps", "Deployment")];
        let cleared = delete_orphaned_copies(&context, orphans).await.unwrap();
        let kinds = |keys: &[CopyKey]| keys.iter().map(|key| key.kind).collect::<BTreeSet<_>>();
        assert_eq!(kinds(&cleared.kept), ["PersistentVolumeClaim", "StatefulSet"].into());
        assert_eq!(kinds(&cleared.deleted), ["Deployment"].into());
        assert_eq!(*asked.lock().unwrap(), ["/apis/apps/v1/namespaces/n/deployments/a"]);
    }

    fn copy(uid: &str) -> Copy {
        Copy { key: CopyKey::for_namespace("n"), uid: uid.to_owned(), schedule_uid: String::new() }
    }

    #[test]
    fn an_orphan_is_due_after_the_whole_grace_without_a_break() {
        let (grace, start) = (Duration::from_secs(600), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut orphans = Orphans::default();
        assert!(orphans.take_due_orphans(vec![copy("a"), copy("b")], grace, at(0)).is_empty());
        assert!(orphans.take_due_orphans(vec![copy("a")], grace, at(599)).is_empty());
        assert_eq!(
            orphans.take_due_orphans(vec![copy("a"), copy("b")], grace, at(600)),
            [copy("a")],
            "b had a Schedule in between"
        );
        assert_eq!(orphans.take_due_orphans(vec![copy("b")], grace, at(1200)), [copy("b")]);
    }
}
