//! State that the scheduler decides by, read once from the control plane's API: enough to decide about one object as it
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::extra_kind::{self, ExtraKind};
use crate::api::labels::{BOOTSTRAP_STATUS, cluster_namespace, cluster_of_namespace};
use crate::api::lenient::Lenient;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{Kinds, PLACEABLE, Placeable};
use crate::api::protocol::{DENY, DIRECT_PLACEMENT, EXTRA_KINDS};
use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::cli::connect::{list_failed, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::k8s::extra_kinds;
use crate::k8s::request::pages::all_pages;
use crate::placement::facts::{Facts, ObjectKey, Relations};
use crate::placement::fleet::Fleet;
use crate::placement::inventory::{self, Part};
use crate::placement::live;
use crate::placement::matching::{Policies, Policy};
use crate::placement::names::GroupKey;

/// Requests in progress at a time.
const IN_FLIGHT: usize = 16;

/// Facts that the scheduler publishes about itself.
pub(in crate::cli) struct Said {
    /// Whether annotations do not place objects.
    pub(in crate::cli) denies_direct: bool,
    /// Its own namespace, of which nothing is placed.
    pub(in crate::cli) namespace: Option<String>,
    /// The kinds that it places.
    pub(in crate::cli) kinds: Kinds,
}

/// State of the control plane that every decision depends on.
pub(in crate::cli::commands) struct Known {
    pub(in crate::cli::commands) kinds: Kinds,
    pub(in crate::cli::commands) policies: Policies,
    pub(in crate::cli::commands) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(in crate::cli::commands) clusters: BTreeMap<String, Cluster>,
    pub(in crate::cli::commands) groups: BTreeMap<String, ScheduleGroup>,
    /// Schedules by their source.
    schedules: BTreeMap<ObjectKey, Vec<Schedule>>,
    /// Nodes in ClusterReports, by namespace.
    reports: BTreeMap<String, Vec<Part>>,
}

impl Known {
    /// Reads what every decision depends on; `None` for a user who may not list all of it.
    pub(in crate::cli::commands) async fn read_known_state(
        client: &Client,
        said: Said,
    ) -> Result<Option<Self>, CliError> {
        let lists = tokio::try_join!(
            list_lenient::<SchedulePolicy>(client, "schedulepolicies"),
            list_lenient::<Cluster>(client, "clusters"),
            list_lenient::<ScheduleGroup>(client, "schedulegroups"),
            list_lenient::<Schedule>(client, "schedules"),
            list_lenient::<ClusterReport>(client, "clusterreports"),
            list_sources(client, namespace_kind(), None, None),
        );
        let (policies, clusters, groups, schedules, reports, namespaces) = match lists {
            Ok(lists) => lists,
            Err((_, kube::Error::Api(status))) if status.code == 403 => return Ok(None),
            Err((what, error)) => return Err(list_failed(what, &error)),
        };
        let mut of_sources: BTreeMap<ObjectKey, Vec<Schedule>> = BTreeMap::new();
        for schedule in schedules {
            of_sources.entry(live::source_key(&schedule.spec.source_ref)).or_default().push(schedule);
        }
        let mut parts: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for report in reports {
            parts.entry(report.namespace().unwrap_or_default()).or_default().push(Part::of_report(&report.spec));
        }
        let policies = policies.iter().filter_map(|policy| Policy::from_schedule_policy(policy).ok()).collect();
        Ok(Some(Self {
            kinds: said.kinds,
            policies: Policies::new(policies)
                .with_direct_placement_denied(said.denies_direct)
                .with_own_namespace(said.namespace),
            namespaces: namespaces.into_iter().map(|one| (one.key.name().to_owned(), one.labels)).collect(),
            clusters: clusters.into_iter().map(|one| (one.name_any(), one)).collect(),
            groups: groups.into_iter().map(|one| (one.name_any(), one)).collect(),
            schedules: of_sources,
            reports: parts,
        }))
    }

    /// The labels of an object's namespace.
    pub(in crate::cli::commands) fn labels_of_namespace(&self, key: &ObjectKey) -> BTreeMap<String, String> {
        self.namespaces.get(key.namespace()).cloned().unwrap_or_default()
    }

    /// The name of a group under a policy.
    pub(in crate::cli::commands) fn group_name(&self, key: &GroupKey, policy: &Policy) -> String {
        let printed = key.to_spec_key();
        key.group_name(&policy.name, |name| {
            self.groups
                .get(name)
                .is_some_and(|group| group.spec.key != printed || group.spec.policy.name != policy.name)
        })
    }

    /// Schedules of an object, with their clusters.
    pub(in crate::cli::commands) fn schedules_of_object<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> impl Iterator<Item = (&'a str, &'a Schedule)> {
        self.schedules.get(key).into_iter().flatten().map(|schedule| (cluster_of(schedule), schedule))
    }

    /// The clusters with their nodes, minus capacity that is reserved for other objects.
    pub(in crate::cli::commands) async fn build_fleet(
        &self,
        client: &Client,
        own: &BTreeSet<ObjectKey>,
    ) -> Result<Fleet, CliError> {
        let mut fleet = Fleet::default();
        for (name, cluster) in &self.clusters {
            let namespace = cluster_namespace(name);
            let inventory = inventory::read_inventory(cluster, self.reports.get(&namespace).into_iter().flatten());
            let read = live::read_cluster(&mut fleet, cluster, inventory);
            fleet.set_cluster(read);
        }
        let open = self.schedules.values().flatten().filter(|schedule| {
            let pods = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
            !own.contains(&live::source_key(&schedule.spec.source_ref))
                && pods.is_none_or(|pods| pods.counted < pods.desired)
        });
        let mut promised: BTreeMap<&str, Vec<(&Schedule, Facts)>> = BTreeMap::new();
        let read = stream::iter(open.map(|schedule| async move {
            let facts = find_facts(client, &self.kinds, &live::source_key(&schedule.spec.source_ref)).await?;
            Ok::<_, CliError>((schedule, facts))
        }));
        let mut read = read.buffered(IN_FLIGHT);
        while let Some(one) = read.next().await {
            if let (schedule, Some(facts)) = one? {
                promised.entry(cluster_of(schedule)).or_default().push((schedule, facts));
            }
        }
        for (cluster, all) in promised {
            let all = all.iter().map(|(schedule, facts)| (*schedule, facts));
            fleet.set_promises(cluster, live::copy_reservations(all));
        }
        Ok(fleet)
    }
}

/// Reads the facts that the scheduler publishes about itself in a ConfigMap. Its namespace is not known here: the
/// oldest ConfigMap of that name is its own, for it is there before anybody else can make objects. `None` for a user who
/// may not list ConfigMaps everywhere.
pub(in crate::cli) async fn read_scheduler_facts(client: &Client) -> Result<Option<Said>, CliError> {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={BOOTSTRAP_STATUS}"));
    let found = match list_all_pages(&maps, params).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        Err(error) => return Err(list_failed("configmaps", &error)),
    };
    let first = found.into_iter().min_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    let namespace = first.as_ref().and_then(kube::ResourceExt::namespace);
    let data = first.and_then(|map| map.data).unwrap_or_default();
    let added: Vec<ExtraKind> =
        data.get(EXTRA_KINDS).map(|list| extra_kind::parse_kind_list(list)).into_iter().flatten().collect();
    let served = extra_kinds::fetch_served_kinds(client, &added).await.map_err(|error| {
        CliError::new(Exit::Failed, "RequestFailed", "cannot read which kinds the control plane serves")
            .cause(error.to_string())
    })?;
    Ok(Some(Said {
        denies_direct: data.get(DIRECT_PLACEMENT).is_some_and(|value| value == DENY),
        namespace,
        kinds: Kinds::with_added(served.kinds),
    }))
}

