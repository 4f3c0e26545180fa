//! The health of an installed control plane: its components in the hosting cluster, and what its own API holds.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::{Check, Finding, Severity};
use crate::api::Cluster;
use crate::api::SchedulePolicy;
use crate::api::keys::{BOOTSTRAP_STATUS, INIT_SECRET};
use crate::api::rights::{Right, Scope};

/// One component as its controller and pods show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Component {
    /// The object is there.
    pub installed: bool,
    /// Replicas asked for.
    pub wanted: i32,
    /// Replicas ready.
    pub ready: i32,
    /// The worst thing a pod of it says: a waiting reason or a phase, with the pod's name.
    pub trouble: Option<String>,
}

impl Component {
    /// `Running`, or in a few words what it is instead.
    pub fn state(&self) -> String {
        match self {
            Self { installed: false, .. } => "not installed".to_owned(),
            Self { wanted, ready, .. } if ready >= wanted && *wanted > 0 => "Running".to_owned(),
            Self { wanted: 0, .. } => "scaled to zero".to_owned(),
            Self { trouble: Some(trouble), .. } => trouble.clone(),
            Self { wanted, ready, .. } => format!("{ready} of {wanted} ready"),
        }
    }

    /// All replicas are ready.
    pub fn running(&self) -> bool {
        self.state() == "Running"
    }
}

/// A registered workload cluster in brief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its condition Ready is True.
    pub ready: bool,
    /// The reason of that condition.
    pub reason: String,
    /// Its Kubernetes version, as major.minor; empty before its agent reported.
    pub kubernetes_version: String,
    /// The version of its agent; empty before it reported.
    pub agent_version: String,
}

/// What the control plane's own API holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inside {
    /// Definitions by kind: established or not.
    pub definitions: BTreeMap<String, bool>,
    /// Registered workload clusters.
    pub members: Vec<Member>,
    /// Number of SchedulePolicies.
    pub policies: usize,
    /// The Secret that agents start from is there.
    pub init_secret: bool,
    /// What the scheduler says it could not apply.
    pub bootstrap_trouble: Option<String>,
    /// The version of the API server, in full.
    pub kubernetes_version: Option<String>,
}

/// From where a control plane is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// From the hosting cluster and by its own API.
    Both,
    /// From the hosting cluster only; its own API does not answer.
    HostingCluster,
    /// By its own API only; the hosting cluster does not answer, or not to us.
    ControlPlane,
    /// Not at all.
    Nothing,
}

/// All that the health checks look at.
#[derive(Debug, Clone)]
pub struct HealthFacts {
    /// Components by workload name, or why the hosting cluster was not looked at.
    pub components: Result<BTreeMap<&'static str, Component>, String>,
    /// The control plane's API, or why it could not be read.
    pub inside: Result<Inside, String>,
}

impl HealthFacts {
    /// From where the facts are.
    pub fn view(&self) -> View {
        match (&self.components, &self.inside) {
            (Ok(_), Ok(_)) => View::Both,
            (Ok(_), Err(_)) => View::HostingCluster,
            (Err(_), Ok(_)) => View::ControlPlane,
            (Err(_), Err(_)) => View::Nothing,
        }
    }
}

/// The check that says whether the hosting cluster was looked at.
pub const HOSTING: &str = "hosting-cluster";

/// Workload names of the components, in the order in which they are reported, with their titles.
pub const COMPONENTS: [(&str, &str); 4] = [
    ("apiserver", "API server"),
    ("kube-controller-manager", "kube-controller-manager"),
    ("etcd", "etcd"),
    ("fleet-scheduler", "scheduler"),
];

/// The definitions that an install brings, in the order in which they are reported.
pub const DEFINITIONS: [&str; 3] = ["Cluster", "SchedulePolicy", "ScheduleGroup"];

fn selector_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    labels.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn pod_trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let waiting = containers.into_iter().flatten().flatten().find_map(|container| {
        let reason = container.state.as_ref()?.waiting.as_ref()?.reason.clone()?;
        (!matches!(reason.as_str(), "ContainerCreating" | "PodInitializing")).then_some(reason)
    });
    let ready = status.container_statuses.iter().flatten().all(|container| container.ready);
    let word = waiting.or_else(|| status.phase.clone().filter(|phase| phase != "Running" || !ready))?;
    let word = if word == "Running" { "not ready".to_owned() } else { word };
    Some(format!("{word} (pod {})", pod.name_any()))
}

