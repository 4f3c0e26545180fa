//! Removing a copy whose Schedule is being deleted: deleted by its UID, or released where it is to be kept.

use std::collections::BTreeSet;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde_json::{Map, Value, json};

use super::adoption;
use super::contents::{Contents, inspect_namespace, stop_counting};
use super::context::{Context, copy_json};
use super::data::object_holds_data;
use super::problem::Problem;
use super::pull_secrets;
use super::resource::{extract_reported_status, is_finished};
use super::task::{Target, Task};
use crate::api::crd::schedule::{OnDelete, applied, deleted};
use crate::api::labels::{ANNOTATION_SCHEDULE_UID, LABEL_INSTALL_KIND};
use crate::api::placeable;
use crate::diagnose::kstatus::format_deletion_blockers;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::object::{is_terminating, object_annotation, object_label, object_uid, text_at};

/// Most times that a copy is read to delete it as it was read.
const READS: usize = 5;

/// Progress of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The object is gone.
    Gone,
    /// It is there still; with what it waits for.
    Waiting(String),
}

/// Progress of the removal of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// The Schedule may go.
    Done {
        /// One of [`deleted`].
        reason: &'static str,
        /// For people.
        message: String,
        /// Status with which it had run to its end before, if it had.
        end: Option<Map<String, Value>>,
    },
    /// Not yet.
    Waiting {
        /// What it waits for, for people.
        what: String,
        /// Status with which it had run to its end before, if it had.
        end: Option<Map<String, Value>>,
    },
}

impl Removed {
    fn new_done(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Done { reason, message: message.into(), end: None }
    }

    fn new_waiting(what: impl Into<String>) -> Self {
        Self::Waiting { what: what.into(), end: None }
    }

    fn with_end(mut self, of_copy: Option<&Value>) -> Self {
        let (Self::Done { end, .. } | Self::Waiting { end, .. }) = &mut self;
        *end = of_copy.map(|found| extract_reported_status(found).unwrap_or_default());
        self
    }
}

/// Facts about the place of a copy that is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Reason that its namespace is protected, as a clause.
    pub protected: Option<String>,
    /// Names of the copied Secrets in it, where it is a namespace: they cannot be listed.
    pub secrets: Vec<String>,
}

/// Removes the copy of a Schedule. An object without a mark of this control plane is no copy.
///
/// Whether the copy ran to its end is true of the very state that is deleted: one that changes in between is read again.
///
/// # Errors
/// The reason that it cannot be removed.
pub async fn remove_copy(context: &Context, task: &Task, place: &Surroundings) -> Result<Removed, Problem> {
    for _ in 0..READS {
        if let Some(removed) = try_remove_copy(context, task, place).await? {
            return Ok(removed);
        }
    }
    Ok(Removed::new_waiting("the copy keeps changing"))
}

/// Removes the copy as it is now; `None` if it changed meanwhile.
async fn try_remove_copy(context: &Context, task: &Task, place: &Surroundings) -> Result<Option<Removed>, Problem> {
    let Ok(target) = &task.target else { return Ok(Some(Removed::new_done(deleted::DELETED, "nothing was applied"))) };
    let key = &target.key;
    let found = match call_with_timeout(context.copies_api(target).get_opt(&key.name)).await {
        Ok(found) => found,
        // A kind that is not served holds nothing.
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(Problem::of_answer(key, &error)),
    };
    let Some(found) = found else { return Ok(Some(Removed::new_done(deleted::DELETED, ""))) };
    let found = copy_json(target, &found);
    remove_found_copy(context, task, place, target, &found).await
}

/// Removes a copy that was read; `None` if it changed meanwhile.
async fn remove_found_copy(
    context: &Context,
    task: &Task,
    place: &Surroundings,
    target: &Target,
    found: &Value,
) -> Result<Option<Removed>, Problem> {
    let key = &target.key;
    let owned = context.is_own(found) || object_annotation(found, ANNOTATION_SCHEDULE_UID) == Some(task.uid.as_str());
    if !owned {
        let reason = if key.is_core("Namespace") { deleted::NAMESPACE_KEPT } else { deleted::DELETED };
        return Ok(Some(Removed::new_done(reason, format!("{key} is not a copy of this control plane"))));
    }
    let over = Some(found).filter(|found| has_finished(target, found));
    Ok(remove_own_copy(context, task, place, target, found).await?.map(|removed| removed.with_end(over)))
}

