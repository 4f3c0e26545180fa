//! As in one cluster: the same manifests and the same commands of kubectl once in a workload cluster itself, and once through
//! a control plane that places them there. The copy, the status of the source, the output of each command, its exit code and
//! the warnings must be the same, but for what `differences.yaml` lists with the sentence of `docs/one-cluster.md` about it.
//!
//! `FLEET_CASE=NAME` runs one case of `cases/`.

// What differs is to be read.
#![allow(clippy::print_stdout)]

mod case;
mod compare;
mod played_pods;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleetctl::api::SchedulePolicy;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use self::case::{Case, Step};
use self::compare::{Difference, Listed, compare_events, compare_objects, compare_tables};
use self::played_pods::play_cluster;
use crate::applicant::{ControlPlane, fresh};
use crate::membership::{Scene, forget};
use crate::placing::spread_ways::{clear_namespaces, make_node};
use crate::support::Stage;

/// Longest time until both sides are the same after a step.
const SETTLED: Duration = Duration::from_secs(60);
/// Cases side by side.
const ABREAST: usize = 6;

/// One side of the comparison: a namespace, and the API server to which the commands of a user go.
#[derive(Clone)]
struct Side {
    namespace: String,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

/// What a command of kubectl ended with.
struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Side {
    async fn kubectl(&self, arguments: &[String], input: Option<&str>) -> Answer {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]).args(arguments);
        // Its cache goes with the cluster.
        command.env("HOME", self.kubeconfig.parent().unwrap()).kill_on_drop(true);
        command.stdin(if input.is_some() { std::process::Stdio::piped() } else { std::process::Stdio::null() });
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
            tokio::io::AsyncWriteExt::write_all(&mut stdin, text.as_bytes()).await.unwrap();
        }
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Answer { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// What kubectl gets of these objects, as far as they are there.
    async fn get(&self, objects: &[(String, String)], more: &[&str]) -> Answer {
        let names = objects.iter().map(|(kind, name)| format!("{kind}/{}", name.replace("NAMESPACE", &self.namespace)));
        let arguments = ["get", "--ignore-not-found"].into_iter().chain(more.iter().copied()).map(str::to_owned);
        self.kubectl(&arguments.chain(names).collect::<Vec<_>>(), None).await
    }

    /// The objects as the API server has them, by kind and name.
    async fn objects(&self, objects: &[(String, String)]) -> BTreeMap<(String, String), Value> {
        let found: Value = serde_json::from_str(&self.get(objects, &["-o", "json"]).await.stdout).unwrap_or_default();
        let found = found["items"].as_array().cloned().unwrap_or_else(|| vec![found]);
        found.into_iter().filter_map(|object| Some((self.object_key(&object)?, object))).collect()
    }

    fn object_key(&self, object: &Value) -> Option<(String, String)> {
        let name = object["metadata"]["name"].as_str()?.replace(&self.namespace, "NAMESPACE");
        Some((object["kind"].as_str()?.to_lowercase(), name))
    }
}

/// A control plane with one member, in which both sides are.
struct Trial {
    /// Through the control plane.
    fleet: Side,
    /// The copies of it, in the member.
    copies: Side,
    /// In the member itself.
    plain: Side,
}

impl Trial {
    fn namespaces(&self) -> [&String; 2] {
        [&self.fleet.namespace, &self.plain.namespace]
    }

    /// Runs a case, and returns what differs.
    async fn run(&self, case: &Case) -> BTreeSet<Difference> {
        let mut found = BTreeSet::new();
        for (number, step) in case.steps.iter().enumerate() {
            let (fleet, plain) = match step {
                Step::Kubectl(arguments) => {
                    // What is not of a namespace has the name of one.
                    let input = (arguments.last().is_some_and(|last| last == "-")).then_some(&case.manifests);
                    let [fleet, plain] = [&self.fleet, &self.plain].map(|side| {
                        let input = input.map(|text| text.replace("NAMESPACE", &side.namespace));
                        let arguments: Vec<String> =
                            arguments.iter().map(|word| word.replace("NAMESPACE", &side.namespace)).collect();
                        async move { side.kubectl(&arguments, input.as_deref()).await }
                    });
                    tokio::join!(fleet, plain)
                }
                Step::InCluster(arguments) => {
                    tokio::join!(self.copies.kubectl(arguments, None), self.plain.kubectl(arguments, None))
                }
            };
            let what = step.text();
            found.extend(compare::compare_answers(&case.name, self.namespaces(), &what, &fleet, &plain));
            let left = self.settle(case, number).await;
            let unlisted = left.iter().filter(|one| !case.is_listed(one)).count();
            if unlisted > 0 {
                println!("        {}: {what}: {unlisted} differences are not listed", case.name);
            }
            found.extend(left);
        }
        found
    }

