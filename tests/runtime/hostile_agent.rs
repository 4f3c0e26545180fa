//! What an agent writes into its own objects, however wrong, is its own trouble and nobody else's.

use fleetctl::api::Cluster;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::LABEL_CLUSTER;
use fleetctl::api::lenient::Lenient;
use fleetctl::daemon::metrics::Metrics;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::simulated::Simulated;
use crate::support::{Stage, wait};

/// The API server takes it; it is too late for the programs' clocks.
const FAR: &str = "9999-12-31T23:59:59Z";

async fn is_ready(hub: &Client, name: &str) -> bool {
    let cluster = Api::<Lenient<Cluster>>::all(hub.clone()).get_opt(name).await.unwrap();
    let conditions = cluster.and_then(|read| read.0.status).map(|status| status.conditions).unwrap_or_default();
    find_condition(&conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Managed fields with a time that cannot be read.
fn managed(version: &str, fields: &Value) -> Value {
    json!([{"manager": "nonsense", "operation": "Update", "apiVersion": version, "time": FAR,
        "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

#[tokio::test]
async fn an_agent_that_writes_nonsense_stops_neither_the_registration_nor_the_judging_of_others() {
    let stage = Stage::hub().await;
    let hub = stage.hub.client.clone();
    let control_plane = ControlPlane::start(&stage, "").await;
    let metrics = Metrics::default();
    let bad = Applicant::new(&fresh("nonsense"));
    let member = bad.join(&control_plane.init).await;
    let dead = Applicant::new(&fresh("dead"));
    dead.join(&control_plane.init).await;

    let deep = (0..200).fold(json!({}), |below, _| json!({ "x": below }));
    let version = "cluster.fleet-scheduler.io/v1alpha1";
    let own: Api<Lenient<Cluster>> = Api::all(member.clone());
    for nonsense in [
        json!({"status": {"availableResources": {"n": 5}}}),
        json!({"status": {"nodeTaints": {"n": {"key": []}}}}),
        json!({"status": {"capacityResources": {"n": deep}}}),
        json!({"status": {"lastUpdateTime": FAR}}),
        json!({"status": {"autoscaled": true},
            "metadata": {"managedFields": managed(version, &json!({"f:status": {"f:autoscaled": {}}}))}}),
    ] {
        let written = own.patch_status(&bad.name, &PatchParams::default(), &Patch::Merge(&nonsense)).await;
        // What the API server refuses is no danger; the first of them it is known to take.
        assert!(written.is_ok() || nonsense["status"]["availableResources"].is_null(), "{written:?}");
    }
    let lease = json!({
        "metadata": {"labels": {LABEL_CLUSTER: dead.name},
            "managedFields": managed("coordination.k8s.io/v1", &json!({"f:spec": {"f:renewTime": {}}}))},
        "spec": {"renewTime": "9999-12-31T23:59:59.000000Z"},
    });
    let leases: Api<Lenient<Lease>> = Api::namespaced(member.clone(), &format!("fleet-c-{}", bad.name));
    leases.patch("fleet-agent", &PatchParams::default(), &Patch::Merge(&lease)).await.unwrap();

    let heard = Simulated::join(&control_plane.init, &fresh("good"), 1, &metrics).await;
    wait("a cluster is judged by the watches", async || is_ready(&hub, &heard.name).await).await;
    drop(control_plane);
    let control_plane = ControlPlane::start(&stage, "").await;
    let listed = Simulated::join(&control_plane.init, &fresh("good"), 1, &metrics).await;
    wait("a cluster is judged after new lists", async || is_ready(&hub, &listed.name).await).await;
    assert!(!is_ready(&hub, &dead.name).await, "a label does not make another's heartbeat");
    let clusters: Api<Lenient<Cluster>> = Api::all(hub.clone());
    let _ = clusters.delete(&bad.name, &DeleteParams::default()).await;
}

#[tokio::test]
async fn no_control_character_of_an_agent_is_stored() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let agent = Applicant::new(&fresh("coloured"));
    let member = agent.join(&control_plane.init).await;
    let own: Api<Lenient<Cluster>> = Api::all(member);
    let condition = |message: &str| json!({"status": {"conditions": [{"type": "ClusterHealthy", "status": "True", "reason": "A", "message": message}]}});
    let observed = |field: &str, value: Value| json!({"status": {"observed": {field: value}}});
    for (written, taken) in [
        (observed("provider", json!("gce")), true),
        (observed("provider", json!("gce\u{1b}[2J")), false),
        (observed("gitVersion", json!("v1.31\u{9b}2J")), false),
        (observed("zones", json!(["a", "b\r"])), false),
        (condition("two\nlines\tof text"), true),
        (condition("\u{1b}]0;owned\u{7}"), false),
    ] {
        let answer = own.patch_status(&agent.name, &PatchParams::default(), &Patch::Merge(&written)).await;
        assert_eq!(answer.is_ok(), taken, "{written}: {answer:?}");
    }
    let clusters: Api<Lenient<Cluster>> = Api::all(stage.hub.client.clone());
    let _ = clusters.delete(&agent.name, &DeleteParams::default()).await;
}
