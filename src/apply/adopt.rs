//! Taking over objects that kubectl or Helm made: their fields become ours, so that later applies can drop them; and letting
//! go of all that is ours.
//!
//! Without this, a field that such a tool once set and our manifest does not have would be kept for ever, because two
//! managers own it. kubectl does the same when it migrates to server-side apply.

use serde_json::{Value, json};

use super::engine::Engine;
use super::error::Error;
use super::step::Step;
use crate::api::kinds::Kind;
use crate::inventory::owner::INSTALL_LABEL;
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, items_at, text_at};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::server::{MANAGER, Server};

/// Number of times that an object is read again that was changed in between.
const TRIES: u32 = 20;

/// Managers whose entries stand for a whole manifest, by which of the two operations they ever write; our own for one that a
/// rollback gave back.
const TOOLS: [&str; 5] = ["kubectl-client-side-apply", "kubectl-create", "kubectl", "helm", MANAGER];

impl Engine {
    /// Renames the entries of such tools into ours. Nothing but `managedFields` changes.
    ///
    /// Controllers write to the object meanwhile: where that came in between, it is read and done again.
    pub(crate) async fn take_over(&self, server: &Server, step: &Step) -> Result<(), Error> {
        let written = write_entries(server, &step.kind, &step.target, step.live.clone(), merged_entries).await;
        written.map_err(|error| Error::for_object("adopt", &step.target, error))
    }

    /// Puts the entries of tools as they were in the place of all of ours, so that their next apply finds its own fields.
    /// Nothing but `managedFields` changes.
    pub(crate) async fn hand_over(
        &self,
        server: &Server,
        kind: &Kind,
        target: &ObjectRef,
        entries: &[Value],
    ) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        give_back_fields(server, kind, target, |live| with_former(live, entries)).await
    }

    /// Removes our entry, so that nothing of an object is ours any more. Nothing but `managedFields` changes.
    pub(crate) async fn remove_managed_fields(
        &self,
        server: &Server,
        kind: &Kind,
        target: &ObjectRef,
    ) -> Result<(), Error> {
        give_back_fields(server, kind, target, without_ours).await
    }
}

/// Reads an object and writes other entries, so that its fields belong to others again.
async fn give_back_fields(
    server: &Server,
    kind: &Kind,
    target: &ObjectRef,
    others: impl Fn(&Value) -> Option<Vec<Value>>,
) -> Result<(), Error> {
    let written = match server.get_metadata(kind, target.namespace.as_deref(), &target.name).await {
        Ok(live) => write_entries(server, kind, target, live, others).await,
        Err(error) => Err(error),
    };
    written.map_err(|error| Error::for_object("give back the fields of", target, error))
}

/// Writes other entries than those of `live`. Where somebody wrote in between, it is read and done again.
async fn write_entries(
    server: &Server,
    kind: &Kind,
    target: &ObjectRef,
    mut live: Option<Value>,
    others: impl Fn(&Value) -> Option<Vec<Value>>,
) -> Result<(), ApiError> {
    for left in (0..TRIES).rev() {
        let Some(current) = live else { return Ok(()) };
        let Some(managed) = others(&current) else { return Ok(()) };
        let version = text_at(&current, "/metadata/resourceVersion").unwrap_or_default();
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]);
        let Err(refused) = server.json_patch(kind, target, &patch).await else { return Ok(()) };
        if left == 0 || refused.code != 422 {
            return Err(refused);
        }
        live = server.get_metadata(kind, target.namespace.as_deref(), &target.name).await?;
        if live.as_ref().is_some_and(|live| text_at(live, "/metadata/resourceVersion") == Some(version)) {
            return Err(refused);
        }
    }
    Ok(())
}

/// All entries but ours. An empty list would be no change to the server; an empty entry stands for none.
fn without_ours(live: &Value) -> Option<Vec<Value>> {
    managed_fields::owned_entry(live)?;
    let entries = items_at(live, "/metadata/managedFields").iter();
    let rest: Vec<Value> = entries.filter(|entry| !managed_fields::is_ours(entry)).cloned().collect();
    Some(if rest.is_empty() { vec![json!({})] } else { rest })
}

/// The entries with the former ones of tools in the place of ours; none where they are like that. What a tool has written
/// since stays its own.
fn with_former(live: &Value, former: &[Value]) -> Option<Vec<Value>> {
    let now = items_at(live, "/metadata/managedFields");
    let mut entries: Vec<Value> =
        now.iter().filter(|entry| !is_tool(entry) || text_at(entry, "/manager") != Some(MANAGER)).cloned().collect();
    let names = ["manager", "operation", "apiVersion"];
    for entry in former {
        let known = entries
            .iter_mut()
            .find(|known| is_tool(known) && names.iter().all(|name| known.get(name) == entry.get(name)));
        match (known, entry.get("fieldsV1")) {
            (Some(known), Some(fields)) => managed_fields::merge_field_sets(&mut known["fieldsV1"], fields),
            (Some(_), None) => {}
            (None, _) => entries.push(entry.clone()),
        }
    }
    Some(entries).filter(|entries| entries != now)
}

