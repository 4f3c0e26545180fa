//! Requests without an answer, and the limits on answering them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::RETRY_INTERVAL;
use super::csr::{Requester, find_requester};
use crate::api::Cluster;

/// Name of a CertificateSigningRequest.
pub(super) type RequestName = String;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    /// The object, as last seen.
    pub(super) csr: CertificateSigningRequest,
    /// Its Cluster existed once. If it was deleted since, it is not recreated.
    pub(super) cluster_seen: bool,
    /// Change that must be observed before another decision is worth a request to the API server.
    pub(super) blocked_on: Option<BlockedOn>,
    /// Reason that was last logged: decisions are repeated often, and logged once.
    last_logged: Option<String>,
}

impl Pending {
    /// Records the reason why the request is pending. Returns false if the same was logged last.
    pub(super) fn log_changed(&mut self, reason: &str) -> bool {
        let changed = self.last_logged.as_deref() != Some(reason);
        if changed {
            self.last_logged = Some(reason.to_owned());
        }
        changed
    }
}

/// Change that a pending request depends on.
#[derive(Debug)]
pub(super) enum BlockedOn {
    /// The rate limit allows another cluster.
    RateLimit,
    /// Clusters that never reported do, or are removed.
    NeverReported,
    /// An operator accepts the cluster, or changes it otherwise.
    Acceptance(Arc<Cluster>),
    /// Some time has passed since the last certificate of the cluster of this name.
    JustApproved(String),
}

/// Pending requests by name.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    pending: BTreeMap<RequestName, Pending>,
    /// Requests that the list in progress has not named yet: no decision is made about them, but their state is
    /// retained.
    unlisted: BTreeMap<RequestName, Pending>,
}

impl RequestQueue {
    /// Adds a request, or replaces its object; what is known about it is retained.
    pub(super) fn insert(&mut self, csr: CertificateSigningRequest) {
        let name = csr.name_any();
        let known = self.pending.remove(&name).or_else(|| self.unlisted.remove(&name));
        let pending = match known {
            Some(known) => Pending { csr, ..known },
            None => Pending { csr, cluster_seen: false, blocked_on: None, last_logged: None },
        };
        self.pending.insert(name, pending);
    }

    /// Removes a request that was answered or deleted.
    pub(super) fn remove(&mut self, name: &str) {
        self.pending.remove(name);
        self.unlisted.remove(name);
    }

    /// Begins a new list of all requests.
    pub(super) fn begin_list(&mut self) {
        self.unlisted.append(&mut self.pending);
    }

    /// Ends that list: requests that it did not name are deleted.
    pub(super) fn end_list(&mut self) {
        self.unlisted.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Pending> {
        self.pending.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Pending> {
        self.pending.get_mut(name)
    }

    /// All requests.
    pub(super) fn requests(&self) -> impl Iterator<Item = &CertificateSigningRequest> {
        self.pending.values().map(|pending| &pending.csr)
    }

    /// Number of requests of a user.
    pub(super) fn count_of(&self, user: &str) -> usize {
        self.requests().filter(|csr| csr.spec.username.as_deref().unwrap_or_default() == user).count()
    }

    /// Names of all requests, those of registered agents first, and of these and those the oldest first.
    pub(super) fn oldest_first(&self) -> Vec<RequestName> {
        let all = self.requests().map(|csr| {
            let is_of_token = find_requester(csr) == Some(Requester::Token);
            (is_of_token, csr.creation_timestamp(), csr.name_any())
        });
        let mut oldest: Vec<_> = all.collect();
        oldest.sort_unstable();
        oldest.into_iter().map(|(.., name)| name).collect()
    }
}

/// Times of recent answers, from which the limits are derived.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Creations of Clusters in the last minute.
    created: Vec<Instant>,
    /// Last approval by cluster name.
    approved: BTreeMap<String, Instant>,
}

impl Limits {
    /// Returns true while the rate limit allows another cluster. Whoever stole an init token can add clusters, but must not
    /// be able to flood the control plane with them.
    pub(super) fn allow_new_cluster(&self, per_minute: usize) -> bool {
        self.created.iter().filter(|at| is_recent(at)).count() < per_minute
    }

    pub(super) fn record_creation(&mut self) {
        self.created.retain(is_recent);
        self.created.push(Instant::now());
    }

    /// Returns true where a certificate of a cluster was approved just now. A holder of one certificate could request others without
    /// end, and keep everybody else waiting.
    pub(super) fn was_just_approved(&self, cluster: &str) -> bool {
        self.approved.get(cluster).is_some_and(|at| at.elapsed() < RETRY_INTERVAL)
    }

    pub(super) fn record_approval(&mut self, cluster: &str) {
        self.approved.retain(|_, at| at.elapsed() < RETRY_INTERVAL);
        self.approved.insert(cluster.to_owned(), Instant::now());
    }

    #[cfg(test)]
    pub(super) fn forget_approvals(&mut self) {
        self.approved.clear();
    }
}

fn is_recent(at: &Instant) -> bool {
    at.elapsed() < Duration::from_secs(60)
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    fn request(name: &str) -> CertificateSigningRequest {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        CertificateSigningRequest { metadata, ..CertificateSigningRequest::default() }
    }

    #[test]
    fn a_reason_is_logged_once_per_request() {
        let mut queue = RequestQueue::default();
        queue.insert(request("a"));
        queue.insert(request("b"));
        let mut log = |name, reason| queue.get_mut(name).unwrap().log_changed(reason);
        assert!(log("a", "not accepted") && log("b", "not accepted"));
        assert!(!log("a", "not accepted") && !log("b", "not accepted"));
        assert!(log("a", "rate limit") && !log("b", "not accepted"));
    }

    #[test]
    fn a_relist_retains_state() {
        let mut queue = RequestQueue::default();
        for name in ["kept", "deleted"] {
            queue.insert(request(name));
            queue.get_mut(name).unwrap().cluster_seen = true;
        }
        queue.begin_list();
        assert_eq!(queue.len(), 0, "only what is listed is pending");
        // A list that fails half-way begins again.
        queue.insert(request("kept"));
        queue.begin_list();
        queue.insert(request("kept"));
        queue.end_list();
        queue.insert(request("deleted"));
        assert!(queue.get("kept").unwrap().cluster_seen && !queue.get("deleted").unwrap().cluster_seen);
    }
}
