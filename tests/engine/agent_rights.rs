//! The roles that `show rbac agent` prints: enough for an install and a removal, and when a right is missing it is named.

use std::time::{Duration, Instant};

use fleetctl::api::labels::{INIT_SECRET, INIT_SECRET_KEY};
use fleetctl::api::rbac::{Right, Scope, build_rules};
use fleetctl::api::registration::{ANNOTATION_STATE, IDENTITY_SECRET, Registration, state};
use fleetctl::apply::{Engine, Options, Removal};
use fleetctl::chart::patch::Patches;
use fleetctl::chart::versions::select::{Request, select_row};
use fleetctl::chart::{Kind, embedded_versions};
use fleetctl::check::workload::{InitFacts, WorkloadFacts};
use fleetctl::install::release_spec::load_chart;
use fleetctl::k8s::Events;
use fleetctl::workload_cluster::charts::agent_charts;
use fleetctl::workload_cluster::plan::Plan;
use fleetctl::workload_cluster::probe::{self, Probed};
use fleetctl::workload_cluster::rbac::{Rights, build_agent_roles, list_agent_rights};
use fleetctl::workload_cluster::registration::Identity;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::RwLockReadGuard;

use super::rights::{apply, binding, chain, forget, unique, user};
use super::support::{among_others, client_of, kubeconfig};

/// An agent that is to come and go by the rights of a user who has no others.
struct Case {
    name: String,
    plan: Plan,
    rights: Rights,
    client: Client,
    admin: Client,
    _turn: RwLockReadGuard<'static, ()>,
}

fn plan(name: &str) -> Plan {
    let selection =
        select_row(embedded_versions(), Request { version: Some("v0.6"), image_tag: None, server: None }).unwrap();
    let chart = load_chart(Kind::Agent, &selection).unwrap();
    let values = chart.values_builder();
    Plan::new(name.parse().unwrap(), name.parse().unwrap(), &selection, chart, values).unwrap()
}

impl Case {
    async fn new(name: &str) -> Self {
        let turn = among_others().await;
        let name = unique(name);
        let plan = plan(&name);
        let rights = list_agent_rights(&plan).unwrap();
        let client = user(&name).await;
        let admin = client_of(Kubeconfig::read_from(kubeconfig()).unwrap()).await.0;
        Self { name, plan, rights, client, admin, _turn: turn }
    }

    fn engine(&self, client: &Client) -> Engine {
        let options = Options {
            deadline: Some(Instant::now() + Duration::from_secs(120)),
            charts: agent_charts(&self.plan.name, &self.plan.package.namespace, client, &Patches::default()),
            ..Options::default()
        };
        Engine::new(client.clone(), self.plan.package.owner(), options, Events::none())
    }

