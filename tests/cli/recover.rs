//! `rollback` and `kubeconfig` as far as they need no cluster.

use serde_json::json;

use crate::Sandbox;
use crate::server::{not_found, serve, use_cluster};

#[test]
fn names_are_checked_and_asked_for() {
    let sandbox = Sandbox::new();
    for command in ["rollback", "kubeconfig"] {
        sandbox.run(&[command]).fails(2, &["CONTROL_PLANE_NAME"]);
        sandbox.run(&[command, "../../etc"]).fails(2, &["../../etc"]);
        sandbox.run(&[command, "demo", "--context", "nowhere"]).fails(2, &["nowhere"]);
    }
    sandbox.run(&["rollback", "demo", "--timeout", "soon"]).fails(2, &["soon", "5m"]);
}

#[test]
fn a_kubeconfig_comes_from_the_local_folder_where_there_is_no_cluster() {
    let sandbox = Sandbox::new();
    sandbox.run(&["kubeconfig", "demo"]).fails(1, &["no kubeconfig of control plane demo", ".fleet/demo"]);
    let exposed =
        ["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.1", "--set", "exposure.port=32222"];
    sandbox.run(&[&["template", "cp", "demo"], &exposed[..]].concat()).succeeds();
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    let made = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let shown = sandbox.run(&["kubeconfig", "demo", "--show"]);
    assert_eq!(shown.succeeds(), made);
    assert!(!file.exists(), "only shown");
    let written = sandbox.run(&["kubeconfig", "demo"]);
    assert!(written.succeeds().contains(&file.display().to_string()));
    assert!(!written.stdout.contains("client-key-data") && !written.stderr.contains("client-key-data"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), made);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_rollback_without_a_record_says_what_is_installed_by_its_labels() {
    let sandbox = Sandbox::new();
    let labels = json!({"app.kubernetes.io/instance": "demo", "app.kubernetes.io/version": "v0.7.1"});
    let server = serve(move |_, path| match path.split('?').next() {
        Some(path) if path.ends_with("/deployments/apiserver") => (
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "apiserver", "labels": labels}}),
        ),
        _ => not_found(),
    });
    use_cluster(&sandbox, &server);
    let said = sandbox.run(&["rollback", "demo"]);
    let found =
        ["nothing to undo. By its labels service version v0.7.1 is installed", "fleetctl install control-plane demo"];
    assert!(found.iter().all(|part| said.succeeds().contains(part)), "{said:?}");
    let other = sandbox.run(&["rollback", "other"]);
    assert!(other.succeeds().contains("Nothing is installed."), "{other:?}");
}
