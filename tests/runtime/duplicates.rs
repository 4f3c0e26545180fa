//! Names that several want, that are going, or that an operator made beforehand.

use fleetctl::api::{Cluster, ClusterSpec};
use futures::future::join_all;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Stage, wait};

/// Deletes a Cluster that a finalizer holds.
async fn begin_deletion(clusters: &Api<Cluster>, name: &str) {
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    clusters.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn end_deletion(clusters: &Api<Cluster>, name: &str) {
    let free = json!({ "metadata": { "finalizers": null } });
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
}

#[tokio::test]
async fn of_many_that_want_a_name_at_once_one_gets_it() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let name = fresh("storm");
    let all: Vec<_> = (0..12).map(|_| Applicant::new(&name)).collect();
    let answers = join_all(all.iter().map(|applicant| applicant.ask(&control_plane.init))).await;
    let winners: Vec<_> = answers.iter().zip(&all).filter(|(answer, _)| answer.is_ok()).map(|(_, a)| a).collect();
    let [winner] = winners[..] else { panic!("{} got the name", winners.len()) };
    assert!(answers.iter().filter_map(|a| a.as_ref().err()).all(|reason| reason == "ClusterNameInUse"), "{answers:?}");
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    assert_eq!(clusters.get(&name).await.unwrap().spec.cluster_id.as_ref(), Some(&winner.id));
}

#[tokio::test]
async fn a_name_that_is_being_deleted_is_given_away_when_it_is_gone_and_its_cluster_may_have_another_at_once() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let holder = Applicant::new(&fresh("going"));
    holder.join(init).await;
    begin_deletion(&clusters, &holder.name).await;
    let other = holder.named(&fresh("going"));
    // The registrar hears of the deletion by its watch, a moment later.
    wait("it has another name", async || other.ask(init).await.is_ok()).await;
    let next = Applicant::new(&holder.name);
    let freed = async {
        // Long enough for the registrar to look at it several times.
        tokio::time::sleep(std::time::Duration::from_secs(7)).await;
        let still = clusters.get(&holder.name).await.unwrap();
        assert_eq!(still.spec.cluster_id.as_ref(), Some(&holder.id), "given away too early");
        end_deletion(&clusters, &holder.name).await;
    };
    let (answer, ()) = tokio::join!(next.ask(init), freed);
    answer.expect("the name is free again");
    assert_eq!(clusters.get(&holder.name).await.unwrap().spec.cluster_id.as_ref(), Some(&next.id));
}

#[tokio::test]
async fn a_cluster_that_an_operator_made_beforehand_is_for_the_first_that_comes_and_keeps_its_labels() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let name = fresh("made");
    let mut made = Cluster::new(&name, ClusterSpec { name: name.clone(), accepted: true, ..ClusterSpec::default() });
    made.metadata.labels = Some([("team".to_owned(), "blue".to_owned())].into());
    clusters.create(&PostParams::default(), &made).await.unwrap();
    let first = Applicant::new(&name);
    first.ask(&control_plane.init).await.expect("it was made for somebody");
    assert_eq!(Applicant::new(&name).ask(&control_plane.init).await, Err("ClusterNameInUse".to_owned()));
    let now = clusters.get(&name).await.unwrap();
    assert_eq!(now.spec.cluster_id.as_ref(), Some(&first.id));
    assert_eq!(now.metadata.labels.unwrap()["team"], "blue");
    wait("it is a member", async || {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(stage.hub.client.clone());
        namespaces.get_opt(&format!("fleet-c-{name}")).await.unwrap().is_some()
    })
    .await;
}