    /// Gives the user rights and rules in the whole cluster, so that the namespace can come and go.
    fn grant<'r>(&self, own: impl IntoIterator<Item = &'r Right>, granted: impl FnMut(&&Value) -> bool) {
        let mut rules = build_rules(own);
        rules.extend(self.rights.granted.values().flatten().filter(granted).cloned());
        apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": self.name}, "rules": rules}));
        apply(&binding("ClusterRoleBinding", &self.name, None));
    }

    /// Everything that install and uninstall ask of the workload cluster, but for waiting: no pod ever runs here, and
    /// what an agent would say is said by the administrator. Whether the namespace is gone at the end.
    async fn life(&self) -> Result<bool, String> {
        let (client, namespace) = (&self.client, self.plan.package.namespace.as_str());
        let engine = self.engine(client);
        let rendered = self.plan.render_agent().unwrap().objects;
        let mut wanted = self.plan.build_wanted_agent(&rendered);
        wanted.copies = true;
        wanted.writes.push((String::new(), "namespaces".to_owned(), false));
        let facts = WorkloadFacts::from_workload_cluster(client, None, InitFacts::Missing, wanted)
            .await
            .map_err(|e| chain(&e))?;
        if !facts.forbidden.is_empty() {
            return Err(format!("you may not {}", facts.forbidden.join(", ")));
        }
        let first = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": INIT_SECRET, "namespace": namespace},
                "type": "Opaque", "data": {INIT_SECRET_KEY: ""}}),
        ];
        let whole = Plan::plan_agent_objects(first, &rendered);
        let release = self.plan.agent_release("https://192.0.2.1:6443");
        let compared = engine.plan_install(&release, &whole).await.map_err(|e| chain(&e))?;
        let mut run = engine.begin_run(compared).await.map_err(|e| chain(&e))?;
        if let Err(error) = run.apply_all_stages().await {
            let _ = run.release_run().await;
            return Err(chain(&error));
        }
        let around = self.around(&rendered.iter().find(|object| object.kind() == "Deployment").unwrap().json).await;
        run.commit_run().await.map_err(|e| chain(&e))?;
        around?;
        assert!(engine.plan_install(&release, &whole).await.map_err(|e| chain(&e))?.is_noop());

        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        assert!(deployments.get_opt("fleet-agent").await.map_err(|e| chain(&e))?.is_some());
        probe::remove_probe_pod(client, namespace).await.map_err(|e| chain(&e))?;
        let removed = engine.uninstall(Removal::default()).await.map_err(|e| chain(&e))?;
        assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
        let left =
            self.engine(&self.admin).find_orphaned_objects(&removed.kept).await.map_err(|e| chain(&e))?.leftovers;
        assert!(left.is_empty(), "the user saw less than there is: {left:?}");
        Ok(removed.kept.is_empty())
    }

    /// The probe, and the talk with the agent at its identity Secret.
    async fn around(&self, deployment: &Value) -> Result<(), String> {
        let (client, namespace) = (&self.client, self.plan.package.namespace.as_str());
        match probe::run_probe(client, deployment, Duration::from_millis(1500)).await.map_err(|e| chain(&e))? {
            Probed::Unknown(why) if why.contains("did not finish") => {}
            Probed::Unknown(why) => return Err(why),
            Probed::Said(outcome) => panic!("no pod runs here: {outcome:?}"),
        }
        let identity = Identity::new(client, namespace);
        identity.observe_identity().await.map_err(|e| chain(&e))?;
        let word = Registration {
            state: state::READY.to_owned(),
            reason: "R".to_owned(),
            message: String::new(),
            at: String::new(),
        };
        let said = json!({"metadata": {"annotations": {ANNOTATION_STATE: serde_json::to_string(&word).unwrap()}}});
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), namespace);
        secrets.patch(IDENTITY_SECRET, &PatchParams::default(), &Patch::Merge(said)).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(5), identity.wait_until_cluster_ready(None, |_| {})).await;
        heard.map_err(|_| "the agent's word is not heard".to_owned())?;
        for leave in [true, false] {
            identity.ask_to_leave(leave).await.map_err(|e| chain(&e))?;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let agents = ListParams::default().labels("app.kubernetes.io/name=fleet-agent");
        pods.delete_collection(&DeleteParams::default(), &agents).await.map_err(|e| chain(&e))?;
        Ok(())
    }

    /// Takes away what is left of the agent and of the user.
    async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let engine = self.engine(&self.admin);
        engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
        let _ = namespaces.delete(&self.name, &DeleteParams::background()).await;
        forget(&self.name);
    }
}

#[tokio::test]
async fn the_printed_roles_are_enough_in_a_namespace_that_is_there() {
    let case = Case::new("agent").await;
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}}));
    for mut role in build_agent_roles(&case.plan, &case.rights) {
        assert_eq!(role["metadata"]["name"], format!("fleetctl-agent-{0}:{0}", case.name));
        role["metadata"]["name"] = case.name.clone().into();
        apply(&role);
        let kind = format!("{}Binding", role["kind"].as_str().unwrap());
        apply(&binding(&kind, &case.name, role["metadata"]["namespace"].as_str()));
    }
    let gone = case.life().await;
    let elsewhere = bed::Bed::here().unwrap();
    for kind in ["role", "rolebinding"] {
        elsewhere.kubectl(&super::support::cluster(), &["-n", "kube-system", "delete", kind, &case.name]).unwrap();
    }
    case.end().await;
    assert_eq!(gone, Ok(false), "the namespace was there before");
}

