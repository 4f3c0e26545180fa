//! Applying one copy: created where nothing of its name is there, changed where it is ours, and else left alone.
//!
//! Server-side apply with a resource version that no object can have creates an object or fails: unlike a POST, it leaves an
//! entry in the managed fields from which later applies can remove fields.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::adoption;
use super::context::{Context, copy_json};
use super::delete::{self, Removal};
use super::fields;
use super::index::owned_fields;
use super::problem::Problem;
use super::pull_secrets;
use super::task::{CopyKey, Target, Task};
use crate::api::crd::schedule::applied;
use crate::api::labels::{
    AGENT_MANAGER, ANNOTATION_ADOPT, ANNOTATION_SCHEDULE_UID, LABEL_INSTALL_KIND, LABEL_PLACED_BY,
};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::managed_fields::{apply_merge_patch, extract_fields};
use crate::k8s::object::{is_terminating, object_annotation, object_label, object_uid, text_at};

/// `resourceVersion` of no object: the API server's store begins at a higher one.
const NO_VERSION: &str = "1";
/// Field manager of what is left to others, until they set it.
const LEFT_MANAGER: &str = "fleet-agent-left";
/// Largest number of fields that are left out because the API server does not know them.
const MOST_DROPPED: usize = 16;

/// A copy that must be applied.
#[derive(Debug, Clone)]
pub struct Job {
    /// The Schedule.
    pub task: Task,
    /// UID of the copy, where it is known.
    pub uid: Option<String>,
    /// UID of a finished or running copy of an earlier source of the same name, which is replaced.
    pub replaced: Option<String>,
    /// UID of the copy of an earlier source of the same name, which is replaced if it cannot be changed in place.
    pub recreated: Option<String>,
    /// Nothing is known yet of the copy but its Schedule's status.
    pub is_first: bool,
    /// Paths that the API server does not know.
    pub dropped: Vec<String>,
}

/// An object that is as its Schedule says.
#[derive(Debug)]
pub struct Applied {
    /// The object.
    pub object: Value,
    /// Paths that were left out, because the API server does not know them.
    pub dropped: Vec<String>,
    /// It was there before, and is left as it is: a namespace.
    pub left: bool,
}

/// Applies a copy.
///
/// # Errors
/// The reason that it is not as its Schedule says.
pub async fn apply_copy(context: &Context, mut job: Job) -> Result<Applied, Problem> {
    let target = job.task.target.clone().map_err(|unusable| Problem::of_manifest(&unusable))?;
    if let Some(uid) = &job.replaced {
        remove_replaced_copy(context, &target, uid).await?;
    }
    let mut manifest = build_manifest(context, &job, &target).await?;
    let pull_secrets = pull_secrets::take_pull_secrets(&target.key, &mut manifest);
    loop {
        let mut result = try_apply(context, &job, &target, &manifest).await;
        if matches!(result, Err(Failure::Doubled(_))) {
            result = write_whole(context, &job, &target, &manifest).await;
        }
        match result {
            Err(Failure::Unknown(paths)) => {
                let new =
                    paths.into_iter().filter(|path| fields::remove_field_at(&mut manifest, path)).collect::<Vec<_>>();
                if new.is_empty() || job.dropped.len() + new.len() > MOST_DROPPED {
                    let fields = job.dropped.into_iter().chain(new).collect::<Vec<_>>().join(", ");
                    let message =
                        format!("the workload cluster's API server does not know fields of {}: {fields}", target.key);
                    return Err(Problem::retry_on_change(applied::INVALID, message));
                }
                job.dropped.extend(new);
            }
            Err(Failure::Problem(problem) | Failure::Doubled(problem)) => {
                match job.recreated.take().filter(|_| problem.is_immutable) {
                    Some(uid) => {
                        remove_replaced_copy(context, &target, &uid).await?;
                        job.uid = None;
                    }
                    None => return Err(problem),
                }
            }
            Ok((mut object, left)) => {
                if let Some(names) = &pull_secrets {
                    let merged = pull_secrets::merge_pull_secrets(context, &target, object, names).await;
                    object = merged.map_err(|error| Problem::of_answer(&target.key, &error))?;
                }
                return Ok(Applied { object, dropped: job.dropped, left });
            }
        }
    }
}

