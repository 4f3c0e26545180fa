//! What the scheduler has not heard yet: an answer that it gave itself, or the end of a cluster.

use std::sync::Arc;

use clap::Parser as _;
use fleetctl::agent::register::{Validity, request_withdrawal};
use fleetctl::agent::settings::Cli;
use fleetctl::api::crd::cluster::Observed;
use fleetctl::api::{Cluster, ClusterSpec, ClusterStatus};
use fleetctl::daemon::metrics::Metrics;
use fleetctl::k8s::connect::daemon_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use fleetctl::scheduler::index;
use fleetctl::scheduler::index::Index;
use fleetctl::scheduler::monitor::Monitor;
use fleetctl::scheduler::registration::Registrar;
use fleetctl::scheduler::settings::Settings;
use futures::StreamExt as _;
use http::Response;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::{ClientBuilder, DynBody};
use kube::config::Kubeconfig;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::util::MapResponseLayer;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Server, Stage, config_of, wait};

/// A client whose watches hold back what they have to say of changes while `held` is true. What is new or gone they tell
/// at once.
async fn client_that_hears_late(server: &Server, held: watch::Receiver<bool>) -> Client {
    let config = config_of(Kubeconfig::read_from(&server.kubeconfig).unwrap()).await;
    let hold = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
        let held = held.clone();
        response.map(|body| {
            let frames = BodyStream::new(body).then(move |frame| {
                let mut held = held.clone();
                async move {
                    if frame.as_ref().is_ok_and(tells_of_a_change) {
                        held.wait_for(|held| !held).await?;
                    }
                    frame
                }
            });
            StreamBody::new(frames).boxed_unsync()
        })
    });
    ClientBuilder::try_from(config).unwrap().with_layer(&hold).build()
}

/// Whether this is the beginning of a watch's event of the type `MODIFIED`.
fn tells_of_a_change(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(|bytes| bytes.starts_with(br#"{"type":"MODIFIED""#))
}

/// What the parts of the scheduler share that answer and judge; in this process.
struct Parts {
    index: Arc<Index>,
    recorder: Recorder,
    tasks: JoinSet<()>,
}

impl Parts {
    fn of(hub: &Client) -> Self {
        let index = Arc::new(Index::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(index::watch_indexed_objects(hub.clone(), hub.clone(), index.clone()));
        let reporter = Reporter { controller: "fleet-scheduler".to_owned(), instance: None };
        Self { index, recorder: Recorder::new(hub.clone(), reporter), tasks }
    }
}

/// The program makes the definitions and the init token, then leaves the field.
async fn prepared(stage: &Stage) -> Init {
    let ControlPlane { scheduler, init, .. } = ControlPlane::start(stage, "").await;
    scheduler.terminate().await;
    init
}

#[tokio::test]
async fn a_request_that_was_answered_is_not_answered_again_because_the_watch_is_behind() {
    let stage = Stage::hub().await;
    let init = prepared(&stage).await;
    let (hold, held) = watch::channel(false);
    let mut parts = Parts::of(&stage.hub.client);
    let settings: Settings = serde_json::from_value(json!({ "registration": "manual" })).unwrap();
    let (_settings, settings) = watch::channel(Some(settings));
    let client = client_that_hears_late(&stage.hub, held).await;
    let registrar = Registrar::new(client, parts.index.clone(), settings, Metrics::default(), parts.recorder.clone());
    parts.tasks.spawn(registrar.run());

    // Of requests that are equally old, those are looked at again first whose names come first.
    let (leaver, witness) = (Applicant::new(&fresh("a-leaver")), Applicant::new(&fresh("b-witness")));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let leaving = async {
        for applicant in [&leaver, &witness] {
            wait("the Cluster is there", async || clusters.get_opt(&applicant.name).await.unwrap().is_some()).await;
        }
        hold.send_replace(true);
        let args = Cli::parse_from(["fleet-agent", "--cluster-name", &leaver.name]).args.unwrap();
        let validity = Validity::new(args.certificate_seconds);
        request_withdrawal(&daemon_client::token_client(&init).unwrap(), &args, &validity, &leaver.id, &leaver.key)
            .await
            .unwrap();
        // That the witness is let in shows that what waits was looked at again.
        let accept = json!({ "spec": { "accepted": true } });
        clusters.patch(&witness.name, &PatchParams::default(), &Patch::Merge(&accept)).await.unwrap();
    };
    let (of_leaver, of_witness, ()) = tokio::join!(leaver.ask(&init), witness.ask(&init), leaving);
    assert_eq!(of_leaver, Err("ClusterLeft".to_owned()));
    assert!(of_witness.is_ok());
    assert!(clusters.get_opt(&leaver.name).await.unwrap().is_none(), "it came back");
    hold.send_replace(false);
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_not_made_again_by_whoever_still_believes_in_it() {
    let stage = Stage::hub().await;
    prepared(&stage).await;
    let Parts { index, recorder, mut tasks } = Parts::of(&stage.hub.client);
    let (client, metrics) = (stage.hub.client.clone(), Metrics::default());
    tasks.spawn(Monitor { client, index: index.clone(), metrics, recorder }.run());

    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let name = fresh("ghost");
    let spec = ClusterSpec { name: name.clone(), ..ClusterSpec::default() };
    let mut ghost = clusters.create(&PostParams::default(), &Cluster::new(&name, spec)).await.unwrap();
    wait("it is known", async || index.cluster(&name).is_some()).await;
    clusters.delete(&name, &DeleteParams::default()).await.unwrap();
    wait("its end is known", async || index.cluster(&name).is_none()).await;
    // As if a write from before its end had been answered only now; with news that is to be copied into its spec.
    let observed = Observed { provider: "gce".to_owned(), ..Observed::default() };
    ghost.status = Some(ClusterStatus { observed: Some(observed), ..ClusterStatus::default() });
    index.put_cluster(ghost);
    index.changed.notify_one();
    wait("nobody believes in it any more", async || index.cluster(&name).is_none()).await;
    assert!(clusters.get_opt(&name).await.unwrap().is_none(), "it was made again");
}