/// Removes a copy with a mark of this control plane; `None` if it changed meanwhile.
async fn remove_own_copy(
    context: &Context,
    task: &Task,
    place: &Surroundings,
    target: &Target,
    found: &Value,
) -> Result<Option<Removed>, Problem> {
    let key = &target.key;
    let is_namespace = key.is_core("Namespace");
    let retained = if is_namespace { deleted::NAMESPACE_KEPT } else { deleted::KEPT };
    if task.policy.on_delete == OnDelete::Keep {
        remove_own_marks(context, target, found).await?;
        return Ok(Some(Removed::new_done(deleted::KEPT, format!("{key} was kept and is no longer managed"))));
    }
    // A second deletion of a namespace is refused like that of another object.
    if is_terminating(found) {
        return Ok(Some(Removed::new_waiting(format_deletion_blockers(found))));
    }
    if object_label(found, LABEL_INSTALL_KIND).is_some() {
        remove_own_marks(context, target, found).await?;
        let message = format!("{key} was kept, because it is part of an installation of the service");
        return Ok(Some(Removed::new_done(retained, message)));
    }
    // Data whose source is there still is deleted by nobody.
    let protected = place
        .protected
        .as_ref()
        .filter(|_| is_namespace || adoption::is_adopted(found) || (!task.deleting && object_holds_data(key, found)));
    if let Some(why) = protected {
        remove_own_marks(context, target, found).await?;
        return Ok(Some(Removed::new_done(
            retained,
            format!("{key} was kept: its namespace is protected, because {why}"),
        )));
    }
    if adoption::is_adopted(found) {
        if key.is_core("ServiceAccount") {
            let taken_out = pull_secrets::merge_pull_secrets(context, target, found.clone(), &BTreeSet::new()).await;
            taken_out.map_err(|error| Problem::of_answer(key, &error))?;
        }
        adoption::end_adoption(context, target, found).await?;
        let message = format!("{key} was kept, because it existed before its adoption");
        return Ok(Some(Removed::new_done(retained, message)));
    }
    if is_namespace {
        match inspect_namespace(context, &key.name, &place.secrets)
            .await
            .map_err(|error| Problem::of_answer(key, &error))?
        {
            Contents::Nothing => {}
            Contents::Waiting(what) => return Ok(Some(Removed::new_waiting(what))),
            Contents::Foreign(what) => {
                stop_counting(context, &key.name).await.map_err(|error| Problem::of_answer(key, &error))?;
                remove_own_marks(context, target, found).await?;
                return Ok(Some(Removed::new_done(deleted::NAMESPACE_KEPT, format!("{key} was kept, because {what}"))));
            }
        }
    }
    let version = key.runs_once().then(|| text_at(found, "/metadata/resourceVersion").unwrap_or_default());
    match delete_found_object(context, target, object_uid(found), version).await? {
        Some(Removal::Gone) => Ok(Some(Removed::new_done(deleted::DELETED, ""))),
        Some(Removal::Waiting(what)) => Ok(Some(Removed::new_waiting(what))),
        None => Ok(None),
    }
}

/// Returns whether a copy ran to its end. A Pod that is being deleted says nothing of it: it ends because of that.
fn has_finished(target: &Target, found: &Value) -> bool {
    let is_stopped = target.key.is_core("Pod") && is_terminating(found);
    target.key.runs_once() && is_finished(found) && !is_stopped
}

/// Takes back what an earlier agent placed into a namespace that is protected now; with the reason that nothing is placed there.
pub async fn take_back(context: &Context, task: &Task, place: &Surroundings, refused: Problem) -> Problem {
    let more = match remove_copy(context, task, place).await {
        Ok(Removed::Done { reason: deleted::KEPT, message, .. }) => message,
        Ok(Removed::Done { .. }) => return refused,
        Ok(Removed::Waiting { what, .. }) => format!("The former copies are being deleted: {what}"),
        Err(problem) => format!("The former copies are not deleted: {}", problem.message),
    };
    Problem::retry_soon(refused.reason, format!("{}. {more}", refused.message))
}

/// Deletes the object that has a UID, with all that it owns.
pub async fn remove_object(context: &Context, target: &Target, uid: &str) -> Result<Removal, Problem> {
    let left = delete_object_by_uid(&context.copies_api(target), &target.key.name, uid).await;
    left.map(|left| to_removal(target, left)).map_err(|error| Problem::of_answer(&target.key, &error))
}

/// The same for a state of it, where a version is given; `None` if it is in another state by now.
async fn delete_found_object(
    context: &Context,
    target: &Target,
    uid: &str,
    version: Option<&str>,
) -> Result<Option<Removal>, Problem> {
    match delete_object(&context.copies_api(target), &target.key.name, uid, version).await {
        Ok(left) => Ok(Some(to_removal(target, left))),
        Err(error) if version.is_some() && error.is_conflict() => Ok(None),
        Err(error) => Err(Problem::of_answer(&target.key, &error)),
    }
}

fn to_removal(target: &Target, left: Option<DynamicObject>) -> Removal {
    left.map_or(Removal::Gone, |object| Removal::Waiting(format_deletion_blockers(&copy_json(target, &object))))
}

