//! Fields that no patch may change: identity and ownership of an object, the labels and selectors by which it is found,
//! and the data of Secrets.

use serde_json::Value;

use crate::api::labels::OWN_KEY_PREFIX;
use crate::chart::diagnostic::Diagnostic;
use crate::chart::values::OWN_LABELS;

use super::Wrong;

/// Prefix of the keys of ApplySets, by which orphaned objects are found.
const APPLYSET_PREFIX: &str = "applyset.kubernetes.io/";

/// Fields that say what an object is, as JSON pointers.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// Fields that belong to the API server.
const OF_SERVER: [&str; 7] = [
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/metadata/managedFields",
    "/status",
];

/// Fields of a Secret that no patch may change, its data first of all.
const SECRET: [&str; 4] = ["/data", "/stringData", "/type", "/immutable"];

/// Returns the changes from `before` to `after` that no patch may make.
pub(super) fn check_patched_object(before: &Value, after: &Value) -> Vec<Wrong> {
    let mut found = Vec::new();
    if !after.is_object() {
        return vec![forbidden_change(
            "",
            "patch-identity",
            "a patch cannot replace a whole object",
            "change single fields",
        )];
    }
    for pointer in IDENTITY.iter().filter(|pointer| differs_at(pointer, before, after)) {
        let message = format!("a patch cannot change `{}`", dotted_path(pointer));
        let help = "leave it out: it identifies the object";
        found.push(forbidden_change(pointer, "patch-identity", message, help));
    }
    for pointer in OF_SERVER.iter().filter(|pointer| differs_at(pointer, before, after)) {
        let message = format!("`{}` belongs to the API server", dotted_path(pointer));
        found.push(forbidden_change(pointer, "patch-identity", message, "leave it out"));
    }
    if before["kind"] == "Secret" {
        for pointer in SECRET.iter().filter(|pointer| differs_at(pointer, before, after)) {
            let message = format!("a patch cannot change `{}` of a Secret", dotted_path(pointer));
            let help = "keys come from `--pki` or an install, credentials from `registryCredentials` and \
                        `cloud.accessKey`: a patch must not contain secrets";
            found.push(forbidden_change(pointer, "patch-secret", message, help));
        }
    }
    if differs_at("/spec/selector", before, after) {
        let message = "a patch cannot change `spec.selector`";
        let help = "leave it out: it selects the pods, and the API server does not allow changes to it";
        found.push(forbidden_change("/spec/selector", "patch-selector", message, help));
    }
    for metadata in ["/metadata", "/spec/template/metadata"] {
        own_keys(before, after, metadata, &mut found);
    }
    let claims = before.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..claims {
        own_keys(before, after, &format!("/spec/volumeClaimTemplates/{index}/metadata"), &mut found);
    }
    found
}

fn differs_at(pointer: &str, before: &Value, after: &Value) -> bool {
    before.pointer(pointer) != after.pointer(pointer)
}

/// Reports changes of this program's own labels and annotations, and of those of ApplySets, in the metadata at a
/// pointer.
fn own_keys(before: &Value, after: &Value, metadata: &str, found: &mut Vec<Wrong>) {
    for field in ["labels", "annotations"] {
        let pointer = format!("{metadata}/{field}");
        let [before, after] = [before, after]
            .map(|object| object.pointer(&pointer).and_then(Value::as_object).cloned().unwrap_or_default());
        let own = before.keys().chain(after.keys()).filter(|key| {
            let by_prefix = [OWN_KEY_PREFIX, APPLYSET_PREFIX].iter().any(|prefix| key.starts_with(prefix));
            by_prefix || field == "labels" && OWN_LABELS.contains(&key.as_str())
        });
        let mut keys: Vec<&String> = own.collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys.into_iter().filter(|key| before.get(*key) != after.get(*key)) {
            let mut problem = forbidden_change(
                &pointer,
                "patch-selector",
                format!("a patch cannot change the {} `{key}`", field.trim_end_matches('s')),
                "use your own key, such as `example.com/team`: this one is used to find the object",
            );
            problem.path.push(key.clone());
            found.push(problem);
        }
    }
}

fn dotted_path(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

fn forbidden_change(pointer: &str, code: &'static str, message: impl Into<String>, help: &str) -> Wrong {
    let path = pointer.split('/').skip(1).map(str::to_owned).collect();
    Wrong { path, diagnostic: Diagnostic::error(code, message).help(help) }
}