/// Removes the copy of an earlier source. What was there before this control plane is never deleted.
async fn remove_replaced_copy(context: &Context, target: &Target, uid: &str) -> Result<(), Problem> {
    let found = call_with_timeout(context.copies_api(target).get_opt(&target.key.name)).await;
    let found = found.map_err(|error| Problem::of_answer(&target.key, &error))?;
    if found.is_some_and(|found| adoption::is_adopted(&copy_json(target, &found))) {
        let message = format!(
            "the source was recreated, but {} existed before its adoption, so the agent does not delete it: delete \
             the object in the workload cluster, or give the source a new name",
            target.key
        );
        return Err(Problem::retry_on_change(applied::REFUSED, message));
    }
    match delete::remove_object(context, target, uid).await? {
        Removal::Gone => Ok(()),
        Removal::Waiting(what) => Err(Problem::retry_soon(
            applied::ALREADY_EXISTS,
            format!("the source was recreated, and the former copy {} is being deleted: {what}", target.key),
        )),
    }
}

enum Failure {
    /// The API server does not know these fields.
    Unknown(Vec<String>),
    /// Server-side apply takes no list of which two entries have the same key.
    Doubled(Problem),
    Problem(Problem),
}

impl Failure {
    fn from_answer(key: &CopyKey, error: &CallError) -> Self {
        let unknown = fields::undeclared_fields(error);
        if !unknown.is_empty() {
            return Self::Unknown(unknown);
        }
        let problem = Problem::of_answer(key, error);
        if fields::has_doubled_entries(error) { Self::Doubled(problem) } else { Self::Problem(problem) }
    }
}

/// The object that has the name of a copy.
enum Claim {
    Nothing,
    /// It is the copy, or is one from now on.
    Ours(Value),
    /// It stays as it is: a namespace.
    Left(Value),
}

/// Applies the manifest once; with whether the object was left as it is.
async fn try_apply(context: &Context, job: &Job, target: &Target, manifest: &Value) -> Result<(Value, bool), Failure> {
    if let Some(uid) = &job.uid {
        hand_over(context, job, target).await.map_err(|error| Failure::from_answer(&target.key, &error))?;
        if job.is_first && job.task.is_adopting(false) {
            adoption::keep_mark(context, target).await.map_err(|error| Failure::from_answer(&target.key, &error))?;
        }
        match apply_as_owner(context, target, manifest, uid).await {
            Ok(object) => return Ok((object, false)),
            // It was deleted, or another object has its name.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(Failure::from_answer(&target.key, &error)),
        }
    }
    let first = begin_manifest(&job.task, manifest);
    match send_apply(context, target, first.as_ref().unwrap_or(manifest), ("resourceVersion", NO_VERSION), false).await
    {
        Ok(object) if first.is_none() => return Ok((object, false)),
        Ok(object) => {
            hand_over(context, job, target).await.map_err(|error| Failure::from_answer(&target.key, &error))?;
            let applied = apply_as_owner(context, target, manifest, object_uid(&object)).await;
            return applied.map(|object| (object, false)).map_err(|error| Failure::from_answer(&target.key, &error));
        }
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(Failure::from_answer(&target.key, &error)),
    }
    let found = match claim_found(context, job, target).await? {
        Claim::Ours(found) => found,
        Claim::Left(found) => return Ok((found, true)),
        Claim::Nothing => {
            let message = format!("{} was deleted during the apply", target.key);
            return Err(Failure::Problem(Problem::retry_soon(applied::UNREACHABLE, message)));
        }
    };
    let applied = apply_as_owner(context, target, manifest, object_uid(&found)).await;
    Ok((applied.map_err(|error| Failure::from_answer(&target.key, &error))?, false))
}

/// Reads the object that has the name of a copy, and adopts it if that is asked for.
async fn claim_found(context: &Context, job: &Job, target: &Target) -> Result<Claim, Failure> {
    let found = call_with_timeout(context.copies_api(target).get_opt(&target.key.name))
        .await
        .map_err(|error| Failure::from_answer(&target.key, &error))?;
    let Some(found) = found else { return Ok(Claim::Nothing) };
    let found = copy_json(target, &found);
    if is_terminating(&found) {
        let message = format!("{} already exists and is terminating", target.key);
        return Err(Failure::Problem(Problem::retry_soon(applied::ALREADY_EXISTS, message)));
    }
    let made_for_us = object_annotation(&found, ANNOTATION_SCHEDULE_UID) == Some(job.task.uid.as_str());
    let owned = context.is_own(&found) || made_for_us || job.uid.as_deref() == Some(object_uid(&found));
    if object_label(&found, LABEL_INSTALL_KIND).is_some() {
        return Err(Failure::Problem(of_service(&target.key)));
    } else if !owned && job.task.is_adopting(object_label(&found, LABEL_PLACED_BY).is_some()) {
        adoption::mark_adopted(context, target, &found)
            .await
            .map_err(|error| Failure::from_answer(&target.key, &error))?;
    } else if !owned && target.key.is_core("Namespace") {
        return Ok(Claim::Left(found));
    } else if !owned {
        return Err(Failure::Problem(already_exists(&target.key, &found)));
    }
    Ok(Claim::Ours(found))
}

