//! Recorded values of a control plane before they are used: which are shown, and which must be given again.

use serde_json::{Value, json};

use super::charts;
use super::recorded_values::{given, package, recorded};
use crate::chart::SetKind;
use crate::control_plane::charts::ORDINARY_VALUES;
use crate::control_plane::values::ControlPlaneValues;
use crate::install::recorded_use::RecordedUse;

/// The values of an upgrade to v0.9.0 of what was installed with `before`, where `now` is given and this machine has
/// installed with `local`: those that are shown, and those that are refused.
fn used(before: &[&str], now: &[&str], local: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let release = recorded(&given("v0.8.0", before), json!({"cloud": {"accessKey": "hunter2"}}));
    let upgraded = package("v0.9.0", |values, chart| {
        let values = values.with_recorded(&release.values_for(chart));
        now.iter().fold(values, |values, set| values.set(SetKind::Value, set))
    });
    let used = RecordedUse::from_package_values(&upgraded, local, ORDINARY_VALUES);
    (used.values.iter().map(ToString::to_string).collect(), used.unconfirmed.iter().map(ToString::to_string).collect())
}

#[test]
fn what_is_taken_from_a_record_is_shown_but_for_defaults_and_what_is_given_again() {
    let before = ["scheduler.replicas=2", "etcd.replicas=1", "exposure.host=192.0.2.1", "nodeSelector.a\\.b/c=d"];
    let (shown, refused) = used(&before, &["exposure.host=192.0.2.2"], None);
    let expected = ["cloud.accessKey=(a secret)", "nodeSelector[\"a.b/c\"]=\"d\"", "scheduler.replicas=2"];
    assert_eq!((shown.as_slice(), refused.as_slice()), (&expected.map(str::to_owned)[..], &[][..]));
    // What `null` takes back is used no more, and a default that the record deletes is.
    let (shown, _) = used(&["namespace.podSecurity=null", "spread=Required"], &["spread=null"], None);
    assert_eq!(shown, ["cloud.accessKey=(a secret)", "namespace.podSecurity=null"]);
}

#[test]
fn a_value_that_may_give_rights_is_used_only_where_this_machine_knows_it_or_is_given_it() {
    let rights = [
        ("placement.allowRBACKinds=true", "placement.allowRBACKinds: the record has true"),
        ("namespace.podSecurity=privileged", "namespace.podSecurity: the record has \"privileged\""),
        ("apiserver.allowPrivileged=true", "apiserver.allowPrivileged: the record has true"),
        ("apiserver.extraArgs={--anonymous-auth}", "apiserver.extraArgs: the record has [\"--anonymous-auth\"]"),
        ("etcd.extraArgs={--v=4}", "etcd.extraArgs: the record has [\"--v=4\"]"),
        ("controllerManager.extraArgs={--v=4}", "controllerManager.extraArgs: the record has [\"--v=4\"]"),
        ("scheduler.extraArgs={--v=4}", "scheduler.extraArgs: the record has [\"--v=4\"]"),
        (
            "scheduler.extraEnv[0].name=A,scheduler.extraEnv[0].value=b",
            "scheduler.extraEnv: the record has [{\"name\":\"A\",\"value\":\"b\"}]",
        ),
        ("scheduler.initTokenTTL=100d", "scheduler.initTokenTTL: the record has \"100d\""),
        ("apiserver.audit.enabled=false", "apiserver.audit.enabled: the record has false"),
    ];
    for (set, refusal) in rights {
        let local = given("v0.8.0", &[set]).given_values();
        assert_eq!(used(&[set], &[], None).1, [refusal]);
        assert_eq!(used(&[set], &[], Some(&json!({}))).1, [refusal], "another machine has installed");
        assert_eq!(used(&[set], &[], Some(&local)).1, [""; 0], "{set}");
        if !set.contains("extraEnv") {
            assert_eq!(used(&[set], &[set], None).1, [""; 0], "{set} is given again");
        }
        let path = set.split(['=', '[']).next().unwrap();
        assert_eq!(used(&[set], &[&format!("{path}=null")], None).1, [""; 0], "{set} is taken back");
    }
    // A part of it is not all of it.
    let part = used(&["scheduler.extraArgs={--v=2,--evil}"], &["scheduler.extraArgs[0]=--v=4"], None).1;
    assert_eq!(part, ["scheduler.extraArgs: the record has [\"--v=4\",\"--evil\"]"]);
}

#[test]
fn what_a_record_has_lost_is_named_and_what_only_takes_rights_is_not() {
    let manual = json!({"scheduler": {"registration": "Manual", "replicas": 2}});
    assert_eq!(used(&["scheduler.registration=Manual"], &[], None).1, [""; 0]);
    let lost = "scheduler.registration: the record has nothing; the last install from this machine used \"Manual\"";
    assert_eq!(used(&[], &[], Some(&manual)).1, [lost]);
    assert_eq!(used(&[], &["scheduler.registration=Auto"], Some(&manual)).1, [""; 0]);
    let changed = json!({"apiserver": {"extraArgs": ["--v=2"]}});
    let expected =
        "apiserver.extraArgs: the record has [\"--v=4\"]; the last install from this machine used [\"--v=2\"]";
    assert_eq!(used(&["apiserver.extraArgs={--v=4}"], &[], Some(&changed)).1, [expected]);
}

#[test]
fn an_undo_uses_no_value_of_a_record_that_may_give_rights_and_is_not_known_here() {
    let record = json!({"namespace": {"podSecurity": "privileged"}, "scheduler": {"replicas": 2}});
    let unconfirmed = RecordedUse::unconfirmed_in(&record, None, ORDINARY_VALUES);
    let paths: Vec<String> = unconfirmed.into_iter().map(|value| value.path).collect();
    assert_eq!(paths, ["namespace.podSecurity"]);
    assert_eq!(RecordedUse::unconfirmed_in(&record, Some(&record), ORDINARY_VALUES), []);
}

#[test]
fn every_ordinary_value_is_one_that_a_chart_has() {
    let defaults = charts().iter().map(|chart| {
        let values: ControlPlaneValues = given(&chart.line().to_string(), &[]).tree().deserialize().unwrap();
        json!(values)
    });
    let defaults: Vec<Value> = defaults.collect();
    for pattern in ORDINARY_VALUES.paths.iter().chain(ORDINARY_VALUES.values.iter().map(|(path, _)| path)) {
        assert!(defaults.iter().any(|values| has_value_at(values, pattern)), "{pattern}");
    }
}

/// Returns whether there is a value at a path, whose first key may be any.
fn has_value_at(values: &Value, pattern: &str) -> bool {
    let (first, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let mut found: Vec<&Value> = match first {
        "*" => values.as_object().unwrap().values().collect(),
        key => values.get(key).into_iter().collect(),
    };
    for key in rest.split('.').filter(|key| !key.is_empty()) {
        found = found.into_iter().filter_map(|value| value.get(key)).collect();
    }
    !found.is_empty()
}
