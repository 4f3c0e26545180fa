//! Differences that an apply would make, field by field, by server-side dry run.
//!
//! Values that differ only in writing (`1000m` and `1`), defaults and lists with keys are compared as the server stores
//! them. Values of Secrets appear as hashes that are stable within one installation.

use futures::stream::{self, StreamExt as _};
use serde::Serialize;
use serde_json::Value;

use super::adopt;
use super::conflict::{self, Conflict};
use super::engine::Engine;
use super::error::Error;
use super::plan::Plan;
use super::prune::{THEIRS, Unplanned};
use super::step::{Action, Step};
use crate::inventory::record::{Item, digest_manifest};
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::request::server::{ApplyOptions, Server};

/// The namespace that every cluster has, where objects are checked whose own namespace is not there yet.
const STAND_IN: &str = "default";

/// Most times that an object is read again because it changed before the dry run. An object that changes faster than
/// that is compared as it was last read.
const READS_AGAIN: usize = 5;

/// The change of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It would be made.
    Create,
    /// Fields of it would change.
    Update,
    /// It would be deleted.
    Delete,
    /// It is no longer part of the release, but kept.
    Keep,
}

/// One field with both values; none where the field is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Path of the field, such as `.spec.template.spec.containers[name=api].image`.
    pub path: String,
    /// The live value as JSON.
    pub before: Option<String>,
    /// The value after the change as JSON.
    pub after: Option<String>,
}

/// One object that would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The object.
    pub object: ObjectRef,
    /// The change of it.
    pub change: Change,
    /// The fields, sorted by path; empty for deletions and kept objects.
    pub fields: Vec<FieldChange>,
    /// Fields that other managers hold: the apply would stop at these.
    #[serde(skip)]
    pub conflicts: Vec<Conflict>,
    /// Note on what could not be checked, or that the object is kept, with the reason.
    pub note: Option<String>,
}

impl Engine {
    /// Compares a plan with the cluster. Nothing is stored; objects that need no write cost no request.
    ///
    /// # Errors
    /// What the server would refuse at an apply, except for conflicts, which are part of the answer.
    pub async fn diff_plan(&self, plan: &Plan) -> Result<Vec<Difference>, Error> {
        let server = self.server();
        let answers: Vec<Result<Option<Difference>, Error>> = stream::iter(&plan.steps)
            .filter(|step| std::future::ready(step.action.is_write()))
            .map(|step| self.diff_step(&server, step, &plan.install_uid))
            .buffered(self.options.parallel)
            .collect()
            .await;
        let mut differences = Vec::new();
        for answer in answers {
            differences.extend(answer?);
        }
        let pruned: Vec<Result<Option<Difference>, Error>> = stream::iter(&plan.prune)
            .map(|item| self.diff_deletion(&server, item))
            .buffered(self.options.parallel)
            .collect()
            .await;
        for answer in pruned {
            differences.extend(answer?);
        }
        Ok(differences)
    }

    /// Returns the difference for an object that is no longer part of the release: its deletion, or that it is kept.
    /// None if it is deleted already.
    async fn diff_deletion(&self, server: &Server, item: &Item) -> Result<Option<Difference>, Error> {
        let (change, note) = match self.observe_unplanned(server, item).await? {
            Unplanned::Ours(..) => (Change::Delete, None),
            Unplanned::Theirs => (Change::Keep, Some(format!("kept: {THEIRS}"))),
            Unplanned::Unread(error) => (Change::Keep, Some(format!("kept: {error}"))),
            Unplanned::Gone => return Ok(None),
        };
        Ok(Some(Difference { object: item.object.clone(), change, fields: Vec::new(), conflicts: Vec::new(), note }))
    }

