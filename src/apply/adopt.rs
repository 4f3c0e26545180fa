//! Taking over objects that kubectl or Helm made: their fields become ours, so that later applies can drop them; and letting
//! go of all that is ours.
//!
//! Without this, a field that such a tool once set and our manifest does not have would stay for ever, because two
//! managers hold it. kubectl does the same when it goes over to server-side apply.

use serde_json::{Value, json};

use super::api_error::ApiError;
use super::engine::Engine;
use super::error::Error;
use super::fields;
use super::kinds::Kind;
use super::object::{ObjectRef, list, text};
use super::owner::MANAGER;
use super::plan::Step;
use super::server::Server;

/// How often an object is read again that was changed in between.
const TRIES: u32 = 20;

/// Managers whose `Update` entries stand for a whole manifest; our own for one that a rollback gave back.
const TOOLS: [&str; 5] = ["kubectl-client-side-apply", "kubectl-create", "kubectl", "helm", MANAGER];

impl Engine {
    /// Renames the entries of such tools into ours. Nothing but `managedFields` changes.
    ///
    /// Controllers write to the object meanwhile: where that came in between, it is read and done again.
    pub(crate) async fn take_over(&self, server: &Server, step: &Step) -> Result<(), Error> {
        let written = write_entries(server, &step.kind, &step.target, step.live.clone(), merged_entries).await;
        written.map_err(|error| Error::on("take over", &step.target, error))
    }

    /// Removes our entry, so that nothing of an object is ours any more. Nothing but `managedFields` changes.
    pub(crate) async fn disown(&self, server: &Server, kind: &Kind, target: &ObjectRef) -> Result<(), Error> {
        let failed = |error| Error::on("give back", target, error);
        let live = server.get_metadata(kind, target.namespace.as_deref(), &target.name).await.map_err(failed)?;
        write_entries(server, kind, target, live, without_ours).await.map_err(failed)
    }
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
        let version = text(&current, "/metadata/resourceVersion").unwrap_or_default();
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]);
        let Err(refused) = server.json_patch(kind, target, &patch).await else { return Ok(()) };
        if left == 0 || refused.code != 422 {
            return Err(refused);
        }
        live = server.get_metadata(kind, target.namespace.as_deref(), &target.name).await?;
        if live.as_ref().is_some_and(|live| text(live, "/metadata/resourceVersion") == Some(version)) {
            return Err(refused);
        }
    }
    Ok(())
}

/// All entries but ours. An empty list would be no change to the server; an empty entry stands for none.
fn without_ours(live: &Value) -> Option<Vec<Value>> {
    fields::ours(live)?;
    let entries = list(live, "/metadata/managedFields").iter();
    let rest: Vec<Value> = entries.filter(|entry| !fields::is_ours(entry)).cloned().collect();
    Some(if rest.is_empty() { vec![json!({})] } else { rest })
}

/// The entries with those of tools in one of ours; none when there is nothing to rename or we have one already.
fn merged_entries(live: &Value) -> Option<Vec<Value>> {
    let is_tool = |entry: &Value| {
        text(entry, "/operation") == Some("Update")
            && text(entry, "/subresource").unwrap_or_default().is_empty()
            && text(entry, "/manager").is_some_and(|manager| TOOLS.contains(&manager))
    };
    if fields::ours(live).is_some() {
        return None;
    }
    let (tools, mut rest): (Vec<Value>, Vec<Value>) =
        list(live, "/metadata/managedFields").iter().cloned().partition(is_tool);
    let mut ours = tools.first()?.clone();
    for other in &tools[1..] {
        unite(&mut ours["fieldsV1"], other.get("fieldsV1")?);
    }
    ours["manager"] = MANAGER.into();
    ours["operation"] = "Apply".into();
    rest.insert(0, ours);
    Some(rest)
}

/// The union of two sets of fields: sets are trees of maps, and a leaf is an empty map.
fn unite(into: &mut Value, other: &Value) {
    let (Some(into), Some(other)) = (into.as_object_mut(), other.as_object()) else { return };
    for (key, value) in other {
        match into.get_mut(key) {
            Some(known) => unite(known, value),
            None => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
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
}
