//! Watches of all that placement looks at in the control plane's API, as one stream of changes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;

use futures::TryStreamExt as _;
use futures::future::join_all;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use crate::api::lenient::Lenient;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::scheduler::index::OTHERS_WATCH;

/// Objects of a page of a list.
const PAGE: u32 = 500;

/// Namespace and name; the namespace of an object without one is empty.
pub(super) type Place = (String, String);

/// Observation of one watch.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// An object as it is now.
    There(K),
    /// An object is gone.
    Gone(K),
    /// A list is complete: what it did not name is gone.
    Listed(BTreeSet<Place>),
}

/// A change of what placement looks at.
#[derive(Debug)]
pub(super) enum Change {
    /// An object that could be placed, of the kind.
    Source(&'static Placeable, Seen<Raw>),
    /// A policy.
    Policy(Seen<SchedulePolicy>),
    /// A group.
    Group(Seen<ScheduleGroup>),
    /// A Schedule, without its manifest.
    Schedule(Seen<Schedule>),
    /// Part of the inventory of a large cluster.
    Report(Seen<ClusterReport>),
}

/// The number of watches, each of which has to deliver its first list before anything is decided.
pub(super) fn watches(kinds: &Kinds) -> usize {
    kinds.iter().count() + 4
}

/// Watches until dropped, or until nobody receives.
pub(super) async fn watch(client: Client, kinds: Kinds, changes: Sender<Change>) {
    let sources = join_all(kinds.iter().map(|kind| {
        let api: Api<Raw> = kind.api(&client, None);
        let changes = &changes;
        let send = move |seen| changes.send(Change::Source(kind, seen));
        follow(api, kind.plural, send)
    }));
    let policies = follow(Api::<Lenient<SchedulePolicy>>::all(client.clone()), "schedulepolicies", |seen| {
        changes.send(Change::Policy(inner(seen)))
    });
    let groups = follow(Api::<Lenient<ScheduleGroup>>::all(client.clone()), "schedulegroups", |seen| {
        changes.send(Change::Group(inner(seen)))
    });
    let schedules = follow(Api::<Lenient<Schedule>>::all(client.clone()), "schedules", |seen| {
        changes.send(Change::Schedule(inner(seen)))
    });
    let reports = follow(Api::<Lenient<ClusterReport>>::all(client.clone()), "clusterreports", |seen| {
        changes.send(Change::Report(inner(seen)))
    });
    tokio::join!(sources, policies, groups, schedules, reports);
}

fn inner<K>(seen: Seen<Lenient<K>>) -> Seen<K> {
    match seen {
        Seen::There(object) => Seen::There(object.0),
        Seen::Gone(object) => Seen::Gone(object.0),
        Seen::Listed(places) => Seen::Listed(places),
    }
}

async fn follow<K, F, E>(api: Api<K>, what: &'static str, send: impl Fn(Seen<K>) -> F)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Future<Output = Result<(), E>>,
{
    // Lists are of the newest state: what an old one does not name would look gone.
    let config = watcher::Config::default().timeout(OTHERS_WATCH).page_size(PAGE);
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    let mut listed = BTreeSet::new();
    loop {
        let seen = match stream.try_next().await {
            Ok(Some(Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed.insert(place(&object));
                Seen::There(object)
            }
            Ok(Some(Event::InitDone)) => Seen::Listed(std::mem::take(&mut listed)),
            Ok(Some(Event::Apply(object))) => Seen::There(object),
            Ok(Some(Event::Delete(object))) => Seen::Gone(object),
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, what, "watch failed");
                continue;
            }
        };
        if send(seen).await.is_err() {
            return;
        }
    }
}

/// Returns the namespace and name of an object.
pub(super) fn place<K: Resource>(object: &K) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}
