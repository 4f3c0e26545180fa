//! What differs between two sides, without what differs between any two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fs_err as fs;
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::case::Case;

/// Something that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Difference {
    case: String,
    /// `copy deployment`, `status of job`, `kubectl`, `events`, …
    what: String,
    /// The field, the column or the command.
    path: String,
    plain: String,
    fleet: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, what, path, plain, fleet } = self;
        write!(f, "{case}: {what}: {path}\n    in one cluster: {plain}\n    here:           {fleet}")
    }
}

/// A difference that the page names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Listed {
    /// The case; every one where there is none.
    case: Option<String>,
    what: String,
    /// With which the path begins.
    path: String,
    /// Only for this Kubernetes.
    #[serde(default)]
    minor: Option<String>,
    /// A part of `docs/one-cluster.md`.
    because: String,
}

impl Listed {
    /// Reads the list for a Kubernetes, and whether the page has what it says.
    pub(super) fn read(minor: &str) -> Vec<Self> {
        let root = env!("CARGO_MANIFEST_DIR");
        let text = fs::read_to_string(format!("{root}/tests/runtime/one_cluster/differences.yaml")).unwrap();
        let page = fs::read_to_string(format!("{root}/docs/one-cluster.md")).unwrap();
        let all: Vec<Self> = serde_saphyr::from_str(&text).unwrap();
        for one in &all {
            assert!(page.contains(&one.because), "the page does not say `{}`", one.because);
        }
        all.into_iter().filter(|one| one.minor.as_ref().is_none_or(|own| own == minor)).collect()
    }

    pub(super) fn is_of_case(&self, name: &str) -> bool {
        self.case.as_ref().is_none_or(|case| case == name)
    }

    pub(super) fn covers(&self, one: &Difference) -> bool {
        self.is_of_case(&one.case) && self.what == one.what && one.path.starts_with(&self.path)
    }
}

/// Fields of which each object has its own.
const OWN: [&str; 28] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "observedGeneration",
    "managedFields",
    "selfLink",
    "ownerReferences",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "startTime",
    "startedAt",
    "finishedAt",
    "completionTime",
    "lastScaleTime",
    "lastScheduleTime",
    "lastSuccessfulTime",
    "podIP",
    "podIPs",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "volumeName",
    // By which a controller avoids names that are taken.
    "collisionCount",
];

/// Labels and annotations that are ours, or of kubectl.
fn is_own_key(key: &str) -> bool {
    key.contains("fleet-scheduler.io/") || key.starts_with("kubectl.kubernetes.io/") || key == "team"
}

/// Texts without hashes and times.
fn normalise_text(text: &str, namespaces: [&str; 2]) -> String {
    let text = namespaces.iter().fold(text.to_owned(), |text, name| text.replace(name, "NAMESPACE"));
    let mut out: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_matches(|sign: char| !sign.is_alphanumeric());
        let parts: Vec<&str> = bare.split('-').collect();
        // A UID.
        if bare.len() == 36
            && parts.len() == 5
            && parts.iter().all(|part| part.chars().all(|sign| sign.is_ascii_hexdigit()))
        {
            out.push(word.replace(bare, "UID"));
            continue;
        }
        let is_hash = |part: &&str| {
            (5..=10).contains(&part.len())
                && part.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit())
                && !part.chars().any(|sign| "aeiou013".contains(sign))
        };
        if parts.len() > 1 && parts.iter().skip(1).any(is_hash) {
            let hashed: Vec<&str> = parts.iter().map(|part| if is_hash(part) { "HASH" } else { *part }).collect();
            out.push(word.replace(bare, &hashed.join("-")));
        } else {
            out.push(word.to_owned());
        }
    }
    out.join(" ")
}

fn normalise(value: &Value, namespaces: [&str; 2]) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| !OWN.contains(&key.as_str()) && !is_own_key(key));
            let kept = kept.map(|(key, value)| (key.clone(), normalise(value, namespaces)));
            // What is empty is not there.
            kept.filter(|(_, value)| !value.as_object().is_some_and(serde_json::Map::is_empty)).collect()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normalise(item, namespaces)).collect();
            if items.iter().all(|item| item["type"].is_string() && item["status"].is_string()) {
                items.sort_by_key(|item| item["type"].as_str().unwrap_or_default().to_owned());
            }
            Value::Array(items)
        }
        Value::String(text) => Value::String(normalise_text(text, namespaces)),
        other => other.clone(),
    }
}

fn differ(plain: &Value, fleet: &Value, path: &str, into: &mut Vec<(String, String, String)>) {
    match (plain, fleet) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let [a, b] = [a, b].map(|side| side.get(key).unwrap_or(&Value::Null));
                differ(a, b, &format!("{path}.{key}"), into);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                let name = a["type"].as_str().or(a["name"].as_str()).map_or_else(|| at.to_string(), str::to_owned);
                differ(a, b, &format!("{path}[{name}]"), into);
            }
        }
        _ if plain == fleet => {}
        _ => into.push((path.to_owned(), plain.to_string(), fleet.to_string())),
    }
}

