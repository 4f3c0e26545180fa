//! Which policy decides.

use fleetctl::placement::matching::{Match, Policy};
use serde_json::{Value, json};

use crate::support::{check, facts, namespace, policies};

fn names(losers: &[&Policy]) -> Vec<String> {
    losers.iter().map(|policy| policy.name.clone()).collect()
}

fn run(_: &str, case: &Value) -> Value {
    let policies = policies(&case["policies"]);
    let facts = facts(&case["object"]);
    match policies.match_object(&facts, &namespace(case, facts.key.namespace())) {
        Match::Never(_) => json!({ "by": "Never" }),
        Match::Nowhere { losers } => json!({ "by": "Nowhere", "losers": names(&losers) }),
        Match::Annotation { losers, ignores_spread_onto: true, .. } => {
            json!({ "by": "Annotation", "losers": names(&losers), "ignored": ["spread-onto"] })
        }
        Match::Annotation { losers, .. } => json!({ "by": "Annotation", "losers": names(&losers) }),
        Match::Policy { policy, losers } => {
            json!({ "by": "Policy", "policy": policy.name, "losers": names(&losers) })
        }
        Match::Nothing { failing } => {
            let failing: serde_json::Map<String, Value> =
                failing.iter().map(|(policy, clause)| (policy.name.clone(), clause.name().into())).collect();
            json!({ "by": "Nothing", "failing": failing })
        }
    }
}

#[test]
fn match_cases() {
    check("match.json", 17, run);
}
