//! Groups that leave a cluster that is lost, whose pods find no node, or because somebody asks for a better place.

use fleetctl::api::crd::move_record::{ExclusionReason, MoveCause, MoveRecord};
use fleetctl::api::labels::ANNOTATION_ASK;
use fleetctl::api::mass_removal::RemovalRecord;

use super::documented::documented_policy;
use super::*;
use crate::applicant::Applicant;
use crate::simulated::nodes_and_pods;

/// Seconds after which the policy leaves a lost cluster.
const AFTER: i64 = 60;

impl Fleet {
    /// Plays one turn of the agent of a member: every copy is applied and available, and every question is answered.
    pub(super) async fn play(&self, name: &str) {
        // Not by kind and name: several namespaces have an object of the same.
        for copy in self.schedules(name).list(&ListParams::default()).await.unwrap() {
            if copy.metadata.deletion_timestamp.is_some() {
                self.report_deleted(&copy).await;
                continue;
            }
            let amount = copy.spec.share.as_ref().and_then(|share| share.replicas).unwrap_or(1);
            let amounts = json!({"status": {"epoch": copy.spec.epoch, "available": amount, "served": amount}});
            let api = self.schedules(name);
            api.patch_status(&copy.name_any(), &PatchParams::default(), &Patch::Merge(&amounts)).await.unwrap();
            let resource =
                json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "observedGeneration": 1});
            self.report(&copy, resource, true).await;
        }
        let clusters: Api<fleetctl::api::Cluster> = Api::all(self.client());
        if let Some(asked) = clusters.get(name).await.unwrap().annotations().get(ANNOTATION_ASK) {
            let answer = json!({ "status": { "answered": asked } });
            clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&answer)).await.unwrap();
        }
    }

    async fn record(&self, policy: &str) -> MoveRecord {
        let group = self.groups(policy).await.into_iter().next();
        group.and_then(|group| group.status).unwrap_or_default().record
    }

    /// Waits until a policy's only group serves in one of these members, and returns that and the other.
    async fn serves(&self, policy: &str, names: &[String; 2]) -> (String, String) {
        wait("it serves", async || {
            for name in names {
                self.play(name).await;
            }
            self.record(policy).await.target.len() == 1
        })
        .await;
        let from = self.record(policy).await.target.into_keys().next().unwrap();
        let to = names.iter().find(|name| **name != from).unwrap().clone();
        (from, to)
    }

    async fn policy_onto(&self, names: &[String; 2], mut more: Value) -> String {
        let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
        more["clusterSelector"] = json!({ "matchExpressions": [in_these] });
        self.policy(more).await
    }
}

