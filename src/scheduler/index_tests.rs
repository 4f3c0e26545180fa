//! What the view makes of what it hears.

use std::convert::Infallible;
use std::future::pending;

use super::*;
use crate::scheduler::agent_clock::Reading;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use kube::client::Body;

fn lease(second: i64) -> Lease {
    Lease {
        metadata: ObjectMeta { namespace: Some("fleet-c-a".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            renew_time: Some(MicroTime(Timestamp::from_second(second).unwrap())),
            ..LeaseSpec::default()
        }),
    }
}

#[test]
fn only_a_renewal_is_a_sign_of_life_and_whatever_time_it_claims_counts_from_now() {
    let view = View::default();
    let (start, wall) = (Instant::now(), Timestamp::now());
    let later = start + Duration::from_secs(5);
    view.on_lease(&Event::InitApply(lease(4_000_000_000)), start, wall);
    assert!(!view.beat("a").unwrap().moved, "a Lease that was found may be old, whatever it says");
    view.on_lease(&Event::Apply(lease(4_000_000_000)), later, wall);
    assert_eq!(view.beat("a").unwrap().since, start, "an edit without a renewal changes nothing");
    view.on_lease(&Event::Apply(lease(1)), later, wall);
    let beat = view.beat("a").unwrap();
    assert!(beat.moved && beat.since == later, "a clock that went backwards is still alive");
}

#[test]
fn a_lease_speaks_for_the_cluster_whose_namespace_it_is_in_whatever_its_labels_say() {
    let view = View::default();
    let mut faked = lease(1);
    faked.labels_mut().insert(crate::api::labels::LABEL_CLUSTER.to_owned(), "b".to_owned());
    view.on_lease(&Event::Apply(faked.clone()), Instant::now(), Timestamp::now());
    assert!(view.beat("b").is_none() && view.beat("a").is_some());
    faked.metadata.namespace = Some("kube-system".to_owned());
    view.on_lease(&Event::Delete(faked), Instant::now(), Timestamp::now());
    assert!(view.beat("a").is_some(), "only what is in the namespace of a cluster counts");
}

#[test]
fn the_time_in_a_renewal_that_is_heard_tells_of_the_agents_clock_and_one_that_is_found_does_not() {
    let view = View::default();
    let start = Instant::now();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let after = |second: u64| start + Duration::from_secs(second);
    for second in (0..50).step_by(10) {
        let now = 1000 + i64::try_from(second).unwrap();
        view.on_lease(&Event::InitApply(lease(now - 900)), after(second), at(now));
    }
    assert_eq!(view.beat("a").unwrap().clock.told(), None);
    for second in (50..100).step_by(10) {
        let now = 1000 + i64::try_from(second).unwrap();
        view.on_lease(&Event::Apply(lease(now + 90)), after(second), at(now));
    }
    assert_eq!(view.beat("a").unwrap().clock.told(), Some(Reading::Off(90)));
}

#[test]
fn a_cluster_missing_after_a_new_list_is_gone() {
    let view = View::default();
    let cluster = |name: &str| Cluster::new(name, crate::api::ClusterSpec::default());
    let mut relist = BTreeSet::new();
    for event in [Event::Init, Event::InitApply(cluster("a")), Event::InitApply(cluster("b")), Event::InitDone] {
        view.on_cluster(event, &mut relist);
    }
    for event in [Event::Init, Event::InitApply(cluster("b")), Event::InitDone] {
        view.on_cluster(event, &mut relist);
    }
    assert_eq!(view.take_gone().into_iter().collect::<Vec<_>>(), ["a"]);
    assert!(view.cluster("b").is_some() && view.cluster("a").is_none());
}

#[test]
fn an_answer_that_comes_late_does_not_replace_what_the_watch_said_since() {
    let cluster = |version: &str| {
        let mut cluster = Cluster::new("a", crate::api::ClusterSpec::default());
        cluster.metadata.resource_version = Some(version.to_owned());
        cluster
    };
    for (heard, answered, known) in [("10", "9", "10"), ("9", "10", "10"), ("x", "9", "9"), ("10", "x", "x")] {
        let view = View::default();
        view.on_cluster(Event::Apply(cluster(heard)), &mut BTreeSet::new());
        view.put(cluster(answered));
        assert_eq!(view.cluster("a").unwrap().resource_version().as_deref(), Some(known), "{heard} {answered}");
    }
}

