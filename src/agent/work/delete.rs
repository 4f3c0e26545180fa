//! Removing a copy whose Schedule is being deleted: deleted by its UID, or released where it is to be kept.

use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

use super::apply::{Context, value};
use super::problem::Problem;
use super::task::{CopyKey, Target, Task};
use crate::api::first_of::first_of;
use crate::api::labels::{ANNOTATION_ADOPTED, ANNOTATION_SCHEDULE_UID, LABEL_PLACED_BY};
use crate::api::placeable::{self, Kinds, Placeable};
use crate::api::schedule::{OnDelete, applied, deleted};
use crate::diagnose::kstatus::holds;
use crate::k8s::daemon_client::{CallError, call};
use crate::k8s::object::{annotation, is_terminating, uid};
use crate::k8s::pages::all_pages;

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
    },
    /// Not yet; with what it waits for.
    Waiting(String),
}

impl Removed {
    fn done(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Done { reason, message: message.into() }
    }
}

/// Removes the copy of a Schedule, whose UID may be known.
///
/// # Errors
/// The reason that it cannot be removed.
pub async fn remove(context: &Context, task: &Task, known: Option<&str>) -> Result<Removed, Problem> {
    let Ok(target) = &task.target else { return Ok(Removed::done(deleted::DELETED, "nothing was applied")) };
    let key = &target.key;
    let found = match call(context.copies(target).get_opt(&key.name)).await {
        Ok(found) => found,
        // A kind that is not served holds nothing.
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(Problem::of_answer(key, &error)),
    };
    let Some(found) = found else { return Ok(Removed::done(deleted::DELETED, "")) };
    let found = value(target, &found);
    let owned = context.is_own(&found)
        || annotation(&found, ANNOTATION_SCHEDULE_UID) == Some(task.uid.as_str())
        || known == Some(uid(&found));
    if !owned {
        let reason = if key.is_core("Namespace") { deleted::NAMESPACE_KEPT } else { deleted::DELETED };
        return Ok(Removed::done(reason, format!("{key} is no copy of this control plane")));
    }
    if task.policy.on_delete == OnDelete::Keep {
        release(context, target, &found).await?;
        return Ok(Removed::done(deleted::KEPT, format!("{key} was kept, and is not managed any more")));
    }
    // A second deletion of a namespace is refused like that of another object.
    if is_terminating(&found) {
        return Ok(Removed::Waiting(holds(&found)));
    }
    if key.is_core("Namespace") {
        if annotation(&found, ANNOTATION_ADOPTED) == Some("true") {
            release(context, target, &found).await?;
            return Ok(Removed::done(deleted::NAMESPACE_KEPT, format!("{key} was there before")));
        }
        let contents = Contents::of(context, &key.name).await.map_err(|error| Problem::of_answer(key, &error))?;
        if !contents.foreign.is_empty() {
            release(context, target, &found).await?;
            let message =
                format!("{key} was kept, because foreign objects are in it: {}", first_of(&contents.foreign, 3, ", "));
            return Ok(Removed::done(deleted::NAMESPACE_KEPT, message));
        }
        if !contents.own.is_empty() {
            return Ok(Removed::Waiting(format!("copies are still in {key}: {}", first_of(&contents.own, 3, ", "))));
        }
    }
    match remove_object(context, target, uid(&found)).await? {
        Removal::Gone => Ok(Removed::done(deleted::DELETED, "")),
        Removal::Waiting(what) => Ok(Removed::Waiting(what)),
    }
}

/// Deletes the object that has a UID, with all that it owns.
pub async fn remove_object(context: &Context, target: &Target, uid: &str) -> Result<Removal, Problem> {
    delete(&context.copies(target), &target.key.name, uid)
        .await
        .map(|left| match left {
            Some(object) => Removal::Waiting(holds(&value(target, &object))),
            None => Removal::Gone,
        })
        .map_err(|error| Problem::of_answer(&target.key, &error))
}

/// Deletes the object of a name and UID. Returns it where it is not gone at once.
pub async fn delete(api: &Api<DynamicObject>, name: &str, uid: &str) -> Result<Option<DynamicObject>, CallError> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match call(api.delete(name, &params)).await {
        Ok(answer) => Ok(answer.left()),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes our marks from an object, unless it changed since it was read.
async fn release(context: &Context, target: &Target, found: &Value) -> Result<(), Problem> {
    let patch = placeable::unmarked(json!({ "resourceVersion": found["metadata"]["resourceVersion"] }));
    match call(context.copies(target).patch(&target.key.name, &PatchParams::default(), &Patch::Merge(&patch))).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) if error.is_conflict() => {
            Err(Problem::soon(applied::UNREACHABLE, format!("{} changed while it was released", target.key)))
        }
        Err(error) => Err(Problem::of_answer(&target.key, &error)),
    }
}

/// Objects in a namespace, without those that Kubernetes puts into each and those that a listed object owns.
#[derive(Debug, Default)]
struct Contents {
    own: Vec<String>,
    foreign: Vec<String>,
}

impl Contents {
    /// Lists the kinds that can be placed; Secrets may not be listed.
    async fn of(context: &Context, namespace: &str) -> Result<Self, CallError> {
        let mut contents = Self::default();
        for kind in context.kinds.iter().filter(|kind| kind.namespaced && is_listed(kind)) {
            let api: Api<DynamicObject> = kind.api(&context.local, Some(namespace));
            let listed = all_pages(ListParams::default(), |page| {
                let api = api.clone();
                async move { call(api.list_metadata(&page)).await }
            });
            let found = match listed.await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            for object in &found {
                let own = object.labels().get(LABEL_PLACED_BY) == Some(&context.placed_by);
                let key = CopyKey::new(kind, Some(namespace), &object.name_any());
                if own {
                    contents.own.push(key.to_string());
                } else if !is_made_by_kubernetes(&key) && !has_listed_owner(&context.kinds, object.owner_references()) {
                    contents.foreign.push(key.to_string());
                }
            }
        }
        Ok(contents)
    }
}

/// Returns true for kinds that the agent may list and watch.
pub fn is_listed(kind: &Placeable) -> bool {
    !(kind.group.is_empty() && kind.kind == "Secret")
}

fn is_made_by_kubernetes(key: &CopyKey) -> bool {
    (key.is_core("ConfigMap") && key.name == "kube-root-ca.crt")
        || (key.is_core("ServiceAccount") && key.name == "default")
}

/// Returns true where the controller of an object is of a kind that is listed as well.
fn has_listed_owner(kinds: &Kinds, owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]) -> bool {
    owners.iter().filter(|owner| owner.controller == Some(true)).any(|owner| {
        let group = crate::api::kinds::split_api_version(&owner.api_version).0;
        kinds.find(group, &owner.kind).is_some_and(is_listed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::test_api;

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
            let kind = placeable::find("", "Namespace").unwrap();
            let api = kind.api(&local, None);
            assert_eq!(delete(&api, "n", "a").await.is_ok_and(|left| left.is_none()), gone, "{code} {message}");
        }
    }
}
