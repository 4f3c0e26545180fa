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
use tokio::sync::{Semaphore, SemaphorePermit};

use super::source::Read;
use crate::api::lenient::Lenient;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::scheduler::index::OTHERS_WATCH;

/// Objects of a page of a list of sources: an answer with so many of the largest ones, of which JSON may write each byte
/// as six, stays below the limit of an answer.
const SOURCES_PAGE: u32 = 20;
/// The same of the service's own objects, which may be as large as a request to etcd.
const PAGE: u32 = 50;
/// The same of reports, each of which a single agent may make that large.
const REPORTS_PAGE: u32 = 10;
/// Lists of sources under way at a time.
const LISTS: usize = 2;

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
    Source(&'static Placeable, Seen<Read>),
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
    let lists = Semaphore::new(LISTS);
    let sources = join_all(kinds.iter().map(|kind| {
        let api: Api<Raw> = kind.api(&client, None);
        let (changes, lists) = (&changes, &lists);
        let send = move |seen: Seen<Raw>| changes.send(Change::Source(kind, seen.map(|raw| Read::watched(kind, raw))));
        follow(api, kind.plural, SOURCES_PAGE, Some(lists), send)
    }));
    let policies =
        follow(Api::<Lenient<SchedulePolicy>>::all(client.clone()), "schedulepolicies", PAGE, None, |seen| {
            changes.send(Change::Policy(seen.map(|read| read.0)))
        });
    let groups = follow(Api::<Lenient<ScheduleGroup>>::all(client.clone()), "schedulegroups", PAGE, None, |seen| {
        changes.send(Change::Group(seen.map(|read| read.0)))
    });
    let schedules = follow(Api::<Lenient<Schedule>>::all(client.clone()), "schedules", PAGE, None, |seen| {
        changes.send(Change::Schedule(seen.map(|read| read.0)))
    });
    let reports =
        follow(Api::<Lenient<ClusterReport>>::all(client.clone()), "clusterreports", REPORTS_PAGE, None, |seen| {
            changes.send(Change::Report(seen.map(|read| read.0)))
        });
    tokio::join!(sources, policies, groups, schedules, reports);
}

impl<K> Seen<K> {
    fn map<L>(self, read: impl FnOnce(K) -> L) -> Seen<L> {
        match self {
            Self::There(object) => Seen::There(read(object)),
            Self::Gone(object) => Seen::Gone(read(object)),
            Self::Listed(places) => Seen::Listed(places),
        }
    }
}

/// Follows all objects of a kind. Where `lists` are given, one of them is taken for as long as they are listed.
async fn follow<K, F, E>(
    api: Api<K>,
    what: &'static str,
    page: u32,
    lists: Option<&Semaphore>,
    send: impl Fn(Seen<K>) -> F,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Future<Output = Result<(), E>>,
{
    // Lists are of the newest state: what an old one does not name would look gone.
    let config = watcher::Config::default().timeout(OTHERS_WATCH).page_size(page);
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    let mut listed = BTreeSet::new();
    let mut list: Option<SemaphorePermit<'_>> = None;
    loop {
        let seen = match stream.try_next().await {
            Ok(Some(Event::Init)) => {
                listed.clear();
                if let Some(lists) = lists {
                    list = lists.acquire().await.ok();
                }
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed.insert(place(&object));
                Seen::There(object)
            }
            Ok(Some(Event::InitDone)) => {
                drop(list.take());
                Seen::Listed(std::mem::take(&mut listed))
            }
            Ok(Some(Event::Apply(object))) => Seen::There(object),
            Ok(Some(Event::Delete(object))) => Seen::Gone(object),
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, what, "watch failed");
                // A kind that cannot be listed keeps no other from it.
                drop(list.take());
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
