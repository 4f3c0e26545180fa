//! `cargo bed bench apply`: what applying costs in requests and time, beside `kubectl apply --server-side` and Helm, on
//! the same objects and the same API server, at several round-trip times.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::{Value, json};

use crate::Bed;
use crate::bench::compile;
use crate::dev::steps::Steps;
use crate::proxy::Proxy;
use crate::run::output_of;
use crate::say::say;

const CLUSTER: &str = "api";
/// Objects, and the round-trip times in milliseconds at which they are applied.
const SIZES: [(usize, &[u64]); 2] = [(30, &[0, 5, 20, 100]), (1_000, &[0, 20])];

/// From an operation and the objects to a command line.
type CommandLine = dyn Fn(Operation, &Set) -> Vec<OsString>;

/// One way of applying.
struct Tool {
    name: &'static str,
    command: Box<CommandLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Install,
    Again,
    Change,
    Remove,
}

const OPERATIONS: [(Operation, &str); 4] = [
    (Operation::Install, "install"),
    (Operation::Again, "the same again"),
    (Operation::Change, "one field changed"),
    (Operation::Remove, "uninstall"),
];

/// The objects in the forms in which the tools take them.
struct Set {
    folder: PathBuf,
    namespace: String,
}

impl Set {
    fn make(folder: &Path, namespace: &str, count: usize) -> Result<Self> {
        let folder = folder.join(namespace);
        fs::create_dir_all(&folder)?;
        for changed in [false, true] {
            let objects = objects(namespace, count, changed);
            let name = if changed { "changed" } else { "first" };
            fs::write(folder.join(format!("{name}.json")), serde_json::to_vec(&objects)?)?;
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            fs::write(folder.join(format!("{name}.list.json")), serde_json::to_vec(&list)?)?;
            // JSON is YAML, and so a template. Helm makes the namespace by a flag.
            let documents: Vec<String> = objects[1..].iter().map(ToString::to_string).collect();
            let chart = folder.join(format!("chart-{name}"));
            fs::create_dir_all(chart.join("templates"))?;
            fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: bench\nversion: 1.0.0\n")?;
            fs::write(chart.join("templates/all.yaml"), documents.join("\n---\n"))?;
        }
        Ok(Self { folder, namespace: namespace.to_owned() })
    }

    fn file(&self, operation: Operation, first: &str, changed: &str) -> OsString {
        self.folder.join(if operation == Operation::Change { changed } else { first }).into_os_string()
    }
}

/// Kinds that become nothing but what they are, so that only applying is measured; the first is the namespace.
fn objects(namespace: &str, count: usize, changed: bool) -> Vec<Value> {
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    for index in 1..count {
        let metadata = json!({"name": format!("object-{index}"), "namespace": namespace});
        all.push(match index % 4 {
            0 => json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            1 => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"value": if changed && index == 1 { "new" } else { "old" }, "text": "x".repeat(400)}}),
            2 => json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"value": "b2xk"}}),
            _ => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
        });
    }
    all
}

/// Each of these numbers of objects, with the round-trip times in milliseconds; what is not asked for is as usual.
fn sizes(objects: &[usize], round_trips: &[u64]) -> Vec<(usize, Vec<u64>)> {
    let usual =
        |count: usize| SIZES.iter().find(|(size, _)| *size == count).map_or(vec![0], |(_, trips)| trips.to_vec());
    let counts = if objects.is_empty() { SIZES.map(|(count, _)| count).to_vec() } else { objects.to_vec() };
    let trips = |count| if round_trips.is_empty() { usual(count) } else { round_trips.to_vec() };
    counts.into_iter().map(|count| (count, trips(count))).collect()
}

