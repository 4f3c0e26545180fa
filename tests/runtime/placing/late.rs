//! A scheduler that does not know everything yet decides nothing: what it has not read could be in its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fleetctl::api::placeable::PLACEABLE;
use fleetctl::scheduler::index::{self, Index};
use fleetctl::scheduler::placing::{self, Options};
use kube::client::Body;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

/// A client to which Schedules come late; with the number of other lists and watches that were asked for.
fn client_without_schedules(of: &Client, held: watch::Receiver<bool>) -> (Client, Arc<AtomicUsize>) {
    let (of, others) = (of.clone(), Arc::new(AtomicUsize::new(0)));
    let count = others.clone();
    let answer = move |request: http::Request<Body>| {
        let (of, mut held, count) = (of.clone(), held.clone(), count.clone());
        async move {
            if request.uri().path().ends_with("/schedules") && request.method() == http::Method::GET {
                held.wait_for(|held| !held).await.expect("the test lives");
            } else if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            of.send(request).await
        }
    };
    (Client::new(tower::service_fn(answer), "default"), others)
}

#[tokio::test]
async fn nothing_is_decided_before_the_schedules_are_known() {
    let mut fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let fence = async |name: &str, taints: Value| {
        let change = json!({"spec": {"taints": taints}});
        clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    let full = json!([{"key": "example.com/full", "effect": "NoSchedule"}]);
    fence(&east.name, full.clone()).await;
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [west.name, east.name]});
    let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
    fleet.deployment("web", 1, json!({})).await;
    fleet.copy(&west.name, "Deployment web").await;
    let label = async || fleet.deployments().get("web").await.unwrap().labels().get(LABEL_TARGET_CLUSTER).cloned();
    wait("it is recorded", async || label().await.is_some()).await;

    // The next leader would place it elsewhere, if it did not know that it is placed.
    fleet.control_plane.stop().await;
    fence(&west.name, full).await;
    fence(&east.name, json!([])).await;
    fleet.deployment("other", 1, json!({})).await;
    let (hold, held) = watch::channel(true);
    let (client, others) = client_without_schedules(&fleet.client(), held);
    let (index, mut tasks) = (Arc::new(Index::default()), JoinSet::new());
    let recorder = Recorder::new(fleet.client(), Reporter { controller: "test".to_owned(), instance: None });
    tasks.spawn(index::watch_indexed_objects(fleet.client(), fleet.client(), index.clone()));
    let options = Options {
        namespace: "fleet".to_owned(),
        denies_direct: false,
        extra_kinds: Vec::new(),
        clock: fleetctl::scheduler::server_clock::ServerClock::default(),
    };
    tasks.spawn(placing::run_placement(client, index, Metrics::default(), recorder, options));
    // All kinds, policies, groups and reports are listed when they are watched.
    wait("it knows the rest", async || others.load(Ordering::SeqCst) >= PLACEABLE.len() + 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for what in ["web", "other"] {
        let what = format!("Deployment {what}");
        assert!(!fleet.copies(&east.name).await.contains_key(&what), "{what} was placed in ignorance");
    }
    hold.send_replace(false);
    fleet.copy(&east.name, "Deployment other").await;
    assert!(!fleet.copies(&east.name).await.contains_key("Deployment web"), "it has a place");
    fleet.end(&[policy]).await;
}
