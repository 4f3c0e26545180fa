//! Objects that the charts of all lines can render for an agent, and its recorded release rendered again.

use std::fmt;
use std::sync::{Arc, OnceLock};

use kube::Client;
use serde_json::json;

use super::plan::{KUBERNETES, Plan, agent_namespace_manifest};
use super::values::AdmissionPolicy;
use crate::api::labels::{INIT_SECRET, LABEL_INSTALL};
use crate::api::names::{ClusterName, NamespaceName, cluster_wide_name};
use crate::api::util::text::visible_line;
use crate::api::values::pod_values::SecretValue;
use crate::apply::{Charts, Renderable, Rendering};
use crate::chart;
use crate::chart::patch::Patches;
use crate::install::recorded_use::Ordinary;
use crate::install::recorded_values::PATCHES;
use crate::install::release_spec;
use crate::install::renderable::{SecretEntry, objects_of, secret_values};
use crate::inventory::Release;
use crate::k8s::ObjectRef;

/// Entry of a Secret in the cluster that holds the secret value of a release.
pub const SECRET_VALUES: [SecretEntry; 1] =
    [SecretEntry { secret: "fleet-registry", key: ".dockerconfigjson", value: "/registryCredentials" }];

/// Name of the objects that the whole cluster shares, where the agent is in the default namespace.
const SHARED_NAME: &str = "fleet-agent";

/// Values that are safe to take from the record. Whoever may edit the namespace can forge the record, but these values
/// change only objects in the namespace, which they may edit anyway, such as the Deployment and its image: they can run
/// anything as the agent, with its permissions.
///
/// All others must be given again: `placement`, which is the agent's rights in the whole cluster, and arguments and
/// variables, by which the agent can be told to keep to less of its limits. So has what later versions add, until it
/// stands here.
pub const ORDINARY_VALUES: Ordinary = Ordinary {
    paths: &[
        "imageRegistry",
        "imagePullPolicy",
        "imagePullSecrets",
        "registryCredentials",
        "image",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "replicas",
        "networkPolicy",
        "cluster",
        "resources",
        "podLabels",
        "podAnnotations",
        "affinity",
        "topologySpreadConstraints",
        "serviceAccount",
        "proxy",
    ],
    values: &[],
};

/// The charts for one agent.
pub struct AgentCharts {
    name: ClusterName,
    namespace: NamespaceName,
    client: Client,
    patches: Patches,
    renderable: OnceLock<Renderable>,
}

impl fmt::Debug for AgentCharts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCharts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The charts for the agent of this workload cluster; a secret value is read with `client`. Patches are recorded by
/// their digest alone, so a release that was patched is rendered again only with the same `patches`.
pub fn agent_charts(
    name: &ClusterName,
    namespace: &NamespaceName,
    client: &Client,
    patches: &Patches,
) -> Arc<dyn Charts> {
    Arc::new(AgentCharts {
        name: name.clone(),
        namespace: namespace.clone(),
        client: client.clone(),
        patches: patches.clone(),
        renderable: OnceLock::new(),
    })
}

impl Charts for AgentCharts {
    fn renderable_objects(&self) -> &Renderable {
        self.renderable.get_or_init(|| renderable_agent(&self.name, &self.namespace))
    }

    fn render_recorded<'a>(&'a self, release: &'a Release) -> Rendering<'a> {
        Box::pin(async move {
            let (name, place) = (self.name.clone(), self.namespace.clone());
            let secrets = secret_values(&self.client, place.as_str(), (LABEL_INSTALL, name.as_str()), &SECRET_VALUES);
            let secrets = secrets.await.map_err(|error| format!("its secret values cannot be read: {error}"))?;
            let plan = release_spec::plan_recorded_release(
                chart::Kind::Agent,
                release,
                secrets,
                |selection, chart, values| Plan::new(name, place, selection, chart, values),
            )?;
            let kubernetes = release.facts.get(KUBERNETES).and_then(|minor| minor.parse().ok());
            let plan =
                plan.with_patches(self.patches.of_record(release.facts.get(PATCHES))?).with_kubernetes(kubernetes);
            let rendered = plan.render_agent().map_err(|problems| visible_line(&problems.to_string()).into_owned())?;
            Ok(Plan::plan_agent_objects(vec![agent_namespace_manifest(self.namespace.as_str())], &rendered.objects))
        })
    }
}

/// The name without a namespace that earlier versions gave to an object that the whole cluster shares; none for others, and for
/// an agent in the default namespace, which keeps those names.
pub(super) fn former_object(object: &ObjectRef, namespace: &NamespaceName) -> Option<ObjectRef> {
    let is_shared = object.namespace.as_deref() != Some(namespace.as_str()) && !object.is_kind("", "Namespace");
    let own_name = cluster_wide_name(SHARED_NAME, namespace.as_str());
    let former = ObjectRef { name: SHARED_NAME.to_owned(), ..object.clone() };
    (is_shared && object.name == own_name && former != *object).then_some(former)
}

/// Every object that an install of an agent applies: what the chart of some line renders, with all that values can switch on,
/// the namespace, and the Secret that it copies. With it what the same chart of an earlier build has rendered under another
/// name.
pub fn renderable_agent(name: &ClusterName, namespace: &NamespaceName) -> Renderable {
    let first = [
        core_object_ref("Namespace", None, namespace.as_str()),
        core_object_ref("Secret", Some(namespace.as_str()), INIT_SECRET),
    ];
    let rendered = chart::embedded_versions().rows().iter().flat_map(|row| {
        objects_of(chart::Kind::Agent, row, |selection, chart, values| {
            let mut plan = Plan::new(name.clone(), namespace.clone(), selection, chart, values)?;
            plan.values.network_policy.enabled = true;
            plan.values.admission_policy = AdmissionPolicy::Enabled;
            plan.values.registry_credentials = Some(SecretValue(json!({}).to_string()));
            Ok(plan.render_agent()?.objects)
        })
    });
    let rendered: Vec<ObjectRef> = rendered.collect();
    let former: Vec<ObjectRef> = rendered.iter().filter_map(|object| former_object(object, namespace)).collect();
    rendered.into_iter().chain(former).chain(first).collect()
}

fn core_object_ref(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}
