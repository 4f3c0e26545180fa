//! Whether objects have room in one cluster.

use fleetctl::placement::facts::Workload;
use fleetctl::placement::fleet::Fleet;
use fleetctl::placement::room::{Fit, Need, Needs};
use serde_json::{Value, json};

use crate::support::{check, facts, room};

fn run(_: &str, case: &Value) -> Value {
    let mut fleet = Fleet::default();
    let room = room(&mut fleet, &case["cluster"]);
    let resources = fleet.resources();
    let objects: Vec<_> = case["objects"].as_array().unwrap().iter().map(facts).collect();
    let counted = |key: &str| case["counted"].get(key).and_then(Value::as_i64).unwrap_or_default();
    let need = |facts: &'_ fleetctl::placement::facts::Facts| {
        let counted = counted(facts.key.as_str());
        (facts.workload.pods_at_once() - counted, counted)
    };
    let each = objects.iter().filter_map(|facts| {
        let (pods, counted) = need(facts);
        let shape = facts.shape.as_ref()?;
        Some(Need::new(resources, &facts.key, shape, pods, counted, facts.workload == Workload::DaemonSet))
    });
    let needs = Needs::new(resources, each.collect());
    let fit = room.check_fit(resources, &needs);
    let why = if let Fit::No(reason) = &fit { reason.to_string() } else { String::new() };
    let share = room.share_left(&needs).unwrap().to_string();
    json!({ "fits": why.is_empty(), "why": why, "sure": fit == Fit::Fits, "freeShare": share })
}

#[test]
fn fit_cases() {
    check("fit.json", 17, run);
}
