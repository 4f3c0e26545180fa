//! The kinds that an API server serves, and where their objects are in etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::POLL;
use crate::api::rehearsal::RehearsalReport;
use crate::k8s::connect::daemon_client::describe_error;

/// Time in which an API server serves the kinds of its CustomResourceDefinitions.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Folder of all objects in etcd.
pub(super) const REGISTRY: &str = "/registry/";

/// A kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) is_namespaced: bool,
    /// Its keys begin with this, such as `/registry/apps/`.
    pub(super) folder: String,
}

impl ServedKind {
    /// Its name, such as `deployments.apps`.
    pub(super) fn title(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Path of all its objects, or of those in a namespace.
    pub(super) fn url_path(&self, namespace: Option<&str>) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        namespace.map_or_else(|| format!("{root}/{plural}"), |name| format!("{root}/namespaces/{name}/{plural}"))
    }
}

/// A CustomResourceDefinition, as far as it says what is served.
#[derive(Debug, Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
}

#[derive(Debug, Deserialize)]
struct DefinitionNames {
    plural: String,
}

#[derive(Debug, Deserialize)]
struct Definitions {
    items: Vec<Definition>,
}

/// Returns every kind that can be listed, each once. Custom ones are waited for.
///
/// # Errors
/// An API server that goes away.
pub(super) async fn discover_served_kinds(
    client: &Client,
    report: &mut RehearsalReport,
) -> kube::Result<Vec<ServedKind>> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    // A list that fails is found when the kind is read.
    let defined: BTreeSet<(String, String)> = match client.request::<Definitions>(request).await {
        Ok(found) => found.items.into_iter().map(|one| (one.spec.group, one.spec.names.plural)).collect(),
        Err(_) => BTreeSet::new(),
    };
    let end = Instant::now() + SERVED_WITHIN;
    loop {
        let (found, faults) = list_served_kinds(client, &defined).await?;
        let missing = defined
            .iter()
            .filter(|(group, plural)| !found.iter().any(|kind| kind.group == *group && kind.plural == *plural));
        let missing: Vec<_> = missing.collect();
        if (missing.is_empty() && faults.is_empty()) || Instant::now() >= end {
            for (group, plural) in missing {
                report.add_fault(&format!("{plural}.{group}"), "it is defined, but not served");
            }
            for (about, why) in faults {
                report.add_fault(&about, &why);
            }
            return Ok(found);
        }
        sleep(POLL).await;
    }
}

/// What discovery names now, and the versions that it does not describe, with the reasons.
async fn list_served_kinds(
    client: &Client,
    defined: &BTreeSet<(String, String)>,
) -> kube::Result<(Vec<ServedKind>, Vec<(String, String)>)> {
    let mut found = BTreeMap::new();
    let mut faults = Vec::new();
    add_kinds(&mut found, "", "v1", &client.list_core_api_resources("v1").await?, defined);
    for group in client.list_api_groups().await?.groups {
        let preferred = group.preferred_version.iter().map(|version| &version.version);
        let versions = group.versions.iter().map(|version| &version.version);
        let mut seen = BTreeSet::new();
        for version in preferred.chain(versions).filter(|version| seen.insert((*version).clone())) {
            let name = format!("{}/{version}", group.name);
            match client.list_api_group_resources(&name).await {
                Ok(resources) => add_kinds(&mut found, &group.name, version, &resources, defined),
                Err(error) => faults.push((name, format!("it is not served: {}", describe_error(&error)))),
            }
        }
    }
    Ok((found.into_values().collect(), faults))
}

/// Adds kinds that are not there in another version.
fn add_kinds(
    found: &mut BTreeMap<(String, String), ServedKind>,
    group: &str,
    version: &str,
    resources: &APIResourceList,
    defined: &BTreeSet<(String, String)>,
) {
    for resource in &resources.resources {
        // These are made when they are asked for.
        let is_stored = !resource.name.contains('/') && (group, resource.name.as_str()) != ("", "componentstatuses");
        if !is_stored || !resource.verbs.iter().any(|verb| verb == "list") {
            continue;
        }
        let names = (group.to_owned(), resource.name.clone());
        let folder = find_folder(group, &resource.name, defined.contains(&names));
        found.entry(names).or_insert_with(|| ServedKind {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: resource.name.clone(),
            is_namespaced: resource.namespaced,
            folder,
        });
    }
}

/// Returns the folder of a kind's keys: without the group, except for what is defined and for the kinds that define; a
/// few have names of their own, from before they had those of the API.
fn find_folder(group: &str, plural: &str, is_defined: bool) -> String {
    let own = match (group, plural) {
        ("", "endpoints") => "services/endpoints",
        ("", "nodes") => "minions",
        ("", "replicationcontrollers") => "controllers",
        ("", "services") => "services/specs",
        ("networking.k8s.io", "ingresses") => "ingress",
        _ if is_defined || matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io") => {
            return format!("{REGISTRY}{group}/{plural}/");
        }
        _ => plural,
    };
    format!("{REGISTRY}{own}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_of_the_api_server() {
        assert_eq!(find_folder("apps", "deployments", false), "/registry/deployments/");
        assert_eq!(find_folder("", "services", false), "/registry/services/specs/");
        assert_eq!(find_folder("shop.example", "deployments", true), "/registry/shop.example/deployments/");
        let definitions = find_folder("apiextensions.k8s.io", "customresourcedefinitions", false);
        assert_eq!(definitions, "/registry/apiextensions.k8s.io/customresourcedefinitions/");
    }
}
