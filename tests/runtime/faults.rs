//! Faults of the hub: whatever it goes through, no cluster is called lost that is not, and all is well soon after.

use std::time::Duration;

use crate::membership::Scene;

/// Watches READY for a while; it may never be False.
async fn stays_ready(scene: &Scene, seconds: u32) {
    for second in 0..seconds {
        let (status, reason) = scene.readiness().await;
        assert_eq!(status, "True", "{reason} after {second} s");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn an_api_server_that_dies_and_comes_back_makes_nobody_look_lost() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(90)).await;
    scene.until_ready().await;
    scene.stage.to_the_hub(|bed, hub| bed.kill(hub, "kube-apiserver")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (code, body) = scene.control_plane.scheduler.ask("/readyz").await;
    assert!(code == 503 && body.contains("does not answer"), "{code} {body}");
    scene.stage.to_the_hub(|bed, hub| bed.restart(hub, "kube-apiserver")).await;
    agent.ready(Duration::from_secs(20)).await;
    scene.control_plane.scheduler.ready(Duration::from_secs(60)).await;
    stays_ready(&scene, 75).await;
}

#[tokio::test]
async fn an_etcd_that_stands_still_for_a_minute_makes_nobody_look_lost() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(90)).await;
    scene.until_ready().await;
    scene.stage.to_the_hub(|bed, hub| bed.pause(hub, "etcd")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.stage.to_the_hub(|bed, hub| bed.resume(hub, "etcd")).await;
    agent.ready(Duration::from_secs(30)).await;
    scene.control_plane.scheduler.ready(Duration::from_secs(60)).await;
    stays_ready(&scene, 75).await;
}
