//! Reconciling the rights of every cluster's agent with its object, so that what an operator revokes is gone within
//! seconds and stays away.
//!
//! This is the only place but the registrar that grants rights. Both do it under the lock of names and by an object that
//! was read under it, never by what a watch once said: by that, a key that was replaced or a cluster that was suspended
//! meanwhile would get its rights back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::Monitor;
use crate::api::Cluster;
use crate::scheduler::cluster_rbac;
use crate::scheduler::cluster_rbac::GrantError;
use crate::scheduler::index::View;

/// Time between two comparisons of rights and clusters, which cost no request.
const TICK: Duration = Duration::from_millis(500);
/// Time between two attempts at a grant that fails, as it does while the namespace of an earlier cluster is terminating.
const RETRY: Duration = Duration::from_secs(2);
/// Time after which all rights are written again: after an upgrade of ours, or an accident of somebody's.
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
            if !self.view.is_complete() {
                continue;
            }
            if synced.elapsed() > RESYNC {
                self.view.forget_all_rights();
                synced = Instant::now();
            }
            self.revoke_due(&mut failed).await;
            let mut revoked = Instant::now();
            for cluster in due(&self.view, Due::Grant) {
                if failed.get(&cluster.name_any()).is_some_and(|(_, at)| at.elapsed() < RETRY) {
                    continue;
                }
                self.reconcile(&cluster, &mut failed).await;
                if revoked.elapsed() >= TICK {
                    self.revoke_due(&mut failed).await;
                    revoked = Instant::now();
                }
            }
        }
    }

    async fn revoke_due(&self, failed: &mut Failures) {
        self.revoke_gone().await;
        for cluster in due(&self.view, Due::Revoke) {
            self.reconcile(&cluster, failed).await;
        }
    }

    /// Reconciles one cluster, as it is by now. The same error is logged once.
    pub(super) async fn reconcile(&self, cluster: &Cluster, failed: &mut Failures) {
        let name = cluster.name_any();
        let before = self.view.rights(&name);
        match self.reconcile_now(cluster).await {
            Ok(Some(holder)) => {
                failed.remove(&name);
                // Those that were unknown are written again after every start; that is no news.
                match (before, holder) {
                    (Some(_), Some(user)) => tracing::info!(cluster = name, user, "rights granted"),
                    (Some(_), None) => tracing::info!(cluster = name, "rights revoked"),
                    (None, _) => {}
                }
            }
            Ok(None) => {}
            Err(error) => {
                let waits = matches!(error, GrantError::NamespaceTerminating);
                let error = error.to_string();
                match failed.get(&name) {
                    Some((last, _)) if *last == error => {}
                    _ if waits => tracing::info!(cluster = name, why = error, "granting rights waits"),
                    _ => tracing::warn!(cluster = name, error, "the cluster's rights could not be reconciled"),
                }
                failed.insert(name, (error, Instant::now()));
            }
        }
    }

    /// The holder by whom the rights were written, if they had to be.
    async fn reconcile_now(&self, cluster: &Cluster) -> Result<Option<Option<String>>, GrantError> {
        let name = cluster.name_any();
        let _turn = self.view.names.lock().await;
        let Some(now) = self.find(&name).await? else {
            self.view.forget(cluster);
            return Ok(None);
        };
        self.view.put(now.clone());
        // The registrar may have been faster.
        if is_reconciled(&self.view, &now) {
            return Ok(None);
        }
        cluster_rbac::reconcile(&self.client, &self.view, &now).await?;
        Ok(Some(cluster_rbac::holder(&now)))
    }

    /// Revokes the rights of clusters that were deleted: at once, not when the garbage collector comes by.
    pub(super) async fn revoke_gone(&self) {
        for name in self.view.take_gone() {
            let _turn = self.view.names.lock().await;
            // A cluster of that name may have been registered since; its rights are new ones.
            if self.view.cluster(&name).is_some() {
                continue;
            }
            // The list that it was missing in may have been an old one.
            let cleared = match self.find(&name).await {
                Ok(Some(_)) => continue,
                Ok(None) => cluster_rbac::clear(&self.client, &name).await,
                Err(error) => Err(error),
            };
            match cleared {
                Ok(()) => tracing::info!(cluster = name, "rights of a deleted cluster taken away"),
                Err(error) => {
                    tracing::warn!(cluster = name, %error, "rights of a deleted cluster are still there");
                    self.view.add_gone([name]);
                }
            }
        }
    }
}

/// What is due for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Somebody is to get its rights.
    Grant,
    /// Nobody may have them.
    Revoke,
}

/// Clusters whose rights are not known to be what they should be.
fn due(view: &View, kind: Due) -> Vec<Arc<Cluster>> {
    let mut clusters = view.clusters();
    clusters.retain(|cluster| {
        let what = if cluster_rbac::holder(cluster).is_some() { Due::Grant } else { Due::Revoke };
        what == kind && !is_reconciled(view, cluster)
    });
    clusters
}

pub(super) fn is_reconciled(view: &View, cluster: &Cluster) -> bool {
    let holder = cluster_rbac::holder(cluster);
    view.rights(&cluster.name_any()).is_some_and(|rights| rights.are(cluster, holder.as_deref()))
}
