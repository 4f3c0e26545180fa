//! Updates of the index by events of its watches.

use std::convert::Infallible;
use std::future::pending;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use kube::client::Body;

use super::*;
use crate::scheduler::agent_clock::Reading;

fn lease(second: i64) -> Lease {
    Lease {
        metadata: ObjectMeta { namespace: Some("fleet-c-a".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            renew_time: Some(MicroTime(Timestamp::from_second(second).unwrap())),
            ..LeaseSpec::default()
        }),
    }
}

/// Shows the index a Lease so many seconds after `start`, when the wall clock is at 1000 and as many seconds.
fn see_lease_after(index: &Index, event: &Event<Lease>, start: Instant, second: u32) {
    let wall = Timestamp::from_second(1000 + i64::from(second)).unwrap();
    index.on_lease(event, start + Duration::from_secs(second.into()), wall);
}

fn cluster_of_version(version: &str) -> Cluster {
    let mut cluster = Cluster::new("a", crate::api::ClusterSpec::default());
    cluster.metadata.resource_version = Some(version.to_owned());
    cluster
}

fn cluster_with_uid(uid: &str, accepted: bool) -> Cluster {
    let spec = crate::api::ClusterSpec { accepted, ..crate::api::ClusterSpec::default() };
    let mut cluster = Cluster::new("a", spec);
    cluster.metadata.uid = Some(uid.to_owned());
    cluster
}

fn build_work_schedule(name: &str) -> Schedule {
    let mut schedule = Schedule::new(name, crate::api::ScheduleSpec::default());
    schedule.spec.source_ref.group = "apps".to_owned();
    schedule.spec.source_ref.kind = "Deployment".to_owned();
    schedule.metadata.namespace = Some("fleet-c-a".to_owned());
    schedule
}

/// Lets a moment pass, and returns its end.
fn pause_briefly() -> Instant {
    std::thread::sleep(Duration::from_millis(2));
    Instant::now()
}

#[test]
fn only_a_watched_renewal_counts() {
    let index = Index::default();
    let (start, wall) = (Instant::now(), Timestamp::now());
    let later = start + Duration::from_secs(5);
    index.on_lease(&Event::InitApply(lease(4_000_000_000)), start, wall);
    assert!(!index.last_renewal("a").unwrap().observed, "a listed Lease may be old, whatever time is in it");
    index.on_lease(&Event::Apply(lease(4_000_000_000)), later, wall);
    assert_eq!(index.last_renewal("a").unwrap().since, start, "an edit without a renewal changes nothing");
    index.on_lease(&Event::Apply(lease(1)), later, wall);
    let renewal = index.last_renewal("a").unwrap();
    assert!(renewal.observed && renewal.since == later, "a clock that went backwards is still alive");
}

#[test]
fn a_lease_belongs_to_its_namespace() {
    let index = Index::default();
    let mut faked = lease(1);
    faked.labels_mut().insert(crate::api::labels::LABEL_CLUSTER.to_owned(), "b".to_owned());
    index.on_lease(&Event::Apply(faked.clone()), Instant::now(), Timestamp::now());
    assert!(index.last_renewal("b").is_none() && index.last_renewal("a").is_some());
    faked.metadata.namespace = Some("kube-system".to_owned());
    index.on_lease(&Event::Delete(faked), Instant::now(), Timestamp::now());
    assert!(index.last_renewal("a").is_some(), "only what is in the namespace of a cluster counts");
}

#[test]
fn only_watched_renewals_show_the_clock() {
    let index = Index::default();
    let start = Instant::now();
    for second in (0..50).step_by(10) {
        see_lease_after(&index, &Event::InitApply(lease(100 + i64::from(second))), start, second);
    }
    assert_eq!(index.last_renewal("a").unwrap().clock.reported_reading(), None);
    for second in (50..100).step_by(10) {
        see_lease_after(&index, &Event::Apply(lease(1090 + i64::from(second))), start, second);
    }
    assert_eq!(index.last_renewal("a").unwrap().clock.reported_reading(), Some(Reading::Off(90)));
}

#[test]
fn a_relist_finds_deleted_clusters() {
    let index = Index::default();
    let [a, b] = ["a", "b"].map(|name| Cluster::new(name, crate::api::ClusterSpec::default()));
    let mut relist = BTreeSet::new();
    for event in [Event::Init, Event::InitApply(a), Event::InitApply(b.clone()), Event::InitDone] {
        index.on_cluster(event, &mut relist);
    }
    for event in [Event::Init, Event::InitApply(b), Event::InitDone] {
        index.on_cluster(event, &mut relist);
    }
    assert_eq!(index.take_deleted().into_iter().collect::<Vec<_>>(), ["a"]);
    assert!(index.cluster("b").is_some() && index.cluster("a").is_none());
}