    async fn diff_step(&self, server: &Server, step: &Step, uid: &str) -> Result<Option<Difference>, Error> {
        let change = if step.action == Action::Create { Change::Create } else { Change::Update };
        let mut difference =
            Difference { object: step.target.clone(), change, fields: Vec::new(), conflicts: Vec::new(), note: None };
        let mut live = if change == Change::Create { None } else { self.read_step_target(server, step).await? };
        let mut options = ApplyOptions { force: false, dry_run: true };
        let mut reads_again = READS_AGAIN;
        let mut after = loop {
            match server.apply_object(&step.kind, &step.manifest, options).await {
                // What others change between the read and the dry run is no change of the apply.
                Ok(written)
                    if reads_again > 0 && live.as_ref().is_some_and(|live| is_other_version(live, &written.object)) =>
                {
                    reads_again -= 1;
                    live = self.read_step_target(server, step).await?;
                }
                Ok(written) => break written.object,
                Err(error) if error.is_conflict_with_manager() && !options.force => {
                    let mut found = conflict::parse_conflicts(&error, &step.target, &step.manifest, live.as_ref());
                    found.retain(|conflict| !self.may_take(conflict, step));
                    difference.conflicts = found;
                    options.force = true;
                }
                // Its namespace or its definition would be made by this very apply.
                Err(error) if error.is_not_found() => {
                    difference.note = Some(self.stand_in(server, step).await?);
                    break step.manifest.clone();
                }
                Err(error) => return Err(Error::for_object("check", &step.target, error)),
            }
        };
        if let Some(live) = live.as_ref().filter(|_| step.action == Action::Adopt) {
            adopt::drop_with(&mut after, live, &step.manifest);
        }
        compare_values(
            live.as_ref().map(comparable_fields).as_ref(),
            Some(&comparable_fields(&after)),
            &mut String::new(),
            step.target.is_secret().then_some(uid),
            &mut difference.fields,
        );
        difference.fields.sort_by(|a, b| a.path.cmp(&b.path));
        let silent = change == Change::Update && difference.fields.is_empty() && difference.conflicts.is_empty();
        Ok((!silent).then_some(difference))
    }

    /// Has the server check an object whose namespace is not there yet, as if it were made in one that is.
    ///
    /// The answer is a note for people. What the server finds wrong with the object itself is an error.
    async fn stand_in(&self, server: &Server, step: &Step) -> Result<String, Error> {
        if step.target.namespace.is_none() {
            return Ok(format!("not checked by the server: {} does not exist yet", describe_missing_parent(step)));
        }
        let mut manifest = step.manifest.clone();
        manifest["metadata"]["namespace"] = STAND_IN.into();
        // A name that nothing there has, so that the answer is about an object that is made.
        manifest["metadata"]["name"] = format!("fleetctl-check-{}", &digest_manifest("", &step.manifest.clone())[..8])
            .to_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "0")
            .into();
        let options = ApplyOptions { force: false, dry_run: true };
        match server.apply_object(&step.kind, &manifest, options).await {
            Ok(_) => Ok(format!(
                "checked by the server as if in namespace {STAND_IN}: {} does not exist yet",
                describe_missing_parent(step)
            )),
            // Its rights, quotas and policies are not those of the namespace that is meant.
            Err(error) if error.is_not_found() || error.is_forbidden() || error.is_denied_by_policy() => {
                Ok(format!("not checked by the server: {} does not exist yet", describe_missing_parent(step)))
            }
            Err(error) => Err(Error::for_object("check", &step.target, error)),
        }
    }

    async fn read_step_target(&self, server: &Server, step: &Step) -> Result<Option<Value>, Error> {
        let live = server.get_object(&step.kind, step.target.namespace.as_deref(), &step.target.name).await;
        live.map_err(|e| Error::for_object("read", &step.target, e))
    }
}

fn describe_missing_parent(step: &Step) -> String {
    step.target
        .namespace
        .as_ref()
        .map_or_else(|| format!("the kind {}", step.target.kind), |namespace| format!("the namespace {namespace}"))
}

