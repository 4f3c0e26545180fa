//! Admission policies of others that match requests which the service itself makes.

use serde::Deserialize;

use super::PolicyBinding;
use super::collect::Rule;
use crate::check::inside::collect::Named;

/// Kinds that the scheduler and the agents write all the time: API group and plural. Whoever refuses these stops the fleet.
const OWN_REQUESTS: [(&str, &str); 6] = [
    ("coordination.k8s.io", "leases"),
    ("cluster.fleet-scheduler.io", "clusters"),
    ("cluster.fleet-scheduler.io", "schedules"),
    ("cluster.fleet-scheduler.io", "clusterreports"),
    ("policy.fleet-scheduler.io", "schedulegroups"),
    ("certificates.k8s.io", "certificatesigningrequests"),
];

/// Part of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
#[derive(Debug, Deserialize)]
pub(super) struct Policy {
    metadata: Named,
    #[serde(default)]
    spec: PolicySpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicySpec {
    match_constraints: Matched,
}

/// Part of a binding of either kind.
#[derive(Debug, Deserialize)]
pub(super) struct Binding {
    metadata: Named,
    spec: BindingSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingSpec {
    #[serde(default)]
    policy_name: String,
    /// Absent for a MutatingAdmissionPolicy, which refuses by an error of its expressions.
    #[serde(default)]
    validation_actions: Option<Vec<String>>,
    #[serde(default)]
    match_resources: Matched,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Matched {
    resource_rules: Vec<Rule>,
    exclude_resource_rules: Vec<Rule>,
}

impl Rule {
    fn is_of(&self, group: &str) -> bool {
        self.api_groups.iter().any(|one| one == "*" || one == group)
    }

    /// Returns the resources by which the rule matches requests about a kind or about a part of it, such as its status.
    fn resources_of<'r>(&'r self, group: &str, plural: &str) -> impl Iterator<Item = &'r str> {
        let is_of = self.is_of(group);
        let resources = self.resources.iter().map(String::as_str).filter(move |_| is_of);
        resources.filter(move |one| one.split('/').next().is_some_and(|kind| kind == "*" || kind == plural))
    }
}

impl Matched {
    /// Returns whether requests about a kind are matched. Rules that there are none of match every kind, where
    /// `all_without` says so.
    fn has_match_for(&self, group: &str, plural: &str, all_without: bool) -> bool {
        let matching: Vec<&str> =
            self.resource_rules.iter().flat_map(|rule| rule.resources_of(group, plural)).collect();
        if matching.is_empty() && !(all_without && self.resource_rules.is_empty()) {
            return false;
        }
        // `*` and the name of a kind do not speak of its parts.
        let has_parts = matching.iter().any(|resource| resource.contains('/'));
        let mut excluded = self.exclude_resource_rules.iter().flat_map(|rule| rule.resources_of(group, plural));
        !excluded.any(|resource| resource.ends_with("/*") || !has_parts && !resource.contains('/'))
    }
}

/// Returns the bindings that match requests of the service itself and may refuse them. What their expressions say of a
/// request is not known here.
pub(super) fn find_matching_bindings(
    kind: &'static str,
    policies: &[Policy],
    bindings: &[Binding],
) -> Vec<PolicyBinding> {
    let mut found = Vec::new();
    for Binding { metadata, spec } in bindings {
        let refuses = spec.validation_actions.as_ref().is_none_or(|actions| actions.iter().any(|one| one == "Deny"));
        let Some(policy) = policies.iter().find(|policy| policy.metadata.name == spec.policy_name) else { continue };
        let matched = OWN_REQUESTS.iter().find(|(group, plural)| {
            policy.spec.match_constraints.has_match_for(group, plural, false)
                && spec.match_resources.has_match_for(group, plural, true)
        });
        if let (true, Some((group, plural))) = (refuses, matched) {
            let (name, policy) = (metadata.name.clone(), spec.policy_name.clone());
            found.push(PolicyBinding { kind, name, policy, matches: format!("{plural}.{group}") });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::api::labels::is_own_group;

    fn matches(constraints: &Value, binding: &Value) -> Option<String> {
        let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints}});
        let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
        spec.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
        let binding = json!({"metadata": {"name": "b"}, "spec": spec});
        let found = find_matching_bindings("K", &[from_value(policy).unwrap()], &[from_value(binding).unwrap()]);
        found.into_iter().next().map(|binding| binding.matches)
    }

    fn rules(group: &str, resource: &str) -> Value {
        json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}])
    }

    /// The request of the service that a policy about this resource matches.
    fn match_requests(group: &str, resource: &str) -> Option<String> {
        matches(&json!({"resourceRules": rules(group, resource)}), &json!({}))
    }

    #[test]
    fn what_matches_requests_of_the_service_is_found() {
        assert_eq!(match_requests("*", "*").as_deref(), Some("leases.coordination.k8s.io"));
        assert_eq!(
            match_requests("cluster.fleet-scheduler.io", "*/*").as_deref(),
            Some("clusters.cluster.fleet-scheduler.io")
        );
        assert_eq!(
            match_requests("cluster.fleet-scheduler.io", "schedules/status").as_deref(),
            Some("schedules.cluster.fleet-scheduler.io")
        );
        assert_eq!(match_requests("apps", "deployments"), None);
        assert_eq!(match_requests("*", "pods"), None);
    }

    #[test]
    fn what_is_narrowed_by_the_binding_excluded_or_only_warns_is_left_out() {
        let all = json!({"resourceRules": rules("*", "*")});
        assert_eq!(matches(&all, &json!({"validationActions": ["Warn", "Audit"]})), None);
        assert_eq!(matches(&all, &json!({"matchResources": {"resourceRules": rules("apps", "*")}})), None);
        assert_eq!(matches(&all, &json!({"policyName": "other"})), None);
        let own: Vec<Value> = OWN_REQUESTS
            .iter()
            .map(|(group, plural)| json!({"operations": ["*"], "apiGroups": [group], "resources": [plural]}))
            .collect();
        let excluded = json!({"resourceRules": rules("*", "*"), "excludeResourceRules": own});
        assert_eq!(matches(&excluded, &json!({})), None);
        let parts_too = json!({"resourceRules": rules("*", "*/*"), "excludeResourceRules": own});
        assert_eq!(
            matches(&parts_too, &json!({})).as_deref(),
            Some("leases.coordination.k8s.io"),
            "their status is not"
        );
    }

    #[test]
    fn the_kinds_of_the_services_own_api_are_among_those_that_are_guarded() {
        for definition in crate::api::crd::crds::list_crds() {
            let [group, plural] = ["/spec/group", "/spec/names/plural"]
                .map(|path| definition.pointer(path).and_then(Value::as_str).unwrap());
            // The scheduler reads policies; it writes their status alone.
            let is_listed = OWN_REQUESTS.contains(&(group, plural)) || plural == "schedulepolicies";
            assert!(is_own_group(group) && is_listed, "{plural}.{group}");
        }
    }
}
