//! The conditions of a Cluster, as a pure function of what is known about it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::api::crd::cluster::{conditions, reasons};
use crate::api::crd::condition;
use crate::api::crd::condition::find_condition;
use crate::api::lost_cluster_timeout::{LEASE_DURATION, LEASE_RENEW_INTERVAL};
use crate::api::util::text::visible_line;
use crate::api::{Cluster, Condition};
use crate::scheduler::agent_clock::Reading;
use crate::scheduler::index::Renewal;

/// Grace of a cluster without an observed renewal: a new one, or any one after our own start.
pub const FIRST_GRACE: Duration = Duration::from_secs(60);

/// Status of an agent's Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Renewed in time.
    Valid,
    /// Not observed for long enough.
    Unknown,
    /// Not renewed in time.
    Expired,
}

/// Evaluates the last renewal of a Lease.
pub fn lease_status(renewal: Option<&Renewal>, watching_since: Instant, now: Instant) -> LeaseStatus {
    match renewal {
        Some(renewal)
            if renewal.observed && now.duration_since(renewal.since) < LEASE_RENEW_INTERVAL + LEASE_DURATION =>
        {
            LeaseStatus::Valid
        }
        Some(renewal) if renewal.observed => LeaseStatus::Expired,
        _ if now.duration_since(watching_since) < FIRST_GRACE => LeaseStatus::Unknown,
        _ => LeaseStatus::Expired,
    }
}

/// Facts about a cluster beside its object.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// Status of its agent's Lease.
    pub lease: LeaseStatus,
    /// Its agent's clock; `None` while it is unknown.
    pub clock: Option<Reading>,
    /// Workloads are placed there.
    pub has_work: bool,
    /// What is left out of its agent's report; `None` where all of it is read.
    pub left_out: Option<&'a str>,
}

/// Types of the conditions that the scheduler writes.
const OWNED: [&str; 6] = [
    conditions::READY,
    conditions::IDLE,
    conditions::STANDBY,
    conditions::ACCEPTED,
    conditions::CLOCK_SKEW,
    conditions::INVENTORY_TRUNCATED,
];

/// Returns the conditions that the scheduler writes.
pub fn evaluate_conditions(cluster: &Cluster, evidence: Evidence<'_>, now: Timestamp) -> Vec<Condition> {
    let status = cluster.status.clone().unwrap_or_default();
    let mut all: Vec<_> = status.conditions.iter().filter(|c| OWNED.contains(&c.type_.as_str())).cloned().collect();
    let clock = evaluate_clock_skew(find_condition(&all, conditions::CLOCK_SKEW), evidence.clock);
    let was_truncated = find_condition(&all, conditions::INVENTORY_TRUNCATED).is_some();
    // An agent may write any time; the server refuses those before the year 0.
    let reported = status.last_update_time.clone().filter(|time| time.0 >= Timestamp::UNIX_EPOCH);
    let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
        let mut new = Condition::new(type_, holds, reason, message, now);
        new.last_heartbeat_time.clone_from(&reported);
        condition::set_condition(&mut all, new);
    };
    if cluster.spec.accepted {
        set(conditions::ACCEPTED, true, "Accepted", "the cluster is accepted");
    } else {
        set(conditions::ACCEPTED, false, reasons::NOT_ACCEPTED, "an operator must set spec.accepted");
    }
    if let Some((holds, reason, message)) = evaluate_readiness(cluster, evidence.lease) {
        set(conditions::READY, holds, reason, &message);
    }
    if evidence.has_work {
        set(conditions::IDLE, false, "HasWorkloads", "workloads are placed in this cluster");
    } else {
        set(conditions::IDLE, true, "NoWorkloads", "nothing is placed in this cluster");
    }
    set(conditions::STANDBY, false, "Awake", "the cluster is not in standby");
    if let Some((off, reason, message)) = clock {
        set(conditions::CLOCK_SKEW, off, reason, &message);
    }
    match evidence.left_out {
        Some(what) => set(conditions::INVENTORY_TRUNCATED, true, "TooMuchReported", what),
        None if was_truncated => {
            set(
                conditions::INVENTORY_TRUNCATED,
                false,
                "AllRead",
                "the scheduler reads everything that the agent reports",
            );
        }
        None => {}
    }
    all.sort_by(|a, b| a.type_.cmp(&b.type_));
    all
}

