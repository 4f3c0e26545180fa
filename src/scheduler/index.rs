//! What the scheduler knows of the hub while it leads: clusters, heartbeats and who has work, kept fresh by watches.
//!
//! Heartbeats are judged by *our* clock: what counts is when we saw a Lease change, not the time written in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::agent_clock::Clock;
use crate::api::labels::{AGENT_LEASE, CLUSTER_NAMESPACE_PREFIX};
use crate::api::lenient::Lenient;
use crate::api::{Cluster, Schedule};

/// How long a watch of Leases lives, in seconds; the next one goes on where it ended. A server that is gone does not say so:
/// it is noticed when the end of the watch does not come, and that must be well before the clusters look lost.
const LEASES_WATCH: u32 = 15;
/// The same of everything else, for which five seconds more than that are soon enough.
pub const OTHERS_WATCH: u32 = 30;
/// How long the server may say nothing on a connection for that watch, also before it answers.
pub const LEASES_SILENT: Duration = Duration::from_secs(20);

/// When a Lease was last seen to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    version: String,
    /// By our clock.
    pub since: Instant,
    /// Whether it changed at all while we looked; a Lease that was found may have been dead for days.
    pub moved: bool,
    /// The clock of who renews it.
    pub clock: Clock,
}

#[cfg(test)]
impl Beat {
    /// A beat to start from.
    pub fn for_test(since: Instant, moved: bool) -> Self {
        Self { version: String::new(), since, moved, clock: Clock::default() }
    }
}

/// Rights that were written for a Cluster object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    uid: Option<String>,
    /// User name that they are bound to; `None` where they were revoked.
    pub holder: Option<String>,
}

impl Rights {
    /// Whether these are the rights of `cluster`, bound to `holder`.
    pub fn are(&self, cluster: &Cluster, holder: Option<&str>) -> bool {
        self.uid == cluster.metadata.uid && self.holder.as_deref() == holder
    }
}

#[derive(Debug)]
struct Inner {
    clusters: BTreeMap<String, Arc<Cluster>>,
    beats: BTreeMap<String, Beat>,
    /// Names of Schedules by namespace.
    schedules: BTreeMap<String, BTreeSet<String>>,
    /// Those of a list that is not complete; they replace the above when it is.
    listed: BTreeMap<String, BTreeSet<String>>,
    /// When a cluster was first seen, or was accepted if that was later, by our clock.
    known_since: BTreeMap<String, Instant>,
    /// Clusters that disappeared and whose rights may still be there.
    gone: BTreeSet<String>,
    /// Rights as this leader last wrote them, by cluster; those of the others are unknown.
    rights: BTreeMap<String, Rights>,
    /// Which watches have delivered their first complete list.
    synced: [bool; 3],
}

impl Inner {
    /// Takes over a state of a cluster. Another one of its name, or one that may take part only now, begins anew.
    fn take(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        let begins = self.clusters.get(&name).is_none_or(|known| {
            known.metadata.uid != cluster.metadata.uid || cluster.spec.accepted && !known.spec.accepted
        });
        if begins {
            self.known_since.insert(name.clone(), Instant::now());
        }
        self.clusters.insert(name, Arc::new(cluster));
    }

    /// Drops a cluster that is gone, unless one that came after it has its name by now.
    fn lose(&mut self, cluster: &Cluster) {
        let name = cluster.name_any();
        if self.clusters.get(&name).is_none_or(|known| known.metadata.uid == cluster.metadata.uid) {
            self.drop_gone(name);
        }
    }

    fn drop_gone(&mut self, name: String) {
        self.clusters.remove(&name);
        self.known_since.remove(&name);
        self.rights.remove(&name);
        self.gone.insert(name);
    }
}

/// The scheduler's picture of the hub. Belongs to one term of leading.
#[derive(Debug)]
pub struct View {
    inner: Mutex<Inner>,
    /// Told when a cluster is new or changed.
    pub changed: Notify,
    /// Held by whoever gives a name, or takes away what a name had: a new cluster must not lose its rights in the place of
    /// an old one.
    pub names: tokio::sync::Mutex<()>,
}

impl Default for View {
    fn default() -> Self {
        let inner = Inner {
            clusters: BTreeMap::new(),
            beats: BTreeMap::new(),
            schedules: BTreeMap::new(),
            listed: BTreeMap::new(),
            known_since: BTreeMap::new(),
            gone: BTreeSet::new(),
            rights: BTreeMap::new(),
            synced: [false; 3],
        };
        let names = tokio::sync::Mutex::default();
        Self { inner: Mutex::new(inner), changed: Notify::new(), names }
    }
}

#[cfg(test)]
impl View {
    /// A view of a hub that has nothing.
    pub fn complete() -> Self {
        let view = Self::default();
        view.with(|inner| inner.synced = [true; 3]);
        view
    }
}