async fn component(
    pods: &Api<Pod>,
    selector: Option<&LabelSelector>,
    wanted: Option<i32>,
    ready: Option<i32>,
) -> Result<Component, kube::Error> {
    let mut component =
        Component { installed: true, wanted: wanted.unwrap_or(1), ready: ready.unwrap_or(0), trouble: None };
    if let Some(selector) = selector.filter(|_| component.ready < component.wanted) {
        let list = pods.list(&ListParams::default().labels(&selector_text(selector))).await?;
        component.trouble = list.iter().find_map(pod_trouble);
    }
    Ok(component)
}

/// Reads the components from the hosting cluster.
pub async fn components(hosting: &Client, namespace: &str) -> Result<BTreeMap<&'static str, Component>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(hosting.clone(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(hosting.clone(), namespace);
    let stateful: Api<StatefulSet> = Api::namespaced(hosting.clone(), namespace);
    let one = |name: &'static str| {
        let (pods, deployments, stateful) = (&pods, &deployments, &stateful);
        async move {
            let found = if name == "etcd" {
                stateful.get_opt(name).await?.map(|set| {
                    let ready = set.status.as_ref().and_then(|s| s.ready_replicas);
                    let spec = set.spec.unwrap_or_default();
                    (Some(spec.selector), spec.replicas, ready)
                })
            } else {
                deployments.get_opt(name).await?.map(|deployment| {
                    let ready = deployment.status.as_ref().and_then(|s| s.ready_replicas);
                    let spec = deployment.spec.unwrap_or_default();
                    (Some(spec.selector), spec.replicas, ready)
                })
            };
            let component = match found {
                Some((selector, wanted, ready)) => component(pods, selector.as_ref(), wanted, ready).await?,
                None => Component::default(),
            };
            Ok::<_, kube::Error>((name, component))
        }
    };
    let found = futures::future::try_join_all(COMPONENTS.iter().map(|(name, _)| one(name))).await?;
    Ok(found.into_iter().collect())
}

/// The rights that [`components`] needs in the hosting cluster, and that the choice of a control plane by name needs.
pub fn rights() -> Vec<Right> {
    [
        Right::needed(Scope::Namespace, "apps", "statefulsets", &["get", "list"]),
        Right::needed(Scope::Namespace, "apps", "deployments", &["get"]),
        Right::needed(Scope::Namespace, "", "pods", &["list"]),
    ]
    .concat()
}

fn established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Established" && c.status == "True")
}

fn member(cluster: &Cluster) -> Member {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let observed = cluster.status.as_ref().and_then(|status| status.observed.as_ref());
    Member {
        name: cluster.name_any(),
        ready: ready.is_some_and(|condition| condition.status == "True"),
        reason: ready.map_or("never reported", |condition| condition.reason.as_str()).to_owned(),
        kubernetes_version: cluster.spec.kubernetesversion.clone(),
        agent_version: observed.map(|observed| observed.agent_version.clone()).unwrap_or_default(),
    }
}

/// Reads what the control plane's own API holds.
pub async fn inside(hub: &Client, namespace: &str) -> Result<Inside, kube::Error> {
    let all = ListParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(hub.clone());
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), namespace);
    let reports: Api<ConfigMap> = Api::namespaced(hub.clone(), namespace);
    let version = async { Ok(hub.apiserver_version().await.ok()) };
    let (definitions, secret, report, version) = tokio::try_join!(
        definitions.list(&all),
        secrets.get_opt(INIT_SECRET),
        reports.get_opt(BOOTSTRAP_STATUS),
        version
    )?;
    let mut inside = Inside {
        kubernetes_version: version.map(|version| version.git_version),
        init_secret: secret.is_some(),
        bootstrap_trouble: report.as_ref().and_then(bootstrap_trouble),
        ..Inside::default()
    };
    for kind in DEFINITIONS {
        let found =
            definitions.iter().find(|d| d.spec.names.kind == kind && d.spec.group.ends_with(".fleet-scheduler.io"));
        inside.definitions.insert(kind.to_owned(), found.is_some_and(established));
    }
    if inside.definitions.get("Cluster") == Some(&true) {
        inside.members = Api::<Cluster>::all(hub.clone()).list(&all).await?.iter().map(member).collect();
    }
    if inside.definitions.get("SchedulePolicy") == Some(&true) {
        inside.policies = Api::<SchedulePolicy>::all(hub.clone()).list_metadata(&all).await?.items.len();
    }
    Ok(inside)
}

