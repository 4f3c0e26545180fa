//! Reconciles the rights of every cluster's agent with its object, so that rights that an operator revokes are removed
//! within seconds.
//!
//! Only this and the registrar grant rights. Both do it under the lock of names and by an object that was read under it,
//! never by an object of a watch: by that, a key that was replaced or a cluster that was suspended meanwhile would get its
//! rights back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::Monitor;
use crate::api::Cluster;
use crate::scheduler::cluster_rbac;
use crate::scheduler::cluster_rbac::GrantError;
use crate::scheduler::index::Index;

/// Time between two comparisons of rights and clusters, which cost no request.
const TICK: Duration = Duration::from_millis(500);
/// Time between two attempts at a grant that fails, as it does while the namespace of an earlier cluster is terminating.
const RETRY: Duration = Duration::from_secs(2);
/// Time after which all rights are written again, to undo changes by others.
const RESYNC: Duration = Duration::from_secs(1800);

/// Last error by cluster, and when it happened.
pub(super) type Failures = BTreeMap<String, (String, Instant)>;

impl Monitor {
    /// Reconciles until dropped. Revocations have their turn between grants: after a start there may be a thousand of
    /// those.
    pub(super) async fn reconcile_rights(&self) {
        let mut synced = Instant::now();
        let mut failed = Failures::new();
        loop {
            tokio::time::sleep(TICK).await;
            if !self.index.is_complete() {
                continue;
            }
            if synced.elapsed() > RESYNC {
                self.index.forget_all_rights();
                synced = Instant::now();
            }
            self.revoke_due(&mut failed).await;
            let mut revoked = Instant::now();
            for cluster in find_clusters_with_due_rights(&self.index, RightsDue::Grant) {
                if failed.get(&cluster.name_any()).is_some_and(|(_, at)| at.elapsed() < RETRY) {
                    continue;
                }
                self.reconcile_and_log(&cluster, &mut failed).await;
                if revoked.elapsed() >= TICK {
                    self.revoke_due(&mut failed).await;
                    revoked = Instant::now();
                }
            }
        }
    }

    async fn revoke_due(&self, failed: &mut Failures) {
        self.revoke_deleted().await;
        for cluster in find_clusters_with_due_rights(&self.index, RightsDue::Revoke) {
            self.reconcile_and_log(&cluster, failed).await;
        }
    }

    /// Reconciles one cluster, as it is now. The same error is logged once.
    pub(super) async fn reconcile_and_log(&self, cluster: &Cluster, failed: &mut Failures) {
        let name = cluster.name_any();
        let before = self.index.written_rights(&name);
        match self.reconcile_now(cluster).await {
            Ok(Some(holder)) => {
                failed.remove(&name);
                // Unknown rights are written again after every start; that is not logged.
                match (before, holder) {
                    (Some(_), Some(user)) => tracing::info!(cluster = name, user, "rights granted"),
                    (Some(_), None) => tracing::info!(cluster = name, "rights revoked"),
                    (None, _) => {}
                }
            }
            Ok(None) => {}
            Err(error) => {
                let terminating = matches!(error, GrantError::NamespaceTerminating);
                let error = error.to_string();
                match failed.get(&name) {
                    Some((last, _)) if *last == error => {}
                    _ if terminating => tracing::info!(cluster = name, reason = error, "rights are not granted yet"),
                    _ => tracing::warn!(cluster = name, error, "reconciling rights failed"),
                }
                failed.insert(name, (error, Instant::now()));
            }
        }
    }

    /// Returns the holder that rights were written for, if they had to be.
    async fn reconcile_now(&self, cluster: &Cluster) -> Result<Option<Option<String>>, GrantError> {
        let name = cluster.name_any();
        let _names = self.index.names.lock().await;
        let Some(now) = self.fetch_cluster(&name).await? else {
            self.index.forget_cluster(cluster);
            return Ok(None);
        };
        self.index.put_cluster(now.clone());
        // The registrar may have been faster.
        if is_reconciled(&self.index, &now) {
            return Ok(None);
        }
        cluster_rbac::reconcile_cluster_rights(&self.client, &self.index, &now).await?;
        Ok(Some(cluster_rbac::rights_holder(&now)))
    }

    /// Revokes the rights of deleted clusters at once, without waiting for the garbage collector.
    pub(super) async fn revoke_deleted(&self) {
        for name in self.index.take_deleted() {
            let _names = self.index.names.lock().await;
            // A cluster of that name may have been registered since, with rights of its own.
            if self.index.cluster(&name).is_some() {
                continue;
            }
            // The list that it was missing in may have been outdated.
            let cleared = match self.fetch_cluster(&name).await {
                Ok(Some(_)) => continue,
                Ok(None) => cluster_rbac::delete_cluster_objects(&self.client, &name).await,
                Err(error) => Err(error),
            };
            match cleared {
                Ok(()) => tracing::info!(cluster = name, "rights of a deleted cluster revoked"),
                Err(error) => {
                    tracing::warn!(cluster = name, %error, "revoking the rights of a deleted cluster failed; will retry");
                    self.index.add_deleted([name]);
                }
            }
        }
    }
}

/// Change that is due for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RightsDue {
    /// Its agent gets rights.
    Grant,
    /// Nobody may have its rights.
    Revoke,
}

/// Returns the clusters whose rights are not known to be as they should.
fn find_clusters_with_due_rights(index: &Index, kind: RightsDue) -> Vec<Arc<Cluster>> {
    let mut clusters = index.clusters();
    clusters.retain(|cluster| {
        let change = if cluster_rbac::rights_holder(cluster).is_some() { RightsDue::Grant } else { RightsDue::Revoke };
        change == kind && !is_reconciled(index, cluster)
    });
    clusters
}

pub(super) fn is_reconciled(index: &Index, cluster: &Cluster) -> bool {
    let holder = cluster_rbac::rights_holder(cluster);
    index.written_rights(&cluster.name_any()).is_some_and(|rights| rights.is_written_for(cluster, holder.as_deref()))
}
