//! Copies without a Schedule: deleted when they were without one for long, and only where it is certain that the control plane
//! does not have it and does not hold deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use super::context::{Context, is_listed};
use super::data::copy_holds_data;
use super::delete::{Removed, Surroundings, remove_copy};
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

/// A copy without a Schedule.
#[derive(Debug, Clone)]
pub struct Orphan {
    /// The copy.
    pub copy: Copy,
    /// What is known of its place.
    pub place: Surroundings,
    /// Whether it has had no Schedule for the whole grace.
    pub is_due: bool,
    /// Whether it contains data, where that was found out before.
    pub holds_data: Option<bool>,
}

/// Lists all copies of this control plane; Secrets may not be listed.
///
/// # Errors
/// The first list that failed: half of what exists proves nothing.
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

/// What is known of the copies without a Schedule, by the UID of the copy.
#[derive(Debug, Default)]
pub struct Orphans {
    known: BTreeMap<String, KnownOrphan>,
}

/// What is known of one of them.
#[derive(Debug, Clone, Copy)]
struct KnownOrphan {
    /// Since when it has had no Schedule.
    since: Instant,
    holds_data: Option<bool>,
}

impl Orphans {
    /// Takes the copies that exist now and have no Schedule, each with what is known of its place. Those that have had
    /// none for as long as `grace` are due.
    pub fn take_orphans(&mut self, found: Vec<(Copy, Surroundings)>, grace: Duration, now: Instant) -> Vec<Orphan> {
        let uids: BTreeSet<String> = found.iter().map(|(copy, _)| copy.uid.clone()).collect();
        self.known.retain(|uid, _| uids.contains(uid));
        let orphans = found.into_iter().map(|(copy, place)| {
            let first = KnownOrphan { since: now, holds_data: None };
            let known = *self.known.entry(copy.uid.clone()).or_insert(first);
            let is_due = now.duration_since(known.since) >= grace;
            Orphan { copy, place, is_due, holds_data: known.holds_data }
        });
        orphans.collect()
    }

    /// Remembers which of them contain data: that they are asked once.
    pub fn record_inspection(&mut self, inspected: &BTreeMap<String, bool>) {
        for (uid, known) in &mut self.known {
            known.holds_data = inspected.get(uid).copied().or(known.holds_data);
        }
    }
}

/// What became of copies without a Schedule.
#[derive(Debug, Default)]
pub struct Cleared {
    /// Whether each of them contains data, by its UID; without those that could not be read.
    pub inspected: BTreeMap<String, bool>,
    /// Those that contain data, which nobody here deletes: their source may exist, and adopts them when it is placed
    /// here.
    pub kept: Vec<CopyKey>,
    /// Those that were deleted.
    pub deleted: Vec<CopyKey>,
    /// The hold because of which no further copy was looked at.
    pub hold: Option<DeletionHold>,
    /// Why none was deleted, though some were due.
    pub uncertain: Option<anyhow::Error>,
}

/// Finds the copies without a Schedule that contain data, which are kept, and deletes the others that are due.
pub async fn clear_orphans(context: &Context, orphans: Vec<Orphan>) -> Cleared {
    let (mut inspected, mut kept, mut due) = (BTreeMap::new(), Vec::new(), Vec::new());
    for orphan in orphans {
        let is_data = match orphan.holds_data {
            Some(known) => Ok(known),
            None => holds_data(context, &orphan.copy).await,
        };
        match is_data {
            Ok(is_data) => {
                inspected.insert(orphan.copy.uid.clone(), is_data);
                if is_data {
                    kept.push(orphan.copy.key);
                } else if orphan.is_due {
                    due.push(orphan);
                }
            }
            Err(error) => {
                tracing::warn!(copy = %orphan.copy.key, %error, "cannot find out whether a copy without a Schedule \
                                                                 contains data");
            }
        }
    }
    let answer = if due.is_empty() { Ok(Cleared::default()) } else { delete_orphaned_copies(context, due).await };
    let cleared = answer.unwrap_or_else(|error| Cleared { uncertain: Some(error), ..Cleared::default() });
    Cleared { inspected, kept, ..cleared }
}

