//! Watches of all that placement looks at in the control plane's API, as one stream of changes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;

use futures::TryStreamExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::other_objects::{OtherObjects, count_other_objects};
use super::place::{Place, namespace_and_name};
use super::source::Read;
use crate::api::extra_kind::ExtraKind;
use crate::api::lenient::Lenient;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::k8s::extra_kinds;
use crate::scheduler::index::OTHERS_WATCH;

/// Objects of a page of a list of sources: an answer with so many of the largest ones, of which JSON may write each byte
/// as six, stays below the limit of an answer.
const SOURCES_PAGE: u32 = 20;
/// The same of the service's own objects, which may be as large as a request to etcd.
const PAGE: u32 = 50;
/// The same of reports, each of which a single agent may make that large.
const REPORTS_PAGE: u32 = 10;
/// Lists of sources in progress at a time.
const LISTS: usize = 2;

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
    /// A further kind is served, and watched.
    Kind(&'static Placeable),
    /// A watch of a kind fails.
    Failed(&'static Placeable),
    /// A policy.
    Policy(Seen<SchedulePolicy>),
    /// A group.
    Group(Seen<ScheduleGroup>),
    /// A Schedule, without its manifest.
    Schedule(Seen<Schedule>),
    /// Part of the inventory of a large cluster.
    Report(Seen<ClusterReport>),
    /// What there is of kinds that are not placed.
    Others(Vec<OtherObjects>),
}

/// The number of watches, each of which has to deliver its first list before anything is decided.
pub(super) fn count_watches(kinds: &Kinds) -> usize {
    kinds.iter().count() + 4
}

/// Watches until dropped, or until nobody receives; also the kinds of `wanted` that begin to be served.
pub(super) async fn watch_placement_inputs(
    client: Client,
    kinds: Kinds,
    wanted: Vec<ExtraKind>,
    changes: Sender<Change>,
) {
    let all = client.clone();
    let policies = Api::<Lenient<SchedulePolicy>>::all(all.clone());
    let groups = Api::<Lenient<ScheduleGroup>>::all(all.clone());
    let schedules = Api::<Lenient<Schedule>>::all(all.clone());
    let reports = Api::<Lenient<ClusterReport>>::all(all);
    tokio::join!(
        count_other_objects(&client, kinds.clone(), &changes, Change::Others),
        watch_sources(&client, kinds, &wanted, &changes),
        stream_changes(policies, None, PAGE, &changes, |seen| Change::Policy(seen.map_object(|read| read.0))),
        stream_changes(groups, None, PAGE, &changes, |seen| Change::Group(seen.map_object(|read| read.0))),
        stream_changes(schedules, None, PAGE, &changes, |seen| Change::Schedule(seen.map_object(|read| read.0))),
        stream_changes(reports, None, REPORTS_PAGE, &changes, |seen| Change::Report(seen.map_object(|read| read.0))),
    );
}

/// Watches the objects that could be placed. A kind that begins to be served is watched from then on, and nothing else
/// restarts because of it; the watch of one that is served no more fails until it is served again.
async fn watch_sources(client: &Client, mut kinds: Kinds, wanted: &[ExtraKind], changes: &Sender<Change>) {
    let lists = Semaphore::new(LISTS);
    let mut watches: FuturesUnordered<_> = kinds.iter().map(|kind| watch_kind(client, kind, &lists, changes)).collect();
    loop {
        let found = {
            let mut more = pin!(extra_kinds::wait_for_new_kinds(client, wanted, &kinds));
            loop {
                tokio::select! {
                    found = &mut more => break found,
                    // All end when nobody receives any more.
                    ended = watches.next() => if ended.is_none() { return },
                }
            }
        };
        for kind in found {
            if changes.send(Change::Kind(kind)).await.is_err() {
                return;
            }
            kinds.add_placeable(kind);
            watches.push(watch_kind(client, kind, &lists, changes));
        }
    }
}

async fn watch_kind(client: &Client, kind: &'static Placeable, lists: &Semaphore, changes: &Sender<Change>) {
    let api: Api<Raw> = kind.objects_api(client, None);
    stream_changes(api, Some((kind, lists)), SOURCES_PAGE, changes, |seen: Seen<Raw>| {
        Change::Source(kind, seen.map_object(|raw| Read::from_watched(kind, raw)))
    })
    .await;
}

impl<K> Seen<K> {
    fn map_object<L>(self, read: impl FnOnce(K) -> L) -> Seen<L> {
        match self {
            Self::There(object) => Seen::There(read(object)),
            Self::Gone(object) => Seen::Gone(read(object)),
            Self::Listed(places) => Seen::Listed(places),
        }
    }
}

/// Watches one kind and sends its events. The number of source kinds listed at a time is limited by permits.
async fn stream_changes<K>(
    api: Api<K>,
    source: Option<(&'static Placeable, &Semaphore)>,
    page: u32,
    changes: &Sender<Change>,
    change: impl Fn(Seen<K>) -> Change,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
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
                if let Some((_, lists)) = source {
                    list = lists.acquire().await.ok();
                }
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed.insert(namespace_and_name(&object));
                change(Seen::There(object))
            }
            Ok(Some(Event::InitDone)) => {
                drop(list.take());
                change(Seen::Listed(std::mem::take(&mut listed)))
            }
            Ok(Some(Event::Apply(object))) => change(Seen::There(object)),
            Ok(Some(Event::Delete(object))) => change(Seen::Gone(object)),
            Ok(None) => return,
            Err(error) => {
                let of = source.map(|(kind, _)| kind.plural);
                tracing::debug!(%error, kind = std::any::type_name::<K>(), of, "watch failed");
                // A kind that cannot be listed keeps no other from it.
                drop(list.take());
                let Some((kind, _)) = source else { continue };
                Change::Failed(kind)
            }
        };
        if changes.send(seen).await.is_err() {
            return;
        }
    }
}