/// Deletes the object of a name and UID. Returns it where it is not gone at once.
pub async fn delete_object_by_uid(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
) -> Result<Option<DynamicObject>, CallError> {
    delete_object(api, name, uid, None).await
}

async fn delete_object(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: Option<&str>,
) -> Result<Option<DynamicObject>, CallError> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version.map(str::to_owned) };
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match call_with_timeout(api.delete(name, &params)).await {
        Ok(answer) => Ok(answer.left()),
        Err(error) if error.is_not_found() => Ok(None),
        // With a version, a conflict may be about that.
        Err(error) if version.is_none() && error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes our marks from an object, unless it changed since it was read.
async fn remove_own_marks(context: &Context, target: &Target, found: &Value) -> Result<(), Problem> {
    let patch = placeable::build_unmark_patch(json!({ "resourceVersion": found["metadata"]["resourceVersion"] }));
    match call_with_timeout(context.copies_api(target).patch(
        &target.key.name,
        &PatchParams::default(),
        &Patch::Merge(&patch),
    ))
    .await
    {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) if error.is_conflict() => Err(Problem::retry_soon(
            applied::UNREACHABLE,
            format!("{} changed while the agent was releasing it", target.key),
        )),
        Err(error) => Err(Problem::of_answer(&target.key, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::placeable::Kinds;
    use crate::k8s::test_api;

    #[tokio::test]
    async fn a_job_that_finishes_while_it_is_deleted_is_read_again() {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reads);
        let local = test_api::api(move |_, brought| {
            if brought["preconditions"].is_object() {
                let current = json!(count.load(Ordering::SeqCst).to_string());
                let is_current = current == "2" && brought["preconditions"]["resourceVersion"] == current;
                let message =
                    "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: 2";
                let (status, code) = if is_current { ("Success", 200) } else { ("Failure", 409) };
                return json!({ "kind": "Status", "apiVersion": "v1", "status": status, "message": message, "code": code,
                    "reason": "Conflict" });
            }
            let read = count.fetch_add(1, Ordering::SeqCst) + 1;
            let complete = json!([{ "type": "Complete", "status": if read == 2 { "True" } else { "False" } }]);
            json!({ "apiVersion": "batch/v1", "kind": "Job", "status": { "conditions": complete },
                "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": read.to_string(),
                    "labels": { "fleet-scheduler.io/placed-by": "0a1b2c3d" } } })
        });
        let context = Context {
            control_plane: local.clone(),
            local,
            cluster: "west".to_owned(),
            namespace: "fleet-c-west".to_owned(),
            control_plane_uid: "0a1b2c3d-1".to_owned(),
            placed_by: "0a1b2c3d".to_owned(),
            kinds: Kinds::default(),
        };
        let manifest =
            json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "a", "namespace": "n" } });
        let schedule = json!({ "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": { "name": "s", "uid": "s" }, "spec": { "manifest": manifest.to_string(), "hash": "h",
                "sourceRef": { "version": "v1", "kind": "Job", "name": "a", "uid": "u" } } });
        let (task, _) = Task::from_schedule(&context.kinds, serde_json::from_value(schedule).unwrap());
        let removed = remove_copy(&context, &task, &Surroundings::default()).await.unwrap();
        let end = json!({"conditions": [{"type": "Complete", "status": "True"}]}).as_object().cloned();
        assert_eq!(removed, Removed::Done { reason: deleted::DELETED, message: String::new(), end });
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_refused_deletion_is_no_deleted_object() {
        let changed = "Precondition failed: UID in precondition: a, UID in object meta: b";
        let other = "Operation cannot be fulfilled on ConfigMap \"n\": the UID in the precondition (a) does not match the \
            UID in record (b). The object might have been deleted and then recreated";
        let modified = "Operation cannot be fulfilled on namespaces \"n\": the object has been modified; please apply your \
            changes to the latest version and try again";
        let terminating =
            "Operation cannot be fulfilled on namespaces \"n\": The system is ensuring all content is removed";
        for (code, message, gone) in [
            (200, "", true),
            (404, "", true),
            (409, changed, true),
            (409, other, true),
            (409, modified, false),
            (409, terminating, false),
            (403, "", false),
        ] {
            let local = test_api::api(move |_, _| {
                let status = if code == 200 { "Success" } else { "Failure" };
                json!({ "kind": "Status", "apiVersion": "v1", "status": status, "message": message, "code": code,
                    "reason": if code == 409 { "Conflict" } else { "" } })
            });
            let kind = placeable::find_builtin_kind("", "Namespace").unwrap();
            let api = kind.objects_api(&local, None);
            assert_eq!(
                delete_object_by_uid(&api, "n", "a").await.is_ok_and(|left| left.is_none()),
                gone,
                "{code} {message}"
            );
        }
    }
}
