//! Adoption of an object that existed before, and its release when the source is deleted: the object is kept.
//!
//! The mark of an adopted object has its own field manager, so that no apply of the copy removes it. Its value lists
//! the former fields of the object. When the source is deleted, fields that only the source added are removed; former
//! fields, whatever their present value, and those of other managers are kept.

use std::collections::{BTreeMap, BTreeSet};

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::context::{Context, copy_json};
use super::index::owned_fields;
use super::problem::Problem;
use super::task::Target;
use crate::api::crd::schedule::applied;
use crate::api::labels::{AGENT_MANAGER, ANNOTATION_ADOPTED, OWN_KEY_PREFIX};
use crate::api::placeable;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::managed_fields::extract_fields;
use crate::k8s::object::{items_at, object_annotation, object_uid, text_at};

/// Field manager of the mark, and of the fields that are kept at the end.
const MANAGER: &str = "fleet-agent-adopted";
/// Value of the mark where nothing is known of former fields: all are kept.
const ALL: &str = "true";
/// Longest list of former fields, as JSON.
const LONGEST: usize = 16 * 1024;
/// Parts of an object that are listed key by key; all others are listed as a whole.
const BY_KEY: [&str; 6] = ["/metadata/labels", "/metadata/annotations", "/data", "/stringData", "/binaryData", "/spec"];

/// Fields that an object had before its adoption: keys by part, or none for a part that is kept as a whole.
type Former = BTreeMap<String, Option<BTreeSet<String>>>;

