//! `why` for users who may read an object and not the state of the control plane.

use serde_json::json;

use crate::Sandbox;
use crate::server::{forbidden, list, serve, use_cluster};

#[test]
fn whoever_may_read_only_the_object_is_told_what_it_says_itself() {
    let sandbox = Sandbox::new();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {}, "reason": "NotPlaced", "message": "no room"});
    let server = serve(move |_, path| match path.split('?').next().unwrap() {
        "/apis/apps/v1/namespaces/shop/deployments/web" => (
            200,
            json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u",
                "labels": {"fleet-scheduler.io/target-cluster": "west"}}}),
        ),
        "/apis/apps/v1/namespaces/shop/deployments/lost" => {
            (200, json!({"metadata": {"name": "lost", "namespace": "shop", "uid": "v"}}))
        }
        "/api/v1/namespaces/shop/events" => list(std::slice::from_ref(&event)),
        _ => forbidden(),
    });
    use_cluster(&sandbox, &server);
    let shown = sandbox.run(&["why", "deployment/web", "-n", "shop"]);
    let text = shown.succeeds();
    assert!(text.starts_with("Deployment shop/web is placed on west, by its label.\n"), "{text}");
    assert!(text.contains("event NotPlaced: no room") && text.contains("fleet:reader"), "{text}");
    let lost = sandbox.run(&["why", "deployment/lost", "-n", "shop"]);
    assert_eq!(lost.code, 7, "{lost:?}");
    assert!(lost.stdout.starts_with("Deployment shop/lost has no label that names a cluster.\n"), "{lost:?}");
    sandbox.run(&["why", "deployment/other", "-n", "shop"]).fails(1, &["cannot read Deployment shop/other"]);
}
