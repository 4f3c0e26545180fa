//! Who gets a certificate, who does not, and what it is good for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleetctl::api::Cluster;
use fleetctl::api::keys::ANNOTATION_ALLOW_NEW_KEY;
use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::discovery::Discovery;
use kube::{Api, Client};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Stage, wait};

async fn sees_its_cluster(client: &Client, name: &str) -> bool {
    Api::<Cluster>::all(client.clone()).get(name).await.is_ok()
}

#[tokio::test]
async fn a_cluster_joins_renews_and_joins_again_with_the_same_key() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("join"));
    let member = applicant.join(&control_plane.init).await;
    assert!(sees_its_cluster(&member, &applicant.name).await);
    applicant.ask_as(&member).await.expect("it renews its own certificate");
    applicant.ask(&control_plane.init).await.expect("an agent that lost its certificate asks again by token");
    let other = applicant.named(&fresh("join"));
    assert_eq!(other.ask_as(&member).await, Err("IdentityMismatch".to_owned()));
}

#[tokio::test]
async fn a_name_or_a_cluster_is_registered_once() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let name = fresh("taken");
    let holder = Applicant::new(&name);
    holder.join(init).await;
    assert_eq!(Applicant::new(&name).ask(init).await, Err("ClusterNameInUse".to_owned()));
    assert_eq!(holder.named(&fresh("taken")).ask(init).await, Err("ClusterAlreadyRegistered".to_owned()));
    // The holder may be alive: another key needs an operator's word, and uses it up.
    let reborn = holder.with_new_key();
    assert_eq!(reborn.ask(init).await, Err("IdentityInUse".to_owned()));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let allow = json!({ "metadata": { "annotations": { ANNOTATION_ALLOW_NEW_KEY: "true" } } });
    clusters.patch(&name, &PatchParams::default(), &Patch::Merge(&allow)).await.unwrap();
    reborn.ask(init).await.expect("an operator allowed it");
    assert_eq!(holder.ask(init).await, Err("IdentityInUse".to_owned()));
    let events: Api<Event> = Api::namespaced(stage.hub.client.clone(), "default");
    wait("the holder's Cluster has an event", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.items.iter().any(|e| {
            e.involved_object.name.as_deref() == Some(&name) && e.reason.as_deref() == Some("ClusterNameInUse")
        })
    })
    .await;
}

#[tokio::test]
async fn deleting_a_cluster_revokes_its_certificate_for_good() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let first = Applicant::new(&fresh("gone"));
    let old = first.join(&control_plane.init).await;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.delete(&first.name, &DeleteParams::default()).await.unwrap();
    let took = wait("the old certificate is refused", async || !sees_its_cluster(&old, &first.name).await).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(first.ask_as(&old).await, Err("ClusterUnknown".to_owned()));
    let second = Applicant::new(&first.name);
    let new = second.join(&control_plane.init).await;
    assert!(sees_its_cluster(&new, &second.name).await);
    assert!(!sees_its_cluster(&old, &first.name).await, "the name is the same, the identity is not");
}

#[tokio::test]
async fn with_manual_registration_a_cluster_waits_for_an_operator() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "registration: manual").await;
    let applicant = Applicant::new(&fresh("manual"));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let accept = async {
        wait("the Cluster is there", async || clusters.get_opt(&applicant.name).await.unwrap().is_some()).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let waiting = clusters.get(&applicant.name).await.unwrap();
        assert!(!waiting.spec.accepted);
        let yes = json!({ "spec": { "accepted": true } });
        clusters.patch(&applicant.name, &PatchParams::default(), &Patch::Merge(&yes)).await.unwrap();
    };
    let (certificate, ()) = tokio::join!(applicant.ask(&control_plane.init), accept);
    certificate.expect("accepted in the end");
}