/// Returns status, reason and message of `ClockSkew`; `None` leaves it as it was, which is absent for a clock that was never off.
fn evaluate_clock_skew(was: Option<&Condition>, reading: Option<Reading>) -> Option<(bool, &'static str, String)> {
    let mind = "certificates may look expired or not yet valid";
    match reading? {
        Reading::Off(ahead) => {
            let (reason, side) = if ahead > 0 { ("ClockAhead", "ahead of") } else { ("ClockBehind", "behind") };
            let seconds = ahead.abs();
            Some((true, reason, format!("the agent's clock is {seconds} s {side} the control plane's; {mind}")))
        }
        Reading::Agrees => {
            was.map(|_| (false, "ClocksAgree", "the clocks of agent and control plane agree again".to_owned()))
        }
    }
}

/// Returns status, reason and message of `Ready`; `None` leaves it as it was.
fn evaluate_readiness(cluster: &Cluster, lease: LeaseStatus) -> Option<(bool, &'static str, String)> {
    let status = cluster.status.as_ref();
    let healthy = status.and_then(|s| find_condition(&s.conditions, conditions::HEALTHY));
    if !cluster.spec.accepted {
        return Some((false, reasons::NOT_ACCEPTED, "an operator must accept the cluster".to_owned()));
    }
    if status.is_some_and(|s| s.leave_requested == Some(true)) {
        return Some((false, reasons::LEAVING, "the agent is being uninstalled".to_owned()));
    }
    if !cluster.has_reported() {
        return Some((false, reasons::NEVER_UPDATED, "the agent has not reported yet".to_owned()));
    }
    match lease {
        LeaseStatus::Expired => {
            let message = format!(
                "the agent has not renewed its Lease for {} s",
                (LEASE_RENEW_INTERVAL + LEASE_DURATION).as_secs()
            );
            Some((false, reasons::HEARTBEAT_LOST, message))
        }
        // A scheduler that just started must not flip what its predecessor knew better.
        LeaseStatus::Unknown if status.is_some_and(|s| find_condition(&s.conditions, conditions::READY).is_some()) => {
            let was = status.and_then(|s| find_condition(&s.conditions, conditions::READY))?;
            // Except from "never reported", which is now known to be wrong, but not yet to be ready.
            (was.reason == reasons::NEVER_UPDATED || was.reason == reasons::NOT_ACCEPTED).then(|| {
                (false, reasons::HEARTBEAT_LOST, "waiting for the first renewal of the agent's Lease".to_owned())
            })
        }
        LeaseStatus::Unknown => Some((false, reasons::NEVER_UPDATED, "waiting for the agent".to_owned())),
        LeaseStatus::Valid => match healthy {
            Some(condition) if condition.is_true() => {
                Some((true, reasons::READY, "the cluster accepts workloads".to_owned()))
            }
            Some(condition) => Some((false, reasons::NOT_READY, visible_line(&condition.message).into_owned())),
            None => Some((
                false,
                reasons::NOT_READY,
                "the agent has not reported the health of its API server yet".to_owned(),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ClusterSpec, ClusterStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cluster(healthy: bool) -> Cluster {
        let mut cluster =
            Cluster::new("a", ClusterSpec { name: "a".to_owned(), accepted: true, ..ClusterSpec::default() });
        cluster.status = Some(ClusterStatus {
            conditions: vec![Condition::new(conditions::HEALTHY, healthy, "R", "local trouble", at(0))],
            last_update_time: Some(Time(at(0))),
            ..ClusterStatus::default()
        });
        cluster
    }

    fn evidence(lease: LeaseStatus) -> Evidence<'static> {
        Evidence { lease, clock: None, has_work: false, left_out: None }
    }

    /// Replaces all conditions but the agent's by what the scheduler writes.
    fn record_evaluated(cluster: &mut Cluster, evidence: Evidence<'_>) {
        let all = evaluate_conditions(cluster, evidence, at(1));
        let conditions = &mut cluster.status.as_mut().unwrap().conditions;
        conditions.truncate(1);
        conditions.extend(all);
    }

    fn ready_of(cluster: &Cluster, lease: LeaseStatus) -> (String, String) {
        let all = evaluate_conditions(cluster, evidence(lease), at(1));
        let ready = find_condition(&all, conditions::READY).unwrap();
        (ready.status.clone(), ready.reason.clone())
    }

    fn is(cluster: &Cluster, lease: LeaseStatus, status: &str, reason: &str) {
        assert_eq!(ready_of(cluster, lease), (status.to_owned(), reason.to_owned()));
    }

    #[test]
    fn ready_needs_every_fact() {
        is(&cluster(true), LeaseStatus::Valid, "True", "ClusterReady");
        is(&cluster(false), LeaseStatus::Valid, "False", "ClusterNotReady");
        is(&cluster(true), LeaseStatus::Expired, "False", "ClusterHeartbeatLost");
        let mut silent = cluster(true);
        silent.status.as_mut().unwrap().last_update_time = None;
        is(&silent, LeaseStatus::Valid, "False", "ClusterStatusNeverUpdated");
        let mut refused = cluster(true);
        refused.spec.accepted = false;
        is(&refused, LeaseStatus::Valid, "False", "ClusterNotAccepted");
        let mut leaving = cluster(true);
        leaving.status.as_mut().unwrap().leave_requested = Some(true);
        is(&leaving, LeaseStatus::Valid, "False", "ClusterLeaving");
        let mut fresh = cluster(true);
        fresh.status = None;
        is(&fresh, LeaseStatus::Unknown, "False", "ClusterStatusNeverUpdated");
    }

    #[test]
    fn invalid_times_are_not_copied() {
        // A year before 0 stopped every write about the cluster.
        for (second, expected) in [(5, Some(at(5))), (-100_000_000_000, None)] {
            let mut cluster = cluster(true);
            cluster.status.as_mut().unwrap().last_update_time = Some(Time(at(second)));
            let all = evaluate_conditions(&cluster, evidence(LeaseStatus::Valid), at(1));
            let ready = find_condition(&all, conditions::READY).unwrap();
            assert_eq!(ready.last_heartbeat_time.as_ref().map(|time| time.0), expected);
        }
    }

    #[test]
    fn a_restart_keeps_ready() {
        for (holds, reason, expected) in [(true, "ClusterReady", "True"), (false, "ClusterHeartbeatLost", "False")] {
            let mut cluster = cluster(true);
            let was = Condition::new(conditions::READY, holds, reason, "", at(0));
            cluster.status.as_mut().unwrap().conditions.push(was);
            is(&cluster, LeaseStatus::Unknown, expected, reason);
        }
    }

    #[test]
    fn a_lease_expires_after_its_duration() {
        let start = Instant::now();
        for (observed, second, expected) in [
            (Some(true), 49, LeaseStatus::Valid),
            (Some(true), 50, LeaseStatus::Expired),
            (Some(false), 59, LeaseStatus::Unknown),
            (Some(false), 60, LeaseStatus::Expired),
            (None, 59, LeaseStatus::Unknown),
            (None, 60, LeaseStatus::Expired),
        ] {
            let renewal = observed.map(|observed| Renewal::for_test(start, observed));
            let found = lease_status(renewal.as_ref(), start, start + Duration::from_secs(second));
            assert_eq!(found, expected, "{observed:?} {second}");
        }
    }

    #[test]
    fn all_conditions_are_always_present() {
        let evidence = Evidence { has_work: true, ..evidence(LeaseStatus::Expired) };
        let all = evaluate_conditions(&cluster(true), evidence, at(1));
        let types: Vec<_> = all.into_iter().map(|c| (c.type_, c.status)).collect();
        let expected = [("Accepted", "True"), ("Idle", "False"), ("Ready", "False"), ("Standby", "False")];
        assert_eq!(types, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn an_inventory_that_is_too_large_is_told_until_it_is_not() {
        let mut cluster = cluster(true);
        for (left_out, expected) in [
            // Nothing is written about the many that are read whole.
            (None, None),
            (Some("nodes"), Some(("True", "nodes"))),
            (None, Some(("False", "the scheduler reads everything that the agent reports"))),
        ] {
            record_evaluated(&mut cluster, Evidence { left_out, ..evidence(LeaseStatus::Valid) });
            let found = find_condition(&cluster.status.as_ref().unwrap().conditions, conditions::INVENTORY_TRUNCATED);
            assert_eq!(found.map(|c| (c.status.as_str(), c.message.as_str())), expected, "{left_out:?}");
        }
    }

    #[test]
    fn clock_skew_is_reported_once_it_was_off() {
        let mut cluster = cluster(true);
        for (clock, expected) in [
            (None, None),
            // Nothing is written about the many clocks that are right.
            (Some(Reading::Agrees), None),
            (Some(Reading::Off(-600)), Some(("True", "ClockBehind"))),
            // A scheduler that just started knows no better.
            (None, Some(("True", "ClockBehind"))),
            (Some(Reading::Agrees), Some(("False", "ClocksAgree"))),
        ] {
            record_evaluated(&mut cluster, Evidence { clock, ..evidence(LeaseStatus::Valid) });
            let all = &cluster.status.as_ref().unwrap().conditions;
            let found = find_condition(all, conditions::CLOCK_SKEW).map(|c| (c.status.as_str(), c.reason.as_str()));
            assert_eq!(found, expected, "{clock:?}");
            assert_eq!(find_condition(all, conditions::READY).unwrap().status, "True", "it is for information");
        }
    }
}
