//! Collection of evidence. Lists that may not be read are left out: a diagnosis then knows less, and nothing fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Pod};

use super::container_log::is_audit;
use super::evidence::{Evidence, event_time, has_reason};
use super::pod::containers_with_logs;
use super::pvc::is_bound;
use super::typed::{Typed as _, read_list};
use crate::api::kinds::Kind;
use crate::k8s::object::ObjectRef;
use crate::k8s::request::server::{Selection, Server};

/// Older events are of former tries, by the server's clock, except those about Services and those of [`IN_PROGRESS`]:
/// the controller of a load balancer, a node or a volume writes one once, and may take longer for the work.
const EVENT_AGE: SignedDuration = SignedDuration::from_mins(5);
/// Reasons of events about work in progress on a pod or a PVC, and about its end.
const IN_PROGRESS: [&str; 5] =
    ["TriggeredScaleUp", "Nominated", "Provisioning", "ProvisioningSucceeded", "ProvisioningFailed"];
/// The time limit of reading all logs. A server that cannot reach a node's kubelet answers none of that node.
const LOGS_WITHIN: Duration = Duration::from_secs(3);
/// The lines of a log that are read; fewer are shown.
const LOG_LINES: usize = 24;
/// The lines that are read where lines of an audit log are among the last ones.
const AUDITED_LOG_LINES: usize = 1000;
/// A line of a log that is longer is cut.
const LOG_LINE: usize = 600;

/// Reads pods, PVCs, StorageClasses, events and the logs of crashing containers around objects that are not ready. The
/// label `selector` is that of the installation's pods.
pub(crate) async fn collect_evidence<'a>(
    server: &Server,
    selector: &str,
    waiting: impl Iterator<Item = &'a ObjectRef>,
) -> Evidence {
    let waiting: Vec<&ObjectRef> = waiting.collect();
    let namespaces: BTreeSet<&str> = waiting.iter().filter_map(|object| object.namespace.as_deref()).collect();
    let deployments = waiting.iter().any(|object| object.kind == "Deployment");
    let mut evidence = Evidence::default();
    for namespace in namespaces {
        let labelled = Selection { namespace: Some(namespace), labels: Some(selector), ..Selection::default() };
        let all = Selection { namespace: Some(namespace), ..Selection::default() };
        let (pods_kind, events_kind) = (Kind::from_table("", "Pod"), Kind::from_table("", "Event"));
        let (sets_kind, pvcs_kind) =
            (Kind::from_table("apps", "ReplicaSet"), Kind::from_table("", "PersistentVolumeClaim"));
        let (pods, pvcs, events, replica_sets) = futures::join!(
            server.list_objects(&pods_kind, &labelled),
            server.list_objects(&pvcs_kind, &all),
            server.list_objects(&events_kind, &all),
            async { if deployments { server.list_objects(&sets_kind, &labelled).await } else { Ok(Vec::new()) } },
        );
        evidence.pods.extend(read_list(&pods.unwrap_or_default()));
        evidence.pvcs.extend(read_list(&pvcs.unwrap_or_default()));
        let now = server.server_time();
        let events = read_list(&events.unwrap_or_default());
        evidence.events.extend(events.into_iter().filter(|event| is_relevant(event, now)));
        evidence.replica_sets.extend(read_list(&replica_sets.unwrap_or_default()));
    }
    if !evidence.pvcs.iter().all(is_bound) {
        let classes = Kind::from_table("storage.k8s.io", "StorageClass");
        let classes = server.list_objects(&classes, &Selection::default()).await.ok();
        evidence.storage_classes = classes.map(|classes| read_list(&classes));
    }
    evidence.logs = read_container_logs(server, &evidence.pods).await;
    evidence
}

fn is_relevant(event: &Event, now: Timestamp) -> bool {
    event_time(event).is_none_or(|at| now.duration_since(at) <= EVENT_AGE)
        || event.involved_object.kind.as_deref() == Some("Service")
        || has_reason(event, &IN_PROGRESS)
}

/// The last log lines of containers that are not ready: of the previous run and of the current one. Logs that cannot be
/// read at once are left out.
async fn read_container_logs(server: &Server, pods: &[Pod]) -> BTreeMap<String, Vec<String>> {
    let end = Instant::now() + LOGS_WITHIN;
    let server = &server.with_deadline(Some(server.deadline.map_or(end, |deadline| deadline.min(end))));
    let containers =
        pods.iter().flat_map(|pod| containers_with_logs(pod).into_iter().map(move |container| (pod, container)));
    let reads = containers.map(|(pod, container)| async move {
        let (namespace, name) = (pod.namespace()?, pod.name()?);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}");
        let previous = format!("{path}&previous=true");
        // A run that has just begun has not reached the failure of the previous one yet.
        let (now, former) = futures::join!(own_lines(server, &path), own_lines(server, &previous));
        let text = both_runs(former, now)?;
        let lines = text.lines().map(|line| line.chars().take(LOG_LINE).collect()).collect();
        Some((format!("{namespace}/{name}/{container}"), lines))
    });
    join_all(reads).await.into_iter().flatten().collect()
}

/// The last lines of a log that are the program's own, without an audit log's among them, of which there are many more.
async fn own_lines(server: &Server, path: &str) -> Option<String> {
    let text = read_last_lines(server, path, LOG_LINES).await?;
    if !text.lines().any(is_audit) {
        return Some(text);
    }
    let text = read_last_lines(server, path, AUDITED_LOG_LINES).await.unwrap_or(text);
    let own: Vec<&str> = text.split_inclusive('\n').filter(|line| !is_audit(line)).collect();
    Some(own[own.len().saturating_sub(LOG_LINES)..].concat())
}

