//! Followers with what they belong to: where they go, when they leave, and what they pin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::{Clusters, Decided};
use super::faults::CopyFaults;
use super::follow::ClusterState;
use super::follow_input::FollowContext;
use super::follow_plan;
use super::group_context::GroupContext;
use super::other_objects::OtherObjects;
use super::plan::Plan;
use super::policies;
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::upgrade_tests::placed;
use super::write::Write;
use crate::api::crd::condition::find_condition;
use crate::api::crd::group::conditions::MOVING;
use crate::api::crd::policy::GroupBy;
use crate::api::crd::policy::conditions::KINDS_PLACED;
use crate::api::labels::{ANNOTATION_ALLOW_VOLUME_MOVE, LABEL_TARGET_CLUSTER, cluster_namespace};
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{self, Kinds};
use crate::api::{Schedule, SchedulePolicy};
use crate::placement::facts::ObjectKey;
use crate::placement::follow::NamespacePlan;
use crate::placement::live::source_key;

/// A control plane with two clusters that are Ready, as far as followers are concerned.
struct Hub {
    store: Store,
    decided: BTreeMap<String, Decided>,
    clusters: Clusters,
    now: Instant,
    version: u64,
}

impl Hub {
    fn new() -> Self {
        let now = Instant::now();
        let mut store = Store::new(Kinds::default(), false);
        let states =
            ["east", "west"].map(|name| (name.to_owned(), ClusterState { is_ready: true, labels: BTreeMap::new() }));
        store.set_cluster_states(states.into(), now);
        let mut hub = Self { store, decided: BTreeMap::new(), clusters: Clusters::new(now), now, version: 0 };
        hub.apply("", "Namespace", json!({"metadata": {"name": "shop"}}));
        hub
    }

    fn apply(&mut self, group: &str, kind: &str, mut body: Value) {
        let kind = placeable::find_builtin_kind(group, kind).unwrap();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        body["metadata"]["uid"] = json!(format!("{}-{name}", kind.kind));
        self.version += 1;
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind.namespaced {
            body["metadata"]["namespace"] = json!("shop");
        }
        let raw: Raw = serde_json::from_value(body).unwrap();
        self.store.on_fetched(kind, raw, self.now);
    }

