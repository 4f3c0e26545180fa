//! Conditions of a source from those of its copies: the status, and reason, message and times of the copies that decide it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::copy::CopyStatus;
use super::typed;

/// Most conditions that are read of one copy.
const CONDITIONS: usize = 32;
/// Types of conditions that are bad, or passing, while they are `True`.
const ABNORMAL: [&str; 15] = [
    "Stalled",
    "Reconciling",
    "ReplicaFailure",
    "Failed",
    "FailureTarget",
    "Degraded",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
    "ScalingLimited",
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
    "LoadBalancerPortsError",
];
/// Reason of `Available` of a workload of which all clusters are lost.
pub(super) const CLUSTER_LOST: &str = "ClusterLost";

/// A condition that one copy reports.
#[derive(Debug, Clone)]
pub(super) struct Reported {
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: String,
    updated: Option<String>,
    changed: Option<String>,
    observed: Option<i64>,
}

impl Reported {
    fn from_json(condition: &Value) -> Option<(String, Self)> {
        let type_ = typed::read_condition_type(&condition["type"])?;
        let status = condition["status"].as_str().filter(|status| ["True", "False", "Unknown"].contains(status))?;
        Some((
            type_,
            Self {
                status: status.to_owned(),
                reason: typed::read_reason(&condition["reason"]),
                message: typed::read_message(&condition["message"]),
                updated: typed::read_time(&condition["lastUpdateTime"]),
                changed: typed::read_time(&condition["lastTransitionTime"]),
                observed: condition["observedGeneration"].as_i64(),
            },
        ))
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

impl CopyStatus {
    /// Returns the conditions that a copy reports, by type.
    fn reported_conditions(&self) -> BTreeMap<String, Reported> {
        let all = self.status_field("conditions").and_then(Value::as_array).into_iter().flatten();
        all.take(CONDITIONS).filter_map(Reported::from_json).collect()
    }

    pub(super) fn reported_condition(&self, type_: &str) -> Option<Reported> {
        let all = self.status_field("conditions").and_then(Value::as_array).into_iter().flatten();
        let found = all.take(CONDITIONS).find(|condition| condition["type"] == type_)?;
        Reported::from_json(found).map(|(_, reported)| reported)
    }

    pub(super) fn is_true(&self, type_: &str) -> bool {
        self.reported_condition(type_).is_some_and(|condition| condition.is_true())
    }
}

/// The copies that decide a condition, each with its report.
pub(super) type Deciding<'a> = Vec<(&'a CopyStatus, Reported)>;

/// Returns the copies that report a condition of this type.
pub(super) fn reports<'a>(copies: &[&'a CopyStatus], type_: &str) -> Deciding<'a> {
    copies.iter().filter_map(|copy| Some((*copy, copy.reported_condition(type_)?))).collect()
}

/// Makes a condition of the first of the copies that decide it. Where there are `all` copies and not all of them say the same,
/// the message names those that do.
pub(super) fn decided_condition(type_: &str, status: &str, deciding: &Deciding<'_>, all: usize) -> Value {
    let mut condition = json!({ "type": type_, "status": status });
    let Some((_, first)) = deciding.first() else { return condition };
    if let Some(reason) = &first.reason {
        condition["reason"] = reason.as_str().into();
    }
    let message = if deciding.len() == all { first.message.clone() } else { name_clusters(&first.message, deciding) };
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    for (name, time) in [
        ("lastUpdateTime", deciding.iter().filter_map(|(_, one)| one.updated.as_deref()).max()),
        ("lastTransitionTime", deciding.iter().filter_map(|(_, one)| one.changed.as_deref()).max()),
    ] {
        if let Some(time) = time {
            condition[name] = time.into();
        }
    }
    condition
}