/// Returns true where the answer of a dry run is about another version of an object than the one that was read: a dry run
/// keeps the version that it started from.
fn is_other_version(live: &Value, answer: &Value) -> bool {
    let [live, answer] = [live, answer].map(|object| text_at(object, "/metadata/resourceVersion"));
    live.zip(answer).is_some_and(|(live, answer)| live != answer)
}

/// The part of an object that people mean: without status and what the server counts.
fn comparable_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"] {
            metadata.remove(key);
        }
    }
    object
}

fn compare_values(
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut String,
    hash_by: Option<&str>,
    changes: &mut Vec<FieldChange>,
) {
    let length = path.len();
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                path.push('.');
                path.push_str(key);
                compare_values(before.get(key), after.get(key), path, hash_by, changes);
                path.truncate(length);
            }
        }
        // What comes or goes as a whole is told by its leaves too, so that it reads like a change.
        (None, Some(Value::Object(after))) if !after.is_empty() => {
            for (key, value) in after {
                path.push('.');
                path.push_str(key);
                compare_values(None, Some(value), path, hash_by, changes);
                path.truncate(length);
            }
        }
        (Some(Value::Object(before)), None) if !before.is_empty() => {
            for (key, value) in before {
                path.push('.');
                path.push_str(key);
                compare_values(Some(value), None, path, hash_by, changes);
                path.truncate(length);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for (selector, before, after) in pair_list_items(before, after) {
                path.push_str(&selector);
                compare_values(before, after, path, hash_by, changes);
                path.truncate(length);
            }
        }
        _ => {
            let hash_by = hash_by.filter(|_| {
                path.starts_with(".data") || path.starts_with(".stringData") || path.contains("last-applied")
            });
            let [before, after] = [before, after].map(|value| value.map(|value| show_value(value, hash_by)));
            changes.push(FieldChange { path: path.clone(), before, after });
        }
    }
}

/// Shows a value; one that must not be shown as a hash by the uid of the installation.
fn show_value(value: &Value, hash_by: Option<&str>) -> String {
    hash_by.map_or_else(|| value.to_string(), |uid| format!("hash:{}", digest_manifest(uid, value)))
}

/// Items of two lists that belong together: by name where all have one, else by position.
fn pair_list_items<'a>(before: &'a [Value], after: &'a [Value]) -> Vec<(String, Option<&'a Value>, Option<&'a Value>)> {
    if before.iter().chain(after).all(|item| text_at(item, "/name").is_some()) {
        let mut names: Vec<&str> = before.iter().chain(after).filter_map(|item| text_at(item, "/name")).collect();
        names.sort_unstable();
        names.dedup();
        return names
            .into_iter()
            .map(|name| (format!("[name={name}]"), find_named_item(before, name), find_named_item(after, name)))
            .collect();
    }
    (0..before.len().max(after.len()))
        .map(|index| (format!("[{index}]"), before.get(index), after.get(index)))
        .collect()
}

