//! What agents and tenants may write, at random: whatever it is, it is read within bounds, and decided about.
//!
//! An input that takes more CPU time or memory than anybody has for one fails, too. To continue for ten minutes each:
//! `PROPTEST_CASES=100000000 timeout 600 cargo test --release --lib -- --test-threads 1 placement::hostile::a_report`.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::aggregate::{CopyStatus, Source};
use super::copy;
use super::decide::{Current, Group, decide_direct, decide_group};
use super::facts::Facts;
use super::fleet::Fleet;
use super::inventory::{Part, read_inventory};
use super::live;
use super::matching::{Direct, Policy};
use crate::api::lenient::Lenient;
use crate::api::util::thread_cpu_time::thread_cpu_time;
use crate::api::{Cluster, ClusterReport, Schedule};

/// Most bytes of an object that an API server stores.
const MOST_BYTES: usize = 1_500_000;
/// Most CPU time for one input; a build that is not optimised takes some ten times what a release does.
const MOST_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });
/// Most memory for one input, in KiB.
const MOST_MEMORY: u64 = 128 << 10;

/// What one input costs, of CPU time and, where no other tests run in the process, of memory.
struct Costs {
    began: Duration,
    resident: u64,
}

impl Costs {
    fn begin() -> Self {
        // The peak begins anew.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self { began: thread_cpu_time(), resident: read_memory("VmRSS:") }
    }

    fn check(&self) {
        let spent = thread_cpu_time().saturating_sub(self.began);
        assert!(spent < MOST_TIME, "{spent:?} for one input");
        let grown = read_memory("VmHWM:").saturating_sub(self.resident);
        assert!(grown < MOST_MEMORY || std::env::var_os("PROPTEST_CASES").is_none(), "{grown} KiB for one input");
    }
}

/// A line of the memory of this process, in KiB. Zero where the system does not tell.
fn read_memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let amount = status.lines().find_map(|text| text.strip_prefix(line)?.trim().strip_suffix(" kB")?.parse().ok());
    amount.unwrap_or(0)
}

/// Most cases of a test, except for `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 24 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Few, as many as are read, or more.
fn count() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![4 => 0_usize..4, 2 => 60_usize..70, 1 => 195_usize..205, 1 => 250_usize..300, 1 => Just(2_000)]
}

fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        Just("cpu".to_owned()),
        Just("memory".to_owned()),
        Just("pods".to_owned()),
        "[a-z./]{0,6}",
        any::<String>(),
        Just("x".repeat(300)),
        Just("k".repeat(9_000)),
        Just("NoSchedule".to_owned()),
        Just("NoExecute".to_owned()),
    ]
}

fn scalar() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        4 => prop_oneof![Just("1"), Just("-5"), Just("100m"), Just("1E"), Just("9e99"), Just("1000000000"), Just("64Gi"),
            Just("110"), Just("999999999999999999999999999999")].prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => prop::num::f64::NORMAL.prop_map(Value::from),
        1 => text().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!([{ "a": [] }])),
    ]
}

/// A map with so many keys of a few beginnings.
fn map(count: usize, keys: &[String], values: &[Value]) -> Value {
    (0..count)
        .map(|at| {
            let key = keys.get(at).cloned();
            let key = key.unwrap_or_else(|| format!("{}{at}", keys.first().map_or("", String::as_str)));
            (key, values.get(at % values.len().max(1)).cloned().unwrap_or_default())
        })
        .collect::<Map<_, _>>()
        .into()
}

fn maps() -> impl Strategy<Value = Value> + Clone {
    let keys = prop::collection::vec(text(), 0..5);
    (count(), keys, prop::collection::vec(scalar(), 1..4)).prop_map(|(count, keys, values)| map(count, &keys, &values))
}

/// A map of a few maps again and again.
fn nodes() -> impl Strategy<Value = Value> + Clone {
    let inner = prop::collection::vec(prop_oneof![9 => maps(), 1 => scalar()], 1..3);
    (count(), prop::collection::vec(text(), 0..3), inner).prop_map(|(count, keys, values)| {
        // Large in one direction only: an object has a megabyte.
        let entries = values.iter().map(|value| value.as_object().map_or(1, Map::len)).max().unwrap_or(1);
        map(count.min(40_000 / entries.max(1)), &keys, &values)
    })
}

