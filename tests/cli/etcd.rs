//! `etcd status` before it reaches a member.

use serde_json::{Value, json};

use crate::Sandbox;
use crate::server::{Said, not_found, serve_as_it_is, use_cluster};

/// A hosting cluster in which the right of one verb on port-forwards is missing, if a verb is given, and without any object.
fn hosting_cluster(sandbox: &Sandbox, forbidden: Option<&'static str>) {
    let server = serve_as_it_is(move |asked| {
        let (status, body) = if asked.path.contains("selfsubjectaccessreviews") {
            let review: Value = serde_json::from_slice(&asked.body).unwrap();
            let right = &review["spec"]["resourceAttributes"];
            let of_pods = right["resource"] == "pods" && right["subresource"] == "portforward";
            let allowed = !of_pods || forbidden.is_none_or(|verb| right["verb"] != verb);
            (
                201,
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {},
                "status": {"allowed": allowed}}),
            )
        } else {
            not_found()
        };
        Said { status, head: b"content-type: application/json".to_vec(), body: body.to_string().into_bytes() }
    });
    use_cluster(sandbox, &server);
}

#[test]
fn a_missing_right_is_named_before_anything_is_read() {
    for verb in ["get", "create"] {
        let sandbox = Sandbox::new();
        hosting_cluster(&sandbox, Some(verb));
        let missing = format!("you may not {verb} pods/portforward in namespace fleet");
        sandbox.run(&["etcd", "status", "demo"]).fails(3, &[&missing, "fleetctl show rbac demo --day2"]);
    }
}

#[test]
fn a_control_plane_without_etcd_and_wrong_arguments_are_refused() {
    let sandbox = Sandbox::new();
    hosting_cluster(&sandbox, None);
    sandbox
        .run(&["etcd", "status", "demo"])
        .fails(6, &["control plane demo has no StatefulSet etcd in namespace fleet"]);
    sandbox.run(&["etcd", "status", "Demo"]).fails(2, &["Demo"]);
    sandbox.run(&["etcd", "status", "demo", "-o", "wide"]).fails(2, &["table"]);
    sandbox.run(&["etcd", "status"]).fails(2, &["CONTROL_PLANE_NAME"]);
}
