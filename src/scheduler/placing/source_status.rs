//! The status of a source, as its copies report it.

use serde_json::{Map, Value};

use super::place::cluster_of;
use super::plan::Plan;
use super::store::Store;
use super::write::Write;
use crate::api::Schedule;
use crate::placement::aggregate::{self, CopyStatus};
use crate::placement::copy_state;
use crate::placement::facts::{Facts, ObjectKey};

/// Fields of a source's status that are taken back when no copy has them any more.
const TAKEN_BACK: [&str; 4] = ["observedGeneration", "conditions", "startTime", "completionTime"];

/// Plans the status of a source, as its copies have it.
pub(super) fn plan_source_status(store: &Store, key: &ObjectKey) -> Plan {
    let Some(source) = store.sources.get(key) else { return Plan::default() };
    let copies: Vec<CopyStatus> = store
        .copies_of(key)
        .filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none())
        .map(|(at, schedule)| copy_status(cluster_of(at), schedule, &source.facts))
        .collect();
    if copies.is_empty() {
        return Plan::default();
    }
    let placed: i64 = store.copies_of(key).filter_map(|(_, schedule)| schedule.spec.share.as_ref()?.replicas).sum();
    let is_divided = store
        .copies_of(key)
        .any(|(_, schedule)| schedule.spec.share.as_ref().is_some_and(|share| share.replicas.is_some()));
    let all = aggregate::Source {
        kind: key.kind(),
        generation: source.facts.generation,
        duplicate: !is_divided && copies.len() > 1,
        withheld: if is_divided { (source.facts.workload.pods_at_once() - placed).max(0) } else { 0 },
        copies: &copies,
    };
    let new = Value::Object(all.aggregate_status());
    let is_gone = |field: &str| new.get(field).is_none() && source.status.get(field).is_some();
    let same = is_within(&new, &source.status) && !TAKEN_BACK.iter().any(|field| is_gone(field));
    if new.as_object().is_none_or(Map::is_empty) || same {
        return Plan::default();
    }
    Plan { stages: vec![vec![Write::Status(source.address.clone(), new)]], ..Plan::default() }
}

/// Returns the state that a Schedule reports of its copy; `applied` counts only for the newest generation of the
/// source.
fn copy_status(cluster: &str, schedule: &Schedule, facts: &Facts) -> CopyStatus {
    let status = schedule.status.as_ref();
    let resource = status.and_then(|status| status.resource.as_deref());
    CopyStatus {
        cluster: cluster.to_owned(),
        applied: copy_state::read_copy_state(schedule, cluster).applied
            && status.and_then(|status| status.applied_generation) == Some(facts.generation),
        generation: status.and_then(|status| status.copy_generation).unwrap_or_default(),
        status: resource.and_then(|text| serde_json::from_str(text).ok()),
    }
}

/// Returns whether everything in `new` is in `old` already.
fn is_within(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            new.iter().all(|(key, value)| old.get(key).is_some_and(|old| is_within(value, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| is_within(new, old))
        }
        (new, old) => new == old,
    }
}
