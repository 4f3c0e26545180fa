//! The registrar: answers agents' certificate signing requests, and gives each new cluster its place in the hub.
//!
//! The name lock is the creation of the Cluster object, which etcd makes atomic. Only when everything that the agent
//! needs is there is its request approved; the hub's controller manager then signs it.

mod approve;
pub mod csr;
pub mod decision;
mod pkcs10;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::{EventType, Recorder};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::cluster_rbac;
use super::cluster_rbac::EnsureError;
use super::events::{Note, publish};
use super::index::{OTHERS_WATCH, View};
use super::settings::{Registration, Settings};
use crate::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT, LABEL_NAME, SCHEDULER_MANAGER};
use crate::api::lenient::Lenient;
use crate::api::{Cluster, ClusterSpec};
use crate::daemon::metrics::Metrics;
use crate::k8s::daemon_client::{CallError, call};
use approve::is_answered;
use csr::{Denial, Request};
use decision::{Decision, Known, TO_BE_ACCEPTED, decide};

/// How often requests that wait for something are looked at again.
const AGAIN: Duration = Duration::from_secs(2);
/// How many requests may wait; more are refused, and their agents ask again later.
const MOST_WAITING: usize = 5000;

/// The registrar of one term.
pub struct Registrar {
    client: Client,
    view: Arc<View>,
    settings: watch::Receiver<Option<Settings>>,
    metrics: Metrics,
    recorder: Recorder,
    requests: Api<Lenient<CertificateSigningRequest>>,
    clusters: Api<Lenient<Cluster>>,
    /// Requests without an answer.
    waiting: BTreeMap<String, CertificateSigningRequest>,
    /// Those of them whose Cluster was seen: where it is gone since, somebody deleted it, and it is not made anew.
    named: BTreeSet<String>,
    /// Those of them about which there is nothing to ask until something has happened that is seen from here.
    idle: BTreeMap<String, Until>,
    /// When names were given in the last minute.
    given: Vec<Instant>,
    /// When a request of a cluster was last approved.
    approved: BTreeMap<String, Instant>,
    said: Said,
}

/// What was last said of each request that waits: it is looked at often, and said once.
#[derive(Debug, Default)]
struct Said(BTreeMap<String, String>);

impl Said {
    /// Whether `why` is news of a request; it is remembered.
    fn news(&mut self, request: &str, why: &str) -> bool {
        self.0.insert(request.to_owned(), why.to_owned()).is_none_or(|before| before != why)
    }
}

/// What has to happen before a request is worth another look.
enum Until {
    /// The rate limit lets another name be given.
    NameMayBeGiven,
    /// An operator accepts the cluster, or it is not the same any more.
    Accepted(Arc<Cluster>),
    /// Some time has gone by since the cluster of this name had a certificate.
    Pause(String),
}

/// What a request needs before it can be answered, if not an error.
enum Outcome {
    Answered,
    Waits(String),
}

impl Registrar {
    /// A registrar.
    pub fn new(
        client: Client,
        view: Arc<View>,
        settings: watch::Receiver<Option<Settings>>,
        metrics: Metrics,
        recorder: Recorder,
    ) -> Self {
        Self {
            requests: Api::all(client.clone()),
            clusters: Api::all(client.clone()),
            client,
            view,
            settings,
            metrics,
            recorder,
            waiting: BTreeMap::new(),
            named: BTreeSet::new(),
            idle: BTreeMap::new(),
            given: Vec::new(),
            approved: BTreeMap::new(),
            said: Said::default(),
        }
    }

