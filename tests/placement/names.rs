//! Names of groups, copies and label values.

use fleetctl::placement::names::{GroupKey, policy_label, schedule_name};
use serde_json::{Value, json};

use crate::support::{check, facts, policy};

fn run(_: &str, case: &Value) -> Value {
    let policy = policy(&case["policy"]);
    let facts = facts(&case["object"]);
    let key = GroupKey::new(&facts, &policy);
    let taken = case.get("taken").and_then(Value::as_bool) == Some(true);
    let shortest = key.group_name(&policy.name, |_| false);
    json!({
        "key": key.as_str(),
        "group": key.group_name(&policy.name, |name| taken && name == shortest),
        "label": policy_label(&policy.name),
        "schedule": schedule_name(&facts.key),
    })
}

#[test]
fn names_cases() {
    check("names.json", 7, run);
}