impl View {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether every watch has delivered its first list, so that what is missing is really not there.
    pub fn is_complete(&self) -> bool {
        self.with(|inner| inner.synced.iter().all(|s| *s))
    }

    /// All clusters, without their inventories.
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.with(|inner| inner.clusters.values().cloned().collect())
    }

    /// A cluster by name.
    pub fn cluster(&self, name: &str) -> Option<Arc<Cluster>> {
        self.with(|inner| inner.clusters.get(name).cloned())
    }

    /// A cluster with this ID under another name.
    pub fn same_id_elsewhere(&self, id: &str, name: &str) -> Option<Arc<Cluster>> {
        self.with(|inner| {
            let mut others = inner.clusters.values().filter(|c| c.name_any() != name);
            others.find(|c| c.spec.cluster_id.as_deref() == Some(id)).cloned()
        })
    }

    /// Takes over what a request returned, so that the next look need not wait for the watch; not if the watch was faster
    /// and knows something newer.
    pub fn put(&self, cluster: Cluster) {
        self.with(|inner| {
            let name = cluster.name_any();
            if inner.clusters.get(&name).is_none_or(|known| !is_older(&cluster, known)) {
                inner.take(strip(cluster));
            }
        });
    }

    /// Takes over what was read of a cluster that is known; one that is not may be gone again.
    pub fn refresh(&self, cluster: &Cluster) {
        if self.cluster(&cluster.name_any()).is_some_and(|known| known.metadata.uid == cluster.metadata.uid) {
            self.put(cluster.clone());
        }
    }

    /// Drops a cluster that is not there any more. The answer to a write may come after the news of its end and bring it
    /// back here, and no watch speaks of it again.
    pub fn forget(&self, cluster: &Cluster) {
        self.with(|inner| inner.lose(cluster));
    }

    /// The heartbeat of a cluster.
    pub fn beat(&self, name: &str) -> Option<Beat> {
        self.with(|inner| inner.beats.get(name).cloned())
    }

    /// How long the agent of a cluster has been silent for sure: not longer than it could have been heard.
    pub fn silent(&self, name: &str, now: Instant) -> Duration {
        let known = self.known_since(name);
        let since = self.beat(name).map_or(known, |beat| beat.since.max(known));
        now.duration_since(since)
    }

    /// Since when we have known a cluster, by our clock: the beginning of its first grace.
    pub fn known_since(&self, name: &str) -> Instant {
        self.with(|inner| inner.known_since.get(name).copied()).unwrap_or_else(Instant::now)
    }

    /// Whether anything is placed on a cluster.
    pub fn has_work(&self, name: &str) -> bool {
        let namespace = crate::api::labels::cluster_namespace(name);
        self.with(|inner| inner.schedules.get(&namespace).is_some_and(|s| !s.is_empty()))
    }

    /// The clusters that disappeared since the last call.
    pub fn take_gone(&self) -> BTreeSet<String> {
        self.with(|inner| std::mem::take(&mut inner.gone))
    }

    /// Notes clusters whose rights have to be taken away, again after a failure or found by a sweep.
    pub fn add_gone(&self, names: impl IntoIterator<Item = String>) {
        self.with(|inner| inner.gone.extend(names));
    }

    /// Records the rights that were written for a cluster.
    pub fn record_rights(&self, cluster: &Cluster, holder: Option<String>) {
        let rights = Rights { uid: cluster.metadata.uid.clone(), holder };
        self.with(|inner| inner.rights.insert(cluster.name_any(), rights));
    }

    /// Rights that were last written for the cluster of a name; `None` where they are unknown.
    pub fn rights(&self, name: &str) -> Option<Rights> {
        self.with(|inner| inner.rights.get(name).cloned())
    }

    /// Makes the rights of one cluster unknown.
    pub fn forget_rights(&self, name: &str) {
        self.with(|inner| inner.rights.remove(name));
    }

    /// Makes the rights of all clusters unknown, so that they are written again.
    pub fn forget_all_rights(&self) {
        self.with(|inner| inner.rights.clear());
    }

    fn on_cluster(&self, event: Event<Cluster>, relist: &mut BTreeSet<String>) {
        self.with(|inner| match event {
            Event::Init => relist.clear(),
            Event::InitApply(cluster) => {
                relist.insert(cluster.name_any());
                inner.take(cluster);
            }
            Event::InitDone => {
                let lost: Vec<_> = inner.clusters.keys().filter(|name| !relist.contains(*name)).cloned().collect();
                for name in lost {
                    inner.drop_gone(name);
                }
                inner.synced[0] = true;
            }
            Event::Apply(cluster) => inner.take(cluster),
            Event::Delete(cluster) => inner.lose(&cluster),
        });
        self.changed.notify_one();
    }

    fn on_lease(&self, event: &Event<Lease>, now: Instant, wall: Timestamp) {
        self.with(|inner| match event {
            Event::InitApply(lease) | Event::Apply(lease) => {
                let Some(name) = cluster_of_lease(lease) else { return };
                // Only a renewal counts, not any edit of the object: the version stands for the time in it.
                let Some(renewed) = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref()) else { return };
                let version = renewed.0.to_string();
                let heard = matches!(event, Event::Apply(_));
                let beat = match inner.beats.get_mut(&name) {
                    Some(beat) if beat.version == version => return,
                    Some(beat) => {
                        *beat = Beat { version, since: now, moved: true, clock: std::mem::take(&mut beat.clock) };
                        beat
                    }
                    None => {
                        let beat = Beat { version, since: now, moved: heard, clock: Clock::default() };
                        inner.beats.entry(name).or_insert(beat)
                    }
                };
                // What was found by a list was written any time ago.
                if heard {
                    beat.clock.read(renewed.0.duration_since(wall).as_secs(), now);
                }
            }
            Event::Delete(lease) => {
                if let Some(name) = cluster_of_lease(lease) {
                    inner.beats.remove(&name);
                }
            }
            Event::InitDone => inner.synced[1] = true,
            Event::Init => {}
        });
    }

    fn on_schedule<K: Resource>(&self, event: Event<K>) {
        let place = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        self.with(|inner| match event {
            // Until the new list is complete, what was there still is: a cluster is not idle for the time of a list.
            Event::Init => inner.listed.clear(),
            Event::InitApply(object) => {
                let (namespace, name) = place(&object);
                inner.listed.entry(namespace).or_default().insert(name);
            }
            Event::Apply(object) => {
                let (namespace, name) = place(&object);
                inner.schedules.entry(namespace).or_default().insert(name);
            }
            Event::Delete(object) => {
                let (namespace, name) = place(&object);
                if let Some(names) = inner.schedules.get_mut(&namespace) {
                    names.remove(&name);
                }
            }
            Event::InitDone => {
                inner.schedules = std::mem::take(&mut inner.listed);
                inner.synced[2] = true;
            }
        });
    }
}