/// Returns whether a copy without a Schedule contains data.
///
/// # Errors
/// It cannot be read.
async fn holds_data(context: &Context, copy: &Copy) -> Result<bool, CallError> {
    let kind = context.kinds.find_placeable(copy.key.group, copy.key.kind);
    let Some(Ok(target)) = kind.map(|kind| removal_task(copy, kind).target) else { return Ok(false) };
    copy_holds_data(context, &target).await
}

/// Reads whether the control plane holds deletions.
async fn read_hold(context: &Context) -> anyhow::Result<Option<DeletionHold>> {
    let namespaces: Api<Namespace> = Api::all(context.control_plane.clone());
    let found = call_with_timeout(namespaces.get_metadata("kube-system")).await?;
    anyhow::ensure!(
        found.uid().as_ref() == Some(&context.control_plane_uid),
        "the API server belongs to another control plane"
    );
    Ok(DeletionHold::from_metadata(&found.metadata))
}

/// Deletes copies whose Schedule the control plane does not have, those that contain others last.
///
/// The hold of deletions is read after the Schedules were listed, and before each copy: a restored control plane that
/// lacks a Schedule has the hold already, and one that is set meanwhile stops all but the deletion in progress. If it
/// cannot be read, nothing is deleted until the next list, half the grace later; copies with a Schedule are not
/// concerned.
///
/// # Errors
/// The control plane cannot be asked, is another one, or does not know this cluster.
async fn delete_orphaned_copies(context: &Context, mut orphans: Vec<Orphan>) -> anyhow::Result<Cleared> {
    let clusters: Api<Cluster> = Api::all(context.control_plane.clone());
    let cluster = call_with_timeout(clusters.get_metadata(&context.cluster)).await?;
    anyhow::ensure!(cluster.metadata.deletion_timestamp.is_none(), "the Cluster is being deleted");
    let known = schedule_uids(context).await?;
    orphans.retain(|orphan| !known.contains(&orphan.copy.schedule_uid));
    orphans.sort_by_key(|Orphan { copy: Copy { key, .. }, .. }| {
        std::cmp::Reverse(context.kinds.find_placeable(key.group, key.kind).map(|kind| kind.wave))
    });
    let mut cleared = Cleared::default();
    for Orphan { copy, place, .. } in orphans {
        let kind = context.kinds.find_placeable(copy.key.group, copy.key.kind);
        let Some(task) = kind.map(|kind| removal_task(&copy, kind)) else { continue };
        match read_hold(context).await {
            Ok(None) => {}
            Ok(hold) => {
                cleared.hold = hold;
                break;
            }
            Err(error) if cleared.deleted.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot find out whether deletions are held; the other copies without a \
                                        Schedule are kept");
                break;
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
        let control_plane = test_api::api(move |uri, _| match uri.path() {
            path if path.ends_with("/kube-system") => {
                match kube_system(count.load(std::sync::atomic::Ordering::SeqCst)) {
                    serde_json::Value::Null => test_api::failure(403),
                    metadata => partial_object("PartialObjectMetadata", &metadata),
                }
            }
            path if path.ends_with("/clusters/west") => {
                let at = if leaving { json!("2026-01-01T00:00:00Z") } else { json!(null) };
                partial_object("PartialObjectMetadata", &json!({ "name": "west", "deletionTimestamp": at }))
            }
            path if path.ends_with("/schedules") => {
                let mut list = partial_object("PartialObjectMetadataList", &json!({}));
                let known = json!({ "name": "s", "uid": "known" });
                list["items"] = json!([partial_object("PartialObjectMetadata", &known)]);
                list
            }
            _ => test_api::failure(404),
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

    fn partial_object(kind: &str, metadata: &serde_json::Value) -> serde_json::Value {
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": metadata })
    }

    fn of(control_plane: Client, local: Client) -> Context {
        let (cluster, namespace) = ("west".to_owned(), "fleet-c-west".to_owned());
        let (control_plane_uid, placed_by) = ("0a1b2c3d-1".to_owned(), "0a1b2c3d".to_owned());
        Context { control_plane, local, cluster, namespace, control_plane_uid, placed_by, kinds: Kinds::default() }
    }

    #[tokio::test]
    async fn nothing_is_deleted_unless_the_control_plane_is_certain() {
        for (kube_system, leaving, schedule, expected) in [
            (own as KubeSystem, false, "unknown", Some(1)),
            (own, false, "known", Some(0)),
            (own, true, "unknown", None),
            (|_| json!({ "name": "kube-system", "uid": "0a1b2c3d-2" }), false, "unknown", None),
        ] {
            let (context, deleted) = context(kube_system, leaving);
            let cleared = clear_orphans(&context, vec![config_map(schedule)]).await;
            let found = cleared.uncertain.is_none().then_some(cleared.deleted.len());
            assert_eq!(found, expected, "{:?} {leaving} {schedule}", kube_system(0));
            assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), expected.unwrap_or(0));
        }
    }

    /// A ConfigMap that was made for a Schedule.
    fn config_map(schedule: &str) -> Orphan {
        let key = CopyKey { group: "", kind: "ConfigMap", namespace: Some("n".to_owned()), name: "a".to_owned() };
        due(key, schedule)
    }

    /// A copy that has had no Schedule for the whole grace.
    fn due(key: CopyKey, schedule: &str) -> Orphan {
        let copy = Copy { key, uid: "copy".to_owned(), schedule_uid: schedule.to_owned() };
        Orphan { copy, place: Surroundings::default(), is_due: true, holds_data: None }
    }

    fn held_kube_system(since: &str) -> serde_json::Value {
        json!({ "name": "kube-system", "uid": "0a1b2c3d-1", "annotations": { ANNOTATION_HOLD_DELETIONS: since } })
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_deletions_are_held_or_may_be() {
        let (context_held, deleted) = context(|_| held_kube_system("2027-03-12T10:15:00Z"), false);
        let cleared = clear_orphans(&context_held, vec![config_map("unknown")]).await;
        assert!(cleared.hold.is_some() && cleared.deleted.is_empty() && cleared.kept.is_empty(), "{cleared:?}");
        assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 0);

        let (context_unread, deleted) = context(|_| json!(null), false);
        let cleared = clear_orphans(&context_unread, vec![config_map("unknown")]).await;
        assert!(cleared.uncertain.is_some(), "{cleared:?}");
        assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 0);

        // What becomes of it in the middle counts for what is left.
        let cases: [(KubeSystem, bool); 2] = [
            (|deleted| if deleted == 0 { own(0) } else { held_kube_system("") }, true),
            (|deleted| if deleted == 0 { own(0) } else { json!(null) }, false),
        ];
        for (kube_system, is_held) in cases {
            let (context, deleted) = context(kube_system, false);
            let orphans = vec![config_map("one"), config_map("two")];
            let cleared = clear_orphans(&context, orphans).await;
            assert_eq!((cleared.deleted.len(), cleared.hold.is_some()), (1, is_held));
            assert_eq!(deleted.load(std::sync::atomic::Ordering::SeqCst), 1);
        }
    }

    fn key_names(keys: &[CopyKey]) -> Vec<&str> {
        keys.iter().map(|key| key.name.as_str()).collect()
    }

    #[tokio::test]
    async fn what_holds_data_is_never_deleted_and_is_named_before_anything_is_due() {
        let (control_plane, _) = context(own, false);
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&asked);
        let local = test_api::api(move |uri, brought| {
            if brought["preconditions"]["uid"].is_string() {
                seen.lock().unwrap().push(format!("DELETE {}", uri.path()));
                return json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
            }
            seen.lock().unwrap().push(format!("GET {}", uri.path()));
            let name = uri.path().rsplit('/').next().unwrap().to_owned();
            let mounts = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
            let spec = match name.as_str() {
                "templates" => json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" } }], "template": {} }),
                "mounts" => json!({ "template": { "spec": { "volumes": mounts } } }),
                "nightly" => json!({ "jobTemplate": { "spec": { "template": { "spec": { "volumes": mounts } } } } }),
                _ => json!({ "template": { "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } } }),
            };
            json!({ "apiVersion": "apps/v1", "kind": "Any", "spec": spec,
                "metadata": { "name": name, "namespace": "n", "uid": name, "labels": { LABEL_PLACED_BY: "0a1b2c3d" } } })
        });
        let context = Context { local, ..control_plane };
        let all = [
            ("PersistentVolumeClaim", "", "claim"),
            ("StatefulSet", "apps", "templates"),
            ("Deployment", "apps", "mounts"),
            ("CronJob", "batch", "nightly"),
            ("Deployment", "apps", "plain"),
        ]
        .map(|(kind, group, name)| {
            let key = CopyKey { group, kind, namespace: Some("n".to_owned()), name: name.to_owned() };
            let orphan = due(key, "unknown");
            Orphan { copy: Copy { uid: name.to_owned(), ..orphan.copy }, ..orphan }
        });
        let young = all.iter().map(|orphan| Orphan { is_due: false, ..orphan.clone() }).collect();
        let cleared = clear_orphans(&context, young).await;
        assert_eq!(key_names(&cleared.kept), ["claim", "templates", "mounts", "nightly"]);
        assert!(cleared.deleted.is_empty());

        // What is known is not read again.
        asked.lock().unwrap().clear();
        let known = all.into_iter().map(|orphan| {
            let holds_data = cleared.inspected.get(&orphan.copy.uid).copied();
            Orphan { holds_data, ..orphan }
        });
        let cleared = clear_orphans(&context, known.collect()).await;
        assert_eq!(key_names(&cleared.kept), ["claim", "templates", "mounts", "nightly"]);
        assert_eq!(key_names(&cleared.deleted), ["plain"]);
        let path = "/apis/apps/v1/namespaces/n/deployments/plain";
        let requests: BTreeSet<String> = asked.lock().unwrap().iter().cloned().collect();
        assert_eq!(requests, [format!("GET {path}"), format!("DELETE {path}")].into());
    }

    fn namespace_copy(uid: &str) -> Copy {
        Copy { key: CopyKey::for_namespace("n"), uid: uid.to_owned(), schedule_uid: String::new() }
    }

    #[test]
    fn an_orphan_is_due_after_the_whole_grace_without_a_break() {
        let (grace, start) = (Duration::from_secs(600), Instant::now());
        let mut orphans = Orphans::default();
        for (seconds, uids, due) in [
            (0, &["a", "b"][..], &[][..]),
            (599, &["a"], &[]),
            // `b` had a Schedule in between.
            (600, &["a", "b"], &["a"]),
            (1200, &["b"], &["b"]),
        ] {
            let found = uids.iter().map(|uid| (namespace_copy(uid), Surroundings::default())).collect();
            let orphans = orphans.take_orphans(found, grace, start + Duration::from_secs(seconds));
            let found: Vec<&str> =
                orphans.iter().filter(|orphan| orphan.is_due).map(|orphan| orphan.copy.uid.as_str()).collect();
            assert_eq!(found, due, "after {seconds} s");
        }
    }

    #[test]
    fn what_was_found_out_of_an_orphan_is_kept_for_as_long_as_it_is_one() {
        let found = vec![(namespace_copy("a"), Surroundings::default())];
        let (grace, now) = (Duration::from_secs(600), Instant::now());
        let mut orphans = Orphans::default();
        orphans.take_orphans(found.clone(), grace, now);
        orphans.record_inspection(&[("a".to_owned(), true), ("gone".to_owned(), true)].into());
        assert_eq!(orphans.take_orphans(found.clone(), grace, now)[0].holds_data, Some(true));
        orphans.take_orphans(Vec::new(), grace, now);
        assert_eq!(orphans.take_orphans(found, grace, now)[0].holds_data, None);
    }
}
