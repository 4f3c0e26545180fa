//! Facts that are not in nodes and pods: the version of the API server, what it serves, and whether the cluster grows.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::k8s::daemon_client::call;

/// Largest number of API versions that are reported.
const MOST_APIS: usize = 400;

/// Facts about the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its version; empty where it could not be read.
    pub git_version: String,
    /// An autoscaler exists.
    pub autoscaled: bool,
    /// API versions that it serves, sorted; empty while they are unknown.
    pub apis: Vec<String>,
}

impl ServerFacts {
    /// Reads them. API versions that cannot be read are those of `before`.
    pub async fn read(local: &Client, before: Option<Self>) -> Self {
        Self {
            git_version: call(local.apiserver_version()).await.map(|info| info.git_version).unwrap_or_default(),
            autoscaled: is_autoscaled(local).await,
            apis: apis(local).await.unwrap_or_else(|| before.map(|before| before.apis).unwrap_or_default()),
        }
    }
}

/// The cluster autoscaler keeps its state in this ConfigMap wherever it runs.
async fn is_autoscaled(local: &Client) -> bool {
    let api: Api<ConfigMap> = Api::namespaced(local.clone(), "kube-system");
    matches!(call(api.get_metadata_opt("cluster-autoscaler-status")).await, Ok(Some(_)))
}

async fn apis(local: &Client) -> Option<Vec<String>> {
    let core = call(local.list_core_api_versions()).await.ok()?;
    let groups = call(local.list_api_groups()).await.ok()?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    let mut apis: Vec<String> =
        core.versions.into_iter().chain(versions.map(|version| version.group_version)).collect();
    apis.sort_unstable();
    apis.truncate(MOST_APIS);
    Some(apis)
}
