//! Change signals of a control plane: watches on the hosting cluster and on its API; a poll interval if watches are
//! forbidden or interrupted.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::core::PartialObjectMeta as Meta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::{Cluster, SchedulePolicy};

/// Poll interval without watches: one poll takes about twenty requests.
pub(super) const POLL: Duration = Duration::from_secs(3);
/// Poll interval with watches, for changes without an event, such as the expiry of a certificate.
const SELDOM: Duration = Duration::from_secs(30);
/// Time that the rest of a group of changes is waited for.
const SETTLE: Duration = Duration::from_millis(300);
/// Pause after a poll, in multiples of its duration: a control plane with a thousand agents changes all the time, and
/// polls must not overload it.
const REST: u32 = 4;
/// Longest rest, for a look that took its time because something did not answer.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Life of one watch before it is opened again, in seconds. Shorter than the read time-out of a connection.
const WATCH: u32 = 40;

/// Kinds that are watched: on the hosting cluster those of the components, inside the control plane those that a status
/// tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Watched {
    Deployments,
    StatefulSets,
    Pods,
    Definitions,
    Clusters,
    Policies,
}

const ON_HOSTING: [Watched; 3] = [Watched::Deployments, Watched::StatefulSets, Watched::Pods];
const INSIDE: [Watched; 3] = [Watched::Definitions, Watched::Clusters, Watched::Policies];

/// All watches of a control plane. Only metadata is transferred: what changed is looked at, not taken from the event.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Each ends with whether it is forbidden, and so not to be begun again.
    watches: JoinSet<(Watched, bool)>,
    running: BTreeSet<Watched>,
    forbidden: BTreeSet<Watched>,
    heard: Arc<Notify>,
}

impl Changes {
    /// Waits until another poll may show a change. The clients are those of the last poll, and `took` is its duration;
    /// a side that did not answer has no client.
    pub(super) async fn wait_for_change(
        &mut self,
        hosting: Option<&Client>,
        inside: Option<&Client>,
        namespace: &str,
        took: Duration,
    ) {
        let began = Instant::now();
        let rest = (took * REST).min(LONGEST_REST);
        for (client, kinds) in [(hosting, ON_HOSTING), (inside, INSIDE)] {
            let Some(client) = client else { continue };
            for kind in kinds {
                if !self.forbidden.contains(&kind) && self.running.insert(kind) {
                    self.begin_watch(kind, client.clone(), namespace);
                }
            }
        }
        loop {
            let all_watched = self.running.len() == ON_HOSTING.len() + INSIDE.len();
            let limit = if all_watched { SELDOM } else { POLL.max(rest) };
            tokio::select! {
                () = self.heard.notified() => break,
                // What has broken is begun anew with the connection of the next look.
                Some(Ok((kind, forbidden))) = self.watches.join_next() => {
                    self.running.remove(&kind);
                    if forbidden {
                        self.forbidden.insert(kind);
                    }
                }
                () = tokio::time::sleep_until((began + limit).into()) => return,
            }
        }
        tokio::time::sleep_until((began + rest).into()).await;
        tokio::time::sleep(SETTLE).await;
        // The look that comes now sees all that was told until now.
        let _ = self.heard.notified().now_or_never();
    }

    fn begin_watch(&mut self, kind: Watched, client: Client, namespace: &str) {
        let heard = Arc::clone(&self.heard);
        let watching = match kind {
            Watched::Deployments => {
                notify_of_changes(Api::<Meta<Deployment>>::namespaced(client, namespace), heard).boxed()
            }
            Watched::StatefulSets => {
                notify_of_changes(Api::<Meta<StatefulSet>>::namespaced(client, namespace), heard).boxed()
            }
            Watched::Pods => notify_of_changes(Api::<Meta<Pod>>::namespaced(client, namespace), heard).boxed(),
            Watched::Definitions => {
                notify_of_changes(Api::<Meta<CustomResourceDefinition>>::all(client), heard).boxed()
            }
            Watched::Clusters => notify_of_changes(Api::<Meta<Cluster>>::all(client), heard).boxed(),
            Watched::Policies => notify_of_changes(Api::<Meta<SchedulePolicy>>::all(client), heard).boxed(),
        };
        self.watches.spawn(async move { (kind, watching.await) });
    }
}

/// Reports each change until the watch ends. Returns whether it ended because it is forbidden.
async fn notify_of_changes<K>(api: Api<Meta<K>>, heard: Arc<Notify>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api, watcher::Config::default().timeout(WATCH)));
    loop {
        match events.try_next().await {
            // What was there already when the watch began may have changed since the last look.
            Ok(Some(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) => heard.notify_one(),
            Ok(Some(Event::Init | Event::InitApply(_))) => {}
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
                return matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 405));
            }
            Ok(None) | Err(_) => return false,
        }
    }
}