fn bootstrap_trouble(report: &ConfigMap) -> Option<String> {
    let text = report.data.as_ref()?.get("conditions")?;
    let conditions: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Bootstrapped")?;
    (condition["status"] != "True").then(|| condition["message"].as_str().unwrap_or("no reason given").to_owned())
}

fn component_check(facts: &HealthFacts, name: &str) -> Finding {
    let Ok(components) = &facts.components else { return Finding::Unseen(HOSTING) };
    match components.get(name) {
        Some(component) if component.running() => Finding::Good(component.state()),
        Some(component) => Finding::bad(component.state(), "see the causes below, or the events of its pods"),
        None => Finding::bad("not looked at", "report this as a fault of the program"),
    }
}

fn definition_check(facts: &HealthFacts, kind: &str) -> Finding {
    match &facts.inside {
        Err(error) => Finding::bad(format!("unknown: {error}"), "see whether the API server is reachable from here"),
        Ok(inside) => match (inside.definitions.get(kind), &inside.bootstrap_trouble) {
            (Some(true), _) => Finding::Good("installed".to_owned()),
            (_, Some(trouble)) => Finding::bad(format!("not installed: {trouble}"), "see the log of fleet-scheduler"),
            _ => Finding::bad("not installed", "see the log of fleet-scheduler, which installs it"),
        },
    }
}

/// The health checks of a control plane, in the order in which they are shown.
pub const CHECKS: [Check<HealthFacts>; 11] = [
    Check {
        id: HOSTING,
        title: "hosting cluster",
        category: "components",
        severity: Severity::Warning,
        needs: &[],
        evaluate: hosting,
    },
    Check {
        id: "apiserver",
        title: "API server",
        category: "components",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| component_check(f, "apiserver"),
    },
    Check {
        id: "controller-manager",
        title: "kube-controller-manager",
        category: "components",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| component_check(f, "kube-controller-manager"),
    },
    Check {
        id: "etcd",
        title: "etcd",
        category: "components",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| component_check(f, "etcd"),
    },
    Check {
        id: "scheduler",
        title: "scheduler",
        category: "components",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| component_check(f, "fleet-scheduler"),
    },
    Check {
        id: "definition-cluster",
        title: "Cluster",
        category: "definitions",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| definition_check(f, "Cluster"),
    },
    Check {
        id: "definition-schedulepolicy",
        title: "SchedulePolicy",
        category: "definitions",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| definition_check(f, "SchedulePolicy"),
    },
    Check {
        id: "definition-schedulegroup",
        title: "ScheduleGroup",
        category: "definitions",
        severity: Severity::Error,
        needs: &[],
        evaluate: |f| definition_check(f, "ScheduleGroup"),
    },
    Check {
        id: "init-secret",
        title: "agents' init Secret",
        category: "definitions",
        severity: Severity::Error,
        needs: &["definition-cluster"],
        evaluate: init_secret,
    },
    Check {
        id: "clusters",
        title: "workload clusters",
        category: "fleet",
        severity: Severity::Warning,
        needs: &["definition-cluster"],
        evaluate: clusters,
    },
    Check {
        id: "policies",
        title: "schedule policies",
        category: "fleet",
        severity: Severity::Warning,
        needs: &["definition-schedulepolicy"],
        evaluate: policies,
    },
];

fn hosting(facts: &HealthFacts) -> Finding {
    match &facts.components {
        Ok(_) => Finding::Good("answers".to_owned()),
        Err(why) => Finding::bad(format!("not looked at: {why}"), "give `--context` of the hosting cluster"),
    }
}

fn init_secret(facts: &HealthFacts) -> Finding {
    match &facts.inside {
        Ok(inside) if inside.init_secret => Finding::Good(format!("Secret {INIT_SECRET} is there")),
        _ => Finding::bad(format!("Secret {INIT_SECRET} is missing"), "see the log of fleet-scheduler, which makes it"),
    }
}

