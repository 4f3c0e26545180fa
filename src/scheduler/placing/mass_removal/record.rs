//! Keeps the record of mass-removal protection in a ConfigMap, and says what is held back.

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;

use super::hold::RemovalTask;
use crate::api::first_of::first_of;
use crate::api::labels::SCHEDULER_MANAGER;
use crate::api::mass_loss::{NAME, NAMESPACE};
use crate::api::mass_removal::{FrozenRemovals, KEY, NAMED, RemovalRecord};
use crate::api::{Cluster, SchedulePolicy};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::scheduler::placing::events::event_about;
use crate::scheduler::placing::write::Write;

/// The answer to a [`RemovalTask`].
pub(in crate::scheduler::placing) enum LogAnswer {
    /// The record, with the version of what holds it.
    Read(Result<(RemovalRecord, Option<String>), CallError>),
    /// What was written, with the version of what holds it.
    Written(Result<(RemovalRecord, String), CallError>),
}

/// Reads the record, or writes it.
pub(in crate::scheduler::placing) async fn carry_out_task(client: Client, task: RemovalTask) -> LogAnswer {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    match task {
        RemovalTask::Read => {
            let found = call_with_timeout(maps.get_opt(NAME)).await;
            LogAnswer::Read(found.map(|found| {
                let version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
                let data = found.and_then(|map| map.data).unwrap_or_default();
                (RemovalRecord::from_data(&data), version)
            }))
        }
        RemovalTask::Write(record, version) => {
            let written = write_removal_record(&maps, &record, version).await;
            LogAnswer::Written(written.map(|map| (record, map.metadata.resource_version.unwrap_or_default())))
        }
    }
}

/// Writes the record where nobody else wrote meanwhile.
async fn write_removal_record(
    maps: &Api<ConfigMap>,
    record: &RemovalRecord,
    version: Option<String>,
) -> Result<ConfigMap, CallError> {
    let mut map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": { "app.kubernetes.io/part-of": "fleet" } },
        "data": { KEY: record.to_text() },
    });
    let manager = Some(SCHEDULER_MANAGER.to_owned());
    let Some(version) = version else {
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        let map = serde_json::from_value(map).unwrap_or_default();
        return call_with_timeout(maps.create(&params, &map)).await;
    };
    map["metadata"]["resourceVersion"] = json!(version);
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call_with_timeout(maps.patch(NAME, &params, &Patch::Merge(&map))).await
}

/// Returns the event about a cause whose removals are held back.
pub(in crate::scheduler::placing) fn frozen_event(cause: &str, frozen: &FrozenRemovals) -> Write {
    let copies = frozen.copies.iter().map(|(cluster, count)| format!("{count} on {cluster}"));
    let text = format!(
        "{cause} would remove {} copies ({}). This is more than a tenth of all copies, or more than the limit for one \
         hour, so the scheduler removes none of them. To allow the removals: `fleetctl rebalance --continue {cause}`; \
         otherwise undo the edit. The first are: {}",
        frozen.count(),
        first_of(copies, NAMED, ", "),
        frozen.first.join(", ")
    );
    event_about(cause_reference(cause), true, "RemovalsHeld", &text)
}

/// Returns what a cause is about.
fn cause_reference(cause: &str) -> ObjectReference {
    let (about, rest) = cause.split_once('/').unwrap_or_default();
    let named = rest.rsplit_once(':').map(|(name, _)| name.to_owned());
    let (kind, api_version, name) = match about {
        "policy" => (SchedulePolicy::kind(&()), SchedulePolicy::api_version(&()), named),
        "cluster" => (Cluster::kind(&()), Cluster::api_version(&()), named),
        _ => ("ConfigMap".into(), "v1".into(), None),
    };
    ObjectReference {
        api_version: Some(api_version.into_owned()),
        kind: Some(kind.into_owned()),
        namespace: name.is_none().then(|| NAMESPACE.to_owned()),
        name: Some(name.unwrap_or_else(|| NAME.to_owned())),
        ..ObjectReference::default()
    }
}
