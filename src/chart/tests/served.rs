//! What charts hold is served by every Kubernetes minor that they are for.

use crate::chart::served;

#[test]
fn removed_and_unknown_kinds_are_refused_with_what_would_do() {
    assert_eq!(served::check("apps/v1", "Deployment", 31), Ok(()));
    assert_eq!(served::check("policy/v1beta1", "PodDisruptionBudget", 24), Ok(()));
    assert_eq!(
        served::check("policy/v1beta1", "PodDisruptionBudget", 25).unwrap_err(),
        "Kubernetes 1.25 does not serve PodDisruptionBudget of policy/v1beta1; it has policy/v1"
    );
    assert_eq!(
        served::check("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema", 29).unwrap_err(),
        "Kubernetes 1.29 does not serve FlowSchema of flowcontrol.apiserver.k8s.io/v1beta2; \
         it has flowcontrol.apiserver.k8s.io/v1beta3, flowcontrol.apiserver.k8s.io/v1"
    );
    assert!(served::check("extensions/v1beta1", "Ingress", 24).unwrap_err().contains("not in the table"));
}

#[test]
fn the_table_names_each_kind_of_a_version_once() {
    let mut seen = std::collections::BTreeSet::new();
    for served in served::TABLE {
        assert!(seen.insert((served.api_version, served.kind)), "{served:?}");
        assert!(served.until.is_none_or(|until| served.from < until), "{served:?}");
    }
}
