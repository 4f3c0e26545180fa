//! Whole decisions.

use std::collections::BTreeMap;

use fleetctl::placement::copy::Share;
use fleetctl::placement::decide::{
    Current, Decision, DirectDecision, Group, How, Mode, Target, decide_direct, decide_group, deciding_order,
};
use fleetctl::placement::facts::Facts;
use fleetctl::placement::fleet::{Cluster, Fleet};
use fleetctl::placement::matching::Match;
use fleetctl::placement::names::GroupKey;
use serde_json::{Map, Value, json};

use crate::support::{check, facts, namespace, policies, room};

fn fleet(case: &Value) -> Fleet {
    let mut fleet = Fleet::default();
    for value in case["clusters"].as_array().unwrap() {
        let is = |name: &str, otherwise: bool| value.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        let room = room(&mut fleet, value);
        let read = |name: &str| value.get(name).cloned();
        fleet.set_cluster(Cluster {
            labels: read("labels").map(|labels| serde_json::from_value(labels).unwrap()).unwrap_or_default(),
            taints: read("taints").map(|taints| serde_json::from_value(taints).unwrap()).unwrap_or_default(),
            ready: is("ready", true),
            accepted: is("accepted", true),
            leaving: is("leaving", false),
            standby: is("standby", false),
            autoscaled: is("autoscaled", false),
            apis: read("apis")
                .map(|apis| serde_json::from_value::<std::collections::BTreeSet<String>>(apis).unwrap().into()),
            ..Cluster::new(value["name"].as_str().unwrap(), room)
        });
    }
    fleet
}

fn share(value: &Value) -> Share {
    match value.as_i64() {
        Some(replicas) => Share::Replicas(replicas),
        None => Share::Job {
            completions: value["completions"].as_i64().unwrap(),
            parallelism: value["parallelism"].as_i64().unwrap(),
        },
    }
}

fn current(case: &Value, group: &str) -> Current {
    let Some(value) = case.get("current").and_then(|all| all.get(group).or_else(|| all.get("*"))) else {
        return Current::default();
    };
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let numbers = |name: &str| -> BTreeMap<String, BTreeMap<_, i64>> {
        value.get(name).map(|all| serde_json::from_value(all.clone()).unwrap()).unwrap_or_default()
    };
    let target = |value: &Value| Target {
        cluster: text(&value["cluster"]),
        domain: value.get("domain").map(text),
        replicas: value["replicas"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, n)| (key.as_str().into(), share(n)))
            .collect(),
        whole: list(value, "whole").iter().map(|key| key.as_str().unwrap().into()).collect(),
    };
    Current {
        is_settled: false,
        targets: list(value, "targets").iter().map(target).collect(),
        counted: numbers("counted"),
        bound: numbers("bound"),
        mode: match value.get("mode").and_then(Value::as_str) {
            None | Some("Routine") => Mode::Routine,
            Some("PolicyEdit") => Mode::PolicyEdit,
            Some("Rebalance") => Mode::Rebalance,
            Some("Failover") => Mode::Failover,
            Some(other) => panic!("{other}"),
        },
        only: None,
        excluded: value.get("excluded").map(|all| serde_json::from_value(all.clone()).unwrap()).unwrap_or_default(),
        started: list(value, "started").iter().map(|key| key.as_str().unwrap().into()).collect(),
    }
}

fn print_share(share: Share) -> Value {
    match share {
        Share::Replicas(replicas) => json!(replicas),
        Share::Job { completions, parallelism } => json!({ "completions": completions, "parallelism": parallelism }),
    }
}

fn print_target(target: &Target) -> Value {
    let mut value = json!({ "cluster": target.cluster });
    if let Some(domain) = &target.domain {
        value["domain"] = json!(domain);
    }
    if !target.replicas.is_empty() {
        let shares: Map<String, Value> =
            target.replicas.iter().map(|(key, share)| (key.to_string(), print_share(*share))).collect();
        value["replicas"] = shares.into();
    }
    if !target.whole.is_empty() {
        value["whole"] = target.whole.iter().map(ToString::to_string).collect();
    }
    value
}

