//! Status of Jobs and CronJobs.
//!
//! An API server takes the end of a Job only with all that belongs to it: `SuccessCriteriaMet` beside `Complete` and
//! `FailureTarget` beside `Failed`, a start that never changes, a completion not before it, and no active pods.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Serving;
use super::conditions::{self, Deciding, decided_condition, reports};
use super::typed::{self, LIST};
use crate::placement::live;

/// Most references to active Jobs.
const ACTIVE: usize = 50;

impl Serving<'_> {
    /// Earliest start; Failed if one is, Complete with the latest completion if all are.
    pub(super) fn aggregate_job(&self, status: &mut Map<String, Value>) {
        self.sum_optional_fields(&["terminating"], status);
        if let Some(start) = self.copies.iter().filter_map(|copy| copy.time_field("startTime")).min() {
            status.insert("startTime".to_owned(), start.into());
        }
        if let [copy] = self.copies[..] {
            for field in ["completedIndexes", "failedIndexes"] {
                let indexes = copy.text_field(field).filter(|text| is_indexes(text));
                status.extend(indexes.map(|text| (field.to_owned(), text.into())));
            }
        }
        let count = self.copies.len();
        let [failed, complete] = ["Failed", "Complete"].map(|type_| self.true_reports(type_));
        if !failed.is_empty() {
            let conditions = ["FailureTarget", "Failed"].map(|type_| decided_condition(type_, "True", &failed, count));
            self.end_job(status, conditions.into());
        } else if count > 0 && complete.len() == count {
            let done = decided_condition("Complete", "True", &complete, count);
            let met = self.true_reports("SuccessCriteriaMet");
            let mut met = decided_condition(
                "SuccessCriteriaMet",
                "True",
                if met.len() == count { &met } else { &complete },
                count,
            );
            if met.get("reason").is_none() {
                met["reason"] = "CompletionsReached".into();
                met["message"] = "Reached expected number of succeeded pods".into();
            }
            let end = self.copies.iter().filter_map(|copy| copy.time_field("completionTime")).max();
            status.extend(end.map(|end| ("completionTime".to_owned(), end.into())));
            self.end_job(status, vec![met, done]);
        } else {
            let mut others = conditions::merge_conditions(&self.copies);
            others.retain(|condition| {
                let type_ = condition["type"].as_str().unwrap_or_default();
                !["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"].contains(&type_)
            });
            conditions::insert_conditions(status, others);
        }
    }

    /// Returns the copies of which a condition is true.
    fn true_reports(&self, type_: &str) -> Deciding<'_> {
        reports(&self.copies, type_).into_iter().filter(|(_, one)| one.is_true()).collect()
    }

    fn end_job(&self, status: &mut Map<String, Value>, mut conditions: Vec<Value>) {
        // What runs elsewhere is not waited for.
        for field in ["active", "ready"] {
            status.insert(field.to_owned(), 0.into());
        }
        if let Some(terminating) = status.get_mut("terminating") {
            *terminating = 0.into();
        }
        let suspended = reports(&self.copies, "Suspended");
        if !suspended.is_empty() && suspended.iter().all(|(_, one)| one.status == "False") {
            conditions.insert(0, decided_condition("Suspended", "False", &suspended, self.copies.len()));
        }
        conditions::insert_conditions(status, conditions);
    }

    /// The active Jobs of all copies, and the latest times.
    pub(super) fn aggregate_cron_job(&self, status: &mut Map<String, Value>) {
        let copies = self.source.copies;
        let active = copies.iter().filter_map(|copy| copy.status_field("active")?.as_array()).flatten();
        let active = active.take(LIST).filter_map(sanitize_job_reference).take(ACTIVE).collect();
        status.insert("active".to_owned(), active);
        for field in ["lastScheduleTime", "lastSuccessfulTime"] {
            let latest = copies.iter().filter_map(|copy| copy.time_field(field)).max();
            status.extend(latest.map(|latest| (field.to_owned(), latest.into())));
        }
    }
}

/// Returns whether a text lists numbers of pods, such as `0-2,5`, in a form that an API server takes.
fn is_indexes(text: &str) -> bool {
    let mut last = -1_i64;
    let mut next = |number: &str| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let found = number.parse::<i32>().ok().map(i64::from).filter(|found| is_number && *found > last);
        found.inspect(|found| last = *found).is_some()
    };
    text.len() <= 2048
        && text.split(',').all(|part| match part.split_once('-') {
            Some((first, end)) => next(first) && next(end),
            None => next(part),
        })
}

/// Returns the texts of a reference to a Job, without the version, which changes whenever the Job does.
fn sanitize_job_reference(found: &Value) -> Option<Value> {
    let fields = ["apiVersion", "kind", "namespace", "name", "uid"];
    found.is_object().then(|| {
        fields
            .into_iter()
            .filter_map(|field| {
                let text = found.get(field)?.as_str().filter(|text| text.len() <= 253)?;
                Some((field.to_owned(), Value::from(text)))
            })
            .collect::<Map<_, _>>()
            .into()
    })
}

/// Keeps what an API server does not let fall, and completes the times of an end.
pub(super) fn carry_job(status: &mut Map<String, Value>, previous: &Value, now: Timestamp) {
    for field in ["succeeded", "failed"] {
        let most = [status.get(field), previous.get(field)].into_iter().flatten().filter_map(Value::as_i64).max();
        status.extend(most.map(|most| (field.to_owned(), most.into())));
    }
    if let Some(start) = typed::read_time(&previous["startTime"]) {
        status.insert("startTime".to_owned(), start.into());
    }
    let ended: Value = json!({ "conditions": status.get("conditions").cloned().unwrap_or_default() });
    if !live::is_finished(&ended) {
        return;
    }
    let conditions = ended["conditions"].as_array().into_iter().flatten();
    let at = conditions.filter_map(|one| typed::read_time(&one["lastTransitionTime"])).max();
    let Some(at) = at.or_else(|| typed::format_time(now)) else { return };
    let start = status.entry("startTime").or_insert_with(|| at.as_str().into()).as_str().unwrap_or_default().to_owned();
    let is_complete = ended["conditions"].as_array().into_iter().flatten().any(|one| one["type"] == "Complete");
    if is_complete {
        // As texts, times of this form compare as times.
        let end = status.get("completionTime").and_then(Value::as_str).unwrap_or(&at).to_owned();
        status.insert("completionTime".to_owned(), end.max(start).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_taken_in_their_order_only() {
        for (text, is_taken) in
            [("0", true), ("0-2,5", true), ("", false), ("5,1", false), ("2-1", false), ("a", false), ("1,,2", false)]
        {
            assert_eq!(is_indexes(text), is_taken, "{text}");
        }
    }
}
