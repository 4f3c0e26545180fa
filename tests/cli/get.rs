//! `get`: where it looks.

use serde_json::json;

use crate::Sandbox;
use crate::server::{list, serve, use_cluster};

#[test]
fn deployments_are_those_of_the_namespace_that_was_given_be_it_the_default_of_other_commands() {
    let sandbox = Sandbox::new();
    // One deployment, named after the namespace that was asked for.
    let server = serve(|_, path| {
        let namespace = path.trim_start_matches("/apis/apps/v1/namespaces/").split('/').next().unwrap();
        list(&[json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": namespace},
            "spec": {"selector": {}, "template": {}}})])
    });
    use_cluster(&sandbox, &server);
    let named = |args: &[&str]| {
        let ran = sandbox.run(&[&["get", "deployments", "-o", "name"], args].concat());
        ran.succeeds().trim().trim_start_matches("deployment.apps/").to_owned()
    };
    assert_eq!(named(&[]), "default", "the namespace of the context");
    assert_eq!(named(&["-n", "shop"]), "shop");
    assert_eq!(named(&["-n", "fleet"]), "fleet");
    let before = sandbox.run(&["--namespace", "fleet", "get", "deployments", "-o", "name"]);
    assert_eq!(before.succeeds(), "deployment.apps/fleet\n");
}