fn clusters(facts: &HealthFacts) -> Finding {
    let members = facts.inside.as_ref().map(|inside| inside.members.as_slice()).unwrap_or_default();
    if members.is_empty() {
        return Finding::bad(
            "0 workload clusters connected",
            "register one with `fleetctl install agent NAME --context CONTEXT`",
        );
    }
    let unready: Vec<String> =
        members.iter().filter(|m| !m.ready).map(|m| format!("{} ({})", m.name, m.reason)).collect();
    if unready.is_empty() {
        return Finding::Good(format!("{} connected and ready", members.len()));
    }
    Finding::bad(
        format!("{} of {} workload clusters not ready: {}", unready.len(), members.len(), unready.join(", ")),
        "read the agent's log there: `kubectl logs -l app.kubernetes.io/name=fleet-agent`",
    )
}

fn policies(facts: &HealthFacts) -> Finding {
    match facts.inside.as_ref().map_or(0, |inside| inside.policies) {
        0 => Finding::bad("0 schedule policies defined", "nothing is placed before there is a SchedulePolicy"),
        n => Finding::Good(format!("{n} defined")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Verdict, run};

    fn healthy() -> HealthFacts {
        let running = Component { installed: true, wanted: 1, ready: 1, trouble: None };
        let inside = Inside {
            definitions: DEFINITIONS.iter().map(|kind| ((*kind).to_owned(), true)).collect(),
            members: vec![Member {
                name: "m".to_owned(),
                ready: true,
                reason: "ClusterReady".to_owned(),
                kubernetes_version: "1.29".to_owned(),
                agent_version: "v0.6.1".to_owned(),
            }],
            policies: 1,
            init_secret: true,
            bootstrap_trouble: None,
            kubernetes_version: Some("v1.25.4".to_owned()),
        };
        HealthFacts {
            components: Ok(COMPONENTS.iter().map(|(name, _)| (*name, running.clone())).collect()),
            inside: Ok(inside),
        }
    }

    #[test]
    fn a_healthy_control_plane_passes_every_check() {
        let report = run(&CHECKS, &healthy(), &[]);
        assert!(report.judged.iter().all(|j| matches!(j.verdict, Verdict::Passed(_))), "{report:?}");
    }

    #[test]
    fn no_clusters_and_no_policies_are_warnings_not_failures() {
        let mut facts = healthy();
        facts.inside = facts.inside.map(|inside| Inside { members: Vec::new(), policies: 0, ..inside });
        let report = run(&CHECKS, &facts, &[]);
        assert_eq!((report.failures().count(), report.warnings().count()), (0, 2));
    }

    #[test]
    fn a_component_that_is_not_ready_fails_with_what_its_pod_says() {
        let mut facts = healthy();
        let components = facts.components.as_mut().unwrap();
        let etcd = components.get_mut("etcd").unwrap();
        etcd.ready = 0;
        etcd.trouble = Some("Pending (pod etcd-0)".to_owned());
        let report = run(&CHECKS, &facts, &[]);
        let failed: Vec<_> = report.failures().map(|(j, p)| (j.id, p.what.as_str())).collect();
        assert_eq!(failed, [("etcd", "Pending (pod etcd-0)")]);
    }

    #[test]
    fn without_the_hosting_cluster_what_is_inside_is_judged_and_the_components_are_skipped() {
        let mut facts = healthy();
        facts.components = Err("no route to host".to_owned());
        let report = run(&CHECKS, &facts, &[]);
        assert_eq!((facts.view(), report.failures().count(), report.warnings().count()), (View::ControlPlane, 0, 1));
        let skipped: Vec<_> =
            report.judged.iter().filter(|j| j.verdict == Verdict::Skipped(HOSTING)).map(|j| j.id).collect();
        assert_eq!(skipped, ["apiserver", "controller-manager", "etcd", "scheduler"]);
        assert!(report.judged.iter().any(|j| j.id == "definition-cluster" && matches!(j.verdict, Verdict::Passed(_))));
    }

    #[test]
    fn an_unreachable_api_fails_its_definitions_and_skips_what_needs_them() {
        let mut facts = healthy();
        facts.inside = Err("connection refused".to_owned());
        let report = run(&CHECKS, &facts, &[]);
        assert_eq!((facts.view(), report.failures().count()), (View::HostingCluster, 3));
        assert!(report.judged.iter().any(|j| j.id == "clusters" && matches!(j.verdict, Verdict::Skipped(_))));
    }
}