    /// Answers requests until dropped.
    pub async fn run(mut self) {
        let config = watcher::Config::default().any_semantic().timeout(OTHERS_WATCH);
        let mut stream = pin!(watcher::watcher(self.requests.clone(), config).default_backoff());
        let mut again = tokio::time::interval(AGAIN);
        // However long a round takes, what is new has its turn before the next.
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = stream.try_next() => match event {
                    Ok(Some(Event::Apply(request) | Event::InitApply(request))) => self.notice(request.0).await,
                    Ok(Some(Event::Delete(request))) => self.settle(&request.name_any()),
                    Ok(Some(Event::Init)) => self.waiting.clear(),
                    Ok(Some(Event::InitDone)) => {
                        self.said.0.retain(|name, _| self.waiting.contains_key(name));
                        self.named.retain(|name| self.waiting.contains_key(name));
                        self.idle.retain(|name, _| self.waiting.contains_key(name));
                    }
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, "watch of certificate signing requests"),
                },
                _ = again.tick() => self.look_again().await,
            }
        }
    }

    /// A request waits no longer.
    fn settle(&mut self, name: &str) {
        self.waiting.remove(name);
        self.named.remove(name);
        self.idle.remove(name);
        self.said.0.remove(name);
    }

    async fn notice(&mut self, request: CertificateSigningRequest) {
        let name = request.name_any();
        if is_answered(&request) || csr::requester(&request).is_none() {
            self.settle(&name);
            return;
        }
        self.waiting.insert(name.clone(), request);
        // Without the first list of clusters, a name that is taken would look free.
        if self.view.is_complete() {
            self.handle(&name).await;
            self.turn_away(&name).await;
        }
    }

    /// Refuses a request that waits while too many do.
    async fn turn_away(&mut self, name: &str) {
        let Some(request) = self.waiting.get(name).filter(|_| self.waiting.len() > MOST_WAITING) else { return };
        let denial = Denial::new("TooManyRequests", format!("more than {MOST_WAITING} requests wait for an answer"));
        match self.deny(request, None, &denial).await {
            Ok(_) => self.settle(name),
            Err(error) => tracing::warn!(request = name, %error, "a request too many could not be refused"),
        }
    }

    /// Looks at those that wait, the oldest first.
    async fn look_again(&mut self) {
        if !self.view.is_complete() {
            return;
        }
        let mut oldest: Vec<_> = self.waiting.values().map(|r| (r.creation_timestamp(), r.name_any())).collect();
        oldest.sort_unstable();
        for (_, name) in oldest {
            if !self.is_idle(&name) {
                self.handle(&name).await;
            }
        }
    }

    fn is_idle(&self, request: &str) -> bool {
        match self.idle.get(request) {
            None => false,
            Some(Until::NameMayBeGiven) => {
                let settings = self.settings.borrow();
                !self.may_give_a_name(settings.as_ref().map_or(0, |settings| settings.new_clusters_per_minute))
            }
            Some(Until::Accepted(cluster)) => self.is_to_be_accepted(cluster),
            Some(Until::Pause(cluster)) => self.was_just_approved(cluster),
        }
    }

    /// Whether a cluster is what it was, and no operator has accepted it.
    fn is_to_be_accepted(&self, cluster: &Cluster) -> bool {
        self.view.cluster(&cluster.name_any()).is_some_and(|now| {
            let annotation = |of: &Cluster, key| of.annotations().get(key).cloned();
            let same = |key| annotation(cluster, key) == annotation(&now, key);
            let stays = now.metadata.deletion_timestamp.is_none() && !now.spec.accepted;
            stays && now.metadata.uid == cluster.metadata.uid && same(ANNOTATION_KEY_FINGERPRINT)
        })
    }

    async fn handle(&mut self, name: &str) {
        let Some(request) = self.waiting.get(name).cloned() else { return };
        self.idle.remove(name);
        match self.answer(&request).await {
            Ok(Outcome::Answered) => self.settle(name),
            Ok(Outcome::Waits(why)) => {
                if self.said.news(name, &why) {
                    tracing::info!(request = name, why, "registration waits");
                }
            }
            // The request is gone, cleaned up or withdrawn; or something else that it was about.
            Err(e) if e.is_not_found() => match call(self.requests.get_opt(name)).await {
                Ok(None) => self.settle(name),
                Ok(Some(_)) => tracing::debug!(request = name, "what was read is gone; it is looked at again"),
                Err(error) => tracing::warn!(request = name, %error, "registration failed for now"),
            },
            Err(error) => tracing::warn!(request = name, %error, "registration failed for now"),
        }
    }

    async fn answer(&mut self, csr: &CertificateSigningRequest) -> Result<Outcome, CallError> {
        let Some(settings) = self.settings.borrow().clone() else {
            return Ok(Outcome::Waits("the configuration cannot be read".to_owned()));
        };
        let Some(requester) = csr::requester(csr) else { return Ok(Outcome::Answered) };
        let request = match csr::read(csr, requester, settings.agent_certificate_ttl) {
            Ok(request) => request,
            Err(denial) => return self.deny(csr, None, &denial).await,
        };
        let name = request.cluster.as_str();
        let view = self.view.clone();
        let _turn = view.names.lock().await;
        // Read anew: the watch may be behind, and this is about who owns a name.
        let found = call(self.clusters.get_opt(name)).await?.map(|read| read.0);
        if let Some(cluster) = &found {
            self.view.refresh(cluster);
        }
        if found.is_none() && !request.leaves && self.named.contains(&csr.name_any()) {
            let message = format!("cluster {name} was deleted while it waited to be let in");
            return self.deny(csr, None, &Denial::new("ClusterDeleted", message)).await;
        }
        let same_id = self.view.same_id_elsewhere(&request.id, name).map(|c| self.known(&c));
        let decision = decide(&request, found.as_ref().map(|c| self.known(c)).as_ref(), same_id.as_ref());
        let cluster = match (decision, found) {
            (Decision::Deny(denial), found) => {
                if request.leaves {
                    self.answer_others(&request, &settings).await?;
                }
                return self.deny(csr, found.as_ref(), &denial).await;
            }
            (Decision::Wait(why), found) => {
                // What goes away was another's: the name is free for this one then.
                let stays = found.filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
                return Ok(self.waits_with(csr, stays, why));
            }
            (Decision::WaitWithKey(why), found) => {
                let Some(cluster) = found else { return Ok(Outcome::Waits(why.to_owned())) };
                let cluster = self.remember_key(&request, cluster).await?;
                self.deny_former_keys(&request, settings.agent_certificate_ttl).await?;
                return Ok(self.waits_with(csr, Some(cluster), why));
            }
            (Decision::Forget, found) => return self.forget(csr, &request, found.as_ref(), &settings).await,
            (Decision::Create, _) if !self.may_give_a_name(settings.new_clusters_per_minute) => {
                self.idle.insert(csr.name_any(), Until::NameMayBeGiven);
                self.metrics.count(
                    "fleet_registrations_delayed_total",
                    "Registrations held back by the rate limit.",
                    &[],
                );
                return Ok(Outcome::Waits(format!(
                    "more than {} new clusters in a minute",
                    settings.new_clusters_per_minute
                )));
            }
            // The watch may be behind about the request as well: one that its cluster took back must not bring it back.
            (Decision::Create, _) if is_answered(&call(self.requests.get(&csr.name_any())).await?.0) => {
                return Ok(Outcome::Answered);
            }
            (Decision::Create, found) => match self.create(&request, found, settings.registration).await {
                Ok(cluster) => cluster,
                // Somebody else was faster; the next look shows who.
                Err(e) if e.is_conflict() => return Ok(Outcome::Waits("the name was taken just now".to_owned())),
                Err(e) => return Err(e),
            },
            (Decision::Reissue, Some(_)) if self.was_just_approved(name) => {
                self.idle.insert(csr.name_any(), Until::Pause(name.to_owned()));
                return Ok(Outcome::Waits("the cluster had a certificate a moment ago".to_owned()));
            }
            (Decision::Reissue, Some(cluster)) => self.remember_key(&request, cluster).await?,
            (Decision::Reissue, None) => return Ok(Outcome::Waits("the cluster is gone".to_owned())),
        };
        if !cluster.spec.accepted {
            return Ok(self.waits_with(csr, Some(cluster), TO_BE_ACCEPTED));
        }
        self.view.put(cluster.clone());
        self.named.insert(csr.name_any());
        match cluster_rbac::reconcile(&self.client, &self.view, &cluster).await {
            Ok(()) => {}
            Err(EnsureError::Leftovers) => return Ok(Outcome::Waits(EnsureError::Leftovers.to_string())),
            Err(EnsureError::Call(e)) => return Err(e),
        }
        let outcome = self.approve(csr, &request).await?;
        self.approved.retain(|_, at| at.elapsed() < AGAIN);
        self.approved.insert(name.to_owned(), Instant::now());
        Ok(outcome)
    }

    /// A request waits, maybe for something about the cluster of its name.
    fn waits_with(&mut self, csr: &CertificateSigningRequest, cluster: Option<Cluster>, why: &str) -> Outcome {
        if let Some(cluster) = cluster {
            self.named.insert(csr.name_any());
            self.view.put(cluster.clone());
            self.idle.insert(csr.name_any(), Until::Accepted(Arc::new(cluster)));
        }
        Outcome::Waits(why.to_owned())
    }

    /// Whoever has one certificate could ask for others without end, and keep everybody else waiting.
    fn was_just_approved(&self, cluster: &str) -> bool {
        self.approved.get(cluster).is_some_and(|at| at.elapsed() < AGAIN)
    }

    fn known(&self, cluster: &Cluster) -> Known {
        let annotation = |key: &str| cluster.annotations().get(key).cloned().unwrap_or_default();
        Known {
            name: cluster.name_any(),
            id: cluster.spec.cluster_id.clone().unwrap_or_default(),
            fingerprint: annotation(ANNOTATION_KEY_FINGERPRINT),
            allow_new_key: annotation(ANNOTATION_ALLOW_NEW_KEY) == "true",
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            accepted: cluster.spec.accepted,
            silent: self.view.silent(&cluster.name_any(), Instant::now()),
        }
    }

    /// A stolen init token can add names, so it must not be able to add a flood of them.
    fn may_give_a_name(&self, a_minute: usize) -> bool {
        self.given.iter().filter(|at| is_recent(at)).count() < a_minute
    }

    /// Takes the name. A Cluster that an operator made beforehand gets the requester's ID and key.
    async fn create(
        &mut self,
        request: &Request,
        found: Option<Cluster>,
        registration: Registration,
    ) -> Result<Cluster, CallError> {
        let name = request.cluster.as_str();
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let key = (ANNOTATION_KEY_FINGERPRINT.to_owned(), request.fingerprint.clone());
        let cluster = if let Some(mut cluster) = found {
            // An operator who registers by hand looks at who came before it is let in, unless it is the ID that the
            // Cluster was made for. `accepted` is true by default, so that it is no such look.
            if registration == Registration::Manual && cluster.spec.cluster_id.is_none() {
                cluster.spec.accepted = false;
            }
            cluster.spec.cluster_id = Some(request.id.clone());
            cluster.annotations_mut().extend([key]);
            // Only a part of them was read, and what is sent would count as the whole.
            cluster.metadata.managed_fields = None;
            // With the version that was read: a second claim to the same name loses.
            call(clusters.replace(name, &PostParams::default(), &cluster)).await?
        } else {
            let spec = ClusterSpec {
                name: name.to_owned(),
                cluster_id: Some(request.id.clone()),
                accepted: registration == Registration::Auto,
                ..ClusterSpec::default()
            };
            let mut cluster = Cluster::new(name, spec);
            cluster.metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(LABEL_NAME.to_owned(), name.to_owned())].into()),
                annotations: Some([key].into()),
                ..ObjectMeta::default()
            };
            let params = PostParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PostParams::default() };
            call(clusters.create(&params, &cluster)).await?
        };
        self.given.retain(is_recent);
        self.given.push(Instant::now());
        tracing::info!(cluster = name, id = request.id, accepted = cluster.spec.accepted, "new cluster");
        self.note(&cluster, EventType::Normal, "ClusterRegistered", &format!("registered by cluster {}", request.id))
            .await;
        Ok(cluster)
    }

    /// Notes the key of a cluster that brings a new one. An operator's permission for that is used up, also by the key that
    /// is known: it was given for the next agent, not for any one later.
    async fn remember_key(&self, request: &Request, cluster: Cluster) -> Result<Cluster, CallError> {
        let known = cluster.annotations().get(ANNOTATION_KEY_FINGERPRINT) == Some(&request.fingerprint);
        if known && !cluster.annotations().contains_key(ANNOTATION_ALLOW_NEW_KEY) {
            return Ok(cluster);
        }
        let change = json!({ "metadata": { "resourceVersion": cluster.resource_version(), "annotations": {
            ANNOTATION_KEY_FINGERPRINT: request.fingerprint,
            ANNOTATION_ALLOW_NEW_KEY: null,
        }}});
        let name = request.cluster.as_str();
        let changed = call(self.clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change))).await?.0;
        if known {
            return Ok(changed);
        }
        tracing::info!(cluster = name, "the cluster has a new key");
        self.note(&changed, EventType::Normal, "ClusterKeyChanged", "the agent registered with a new key").await;
        Ok(changed)
    }

    async fn note(&self, cluster: &Cluster, type_: EventType, reason: &str, note: &str) {
        let note = Note { type_, action: "Registering", reason, text: note };
        publish(&self.recorder, &cluster.object_ref(&()), note).await;
    }
}

/// Whether a name was given in the last minute.
fn is_recent(given: &Instant) -> bool {
    given.elapsed() < Duration::from_secs(60)
}

#[cfg(test)]
mod tests;