/// Returns the parts of an object that are managed: those of its metadata, then those beside them.
fn managed_parts(object: &Value) -> impl Iterator<Item = (String, &Value)> {
    let metadata = BY_KEY[..2].iter().filter_map(|part| Some(((*part).to_owned(), object.pointer(part)?)));
    let rest = object.as_object().into_iter().flatten();
    let rest = rest.filter(|(key, _)| !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
    metadata.chain(rest.map(|(key, value)| (format!("/{key}"), value)))
}

/// Lists the fields of an object for its mark.
fn list_former_fields(found: &Value) -> String {
    let listed: Former = managed_parts(found)
        .map(|(part, value)| {
            let keys = value
                .as_object()
                .filter(|_| BY_KEY.contains(&part.as_str()))
                .map(|map| map.keys().filter(|key| !key.starts_with(OWN_KEY_PREFIX)).cloned().collect::<BTreeSet<_>>());
            (part, keys)
        })
        .collect();
    let text = serde_json::to_string(&listed).unwrap_or_default();
    if text.is_empty() || text.len() > LONGEST { ALL.to_owned() } else { text }
}

/// Returns the part of an object that already existed, by its mark; all of it where the mark lists nothing.
fn retain_former_fields(object: &Value, mark: &str) -> Value {
    let former: Option<Former> = serde_json::from_str(mark).ok();
    let mut kept = json!({});
    for (part, value) in managed_parts(object) {
        let keys = match former.as_ref().map(|former| former.get(&part)) {
            None | Some(Some(None)) => None,
            Some(None) => continue,
            Some(Some(Some(keys))) => Some(keys),
        };
        let value = match value.as_object() {
            Some(map) => {
                let mut map = map.clone();
                map.retain(|key, _| keys.is_none_or(|keys| keys.contains(key)) && !key.starts_with(OWN_KEY_PREFIX));
                Value::Object(map)
            }
            None => value.clone(),
        };
        match part.strip_prefix("/metadata/") {
            Some(name) => kept["metadata"][name] = value,
            None => kept[part.trim_start_matches('/')] = value,
        }
    }
    kept
}

/// Completes a part of an object to what an apply needs; the UID is its precondition.
fn with_identity(mut object: Value, target: &Target, uid: &str) -> Value {
    object["apiVersion"] = json!(target.api_version);
    object["kind"] = json!(target.key.kind);
    object["metadata"]["name"] = json!(target.key.name);
    object["metadata"]["uid"] = json!(uid);
    if let Some(namespace) = &target.key.namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// Returns whether an object was adopted.
pub fn is_adopted(found: &Value) -> bool {
    object_annotation(found, ANNOTATION_ADOPTED).is_some()
}

/// Marks an object as adopted, before its first apply; one that is marked already is kept so.
///
/// # Errors
/// The failed request.
pub async fn mark_adopted(context: &Context, target: &Target, found: &Value) -> Result<(), CallError> {
    let mark = object_annotation(found, ANNOTATION_ADOPTED).map_or_else(|| list_former_fields(found), str::to_owned);
    let object = json!({ "metadata": { "annotations": { ANNOTATION_ADOPTED: mark } } });
    let object = with_identity(object, target, object_uid(found));
    let params = PatchParams::apply(MANAGER).force();
    call_with_timeout(context.copies_api(target).patch(&target.key.name, &params, &Patch::Apply(&object)))
        .await
        .map(drop)
}

/// Hands the mark of an earlier agent to its own manager: the next apply would remove it.
///
/// # Errors
/// The failed request.
pub async fn keep_mark(context: &Context, target: &Target) -> Result<(), CallError> {
    let Some(found) = call_with_timeout(context.copies_api(target).get_opt(&target.key.name)).await? else {
        return Ok(());
    };
    let found = copy_json(target, &found);
    let is_held =
        items_at(&found, "/metadata/managedFields").iter().any(|entry| text_at(entry, "/manager") == Some(MANAGER));
    if is_adopted(&found) && !is_held { mark_adopted(context, target, &found).await } else { Ok(()) }
}

/// Ends the adoption of an object: removes what only its source has brought, then the marks.
///
/// # Errors
/// The reason that it is not released yet.
pub async fn end_adoption(context: &Context, target: &Target, found: &Value) -> Result<(), Problem> {
    let api = context.copies_api(target);
    let mark = object_annotation(found, ANNOTATION_ADOPTED).unwrap_or(ALL);
    let owned = owned_fields(found).map_or_else(|| json!({}), |fields| extract_fields(found, fields));
    let mut kept = retain_former_fields(&owned, mark);
    // The mark is removed last: an agent that begins again in between goes on from here.
    kept["metadata"]["annotations"][ANNOTATION_ADOPTED] = json!(mark);
    let kept = with_identity(kept, target, object_uid(found));
    let nothing = with_identity(json!({}), target, object_uid(found));
    let removed = match apply_as_manager(&api, MANAGER, target, &kept).await {
        Ok(_) => apply_as_manager(&api, AGENT_MANAGER, target, &nothing).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => {}
        Err(error) if error.is_gone() => return Ok(()),
        Err(error) if error.is_conflict() => {
            return Err(Problem::retry_soon(
                applied::UNREACHABLE,
                format!("{} changed while the agent was releasing it", target.key),
            ));
        }
        // Without them it would be invalid: its fields are kept as they are.
        Err(error) if matches!(error.status_code(), Some(400 | 422)) => {}
        Err(error) => return Err(Problem::of_answer(&target.key, &error)),
    }
    let unmarked = placeable::build_unmark_patch(json!({ "uid": object_uid(found) }));
    match call_with_timeout(api.patch(&target.key.name, &PatchParams::default(), &Patch::Merge(&unmarked))).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_gone() => Ok(()),
        Err(error) => Err(Problem::of_answer(&target.key, &error)),
    }
}

async fn apply_as_manager(
    api: &Api<DynamicObject>,
    manager: &str,
    target: &Target,
    object: &Value,
) -> Result<DynamicObject, CallError> {
    call_with_timeout(api.patch(&target.key.name, &PatchParams::apply(manager), &Patch::Apply(object))).await
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn what_was_there_before_is_kept_and_what_the_source_brought_is_not() {
        let before = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"pw": "old"},
            "metadata": {"name": "a", "labels": {"team": "x", "fleet-scheduler.io/placed-by": "ffffffff"}}, "status": {}});
        let mark = list_former_fields(&before);
        let owned = json!({"type": "Opaque", "data": {"pw": "new", "mine": "1"}, "immutable": true,
            "metadata": {"labels": {"team": "y", "fleet-scheduler.io/placed-by": "0a1b2c3d", "app": "a"},
                "annotations": {"fleet-scheduler.io/schedule-uid": "u"}}});
        let expected = json!({"type": "Opaque", "data": {"pw": "new"}, "metadata": {"labels": {"team": "y"}}});
        assert_eq!(retain_former_fields(&owned, &mark), expected);
        let all = retain_former_fields(&owned, ALL);
        assert_eq!(all["data"], owned["data"], "nothing is known of what was there before");
        assert_eq!(all["metadata"]["labels"], json!({"team": "y", "app": "a"}));
    }

    #[test]
    fn parts_of_a_workload_are_kept_as_a_whole() {
        let before = json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}});
        let owned =
            json!({"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}});
        let expected = json!({"spec": {"template": owned["spec"]["template"]}});
        assert_eq!(retain_former_fields(&owned, &list_former_fields(&before)), expected);
    }

    #[test]
    fn a_mark_is_bounded() {
        let data: Map<String, Value> = (0..5000).map(|index| (format!("key-{index}"), json!("x"))).collect();
        assert_eq!(list_former_fields(&json!({"data": data})), ALL);
    }
}