    /// A Deployment and everything that belongs to it.
    fn apply_application(&mut self) {
        let pods = json!({"serviceAccountName": "web", "containers": [{"name": "web", "image": "web",
                "envFrom": [{"configMapRef": {"name": "page"}}, {"secretRef": {"name": "key"}}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pods});
        self.apply("apps", "Deployment", json!({"metadata": {"name": "web"}, "spec": {"template": template}}));
        for (kind, name) in [("ConfigMap", "page"), ("Secret", "key"), ("ServiceAccount", "web")] {
            self.apply("", kind, json!({"metadata": {"name": name}}));
        }
        self.apply("", "PersistentVolumeClaim", json!({"metadata": {"name": "data"}, "spec": {}}));
        let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}});
        self.apply("", "Service", service);
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let ingress = json!({"metadata": {"name": "web"}, "spec": {"defaultBackend": backend}});
        self.apply("networking.k8s.io", "Ingress", ingress);
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let scaler = json!({"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}});
        self.apply("autoscaling", "HorizontalPodAutoscaler", scaler);
    }

    fn policy(&mut self) {
        let policy: SchedulePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}]}},
        }))
        .unwrap();
        self.store.apply_change(Change::Policy(Seen::There(policy)), self.now);
        self.store.mark_all(self.now);
    }

    fn decide(&mut self, group: &str, cluster: &str) {
        self.decided.insert(group.to_owned(), placed(cluster));
    }

    /// The Schedule of an object as the API server holds it: applied and available.
    fn copy(&mut self, cluster: &str, (group, kind, name): (&str, &str, &str), spec: &Value) {
        let namespace = (kind != "Namespace").then_some("shop");
        let source = json!({"group": group, "version": "v1", "kind": kind, "namespace": namespace, "name": name,
            "uid": format!("{kind}-{name}"), "generation": 0});
        let mut whole = json!({"manifest": "{}", "hash": "h", "sourceRef": source});
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let conditions =
            ["Applied", "Available"].map(|type_| json!({"type": type_, "status": "True", "reason": type_}));
        let schedule: Schedule = serde_json::from_value(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": format!("{kind}-{name}").to_lowercase(), "namespace": cluster_namespace(cluster),
                "uid": format!("{cluster}-{kind}-{name}"), "resourceVersion": "1"},
            "spec": whole, "status": {"observedHash": "h", "conditions": conditions}}))
        .unwrap();
        self.store.apply_change(Change::Schedule(Seen::There(schedule)), self.now);
    }

    fn context(&self) -> FollowContext<'_> {
        FollowContext {
            store: &self.store,
            decided: &self.decided,
            clusters: &self.clusters,
            now: self.now,
            wall: "2026-01-01T00:00:05Z".parse().unwrap(),
        }
    }

    fn follow(&mut self) -> Plan {
        let plan = self.context().plan_namespace("shop");
        self.store.record_follow_plan("shop", plan, self.now);
        follow_plan::plan_follow(&mut self.store, "shop", self.now)
    }

    fn group_of(&self, group: &str, kind: &str, name: &str) -> String {
        match &self.store.assignments[&ObjectKey::new(group, kind, "shop", name)] {
            Assignment::Group(group) => group.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// What a plan makes, as cluster and kind with name, and what it deletes by UID.
fn writes(plan: &Plan) -> (BTreeSet<String>, Vec<String>) {
    let (mut made, mut gone) = (BTreeSet::new(), Vec::new());
    for write in plan.stages.iter().flatten() {
        match write {
            Write::Schedule(schedule, _) => {
                let key = source_key(&schedule.spec.source_ref);
                made.insert(format!("{} {}", schedule.namespace().unwrap(), key.format_title()));
                if key.kind() != "Namespace" {
                    assert_eq!((schedule.spec.group.as_deref(), schedule.spec.follows), (None, true), "{key}");
                }
            }
            Write::RemoveSchedule { uid, .. } => gone.push(uid.clone()),
            _ => {}
        }
    }
    (made, gone)
}

const FOLLOWERS: [(&str, &str, &str); 7] = [
    ("", "ConfigMap", "page"),
    ("", "Secret", "key"),
    ("", "ServiceAccount", "web"),
    ("", "PersistentVolumeClaim", "data"),
    ("", "Service", "web"),
    ("networking.k8s.io", "Ingress", "web"),
    ("autoscaling", "HorizontalPodAutoscaler", "web"),
];

#[test]
fn everything_is_written_where_a_deployment_goes_and_before_it() {
    let mut hub = Hub::new();
    hub.apply_application();
    hub.policy();
    let group = hub.group_of("apps", "Deployment", "web");
    assert_eq!(hub.store.members.len(), 1, "followers pin nothing: {:?}", hub.store.members);
    assert!(writes(&hub.follow()).0.is_empty(), "what uses them has no place");
    hub.decide(&group, "west");
    let first = follow_plan::plan_followers_first(&hub.context(), &group).expect("they are missing");
    let expected: BTreeSet<String> = FOLLOWERS
        .map(|(_, kind, name)| format!("{} {kind} shop/{name}", cluster_namespace("west")))
        .into_iter()
        .chain([format!("{} Namespace shop", cluster_namespace("west"))])
        .collect();
    assert_eq!(writes(&first).0, expected);
    assert_eq!(writes(&hub.follow()).0, expected, "by themselves too");
}

fn count_in_state(plan: &NamespacePlan, cluster: &str, state: &str) -> usize {
    let places = plan.followers.values().filter_map(|follower| follower.places.get(cluster));
    places.filter(|place| place.state.code() == state).count()
}

#[test]
fn followers_leave_after_what_used_them_and_a_claim_stays() {
    let mut hub = Hub::new();
    hub.apply_application();
    hub.policy();
    let group = hub.group_of("apps", "Deployment", "web");
    hub.decide(&group, "west");
    for (at, kind, name) in FOLLOWERS {
        for cluster in ["east", "west"] {
            // The claim has one home.
            if kind != "PersistentVolumeClaim" || cluster == "west" {
                hub.copy(cluster, (at, kind, name), &json!({"follows": true}));
            }
        }
    }
    hub.copy("east", ("apps", "Deployment", "web"), &json!({"group": group}));
    hub.copy("west", ("apps", "Deployment", "web"), &json!({"group": group}));
    for follower in hub.context().plan_namespace("shop").followers.values() {
        assert!(follower.places.values().all(|place| place.state.code() == "Written"), "in use on both sides");
    }
    let web = ObjectKey::new("apps", "Deployment", "shop", "web");
    let old = hub.store.copies_of(&web);
    let old = old.filter(|(at, _)| at.0 == cluster_namespace("east")).map(|(_, old)| old.clone()).next().unwrap();
    hub.store.apply_change(Change::Schedule(Seen::Gone(old)), hub.now);
    // They leave, five a second.
    let plan = hub.context().plan_namespace("shop");
    // The Ingress leaves after its Service.
    assert_eq!(["Leaves", "Written"].map(|state| count_in_state(&plan, "east", state)), [5, 1], "{plan:?}");
    assert_eq!(count_in_state(&plan, "west", "Written"), plan.followers.len());
    assert_eq!(hub.store.follow.take_leaves(6, hub.now), 5);
    assert_eq!(hub.store.follow.take_leaves(1, hub.now), 0);
    assert_eq!(hub.store.follow.take_leaves(1, hub.now + Duration::from_secs(1)), 1);
}

#[test]
fn an_autoscaler_asks_for_the_group_of_what_it_scales() {
    let mut hub = Hub::new();
    hub.apply_application();
    hub.policy();
    let group = hub.group_of("apps", "Deployment", "web");
    hub.store.undecided.clear();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 5, "maxReplicas": 9});
    hub.apply("autoscaling", "HorizontalPodAutoscaler", json!({"metadata": {"name": "web"}, "spec": spec}));
    assert!(hub.store.undecided.contains(&group) && hub.store.grown.contains(&group));
}

