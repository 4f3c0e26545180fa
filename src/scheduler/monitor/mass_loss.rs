//! Mass-loss protection: when most clusters are lost at once, a partition of the network is more likely than their deaths.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::api::Cluster;
use crate::api::crd::cluster::conditions;
use crate::api::crd::condition::find_condition;
use crate::api::mass_loss::is_mass_loss;

/// Losses within this time belong together.
const WINDOW: Duration = Duration::from_secs(40);

/// Clusters that are registered and Ready for less than this count neither as lost nor as ready: whoever has an init token
/// registers as many as it likes, and their silence must not freeze the others.
const STEADY: SignedDuration = SignedDuration::from_mins(10);

/// Returns whether a cluster that is Ready has been so, and registered, for long enough to count.
pub fn is_steady(cluster: &Cluster, now: Timestamp) -> bool {
    let status = cluster.status.as_ref();
    let ready = status.and_then(|status| find_condition(&status.conditions, conditions::READY));
    // An agent may write the time of the condition, but not that of the creation.
    let since =
        [ready.and_then(|ready| ready.last_transition_time.as_ref()), cluster.metadata.creation_timestamp.as_ref()];
    since.into_iter().flatten().all(|time| now.duration_since(time.0) >= STEADY)
}

/// Counts losses, and decides when they are too many to be believed.
#[derive(Debug, Default)]
pub struct MassLoss {
    lost: BTreeMap<String, Instant>,
    active: bool,
}

impl MassLoss {
    /// Goes on with the mass loss that a former leader has seen.
    pub fn from_lost(clusters: &[String], now: Instant) -> Self {
        Self { lost: clusters.iter().map(|name| (name.clone(), now)).collect(), active: true }
    }

    /// Returns whether placement is frozen.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Returns the clusters that are lost.
    pub fn lost_clusters(&self) -> Vec<String> {
        self.lost.keys().cloned().collect()
    }

    /// Records the loss of a cluster that was ready.
    pub fn record_loss(&mut self, name: &str, now: Instant) {
        self.lost.insert(name.to_owned(), now);
    }

    /// Decides whether placement is frozen, given the number of clusters that are ready now. Returns `Some` when that
    /// changed.
    ///
    /// The protection ends when the lost ones are no longer the majority: they recovered, others did, or they were deleted.
    pub fn evaluate_mass_loss(&mut self, ready: usize, now: Instant) -> Option<bool> {
        if !self.active {
            self.lost.retain(|_, at| now.duration_since(*at) < WINDOW);
        }
        let active = is_mass_loss(self.lost.len(), ready);
        let changed = active != self.active;
        self.active = active;
        changed.then_some(active)
    }

    /// Removes lost clusters that do not exist any more: they never recover, and there is nothing to move from them.
    pub fn retain_existing_clusters(&mut self, exists: impl Fn(&str) -> bool) {
        self.lost.retain(|name, _| exists(name));
    }

    /// Records that a cluster is ready again.
    pub fn record_recovery(&mut self, name: &str) {
        self.lost.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::{ClusterSpec, ClusterStatus, Condition};

    #[test]
    fn new_clusters_do_not_count() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        for (created, ready, expected, why) in
            [(60, 10, true, ""), (60, 9, false, ""), (9, 60, false, "whatever its agent says")]
        {
            let [created, ready] = [created, ready].map(|minutes| now - SignedDuration::from_mins(minutes));
            let mut cluster = Cluster::new("a", ClusterSpec::default());
            cluster.metadata.creation_timestamp = Some(Time(created));
            let ready = Condition::new(conditions::READY, true, "Ready", String::new(), ready);
            cluster.status = Some(ClusterStatus { conditions: vec![ready], ..ClusterStatus::default() });
            assert_eq!(is_steady(&cluster, now), expected, "{why}");
        }
    }

    #[test]
    fn a_mass_loss_lasts_until_recovery() {
        let start = Instant::now();
        let mut mass_loss = MassLoss::default();
        for name in ["a", "b", "c"] {
            mass_loss.record_loss(name, start);
        }
        assert_eq!(mass_loss.evaluate_mass_loss(2, start), Some(true));
        assert_eq!(mass_loss.evaluate_mass_loss(2, start + WINDOW * 10), None, "time alone does not end it");
        mass_loss.record_recovery("a");
        assert_eq!(mass_loss.evaluate_mass_loss(3, start), Some(false));
    }

    #[test]
    fn the_next_leader_goes_on_with_a_mass_loss() {
        let start = Instant::now();
        let mut mass_loss = MassLoss::from_lost(&["a", "b", "c"].map(str::to_owned), start);
        assert_eq!(mass_loss.evaluate_mass_loss(0, start + WINDOW * 10), None);
        assert!(mass_loss.is_active());
        mass_loss.record_recovery("a");
        assert_eq!(mass_loss.evaluate_mass_loss(1, start + WINDOW * 10), Some(false));
    }

    #[test]
    fn deleted_clusters_do_not_count() {
        let start = Instant::now();
        let mut mass_loss = MassLoss::default();
        for name in ["a", "b", "c"] {
            mass_loss.record_loss(name, start);
        }
        assert_eq!(mass_loss.evaluate_mass_loss(1, start), Some(true));
        mass_loss.retain_existing_clusters(|name| name == "a");
        assert_eq!(mass_loss.evaluate_mass_loss(1, start + WINDOW * 10), Some(false));
    }

    #[test]
    fn small_or_spread_losses_are_believed() {
        let start = Instant::now();
        let mut few = MassLoss::default();
        few.record_loss("a", start);
        few.record_loss("b", start);
        assert_eq!(few.evaluate_mass_loss(0, start), None);
        let mut minority = MassLoss::default();
        let mut apart = MassLoss::default();
        for (step, name) in ["a", "b", "c"].into_iter().enumerate() {
            minority.record_loss(name, start);
            apart.record_loss(name, start + WINDOW * u32::try_from(step).unwrap());
        }
        assert_eq!(minority.evaluate_mass_loss(3, start), None);
        assert_eq!(apart.evaluate_mass_loss(0, start + WINDOW * 2), None);
    }
}