fn find_named_item<'a>(items: &'a [Value], name: &str) -> Option<&'a Value> {
    items.iter().find(|item| text_at(item, "/name") == Some(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use serde_json::json;

    fn changes(before: &Value, after: &Value, secret: bool) -> Vec<String> {
        let mut changes = Vec::new();
        compare_values(Some(before), Some(after), &mut String::new(), secret.then_some("u"), &mut changes);
        let shown = changes.iter().map(|change| {
            let [before, after] = [&change.before, &change.after].map(|value| value.as_deref().unwrap_or("-"));
            format!("{}: {before} {after}", change.path)
        });
        shown.collect()
    }

    #[test]
    fn a_change_is_told_by_its_field_and_items_of_lists_by_name() {
        let before = json!({"spec": {"replicas": 1, "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}], "args": ["1", "2"]}});
        let after = json!({"spec": {"containers": [{"name": "b", "image": "y"}, {"name": "a", "image": "x:2"}], "args": ["1", "3"], "new": true}});
        let mut found = changes(&before, &after, false);
        found.sort();
        assert_eq!(
            found,
            [
                ".spec.args[1]: \"2\" \"3\"",
                ".spec.containers[name=a].image: \"x:1\" \"x:2\"",
                ".spec.new: - true",
                ".spec.replicas: 1 -",
            ]
        );
    }

    #[test]
    fn values_of_a_secret_are_hashes_that_show_whether_they_differ() {
        let found =
            changes(&json!({"data": {"a": "c2VjcmV0", "b": "x"}}), &json!({"data": {"a": "b3RoZXI=", "b": "x"}}), true);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with(".data.a: hash:") && !found[0].contains("c2VjcmV0") && !found[0].contains("b3RoZXI="),
            "{found:?}"
        );
    }

    #[test]
    fn what_a_secret_loses_as_a_whole_is_hashed_as_well() {
        let last = r#"{"data":{"a":"c2VjcmV0"}}"#;
        let before = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}},
            "data": {"a": "c2VjcmV0"}});
        let found = changes(&before, &json!({"metadata": {}}), true);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|change| change.contains(": hash:") && !change.contains("c2VjcmV0")), "{found:?}");
    }

    /// Returns the note on a new object whose namespace is missing, where the check in the other namespace gets this
    /// answer.
    async fn noted(code: u16, message: &str) -> Result<String, Error> {
        let answer =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        let owner = crate::inventory::Owner::new("control-plane", "demo", "fleet");
        let engine = Engine::new_reader(kube::Client::new(service, "default"), owner);
        let manifest =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd", "namespace": "fleet"}});
        engine.stand_in(&engine.server(), &step(manifest, Action::Create)).await
    }

    fn step(manifest: Value, action: Action) -> Step {
        Step {
            stage: 0,
            target: ObjectRef::of(&manifest).unwrap(),
            kind: crate::api::kinds::Kind::from_table("apps", "StatefulSet"),
            manifest,
            policy: crate::inventory::Policy::Delete,
            action,
            drift: Vec::new(),
            live: None,
            digest: String::new(),
            scaler: None,
            unset: Vec::new(),
        }
    }

    #[tokio::test]
    async fn what_a_controller_changes_before_the_dry_run_is_not_shown_as_a_change_of_ours() {
        let reads = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let mut found = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "etcd", "namespace": "fleet", "resourceVersion": "7"}, "spec": {"replicas": 1}});
            // A controller is faster than the first dry run, and done by the second read.
            let first_read = request.method() == http::Method::GET && reads.fetch_add(1, Ordering::SeqCst) == 0;
            if !first_read {
                found["metadata"]["resourceVersion"] = "8".into();
                found["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
            }
            if request.method() == http::Method::PATCH {
                found["spec"]["replicas"] = 3.into();
            }
            let body = kube::client::Body::from(found.to_string().into_bytes());
            async { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        let owner = crate::inventory::Owner::new("control-plane", "demo", "fleet");
        let engine = Engine::new_reader(kube::Client::new(service, "default"), owner);
        let manifest = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "etcd", "namespace": "fleet"}, "spec": {"replicas": 3}});
        let found = engine.diff_step(&engine.server(), &step(manifest, Action::Change), "u").await.unwrap().unwrap();
        let paths: Vec<&str> = found.fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths, [".spec.replicas"]);
    }

    #[tokio::test]
    async fn a_policy_about_the_namespace_that_stands_in_is_no_fault_of_the_object() {
        let policy =
            "statefulsets.apps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (code, message) in
            [(400, "admission webhook \"p.example\" denied the request: not in default"), (422, policy)]
        {
            let note = noted(code, message).await.unwrap();
            assert_eq!(note, "not checked by the server: the namespace fleet does not exist yet");
        }
        noted(422, "StatefulSet.apps \"x\" is invalid: spec.selector: Required value").await.unwrap_err();
    }
}