/// Whether one state was written before another one. Versions that are no numbers say nothing.
fn is_older(one: &Cluster, other: &Cluster) -> bool {
    let version = |cluster: &Cluster| cluster.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    version(one).zip(version(other)).is_some_and(|(one, other)| one < other)
}

/// Drops what only readers of the API need: for a thousand clusters the inventories would be most of our memory.
fn strip(mut cluster: Cluster) -> Cluster {
    if let Some(status) = &mut cluster.status {
        status.available_resources = None;
        status.capacity_resources = None;
        status.node_taints = None;
        if let Some(observed) = &mut status.observed {
            observed.totals = None;
        }
    }
    cluster
}

/// Watches until dropped, heartbeats by a client of their own. A broken watch is taken up again with a back-off.
pub async fn watch(client: Client, heartbeats: Client, view: Arc<View>) {
    let config = watcher::Config::default().any_semantic().timeout(OTHERS_WATCH);
    let clusters = async {
        let mut relist = BTreeSet::new();
        let mut stream = std::pin::pin!(
            watcher::watcher(Api::<Lenient<Cluster>>::all(client.clone()), config.clone()).default_backoff()
        );
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => view.on_cluster(map(event, |read| strip(read.0)), &mut relist),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of clusters"),
            }
        }
    };
    let leases = async {
        let config = config.clone().fields(&format!("metadata.name={AGENT_LEASE}")).timeout(LEASES_WATCH);
        let api = Api::<Lenient<Lease>>::all(heartbeats);
        let mut stream = std::pin::pin!(watcher::watcher(api, config).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => view.on_lease(&map(event, |read| read.0), Instant::now(), Timestamp::now()),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of leases"),
            }
        }
    };
    let schedules = async {
        let api = Api::<Lenient<PartialObjectMeta<Schedule>>>::all(client.clone());
        let mut stream = std::pin::pin!(watcher::watcher(api, config.clone()).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => view.on_schedule(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of schedules"),
            }
        }
    };
    tokio::join!(clusters, leases, schedules);
}

fn map<K, L>(event: Event<K>, change: impl FnOnce(K) -> L) -> Event<L> {
    match event {
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// The cluster that a Lease speaks for. Its agent may write labels on it, but cannot move it to another namespace.
fn cluster_of_lease(lease: &Lease) -> Option<String> {
    cluster_of_namespace(lease.metadata.namespace.as_deref()?).map(ToOwned::to_owned)
}

/// The cluster that a namespace of the hub belongs to.
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(CLUSTER_NAMESPACE_PREFIX)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
