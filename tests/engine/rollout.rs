//! How a change comes to the pods of a set that has never worked. No pod runs here, so none is ever ready.

use std::time::Duration;

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Planned, Removal};
use fleetctl::k8s::{ObjectRef, Selection};
use serde_json::Value;

use super::support::{Case, objects};

/// The set with three members at once, of an image.
fn of_image(case: &Case, image: &str) -> Vec<Planned> {
    let mut all = objects(case);
    for planned in all.iter_mut().filter(|planned| planned.object["kind"] == "StatefulSet") {
        let spec = &mut planned.object["spec"];
        spec["replicas"] = 3.into();
        spec["podManagementPolicy"] = "Parallel".into();
        spec["template"]["spec"]["containers"][0]["image"] = image.into();
    }
    all
}

/// The pods of the set.
async fn members(case: &Case) -> Vec<Value> {
    let selection = Selection { namespace: Some(&case.namespace), labels: Some("app=etcd"), ..Selection::default() };
    case.server().list_objects(&Kind::needed_versions("", "Pod").remove(0), &selection).await.unwrap()
}

/// Ends when all three pods have an image.
async fn all_have(case: &Case, image: &str) {
    let have = async {
        loop {
            let of_image = |pod: &Value| pod["spec"]["containers"][0]["image"] == image;
            let pods = members(case).await;
            if pods.len() == 3 && pods.iter().all(of_image) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), have).await.expect("all pods have the image");
}

#[tokio::test]
async fn the_pods_of_a_set_that_has_never_worked_make_way_for_what_mends_it() {
    let case = Case::new("rollout").await;
    case.install(&of_image(&case, "wrong:1")).await.unwrap();
    all_have(&case, "wrong:1").await;
    case.install(&of_image(&case, "right:1")).await.unwrap();
    let set = ObjectRef::new(&Kind::needed_versions("apps", "StatefulSet").remove(0), Some(&case.namespace), "etcd");
    case.engine.replace_broken_pods(&set).await.unwrap();
    all_have(&case, "right:1").await;
    // What is of the revision that is wanted stays, ready or not.
    let uids = async || members(&case).await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let before = uids().await;
    case.engine.replace_broken_pods(&set).await.unwrap();
    assert_eq!(uids().await, before);
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}