/// The steps, in order. `round_trips` are in milliseconds.
pub(crate) fn run(bed: &Bed, objects: &[usize], round_trips: &[u64]) -> Result<()> {
    let mut steps = Steps::new("clusters may still run: `cargo bed down` removes everything");
    let helm = steps.run("build Helm", || bed.helm())?;
    let engine =
        steps.run("build the program of the benchmark", || compile(bed, "e2e", &["--example", "bench-apply"]))?;
    steps.run(&format!("start the cluster `{CLUSTER}`"), || bed.up(&[CLUSTER]))?;
    let kubectl = bed.kubectl_of(CLUSTER)?;
    let proxy = Proxy::start(bed, CLUSTER)?;
    let folder = tempfile::tempdir()?;
    let tools = [ours(engine, &proxy), theirs(kubectl), helms(helm)];
    let mut missed = Vec::new();
    for (count, round_trips) in sizes(objects, round_trips) {
        for round_trip in round_trips {
            proxy.set_round_trip(Duration::from_millis(round_trip));
            say(format!("\n{count} objects, round trip {round_trip} ms"));
            let mut times: Vec<Vec<Duration>> = Vec::new();
            for (index, tool) in tools.iter().enumerate() {
                let namespace = format!("bench-{index}-{count}-{round_trip}");
                let set = Set::make(folder.path(), &namespace, count)?;
                let mut row = Vec::new();
                for (at, (operation, name)) in OPERATIONS.iter().enumerate() {
                    let (wall, requests) = measure(&proxy, tool, *operation, &set, folder.path())?;
                    let total: usize = requests.iter().map(|(_, count)| count).sum();
                    let ratio = times.first().map(|ours: &Vec<Duration>| wall.as_secs_f64() / ours[at].as_secs_f64());
                    let verbs: Vec<String> = requests.iter().map(|(verb, count)| format!("{count} {verb}")).collect();
                    say(format!(
                        "{:24} {name:18} {:>9.2} s ({:>6.1}×) {total:>6} requests: {}",
                        tool.name,
                        wall.as_secs_f64(),
                        ratio.unwrap_or(1.0),
                        verbs.join(", ")
                    ));
                    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
                    let each = total as f64 / count as f64;
                    if times.is_empty() && matches!(operation, Operation::Install | Operation::Again) && each > 1.0 {
                        let more = total - count;
                        missed.push(format!(
                            "{name} of {count} objects: 1.0 request an object, not {each:.2} ({more} more than objects)"
                        ));
                    }
                    if (count, round_trip, *operation) == (1_000, 20, Operation::Change)
                        && ratio.is_some_and(|ratio| ratio < 10.0)
                    {
                        let ratio = ratio.unwrap_or_default();
                        missed.push(format!(
                            "{name}, 1000 objects at 20 ms: 10 times faster than {}, not {ratio:.1}",
                            tool.name
                        ));
                    }
                    row.push(wall);
                }
                times.push(row);
            }
        }
    }
    missed.sort();
    missed.dedup();
    for target in &missed {
        say(format!("missed: {target}"));
    }
    steps.summary();
    Ok(())
}

/// One operation: its time, and its requests by verb.
fn measure(
    proxy: &Proxy,
    tool: &Tool,
    operation: Operation,
    set: &Set,
    home: &Path,
) -> Result<(Duration, Vec<(&'static str, usize)>)> {
    let words = (tool.command)(operation, set);
    let (program, args) = words.split_first().context("a command has a program")?;
    let mut command = Command::new(program);
    command.args(args).env("KUBECONFIG", proxy.kubeconfig()).env("HOME", home).stdin(Stdio::null());
    proxy.forget();
    let began = Instant::now();
    output_of(&mut command)?;
    let wall = began.elapsed();
    Ok((wall, proxy.counts().into_iter().collect()))
}

fn words(parts: &[&str]) -> Vec<OsString> {
    parts.iter().map(OsString::from).collect()
}

fn ours(program: PathBuf, proxy: &Proxy) -> Tool {
    let kubeconfig = proxy.kubeconfig().into_os_string();
    let command = move |operation, set: &Set| {
        let what = if operation == Operation::Remove { "remove" } else { "apply" };
        let file = set.file(operation, "first.json", "changed.json");
        vec![program.clone().into_os_string(), what.into(), kubeconfig.clone(), file, set.namespace.clone().into()]
    };
    Tool { name: "fleetctl's engine", command: Box::new(command) }
}

fn theirs(program: PathBuf) -> Tool {
    let command = move |operation, set: &Set| {
        let mut all = vec![program.clone().into_os_string()];
        all.extend(match operation {
            // Deleting the namespace is quicker than deleting what is in it, one by one.
            Operation::Remove => words(&["delete", "--wait=true", "--ignore-not-found", "--filename"]),
            _ => words(&["apply", "--server-side", "--filename"]),
        });
        all.push(set.file(operation, "first.list.json", "changed.list.json"));
        all
    };
    Tool { name: "kubectl --server-side", command: Box::new(command) }
}

fn helms(program: PathBuf) -> Tool {
    let command = move |operation, set: &Set| {
        let mut all = vec![program.clone().into_os_string()];
        let namespace = set.namespace.as_str();
        all.extend(words(match operation {
            Operation::Install => &["install", "bench"],
            Operation::Remove => &["uninstall", "bench", "--wait"],
            _ => &["upgrade", "bench"],
        }));
        if operation != Operation::Remove {
            all.push(set.file(operation, "chart-first", "chart-changed"));
        }
        if operation == Operation::Install {
            all.push("--create-namespace".into());
        }
        all.extend(words(&["--namespace", namespace]));
        all
    };
    Tool { name: "helm", command: Box::new(command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_as_usual() {
        assert_eq!(sizes(&[], &[]), SIZES.map(|(count, trips)| (count, trips.to_vec())));
        assert_eq!(sizes(&[1_000], &[20]), [(1_000, vec![20])]);
        assert_eq!(sizes(&[30, 7], &[]), [(30, vec![0, 5, 20, 100]), (7, vec![0])]);
    }
}
