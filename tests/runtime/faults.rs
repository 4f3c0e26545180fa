//! Faults of the hub and of the way to it: no cluster is called lost that is not, those that are lost are found in time,
//! and all is well soon after.

// One test prints what it measured.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleetctl::api::Cluster;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::daemon::metrics::Metrics;
use fleetctl::k8s::connect::daemon_client;
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::applicant::{Applicant, fresh};
use crate::membership::Scene;
use crate::simulated::Simulated;
use crate::support::{Link, Program, Wire, wait};

/// Status and reason of `Ready` of a cluster; empty where there is none.
async fn readiness(hub: &Client, name: &str) -> (String, String) {
    let cluster = Api::<Cluster>::all(hub.clone()).get_opt(name).await.unwrap();
    let conditions = cluster.and_then(|c| c.status).map(|s| s.conditions).unwrap_or_default();
    find_condition(&conditions, "Ready").map(|c| (c.status.clone(), c.reason.clone())).unwrap_or_default()
}

/// Status and message of `ClockSkew` of a cluster.
async fn clock(hub: &Client, name: &str) -> Option<(String, String)> {
    let status = Api::<Cluster>::all(hub.clone()).get(name).await.unwrap().status.unwrap_or_default();
    find_condition(&status.conditions, "ClockSkew").map(|c| (c.status.clone(), c.message.clone()))
}

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
async fn a_control_plane_that_is_down_for_five_minutes_finds_its_clusters_as_it_left_them() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(90)).await;
    scene.until_ready().await;
    let all = ["kube-apiserver", "kube-controller-manager", "etcd"];
    for component in all {
        scene.stage.to_the_hub(move |bed, hub| bed.kill(hub, component)).await;
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(agent.ask("/healthz").await.0, 200, "an agent lives through it");
    let (code, body) = agent.ask("/readyz").await;
    assert!(code == 503 && body.contains("ControlPlaneUnreachable"), "{code} {body}");
    scene.stage.to_the_hub(move |bed, hub| bed.restart_all(hub, &all)).await;
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

#[tokio::test]
async fn a_link_that_is_cut_in_one_direction_is_noticed_and_heals() {
    let scene = Scene::set().await;
    let (wire, mut agent, _folder) = scene.wired_agent().await;
    for held in [Link::Mute, Link::Deaf] {
        scene.until_ready().await;
        wire.turn(held);
        let took = scene.until_lost().await;
        assert!(took > Duration::from_secs(38) && took < Duration::from_secs(75), "{held:?}: {took:?}");
        let (code, body) = agent.ask("/readyz").await;
        assert!(code == 503 && body.contains("ControlPlaneUnreachable"), "{held:?}: {code} {body}");
        wire.turn(Link::Whole);
        let took = scene.until_ready().await;
        assert!(took < Duration::from_secs(20), "{held:?}: {took:?}");
    }
}

#[tokio::test]
async fn an_agent_follows_an_init_secret_that_was_replaced() {
    let scene = Scene::set().await;
    let folder = tempfile::tempdir().unwrap();
    let init = folder.path().join("init");
    fs_err::copy(&scene.control_plane.init_file, &init).unwrap();
    let mut agent = scene.agent_by(&init, "pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    // The same control plane at another address: the agent registers there, as the same one.
    let wire = Wire::to(&scene.stage.hub.url, true).await;
    wire.init(&scene.control_plane.init_file, &scene.stage.hub.url, folder.path());
    wait("it registered again", async || agent.log().matches("\"registered\"").count() == 2).await;
    agent.ready(Duration::from_secs(30)).await;
    stays_ready(&scene, 20).await;
    // It uses the new way and no other.
    wire.set(false);
    wait("the new way is missed", async || agent.ask("/readyz").await.1.contains("ControlPlaneUnreachable")).await;
    wire.set(true);
    agent.ready(Duration::from_secs(30)).await;
    assert_eq!(scene.readiness().await.0, "True");
}

#[tokio::test]
async fn a_hub_that_was_restored_from_an_old_backup_gets_its_clusters_back() {
    let mut scene = Scene::set().await;
    let hub = scene.stage.hub.client.clone();
    let clusters = scene.clusters();
    let metrics = Metrics::default();
    let known = Simulated::join(&scene.control_plane.init, &fresh("known"), 3, &metrics).await;
    let gone = Applicant::new(&fresh("gone"));
    gone.join(&scene.control_plane.init).await;
    wait("the first is ready", async || readiness(&hub, &known.name).await.0 == "True").await;
    scene.stage.to_the_hub(bed::Bed::back_up).await;
    scene.control_plane.scheduler.ready(Duration::from_secs(60)).await;

    // After the backup: a new member, one that goes, and much else, so that versions run far ahead.
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    clusters.delete(&gone.name, &DeleteParams::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(hub.clone(), "default");
    for _ in 0..1000 {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(fresh("filler")), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    scene.stage.to_the_hub(bed::Bed::restore_back_up).await;
    scene.control_plane.scheduler.ready(Duration::from_secs(60)).await;

    assert!(clusters.get_opt(&scene.name).await.unwrap().is_none(), "the backup is older than the member");
    // The known one never looks lost; the new one is refused for two minutes, and then registers again.
    let began = Instant::now();
    while scene.readiness().await.0 != "True" {
        let (status, reason) = readiness(&hub, &known.name).await;
        assert_eq!(status, "True", "{reason} after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(240), "{}", agent.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // What had gone is back without a heartbeat, and is told so, not taken for alive.
    wait("the one that had gone is lost", async || readiness(&hub, &gone.name).await.0 == "False").await;
    stays_ready(&scene, 75).await;
    assert_eq!(readiness(&hub, &known.name).await.0, "True");
}

#[tokio::test]
async fn an_agent_whose_clock_is_ten_minutes_wrong_is_as_alive_as_any_other() {
    let scene = Scene::set().await;
    let hub = scene.stage.hub.client.clone();
    let metrics = Metrics::default();
    let minutes = SignedDuration::from_mins(10);
    for offset in [minutes, -minutes] {
        let applicant = Applicant::new(&fresh("clock"));
        let certificate = applicant.ask(&scene.control_plane.init).await.expect("the name is free");
        let mut twin = Simulated::live(&scene.control_plane.init, &applicant, &certificate, 1, &metrics);
        wait("it is ready", async || readiness(&hub, &applicant.name).await.0 == "True").await;
        twin.silence().await;
        // From now on the same agent with another clock, that sprang while it lived.
        let client = daemon_client::identity_client(&scene.control_plane.init, &certificate, &applicant.key).unwrap();
        let leases: Api<Lease> = Api::namespaced(client, &format!("fleet-c-{}", applicant.name));
        let began = Instant::now();
        assert_eq!(clock(&hub, &applicant.name).await, None, "a clock that is right is not spoken of");
        while began.elapsed() < Duration::from_secs(75) {
            let now = MicroTime(Timestamp::now() + offset);
            let spec = LeaseSpec { renew_time: Some(now), ..LeaseSpec::default() };
            leases.patch("fleet-agent", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
            for _ in 0..10 {
                let (status, reason) = readiness(&hub, &applicant.name).await;
                assert_eq!(status, "True", "{reason}: {offset:?} after {:?}", began.elapsed());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        // It is told for information, once, and in numbers that do not change with every heartbeat.
        let (status, message) = clock(&hub, &applicant.name).await.expect("it is spoken of");
        let side = if offset.is_negative() { "behind" } else { "ahead of" };
        assert!(status == "True" && message.contains(&format!(" s {side} the control plane's")), "{status}: {message}");
        let events: Api<Event> = Api::namespaced(hub.clone(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let ours = |event: &&Event| event.involved_object.name.as_ref() == Some(&applicant.name);
        let told: Vec<_> = events.iter().filter(ours).filter(|e| e.reason.as_deref() == Some("ClockSkew")).collect();
        assert!(told.len() == 1 && told[0].type_.as_deref() == Some("Normal"), "{told:?}");
        let silent = Instant::now();
        wait("its silence is noticed", async || readiness(&hub, &applicant.name).await.0 == "False").await;
        assert!(silent.elapsed() > Duration::from_secs(35), "{:?}", silent.elapsed());
    }
}

/// Durations, told by the second.
fn histogram(title: &str, durations: &[Duration]) {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for duration in durations {
        *counts.entry(duration.as_secs()).or_default() += 1;
    }
    eprintln!("{title}");
    for (second, count) in counts {
        eprintln!("  {second:>3} s {}", "#".repeat(count));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_agents_are_found_forty_to_fifty_seconds_after_they_died() {
    let scene = Scene::set().await;
    let hub = scene.stage.hub.client.clone();
    let metrics = Metrics::default();
    let prefix = fresh("lost");
    let names: Vec<_> = (0..20).map(|i| format!("{prefix}-{i}")).collect();
    let joins = names.iter().map(|name| Simulated::join(&scene.control_plane.init, name, 3, &metrics));
    let members = join_all(joins).await;
    for member in &members {
        wait("it is ready", async || readiness(&hub, &member.name).await.0 == "True").await;
    }
    // Beyond the first grace, in which a new cluster has more time.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let watches = members.into_iter().enumerate().map(|(i, mut member)| {
        let hub = hub.clone();
        async move {
            // Anywhere between two renewals.
            tokio::time::sleep(Duration::from_millis(700 * i as u64)).await;
            member.silence().await;
            let died = Instant::now();
            let leases: Api<Lease> = Api::namespaced(hub.clone(), &format!("fleet-c-{}", member.name));
            let lease = leases.get("fleet-agent").await.unwrap();
            let renewed = lease.spec.and_then(|spec| spec.renew_time).expect("it lived").0;
            while readiness(&hub, &member.name).await.0 == "True" {
                assert!(died.elapsed() < Duration::from_secs(100), "not noticed");
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            let silent = Timestamp::now().duration_since(renewed);
            (died.elapsed(), Duration::try_from(silent).unwrap())
        }
    });
    let (died, silent): (Vec<_>, Vec<_>) = join_all(watches).await.into_iter().unzip();
    histogram("from the death of an agent until READY is False:", &died);
    histogram("from its last heartbeat:", &silent);
    let (least, most) = (Duration::from_secs(38), Duration::from_secs(55));
    assert!(died.iter().all(|d| (least..most).contains(d)), "{died:?}");
    assert!(silent.iter().all(|d| (Duration::from_secs(49)..most).contains(d)), "{silent:?}");
}

/// Everything that takes ten minutes, in the same ten minutes.
#[tokio::test]
async fn in_ten_quiet_minutes_nobody_looks_lost_and_what_has_to_be_renewed_is() {
    let scene = Scene::set().await;
    let hub = scene.stage.hub.client.clone();
    let init = &scene.control_plane.init;
    let metrics = Metrics::default();
    // One with the shortest certificate that there is, and three as they are.
    let short = ["--certificate-seconds", "600"];
    let mut agent =
        Program::agent_with(&scene.member.kubeconfig, &scene.control_plane.init_file, &scene.name, "pod-1", &short);
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let prefix = fresh("quiet");
    let mut quiet = Vec::new();
    for i in 0..3 {
        quiet.push(Simulated::join(init, &format!("{prefix}-{i}"), 10, &metrics).await);
    }
    for member in &quiet {
        wait("it is ready", async || readiness(&hub, &member.name).await.0 == "True").await;
    }
    // One that never says a word again, and one, of the hub's own cluster, that sleeps until its certificate has expired.
    let dead = Applicant::new(&fresh("dead"));
    dead.join(init).await;
    let own: Api<Secret> = Api::namespaced(hub.clone(), "fleet");
    let _ = own.delete("fleet-agent-identity", &DeleteParams::default()).await;
    let sleeper = fresh("sleeper");
    let local = scene.stage.hub.kubeconfig.clone();
    let wake = || Program::agent_with(&local, &scene.control_plane.init_file, &sleeper, "pod-s", &short);
    let mut asleep = wake();
    asleep.ready(Duration::from_secs(60)).await;
    wait("the sleeper is ready", async || readiness(&hub, &sleeper).await.0 == "True").await;
    assert!(asleep.terminate().await.1);

    assert_eq!(dead.with_new_key().ask(init).await, Err("IdentityInUse".to_owned()), "it may be alive");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(630) {
        for name in quiet.iter().map(|member| &member.name).chain([&scene.name]) {
            let (status, reason) = readiness(&hub, name).await;
            assert_eq!(status, "True", "{name}: {reason} after {:?}", began.elapsed());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let log = agent.log();
    assert!((1..=2).contains(&log.matches("certificate renewed").count()), "{log}");
    dead.with_new_key().ask(init).await.expect("nobody has heard of the holder for ten minutes");
    let mut awake = wake();
    awake.ready(Duration::from_secs(60)).await;
    assert!(awake.log().contains("CertificateExpired"), "{}", awake.log());
    wait("the sleeper is ready again", async || readiness(&hub, &sleeper).await.0 == "True").await;
    let clusters: Api<Cluster> = Api::all(hub.clone());
    clusters.delete(&sleeper, &DeleteParams::default()).await.unwrap();
}
