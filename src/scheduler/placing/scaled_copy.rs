//! The replicas with which a copy begins that an autoscaler scales: as many as the copies have that it may replace.

use serde_json::{Value, json};

use super::schedule_diff::DesiredSchedule;
use super::store::Store;
use crate::api::Schedule;

/// Returns the replicas that a copy has, as its agent reports.
fn read_replicas(schedule: &Schedule) -> Option<i64> {
    let resource: Value = serde_json::from_str(schedule.status.as_ref()?.resource.as_deref()?).ok()?;
    resource["replicas"].as_i64()
}

/// Sets the replicas of a new copy that an autoscaler scales, within the limits of that; later they are its own.
pub(super) fn set_first_replicas(store: &Store, desired: &DesiredSchedule<'_>, manifest: &mut Value) {
    // What is scaled to nothing has no autoscaler.
    let asked = manifest.pointer("/spec/replicas").and_then(Value::as_i64).filter(|asked| *asked > 0);
    let (Some(scaler), Some(asked)) = (desired.scaler, asked) else { return };
    let is_whole = desired.share.as_ref().is_none_or(|share| share.replicas.is_none());
    let others = store.copies_of(&desired.source.facts.key).filter(|_| is_whole);
    let scaled = others.filter_map(|(_, schedule)| read_replicas(schedule)).max().unwrap_or(0);
    let most = scaler.max_replicas.max(scaler.min_replicas);
    let first = asked.max(scaler.min_replicas).max(scaled.min(most));
    manifest["spec"]["replicas"] = json!(first);
}
