//! The registrar: approves and denies agents' CertificateSigningRequests, and registers new clusters.
//!
//! The name lock is the creation of the Cluster object, which etcd makes atomic. Only when everything that the agent
//! needs exists is its request approved; the controller manager of the control plane then signs it.

mod agent_version;
mod approve;
pub mod csr;
pub mod decision;
pub mod denial;
mod departures;
mod execute;
mod pending;
mod pkcs10;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::Recorder;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::index::{Index, OTHERS_WATCH};
use super::settings::Settings;
use crate::api::Cluster;
use crate::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT};
use crate::api::lenient::Lenient;
use crate::daemon::metrics::Metrics;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use approve::is_answered;
use csr::{Request, Requester};
use decision::{Facts, Known, MAX_NEVER_REPORTED, decide_request};
use denial::Denial;
use departures::Departures;
use pending::{BlockedOn, Limits, Pending, RequestQueue};

/// Time between two decisions about a pending request.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Number of requests that may be pending; further ones of token holders are denied, and their agents ask again later.
const MAX_PENDING: usize = 5000;
/// Number of requests that one registered agent may have pending.
const MAX_PENDING_OF_AGENT: usize = 5;
/// Size of the largest request that is looked at, in bytes of its JSON. An agent's takes some 2 KiB.
const LARGEST: usize = 16 * 1024;

/// The registrar of one leadership term.
pub struct Registrar {
    client: Client,
    index: Arc<Index>,
    settings: watch::Receiver<Option<Settings>>,
    metrics: Metrics,
    recorder: Recorder,
    requests: Api<Lenient<CertificateSigningRequest>>,
    clusters: Api<Lenient<Cluster>>,
    queue: RequestQueue,
    limits: Limits,
    departures: Departures,
    /// Requests that are to be deleted because of their size, with their UIDs.
    oversized: BTreeMap<String, Option<String>>,
}

/// State of a request after a decision was executed.
enum RequestOutcome {
    /// It was approved or denied.
    Answered,
    /// It is pending, with the reason.
    Pending(String),
}

impl Registrar {
    /// Creates a registrar that has seen no request.
    pub fn new(
        client: Client,
        index: Arc<Index>,
        settings: watch::Receiver<Option<Settings>>,
        metrics: Metrics,
        recorder: Recorder,
    ) -> Self {
        Self {
            requests: Api::all(client.clone()),
            clusters: Api::all(client.clone()),
            client,
            index,
            settings,
            metrics,
            recorder,
            queue: RequestQueue::default(),
            limits: Limits::default(),
            departures: Departures::default(),
            oversized: BTreeMap::new(),
        }
    }