async fn read_last_lines(server: &Server, path: &str, lines: usize) -> Option<String> {
    let text = server.get_text(&format!("{path}&tailLines={lines}")).await.ok()?;
    // The kubelet's own answer, with status 200 and without an end of line, where the container is removed by now.
    (!text.starts_with("unable to retrieve container logs")).then_some(text)
}

/// The logs of two runs, one after the other. Between runs the server returns the last one for both.
fn both_runs(former: Option<String>, now: Option<String>) -> Option<String> {
    match (former, now) {
        (Some(former), Some(now)) if former != now => {
            let end = if former.is_empty() || former.ends_with('\n') { "" } else { "\n" };
            Some(former + end + &now)
        }
        (former, now) => former.or(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::typed::typed_object;
    use crate::k8s::run_event::Events;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// Returns whether an event about an object of this kind is relevant when it is that old.
    fn is_relevant_after(kind: &str, reason: &str, minutes: i64) -> bool {
        is_relevant(&typed_object(event_of_age(kind, reason, minutes)), NOW.parse().unwrap())
    }

    fn event_of_age(kind: &str, reason: &str, minutes: i64) -> Value {
        let at = NOW.parse::<Timestamp>().unwrap() - SignedDuration::from_mins(minutes);
        json!({"involvedObject": {"kind": kind}, "reason": reason, "lastTimestamp": at.to_string()})
    }

    #[test]
    fn old_events_are_irrelevant() {
        assert!(is_relevant_after("Pod", "FailedMount", 4) && !is_relevant_after("Pod", "FailedMount", 6));
        assert!(is_relevant_after("Pod", "FailedMount", -6), "a later one, by whatever clock");
        assert!(
            is_relevant_after("Service", "EnsuringLoadBalancer", 4)
                && is_relevant_after("Service", "EnsuringLoadBalancer", 50)
        );
        for (kind, reason) in [
            ("Pod", "TriggeredScaleUp"),
            ("Pod", "Nominated"),
            ("PersistentVolumeClaim", "Provisioning"),
            // The end of an old try must be known.
            ("PersistentVolumeClaim", "ProvisioningSucceeded"),
            ("PersistentVolumeClaim", "ProvisioningFailed"),
        ] {
            assert!(is_relevant_after(kind, reason, 50), "{reason}");
        }
        assert!(
            is_relevant(&typed_object(json!({"involvedObject": {"kind": "Pod"}})), NOW.parse().unwrap()),
            "one that does not say when"
        );
    }

    #[tokio::test]
    async fn event_age_by_the_server_clock() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| {
            let is_of_events = request.uri().path().ends_with("/events");
            let events =
                if is_of_events { [4, 6].map(|age| event_of_age("Pod", &age.to_string(), age)).into() } else { vec![] };
            let body = json!({"metadata": {}, "items": events}).to_string().into_bytes();
            let answer = http::Response::builder().header("date", "Thu, 01 Jan 2026 01:00:00 GMT");
            std::future::ready(answer.body(kube::client::Body::from(body)))
        });
        let server = Server::new(kube::Client::new(service, "default"), Events::none());
        let kind = Kind::from_table("apps", "Deployment");
        let waiting = [ObjectRef::new(&kind, Some("fleet"), "d")];
        let evidence = collect_evidence(&server, "fleet-scheduler.io/install=demo", waiting.iter()).await;
        let reasons: Vec<_> = evidence.events.iter().filter_map(|event| event.reason.as_deref()).collect();
        assert_eq!(reasons, ["4"]);
    }

    #[tokio::test]
    async fn neither_an_audit_log_nor_a_kubelet_hides_a_line_of_the_program() {
        let audit = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","annotations":{"reason":"unknown CA"}}"#;
        let mut log = vec![audit; 200];
        log.splice(50..50, ["remote error: tls: bad certificate", r#"{"kind":"Event"}"#]);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let lines: usize = query.split("tailLines=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
            let (code, text) = if query.contains("previous") {
                (200, "unable to retrieve container logs for containerd://0a".to_owned())
            } else {
                (200, log[log.len().saturating_sub(lines)..].join("\n") + "\n")
            };
            let answer = http::Response::builder().status(code);
            std::future::ready(answer.body(kube::client::Body::from(text.into_bytes())))
        });
        let server = Server::new(kube::Client::new(service, "default"), Events::none());
        let pod = typed_object(json!({"metadata": {"name": "apiserver-0", "namespace": "fleet"},
            "status": {"containerStatuses": [{"name": "apiserver", "image": "", "imageID": "", "ready": false,
                "restartCount": 1, "state": {"running": {}}}]}}));
        let logs = read_container_logs(&server, &[pod]).await;
        assert_eq!(logs["fleet/apiserver-0/apiserver"], ["remote error: tls: bad certificate", r#"{"kind":"Event"}"#]);
    }

    #[test]
    fn one_run_is_logged_once() {
        for (former, now, both) in [
            (Some("a\nb\n"), Some("a\n"), Some("a\nb\na\n")),
            (Some("a\n"), Some("a\n"), Some("a\n")),
            (Some("a\n"), None, Some("a\n")),
            (None, Some("a\n"), Some("a\n")),
            (Some("cut"), Some("a\n"), Some("cut\na\n")),
            (None, None, None),
        ] {
            assert_eq!(both_runs(former.map(str::to_owned), now.map(str::to_owned)).as_deref(), both);
        }
    }
}