fn taints() -> impl Strategy<Value = Value> + Clone {
    let one = (text(), text(), text())
        .prop_map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }));
    let list = (one, count()).prop_map(|(one, count)| Value::from(vec![one; count.min(70)]));
    (count(), prop::collection::vec(list, 1..3)).prop_map(|(count, values)| map(count.min(300), &[], &values))
}

fn labels() -> impl Strategy<Value = Value> + Clone {
    let of = prop::collection::vec(prop_oneof![Just(0), Just(1), any::<i64>()], 0..5);
    (prop::collection::vec(maps(), 0..4), of, count()).prop_map(|(sets, of, count)| {
        json!({ "sets": sets, "of": of.iter().cycle().take(if of.is_empty() { 0 } else { count }).collect::<Vec<_>>(),
            "droppedKeys": (0..count).map(|n| format!("key-{n}")).collect::<Vec<_>>() })
    })
}

fn part() -> impl Strategy<Value = Value> + Clone {
    (nodes(), nodes(), taints(), labels()).prop_map(|(capacity, available, taints, labels)| {
        json!({ "capacityResources": capacity, "availableResources": available, "nodeTaints": taints,
            "nodeLabels": labels })
    })
}

fn object(name: &str, replicas: &Value, cpu: &Value, annotations: &Value) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "n",
            "annotations": annotations },
        "spec": { "replicas": replicas, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": cpu } } }] } } } })
}

fn policy(mode: u8) -> Policy {
    let mut spec = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
    match mode {
        0 => {}
        1 => spec["spreadConstraints"] = json!({ "spreadMode": "Divide" }),
        _ => spec["spreadConstraints"] = json!({ "spreadMode": "Duplicate" }),
    }
    Policy::new("p".to_owned(), None, serde_json::from_value(spec).unwrap()).unwrap()
}