/// Returns a message with the clusters that it is about.
fn name_clusters(message: &str, deciding: &Deciding<'_>) -> String {
    let named: Vec<&str> = deciding.iter().take(8).map(|(copy, _)| copy.cluster.as_str()).collect();
    let more = if deciding.len() > named.len() { " and others" } else { "" };
    let clusters = format!("on {}{more}", named.join(", "));
    if message.is_empty() { clusters } else { format!("{message}; {clusters}") }
}

/// Returns all conditions that copies report, merged by the rules of kstatus: one that is bad while it is `True` is `True` if
/// it is so in one copy; any other is `True` only if it is so in all, and `False` if it is so in one.
pub(super) fn merge_conditions(copies: &[&CopyStatus]) -> Vec<Value> {
    let reported: Vec<_> = copies.iter().map(|copy| (*copy, copy.reported_conditions())).collect();
    let mut types: Vec<&String> = reported.iter().flat_map(|(_, conditions)| conditions.keys()).collect();
    types.sort_unstable();
    types.dedup();
    let merged = types.into_iter().map(|type_| {
        let all: Deciding<'_> =
            reported.iter().filter_map(|(copy, conditions)| Some((*copy, conditions.get(type_)?.clone()))).collect();
        let is_silent = all.len() < copies.len();
        let order = if ABNORMAL.contains(&type_.as_str()) {
            ["True", "Unknown", "False"]
        } else {
            ["False", "Unknown", "True"]
        };
        let worst =
            order.into_iter().find(|status| all.iter().any(|(_, one)| one.status == *status)).unwrap_or("Unknown");
        let deciding = all.into_iter().filter(|(_, one)| one.status == worst).collect();
        let is_unknown = is_silent && worst == "True" && !ABNORMAL.contains(&type_.as_str());
        decided_condition(type_, if is_unknown { "Unknown" } else { worst }, &deciding, copies.len())
    });
    merged.collect()
}

/// Returns the conditions as the API's own type `Condition` demands them: with a reason, a message, and the generation that was
/// looked at, which is the source's where the copy's is.
pub(super) fn complete_conditions(conditions: &mut [Value], copies: &[&CopyStatus], generation: i64) {
    for condition in conditions {
        let type_ = condition["type"].as_str().unwrap_or_default().to_owned();
        if condition.get("reason").is_none() {
            condition["reason"] = "NotReported".into();
        }
        if condition.get("message").is_none() {
            condition["message"] = "".into();
        }
        let observed: Vec<bool> = reports(copies, &type_)
            .iter()
            .filter_map(|(copy, one)| Some(copy.applied && one.observed? >= copy.generation))
            .collect();
        if !observed.is_empty() {
            let is_current = observed.iter().all(|current| *current);
            condition["observedGeneration"] = if is_current { generation } else { (generation - 1).max(0) }.into();
        }
    }
}

/// Puts the condition of a workload of which all clusters are lost in place of what was reported last.
pub(super) fn replace_lost(all: &mut Vec<Value>, copies: &[&CopyStatus]) {
    if let Some(lost) = lost_condition(copies) {
        all.retain(|condition| condition["type"] != "Available");
        all.push(lost);
    }
}

/// Returns the condition of a workload of which all clusters are lost; `None` while one of them reports.
fn lost_condition(copies: &[&CopyStatus]) -> Option<Value> {
    let lost: Vec<String> = copies
        .iter()
        .map(|copy| Some(format!("cluster {:?} is lost: {}", copy.cluster, copy.lost.as_ref()?)))
        .collect::<Option<_>>()?;
    let first = lost.first()?;
    let more = if lost.len() > 1 { format!(" (and {} more)", lost.len() - 1) } else { String::new() };
    let message = typed::read_message(&format!("{first}{more}; the counts are those of the last report").into());
    Some(json!({ "type": "Available", "status": "False", "reason": CLUSTER_LOST, "message": message }))
}

/// Puts conditions into a status.
pub(super) fn insert_conditions(status: &mut Map<String, Value>, conditions: Vec<Value>) {
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
}
