//! The cases of `moves.json`: stories of one group, of admission, and of mass-removal protection.

use std::collections::{BTreeMap, BTreeSet};

use fleetctl::placement::moves::{
    GroupMoves, MoveEvent, MoveLimits, MoveRecord, MoveStep, MoveWrite, RemovalCause, RemovalLimits, RemovalVerdict,
    RunningMove, Seen, WaitingMove, admit_moves, limit_removals, step,
};
use serde_json::{Value, json};

/// Reads the cases of a kind.
fn read_cases(kind: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement/cases/moves.json");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Value::Array(mut cases) = document["cases"].take() else { panic!("moves.json holds cases") };
    assert_eq!(cases.len(), 26, "moves.json has other cases than before");
    cases.retain(|case| case["kind"] == kind);
    cases
}

/// A JSON merge patch, RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// What a case sees; its divided groups are those that ask for more than one.
fn read_seen(see: &Value) -> Seen {
    let mut see = see.clone();
    let divided = see["source"]["amount"].as_i64().unwrap() > 1;
    see["source"]["divided"] = json!(divided);
    serde_json::from_value(see).unwrap()
}

fn print_write(write: &MoveWrite) -> Value {
    match write {
        MoveWrite::Create { cluster, amount } => json!({ "create": cluster, "amount": amount }),
        MoveWrite::Edit { cluster, amount } => json!({ "edit": cluster, "amount": amount }),
        MoveWrite::Ask { cluster } => json!({ "ask": cluster }),
        MoveWrite::Keep { cluster } => json!({ "keep": cluster }),
        MoveWrite::Delete { cluster } => json!({ "delete": cluster }),
        MoveWrite::Release { cluster } => json!({ "release": cluster }),
    }
}

/// A write of a case, as [`play_case`] prints it: a record says nothing of what is empty.
fn read_write(write: &Value) -> Value {
    match write.get("record") {
        Some(record) => json!({ "record": serde_json::from_value::<MoveRecord>(record.clone()).unwrap() }),
        None => write.clone(),
    }
}

fn sorted(writes: impl IntoIterator<Item = Value>) -> Vec<String> {
    let mut writes: Vec<String> = writes.into_iter().map(|write| write.to_string()).collect();
    writes.sort();
    writes
}

/// Plays a story; returns what differs.
fn play_case(case: &Value) -> Result<(), String> {
    let mut record: MoveRecord = serde_json::from_value(case["start"]["record"].clone()).unwrap();
    let mut see = case["start"]["see"].clone();
    let mut created = Vec::new();
    for (number, told) in case["steps"].as_array().unwrap().iter().enumerate() {
        if let Some(patch) = told.get("see") {
            merge(&mut see, patch);
        }
        if let Some(replaced) = told.get("record") {
            record = serde_json::from_value(replaced.clone()).unwrap();
        }
        let Some(expected) = told.get("writes") else { continue };
        created.clear();
        let (writes, next, event) = match step(&record, &read_seen(&see)) {
            MoveStep::Record { record, event } => (vec![json!({ "record": record })], Some(record), event),
            MoveStep::Writes(writes) => {
                let made = writes.iter().filter(|write| matches!(write, MoveWrite::Create { .. }));
                created = made.map(|write| write.cluster().to_owned()).collect();
                (writes.iter().map(print_write).collect(), None, None)
            }
        };
        let found = (sorted(writes), json!(event.map(MoveEvent::reason)));
        let expected = expected.as_array().unwrap().iter().map(read_write);
        let expected = (sorted(expected), told.get("event").cloned().unwrap_or_default());
        if found != expected {
            return Err(format!("step {number} ({})\n  expected {expected:?}\n  found    {found:?}", told["do"]));
        }
        if let Some(next) = next.filter(|_| told["lands"] != json!(false)) {
            record = next;
        }
    }
    let end: MoveRecord = serde_json::from_value(case["end"]["record"].clone()).unwrap();
    let seen = read_seen(&see);
    let live = seen.schedules.iter().filter(|(_, schedule)| !schedule.deleting).map(|(cluster, _)| cluster);
    let copies: BTreeSet<&String> =
        live.filter(|cluster| seen.clusters.contains_key(*cluster)).chain(&created).collect();
    if record != end || json!(copies) != case["end"]["copies"] {
        return Err(format!("the end\n  expected {}\n  found    {} {copies:?}", case["end"], json!(record)));
    }
    Ok(())
}

#[test]
fn move_cases() {
    let cases = read_cases("move");
    assert_eq!(cases.len(), 22);
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| play_case(case).err().map(|differs| format!("{}: {differs}", case["name"])))
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn read_group(group: &Value) -> GroupMoves {
    let cause = |value: &Value| serde_json::from_value(value["cause"].clone()).unwrap();
    let waits = group.get("waits").map(|waits| WaitingMove {
        cause: cause(waits),
        since: waits["since"].as_i64().unwrap(),
        attempt: waits["attempt"].as_i64().map_or(0, |attempt| attempt.try_into().unwrap()),
        not_before: waits["notBefore"].as_i64().unwrap_or(0),
    });
    let running = group.get("move").map(|running| RunningMove {
        cause: cause(running),
        began: running["began"].as_i64().unwrap(),
        away: running["away"].as_bool().unwrap_or(false),
    });
    GroupMoves { waits, running, ended: group["ended"].as_i64() }
}

#[test]
fn admission_cases() {
    let cases = read_cases("admit");
    assert_eq!(cases.len(), 2);
    for case in cases {
        for (number, told) in case["steps"].as_array().unwrap().iter().enumerate() {
            let see = &told["see"];
            let groups: BTreeMap<String, GroupMoves> = see["groups"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, group)| (name.clone(), read_group(group)))
                .collect();
            let (now, term) = (see["now"].as_i64().unwrap(), see["term"].as_i64().unwrap());
            let limits = MoveLimits { now, term, frozen: see["frozen"].as_bool().unwrap(), groups: &groups };
            assert_eq!(json!(admit_moves(&limits)), told["admit"], "{} step {number}", case["name"]);
        }
    }
}

#[test]
fn brake_cases() {
    let cases = read_cases("brake");
    assert_eq!(cases.len(), 2);
    for case in cases {
        for (number, told) in case["steps"].as_array().unwrap().iter().enumerate() {
            let see = &told["see"];
            let read = |cause: &Value| RemovalCause {
                due: serde_json::from_value::<BTreeSet<String>>(cause["due"].clone()).unwrap(),
                first: cause["first"].as_i64().unwrap(),
                last: cause["last"].as_i64().unwrap(),
                removed: cause["removed"].as_u64().unwrap().try_into().unwrap(),
                allowed: cause["allowed"] == true,
            };
            let causes = see["causes"].as_object().unwrap();
            let causes = causes.iter().map(|(name, cause)| (name.clone(), read(cause))).collect();
            let now = see["now"].as_i64().unwrap();
            let copies = see["copies"].as_u64().unwrap().try_into().unwrap();
            let found: BTreeMap<String, &str> =
                limit_removals(&RemovalLimits { now, term: now - 3600, copies, causes: &causes })
                    .into_iter()
                    .map(|(name, verdict)| (name, print_verdict(verdict)))
                    .collect();
            assert_eq!(json!(found), told["removals"], "{} step {number}", case["name"]);
        }
    }
}

fn print_verdict(verdict: RemovalVerdict) -> &'static str {
    match verdict {
        RemovalVerdict::Wait => "wait",
        RemovalVerdict::Go => "go",
        RemovalVerdict::Frozen => "frozen",
    }
}
