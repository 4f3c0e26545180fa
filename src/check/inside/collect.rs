//! Facts that the checks of a control plane's health look at, read from both sides.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, PodSpec, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;

use super::own_api::{self, Definition};
use super::{COMPONENTS, Component, DEFINITIONS, Groups, Inside, Member};
use crate::api::crd::cluster::DataWithoutSchedule;
use crate::api::crd::cluster::conditions::READY;
use crate::api::crd::group::conditions::SCHEDULED;
use crate::api::crd::policy::conditions::KINDS_PLACED;
use crate::api::deletion_hold::DeletionHold;
use crate::api::labels::{BOOTSTRAP_STATUS, INIT_SECRET};
use crate::api::lenient::field;
use crate::api::mass_loss::{self, MassLossRecord};
use crate::api::mass_removal::RemovalRecord;
use crate::api::partial_list::{self, Age};
use crate::api::rbac::{Right, Scope};
use crate::api::{Cluster, ScheduleGroup, SchedulePolicy};
use crate::k8s::connect::init_kubeconfig::Init;

/// Suffix of the names of the API groups that an install brings.
const GROUPS: &str = ".fleet-scheduler.io";

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

/// Parts of a workload from which a [`Component`] is made.
struct Counted {
    selector: LabelSelector,
    wanted: Option<i32>,
    ready: Option<i32>,
    updated: Option<i32>,
    /// Pods, be they of the newest template or not.
    all: i32,
    /// The controller has seen the newest template.
    is_observed: bool,
    arguments: Vec<String>,
}

/// Command and arguments of the first container.
fn container_arguments(pod: Option<PodSpec>) -> Vec<String> {
    let container = pod.and_then(|pod| pod.containers.into_iter().next()).unwrap_or_default();
    container.command.into_iter().flatten().chain(container.args.into_iter().flatten()).collect()
}

async fn read_component(pods: &Api<Pod>, counted: Counted) -> Result<Component, kube::Error> {
    let Counted { selector, wanted, ready, updated, all, is_observed, arguments } = counted;
    let (wanted, updated) = (wanted.unwrap_or(1), updated.unwrap_or(0));
    let mut component = Component {
        installed: true,
        wanted,
        ready: ready.unwrap_or(0),
        updated: is_observed && updated >= wanted && all <= updated,
        trouble: None,
        arguments,
    };
    if !component.is_rolled_out() {
        let list = pods.list(&ListParams::default().labels(&selector_text(&selector))).await?;
        component.trouble = list.iter().find_map(pod_trouble);
    }
    Ok(component)
}

/// Reads the components from the hosting cluster.
pub async fn read_components(
    hosting: &Client,
    namespace: &str,
) -> Result<BTreeMap<&'static str, Component>, kube::Error> {
    let found = futures::future::try_join_all(
        COMPONENTS.iter().map(|(name, _)| read_named_component(hosting, namespace, name)),
    )
    .await?;
    Ok(found.into_iter().collect())
}

async fn read_named_component(
    hosting: &Client,
    namespace: &str,
    name: &'static str,
) -> Result<(&'static str, Component), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(hosting.clone(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(hosting.clone(), namespace);
    let stateful: Api<StatefulSet> = Api::namespaced(hosting.clone(), namespace);
    let found = if name == "etcd" {
        stateful.get_opt(name).await?.map(|set| {
            let (spec, status) = (set.spec.unwrap_or_default(), set.status.unwrap_or_default());
            Counted {
                selector: spec.selector,
                wanted: spec.replicas,
                ready: status.ready_replicas,
                updated: status.updated_replicas,
                all: status.replicas,
                is_observed: status.observed_generation >= set.metadata.generation,
                arguments: container_arguments(spec.template.spec),
            }
        })
    } else {
        deployments.get_opt(name).await?.map(|deployment| {
            let (spec, status) = (deployment.spec.unwrap_or_default(), deployment.status.unwrap_or_default());
            Counted {
                selector: spec.selector,
                wanted: spec.replicas,
                ready: status.ready_replicas,
                updated: status.updated_replicas,
                all: status.replicas.unwrap_or(0),
                is_observed: status.observed_generation >= deployment.metadata.generation,
                arguments: container_arguments(spec.template.spec),
            }
        })
    };
    let component = match found {
        Some(counted) => read_component(&pods, counted).await?,
        None => Component::default(),
    };
    Ok((name, component))
}

