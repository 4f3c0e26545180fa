//! Which namespaces are protected, and what goes into those that already existed.

use serde_json::json;

use super::*;
use crate::api::placeable::{self, Placeable};

fn namespaces(existing: ExistingNamespaces) -> Namespaces {
    let protected = ["cert-manager", "cattle-*"].map(|text| text.parse().unwrap()).to_vec();
    let rules = NamespaceRules { own: "fleet-agent".to_owned(), protected, existing };
    let mut namespaces = Namespaces::new(rules, "0a1b2c3d");
    assert!(!namespaces.are_known());
    let seen = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        (name.to_owned(), SeenNamespace::from_labels(&labels))
    };
    namespaces.take_namespace_change(Change::All(vec![
        seen("prod-cp", &[(LABEL_INSTALL_KIND, "control-plane")]),
        seen("helm-cp", &[(LABEL_PART_OF, "fleet")]),
        seen("trucks", &[(LABEL_PART_OF, "fleet"), (LABEL_PLACED_BY, "0a1b2c3d")]),
        seen("shop", &[(LABEL_PLACED_BY, "0a1b2c3d")]),
        seen("others", &[(LABEL_PLACED_BY, "ffffffff"), (ENFORCE, "baseline")]),
        seen("old", &[]),
    ]));
    namespaces.take_installations(Change::All(vec![("uid".to_owned(), "by-hand".to_owned())]));
    assert!(namespaces.are_known());
    namespaces
}

fn target(kind: &'static Placeable, namespace: &str, name: &str) -> Target {
    Target { key: CopyKey::new(kind, Some(namespace), name), kind, api_version: kind.api_version() }
}

fn of(group: &str, kind: &str, namespace: &str) -> Target {
    target(placeable::find_builtin_kind(group, kind).unwrap(), namespace, "x")
}

#[test]
fn nothing_is_placed_into_a_protected_namespace() {
    let namespaces = namespaces(ExistingNamespaces::Allow);
    let refused = |target: &Target| namespaces.check_refusal(target, "{}").map(|problem| problem.reason);
    for place in
        ["kube-system", "kube-public", "fleet-agent", "cert-manager", "cattle-system", "prod-cp", "helm-cp", "by-hand"]
    {
        assert_eq!(refused(&of("", "ConfigMap", place)), Some(applied::REFUSED), "{place}");
        let itself = target(placeable::find_builtin_kind("", "Namespace").unwrap(), "", place);
        assert_eq!(refused(&itself), Some(applied::REFUSED), "{place}");
    }
    for place in ["shop", "trucks", "others", "old", "new", "default", "cattle", "kube"] {
        assert_eq!(refused(&of("", "ConfigMap", place)), None, "{place}");
    }
}