/// The entries of tools, where they take at most so many bytes.
pub(crate) fn find_tool_entries(live: &Value, most: usize) -> Vec<Value> {
    let entries = items_at(live, "/metadata/managedFields").iter().filter(|entry| is_tool(entry)).cloned();
    let entries: Vec<Value> = entries.collect();
    let size: usize = entries.iter().map(|entry| entry.to_string().len()).sum();
    if size <= most { entries } else { Vec::new() }
}

/// Returns whether an entry is of a tool: of one that is known, or of one that has made a copy of an object of ours.
pub(super) fn is_tool(entry: &Value) -> bool {
    text_at(entry, "/subresource").unwrap_or_default().is_empty()
        && (text_at(entry, "/manager").is_some_and(|manager| TOOLS.contains(&manager)) || is_copy(entry))
}

/// Returns whether an entry is of who wrote the labels of an installation, and not by applying: a tool that restores objects
/// from a backup, under whatever name, writes whole ones.
pub(super) fn is_copy(entry: &Value) -> bool {
    let labels = entry.pointer("/fieldsV1/f:metadata/f:labels");
    text_at(entry, "/operation") == Some("Update")
        && labels.is_some_and(|labels| labels.get(format!("f:{INSTALL_LABEL}")).is_some())
}

/// Removes from `after`, the answer to a dry run over an object that is not adopted yet, the fields that an adoption
/// would remove with the entries of tools: those that only tools own and `manifest` does not have.
pub(crate) fn drop_with(after: &mut Value, live: &Value, manifest: &Value) {
    let Some(merged) = merged_entries(live) else { return };
    let mut fields = merged.iter().filter_map(|entry| entry.get("fieldsV1"));
    let Some(ours) = fields.next() else { return };
    drop_unset(after, ours, Some(manifest), &fields.collect::<Vec<_>>());
}

fn drop_unset(after: &mut Value, fields: &Value, manifest: Option<&Value>, others: &[&Value]) {
    for (key, child) in fields.as_object().into_iter().flatten() {
        let below: Vec<&Value> = others.iter().filter_map(|other| other.get(key)).collect();
        if let Some(name) = key.strip_prefix("f:") {
            let wanted = manifest.and_then(|manifest| manifest.get(name));
            let Some(value) = after.get_mut(name) else { continue };
            drop_unset(value, child, wanted, &below);
            let is_bare = child.as_object().is_none_or(|map| map.keys().all(|key| key == "."));
            let emptied = value.as_object().is_some_and(serde_json::Map::is_empty);
            if wanted.is_none()
                && below.is_empty()
                && (is_bare || emptied)
                && let Some(map) = after.as_object_mut()
            {
                map.remove(name);
            }
        } else if let Some(items) = after.as_array_mut() {
            let wanted =
                manifest.and_then(Value::as_array).and_then(|items| items.iter().find(|item| is_keyed_item(key, item)));
            let Some(at) = items.iter().position(|item| is_keyed_item(key, item)) else { continue };
            drop_unset(&mut items[at], child, wanted, &below);
            if wanted.is_none() && below.is_empty() {
                items.remove(at);
            }
        }
    }
}

/// Returns whether a key of managed fields is about this item of a list.
fn is_keyed_item(key: &str, item: &Value) -> bool {
    managed_fields::names_item(key, item) || managed_fields::is_item(key, item)
}