/// The rights that [`read_components`] needs in the hosting cluster, and that the choice of a control plane by name needs.
pub fn health_rights() -> Vec<Right> {
    [
        Right::needed_rights(Scope::Namespace, "apps", "statefulsets", &["get", "list"]),
        Right::needed_rights(Scope::Namespace, "apps", "deployments", &["get"]),
        Right::needed_rights(Scope::Namespace, "", "pods", &["list"]),
    ]
    .concat()
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Conditions {
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Part of a SchedulePolicy that is read.
#[derive(Debug, Default, Deserialize)]
struct Applied {
    #[serde(default)]
    status: Conditions,
}

/// Part of a Cluster from which a [`Member`] is made; without what is free on each of its nodes.
#[derive(Debug, Deserialize)]
struct Registered {
    metadata: Named,
    #[serde(default)]
    spec: RegisteredSpec,
    #[serde(default)]
    status: Reported,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
struct RegisteredSpec {
    #[serde(default)]
    kubernetesversion: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reported {
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    observed: ReportedFacts,
    #[serde(default, deserialize_with = "field::field")]
    copies_without_schedule: Option<i32>,
    #[serde(default, deserialize_with = "field::field")]
    data_without_schedule: Option<DataWithoutSchedule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedFacts {
    #[serde(default)]
    agent_version: String,
}

fn is_definition_established(definition: &Definition) -> bool {
    definition.status.conditions.iter().any(|c| c.type_ == "Established" && c.status == "True")
}

fn member_from_cluster(cluster: Registered) -> Member {
    let ready = cluster.status.conditions.into_iter().find(|condition| condition.type_ == READY);
    Member {
        name: cluster.metadata.name,
        ready: ready.as_ref().is_some_and(|condition| condition.status == "True"),
        reason: ready.map_or_else(|| "never reported".to_owned(), |condition| condition.reason),
        kubernetes_version: cluster.spec.kubernetesversion,
        agent_version: cluster.status.observed.agent_version,
        copies_without_schedule: cluster.status.copies_without_schedule,
        data_without_schedule: cluster.status.data_without_schedule.unwrap_or_default(),
    }
}

/// Part of a ScheduleGroup that is read.
#[derive(Debug, Default, Deserialize)]
struct Placed {
    #[serde(default)]
    status: PlacedStatus,
}

#[derive(Debug, Default, Deserialize)]
struct PlacedStatus {
    #[serde(default)]
    scheduled: bool,
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Groups {
    fn from_placed_groups(all: &[Placed]) -> Self {
        let mut groups = Self { all: all.len(), unplaced: BTreeMap::new() };
        for group in all.iter().filter(|group| !group.status.scheduled) {
            let said = group.status.conditions.iter().find(|condition| condition.type_ == SCHEDULED);
            let reason = said.map_or("not decided yet", |condition| condition.reason.as_str());
            *groups.unplaced.entry(reason.to_owned()).or_default() += 1;
        }
        groups
    }
}

/// An answer of which 404 means that the kind is not defined yet.
pub(super) fn if_defined<T>(answer: Result<Vec<T>, kube::Error>) -> Result<Vec<T>, kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        answer => answer,
    }
}

/// The registered workload clusters, sorted by name; none where their kind is not defined.
///
/// # Errors
/// Whatever the server refuses.
pub async fn list_registered_members(hub: &Client, age: Age) -> Result<Vec<Member>, kube::Error> {
    let found = partial_list::list_objects::<Cluster, Registered>(hub, age).await;
    let mut members: Vec<Member> = if_defined(found)?.into_iter().map(member_from_cluster).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

/// Reads what the control plane's own API holds, all at once.
pub async fn read_inside(hub: &Client, namespace: &str) -> Result<Inside, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), namespace);
    let reports: Api<ConfigMap> = Api::namespaced(hub.clone(), namespace);
    let brakes: Api<ConfigMap> = Api::namespaced(hub.clone(), mass_loss::NAMESPACE);
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let (definitions, members, policies, groups, secret, report, brake, system, version, own_api) = tokio::join!(
        partial_list::list_objects::<CustomResourceDefinition, Definition>(hub, Age::Now),
        list_registered_members(hub, Age::InMemory),
        partial_list::list_objects::<SchedulePolicy, Applied>(hub, Age::Now),
        partial_list::list_objects::<ScheduleGroup, Placed>(hub, Age::Now),
        secrets.get_opt(INIT_SECRET),
        reports.get_opt(BOOTSTRAP_STATUS),
        brakes.get_opt(mass_loss::NAME),
        namespaces.get_metadata_opt("kube-system"),
        hub.apiserver_version(),
        own_api::own_api(hub),
    );
    let definitions = definitions?;
    let established = DEFINITIONS.into_iter().map(|kind| {
        let found = definitions.iter().find(|d| d.spec.names.kind == kind && d.spec.group.ends_with(GROUPS));
        (kind.to_owned(), found.is_some_and(is_definition_established))
    });
    let policies = if_defined(policies)?;
    let unplaced = policies.iter().flat_map(|policy| &policy.status.conditions).filter(|one| one.type_ == KINDS_PLACED);
    let held = brake.ok().flatten().and_then(|map| map.data).unwrap_or_default();
    Ok(Inside {
        definitions: established.collect(),
        members: members?,
        unplaced_kinds: unplaced.map(|condition| condition.message.clone()).collect(),
        policies: policies.len(),
        groups: Groups::from_placed_groups(&if_defined(groups)?),
        own_api,
        conversions: own_api::find_converted_kinds(&definitions),
        init_secret: secret?.map(|secret| Init::from_init_secret(&secret).map(|init| init.server).unwrap_or_default()),
        bootstrap_trouble: report?.as_ref().and_then(bootstrap_trouble),
        kubernetes_version: version.ok().map(|version| version.git_version),
        mass_loss: held.get(mass_loss::KEY).and_then(|text| MassLossRecord::from_text(text)),
        removals: RemovalRecord::from_data(&held),
        hold: system?.and_then(|namespace| DeletionHold::from_metadata(&namespace.metadata)),
    })
}

fn bootstrap_trouble(report: &ConfigMap) -> Option<String> {
    let text = report.data.as_ref()?.get("conditions")?;
    let conditions: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Bootstrapped")?;
    (condition["status"] != "True").then(|| condition["message"].as_str().unwrap_or("no reason given").to_owned())
}
