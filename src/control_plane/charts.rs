//! Objects that the charts of all lines can render for a control plane, and its recorded release rendered again.

use std::fmt;
use std::sync::{Arc, OnceLock};

use kube::Client;
use serde_json::json;

use super::endpoint::exposure::{Endpoint, unknown_endpoint};
use super::keys::find_keys;
use super::plan::Plan;
use super::values::{ExposureType, PkiSource};
use crate::api::labels::LABEL_INSTALL;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::text::visible_line;
use crate::api::values::network_policy::NetworkPeer;
use crate::api::values::pod_values::SecretValue;
use crate::apply::{Charts, Renderable, Rendering};
use crate::chart;
use crate::chart::patch::Patches;
use crate::install::recorded_use::Ordinary;
use crate::install::recorded_values::PATCHES;
use crate::install::release_spec::{self, to_planned_objects};
use crate::install::renderable::{SecretEntry, objects_of, secret_values};
use crate::inventory::Release;
use crate::pki;

/// Entries of Secrets in the cluster that hold the secret values of a release.
pub const SECRET_VALUES: [SecretEntry; 2] = [
    SecretEntry { secret: "fleet-cloud-credentials", key: "access-key.json", value: "/cloud/accessKey" },
    SecretEntry { secret: "fleet-registry", key: ".dockerconfigjson", value: "/registryCredentials" },
];

/// Values that are safe to take from the record. Whoever may edit the namespace can forge the record, but these values
/// change only objects in the namespace, which they may edit anyway: Deployments and their images, the StatefulSet of
/// etcd, Services,
/// service accounts, network policies, Secrets with keys.
///
/// All others must be given again: `namespace` (its Pod Security level is the limit of what runs there), `placement`
/// and `scheduler.registration` (what reaches workload clusters, and which of them take part),
/// `apiserver.allowPrivileged`, lifetimes of credentials, the audit log, and arguments and variables, by which
/// components can be told all of this as well. So has what later versions add, until it stands here.
pub const ORDINARY_VALUES: Ordinary = Ordinary {
    paths: &[
        "imageRegistry",
        "imagePullPolicy",
        "imagePullSecrets",
        "registryCredentials",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "spread",
        "serviceAccount",
        "proxy",
        "networkPolicy",
        "pki",
        "exposure",
        "cloud",
        "etcd.storage",
        "etcd.quotaBytes",
        "*.image",
        "*.replicas",
        "*.resources",
        "*.podLabels",
        "*.podAnnotations",
        "*.nodeSelector",
        "*.tolerations",
        "*.affinity",
        "*.topologySpreadConstraints",
        "*.priorityClassName",
    ],
    // Nobody gets more by it.
    values: &[("scheduler.registration", "Manual")],
};

/// The charts for one control plane.
pub struct ControlPlaneCharts {
    name: ControlPlaneName,
    namespace: NamespaceName,
    client: Client,
    patches: Patches,
    renderable: OnceLock<Renderable>,
}

impl fmt::Debug for ControlPlaneCharts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlaneCharts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The charts for the control plane of this name; keys and secret values are read with `client`. Patches are
/// recorded by their digest alone, so a release that was patched is rendered again only with the same `patches`.
pub fn control_plane_charts(
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    client: &Client,
    patches: &Patches,
) -> Arc<dyn Charts> {
    Arc::new(ControlPlaneCharts {
        name: name.clone(),
        namespace: namespace.clone(),
        client: client.clone(),
        patches: patches.clone(),
        renderable: OnceLock::new(),
    })
}

impl Plan {
    /// The charts as an engine sees them.
    pub(super) fn build_charts(&self, client: &Client) -> Arc<dyn Charts> {
        control_plane_charts(&self.name, &self.package.namespace, client, self.package.patches())
    }
}

impl Charts for ControlPlaneCharts {
    fn renderable_objects(&self) -> &Renderable {
        self.renderable.get_or_init(|| renderable_control_plane(&self.name, &self.namespace))
    }

    fn render_recorded<'a>(&'a self, release: &'a Release) -> Rendering<'a> {
        Box::pin(async move {
            let (name, namespace) = (self.name.clone(), self.namespace.clone());
            let secrets =
                secret_values(&self.client, namespace.as_str(), (LABEL_INSTALL, name.as_str()), &SECRET_VALUES);
            let secrets = secrets.await.map_err(|error| format!("its secret values cannot be read: {error}"))?;
            let plan = release_spec::plan_recorded_release(
                chart::Kind::ControlPlane,
                release,
                secrets,
                |selection, chart, values| Plan::new(name, namespace, selection, chart, values),
            )?;
            let plan = plan.with_patches(self.patches.of_record(release.facts.get(PATCHES))?);
            let found = find_keys::from_cluster(&self.client, self.namespace.as_str(), self.name.as_str()).await;
            let found = found.map_err(|error| format!("its keys cannot be read: {error}"))?;
            // What is not there makes another object than was applied, which its digest tells.
            let mut keys = pki::placeholder_files();
            for (file, text) in found.expose_all() {
                keys.insert(file, text.to_owned());
            }
            let rendered = plan
                .render_control_plane(&release_endpoint(release), &keys)
                .map_err(|problems| visible_line(&problems.to_string()).into_owned())?;
            Ok(to_planned_objects(&rendered.objects))
        })
    }
}