fn cluster_of(schedule: &Schedule) -> &str {
    schedule.metadata.namespace.as_deref().and_then(cluster_of_namespace).unwrap_or_default()
}

fn namespace_kind() -> &'static Placeable {
    // The table begins with it.
    &PLACEABLE[0]
}

/// What was listed, or the name of the resource that could not be, with the error.
pub(in crate::cli) type Listed<T> = Result<Vec<T>, (&'static str, kube::Error)>;

/// All objects of a kind of the service.
pub(in crate::cli) async fn list_lenient<K>(client: &Client, what: &'static str) -> Listed<K>
where
    K: crate::api::lenient::Readable + kube::Resource<DynamicType = ()> + Clone + Debug,
{
    let api: Api<Lenient<K>> = Api::all(client.clone());
    let found = list_all_pages(&api, ListParams::default()).await.map_err(|error| (what, error))?;
    Ok(found.into_iter().map(|read| read.0).collect())
}

async fn list_all_pages<K: Clone + DeserializeOwned + Debug>(api: &Api<K>, params: ListParams) -> kube::Result<Vec<K>> {
    all_pages(params, |page| async move { api.list(&page).await }).await
}

/// The objects of a kind, of a namespace and with a label where they are given.
async fn list_sources(
    client: &Client,
    kind: &'static Placeable,
    namespace: Option<&str>,
    label: Option<&str>,
) -> Listed<Facts> {
    let found = list_objects(client, kind, namespace, label).await?;
    Ok(found.iter().filter_map(|object| Facts::from_manifest(object).ok()).collect())
}

/// The same, whole.
pub(in crate::cli) async fn list_objects(
    client: &Client,
    kind: &'static Placeable,
    namespace: Option<&str>,
    label: Option<&str>,
) -> Listed<Value> {
    let api: Api<Raw> = kind.objects_api(client, namespace);
    let params = label.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
    let found = list_all_pages(&api, params).await.map_err(|error| (kind.plural, error))?;
    Ok(found.into_iter().map(|raw| add_kind(kind, raw)).collect())
}

/// All objects of a namespace that may be placed, with what they name and belong to; except for kinds that the user may
/// not list.
pub(in crate::cli::commands) async fn list_related(
    client: &Client,
    kinds: &Kinds,
    namespace: &str,
) -> Result<Vec<(Facts, Relations)>, CliError> {
    let kinds = kinds.iter().filter(|kind| kind.namespaced);
    let lists = stream::iter(kinds.map(|kind| list_objects(client, kind, Some(namespace), None)));
    let lists: Vec<_> = lists.buffered(IN_FLIGHT).collect().await;
    let mut found = Vec::new();
    for list in lists {
        let list = match list {
            Err((_, kube::Error::Api(status))) if status.code == 403 => continue,
            list => list.map_err(|(what, error)| list_failed(what, &error))?,
        };
        found.extend(list.iter().filter_map(|object| {
            let facts = Facts::from_manifest(object).ok()?;
            let relations = Relations::from_manifest(&facts.key, object);
            Some((facts, relations))
        }));
    }
    Ok(found)
}

/// All objects that may be in a group, of every kind that can be placed: with a label, or of a namespace.
pub(in crate::cli::commands) async fn list_candidates(
    client: &Client,
    kinds: &Kinds,
    namespace: Option<&str>,
    label: Option<&str>,
) -> Result<Vec<Facts>, CliError> {
    let lists = stream::iter(kinds.iter().map(|kind| list_sources(client, kind, namespace, label)));
    let lists: Vec<_> = lists.buffered(IN_FLIGHT).collect().await;
    let mut found = Vec::new();
    for list in lists {
        found.extend(list.map_err(|(what, error)| list_failed(what, &error))?);
    }
    Ok(found)
}

/// The facts of an object by its key; none where it is not there, or cannot be placed at all.
pub(in crate::cli::commands) async fn find_facts(
    client: &Client,
    kinds: &Kinds,
    key: &ObjectKey,
) -> Result<Option<Facts>, CliError> {
    Ok(find_object(client, kinds, key).await?.map(|(facts, _)| facts))
}

/// The same with the whole object.
pub(in crate::cli::commands) async fn find_object(
    client: &Client,
    kinds: &Kinds,
    key: &ObjectKey,
) -> Result<Option<(Facts, Value)>, CliError> {
    let Some(kind) = kinds.find_placeable(key.group(), key.kind()) else { return Ok(None) };
    let api: Api<Raw> = kind.objects_api(client, Some(key.namespace()));
    let found = api.get_opt(key.name()).await;
    let found = found.map_err(|error| request_failed(&format!("cannot read {}", key.format_title()), &error))?;
    Ok(found.and_then(|raw| {
        let object = add_kind(kind, raw);
        Some((Facts::from_manifest(&object).ok()?, object))
    }))
}

/// An object with its kind, which lists leave out.
fn add_kind(kind: &Placeable, raw: Raw) -> Value {
    let mut object = Value::Object(raw.object);
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    object
}