fn without_status(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Compares a copy, and the status of its source, with an object that was applied to one cluster.
pub(super) fn compare_objects(
    case: &str,
    namespaces: [&String; 2],
    resource: &str,
    source: Option<&Value>,
    copy: Option<&Value>,
    plain: Option<&Value>,
) -> Vec<Difference> {
    let namespaces = namespaces.map(String::as_str);
    let mut found = Vec::new();
    let mut record = |what: String, plain: &Value, fleet: &Value| {
        let mut differing = Vec::new();
        differ(&normalise(plain, namespaces), &normalise(fleet, namespaces), "", &mut differing);
        found.extend(differing.into_iter().map(|(path, plain, fleet)| Difference {
            case: case.to_owned(),
            what: what.clone(),
            path,
            plain,
            fleet,
        }));
    };
    let (Some(source), Some(copy), Some(plain)) = (source, copy, plain) else {
        let are_there = |one: Option<&Value>| Value::from(one.is_some());
        record(format!("there is a {resource}"), &are_there(plain), &are_there(source));
        record(format!("there is a copy of the {resource}"), &are_there(plain), &are_there(copy));
        return found;
    };
    record(format!("copy of the {resource}"), &without_status(plain), &without_status(copy));
    record(format!("status of the {resource}"), &plain["status"], &source["status"]);
    found
}

/// Compares what a command ended with. What takes time says so on its way: only the last line counts.
pub(super) fn compare_answers(
    case: &str,
    namespaces: [&String; 2],
    command: &str,
    fleet: &Answer,
    plain: &Answer,
) -> Vec<Difference> {
    let namespaces = namespaces.map(String::as_str);
    let shown = |answer: &Answer| {
        let mut lines = answer.stdout.lines().map(|line| normalise_text(line, namespaces));
        let lines: BTreeSet<String> = match command.split(' ').next() {
            Some("rollout" | "wait") => lines.next_back().into_iter().collect(),
            _ => lines.collect(),
        };
        format!("{:?} {lines:?} {}", answer.code, normalise_text(answer.stderr.trim_end(), namespaces))
    };
    let [fleet, plain] = [fleet, plain].map(shown);
    if fleet == plain {
        return Vec::new();
    }
    let (case, what, path) = (case.to_owned(), "kubectl".to_owned(), command.to_owned());
    vec![Difference { case, what, path, plain, fleet }]
}

fn cut_cell(line: &str, begins: &[usize], at: usize) -> String {
    let end = begins.get(at + 1).copied().unwrap_or(usize::MAX).min(line.len());
    line.get(begins[at].min(end)..end).unwrap_or_default().trim().to_owned()
}

/// The cells of tables, by the kind and name of their row and the heading of their column. Where there are several tables,
/// each name has its kind before it.
fn read_tables(text: &str, kind: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for table in text.split("\n\n") {
        let mut lines = table.lines();
        let Some(head) = lines.next() else { continue };
        // A heading may have single blanks.
        let is_begin = |at: &usize| *at == 0 || head[..*at].ends_with("   ") && !head[*at..].starts_with(' ');
        let begins: Vec<usize> = (0..head.len()).filter(is_begin).collect();
        for row in lines {
            let name = cut_cell(row, &begins, 0);
            let (kind, name) = name.split_once('/').unwrap_or((kind, &name));
            let kind = kind.split('.').next().unwrap_or_default();
            for at in 1..begins.len() {
                found.insert((format!("{kind}/{name}"), cut_cell(head, &begins, at)), cut_cell(row, &begins, at));
            }
        }
    }
    found
}

/// Columns with times, and with addresses and names that each cluster chooses.
const OWN_COLUMNS: [&str; 5] = ["AGE", "CLUSTER-IP", "DURATION", "LAST SCHEDULE", "VOLUME"];

/// A cell without node ports and times.
fn normalise_cell(column: &str, cell: &str, namespaces: [&str; 2]) -> String {
    if column == "PORT(S)" {
        let ports = cell.split(',').map(|port| match port.split_once(':') {
            Some((own, node)) => format!("{own}:NODE{}", node.trim_start_matches(|sign: char| sign.is_ascii_digit())),
            None => port.to_owned(),
        });
        return ports.collect::<Vec<_>>().join(",");
    }
    normalise_text(cell.split(" (").next().unwrap_or_default(), namespaces)
}

/// Compares what `kubectl get` shows of the objects of a case.
pub(super) fn compare_tables(case: &Case, namespaces: [&String; 2], fleet: &str, plain: &str) -> Vec<Difference> {
    let namespaces = namespaces.map(String::as_str);
    let kind = case.objects.first().map_or("", |(kind, _)| kind);
    let [fleet, plain] = [fleet, plain].map(|text| {
        let cells = read_tables(text, kind).into_iter();
        let cells = cells.filter(|((_, column), _)| !OWN_COLUMNS.contains(&column.as_str()));
        let normalised = cells.map(|((object, column), cell)| {
            let cell = normalise_cell(&column, &cell, namespaces);
            ((normalise_text(&object, namespaces), column), cell)
        });
        normalised.collect::<BTreeMap<_, _>>()
    });
    let keys: BTreeSet<_> = fleet.keys().chain(plain.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let [fleet, plain] = [&fleet, &plain].map(|side| side.get(key).cloned().unwrap_or_default());
        if plain != fleet {
            let what = format!("kubectl get {}", key.0.split('/').next().unwrap_or_default());
            found.push(Difference { case: case.name.clone(), what, path: key.1.clone(), plain, fleet });
        }
    }
    found
}

/// Compares the reasons of warnings: each that one cluster gives is to be had from the control plane.
pub(super) fn compare_events(case: &str, fleet: &str, plain: &str) -> Vec<Difference> {
    let [fleet, plain] = [fleet, plain].map(|text| {
        let list: Value = serde_json::from_str(text).unwrap_or_default();
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let warnings = events.iter().filter(|event| event["type"] == "Warning");
        warnings.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect::<BTreeSet<String>>()
    });
    let missing = plain.difference(&fleet).map(|reason| Difference {
        case: case.to_owned(),
        what: "warnings".to_owned(),
        path: reason.clone(),
        plain: "there".to_owned(),
        fleet: format!("{fleet:?}"),
    });
    missing.collect()
}
