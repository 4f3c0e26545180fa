//! Two agents in one cluster, of two fleets: each has its own rights, and removing one leaves the other whole.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Engine, Options, Planned, Removal};
use fleetctl::chart::patch::Patches;
use fleetctl::chart::versions::select::{Request, select_row};
use fleetctl::chart::{Kind as ChartKind, embedded_versions};
use fleetctl::install::release_spec::load_chart;
use fleetctl::inventory::Owner;
use fleetctl::k8s::{Events, ObjectRef};
use fleetctl::workload_cluster::charts::agent_charts;
use fleetctl::workload_cluster::plan::{OWNER_KIND, Plan};
use kube::Client;
use serde_json::{Value, json};

use super::support::{among_others, client, unique};

/// The agent of a fleet; both fleets know the cluster by the same name.
struct Agent {
    namespace: String,
    engine: Engine,
    plan: Plan,
}

impl Agent {
    fn new(client: &Client, namespace: &str) -> Self {
        let selection =
            select_row(embedded_versions(), Request { version: Some("v0.6"), image_tag: None, server: None }).unwrap();
        let chart = load_chart(ChartKind::Agent, &selection).unwrap();
        let values = chart.values_builder();
        let (name, place) = ("west".parse().unwrap(), namespace.parse().unwrap());
        let charts = agent_charts(&name, &place, client, &Patches::default());
        let options =
            Options { charts, deadline: Some(Instant::now() + Duration::from_secs(120)), ..Options::default() };
        let owner = Owner::new(OWNER_KIND, "west", namespace);
        let engine = Engine::new(client.clone(), owner, options, Events::none());
        let plan = Plan::new(name, place, &selection, chart, values).unwrap();
        Self { namespace: namespace.to_owned(), engine, plan }
    }

    fn planned(&self) -> Vec<Planned> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        Plan::plan_agent_objects(vec![namespace], &self.plan.render_agent().unwrap().objects)
    }

    async fn install(&self, planned: &[Planned]) {
        let release = self.plan.agent_release("https://192.0.2.1:6443");
        let plan = self.engine.plan_install(&release, planned).await.unwrap();
        let mut run = self.engine.begin_run(plan).await.unwrap();
        run.apply_all_stages().await.unwrap();
        run.commit_run().await.unwrap();
    }

    /// The uid of each object of the agent that is there.
    async fn uids(&self, planned: &[Planned]) -> BTreeMap<ObjectRef, String> {
        let mut uids = BTreeMap::new();
        for object in planned.iter().filter_map(|planned| ObjectRef::of(&planned.object)) {
            if let Some(live) = self.get(&object).await {
                uids.insert(object, live["metadata"]["uid"].as_str().unwrap().to_owned());
            }
        }
        uids
    }

    async fn get(&self, object: &ObjectRef) -> Option<Value> {
        let kind = Kind::needed_versions(&object.group, &object.kind).remove(0);
        self.engine.server().get_object(&kind, object.namespace.as_deref(), &object.name).await.unwrap()
    }

    async fn remove(&self) {
        let removal = Removal { delete_data: true, ..Removal::default() };
        let removed = self.engine.uninstall(removal).await.unwrap();
        assert!(removed.leftovers.is_empty() && removed.kept.is_empty(), "{removed:?}");
    }
}

fn role(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    let kind = Kind::needed_versions("rbac.authorization.k8s.io", kind).remove(0);
    ObjectRef::new(&kind, namespace, name)
}

#[tokio::test]
async fn two_agents_in_a_cluster_have_their_own_rights_and_leave_one_another_whole() {
    let _turn = among_others().await;
    let (client, _) = client().await;
    let [one, two] = ["one", "two"].map(|name| Agent::new(&client, &unique("a", name)));
    for agent in [&one, &two] {
        agent.install(&agent.planned()).await;
    }
    for agent in [&one, &two] {
        let name = format!("fleet-agent-{}", agent.namespace);
        for binding in [role("ClusterRoleBinding", None, &name), role("RoleBinding", Some("kube-system"), &name)] {
            let live = agent.get(&binding).await.unwrap_or_else(|| panic!("{binding}"));
            assert_eq!(live["subjects"][0]["namespace"], agent.namespace, "{binding}");
            assert_eq!(live["roleRef"]["name"], name, "{binding}");
        }
    }
    let before = two.uids(&two.planned()).await;
    assert_eq!(before.len(), two.planned().len());
    one.remove().await;
    assert!(one.uids(&one.planned()).await.is_empty());
    assert_eq!(two.uids(&two.planned()).await, before, "the other agent is whole");
    two.remove().await;
}

#[tokio::test]
async fn an_upgrade_takes_the_names_without_a_namespace_away() {
    let _turn = among_others().await;
    let (client, _) = client().await;
    let agent = Agent::new(&client, &unique("a", "old"));
    let now = agent.planned();
    // As builds before this one have named them.
    let (long, short) = (format!("fleet-agent-{}", agent.namespace), "fleet-agent");
    let rename = |planned: &Planned| {
        let text = planned.object.to_string().replace(&long, short);
        Planned { object: serde_json::from_str(&text).unwrap(), ..planned.clone() }
    };
    let before: Vec<Planned> = now.iter().map(rename).collect();
    agent.install(&before).await;
    let shared = [
        role("ClusterRole", None, short),
        role("ClusterRoleBinding", None, short),
        role("Role", Some("kube-system"), short),
        role("RoleBinding", Some("kube-system"), short),
    ];
    for object in &shared {
        assert!(agent.get(object).await.is_some(), "{object}");
    }
    agent.install(&now).await;
    for object in &shared {
        assert!(agent.get(object).await.is_none(), "{object} is left");
    }
    assert_eq!(agent.uids(&now).await.len(), now.len());
    agent.remove().await;
}
