//! Replicas over domains.

use fleetctl::placement::copy::Share;
use fleetctl::placement::divide::{Domain, Ties, divide_job, divide_replicas, fill_domains};
use serde_json::{Map, Value, json};

use crate::support::check;

fn domains(case: &Value) -> Vec<Domain<'_>> {
    let number = |domain: &Value, name: &str| domain.get(name).and_then(Value::as_i64);
    let one = |domain: &'_ Value| (number(domain, "weight"), number(domain, "prev"), number(domain, "cap"));
    let read = |domain| {
        let (weight, prev, cap) = one(domain);
        let value = domain["value"].as_str().unwrap();
        Domain { value, weight: weight.unwrap_or(1), prev: prev.unwrap_or_default(), cap }
    };
    case["domains"].as_array().unwrap().iter().map(read).collect()
}

fn run(what: &str, case: &Value) -> Value {
    let mut domains = domains(case);
    let is = |name: &str| case.get(name).and_then(Value::as_bool) == Some(true);
    let seed = case.get("seed").and_then(Value::as_str).unwrap_or_default();
    let ties = if is("listed") { Ties::Listed } else { Ties::Hash(seed) };
    let by_name = |domains: &[Domain<'_>], values: Vec<Value>| -> Map<String, Value> {
        domains.iter().map(|domain| domain.value.to_owned()).zip(values).collect()
    };
    let numbers = |values: &[i64]| values.iter().map(|value| json!(value)).collect();
    if what == "walk" {
        let mut steps = Vec::new();
        for n in case["walk"].as_array().unwrap() {
            let division = divide_replicas(n.as_i64().unwrap(), &domains, ties);
            steps.push(by_name(&domains, numbers(&division.replicas)));
            domains.iter_mut().zip(division.replicas).for_each(|(domain, replicas)| domain.prev = replicas);
        }
        return json!({ "steps": steps });
    }
    if let Some(of_job) = case.get("job") {
        let completions = divide_replicas(of_job["completions"].as_i64().unwrap(), &domains, ties);
        let shares = divide_job(&completions, of_job["parallelism"].as_i64().unwrap(), &domains, ties);
        let print = |share: Share| match share {
            Share::Job { completions, parallelism } => {
                json!({ "completions": completions, "parallelism": parallelism })
            }
            Share::Replicas(replicas) => json!(replicas),
        };
        let shares = shares.into_iter().map(print).collect();
        return json!({ "replicas": by_name(&domains, shares), "withheld": completions.withheld });
    }
    let n = case["n"].as_i64().unwrap();
    let division = if is("fill") { fill_domains(n, &domains) } else { divide_replicas(n, &domains, ties) };
    json!({ "replicas": by_name(&domains, numbers(&division.replicas)), "withheld": division.withheld })
}

#[test]
fn divide_cases() {
    check("divide.json", 20, run);
}
