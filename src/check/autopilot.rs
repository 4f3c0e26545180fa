//! Whether a cluster is a managed one in the mode in which its provider runs the nodes: not supported for either kind of
//! installation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;

use super::CheckResult;

/// An API group that only clusters in this mode serve.
const GROUP: &str = "auto.gke.io";
/// Prefix of the names of nodes that the provider makes in this mode.
const NODE: &str = "gk3-";

/// Returns the evidence of the mode: an API group, or the names of nodes. Either may be missing.
pub(super) fn find_autopilot_evidence<'n>(
    groups: Option<&APIGroupList>,
    nodes: impl Iterator<Item = &'n str>,
) -> Vec<String> {
    let groups = groups.iter().flat_map(|list| &list.groups).filter(|group| group.name == GROUP);
    let groups = groups.map(|group| format!("API group {}", group.name));
    groups.chain(nodes.filter(|name| name.starts_with(NODE)).map(|name| format!("node {name}"))).collect()
}

/// The verdict on what was found.
pub(super) fn evaluate_autopilot(evidence: &[String]) -> CheckResult {
    match evidence.first() {
        None => CheckResult::Passed("not a fully managed (autopilot) cluster".to_owned()),
        Some(evidence) => CheckResult::new_failure(
            format!("this is a managed cluster in autopilot mode ({evidence})"),
            "use a cluster whose nodes you manage yourself",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The evidence in a cluster with this API group and these nodes.
    fn find_in_cluster(group: &str, nodes: &[&'static str]) -> Vec<String> {
        let groups = serde_json::json!({"groups": [{"name": group, "versions": []}]});
        let groups = serde_json::from_value::<APIGroupList>(groups).unwrap();
        find_autopilot_evidence(Some(&groups), nodes.iter().copied())
    }

    #[test]
    fn an_api_group_or_the_name_of_a_node_tells_the_mode() {
        assert!(
            find_in_cluster("apps", &["worker-1"]).is_empty()
                && find_autopilot_evidence(None, std::iter::empty()).is_empty()
        );
        assert_eq!(find_in_cluster("auto.gke.io", &[]), ["API group auto.gke.io"]);
        assert_eq!(find_in_cluster("apps", &["gk3-pool-1"]), ["node gk3-pool-1"]);
        assert!(matches!(evaluate_autopilot(&find_in_cluster("apps", &["gk3-pool-1"])), CheckResult::Failed(_)));
    }
}
