//! Numbers of groups for the metrics, kept up with each change: nobody counts thousands of groups again and again.

use std::collections::BTreeMap;

use crate::api::crd::condition;
use crate::api::crd::group::conditions::{MOVING, SCHEDULED};
use crate::api::{Condition, ScheduleGroup};
use crate::daemon::metrics::Metrics;

/// Groups by the reason of their condition Scheduled, how many of them move, and replicas without a place.
#[derive(Debug, Default)]
pub(super) struct Tally {
    reasons: BTreeMap<String, i64>,
    moving: i64,
    withheld: i64,
    is_changed: bool,
}

impl Tally {
    /// Counts a group, or no longer counts it.
    pub(super) fn count_group(&mut self, group: &ScheduleGroup, by: i64) {
        let conditions = group.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let reason =
            condition::find_condition(conditions, SCHEDULED).map_or("Undecided", |found| found.reason.as_str());
        *self.reasons.entry(reason.to_owned()).or_default() += by;
        self.moving += by * i64::from(condition::find_condition(conditions, MOVING).is_some_and(Condition::is_true));
        self.is_changed = true;
    }

    /// Counts replicas that a decision withholds in place of those that the one before withheld.
    pub(super) fn count_withheld(&mut self, before: i64, now: i64) {
        self.withheld += now - before;
        self.is_changed |= before != now;
    }

    /// Sets the gauges, if anything changed. A reason that no group has any more stays, with 0.
    pub(super) fn publish_gauges(&mut self, metrics: &Metrics) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        for (reason, count) in &self.reasons {
            let help = "Groups, by the reason of their condition Scheduled.";
            metrics.set_gauge("fleet_placement_groups", help, &[("reason", reason)], count_to_gauge(*count));
        }
        let help = "Groups whose old copies still exist.";
        metrics.set_gauge("fleet_placement_moves", help, &[("state", "moving")], count_to_gauge(self.moving));
        let help = "Replicas of divided workloads that are placed on no cluster.";
        metrics.set_gauge("fleet_placement_withheld_replicas", help, &[], count_to_gauge(self.withheld));
    }
}

#[allow(clippy::cast_precision_loss)] // Far below 2^52.
fn count_to_gauge(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a group with conditions of these types and reasons.
    fn group_with_conditions(conditions: &[(&str, &str)]) -> ScheduleGroup {
        let conditions = conditions
            .iter()
            .map(|(type_, reason)| json!({"type": type_, "status": "True", "reason": reason}))
            .collect::<Vec<_>>();
        serde_json::from_value(json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": "g"}, "spec": {"policy": {"name": "p"}}, "status": {"conditions": conditions}}))
        .unwrap()
    }

    #[test]
    fn a_reason_that_no_group_has_any_more_is_told_as_none() {
        let waiting = group_with_conditions(&[("Scheduled", "NoFit")]);
        let moving = group_with_conditions(&[("Scheduled", "Placed"), ("Moving", "Moving")]);
        let (mut tally, metrics) = (Tally::default(), Metrics::default());
        tally.count_group(&waiting, 1);
        tally.count_withheld(0, 3);
        tally.publish_gauges(&metrics);
        tally.count_group(&waiting, -1);
        tally.count_group(&moving, 1);
        tally.count_withheld(3, 1);
        tally.publish_gauges(&metrics);
        let text = metrics.format_metrics();
        for line in [
            "fleet_placement_groups{reason=\"NoFit\"} 0",
            "fleet_placement_groups{reason=\"Placed\"} 1",
            "fleet_placement_moves{state=\"moving\"} 1",
            "fleet_placement_withheld_replicas 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