#[test]
fn an_older_version_is_ignored() {
    for (watched, answered, known) in [("10", "9", "10"), ("9", "10", "10"), ("x", "9", "9"), ("10", "x", "x")] {
        let index = Index::default();
        index.on_cluster(Event::Apply(cluster_of_version(watched)), &mut BTreeSet::new());
        index.put_cluster(cluster_of_version(answered));
        assert_eq!(index.cluster("a").unwrap().resource_version().as_deref(), Some(known), "{watched} {answered}");
    }
}

#[test]
fn silence_counts_from_the_first_sight() {
    let index = Index::default();
    let unknown = pause_briefly();
    assert_eq!(index.time_since_renewal("a", unknown), Duration::ZERO);
    let mut beginnings = Vec::new();
    for (uid, accepted) in [("1", false), ("1", true), ("2", true)] {
        beginnings.push(pause_briefly());
        index.put_cluster(cluster_with_uid(uid, accepted));
        assert_eq!(index.time_since_renewal("a", beginnings[beginnings.len() - 1]), Duration::ZERO, "{uid} {accepted}");
    }
    let later = pause_briefly();
    index.on_cluster(Event::Apply(cluster_with_uid("2", true)), &mut BTreeSet::new());
    assert!(
        index.time_since_renewal("a", later) > Duration::ZERO,
        "an event of the same cluster does not end its silence"
    );
    index.on_lease(&Event::InitApply(lease(1)), beginnings[0], Timestamp::now());
    assert!(index.time_since_renewal("a", later) < later - beginnings[2], "an older heartbeat was another cluster's");
}

#[test]
fn refresh_adds_no_cluster() {
    let index = Index::default();
    let mut cluster = Cluster::new("a", crate::api::ClusterSpec::default());
    index.refresh_cluster(&cluster);
    assert!(index.cluster("a").is_none());
    index.put_cluster(cluster.clone());
    cluster.spec.accepted = true;
    index.refresh_cluster(&cluster);
    assert!(index.cluster("a").unwrap().spec.accepted);
}

#[test]
fn a_late_deletion_spares_the_successor() {
    let index = Index::default();
    let [old, new] = ["old", "new"].map(|uid| cluster_with_uid(uid, false));
    let mut relist = BTreeSet::new();
    index.on_cluster(Event::Apply(old.clone()), &mut relist);
    index.put_cluster(new.clone());
    index.on_cluster(Event::Delete(old), &mut relist);
    assert!(index.cluster("a").is_some() && index.take_deleted().is_empty());
    index.forget_cluster(&new);
    assert!(index.cluster("a").is_none() && index.take_deleted().contains("a"));
}

#[test]
fn work_is_retained_during_a_relist() {
    let index = Index::default();
    for event in [Event::Init, Event::InitApply(build_work_schedule("one")), Event::InitDone, Event::Init] {
        index.on_schedule(event);
    }
    assert!(index.has_work("a"), "it is not known yet whether it has none");
    // An interrupted list begins again.
    for event in [Event::InitApply(build_work_schedule("one")), Event::Init] {
        index.on_schedule(event);
    }
    assert!(index.has_work("a"));
    index.on_schedule(Event::InitDone);
    assert!(!index.has_work("a"));
    index.on_schedule(Event::Apply(build_work_schedule("two")));
    assert!(index.has_work("a"));
    index.on_schedule(Event::Delete(build_work_schedule("two")));
    assert!(!index.has_work("a"));
    let mut config = build_work_schedule("three");
    config.spec.source_ref.kind = "ConfigMap".to_owned();
    index.on_schedule(Event::Apply(config));
    assert!(!index.has_work("a"), "it runs no pods");
    let mut scaled = build_work_schedule("four");
    index.on_schedule(Event::Apply(scaled.clone()));
    assert!(index.has_work("a"));
    let pods = Some(crate::api::crd::schedule::PodCounts::default());
    scaled.status = Some(crate::api::ScheduleStatus { pods, ..Default::default() });
    index.on_schedule(Event::Apply(scaled));
    assert!(!index.has_work("a"), "it was scaled to none");
}

#[tokio::test]
async fn lease_watches_end_before_leases_expire() {
    let (asked, mut watched) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let asked = asked.clone();
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            if query.contains("watch=") {
                let _ = asked.send(query);
                pending::<()>().await;
            }
            let list = serde_json::json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                "metadata": { "resourceVersion": "1" }, "items": [],
            });
            Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let other = tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
    let [other, heartbeats] = [Client::new(other, "default"), Client::new(service, "default")];
    let watching = tokio::spawn(watch_indexed_objects(other, heartbeats, Arc::default()));
    let query = watched.recv().await.unwrap();
    watching.abort();
    assert!(query.contains(&format!("timeoutSeconds={LEASES_WATCH}")), "{query}");
    // A renewal is up to eleven seconds old when the server disappears, and there is to be time to find another one.
    let noticed = Duration::from_secs(11 + 5 + u64::from(LEASES_WATCH));
    assert!(noticed + Duration::from_secs(5) < crate::api::lost_cluster_timeout::LEASE_DURATION);
    assert!(LEASES_READ_TIMEOUT > Duration::from_secs(LEASES_WATCH.into()), "a watch without events is no fault");
}