#[test]
fn rights_for_a_protected_namespace_are_refused() {
    static BINDING: Placeable = Placeable {
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        wave: placeable::WAVE_RIGHTS,
    };
    let namespaces = namespaces(ExistingNamespaces::Allow);
    let binding = target(&BINDING, "", "x");
    let refused = |place: &str| {
        let manifest = json!({"subjects": [{"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "name": "fleet-agent", "namespace": place}]});
        namespaces.check_refusal(&binding, &manifest.to_string()).is_some()
    };
    assert!(refused("fleet-agent") && refused("kube-system") && !refused("shop"));
}

#[test]
fn a_namespace_that_is_labelled_later_is_protected_from_then_on() {
    let mut namespaces = namespaces(ExistingNamespaces::Allow);
    let labels = BTreeMap::from([(LABEL_INSTALL_KIND.to_owned(), "agent".to_owned())]);
    let labelled = || Change::One(("old".to_owned(), SeenNamespace::from_labels(&labels)));
    assert_eq!(namespaces.take_namespace_change(labelled()), ["old"]);
    assert_eq!(namespaces.take_namespace_change(labelled()), [""; 0], "nothing has changed");
    assert!(namespaces.check_refusal(&of("", "ConfigMap", "old"), "{}").is_some());
    assert_eq!(namespaces.take_installations(Change::One(("2".to_owned(), "shop".to_owned()))), ["shop"]);
    assert!(namespaces.check_refusal(&of("", "ConfigMap", "shop"), "{}").is_some());
    assert_eq!(namespaces.take_installations(Change::Gone(("2".to_owned(), "shop".to_owned()))), [""; 0]);
    assert!(namespaces.check_refusal(&of("", "ConfigMap", "shop"), "{}").is_none());
}

#[test]
fn a_namespace_that_was_there_before_takes_no_pods_that_its_source_would_refuse() {
    let namespaces = namespaces(ExistingNamespaces::Allow);
    let source = |level: &str| {
        NamespaceSource::from_namespace_manifest(&json!({"metadata": {"labels": {ENFORCE: level}}}).to_string(), false)
    };
    let refused = |target: &Target, level: &str| {
        namespaces.check_adoption(target, Some(source(level))).map(|problem| problem.reason)
    };
    for (place, level, expected) in [
        ("old", "restricted", true),
        ("old", "baseline", true),
        ("old", "privileged", false),
        ("shop", "restricted", false),
        ("new", "restricted", false),
    ] {
        let reason = expected.then_some(applied::NAMESPACE_NOT_OWNED);
        assert_eq!(refused(&of("apps", "Deployment", place), level), reason, "{place} {level}");
        assert_eq!(refused(&of("", "ConfigMap", place), level), None, "it runs no pods");
    }
    assert!(namespaces.check_adoption(&of("apps", "Deployment", "old"), None).is_none());
}

#[test]
fn a_copy_waits_until_its_namespace_is_seen() {
    let mut namespaces = namespaces(ExistingNamespaces::Deny);
    let missing = |namespaces: &Namespaces, target: &Target| {
        namespaces.check_existence(&target.key).map(|problem| problem.reason)
    };
    let copy = of("", "ConfigMap", "new");
    assert_eq!(missing(&namespaces, &copy), Some(applied::NAMESPACE_MISSING));
    assert_eq!(missing(&namespaces, &of("", "ConfigMap", "old")), None);
    let itself = target(placeable::find_builtin_kind("", "Namespace").unwrap(), "", "new");
    assert_eq!(missing(&namespaces, &itself), None, "it may be created");
    let answered = json!({"metadata": {"labels": {LABEL_PLACED_BY: "ffffffff"}}});
    assert_eq!(namespaces.take_applied_namespace("new", &answered), ["new"]);
    assert_eq!(missing(&namespaces, &copy), None);
    let refused = namespaces.check_adoption(&copy, None).map(|problem| problem.reason);
    assert_eq!(refused, Some(applied::ALREADY_EXISTS), "its labels were read");
    // What the watch knows may be newer than an answer.
    assert_eq!(namespaces.take_applied_namespace("prod-cp", &json!({})), [""; 0]);
    assert!(namespaces.check_refusal(&of("", "ConfigMap", "prod-cp"), "{}").is_some(), "it is protected still");
}

#[test]
fn a_namespace_that_another_control_plane_placed_is_left_to_it() {
    let itself = target(placeable::find_builtin_kind("", "Namespace").unwrap(), "", "others");
    for existing in [ExistingNamespaces::Allow, ExistingNamespaces::Deny] {
        let mut namespaces = namespaces(existing);
        let refused = |namespaces: &Namespaces, target: &Target, source| {
            namespaces.check_adoption(target, source).map(|problem| (problem.reason, problem.message))
        };
        let source = |adopt| Some(NamespaceSource::from_namespace_manifest("{}", adopt));
        for target in [&itself, &of("", "ConfigMap", "others"), &of("apps", "Deployment", "others")] {
            for source in [source(false), None] {
                let (reason, message) = refused(&namespaces, target, source).expect("it is another's");
                assert_eq!(reason, applied::ALREADY_EXISTS);
                assert!(message.contains("belongs to the control plane ffffffff"), "{message}");
            }
        }
        assert_eq!(refused(&namespaces, &itself, source(true)), None, "its adoption is asked for");
        // The other control plane lets go of it.
        let gone = SeenNamespace::from_labels(&BTreeMap::new());
        assert_eq!(namespaces.take_namespace_change(Change::One(("others".to_owned(), gone))), ["others"]);
        let reason = refused(&namespaces, &of("", "ConfigMap", "others"), source(false)).map(|(reason, _)| reason);
        let expected = (existing == ExistingNamespaces::Deny).then_some(applied::NAMESPACE_NOT_OWNED);
        assert_eq!(reason, expected);
    }
}

#[test]
fn where_they_are_denied_nothing_goes_into_existing_namespaces_that_were_not_adopted() {
    let namespaces = namespaces(ExistingNamespaces::Deny);
    let refused = |target: &Target, adopt| {
        namespaces
            .check_adoption(target, Some(NamespaceSource::from_namespace_manifest("{}", adopt)))
            .map(|problem| problem.reason)
    };
    let itself = target(placeable::find_builtin_kind("", "Namespace").unwrap(), "", "old");
    assert_eq!(refused(&itself, false), Some(applied::NAMESPACE_NOT_OWNED));
    assert_eq!(refused(&itself, true), None, "it is adopted, and what lies in it follows");
    for (place, expected) in [("old", true), ("others", true), ("shop", false), ("new", false)] {
        assert_eq!(refused(&of("", "ConfigMap", place), true).is_some(), expected, "{place}");
    }
}