/// Verbs by `group/resource namespace` that a user is allowed, found by asking about everything that the API serves.
async fn rights(
    admin: &Client,
    user: &str,
    groups: &[&str],
    namespaces: &[&str],
) -> BTreeMap<String, BTreeSet<String>> {
    const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let discovery = Discovery::new(admin.clone()).run().await.unwrap();
    let mut questions = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let mut plurals = vec![(resource.plural.clone(), None)];
            plurals.extend(capabilities.subresources.iter().map(|(sub, _)| {
                let name = sub.plural.rsplit('/').next().unwrap_or_default().to_owned();
                (resource.plural.clone(), Some(name))
            }));
            for (plural, sub) in plurals {
                for namespace in namespaces.iter().copied().chain([""]) {
                    for verb in VERBS {
                        questions.push((resource.group.clone(), plural.clone(), sub.clone(), namespace, verb));
                    }
                }
            }
        }
    }
    questions.push(("certificates.k8s.io".to_owned(), "signers".to_owned(), None, "", "approve"));
    let api: Api<SubjectAccessReview> = Api::all(admin.clone());
    let ask = |(group, resource, sub, namespace, verb): (String, String, Option<String>, &str, &str)| {
        let api = api.clone();
        let title = match &sub {
            Some(sub) => format!("{resource}/{sub} in {namespace:?}"),
            None => format!("{resource} in {namespace:?}"),
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                groups: Some(groups.iter().map(|g| (*g).to_owned()).collect()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group),
                    resource: Some(resource),
                    subresource: sub,
                    namespace: Some(namespace.to_owned()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let verb = verb.to_owned();
        async move {
            let answer = api.create(&PostParams::default(), &review).await.unwrap();
            answer.status.is_some_and(|s| s.allowed).then_some((title, verb))
        }
    };
    let mut rights: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let asked = questions.len();
    let mut answers = futures::stream::iter(questions).map(ask).buffer_unordered(16);
    while let Some(answer) = answers.next().await {
        if let Some((title, verb)) = answer {
            rights.entry(title).or_default().insert(verb);
        }
    }
    assert!(asked > 1000, "only {asked} questions");
    rights
}

fn expected(rows: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
    rows.iter().map(|(title, verbs)| ((*title).to_owned(), verbs.iter().map(|v| (*v).to_owned()).collect())).collect()
}

/// What every authenticated user may ask about itself, on any API server.
const ABOUT_ITSELF: [&str; 3] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];

fn without_self(mut rights: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    rights.retain(|title, _| !ABOUT_ITSELF.iter().any(|own| title.starts_with(own)));
    rights
}

#[tokio::test]
async fn an_agent_may_do_nothing_beyond_its_own_namespace_and_its_own_cluster() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let (a, b) = (Applicant::new(&fresh("iso-a")), Applicant::new(&fresh("iso-b")));
    let member = a.join(&control_plane.init).await;
    b.join(&control_plane.init).await;
    let (own, other) = (format!("fleet-c-{}", a.name), format!("fleet-c-{}", b.name));
    let groups = ["fleet:agents", "system:authenticated"];
    let all = rights(&stage.hub.client, &a.user(), &groups, &[&own, &other, "kube-system", "fleet", "default"]).await;
    let own_row = |resource: &str| format!("{resource} in {own:?}");
    let (schedules, status) = (own_row("schedules"), own_row("schedules/status"));
    let (reports, events) = (own_row("clusterreports"), own_row("events"));
    // Requests for certificates have no namespace; asked with one, the answer is the same.
    let mut allowed = expected(&[
        (&schedules, &["get", "list", "watch"]),
        (&status, &["get", "patch"]),
        (&reports, &["get", "list", "create", "patch", "delete"]),
        (&events, &["create"]),
    ]);
    for namespace in [own.as_str(), &other, "kube-system", "fleet", "default", ""] {
        let title = format!("certificatesigningrequests in {namespace:?}");
        allowed.insert(title, ["create", "get"].map(str::to_owned).into());
    }
    assert_eq!(without_self(all), allowed);

    // By name: its own Cluster and Lease, and not the other's; the answer of the API server itself.
    let clusters: Api<Cluster> = Api::all(member.clone());
    let refused = |e: kube::Error| matches!(e, kube::Error::Api(s) if s.code == 403);
    assert!(clusters.get(&a.name).await.is_ok());
    assert!(refused(clusters.get(&b.name).await.unwrap_err()));
    assert!(refused(clusters.list(&ListParams::default()).await.unwrap_err()));
    let own_only = ListParams::default().fields(&format!("metadata.name={}", a.name));
    assert_eq!(clusters.list(&own_only).await.unwrap().items.len(), 1);
    let label = json!({ "metadata": { "labels": { "fleet-scheduler.io/cluster.region": "mine" } }, "status": { "autoscaled": true } });
    assert!(refused(clusters.patch(&a.name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap_err()));
    let patched = clusters.patch_status(&a.name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    assert!(!patched.metadata.labels.unwrap().contains_key("fleet-scheduler.io/cluster.region"), "no label by status");
    assert!(refused(clusters.patch_status(&b.name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap_err()));
}

#[tokio::test]
async fn an_init_token_may_do_nothing_but_ask() {
    let stage = Stage::hub().await;
    let _control_plane = ControlPlane::start(&stage, "").await;
    let groups = ["system:bootstrappers", "system:bootstrappers:fleet", "system:authenticated"];
    let all = rights(&stage.hub.client, "system:bootstrap:abcdef", &groups, &["kube-system", "fleet"]).await;
    let asks: &[&str] = &["create", "get"];
    let rows = ["\"\"", "\"fleet\"", "\"kube-system\""].map(|n| format!("certificatesigningrequests in {n}"));
    let rows: Vec<_> = rows.iter().map(|row| (row.as_str(), asks)).collect();
    assert_eq!(without_self(all), expected(&rows));
}