    /// Answers requests until dropped.
    pub async fn run(mut self) {
        let config = watcher::Config::default().any_semantic().timeout(OTHERS_WATCH);
        let mut stream = pin!(watcher::watcher(self.requests.clone(), config).default_backoff());
        let mut retry = tokio::time::interval(RETRY_INTERVAL);
        // However long a round takes, new requests have their turn before the next.
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = stream.try_next() => match event {
                    Ok(Some(Event::Apply(csr))) => self.on_request(csr.0).await,
                    Ok(Some(Event::InitApply(csr))) => self.on_listed(csr.0),
                    Ok(Some(Event::Delete(csr))) => self.forget_request(&csr.name_any()),
                    Ok(Some(Event::Init)) => self.queue.begin_list(),
                    Ok(Some(Event::InitDone)) => {
                        self.queue.end_list();
                        self.retry_pending().await;
                    }
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, "watch of CertificateSigningRequests failed"),
                },
                _ = retry.tick() => self.retry_pending().await,
            }
        }
    }

    async fn on_request(&mut self, csr: CertificateSigningRequest) {
        let name = csr.name_any();
        self.on_listed(csr);
        self.delete_oversized_ones().await;
        // Without the first list of clusters, a name that is taken would look free.
        if self.index.is_complete() && self.queue.get(&name).is_some() {
            self.process_request(&name).await;
            self.deny_beyond_limit(&name).await;
        }
    }

    /// Takes note of a request, and decides nothing: what a list has still to name may be about the same cluster.
    fn on_listed(&mut self, mut csr: CertificateSigningRequest) {
        let name = csr.name_any();
        let Some(requester) = csr::find_requester(&csr) else { return self.forget_request(&name) };
        if request_size(&csr) > LARGEST {
            self.queue.remove(&name);
            self.oversized.insert(name, csr.uid());
        } else if is_answered(&csr) {
            // Whoever led before has answered it, and what it remembered is gone.
            if let Ok(request) = csr::parse_request(&csr, requester, Duration::MAX)
                && request.leaves
            {
                self.departures.record_departure(&csr, &request);
            }
            self.forget_request(&name);
        } else {
            csr.metadata.managed_fields = None;
            self.queue.insert(csr);
        }
    }

    fn forget_request(&mut self, name: &str) {
        self.queue.remove(name);
        self.oversized.remove(name);
    }

    /// Deletes the requests that are too large. One that cannot be deleted is tried again.
    async fn delete_oversized_ones(&mut self) {
        for (name, uid) in self.oversized.clone() {
            match self.delete_oversized(&name, uid).await {
                Ok(()) => {
                    tracing::warn!(request = name, limit = LARGEST, "deleted: larger than a valid request");
                    self.oversized.remove(&name);
                }
                Err(error) => tracing::warn!(request = name, %error, "deletion of an oversized request failed"),
            }
        }
    }

    /// Denies a request that is pending while too many are. Those of registered agents do not wait behind those of token
    /// holders: each agent has its own limit.
    async fn deny_beyond_limit(&mut self, name: &str) {
        let Some(pending) = self.queue.get(name) else { return };
        let message = match csr::find_requester(&pending.csr) {
            Some(Requester::Agent { user }) => (self.queue.count_of(&user) > MAX_PENDING_OF_AGENT)
                .then(|| format!("more than {MAX_PENDING_OF_AGENT} requests of this agent are pending")),
            _ => (self.queue.len() > MAX_PENDING).then(|| format!("more than {MAX_PENDING} requests are pending")),
        };
        let Some(message) = message else { return };
        match self.deny_request(&pending.csr, None, &Denial::new("TooManyRequests", message)).await {
            Ok(_) => self.queue.remove(name),
            Err(error) => tracing::warn!(request = name, %error, "denial of an excess request failed"),
        }
    }

    /// Decides again about pending requests, the oldest first.
    async fn retry_pending(&mut self) {
        self.delete_oversized_ones().await;
        if !self.index.is_complete() {
            return;
        }
        for name in self.queue.oldest_first() {
            if !self.queue.get(&name).is_some_and(|pending| self.is_blocked(pending)) {
                self.process_request(&name).await;
            }
        }
    }

    fn is_blocked(&self, pending: &Pending) -> bool {
        match &pending.blocked_on {
            None => false,
            Some(BlockedOn::RateLimit) => {
                let settings = self.settings.borrow();
                !self.limits.allow_new_cluster(settings.as_ref().map_or(0, |settings| settings.new_clusters_per_minute))
            }
            Some(BlockedOn::NeverReported) => self.are_many_never_reported(),
            Some(BlockedOn::Acceptance(cluster)) => self.is_unaccepted_still(cluster),
            Some(BlockedOn::JustApproved(cluster)) => self.limits.was_just_approved(cluster),
        }
    }

    fn are_many_never_reported(&self) -> bool {
        self.index.never_reported().len() >= MAX_NEVER_REPORTED
    }

    /// Returns true while a cluster is the one that was read, with the same key, and no operator has accepted it.
    fn is_unaccepted_still(&self, cluster: &Cluster) -> bool {
        self.index.cluster(&cluster.name_any()).is_some_and(|now| {
            let [key, known_key] = [cluster, &*now].map(|of| of.annotations().get(ANNOTATION_KEY_FINGERPRINT));
            let stays = now.metadata.deletion_timestamp.is_none() && !now.spec.accepted;
            stays && now.metadata.uid == cluster.metadata.uid && known_key == key
        })
    }

    async fn process_request(&mut self, name: &str) {
        let Some(pending) = self.queue.get_mut(name) else { return };
        pending.blocked_on = None;
        let csr = pending.csr.clone();
        match self.resolve_request(&csr).await {
            Ok(RequestOutcome::Answered) => self.queue.remove(name),
            Ok(RequestOutcome::Pending(reason)) => {
                if self.queue.get_mut(name).is_some_and(|pending| pending.log_changed(&reason)) {
                    tracing::info!(request = name, reason, "registration pending");
                }
            }
            // The request was deleted, cleaned up or withdrawn; or something else that it was about.
            Err(e) if e.is_not_found() => match call_with_timeout(self.requests.get_opt(name)).await {
                Ok(None) => self.queue.remove(name),
                Ok(Some(_)) => tracing::debug!(request = name, "an object was deleted in the meantime; will retry"),
                Err(error) => tracing::warn!(request = name, %error, "registration failed; will retry"),
            },
            Err(error) => tracing::warn!(request = name, %error, "registration failed; will retry"),
        }
    }

    /// Reads the facts about a request, decides, and executes the decision.
    async fn resolve_request(&mut self, csr: &CertificateSigningRequest) -> Result<RequestOutcome, CallError> {
        let Some(settings) = self.settings.borrow().clone() else {
            return Ok(RequestOutcome::Pending("the configuration cannot be read".to_owned()));
        };
        let Some(requester) = csr::find_requester(csr) else { return Ok(RequestOutcome::Answered) };
        let request = match csr::parse_request(csr, requester, settings.agent_certificate_ttl) {
            Ok(request) => request,
            Err(denial) => return self.deny_request(csr, None, &denial).await,
        };
        let index = self.index.clone();
        let _names = index.names.lock().await;
        // Read from the API server: the watch may be behind, and this decides who owns a name.
        let cluster = call_with_timeout(self.clusters.get_opt(request.cluster.as_str())).await?.map(|read| read.0);
        if let Some(cluster) = &cluster {
            self.index.refresh_cluster(cluster);
        }
        let facts = self.gather_facts(csr, &request, cluster.as_ref(), &settings);
        self.execute_decision(decide_request(&request, &facts), csr, &request, cluster, &settings).await
    }

    fn gather_facts(
        &self,
        csr: &CertificateSigningRequest,
        request: &Request,
        cluster: Option<&Cluster>,
        settings: &Settings,
    ) -> Facts {
        let name = request.cluster.as_str();
        let per_minute = settings.new_clusters_per_minute;
        Facts {
            named: cluster.map(|cluster| self.known_cluster(cluster)),
            same_id: self.index.same_id_elsewhere(&request.id, name).map(|cluster| self.known_cluster(&cluster)),
            cluster_seen: self.queue.get(&csr.name_any()).is_some_and(|pending| pending.cluster_seen),
            rate_limit_reached: (!self.limits.allow_new_cluster(per_minute)).then_some(per_minute),
            many_never_reported: self.are_many_never_reported(),
            just_approved: self.limits.was_just_approved(name),
            left: self.departures.is_after(csr, request),
        }
    }

    fn known_cluster(&self, cluster: &Cluster) -> Known {
        let annotations = cluster.annotations();
        Known {
            name: cluster.name_any(),
            id: cluster.spec.cluster_id.clone().unwrap_or_default(),
            fingerprint: annotations.get(ANNOTATION_KEY_FINGERPRINT).cloned().unwrap_or_default(),
            allow_new_key: annotations.get(ANNOTATION_ALLOW_NEW_KEY).is_some_and(|value| value == "true"),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            accepted: cluster.spec.accepted,
            silent: self.index.time_since_renewal(&cluster.name_any(), Instant::now()),
        }
    }
}

/// Bytes of the JSON of a request.
fn request_size(csr: &CertificateSigningRequest) -> usize {
    serde_json::to_vec(csr).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
mod tests;