#[test]
fn an_autoscaler_beside_its_deployment_is_no_old_copy_of_its_group() {
    let mut hub = Hub::new();
    hub.policy();
    // What is copied to all is of the group, and does not only follow.
    let mut policy = hub.store.policies["shop"].clone();
    let duplicate = json!({"spreadMode": "Duplicate", "topologyKey": "region"});
    policy.spec.spread_constraints = serde_json::from_value(duplicate).unwrap();
    hub.store.apply_change(Change::Policy(Seen::There(policy)), hub.now);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler = json!({"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    hub.apply("autoscaling", "HorizontalPodAutoscaler", scaler);
    hub.store.record_arrival("shop", hub.now);
    hub.now += Duration::from_secs(2);
    hub.follow();
    let group = hub.group_of("autoscaling", "HorizontalPodAutoscaler", "web");
    hub.decide(&group, "east");
    let moves_in = |hub: &Hub, cluster: &str| {
        let decided = placed(cluster);
        let context = GroupContext::new(&hub.store, &group, Some(&decided), "2026-01-01T00:00:05Z".parse().unwrap());
        let status = context.group_status(&CopyFaults::new());
        find_condition(&status.conditions, MOVING).map(|one| one.message.clone())
    };
    // Written by its policy, when that chose west.
    hub.copy("west", ("autoscaling", "HorizontalPodAutoscaler", "web"), &json!({"group": group}));
    assert!(moves_in(&hub, "east").is_some_and(|text| text.starts_with("from west to east")));
    let annotations = json!({"fleet-scheduler.io/cluster": "west"});
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let web = json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"template": template}});
    hub.apply("apps", "Deployment", web);
    hub.copy("west", ("apps", "Deployment", "web"), &json!({}));
    hub.follow();
    assert_eq!(hub.group_of("autoscaling", "HorizontalPodAutoscaler", "web"), group);
    assert_eq!(moves_in(&hub, "east"), None, "its Deployment is there");
}