/// Checks that all numbers of a status are such as Kubernetes takes, and its lists short.
fn check_status(value: &Value) {
    match value {
        Value::Number(number) => {
            assert!(number.as_i64().is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)), "{number}");
        }
        Value::Array(items) => {
            assert!(items.len() <= 100, "{}", items.len());
            items.iter().for_each(check_status);
        }
        Value::Object(map) => map.values().for_each(check_status),
        _ => {}
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_report_is_read_within_bounds_and_decided_about(
        own in part(), reports in prop::collection::vec(part(), 0..3), replicas in scalar(), cpu in scalar(), mode in 0_u8..3,
    ) {
        let mut status = own;
        status["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "ClusterReady" }]);
        let cluster = json!({ "metadata": { "name": "evil" }, "spec": { "name": "evil" }, "status": status }).to_string();
        let reports: Vec<String> =
            reports.into_iter().map(|spec| json!({ "metadata": { "name": "r" }, "spec": spec }).to_string()).collect();
        if cluster.len() > MOST_BYTES || reports.iter().any(|report| report.len() > MOST_BYTES) {
            return Ok(());
        }
        let costs = Costs::begin();
        let cluster = serde_json::from_str::<Lenient<Cluster>>(&cluster).unwrap().0;
        let parts: Vec<Part> = reports
            .iter()
            .map(|report| Part::of_report(&serde_json::from_str::<Lenient<ClusterReport>>(report).unwrap().0.spec))
            .collect();
        let inventory = read_inventory(&cluster, parts.iter());
        prop_assert!(inventory.nodes.len() <= 200 * (1 + parts.len()) && inventory.dropped_keys.len() <= 1_000 * 3);
        for node in &inventory.nodes {
            prop_assert!(node.name.len() <= 253 && node.taints.len() <= 64);
            prop_assert!(node.capacity.iter().count() <= 64 && node.available.iter().count() <= 64);
            prop_assert!(node.capacity.iter().all(|(name, amount)| name.len() <= 317 && amount >= 0));
            let bytes = node.labels.iter().flat_map(|labels| labels.iter()).map(|(key, value)| key.len() + value.len());
            prop_assert!(bytes.sum::<usize>() <= 8 << 10);
        }
        let mut fleet = Fleet::default();
        let read = live::read_cluster(&mut fleet, &cluster, inventory);
        fleet.set_cluster(read);
        prop_assert!(fleet.resources().len() <= 259 && fleet.get("evil").unwrap().room.amount_count() <= 3 * 600 * 256);
        let policy = policy(mode);
        let objects: Vec<Facts> = ["a", "b"]
            .iter()
            .filter_map(|name| Facts::from_manifest(&object(name, &replicas, &cpu, &Value::Null)).ok())
            .collect();
        let group = Group::new("g", &policy, &objects);
        let decision = decide_group(&policy, &group, &fleet, &Current::default());
        fleet.reserve_decision(&group, &decision, &Current::default());
        let current = Current { targets: decision.targets.clone(), ..Current::default() };
        let again = decide_group(&policy, &group, &fleet, &current);
        prop_assert!(again.targets.len() <= 1);
        costs.check();
    }

    #[test]
    fn annotations_ask_for_so_much(list in prop::collection::vec(text(), 0..40), times in count(), extra: bool) {
        let text = (0..times).map(|n| format!("{}{}", list.get(n % list.len().max(1)).map_or("", String::as_str), if extra { n } else { 0 }));
        let text = text.collect::<Vec<_>>().join(",");
        let annotations = json!({ "fleet-scheduler.io/spread-onto": text, "fleet-scheduler.io/leave-fields": text,
            "fleet-scheduler.io/cluster": text });
        let object = object("a", &json!(3), &json!("1"), &annotations);
        if text.len() * 3 > MOST_BYTES {
            return Ok(());
        }
        let costs = Costs::begin();
        let facts = Facts::from_manifest(&object).unwrap();
        let onto = facts.asks.spread_onto.clone().unwrap();
        prop_assert!(onto.clusters.len() <= 1_000 && onto.clusters.iter().all(|name| name.len() <= 64));
        prop_assert!(facts.asks.leave_fields.len() <= 32 && facts.asks.cluster.as_ref().unwrap().len() <= 64);
        let decision = decide_direct(&facts, &Direct::SpreadOnto(onto), &Fleet::default(), &std::collections::BTreeMap::new());
        prop_assert!(decision.targets.is_empty());
        prop_assert!(copy::leave_fields(&facts, &[], true).map_or(true, |fields| fields.len() <= 32));
        costs.check();
    }

    #[test]
    fn the_status_of_a_source_is_such_as_the_api_server_takes(
        fields in prop::collection::vec((0_usize..24, prop_oneof![3 => scalar(), 1 => maps(), 1 => prop::collection::vec(maps(), 0..3).prop_map(Value::from)]), 0..12),
        kind in 0_usize..9,
    ) {
        let names = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas", "active", "ready",
            "succeeded", "failed", "startTime", "completionTime", "lastScheduleTime", "phase", "conditions", "loadBalancer",
            "numberReady", "currentHealthy", "currentReplicas", "desiredReplicas", "observedGeneration", "numberMisscheduled",
            "fullyLabeledReplicas", "expectedPods", "lastSuccessfulTime"];
        let mut resource: Value = fields.into_iter().map(|(at, value)| (names[at].to_owned(), value)).collect::<Map<_, _>>().into();
        let ingress = resource.get_mut("loadBalancer").map(Value::take);
        if let Some(ingress) = ingress {
            resource["loadBalancer"] = json!({ "ingress": [ingress, { "ip": ingress }, { "hostname": ingress }] });
        }
        let schedule = json!({ "metadata": { "name": "s" }, "spec": { "hash": "h" },
            "status": { "resource": resource.to_string(), "pods": { "desired": resource["replicas"], "bound": 1, "counted": 1 } } });
        let schedule = schedule.to_string();
        if schedule.len() > MOST_BYTES {
            return Ok(());
        }
        let costs = Costs::begin();
        let schedule = serde_json::from_str::<Lenient<Schedule>>(&schedule).unwrap().0.status.unwrap();
        let said = schedule.resource.and_then(|text| serde_json::from_str(&text).ok());
        let good = json!({ "replicas": 2, "readyReplicas": 2, "active": 1 });
        let copies = [("a", Some(good)), ("b", said)].map(|(cluster, status)| {
            CopyStatus { cluster: cluster.to_owned(), applied: true, generation: 1, status, ..CopyStatus::default() }
        });
        let kinds = [("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("apps", "DaemonSet"), ("batch", "Job"),
            ("batch", "CronJob"), ("", "Service"), ("autoscaling", "HorizontalPodAutoscaler"), ("policy", "PodDisruptionBudget")];
        for duplicate in [false, true] {
            let source = Source { group: kinds[kind].0, kind: kinds[kind].1, generation: 1, duplicate, withheld: i64::MAX, copies: &copies };
            let status = Value::from(source.aggregate_status());
            check_status(&status);
            for (part, whole) in [("readyReplicas", "replicas"), ("ready", "active")] {
                prop_assert!(status[part].as_i64().unwrap_or_default() <= status[whole].as_i64().unwrap_or_default());
            }
        }
        costs.check();
    }
}