/// Returns the recorded endpoint of the API, as far as objects that are restored from a release depend on it.
fn release_endpoint(release: &Release) -> Endpoint {
    let kind = match release.facts.get("exposure").map(String::as_str) {
        Some("LoadBalancer") => ExposureType::LoadBalancer,
        Some("ClusterIp") => ExposureType::ClusterIp,
        _ => ExposureType::NodePort,
    };
    let shape = unknown_endpoint(kind);
    let recorded = release.facts.get("server").and_then(|server| server.strip_prefix("https://"));
    let port = recorded.and_then(|address| address.rsplit_once(':')?.1.parse().ok());
    match (release.facts.get("host"), port) {
        // The Job that makes keys inside the cluster names both.
        (Some(host), Some(port)) => Endpoint { host: host.clone(), port, ..shape },
        _ => shape,
    }
}

/// Every object that the chart of some line renders for a control plane, with all that values can switch on.
pub fn renderable_control_plane(name: &ControlPlaneName, namespace: &NamespaceName) -> Renderable {
    let objects = chart::embedded_versions().rows().iter().flat_map(|row| {
        objects_of(chart::Kind::ControlPlane, row, |selection, chart, values| {
            let mut plan = Plan::new(name.clone(), namespace.clone(), selection, chart, values)?;
            let values = &mut plan.values;
            values.network_policy.enabled = true;
            values.network_policy.metrics_from = vec![NetworkPeer::default()];
            values.apiserver.audit.enabled = true;
            for replicas in [
                &mut values.etcd.replicas,
                &mut values.apiserver.replicas,
                &mut values.controller_manager.replicas,
                &mut values.scheduler.replicas,
            ] {
                *replicas = 3;
            }
            values.cloud.access_key = Some(SecretValue(json!({}).to_string()));
            values.registry_credentials.clone_from(&values.cloud.access_key);
            let mut objects = Vec::new();
            for source in [PkiSource::Installer, PkiSource::InCluster] {
                plan.values.pki.source = source;
                objects.extend(
                    plan.render_control_plane(
                        &unknown_endpoint(ExposureType::LoadBalancer),
                        &pki::placeholder_files(),
                    )?
                    .objects,
                );
            }
            Ok(objects)
        })
    });
    objects.collect()
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::Value;

    use super::super::chart_tests::{charts as lines, real_pki};
    use super::*;
    use crate::chart::SetKind;
    use crate::chart::versions::select::{Request, select_row};
    use crate::k8s::ObjectRef;

    const FULL: &str = include_str!("../../tests/packager/fixtures/control-plane-full.yaml");
    const CLOUD: &str = include_str!("../../tests/packager/fixtures/control-plane-cloud.yaml");

    /// A cluster with these Secrets.
    fn cluster(secrets: Vec<Value>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let (code, answer) = match secrets.iter().find(|secret| secret["metadata"]["name"] == *last) {
                Some(secret) => (200, secret.clone()),
                None if last == "secrets" => (200, json!({"metadata": {}, "items": secrets})),
                None => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            };
            let answer = http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            async { answer }
        });
        Client::new(service, "fleet")
    }

    fn plan(version: &str, values: &str, sets: &[&str]) -> Plan {
        let request = Request { version: Some(version), ..Request::default() };
        let selection = select_row(chart::embedded_versions(), request).unwrap();
        let chart = release_spec::load_chart(chart::Kind::ControlPlane, &selection).unwrap();
        let builder = chart.values_of(&selection.version).file("values.yaml", values.as_bytes());
        let builder = sets.iter().fold(builder, |builder, set| builder.set(SetKind::Value, set));
        let plan = Plan::new("demo".parse().unwrap(), "fleet".parse().unwrap(), &selection, chart, builder);
        plan.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The objects of which no journal is believed, by their names.
    fn restored(objects: impl IntoIterator<Item = Value>) -> Vec<(ObjectRef, Value)> {
        let wanted = ["Namespace", "StatefulSet", "Deployment"];
        let objects = objects.into_iter().map(|object| (ObjectRef::of(&object).unwrap(), object));
        objects.filter(|(object, _)| wanted.contains(&object.kind.as_str())).collect()
    }

    #[tokio::test]
    async fn a_recorded_release_is_rendered_again_as_it_was_and_its_record_has_no_secret() {
        let given = ["nodeSelector.disk=fast", "apiserver.extraArgs={--v=4}", "namespace.podSecurity=baseline"];
        let versions =
            lines().iter().map(|chart| chart.version_row().unwrap().default.to_string()).chain(["v0.6.0".to_owned()]);
        for version in versions {
            for (values, sets) in [("", &[][..]), ("", &given[..]), (FULL, &[]), (CLOUD, &[])] {
                let plan = plan(&version, values, sets);
                let rendered =
                    plan.render_control_plane(&unknown_endpoint(ExposureType::NodePort), &real_pki()).unwrap().objects;
                let release = plan.control_plane_release(&unknown_endpoint(ExposureType::NodePort));
                let record = serde_json::to_string(&release).unwrap();
                for secret in [&plan.values.cloud.access_key, &plan.values.registry_credentials].into_iter().flatten() {
                    assert!(!record.contains(&secret.0) && !record.contains("accessKey\":\""), "{record}");
                }
                let release: Release = serde_json::from_str(&record).unwrap();
                let objects: Vec<Value> = rendered.into_iter().map(|object| object.json).collect();
                let secrets = objects.iter().filter(|object| object["kind"] == "Secret").cloned().collect();
                let charts =
                    control_plane_charts(&plan.name, &plan.package.namespace, &cluster(secrets), &Patches::default());
                let again = charts.render_recorded(&release).await.unwrap_or_else(|why| panic!("{version}: {why}"));
                let again = restored(again.into_iter().map(|planned| planned.object));
                assert_eq!(again, restored(objects), "{version} {values:.20} {sets:?}");
                assert_eq!(again.len(), 5, "{version}");
            }
        }
    }

    fn patch_replicas(replicas: u8) -> Patches {
        let text = format!("kind: Deployment\nmetadata: {{name: apiserver}}\nspec: {{replicas: {replicas}}}\n");
        Patches::read_patch_files([("patch.yaml".to_owned(), Ok(text.into_bytes()))]).unwrap()
    }

    fn build_patched_charts(plan: &Plan, patches: &Patches) -> Arc<dyn Charts> {
        control_plane_charts(&plan.name, &plan.package.namespace, &cluster(Vec::new()), patches)
    }

    #[tokio::test]
    async fn a_patched_release_is_rendered_again_only_with_the_same_patches_and_never_out_of_its_record() {
        let plain = plan("v0.7.1", "", &[]).control_plane_release(&unknown_endpoint(ExposureType::NodePort));
        let plan = plan("v0.7.1", "", &[]).with_patches(patch_replicas(2));
        let release = plan.control_plane_release(&unknown_endpoint(ExposureType::NodePort));
        assert_ne!(release.values_digest, plain.values_digest);
        let record = serde_json::to_string(&release).unwrap();
        assert!(record.contains("patch.yaml sha256:") && !record.contains("\"replicas\":2"), "{record}");
        let again = build_patched_charts(&plan, &patch_replicas(2)).render_recorded(&release).await.unwrap();
        let apiserver = again.iter().find(|planned| {
            planned.object["metadata"]["name"] == "apiserver" && planned.object["kind"] == "Deployment"
        });
        assert_eq!(apiserver.unwrap().object["spec"]["replicas"], 2);
        for other in [Patches::default(), patch_replicas(3)] {
            let why = build_patched_charts(&plan, &other).render_recorded(&release).await.unwrap_err();
            assert!(why.contains("patch.yaml sha256:") && why.contains("not recorded"), "{why}");
        }
        let unpatched = build_patched_charts(&plan, &patch_replicas(2)).render_recorded(&plain).await.unwrap();
        let apiserver = unpatched.iter().find(|planned| {
            planned.object["metadata"]["name"] == "apiserver" && planned.object["kind"] == "Deployment"
        });
        assert_eq!(apiserver.unwrap().object["spec"]["replicas"], 1);
    }

    #[tokio::test]
    async fn a_release_that_is_not_known_or_not_of_its_chart_is_not_rendered() {
        let plan = plan("v0.7.1", "", &[]);
        let charts =
            control_plane_charts(&plan.name, &plan.package.namespace, &cluster(Vec::new()), &Patches::default());
        let release = plan.control_plane_release(&unknown_endpoint(ExposureType::NodePort));
        assert!(charts.render_recorded(&release).await.is_ok());
        let values = json!({"apiserver": {"extraArgs": ["--v=4"], "command": "sh"}});
        for (forged, why) in [
            (Release { values: None, ..release.clone() }, "not recorded"),
            (Release { version: "v0.7.1; sh".to_owned(), ..release.clone() }, "not a service version"),
            (Release { version: "v9.9.9".to_owned(), ..release.clone() }, "unknown"),
            (Release { chart: "agent/v0.7".to_owned(), ..release.clone() }, "does not belong to its chart"),
            (Release { values: Some(values), ..release.clone() }, "command"),
        ] {
            let refused = charts.render_recorded(&forged).await.unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