#[test]
fn a_claim_whose_home_is_lost_is_not_begun_elsewhere() {
    let mut hub = Hub::new();
    hub.apply_application();
    hub.policy();
    // Its mark says where it was; the cluster and its Schedules are gone.
    let metadata = json!({"name": "data", "labels": {LABEL_TARGET_CLUSTER: "lost"}, "annotations": {}});
    let mut claim = json!({"metadata": metadata, "spec": {}});
    hub.apply("", "PersistentVolumeClaim", claim.clone());
    let group = hub.group_of("apps", "Deployment", "web");
    hub.decide(&group, "west");
    let of_claim = format!("{} PersistentVolumeClaim shop/data", cluster_namespace("west"));
    let plan = hub.follow();
    let marks =
        plan.stages.iter().flatten().filter(|one| matches!(one, Write::Label(of, _) if of.name == "data")).count();
    assert!(!writes(&plan).0.contains(&of_claim) && marks == 0, "no empty one is made: {plan:?}");
    let only = hub.store.follow.only_of(&group, &BTreeSet::from(["shop"]));
    assert_eq!(only, Some(BTreeSet::from(["lost".to_owned()])), "what mounts it goes nowhere else");
    claim["metadata"]["annotations"] = json!({ANNOTATION_ALLOW_VOLUME_MOVE: "true"});
    hub.apply("", "PersistentVolumeClaim", claim);
    assert!(writes(&hub.follow()).0.contains(&of_claim), "somebody consents");
    assert_eq!(hub.store.follow.only_of(&group, &BTreeSet::from(["shop"])), None);
}

#[test]
fn a_lone_object_waits_for_quiet_and_gives_way_to_what_runs_pods() {
    let mut hub = Hub::new();
    hub.policy();
    hub.apply("", "ConfigMap", json!({"metadata": {"name": "page"}}));
    hub.store.record_arrival("shop", hub.now);
    let page = ObjectKey::new("", "ConfigMap", "shop", "page");
    hub.follow();
    assert_eq!(hub.store.assignments[&page], Assignment::Follows, "more may come");
    hub.now += Duration::from_secs(2);
    hub.follow();
    let group = hub.group_of("", "ConfigMap", "page");
    assert_eq!(hub.store.members[&group], [page.clone()].into());
    hub.apply_application();
    hub.follow();
    assert_eq!(hub.store.assignments[&page], Assignment::Follows);
    assert!(!hub.store.members.contains_key(&group));
}

#[test]
fn a_secret_that_no_policy_matches_goes_along_and_what_is_missing_is_named() {
    let mut hub = Hub::new();
    hub.apply_application();
    // Its copy is there, by an annotation or by a policy that is gone.
    hub.copy("west", ("apps", "Deployment", "web"), &json!({}));
    hub.store.mark_all(hub.now);
    let (made, _) = writes(&hub.follow());
    for (kind, is_carried) in [
        ("ConfigMap", true),
        ("Secret", true),
        ("ServiceAccount", true),
        ("PersistentVolumeClaim", true),
        ("Service", false),
        ("Ingress", false),
    ] {
        assert_eq!(made.iter().any(|one| one.contains(&format!(" {kind} "))), is_carried, "{kind}: {made:?}");
    }
    let kind = placeable::find_builtin_kind("", "Secret").unwrap();
    let nothing = Change::Source(kind, Seen::Listed(BTreeSet::new()));
    hub.store.apply_change(nothing, hub.now);
    hub.follow();
    let missing = hub.store.follow.missing_of(&ObjectKey::new("apps", "Deployment", "shop", "web"));
    let named: Vec<&str> = missing.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(named, ["/Secret/shop/key"]);
}

#[test]
fn a_namespace_that_has_nothing_any_more_is_forgotten() {
    let mut hub = Hub::new();
    hub.apply_application();
    for namespace in ["shop", "gone"] {
        hub.store.record_arrival(namespace, hub.now);
        hub.store.record_follow_plan(namespace, NamespacePlan::default(), hub.now);
    }
    assert!(hub.store.follow.plan_of("gone").is_none() && hub.store.follow.plan_of("shop").is_some());
}