fn print(name: &str, policy: &str, spread: bool, group: &Group<'_>, decision: &Decision) -> Value {
    let rejected: Map<String, Value> =
        decision.rejected.iter().map(|(name, reason)| (name.to_string(), reason.to_string().into())).collect();
    let mut value = json!({
        "name": name,
        "policy": policy,
        "members": group.objects().map(|one| one.key.to_string()).collect::<Vec<_>>(),
        "scheduled": decision.scheduled,
        "reason": decision.outcome.code(),
        "how": decision.how.map(How::code).unwrap_or_default(),
        "targets": decision.targets.iter().map(print_target).collect::<Vec<_>>(),
        "withheld": decision.withheld,
        "rejected": rejected,
    });
    if spread {
        let domains: Map<String, Value> =
            decision.domains.iter().map(|(value, outcome)| (value.clone(), outcome.code().into())).collect();
        value["domains"] = domains.into();
    }
    if !decision.moving_from.is_empty() {
        value["movingFrom"] = json!(decision.moving_from);
    }
    if decision.suspended {
        value["suspended"] = json!(true);
    }
    value
}

fn print_direct(decision: &DirectDecision) -> Value {
    let target = |target: &fleetctl::placement::decide::DirectTarget| match target.share {
        Some(share) => json!({ "cluster": target.cluster, "replicas": print_share(share) }),
        None => json!({ "cluster": target.cluster }),
    };
    let blocked: Map<String, Value> =
        decision.blocked.iter().map(|(name, why)| (name.clone(), why.to_string().into())).collect();
    let mut value = json!({
        "object": decision.object.as_str(),
        "targets": decision.targets.iter().map(target).collect::<Vec<_>>(),
        "blocked": blocked,
    });
    if let Some(withheld) = decision.withheld {
        value["withheld"] = json!(withheld);
    }
    value
}

fn run(_: &str, case: &Value) -> Value {
    let policies = policies(&case["policies"]);
    let mut objects: Vec<Facts> = case["objects"].as_array().unwrap().iter().map(facts).collect();
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    let mut fleet = fleet(case);
    let (mut direct, mut unmatched) = (Vec::new(), Vec::new());
    let mut members: BTreeMap<(String, String), Vec<&Facts>> = BTreeMap::new();
    for facts in &objects {
        match policies.match_object(facts, &namespace(case, facts.key.namespace())) {
            Match::Policy { policy, .. } => {
                let name = GroupKey::new(facts, policy).group_name(&policy.name, |_| false);
                members.entry((name, policy.name.clone())).or_default().push(facts);
            }
            Match::Annotation { direct: asked, .. } => {
                direct.push(print_direct(&decide_direct(facts, &asked, &fleet, &BTreeMap::new())));
            }
            _ => unmatched.push(facts.key.to_string()),
        }
    }
    let mut groups: Vec<(Group<'_>, String)> = members
        .into_iter()
        .map(|((name, policy), facts)| (Group::new(&name, policies.get(&policy).unwrap(), facts), policy))
        .collect();
    groups.sort_by(|(a, _), (b, _)| deciding_order(a).cmp(&deciding_order(b)));
    let mut decided = Vec::new();
    for (group, policy) in &groups {
        let policy = policies.get(policy).unwrap();
        let current = current(case, &group.name);
        let decision = decide_group(policy, group, &fleet, &current);
        fleet.reserve_decision(group, &decision, &current);
        decided.push(print(&group.name, &policy.name, policy.spec.spread_constraints.is_some(), group, &decision));
    }
    json!({ "groups": decided, "direct": direct, "unmatched": unmatched })
}

#[test]
fn decide_cases() {
    check("decide.json", 56, run);
}