/// Writes a copy whole, without server-side apply: a POST and a merge patch take lists with doubled entries. A PUT would need a
/// right that the agent has for nothing else.
async fn write_whole(
    context: &Context,
    job: &Job,
    target: &Target,
    manifest: &Value,
) -> Result<(Value, bool), Failure> {
    let found = match claim_found(context, job, target).await? {
        Claim::Left(found) => return Ok((found, true)),
        Claim::Ours(found) => Some(found),
        Claim::Nothing => None,
    };
    let api = context.copies_api(target);
    let written = if let Some(found) = &found {
        let patch = fields::build_replacement_patch(found, manifest, &job.task.policy.leave_fields);
        let params = PatchParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        call_with_timeout(api.patch(&target.key.name, &params, &Patch::Merge(&patch))).await
    } else {
        let whole = begin_manifest(&job.task, manifest).unwrap_or_else(|| manifest.clone());
        let object: DynamicObject = serde_json::from_value(whole).map_err(|error| {
            Failure::Problem(Problem::retry_on_change(
                applied::INVALID,
                format!("{} is not an object: {error}", target.key),
            ))
        })?;
        let params = PostParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PostParams::default() };
        call_with_timeout(api.create(&params, &object)).await
    };
    let written = written.map_err(|error| Failure::from_answer(&target.key, &error))?;
    let owned = own_as_applied(context, target, copy_json(target, &written)).await;
    Ok((owned.map_err(|error| Failure::from_answer(&target.key, &error))?, false))
}

/// Makes the fields of an object that was written whole those of the agent's applies: what the source drops later is removed.
async fn own_as_applied(context: &Context, target: &Target, written: Value) -> Result<Value, CallError> {
    let Some(entries) = fields::list_entries_as_applied(&written) else { return Ok(written) };
    let version = text_at(&written, "/metadata/resourceVersion");
    let patch = json!({ "metadata": { "resourceVersion": version, "managedFields": entries } });
    let params = PatchParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PatchParams::default() };
    let api = context.copies_api(target);
    let owned = call_with_timeout(api.patch(&target.key.name, &params, &Patch::Merge(&patch))).await?;
    Ok(copy_json(target, &owned))
}

/// Returns the manifest with which a copy begins whose replicas are left to others: with one pod, the default, it would serve
/// less than the copy that it replaces. `None` where its manifest has all that it begins with.
fn begin_manifest(task: &Task, manifest: &Value) -> Option<Value> {
    if !task.policy.leave_fields.iter().any(|path| path.trim_start_matches('.') == "spec.replicas") {
        return None;
    }
    let whole: Value = serde_json::from_str(&task.manifest).ok()?;
    let mut first = manifest.clone();
    first.get_mut("spec")?.as_object_mut()?.insert("replicas".to_owned(), whole.pointer("/spec/replicas")?.clone());
    Some(first)
}