#[tokio::test]
async fn a_lost_cluster_is_left_and_comes_back() {
    let fleet = Fleet::new().await;
    let names = [fresh("member"), fresh("member")];
    let applicants = names.each_ref().map(|name| Applicant::new(name));
    let init = &fleet.control_plane.init;
    let (mut members, mut certificates) = (BTreeMap::new(), BTreeMap::new());
    for applicant in &applicants {
        let certificate = applicant.ask(init).await.unwrap();
        let member = Simulated::live(init, applicant, &certificate, 2, &fleet.metrics);
        members.insert(applicant.name.clone(), member);
        certificates.insert(applicant.name.clone(), certificate);
    }
    // The one of the page, but for the time that it waits.
    let mut failover = documented_policy("shop-failover", &fleet.namespace)["failover"].take();
    failover["afterSeconds"] = json!(AFTER);
    let policy = fleet.policy_onto(&names, json!({ "failover": failover })).await;
    fleet.deployment("web", 3, json!({})).await;
    let (from, to) = fleet.serves(&policy, &names).await;
    members.get_mut(&from).unwrap().silence().await;
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let ready = async |name: &str| {
        let status = clusters.get(name).await.unwrap().status.unwrap_or_default();
        find_condition(&status.conditions, "Ready").cloned().unwrap()
    };
    wait("it is lost", async || ready(&from).await.reason == "ClusterHeartbeatLost").await;
    assert_eq!(fleet.record(&policy).await.running, None, "it may come back");
    wait("it fails over", async || {
        fleet.record(&policy).await.running.is_some_and(|running| running.cause == MoveCause::Failover)
    })
    .await;
    let lost = ready(&from).await.last_transition_time.unwrap().0.as_second();
    assert!(fleet.record(&policy).await.running.unwrap().since >= lost + AFTER);
    wait("it serves elsewhere", async || {
        fleet.play(&to).await;
        let record = fleet.record(&policy).await;
        record.running.is_none() && record.target.contains_key(&to)
    })
    .await;
    let old = fleet.copies(&from).await.remove("Deployment web").expect("its agent has not deleted it");
    assert!(old.metadata.deletion_timestamp.is_some());
    let applicant = applicants.iter().find(|applicant| applicant.name == from).unwrap();
    let back = Simulated::live(init, applicant, &certificates[&from], 2, &fleet.metrics);
    members.insert(from.clone(), back);
    wait("the old copy is gone", async || {
        fleet.play(&from).await;
        fleet.play(&to).await;
        !fleet.copies(&from).await.contains_key("Deployment web")
    })
    .await;
    assert!(fleet.record(&policy).await.target.contains_key(&to), "it does not move back");
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn pods_without_a_node_run_elsewhere() {
    let fleet = Fleet::new().await;
    let members = [fleet.join(2).await, fleet.join(2).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let policy = fleet.policy_onto(&names, json!({})).await;
    fleet.deployment("web", 3, json!({})).await;
    let (from, to) = fleet.serves(&policy, &names).await;
    let copy = fleet.copy(&from, "Deployment web").await;
    let since = Timestamp::from_second(Timestamp::now().as_second() - 110).unwrap().to_string();
    let pods = json!({"desired": 3, "bound": 1, "counted": 1, "unschedulableSince": since});
    let api = fleet.schedules(&from);
    let status = json!({"status": {"pods": pods}});
    api.patch_status(&copy.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    wait("it moves", async || {
        let record = fleet.record(&policy).await;
        record.running.is_some_and(|running| running.cause == MoveCause::Unschedulable && running.to.contains_key(&to))
    })
    .await;
    let excluded = fleet.record(&policy).await.excluded;
    assert_eq!((&excluded[0].cluster, excluded[0].reason), (&from, ExclusionReason::Unschedulable));
    wait("it serves elsewhere", async || {
        fleet.play(&to).await;
        let record = fleet.record(&policy).await;
        record.running.is_none() && record.target.contains_key(&to)
    })
    .await;
    let events: Api<Event> = Api::all(fleet.client());
    let told = events.list(&ListParams::default().fields("reason=ReschedulingTriggered")).await.unwrap().items;
    let text = format!("Deployment {}/web lacks minimum replicas on {from:?}: 2 pods unschedulable", fleet.namespace);
    let told = told.into_iter().filter_map(|event| event.message).filter(|message| message.starts_with(&text));
    assert_eq!(told.count(), 1);
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn a_better_place_is_taken_by_command() {
    let fleet = Fleet::new().await;
    let members = [fleet.join(2).await, fleet.join(2).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let policy = fleet.policy_onto(&names, json!({})).await;
    fleet.deployment("web", 3, json!({})).await;
    let (from, to) = fleet.serves(&policy, &names).await;
    let rebalance = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        command.args(["rebalance", "--policy", &policy]).args(more).env("KUBECONFIG", &fleet.stage.hub.kubeconfig);
        let answer = command.output().unwrap();
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    };
    assert!(rebalance(&[]).contains("has a better place"), "both are as good");
    // Others fill most of the cluster.
    let (nodes, mut pods) = nodes_and_pods(2);
    for pod in pods.values_mut() {
        pod.requests.insert("cpu".to_owned(), 12_000);
    }
    members.iter().find(|member| member.name == from).unwrap().observed.set_nodes_and_pods(nodes, pods);
    wait("it is worth it", async || rebalance(&["--dry-run"]).contains("would be free there")).await;
    assert_eq!(fleet.record(&policy).await.running, None, "nothing was written");
    assert!(rebalance(&[]).contains("The scheduler moves 1 group now"));
    wait("it moves", async || {
        fleet.play(&from).await;
        fleet.play(&to).await;
        let record = fleet.record(&policy).await;
        record.running.is_none() && record.target.contains_key(&to)
    })
    .await;
    assert!(rebalance(&["--dry-run"]).contains("has a better place"), "once");
    fleet.end(&[policy]).await;
}

/// Deployments of the fleet below: more than a tenth of all copies that other tests leave in its control plane.
const WEBS: usize = 30;

#[tokio::test]
async fn an_edit_that_would_remove_a_third_of_all_copies_removes_none_unasked() {
    let fleet = Fleet::new().await;
    let members = [fleet.join(8).await, fleet.join(8).await, fleet.join(8).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let onto = |names: &[String]| {
        let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
        json!({"clusterSelector": {"matchExpressions": [in_these]}})
    };
    let mut spec = onto(&names);
    spec["spreadConstraints"] = json!({"topologyKey": "kubernetes.io/metadata.name", "spreadMode": "Duplicate"});
    let policy = fleet.policy(spec).await;
    for number in 0..WEBS {
        fleet.deployment(&format!("web-{number}"), 1, json!({})).await;
    }
    let count = async |name: &str| {
        let copies = fleet.copies(name).await.into_iter();
        let live = copies.filter(|(_, copy)| copy.metadata.deletion_timestamp.is_none());
        live.filter(|(what, _)| what.starts_with("Deployment ")).count()
    };
    for name in &names {
        wait("everything is copied", async || count(name).await == WEBS).await;
        fleet.play(name).await;
    }
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let edit = async |names: &[String]| {
        let change = json!({ "spec": onto(names) });
        let edited = policies.patch(&policy, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        format!("policy/{policy}:{}", edited.metadata.generation.unwrap())
    };
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client(), "kube-system");
    let is_held = async |cause: &str| {
        let found = maps.get_opt("fleet-brake").await.unwrap().and_then(|map| map.data);
        let text = found.and_then(|data| data.get("removals").cloned()).unwrap_or_default();
        RemovalRecord::from_text(&text).frozen_causes().any(|(name, _)| name == cause)
    };
    let go_on = |cause: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        command.args(["rebalance", "--continue", cause]).args(more).env("KUBECONFIG", &fleet.stage.hub.kubeconfig);
        let answer = command.output().unwrap();
        (answer.status.code(), String::from_utf8_lossy(&answer.stdout).into_owned())
    };

    let cause = edit(&names[..2]).await;
    // What nobody wants goes when the rest serves, as its agents say.
    let play = async || {
        for name in &names {
            fleet.play(name).await;
        }
    };
    wait("the removals are held back", async || {
        play().await;
        is_held(&cause).await
    })
    .await;
    assert_eq!(count(&names[2]).await, WEBS);
    let (code, text) = go_on(&cause, &["--dry-run"]);
    assert!(code == Some(0) && text.contains(&format!("would remove {WEBS} copies")), "{text}");
    edit(&names).await;
    wait("nothing is held back", async || !is_held(&cause).await).await;
    assert_eq!((count(&names[2]).await, go_on(&cause, &["--yes"]).0), (WEBS, Some(1)), "it was taken back");

    let cause = edit(&names[..2]).await;
    wait("the removals are held back", async || is_held(&cause).await).await;
    assert_eq!(count(&names[2]).await, WEBS);
    assert_eq!(go_on(&cause, &["--yes"]).0, Some(0));
    wait("they go on", async || {
        play().await;
        count(&names[2]).await < WEBS
    })
    .await;
    assert_eq!((count(&names[0]).await, count(&names[1]).await), (WEBS, WEBS));
    fleet.end(&[policy]).await;
}
