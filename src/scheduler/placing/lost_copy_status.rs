//! Status of copies in lost clusters, which no longer report: the message in the status of a source beside its counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::place::cluster_of;
use super::store::Store;
use crate::api::Cluster;
use crate::api::crd::cluster::{conditions, reasons};
use crate::api::crd::condition::find_condition;
use crate::placement::facts::ObjectKey;

/// Returns what a lost cluster's condition says; `None` for one that reports.
fn lost_message(cluster: &Cluster) -> Option<String> {
    let ready = find_condition(&cluster.status.as_ref()?.conditions, conditions::READY)?;
    (!ready.is_true() && ready.reason == reasons::HEARTBEAT_LOST).then(|| {
        let since = ready.last_transition_time.as_ref().map(|since| format!(" since {}", since.0)).unwrap_or_default();
        format!("its agent has not reported{since}")
    })
}

impl Store {
    /// Records which clusters are lost; the statuses of copies in clusters whose state changed are planned.
    pub(super) fn set_lost<'c>(&mut self, clusters: impl Iterator<Item = &'c Arc<Cluster>>, now: Instant) {
        let lost: BTreeMap<String, String> =
            clusters.filter_map(|cluster| Some((cluster.name_any(), lost_message(cluster)?))).collect();
        if lost == self.lost {
            return;
        }
        let old = std::mem::replace(&mut self.lost, lost);
        let changed: Vec<ObjectKey> = self
            .copies
            .iter()
            .filter(|(key, places)| {
                self.sources.contains_key(*key)
                    && places.iter().map(cluster_of).any(|cluster| old.get(cluster) != self.lost.get(cluster))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in changed {
            self.mark_status(&key, now);
        }
    }
}