/// Hands the fields that are left to others from now on over to another manager: a field that nobody owns any more is reset by
/// the API server.
async fn hand_over(context: &Context, job: &Job, target: &Target) -> Result<(), CallError> {
    let left = &job.task.policy.leave_fields;
    if left.is_empty() {
        return Ok(());
    }
    let Some(found) = call_with_timeout(context.copies_api(target).get_opt(&target.key.name)).await? else {
        return Ok(());
    };
    let found = copy_json(target, &found);
    let Some(fields) = owned_fields(&found) else { return Ok(()) };
    let owned = extract_fields(&found, fields);
    let mut object = Value::Null;
    for field in left.iter().filter_map(|path| fields::extract_field_at(&owned, path)) {
        apply_merge_patch(&mut object, &field);
    }
    if object.is_null() {
        return Ok(());
    }
    apply_merge_patch(
        &mut object,
        &json!({
            "apiVersion": target.api_version, "kind": target.key.kind,
            "metadata": { "name": target.key.name, "namespace": target.key.namespace, "uid": object_uid(&found) },
        }),
    );
    let params = PatchParams::apply(LEFT_MANAGER);
    match call_with_timeout(context.copies_api(target).patch(&target.key.name, &params, &Patch::Apply(&object))).await {
        Ok(_) => Ok(()),
        // Somebody changed it in this moment, and owns it now.
        Err(error) if error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

fn already_exists(key: &CopyKey, found: &Value) -> Problem {
    let of = match object_label(found, LABEL_PLACED_BY) {
        Some(other) => format!("belongs to the control plane {other}"),
        None => "is not a copy of this control plane".to_owned(),
    };
    Problem::retry_on_change(
        applied::ALREADY_EXISTS,
        format!(
            "{key} already exists and {of}. Delete it in the workload cluster, or annotate the source with \
             {ANNOTATION_ADOPT}=true to adopt it"
        ),
    )
}

fn of_service(key: &CopyKey) -> Problem {
    let message =
        format!("{key} is part of an installation of the service and is not replaced by a copy: use another name");
    Problem::retry_on_change(applied::REFUSED, message)
}

/// Applies the manifest to a copy that is there. Where it was written whole, and its Schedule changed before it was owned as
/// applied, it is applied once more: the first apply has removed nothing.
async fn apply_as_owner(context: &Context, target: &Target, manifest: &Value, uid: &str) -> Result<Value, CallError> {
    let object = send_apply(context, target, manifest, ("uid", uid), true).await?;
    if fields::list_entries_as_applied(&object).is_none() {
        return Ok(object);
    }
    own_as_applied(context, target, object).await?;
    send_apply(context, target, manifest, ("uid", uid), true).await
}

/// Sends an apply with a precondition in the object's metadata.
async fn send_apply(
    context: &Context,
    target: &Target,
    manifest: &Value,
    (precondition, value): (&str, &str),
    force: bool,
) -> Result<Value, CallError> {
    let mut object = manifest.clone();
    object["metadata"][precondition] = json!(value);
    let params = PatchParams { force, ..PatchParams::apply(AGENT_MANAGER) };
    let answer =
        call_with_timeout(context.copies_api(target).patch(&target.key.name, &params, &Patch::Apply(&object))).await?;
    Ok(copy_json(target, &answer))
}

fn set_annotation(manifest: &mut Value, key: &str, value: &str) {
    set_metadata_entry(manifest, "annotations", key, value);
}

/// Sets a label or an annotation.
fn set_metadata_entry(manifest: &mut Value, map: &str, key: &str, value: &str) {
    let marks = &mut manifest["metadata"][map];
    if !marks.is_object() {
        *marks = json!({});
    }
    marks[key] = json!(value);
}

/// Returns the object to apply: the manifest with our marks and payload, without the fields that are left to others.
async fn build_manifest(context: &Context, job: &Job, target: &Target) -> Result<Value, Problem> {
    let task = &job.task;
    if task.is_edited {
        let message = format!(
            "somebody edited the manifest of Schedule {}/{}: the control plane restores the manifest; edit the source \
             instead",
            context.namespace, task.name
        );
        return Err(Problem::retry_on_change(applied::MANIFEST_EDITED, message));
    }
    let mut object: Value = serde_json::from_str(&task.manifest)
        .map_err(|error| Problem::retry_on_change(applied::INVALID, format!("the manifest is not JSON: {error}")))?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // Those of the control plane's object would be preconditions here.
        metadata.retain(|key, _| !["uid", "resourceVersion", "managedFields"].contains(&key.as_str()));
    }
    for path in task.policy.leave_fields.iter().chain(&job.dropped) {
        fields::remove_field_at(&mut object, path);
    }
    if target.key.is_core("Secret") {
        let payload = read_secret_payload(context, task).await?;
        if !payload.is_null() {
            object["data"] = payload;
        }
    }
    set_metadata_entry(&mut object, "labels", LABEL_PLACED_BY, &context.placed_by);
    set_annotation(&mut object, ANNOTATION_SCHEDULE_UID, &task.uid);
    Ok(object)
}

/// Returns the data of a copied Secret, which no Schedule holds.
async fn read_secret_payload(context: &Context, task: &Task) -> Result<Value, Problem> {
    let secrets: Api<Secret> = Api::namespaced(context.control_plane.clone(), &context.namespace);
    match call_with_timeout(secrets.get_opt(&task.name)).await {
        Ok(Some(secret)) => Ok(secret.data.map_or(Value::Null, |data| json!(data))),
        Ok(None) => Err(Problem::retry_soon(
            applied::PAYLOAD_MISSING,
            format!(
                "Secret {}/{} with the data of this object does not exist in the control plane",
                context.namespace, task.name
            ),
        )),
        Err(error) => Err(Problem::retry_soon(applied::UNREACHABLE, format!("the data cannot be read: {error}"))),
    }
}
