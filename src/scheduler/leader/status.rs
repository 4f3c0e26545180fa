//! Progress of the control plane, in a ConfigMap that the CLI reads.
//!
//! `fleet-bootstrap-status` in the service's namespace of the control plane, with the keys
//! - `conditions`: JSON, a list of Kubernetes conditions of the types `Bootstrapped` and `InitSecretReady`;
//! - `objects`: digest of the objects that the conditions are about;
//! - `version`: version of the scheduler that wrote it;
//! - `directPlacement`: whether annotations of objects place them.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::api::Condition;
use crate::api::crd::condition;
use crate::api::labels::{BOOTSTRAP_STATUS, SCHEDULER_MANAGER};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::scheduler::readyz::Progress;

/// Type of the condition about the objects of the chart.
pub const BOOTSTRAPPED: &str = "Bootstrapped";
/// Type of the condition about the init Secret.
pub const INIT_SECRET_READY: &str = "InitSecretReady";

/// Reads the conditions back; a ConfigMap that says something else has none.
pub fn read_conditions(map: &ConfigMap) -> Vec<Condition> {
    let text = map.data.as_ref().and_then(|d| d.get("conditions"));
    text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default()
}

fn condition_of(type_: &str, progress: &Progress, now: Timestamp) -> Condition {
    match progress {
        Progress::Pending => Condition::new(type_, false, "Pending", "not tried yet", now),
        Progress::Done { reason, message } => Condition::new(type_, true, reason, message, now),
        Progress::Failed { reason, message } => Condition::new(type_, false, reason, message, now),
    }
}

/// Writes the conditions, and what `why` has to know. Does nothing when the ConfigMap already says so.
pub async fn write_leader_status(
    client: &Client,
    namespace: &str,
    objects: &str,
    parts: [(&str, &Progress); 2],
    said: [(&str, &str); 2],
    now: Timestamp,
) -> Result<(), CallError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = call_with_timeout(api.get_opt(BOOTSTRAP_STATUS)).await?;
    let mut all = found.as_ref().map(read_conditions).unwrap_or_default();
    let mut changed = false;
    for (type_, progress) in parts {
        changed |= condition::set_condition(&mut all, condition_of(type_, progress, now));
    }
    let version = env!("CARGO_PKG_VERSION");
    let data = found.as_ref().and_then(|m| m.data.as_ref());
    let mut wanted = [("objects", objects), ("version", version)].into_iter().chain(said);
    if !changed && wanted.all(|(key, value)| data.and_then(|d| d.get(key)).is_some_and(|found| found == value)) {
        return Ok(());
    }
    let mut map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": BOOTSTRAP_STATUS,
            "namespace": namespace,
            "labels": { "app.kubernetes.io/part-of": "fleet" },
        },
        "data": {
            "conditions": serde_json::to_string(&all).unwrap_or_default(),
            "objects": objects,
            "version": version,
        },
    });
    for (key, value) in said {
        map["data"][key] = value.into();
    }
    call_with_timeout(api.patch(BOOTSTRAP_STATUS, &PatchParams::apply(SCHEDULER_MANAGER).force(), &Patch::Apply(&map)))
        .await?;
    Ok(())
}
