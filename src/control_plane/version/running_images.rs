//! Components that run another image than that of the installed service version.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodSpec;
use kube::Client;
use kube::api::Api;

use crate::api::names::NamespaceName;
use crate::api::version::ServiceVersion;
use crate::chart::{self, Row, is_tag};

/// The components by the object that runs them, and their names in the table of versions.
const COMPONENTS: [(&str, &str); 4] = [
    ("etcd", "etcd"),
    ("apiserver", "apiserver"),
    ("kube-controller-manager", "controllerManager"),
    ("fleet-scheduler", "scheduler"),
];

/// Returns one clause for each component that runs another image than `version` does; none for those that cannot be
/// read.
pub(in crate::control_plane) async fn list_foreign_images(
    client: &Client,
    namespace: &NamespaceName,
    version: &ServiceVersion,
) -> Vec<String> {
    let Some(row) = chart::embedded_versions().find_row(version.service_line()) else { return Vec::new() };
    let clauses = COMPONENTS.map(|(object, component)| async move {
        let image = read_component_image(client, namespace, object).await?;
        describe_image_difference(row, version, component, &image)
            .map(|what| format!("{object} is set to {image}, but {what}"))
    });
    futures::future::join_all(clauses).await.into_iter().flatten().collect()
}

async fn read_component_image(client: &Client, namespace: &NamespaceName, object: &str) -> Option<String> {
    let pod = if object == "etcd" {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
        sets.get_opt(object).await.ok()??.spec?.template.spec
    } else {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
        deployments.get_opt(object).await.ok()??.spec?.template.spec
    };
    first_image(pod?)
}

fn first_image(pod: PodSpec) -> Option<String> {
    pod.containers.into_iter().next()?.image
}

/// Returns a clause about the image tag that the version runs instead; nothing where the image is the same or only a
/// digest is known.
fn describe_image_difference(row: &Row, version: &ServiceVersion, component: &str, image: &str) -> Option<String> {
    let (expected, _) = row.image_tag(component, version)?;
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    let (_, tag) = name.split_once(':').filter(|(before, _)| !before.contains('@'))?;
    (!is_tag(tag, &expected)).then(|| format!("service version {version} uses {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_compared_by_its_tag_wherever_it_is_pulled_from() {
        let version: ServiceVersion = "v0.7.1".parse().unwrap();
        let row = chart::embedded_versions().find_row(version.service_line()).unwrap();
        for (component, image, same) in [
            ("scheduler", "fleetscheduler/fleet-scheduler:v0.7.1", true),
            ("scheduler", "mirror.example:5000/x/fleet-scheduler:v0.7.1@sha256:abc", true),
            ("scheduler", "fleetscheduler/fleet-scheduler@sha256:abc", true),
            ("scheduler", "fleetscheduler/fleet-scheduler:v0.6.1", false),
            ("scheduler", "fleetscheduler/fleet-scheduler:v0.7.0", false),
            ("etcd", "registry.k8s.io/etcd:3.5.35-0", true),
            ("etcd", "localhost:5000/etcd:3.5.6-0", false),
        ] {
            let found = describe_image_difference(row, &version, component, image);
            assert_eq!(found.is_none(), same, "{component} {image} {found:?}");
        }
    }
}