/// What the plan of the policy's status says of kinds that are not placed, and its events.
fn tell_kinds(hub: &mut Hub) -> (Option<String>, Vec<String>) {
    let plan = policies::plan_policy_status(&hub.store, "shop", "2026-01-01T00:00:05Z".parse().unwrap());
    let mut events = Vec::new();
    for write in plan.stages.into_iter().flatten() {
        match write {
            Write::PolicyStatus { status, .. } => {
                let mut policy = hub.store.policies["shop"].clone();
                policy.status = Some(*status);
                hub.store.apply_change(Change::Policy(Seen::There(policy)), hub.now);
            }
            Write::Event { reason, message, .. } => events.push(format!("{reason}: {message}")),
            other => panic!("{other:?}"),
        }
    }
    let status = hub.store.policies["shop"].status.clone().unwrap_or_default();
    (find_condition(&status.conditions, KINDS_PLACED).map(|one| one.message.clone()), events)
}

#[test]
fn a_policy_says_what_there_is_of_kinds_that_are_not_placed() {
    let mut hub = Hub::new();
    hub.policy();
    let all = |namespace: &str, kind: &str, value: &'static str, count: usize| OtherObjects {
        api_version: "example.com/v1".to_owned(),
        kind: kind.to_owned(),
        value,
        namespace: namespace.to_owned(),
        labels: BTreeMap::new(),
        count,
    };
    assert_eq!(tell_kinds(&mut hub), (None, vec![]));
    let widgets =
        |count: usize| [all("shop", "Widget", "extraKinds", count), all("kube-system", "Widget", "extraKinds", 7)];
    hub.store.set_other_objects(&widgets(2), hub.now);
    let text = |count: usize| format!("{count} Widget: the value `extraKinds` places these kinds");
    assert_eq!(tell_kinds(&mut hub), (Some(text(2)), vec![format!("KindsNotPlaced: {}", text(2))]));
    // One more is no news, another kind is.
    hub.store.set_other_objects(&widgets(3), hub.now);
    assert_eq!(tell_kinds(&mut hub), (Some(text(3)), vec![]));
    let more = [all("shop", "Widget", "extraKinds", 3), all("shop", "Gadget", "more", 1)];
    hub.store.set_other_objects(&more, hub.now);
    let both = format!("{}; 1 Gadget: the value `more` places these kinds", text(3));
    assert_eq!(tell_kinds(&mut hub), (Some(both.clone()), vec![format!("KindsNotPlaced: {both}")]));
    // What is placed together says it too.
    let mut policy = hub.store.policies["shop"].clone();
    policy.spec.group_by = Some(GroupBy { namespace: true, ..GroupBy::default() });
    hub.store.apply_change(Change::Policy(Seen::There(policy)), hub.now);
    let group = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
        "metadata": {"name": "shop-1", "uid": "g"}, "spec": {"policy": {"name": "shop"}, "key": "namespace/shop"}});
    hub.store.apply_change(Change::Group(Seen::There(serde_json::from_value(group).unwrap())), hub.now);
    hub.store.set_other_objects(&widgets(3), hub.now);
    let told = format!("KindsNotPlaced: {}", text(3));
    assert_eq!(tell_kinds(&mut hub), (Some(text(3)), vec![told.clone(), told]));
    hub.store.set_other_objects(&more, hub.now);
    tell_kinds(&mut hub);
    // A scheduler that has not counted yet leaves what the former one said.
    let counted = hub.store.unplaced.take();
    assert_eq!(tell_kinds(&mut hub), (Some(both), vec![]));
    hub.store.unplaced = counted;
    hub.store.set_other_objects(&[], hub.now);
    assert_eq!(tell_kinds(&mut hub), (None, vec![]));
}

/// What is wrong with a policy is told anew when another part of it is wrong, also where a number alone differs.
#[test]
fn each_fault_of_a_policy_is_told() {
    let mut hub = Hub::new();
    hub.policy();
    for kind in ["Widget1", "Widget2"] {
        let mut policy = hub.store.policies["shop"].clone();
        let kinds = serde_json::from_value(json!([{"group": "example.com", "kind": kind}])).unwrap();
        policy.spec.resource_selectors.kinds = kinds;
        hub.store.apply_change(Change::Policy(Seen::There(policy)), hub.now);
        let [told] = &tell_kinds(&mut hub).1[..] else { panic!("{kind} is not told") };
        assert!(told.starts_with("KindNotPlaceable: ") && told.contains(kind), "{told}");
        assert!(tell_kinds(&mut hub).1.is_empty(), "it is told once");
    }
}