    /// Waits until both sides are the same, and returns what still differs.
    async fn settle(&self, case: &Case, number: usize) -> BTreeSet<Difference> {
        let (began, mut times) = (Instant::now(), 0);
        loop {
            let found = self.look(case, number + 1 == case.steps.len()).await;
            let open = found.iter().filter(|one| !case.is_listed(one)).count();
            // What is the same for a moment may be so because nothing has happened yet.
            times = if open == 0 { times + 1 } else { 0 };
            if times >= 2 || began.elapsed() > SETTLED {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }

    async fn look(&self, case: &Case, is_last: bool) -> BTreeSet<Difference> {
        let (mut found, sides) = (BTreeSet::new(), self.namespaces());
        let (sources, copies, plain) = tokio::join!(
            self.fleet.objects(&case.objects),
            self.copies.objects(&case.objects),
            self.plain.objects(&case.objects)
        );
        for object in &case.objects {
            let (source, copy, plain) = (sources.get(object), copies.get(object), plain.get(object));
            found.extend(compare_objects(&case.name, sides, &object.0, source, copy, plain));
        }
        // Tables need not be looked at before the objects are the same.
        if found.iter().all(|one| case.is_listed(one)) {
            let (fleet, plain) = tokio::join!(self.fleet.get(&case.objects, &[]), self.plain.get(&case.objects, &[]));
            found.extend(compare_tables(case, sides, &fleet.stdout, &plain.stdout));
        }
        if is_last {
            let list = ["get", "events", "-o", "json"].map(str::to_owned);
            let (fleet, plain) = tokio::join!(self.fleet.kubectl(&list, None), self.plain.kubectl(&list, None));
            found.extend(compare_events(&case.name, &fleet.stdout, &plain.stdout));
        }
        found
    }
}

/// Runs all cases in one member, and fails where something differs that is not listed, or is listed and does not differ.
async fn compare_with_one_cluster(stage: Stage, server: crate::support::Server, minor: &str) {
    let control_plane = ControlPlane::start(&stage, "").await;
    forget(&stage.hub.client, &server.client).await;
    let scene = Scene { stage, control_plane, member: server, name: fresh("one") };
    make_node(&scene.member.client, "one", "2000").await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    let mut played = JoinSet::new();
    played.spawn(play_cluster(scene.member.client.clone()));
    scene.until_ready().await;
    let team = fresh("one");
    let policies: Api<SchedulePolicy> = Api::all(scene.stage.hub.client.clone());
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": scene.name}});
    let everything = json!({"namespaceSelector": {"matchLabels": {"team": team}}, "clusterSelector": here,
        "groupBy": {"namespace": true}, "resourceSelectors": {"labelSelectors": [{}]}});
    // What is not of a namespace is named.
    let kinds = json!([{"group": "scheduling.k8s.io", "kind": "PriorityClass"},
        {"group": "networking.k8s.io", "kind": "IngressClass"}]);
    let classes = json!({"namespaceSelector": {}, "clusterSelector": here,
        "resourceSelectors": {"labelSelectors": [{"matchLabels": {"class": "shop"}}], "kinds": kinds}});
    let names = [team.clone(), format!("{team}-classes")];
    for (name, spec) in names.iter().zip([everything, classes]) {
        let policy = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": name}, "spec": spec});
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    }

    let listed = Listed::read(minor);
    let only = std::env::var("FLEET_CASE").ok();
    let cases = Case::read_all(&listed);
    let cases: Vec<Case> =
        cases.into_iter().filter(|case| only.as_ref().is_none_or(|only| *only == case.name)).collect();
    let scene = Arc::new(scene);
    let runs = cases.into_iter().map(|case| {
        let (scene, team) = (scene.clone(), team.clone());
        async move { run_case(&scene, &team, case).await }
    });
    let found: Vec<BTreeSet<Difference>> = futures::stream::iter(runs).buffer_unordered(ABREAST).collect().await;
    let found: BTreeSet<Difference> = found.into_iter().flatten().collect();
    let unlisted: Vec<&Difference> =
        found.iter().filter(|one| !listed.iter().any(|listed| listed.covers(one))).collect();
    for one in &unlisted {
        println!("NOT LISTED {one}");
    }
    let unmet: Vec<&Listed> =
        listed.iter().filter(|listed| only.is_none() && !found.iter().any(|one| listed.covers(one))).collect();
    println!("{} differences, {} of them not listed", found.len(), unlisted.len());
    // What is removed leaves nothing, and the next test finds nothing.
    clear_namespaces(&scene.stage.hub.client).await;
    clear_namespaces(&scene.member.client).await;
    for name in &names {
        policies.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(unlisted.is_empty(), "{} differences are not listed", unlisted.len());
    assert!(unmet.is_empty(), "listed, and the same in both: {unmet:#?}");
}

/// Runs one case in two namespaces of its own.
async fn run_case(scene: &Scene, team: &str, case: Case) -> BTreeSet<Difference> {
    let began = Instant::now();
    let namespaces = ["fleet", "plain"].map(|side| fresh(&format!("shop-{}-{side}", case.name)));
    for (client, name) in [&scene.stage.hub.client, &scene.member.client].into_iter().zip(&namespaces) {
        let body = json!({"metadata": {"name": name, "labels": {"team": team}}});
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }
    let side = |namespace: &str, kubeconfig: &PathBuf| Side {
        namespace: namespace.to_owned(),
        kubeconfig: kubeconfig.clone(),
        kubectl: scene.stage.kubectl(),
    };
    let trial = Trial {
        fleet: side(&namespaces[0], &scene.stage.hub.kubeconfig),
        copies: side(&namespaces[0], &scene.member.kubeconfig),
        plain: side(&namespaces[1], &scene.member.kubeconfig),
    };
    let found = trial.run(&case).await;
    for (client, name) in [(&scene.stage.hub.client, &namespaces[0]), (&scene.member.client, &namespaces[1])] {
        Api::<Namespace>::all(client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
    }
    println!("{:>6.1} s  {}: {} differences", began.elapsed().as_secs_f64(), case.name, found.len());
    found
}

/// Not in every run yet: beside the tests of installs it takes five minutes.
mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_placed_in_one_cluster_is_as_in_that_cluster() {
        let stage = Stage::hub().await;
        let server = stage.member().await;
        compare_with_one_cluster(stage, server, "1.36").await;
    }

    /// 1.25 is the oldest that is supported.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_placed_in_an_old_cluster_is_as_in_that_cluster() {
        let (stage, mut servers) = Stage::with_three_members().await;
        compare_with_one_cluster(stage, servers.pop().unwrap(), "1.25").await;
    }
}