/// The entries with those of tools in one of ours; none when there is nothing to rename or we have one already.
fn merged_entries(live: &Value) -> Option<Vec<Value>> {
    if managed_fields::owned_entry(live).is_some() {
        return None;
    }
    let (tools, mut rest): (Vec<Value>, Vec<Value>) =
        items_at(live, "/metadata/managedFields").iter().cloned().partition(is_tool);
    let mut ours = tools.first()?.clone();
    for other in &tools[1..] {
        managed_fields::merge_field_sets(&mut ours["fieldsV1"], other.get("fieldsV1")?);
    }
    ours["manager"] = MANAGER.into();
    ours["operation"] = "Apply".into();
    rest.insert(0, ours);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn the_fields_of_tools_become_one_entry_of_ours_and_those_of_controllers_stay() {
        let live = json!({"metadata": {"managedFields": [
            entry("kubectl-client-side-apply", "Update", &json!({"f:data": {"f:a": {}}})),
            entry("kube-controller-manager", "Update", &json!({"f:status": {}})),
            entry("helm", "Update", &json!({"f:data": {"f:b": {}}}))]}});
        let merged = merged_entries(&live).unwrap();
        assert_eq!(
            merged,
            [
                entry(MANAGER, "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}})),
                entry("kube-controller-manager", "Update", &json!({"f:status": {}})),
            ]
        );
        assert!(
            merged_entries(&json!({"metadata": {"managedFields": merged}})).is_none(),
            "a second time there is nothing to do"
        );
    }

    #[test]
    fn what_others_applied_server_side_is_taken_over_as_well() {
        let live = json!({"metadata": {"managedFields": [
            entry("helm", "Apply", &json!({"f:data": {"f:a": {}}})),
            entry("kubectl", "Apply", &json!({"f:data": {"f:b": {}}})),
            entry("argocd", "Apply", &json!({"f:data": {"f:c": {}}}))]}});
        let merged = merged_entries(&live).unwrap();
        assert_eq!(merged[0], entry(MANAGER, "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}})));
        assert_eq!(merged[1], entry("argocd", "Apply", &json!({"f:data": {"f:c": {}}})));
    }

    /// An object that a backup tool has written with these fields, and a controller after it.
    fn restored_object(operation: &str, fields: &Value) -> Value {
        let controller = entry("kube-controller-manager", "Update", &json!({"f:metadata": {"f:annotations": {}}}));
        json!({"metadata": {"managedFields": [entry("backup-server", operation, fields), controller]}})
    }

    #[test]
    fn what_a_backup_tool_has_restored_is_taken_over_under_whatever_name() {
        let labels = json!({"f:metadata": {"f:labels": {"f:fleet-scheduler.io/install": {}}}, "f:data": {"f:a": {}}});
        let merged = merged_entries(&restored_object("Update", &labels)).unwrap();
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[0], entry(MANAGER, "Apply", &labels));
        assert_eq!(merged_entries(&restored_object("Apply", &labels)), None, "who applies holds what it applies");
    }

    /// An object of ours with the entries of a controller and `more`.
    fn adopted_object(controller: &Value, more: &[Value]) -> Value {
        let ours = [
            controller.clone(),
            entry(MANAGER, "Apply", &json!({"f:metadata": {}})),
            entry(MANAGER, "Update", &json!({"f:data": {"f:a": {}}})),
        ];
        let entries = [&ours[..], more].concat();
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn the_entries_of_tools_come_back_in_the_place_of_ours_and_with_what_they_have_written_since() {
        let controller = entry("kube-controller-manager", "Update", &json!({"f:status": {}}));
        let before = json!({"metadata": {"managedFields": [entry("helm", "Apply", &json!({"f:data": {"f:a": {}}})), controller]}});
        let former = find_tool_entries(&before, 1024);
        assert_eq!(former, [entry("helm", "Apply", &json!({"f:data": {"f:a": {}}}))]);
        assert_eq!(find_tool_entries(&before, 64), Vec::<Value>::new(), "they do not fit");
        assert_eq!(
            with_former(&adopted_object(&controller, &[]), &former).unwrap(),
            [controller.clone(), former[0].clone()]
        );
        let since = entry("helm", "Apply", &json!({"f:data": {"f:b": {}}}));
        let both = entry("helm", "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}}));
        assert_eq!(with_former(&adopted_object(&controller, &[since]), &former).unwrap(), [controller.clone(), both]);
        assert!(with_former(&before, &former).is_none(), "a second time there is nothing to do");
    }

    fn list_containers(names: &[&str]) -> Vec<Value> {
        names.iter().map(|name| json!({"name": name})).collect()
    }

    /// The managed fields of a list of containers.
    fn container_fields(names: &[&str]) -> Value {
        let fields = names.iter().map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}})));
        Value::Object(fields.collect())
    }

    #[test]
    fn what_only_a_tool_has_set_goes_with_its_entry() {
        let live = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "1"}, "finalizers": ["f", "g"],
            "managedFields": [
                entry("helm", "Update", &json!({
                    "f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}, "f:annotations": {".": {}, "f:x": {}},
                        "f:finalizers": {".": {}, "v:\"f\"": {}, "v:\"g\"": {}}},
                    "f:spec": {"f:replicas": {}, "f:containers": container_fields(&["one", "side", "shared"])}})),
                entry("operator", "Update", &json!({"f:spec": {"f:containers": container_fields(&["shared"])}}))]}});
        let mut after = json!({"metadata": {"labels": {"a": "1", "b": "2", "c": "3"}, "annotations": {"x": "1"}, "finalizers": ["f", "g"]},
            "spec": {"replicas": 3, "containers": list_containers(&["one", "side", "shared", "other"])}});
        let manifest = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["g"]}, "spec": {"containers": list_containers(&["one"])}});
        drop_with(&mut after, &live, &manifest);
        assert_eq!(
            after,
            json!({"metadata": {"labels": {"a": "1", "c": "3"}, "finalizers": ["g"]},
                "spec": {"containers": list_containers(&["one", "shared", "other"])}})
        );
    }
}
