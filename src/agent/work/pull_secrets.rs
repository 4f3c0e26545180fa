//! Pull secrets of ServiceAccounts: names are added to the list in the workload cluster, and taken out of it again.
//!
//! The list is atomic: an apply of it would take away the names that others have put there. What was added is
//! remembered in an annotation, so that a name that already existed is never taken out.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::context::{Context, copy_json};
use super::task::{CopyKey, Target};
use crate::api::labels::ANNOTATION_ADDED_PULL_SECRETS;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::object::{items_at, object_annotation, text_at};

/// Field manager of the list and its annotation.
const MANAGER: &str = "fleet-agent-pull-secrets";
/// Most times that an account is read because others change it meanwhile.
const READS: usize = 5;

/// Takes the list out of the manifest of an account; `None` for other kinds.
pub fn take_pull_secrets(key: &CopyKey, manifest: &mut Value) -> Option<BTreeSet<String>> {
    let fields = manifest.as_object_mut().filter(|_| key.is_core("ServiceAccount"))?;
    let list = json!({ "list": fields.remove("imagePullSecrets") });
    Some(list_names(&list, "/list").map(str::to_owned).collect())
}

fn list_names<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    items_at(object, pointer).iter().filter_map(|entry| text_at(entry, "/name"))
}

/// Returns the patch of an account's list and of what is remembered; `None` where both are as they should be.
fn build_patch(found: &Value, wanted: &BTreeSet<String>) -> Option<Value> {
    let before = object_annotation(found, ANNOTATION_ADDED_PULL_SECRETS).unwrap_or_default();
    let added: BTreeSet<&str> = before.split(',').filter(|name| !name.is_empty()).collect();
    let present: Vec<&str> = list_names(found, "/imagePullSecrets").collect();
    let mut list: Vec<&str> =
        present.iter().copied().filter(|name| !added.contains(name) || wanted.contains(*name)).collect();
    let new: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| !list.contains(name)).collect();
    list.extend(&new);
    let kept = added.iter().copied().filter(|name| wanted.contains(*name));
    let marks = kept.chain(new).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",");
    if list == present && marks == before {
        return None;
    }
    let list: Vec<Value> = list.iter().map(|name| json!({ "name": name })).collect();
    let marks = if marks.is_empty() { Value::Null } else { json!(marks) };
    Some(json!({
        "metadata": {
            "uid": found["metadata"]["uid"],
            "resourceVersion": found["metadata"]["resourceVersion"],
            "annotations": { ANNOTATION_ADDED_PULL_SECRETS: marks },
        },
        "imagePullSecrets": list,
    }))
}

/// Adds names to the list of an account, and takes those out that were added before and are not wanted any more. Returns the
/// account as it is then.
///
/// # Errors
/// The failed request; a conflict where others change the account all the time.
pub async fn merge_pull_secrets(
    context: &Context,
    target: &Target,
    mut found: Value,
    wanted: &BTreeSet<String>,
) -> Result<Value, CallError> {
    let api = context.copies_api(target);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let mut reads = 0;
    while let Some(patch) = build_patch(&found, wanted) {
        let error = match call_with_timeout(api.patch(&target.key.name, &params, &Patch::Merge(&patch))).await {
            Ok(object) => return Ok(copy_json(target, &object)),
            Err(error) => error,
        };
        reads += 1;
        if !error.is_conflict() || reads == READS {
            return Err(error);
        }
        found = copy_json(target, &call_with_timeout(api.get(&target.key.name)).await?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(names: &[&str], added: &str) -> Value {
        let list: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "metadata": { "uid": "u", "resourceVersion": "1",
            "annotations": { ANNOTATION_ADDED_PULL_SECRETS: added } }, "imagePullSecrets": list })
    }

    fn after(names: &[&str], added: &str, wanted: &[&str]) -> Option<(Vec<String>, Value)> {
        let wanted = wanted.iter().map(|name| (*name).to_owned()).collect();
        let patch = build_patch(&account(names, added), &wanted)?;
        let list = list_names(&patch, "/imagePullSecrets").map(str::to_owned).collect();
        Some((list, patch["metadata"]["annotations"][ANNOTATION_ADDED_PULL_SECRETS].clone()))
    }

    fn owned_names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_of_others_stay_and_ours_come_and_go() {
        assert_eq!(after(&["theirs"], "", &["a", "b"]), Some((owned_names(&["theirs", "a", "b"]), json!("a,b"))));
        assert_eq!(after(&["theirs", "a", "b"], "a,b", &["a", "b"]), None, "all is there");
        assert_eq!(after(&["theirs", "a", "b"], "a,b", &["b"]), Some((owned_names(&["theirs", "b"]), json!("b"))));
        assert_eq!(after(&["theirs", "b"], "b", &[]), Some((owned_names(&["theirs"]), Value::Null)));
        assert_eq!(
            after(&["theirs"], "b", &["b"]),
            Some((owned_names(&["theirs", "b"]), json!("b"))),
            "somebody took it out"
        );
        assert_eq!(after(&["a"], "", &["a"]), None, "it was there before: it is not ours");
        assert_eq!(after(&["a"], "", &[]), None);
    }

    #[test]
    fn the_list_leaves_the_manifest_of_an_account_alone() {
        let [account, secret] = ["ServiceAccount", "Secret"].map(|kind| CopyKey {
            group: "",
            kind,
            namespace: Some("n".to_owned()),
            name: "default".to_owned(),
        });
        let mut manifest = json!({ "imagePullSecrets": [{ "name": "b" }, { "name": "a" }, {}] });
        let taken = take_pull_secrets(&account, &mut manifest).unwrap();
        assert_eq!(
            (taken.into_iter().collect::<Vec<_>>(), manifest),
            (vec!["a".to_owned(), "b".to_owned()], json!({}))
        );
        let mut other = json!({ "imagePullSecrets": [] });
        assert_eq!((take_pull_secrets(&secret, &mut other), other), (None, json!({ "imagePullSecrets": [] })));
        assert!(account.is_default_account() && !secret.is_default_account());
    }
}
