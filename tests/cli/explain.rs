//! `explain`.

use crate::Sandbox;

#[test]
fn checks_causes_and_errors_are_explained_and_listed() {
    let sandbox = Sandbox::new();
    let list = sandbox.run(&["explain"]);
    for heading in ["CHECKS", "CAUSES OF A FAILED WAIT", "ERRORS"] {
        assert!(list.succeeds().contains(heading), "{list:?}");
    }
    for id in ["storage", "crash-loop", "Locked"] {
        assert!(list.stdout.lines().any(|line| line.trim_start().starts_with(id)), "{id}: {list:?}");
        let page = sandbox.run(&["explain", id]);
        assert!(page.succeeds().starts_with(id) && page.stdout.contains("What to do"), "{page:?}");
        assert!(!page.stdout.contains("](") && !page.stdout.contains("##"), "{page:?}");
    }
    let json: serde_json::Value = serde_json::from_str(sandbox.run(&["explain", "-o", "json"]).succeeds()).unwrap();
    assert!(json.as_array().unwrap().iter().any(|entry| entry["id"] == "pod-security" && entry["kinds"][1] == "cause"));
    let page: serde_json::Value =
        serde_json::from_str(sandbox.run(&["explain", "locked", "-o", "json"]).succeeds()).unwrap();
    assert_eq!((&page["id"], page["kinds"][0].as_str()), (&"Locked".into(), Some("error")));
}

#[test]
fn an_unknown_id_is_a_usage_error_with_the_nearest_one() {
    let sandbox = Sandbox::new();
    sandbox.run(&["explain", "crashloop"]).fails(2, &["crashloop", "did you mean `crash-loop`?"]);
    sandbox.run(&["explain", "zebra"]).fails(2, &["fleetctl explain"]);
}
