//! The audit log of the API server: what it records and what it leaves out.

use super::*;

/// The objects about the audit log: its policy, and the pod of the API server.
fn parts(rendered: &Rendered) -> (Option<Value>, &Value) {
    let policy = rendered.objects.iter().find(|object| object.id() == "configmap/apiserver-audit");
    let policy = policy.map(|object| object.json["data"]["policy.yaml"].as_str().unwrap());
    let api_server = rendered.objects.iter().find(|object| object.id() == "deployment/apiserver").unwrap();
    (policy.map(|text| serde_saphyr::from_str(text).unwrap()), &api_server.json["spec"]["template"])
}

fn flags(pod: &Value) -> Vec<&str> {
    let command = pod["spec"]["containers"][0]["command"].as_array().unwrap();
    command.iter().filter_map(Value::as_str).filter(|flag| flag.starts_with("--audit")).collect()
}

#[test]
fn requests_are_on_record_and_never_what_they_hold() {
    everywhere(|which, rendered| {
        let (policy, pod) = parts(rendered);
        let policy = policy.unwrap_or_else(|| panic!("{which} has no policy"));
        let rules = policy["rules"].as_array().unwrap();
        // `Request` and `RequestResponse` would write keys and tokens.
        assert!(rules.iter().all(|rule| rule["level"] == "None" || rule["level"] == "Metadata"), "{which}");
        assert_eq!(rules.last(), Some(&json!({"level": "Metadata"})), "{which}: whatever no rule leaves out");
        assert_eq!(flags(pod), ["--audit-policy-file=/etc/fleet/audit/policy.yaml", "--audit-log-path=-"], "{which}");
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert!(
            mounts.contains(&json!({"name": "audit", "mountPath": "/etc/fleet/audit", "readOnly": true})),
            "{which}"
        );
        assert!(pod["metadata"]["annotations"]["fleet-scheduler.io/checksum-audit"].is_string(), "{which}");
    });
}

/// Returns whether a rule has a list, and nothing in it but `allowed`.
fn lists_only(rule: &Value, key: &str, allowed: &[&str]) -> bool {
    rule[key].as_array().is_some_and(|list| list.iter().all(|one| allowed.contains(&one.as_str().unwrap())))
}

#[test]
fn only_what_is_asked_again_and_again_is_left_out_of_the_record() {
    let of_programs = json!(["system:apiserver", "system:kube-controller-manager", "fleet:scheduler"]);
    let of_programs = of_programs.as_array().unwrap();
    everywhere(|which, rendered| {
        let (policy, _) = parts(rendered);
        let policy = policy.unwrap();
        for rule in policy["rules"].as_array().unwrap().iter().filter(|rule| rule["level"] == "None") {
            let paths_of_all = ["/healthz*", "/livez*", "/readyz*", "/version*"];
            let program = rule["users"].as_array().is_some_and(|users| users.iter().all(|u| of_programs.contains(u)))
                || lists_only(rule, "userGroups", &["fleet:agents", "system:serviceaccounts:kube-system"]);
            assert!(program || lists_only(rule, "nonResourceURLs", &paths_of_all), "{which}: {rule}");
            // What is changed is left out of Leases and events alone.
            let changes = !lists_only(rule, "verbs", &["get", "list", "watch"]);
            let kinds = rule["resources"].as_array().into_iter().flatten();
            let mut kinds = kinds.flat_map(|group| group["resources"].as_array().unwrap());
            assert!(!changes || (rule.get("resources").is_some() && kinds.all(|k| k == "leases" || k == "events")));
        }
    });
}

#[test]
fn it_can_be_switched_off() {
    for chart in charts() {
        let rendered = render_with(chart, None, &["apiserver.audit.enabled=false"], &placeholder_files());
        let (policy, pod) = parts(&rendered);
        assert_eq!((policy, flags(pod)), (None, Vec::new()), "{}", chart.line());
        assert!(!pod.to_string().contains("audit"), "{}", chart.line());
    }
}
