//! `version`.

use crate::Sandbox;

#[test]
fn without_a_cluster_the_version_of_the_program_is_printed() {
    let sandbox = Sandbox::new();
    let text = sandbox.run(&["version"]);
    assert!(text.succeeds().starts_with(concat!("fleetctl v", env!("CARGO_PKG_VERSION"), " (git: ")), "{text:?}");
    assert!(text.stdout.contains("not checked: no kubeconfig was found"), "{text:?}");
    let json = sandbox.run(&["version", "--client", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(json.succeeds()).unwrap();
    assert_eq!(json["client"]["version"], concat!("v", env!("CARGO_PKG_VERSION")));
    assert_eq!(
        (&json["controlPlanes"], &json["agents"], &json["skew"]),
        (&vec![0; 0].into(), &vec![0; 0].into(), &vec![0; 0].into())
    );
}
