//! One walk: a namespace, what is in it, and a sequence of edits that its seed decides.

use std::sync::Arc;

use fleetctl::api::labels::{
    ANNOTATION_ALLOW_VOLUME_MOVE, ANNOTATION_CLUSTER, ANNOTATION_REBALANCE, ANNOTATION_SPREAD_ONTO,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::truth::Truth;
use super::*;
use crate::placing::spread_ways::{REGION, REGIONS};

/// Label of clusters that policies ask for, and that changes.
pub(super) const COLOUR: &str = "walk-colour";

/// How a policy spreads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Whole,
    Even,
    Shares([i64; 3]),
    Duplicate,
}

/// The policy of most objects of a walk.
#[derive(Debug, Clone)]
struct Policy {
    is_there: bool,
    /// What it is broken by, if it is.
    broken: u8,
    suspend: bool,
    form: Form,
    /// Members that it allows; none: by the label.
    members: Vec<usize>,
    group_by: u8,
    failover: bool,
    ordered: bool,
}

pub(super) struct Walk {
    pub(super) seed: u64,
    pub(super) namespace: String,
    random: StdRng,
    client: Client,
    members: Vec<String>,
    truth: Arc<Truth>,
    /// No cluster is fenced or changes its labels meanwhile.
    is_calm: bool,
    policy: Policy,
    replicas: i64,
    has_autoscaler: bool,
    /// The label by which a policy takes `web`.
    tier: &'static str,
    /// `cluster` or `spread-onto` of `web`.
    direct: Option<(&'static str, String)>,
    image: u32,
    pub(super) steps: usize,
}

impl Walk {
    pub(super) fn new(
        seed: u64,
        run: &str,
        client: Client,
        members: Vec<String>,
        truth: Arc<Truth>,
        is_calm: bool,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut policy = Policy {
            is_there: true,
            broken: 0,
            suspend: false,
            form: Form::Whole,
            members: vec![0, 1, 2],
            group_by: random.random_range(0..4),
            failover: random.random_range(0..4) == 0,
            ordered: random.random_range(0..3) == 0,
        };
        if random.random_range(0..3) == 0 {
            policy.form = choose_form(&mut random);
        }
        let replicas = random.random_range(2..6);
        // Of its own in each run: what the last one left may not be gone yet.
        let namespace = format!("shop-{run}-{seed}");
        Self {
            seed,
            namespace,
            random,
            client,
            members,
            truth,
            is_calm,
            policy,
            replicas,
            has_autoscaler: false,
            tier: "a",
            direct: None,
            image: 1,
            steps: 0,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, body: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        self.api::<K>().create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }

    async fn patch<K>(&self, name: &str, change: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Makes what the walk is about.
    pub(super) async fn begin(&mut self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let body = json!({ "metadata": { "name": self.namespace, "labels": { "team": self.namespace } } });
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        if self.random.random_range(0..5) == 0 {
            let stuck = self.random.random_range(0..3);
            self.truth.with(&self.namespace, |walked| walked.stuck.insert(stuck));
            self.truth.tell(&self.namespace, &format!("pods of web never become Ready in member {stuck}"));
        }
        if self.policy.form == Form::Duplicate {
            self.truth.with(&self.namespace, |walked| walked.may_repeat = true);
        }
        self.write_policy().await;
        self.write_other_policy().await;
        self.want();
        let meta = |name: &str| json!({ "name": name, "labels": { "app": name, "tier": "a" } });
        let template = |name: &str, volumes: Value| {
            json!({ "metadata": { "labels": { "app": name } }, "spec": { "volumes": volumes,
                "containers": [{ "name": "c", "image": "c:1", "resources": { "requests": { "cpu": "10m" } } }] } })
        };
        let selector = |name: &str| json!({ "matchLabels": { "app": name } });
        let steady = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
        self.create::<Deployment>(json!({ "metadata": meta("web"), "spec": { "replicas": self.replicas,
            "strategy": steady, "selector": selector("web"), "template": template("web", json!([])) } }))
            .await;
        let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        self.create::<StatefulSet>(json!({ "metadata": meta("db"), "spec": { "replicas": 2, "serviceName": "db",
            "podManagementPolicy": "Parallel", "selector": selector("db"), "template": template("db", json!([])),
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }] } }))
            .await;
        self.create::<PersistentVolumeClaim>(json!({ "metadata": meta("disk"), "spec": claim })).await;
        let mounts = json!([{ "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } }]);
        self.create::<Deployment>(json!({ "metadata": meta("disk"), "spec": { "replicas": 1,
            "strategy": { "type": "Recreate" }, "selector": selector("disk"), "template": template("disk", mounts) } }))
            .await;
        let mut job = template("once", json!([]));
        job["spec"]["restartPolicy"] = json!("Never");
        self.create::<Job>(json!({ "metadata": meta("once"), "spec": { "template": job } })).await;
        if self.random.random_range(0..5) == 0 {
            self.make_autoscaler().await;
        }
    }

    async fn make_autoscaler(&mut self) {
        self.has_autoscaler = true;
        self.want();
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let cpu = json!([{ "type": "Resource", "resource": { "name": "cpu",
            "target": { "type": "Utilization", "averageUtilization": 80 } } }]);
        self.create::<HorizontalPodAutoscaler>(json!({ "metadata": { "name": "web", "labels": { "tier": "a" } },
            "spec": { "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 6, "metrics": cpu } }))
            .await;
    }

    fn selector(&self, members: &[usize]) -> Value {
        let names: Vec<_> = members.iter().map(|at| self.members[*at].clone()).collect();
        let (key, values) =
            if names.is_empty() { (COLOUR, vec!["blue".to_owned()]) } else { ("kubernetes.io/metadata.name", names) };
        let mut all = vec![json!({ "key": key, "operator": "In", "values": values })];
        if members.is_empty() {
            // Members of this run alone.
            all.push(json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": self.members }));
        }
        json!({ "matchExpressions": all })
    }

    fn spec(&self, tier: &str) -> Value {
        json!({ "namespaceSelector": { "matchLabels": { "team": self.namespace } },
            "resourceSelectors": { "labelSelectors": [{ "matchLabels": { "tier": tier } }] } })
    }

    async fn write_other_policy(&self) {
        let mut spec = self.spec("b");
        spec["clusterSelector"] = self.selector(&[1, 2]);
        self.put_policy("b", spec).await;
    }

    /// Writes the first policy as it is to be.
    async fn write_policy(&self) {
        let policy = &self.policy;
        let mut spec = self.spec("a");
        spec["clusterSelector"] = self.selector(&policy.members);
        match policy.group_by {
            0 | 1 => {}
            2 => spec["groupBy"] = json!({ "labelKey": "app" }),
            _ => spec["groupBy"] = json!({ "namespace": true }),
        }
        match policy.form {
            Form::Whole => {}
            Form::Even => spec["spreadConstraints"] = json!({ "spreadMode": "Divide", "topologyKey": REGION }),
            Form::Duplicate => spec["spreadConstraints"] = json!({ "spreadMode": "Duplicate", "topologyKey": REGION }),
            Form::Shares(shares) => {
                let split: Vec<_> = REGIONS
                    .iter()
                    .zip(shares)
                    .map(|(region, share)| json!({ "topologyValue": region, "percentage": share }))
                    .collect();
                spec["spreadConstraints"] =
                    json!({ "spreadMode": "Divide", "topologyKey": REGION, "percentageSplit": split });
            }
        }
        if policy.ordered {
            spec["orderedClusterSelector"] =
                json!({ "matchExpressions": [{ "key": REGION, "operator": "In", "values": REGIONS }] });
        }
        if policy.failover {
            spec["failover"] = json!({ "enabled": true, "afterSeconds": 60 });
        }
        match policy.broken {
            1 => spec["failover"] = json!({ "enabled": true, "afterSeconds": 5 }),
            2 => spec["clusterSelector"]["matchExpressions"][0]["values"] = json!([]),
            _ => {}
        }
        spec["suspend"] = json!(policy.suspend);
        self.put_policy("a", spec).await;
    }

    async fn put_policy(&self, tier: &str, spec: Value) {
        let policies: Api<SchedulePolicy> = Api::all(self.client.clone());
        let name = format!("{}-{tier}", self.namespace);
        let mut policy: SchedulePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": { "name": name }, "spec": spec }))
        .unwrap();
        loop {
            let written = match policies.get_opt(&name).await.unwrap() {
                Some(found) => {
                    policy.metadata = found.metadata;
                    policies.replace(&name, &PostParams::default(), &policy).await
                }
                None => policies.create(&PostParams::default(), &policy).await,
            };
            match written {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) => {
                    return self.truth.tell(&self.namespace, &format!("refused: {}", status.message));
                }
                written => return drop(written.unwrap()),
            }
        }
    }

    /// Tells how many pods of `web` are owed from now on.
    fn want(&self) {
        let mut amount = if self.has_autoscaler { self.replicas.min(2) } else { self.replicas };
        match &self.direct {
            Some((ANNOTATION_CLUSTER, name)) if name.is_empty() || !self.is_calm => amount = 0,
            // A blocked name withholds its half.
            Some((ANNOTATION_SPREAD_ONTO, _)) if !self.is_calm => amount /= 2,
            Some(_) => {}
            None => {
                if let Form::Shares(shares) = self.policy.form {
                    let allowed = |at: &usize| self.policy.members.is_empty() || self.policy.members.contains(at);
                    let parts: Vec<_> = (0..3).filter(allowed).map(|at| shares[at]).collect();
                    let blocked = if self.is_calm { 0 } else { parts.iter().max().copied().unwrap_or(0) };
                    // Each share is rounded.
                    let whole = parts.iter().sum::<i64>();
                    let sure = amount * (whole - blocked) / 100;
                    amount = if whole == 100 && blocked == 0 { amount } else { (sure - 1).max(0) };
                }
            }
        }
        self.truth.want(&self.namespace, amount);
    }

    async fn mark<K>(&self, name: &str, key: &str, value: Option<&str>)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        self.patch::<K>(name, json!({ "metadata": { "annotations": { key: value } } })).await;
    }

    async fn edit_policy(&mut self, change: impl FnOnce(&mut Policy)) -> String {
        change(&mut self.policy);
        if self.policy.form == Form::Duplicate {
            self.truth.with(&self.namespace, |walked| walked.may_repeat = true);
        }
        self.want();
        if self.policy.is_there {
            self.write_policy().await;
        }
        format!("policy {:?}", self.policy)
    }

    /// Labels an object for the first policy, for the other one, or for none.
    async fn relabel(&mut self) -> String {
        let tier = ["a", "a", "b", "c"][self.random.random_range(0..4)];
        let change = json!({ "metadata": { "labels": { "tier": tier } } });
        let name = ["web", "web", "db", "disk", "claim", "once"][self.random.random_range(0..6)];
        match name {
            "db" => self.patch::<StatefulSet>("db", change).await,
            "claim" => self.patch::<PersistentVolumeClaim>("disk", change).await,
            "once" => self.patch::<Job>("once", change).await,
            _ => self.patch::<Deployment>(name, change).await,
        }
        if name == "web" {
            self.tier = tier;
            self.want();
        }
        format!("{name} has the tier {tier}")
    }

    /// Places `web` by an annotation of its own, or no more.
    async fn annotate(&mut self) -> String {
        let (one, two) = (self.random.random_range(0..3), self.random.random_range(0..3));
        let (one, two) = (self.members[one].clone(), self.members[two].clone());
        self.direct = match self.random.random_range(0..8) {
            0 | 1 => Some((ANNOTATION_CLUSTER, one)),
            2 => Some((ANNOTATION_CLUSTER, String::new())),
            3 | 4 if one != two => Some((ANNOTATION_SPREAD_ONTO, format!("{one},{two}"))),
            5 if one != two => Some((ANNOTATION_SPREAD_ONTO, format!("{one},{two}::Duplicate"))),
            _ => None,
        };
        self.want();
        let of = |key: &str| self.direct.as_ref().filter(|(at, _)| *at == key).map(|(_, value)| value.clone());
        let marks =
            json!({ ANNOTATION_CLUSTER: of(ANNOTATION_CLUSTER), ANNOTATION_SPREAD_ONTO: of(ANNOTATION_SPREAD_ONTO) });
        self.patch::<Deployment>("web", json!({ "metadata": { "annotations": marks } })).await;
        format!("web by annotation {:?}", self.direct)
    }

    async fn scale(&mut self) -> String {
        let replicas = self.random.random_range(2..8);
        // An edit of a suspended policy's object waits.
        let sure = if self.policy.suspend { self.replicas.min(replicas) } else { replicas };
        self.replicas = sure;
        self.want();
        self.replicas = replicas;
        self.patch::<Deployment>("web", json!({ "spec": { "replicas": replicas } })).await;
        format!("web has {replicas} replicas")
    }

    /// The next step of the walk; says what it was.
    pub(super) async fn step(&mut self) {
        self.steps += 1;
        let (kind, number) = (self.random.random_range(0..22), self.random.random_range(0..4));
        let form = choose_form(&mut self.random);
        let members = choose_members(&mut self.random);
        let said = match kind {
            0..=2 => self.relabel().await,
            3 => self.edit_policy(|policy| policy.group_by = number).await,
            4..=6 => self.edit_policy(|policy| policy.members = members).await,
            7..=9 => self.edit_policy(|policy| policy.form = form).await,
            10 => self.edit_policy(|policy| policy.broken = if policy.broken > 0 { 0 } else { 1 + number % 2 }).await,
            11 => self.edit_policy(|policy| policy.suspend = !policy.suspend).await,
            12 => self.edit_policy(|policy| policy.ordered = !policy.ordered).await,
            13 | 14 => self.remove_or_make_policy().await,
            15 | 16 => self.annotate().await,
            17 | 18 => self.scale().await,
            19 => {
                self.image += 1;
                let container = json!({ "name": "c", "image": format!("c:{}", self.image),
                    "resources": { "requests": { "cpu": "10m" } } });
                self.patch::<Deployment>(
                    "web",
                    json!({ "spec": { "template": { "spec": { "containers": [container] } } } }),
                )
                .await;
                format!("web has the image {}", self.image)
            }
            20 => {
                let value = format!("{}", self.random.random_range(0..1_000_000));
                if self.policy.is_there {
                    let policies: Api<SchedulePolicy> = Api::all(self.client.clone());
                    let change = json!({ "metadata": { "annotations": { ANNOTATION_REBALANCE: value } } });
                    let name = format!("{}-a", self.namespace);
                    policies.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
                }
                "rebalance".to_owned()
            }
            _ if number == 0 => {
                self.truth.with(&self.namespace, |walked| walked.has_consent = true);
                self.mark::<StatefulSet>("db", ANNOTATION_ALLOW_VOLUME_MOVE, Some("true")).await;
                self.mark::<PersistentVolumeClaim>("disk", ANNOTATION_ALLOW_VOLUME_MOVE, Some("true")).await;
                "volumes may move".to_owned()
            }
            _ if number == 1 && !self.has_autoscaler => {
                self.make_autoscaler().await;
                "web has an autoscaler".to_owned()
            }
            _ => {
                let at = self.random.random_range(0..3);
                let name = self.members[at].clone();
                let value = Some(name.as_str()).filter(|_| number == 2);
                self.mark::<StatefulSet>("db", ANNOTATION_CLUSTER, value).await;
                format!("db by annotation {value:?}")
            }
        };
        self.truth.tell(&self.namespace, &said);
    }

    async fn remove_or_make_policy(&mut self) -> String {
        let policies: Api<SchedulePolicy> = Api::all(self.client.clone());
        self.policy.is_there = !self.policy.is_there;
        if self.policy.is_there {
            self.write_policy().await;
            return "policy is made again".to_owned();
        }
        policies.delete(&format!("{}-a", self.namespace), &DeleteParams::default()).await.unwrap();
        "policy is deleted".to_owned()
    }

    /// Puts right what keeps the walk from coming to rest.
    pub(super) async fn calm_down(&mut self) {
        self.truth.with(&self.namespace, |walked| walked.stuck.clear());
        (self.policy.is_there, self.policy.broken, self.policy.suspend) = (true, 0, false);
        self.write_policy().await;
        if self.direct.as_ref().is_some_and(|(key, value)| *key == ANNOTATION_CLUSTER && value.is_empty()) {
            self.direct = None;
            self.mark::<Deployment>("web", ANNOTATION_CLUSTER, None).await;
        }
        self.want();
        self.truth.tell(&self.namespace, &format!("rest: tier {}, {:?}, {:?}", self.tier, self.direct, self.policy));
    }

    /// Deletes what the walk has made.
    pub(super) async fn end(&self) {
        self.truth.with(&self.namespace, |walked| walked.is_over = true);
        let (one, all) = (DeleteParams::background(), ListParams::default());
        let _ = self.api::<Deployment>().delete_collection(&one, &all).await;
        let _ = self.api::<StatefulSet>().delete_collection(&one, &all).await;
        let _ = self.api::<Job>().delete_collection(&one, &all).await;
        let _ = self.api::<HorizontalPodAutoscaler>().delete_collection(&one, &all).await;
        let _ = self.api::<PersistentVolumeClaim>().delete_collection(&one, &all).await;
        // No controller of the hub takes the guard of a claim away.
        let free = json!({ "metadata": { "finalizers": null } });
        let _ = self.api::<PersistentVolumeClaim>().patch("disk", &PatchParams::default(), &Patch::Merge(&free)).await;
        let policies: Api<SchedulePolicy> = Api::all(self.client.clone());
        for tier in ["a", "b"] {
            let _ = policies.delete(&format!("{}-{tier}", self.namespace), &one).await;
        }
        let _ = Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &one).await;
    }

    /// A number that the seed decides.
    pub(super) fn choose(&mut self, among: std::ops::Range<u64>) -> u64 {
        self.random.random_range(among)
    }

    /// Whether `web` is in a group with volumes, which keep it where it was.
    pub(super) fn is_held(&self) -> bool {
        self.direct.is_none() && self.policy.group_by == 3
    }

    /// Whether `web` belongs into one cluster.
    pub(super) fn is_whole(&self) -> bool {
        // With volumes in its group it stays where it was.
        self.direct.is_none()
            && self.policy.group_by < 3
            && (self.tier == "b" || self.tier == "a" && self.policy.form == Form::Whole)
    }

    /// Whether `web` has all of its replicas in each of its clusters.
    pub(super) fn is_duplicated(&self) -> bool {
        match &self.direct {
            Some((_, value)) => value.ends_with("::Duplicate"),
            None => self.tier == "a" && self.policy.form == Form::Duplicate,
        }
    }
}

fn choose_form(random: &mut StdRng) -> Form {
    match random.random_range(0..6) {
        0 | 1 => Form::Whole,
        2 => Form::Even,
        3 => Form::Shares([50, 30, 20]),
        4 => Form::Shares([0, 25, 75]),
        _ => Form::Duplicate,
    }
}

/// Returns one, two or three members; none: by the label.
fn choose_members(random: &mut StdRng) -> Vec<usize> {
    let chosen: Vec<_> = (0..3).filter(|_| random.random()).collect();
    if chosen.is_empty() && random.random() { vec![0, 1, 2] } else { chosen }
}