#[test]
fn a_cluster_is_silent_only_since_it_could_have_been_heard() {
    let cluster = |uid: &str, accepted| {
        let spec = crate::api::ClusterSpec { accepted, ..crate::api::ClusterSpec::default() };
        let mut cluster = Cluster::new("a", spec);
        cluster.metadata.uid = Some(uid.to_owned());
        cluster
    };
    let view = View::default();
    let wait = || {
        std::thread::sleep(Duration::from_millis(2));
        Instant::now()
    };
    let unknown = wait();
    assert_eq!(view.silent("a", unknown), Duration::ZERO);
    let mut beginnings = Vec::new();
    for (uid, accepted) in [("1", false), ("1", true), ("2", true)] {
        beginnings.push(wait());
        view.put(cluster(uid, accepted));
        assert_eq!(view.silent("a", beginnings[beginnings.len() - 1]), Duration::ZERO, "{uid} {accepted}");
    }
    let later = wait();
    view.on_cluster(Event::Apply(cluster("2", true)), &mut BTreeSet::new());
    assert!(view.silent("a", later) > Duration::ZERO, "no news of the same cluster ends its silence");
    view.on_lease(&Event::InitApply(lease(1)), beginnings[0], Timestamp::now());
    assert!(view.silent("a", later) < later - beginnings[2], "an older heartbeat was another cluster's");
}

#[test]
fn what_was_read_of_a_cluster_that_is_gone_by_now_does_not_bring_it_back() {
    let view = View::default();
    let mut cluster = Cluster::new("a", crate::api::ClusterSpec::default());
    view.refresh(&cluster);
    assert!(view.cluster("a").is_none());
    view.put(cluster.clone());
    cluster.spec.accepted = true;
    view.refresh(&cluster);
    assert!(view.cluster("a").unwrap().spec.accepted);
}

#[test]
fn late_news_of_an_old_clusters_end_is_no_news_of_the_new_one_with_its_name() {
    let view = View::default();
    let cluster = |uid: &str| {
        let mut cluster = Cluster::new("a", crate::api::ClusterSpec::default());
        cluster.metadata.uid = Some(uid.to_owned());
        cluster
    };
    let mut relist = BTreeSet::new();
    view.on_cluster(Event::Apply(cluster("old")), &mut relist);
    view.put(cluster("new"));
    view.on_cluster(Event::Delete(cluster("old")), &mut relist);
    assert!(view.cluster("a").is_some() && view.take_gone().is_empty());
    view.forget(&cluster("new"));
    assert!(view.cluster("a").is_none() && view.take_gone().contains("a"));
}

#[test]
fn a_cluster_has_work_while_its_schedules_are_listed_anew_and_none_when_the_list_has_none() {
    let view = View::default();
    let schedule = |name: &str| {
        let mut schedule = Schedule::new(name, crate::api::ScheduleSpec::default());
        schedule.metadata.namespace = Some("fleet-c-a".to_owned());
        schedule
    };
    for event in [Event::Init, Event::InitApply(schedule("one")), Event::InitDone, Event::Init] {
        view.on_schedule(event);
    }
    assert!(view.has_work("a"), "it is not known yet whether it has none");
    // A list that was cut off is begun again.
    for event in [Event::InitApply(schedule("one")), Event::Init] {
        view.on_schedule(event);
    }
    assert!(view.has_work("a"));
    view.on_schedule::<Schedule>(Event::InitDone);
    assert!(!view.has_work("a"));
    view.on_schedule(Event::Apply(schedule("two")));
    assert!(view.has_work("a"));
    view.on_schedule(Event::Delete(schedule("two")));
    assert!(!view.has_work("a"));
}

#[tokio::test]
async fn a_watch_of_heartbeats_ends_long_before_a_silent_server_makes_clusters_look_lost() {
    let (asked, mut heard) = tokio::sync::mpsc::unbounded_channel();
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
    let watching = tokio::spawn(watch(other, heartbeats, Arc::default()));
    let query = heard.recv().await.unwrap();
    watching.abort();
    assert!(query.contains(&format!("timeoutSeconds={LEASES_WATCH}")), "{query}");
    // A beat is up to eleven seconds old when the server goes away, and there is to be time to find another one.
    let noticed = Duration::from_secs(11 + 5 + u64::from(LEASES_WATCH));
    assert!(noticed + Duration::from_secs(5) < crate::api::protocol::LEASE_DURATION);
    assert!(LEASES_SILENT > Duration::from_secs(LEASES_WATCH.into()), "a watch without news is no fault");
}
