//! Facts that are not in nodes and pods: the version of the API server, what it serves, and whether the cluster grows.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::api::extra_kind::ExtraKind;
use crate::api::kinds::split_api_version;
use crate::api::placeable::PLACEABLE;
use crate::k8s::connect::daemon_client::call_with_timeout;

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
    pub async fn read_server_facts(local: &Client, extra_kinds: &[ExtraKind], before: Option<Self>) -> Self {
        Self {
            git_version: call_with_timeout(local.apiserver_version())
                .await
                .map(|info| info.git_version)
                .unwrap_or_default(),
            autoscaled: is_autoscaled(local).await,
            apis: read_served_apis(local, extra_kinds)
                .await
                .unwrap_or_else(|| before.map(|before| before.apis).unwrap_or_default()),
        }
    }
}

/// Returns whether there is a cluster autoscaler, which keeps its state in this ConfigMap wherever it runs.
async fn is_autoscaled(local: &Client) -> bool {
    let api: Api<ConfigMap> = Api::namespaced(local.clone(), "kube-system");
    matches!(call_with_timeout(api.get_metadata_opt("cluster-autoscaler-status")).await, Ok(Some(_)))
}

async fn read_served_apis(local: &Client, extra_kinds: &[ExtraKind]) -> Option<Vec<String>> {
    let core = call_with_timeout(local.list_core_api_versions()).await.ok()?;
    let groups = call_with_timeout(local.list_api_groups()).await.ok()?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    let apis = core.versions.into_iter().chain(versions.map(|version| version.group_version)).collect();
    Some(limit_apis(apis, extra_kinds))
}

/// As many as are reported, sorted; those of kinds that can be placed are always among them.
fn limit_apis(mut apis: Vec<String>, extra_kinds: &[ExtraKind]) -> Vec<String> {
    apis.sort_by_cached_key(|api| {
        let group = split_api_version(api).0;
        let is_placed =
            PLACEABLE.iter().any(|kind| kind.group == group) || extra_kinds.iter().any(|kind| kind.group == group);
        (!is_placed, api.clone())
    });
    apis.truncate(MOST_APIS);
    apis.sort_unstable();
    apis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_placed_is_reported_however_much_is_served() {
        let many = (0..2 * MOST_APIS).map(|n| format!("a{n}.example.com/v1"));
        let all: Vec<String> = many.chain(["apps/v1", "v1", "z.example.com/v1"].map(str::to_owned)).collect();
        let found = limit_apis(all, &["z.example.com/v1/Widget".parse().unwrap()]);
        assert!(found.len() == MOST_APIS && found.is_sorted());
        for api in ["apps/v1", "v1", "z.example.com/v1"] {
            assert!(found.iter().any(|one| one == api), "{api}");
        }
    }
}