#[tokio::test]
async fn with_all_rights_everywhere_the_namespace_comes_and_goes_and_without_the_optional_ones_it_stays() {
    for (name, gone) in [("agent-all", true), ("agent-few", false)] {
        let case = Case::new(name).await;
        case.grant(case.rights.own.iter().filter(|right| gone || !right.optional), |_| true);
        let outcome = case.life().await;
        case.end().await;
        assert_eq!(outcome, Ok(gone));
    }
}

/// Whether a rule that the agent is given covers a right already.
fn is_covered(right: &Right, granted: &Value) -> bool {
    let has = |key: &str, wanted: &str| granted[key].as_array().is_some_and(|all| all.contains(&json!(wanted)));
    granted.get("resourceNames").is_none()
        && has("apiGroups", &right.group)
        && has("resources", &right.resource)
        && has("verbs", right.verb)
}

/// What the life of an agent says without one right.
async fn without(right: &Right) {
    let case = Case::new("agent-less").await;
    // Here all hold in the whole cluster, wherever else they are needed.
    let same =
        |other: &Right| (&other.group, &other.resource, other.verb) == (&right.group, &right.resource, right.verb);
    let hides = |other: &Right| same(other) || other.resource == "*" && right.verb == "list";
    case.grant(case.rights.own.iter().filter(|other| !hides(other)), |_| true);
    let outcome = case.life().await;
    case.end().await;
    let error = outcome.expect_err(&format!("it does without {right:?}"));
    let long = format!("cannot {} resource \"{}\"", right.verb, right.resource);
    let short = format!("{} {}", right.verb, right.resource);
    assert!(error.contains(&long) || error.contains(&short), "{right:?}: {error}");
}

/// The rights that the program needs, that no rule for the agent covers, and whose lack the server can tell.
fn needed() -> Vec<Right> {
    let Rights { own, granted, .. } = list_agent_rights(&plan("any")).unwrap();
    let own = own.into_iter().filter(|right| !right.optional);
    let own = own.filter(|right| !granted.values().flatten().any(|rule| is_covered(right, rule)));
    own.filter(|right| {
        let known = (right.resource.as_str(), right.verb);
        // Without a watch the agent's word is not heard, and nobody says why; claims are deleted where there are some,
        // and single pods looked at until they are gone.
        let silent = [
            ("secrets", "list"),
            ("secrets", "watch"),
            ("persistentvolumeclaims", "get"),
            ("persistentvolumeclaims", "delete"),
            ("pods", "get"),
        ];
        !silent.contains(&known)
    })
    .collect()
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_named() {
    let some = [("clusterroles", "create"), ("rolebindings", "list"), ("pods", "deletecollection")];
    let all = needed();
    for wanted in some {
        let right = all.iter().find(|right| (right.resource.as_str(), right.verb) == wanted);
        without(right.unwrap_or_else(|| panic!("{wanted:?}"))).await;
    }
    let scopes = [Scope::Cluster, Scope::Namespace, Scope::Elsewhere];
    assert!(scopes.iter().all(|scope| all.iter().any(|right| right.scope == *scope)));
}

#[tokio::test]
async fn what_the_agent_may_do_has_to_be_granted_to_whoever_installs_it() {
    for resource in ["nodes", "secrets", "configmaps"] {
        let case = Case::new("agent-rule").await;
        let others = |rule: &&Value| !rule["resources"].as_array().is_some_and(|all| all.contains(&json!(resource)));
        case.grant(&case.rights.own, others);
        let outcome = case.life().await;
        case.end().await;
        let error = outcome.expect_err(resource);
        assert!(error.contains("attempting to grant RBAC permissions not currently held"), "{resource}: {error}");
    }
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn every_right_is_needed_and_is_named_when_it_is_taken_away() {
        for right in needed() {
            without(&right).await;
        }
    }
}
