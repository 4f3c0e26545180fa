//! What agents, API servers, pods and files of others write reaches the terminal without anything on which it would act,
//! whichever field it is in: every text of every answer is spoiled, so that a field that is new is covered as well.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::check::empty;
use crate::install::documents;
use crate::server::{
    Asked, Said, forbidden, kubeconfig, list, not_found, serve_as_it_is, use_cluster, with_kubeconfig,
};
use crate::status::{hosting, inside};
use crate::{Ran, Sandbox};

/// What a terminal would act on, or a reader be deceived by: the title, the clipboard, a cleared screen and line, colours,
/// concealed text, an overwritten line, control characters of eight bits, and characters that turn or hide text.
const SEQUENCES: [&str; 18] = [
    "\u{1b}]0;title\u{7}",
    "\u{1b}]52;c;Y2xpcA==\u{1b}\\",
    "\u{1b}[2J\u{1b}[H",
    "\u{1b}[2K\u{1b}[1A",
    "\u{1b}[32m",
    "\u{1b}[8m",
    "\r",
    "\u{8}\u{b}\u{c}",
    "\u{9b}2J",
    "\u{9d}0;title\u{9c}",
    "\u{7f}",
    "\u{202e}\u{2066}\u{61c}\u{200f}",
    "\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}",
    "\u{2028}\u{2029}\u{85}",
    "\u{e0041}",
    // By which the program's own text says where its styles are.
    "\u{fdd0}\u{fdd3}\u{fdd4}",
    "\0",
    "`; reboot #'$(id)",
];
/// What follows each of them.
const AFTER: &str = "OWNED";
/// What would be a line of its own.
const FORGED: &str = "Error: FORGED";

/// A text with all of them, and then `more` letters.
fn hostile(more: usize) -> String {
    let sequences: String = SEQUENCES.iter().flat_map(|sequence| [sequence, AFTER]).collect();
    sequences + "\n" + FORGED + &"x".repeat(more)
}

/// How much of an answer is spoiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoiled {
    /// Every text but the names of objects and kinds: most of it is no longer what it claims to be.
    All,
    /// What is for people, or free in its form, so that the answer is still understood.
    Words,
    /// As `All`, and names too, of a server that never was one.
    Names,
}

impl Spoiled {
    const EACH: [Self; 3] = [Self::Words, Self::All, Self::Names];
}

/// Keys whose texts the answer is found by, and all below them.
const IDENTITY: [&str; 9] = [
    "apiVersion",
    "kind",
    "namespace",
    "uid",
    "resourceVersion",
    "ownerReferences",
    "involvedObject",
    "managedFields",
    "groupVersion",
];
/// Keys without whose texts a command has nothing to show.
const NEEDED: [&str; 31] = [
    "labels",
    "matchLabels",
    "selector",
    "type",
    "status",
    "phase",
    "state",
    "lastState",
    "name",
    "lastTimestamp",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "lastHeartbeatTime",
    "at",
    "written",
    "effect",
    "finalizers",
    "imageID",
    "major",
    "minor",
    "group",
    "names",
    "scope",
    "plural",
    "format",
    "owner",
    "provisioner",
    "storageClassName",
    "clusterIP",
    "volumeBindingMode",
];
/// Maps with keys of whoever writes them.
const MAPS: [&str; 8] = [
    "labels",
    "annotations",
    "availableResources",
    "capacityResources",
    "nodeTaints",
    "totals",
    "capacity",
    "allocatable",
];

impl Spoiled {
    fn keeps(self, path: &[String]) -> bool {
        let below = |keys: &[&str]| path.iter().any(|key| keys.contains(&key.as_str()));
        if self == Self::Names {
            return below(&["apiVersion", "kind"]);
        }
        if below(&IDENTITY) || path.ends_with(&["metadata".to_owned(), "name".to_owned()]) {
            return true;
        }
        self == Self::Words
            && match path.last().map(String::as_str) {
                Some("message" | "app.kubernetes.io/version") => false,
                // Of an event and of a container it is what is understood.
                Some("reason") => !below(&["conditions"]),
                _ => below(&NEEDED),
            }
    }

    /// Adds `text` to every text that is not kept, and to each map an entry of that name.
    fn spoil(self, value: &mut Value, text: &str, path: &mut Vec<String>) {
        match value {
            Value::String(_) if self.keeps(path) => {}
            Value::String(string) => {
                let decoded =
                    path.iter().any(|key| key == "data").then(|| STANDARD.decode(&*string).unwrap_or_default());
                let inner = decoded.as_deref().unwrap_or(string.as_bytes());
                // What an agent says of itself, a record: JSON in a text.
                match serde_json::from_slice::<Value>(inner) {
                    Ok(mut inner) if inner.is_object() => {
                        self.spoil(&mut inner, text, &mut Vec::new());
                        let inner = inner.to_string();
                        *string = if decoded.is_some() { STANDARD.encode(inner) } else { inner };
                    }
                    _ if decoded.is_some() => {}
                    _ => string.push_str(text),
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.spoil(item, text, path)),
            Value::Object(map) => {
                for (key, value) in &mut *map {
                    path.push(key.clone());
                    self.spoil(value, text, path);
                    path.pop();
                }
                let open = path.last().is_some_and(|key| MAPS.contains(&key.as_str()));
                if let Some(value) = map.values().next().cloned().filter(|_| open) {
                    map.insert(text.to_owned(), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A server whose answers are spoiled with `text`; `answer` gives them as they were. Each has a warning in its head, too.
fn spoiled(spoiled: Spoiled, text: &str, answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> String {
    let text = text.to_owned();
    serve_as_it_is(move |asked| {
        let (status, mut body) = answer(&asked);
        let mut head = b"content-type: application/json\r\nwarning: 299 - \"beware\"".to_vec();
        head.extend(b"\r\nwarning: 299 - \"\x9b2J\xe2\x80\xae beware\"");
        let body = match &mut body {
            // A log.
            Value::String(log) => std::mem::take(log) + &text,
            body => {
                spoiled.spoil(body, &text, &mut Vec::new());
                body.to_string()
            }
        };
        Said { status, head, body: body.into_bytes() }
    })
}

/// What is written to a cluster, and what was there: an API server that takes everything.
#[derive(Clone, Default)]
pub(crate) struct Cluster {
    /// By path.
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl Cluster {
    /// With these objects, as if this program had applied them.
    fn with(objects: impl IntoIterator<Item = Value>) -> Self {
        let cluster = Self::default();
        for mut object in objects {
            let text = |field: &Value| field.as_str().unwrap().to_owned();
            let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            let name = text(&object["metadata"]["name"]);
            let root = if version.contains('/') { "apis" } else { "api" };
            let place = object["metadata"]["namespace"].as_str().map(|namespace| format!("/namespaces/{namespace}"));
            let plural = match kind.as_str() {
                "NetworkPolicy" => "networkpolicies".to_owned(),
                kind => kind.to_lowercase() + "s",
            };
            let path = format!("/{root}/{version}{}/{plural}/{name}", place.unwrap_or_default());
            object["metadata"]["managedFields"] =
                json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
            cluster.take(&path, object);
        }
        cluster
    }

    fn take(&self, path: &str, mut object: Value) -> Value {
        without_nulls(&mut object);
        object["metadata"]["uid"] = path.into();
        object["metadata"]["resourceVersion"] = "1".into();
        object["metadata"]["generation"] = 1.into();
        self.objects.lock().unwrap().insert(path.to_owned(), object.clone());
        object
    }

    /// Another one with the same objects.
    pub(crate) fn copy(&self) -> Self {
        Self { objects: Arc::new(Mutex::new(self.objects.lock().unwrap().clone())) }
    }

    pub(crate) fn answer(&self, asked: &Asked) -> (u16, Value) {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let body = || serde_json::from_slice::<Value>(&asked.body).unwrap_or_default();
        match asked.method.as_str() {
            _ if path.contains("selfsubjectaccessreviews") => empty(&asked.method, &asked.path),
            "GET" if query.contains("watch=") => forbidden(),
            "GET" if path == "/apis" => (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
            "GET" if path == "/api/v1" => {
                (200, json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": []}))
            }
            "GET" if path.ends_with("/log") => (200, "ordinary\nlookup etcd on 10.96.0.10:53: no such host ".into()),
            "GET" => {
                let objects = self.objects.lock().unwrap();
                if let Some(object) = objects.get(path) {
                    return (200, object.clone());
                }
                let of = |object: &str| {
                    let (collection, _) = object.rsplit_once('/').unwrap();
                    let everywhere =
                        collection.split("/namespaces/").map(|part| part.rsplit_once('/').map_or(part, |(_, end)| end));
                    let everywhere: Vec<&str> = everywhere.collect();
                    collection == path
                        || everywhere.len() == 2
                            && format!("{}/{}", collection.split("/namespaces/").next().unwrap(), everywhere[1]) == path
                };
                let found: Vec<Value> =
                    objects.iter().filter(|(object, _)| of(object)).map(|(_, value)| value.clone()).collect();
                if found.is_empty() { empty("GET", &asked.path) } else { list(&found) }
            }
            "DELETE" => self.objects.lock().unwrap().remove(path).map_or_else(not_found, |object| (200, object)),
            "POST" => {
                let object = body();
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                (201, self.take(&format!("{path}/{name}"), object))
            }
            _ if query.contains("dryRun") => (200, body()),
            _ => {
                let mut object = body();
                object["metadata"]["managedFields"] =
                    json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
                match object["kind"].as_str() {
                    Some("StatefulSet") => {
                        object["status"] = json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": 0});
                    }
                    Some("Service") => object["spec"]["clusterIP"] = "10.96.0.9".into(),
                    _ => {}
                }
                (201, self.take(path, object))
            }
        }
    }
}

/// An object as a server stores it.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The control plane's own API with all that an agent reports.
pub(crate) fn fleet(asked: &Asked) -> (u16, Value) {
    let clusters = "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters";
    let cluster = |name: &str, status: Value| {
        json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "spec": {"name": name, "kubernetesversion": "1.29", "kubernetescluster": "k", "region": "eu-1", "zone": "a",
                "provider": "aws", "accepted": false},
            "status": status})
    };
    let large = || {
        cluster(
            "large",
            json!({"observed": {"nodeCount": 250, "agentVersion": "v0.6.1", "totals": {"cpu": "1000", "memory": "1Ti"}},
            "conditions": [{"type": "Ready", "status": "False", "reason": "ClusterHeartbeatLost", "message": "silent"}]}),
        )
    };
    let west = || {
        cluster(
            "west",
            json!({"observed": {"nodeCount": 2, "agentVersion": "v0.6.1"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "well"}],
            "availableResources": {"node-a": {"cpu": "399m", "memory": "2332068Ki", "nvidia.com/gpu": "2"}},
            "nodeTaints": {"node-a": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
        )
    };
    let path = asked.path.split('?').next().unwrap();
    match path.strip_prefix(clusters) {
        Some("") => return list(&[west(), large()]),
        Some("/west") => return (200, west()),
        Some(_) => return not_found(),
        None => {}
    }
    match path {
        "/apis/cluster.fleet-scheduler.io/v1alpha1/namespaces/fleet-c-large/clusterreports" => list(&[
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "ClusterReport", "metadata": {"name": "nodes-0"},
                "spec": {"availableResources": {"node-l": {"cpu": "399m"}}, "capacityResources": {},
                    "nodeTaints": {"node-l": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}}),
        ]),
        "/apis/policy.fleet-scheduler.io/v1alpha1/schedulegroups" => list(&[
            json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup", "metadata": {"name": "g",
                "labels": {"fleet-scheduler.io/schedulegroup.target-cluster": "west"}}, "spec": {"policy": {"name": "spread"}}}),
        ]),
        "/apis/apps/v1/namespaces/default/deployments" | "/apis/apps/v1/deployments" => list(&[
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}},
                "spec": {"replicas": 3, "selector": {}, "template": {}}}),
        ]),
        "/api/v1/namespaces/fleet/configmaps/fleet-bootstrap-status" => (
            200,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "fleet-bootstrap-status"}, "data": {"failed": "x"}}),
        ),
        _ => inside(&asked.path),
    }
}

/// A hosting cluster whose control plane `demo` does not run: its store has neither image nor health, and events and a log
/// tell of it.
fn sick(asked: &Asked, hub: &str) -> (u16, Value) {
    let event = |reason: &str, kind: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}-{reason}"), "namespace": "fleet"},
            "involvedObject": {"kind": kind, "name": name, "namespace": "fleet"}, "type": "Warning", "reason": reason,
            "message": "pulling failed", "source": {"component": "kubelet"}})
    };
    match asked.path.split('?').next().unwrap() {
        "/api/v1/namespaces/fleet/events" => list(&[
            event("Failed", "Pod", "etcd-0"),
            event("FailedScheduling", "Pod", "etcd-0"),
            event("FailedCreate", "StatefulSet", "etcd"),
        ]),
        path if path.ends_with("/log") => (200, "first\nlast ".into()),
        "/api/v1/namespaces/fleet/pods" => list(&[json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "etcd-0", "namespace": "fleet", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "etcd", "controller": true}]},
            "spec": {"containers": [{"name": "etcd"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "etcd", "ready": false, "image": "etcd:3.5.21", "imageID": "", "restartCount": 7,
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": "panic: no"}},
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}]}})]),
        "/apis/apps/v1/namespaces/fleet/deployments" => list(&["fleet-scheduler", "fleet-agent"].map(|name| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "fleet",
                "labels": {"app.kubernetes.io/name": name, "fleet-scheduler.io/install": "demo", "app.kubernetes.io/version": "v0.6.1"}},
                "spec": {"replicas": 1, "selector": {}, "template": {}}})
        })),
        _ if asked.method != "GET" => forbidden(),
        _ => hosting(&asked.path, hub, 0),
    }
}

/// What an installed control plane has in its Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Record,
    /// Of a removal that was cut off.
    Journal,
}

/// An installed control plane as it was made: what `template` prints, and what was kept.
pub(crate) fn installed(kept: Kept) -> Cluster {
    let elsewhere = Sandbox::new();
    let given = ["exposure.type=NodePort", "exposure.host=192.0.2.10", "exposure.port=32222"];
    let given = given.iter().flat_map(|given| ["--set", given]);
    let args: Vec<&str> = ["template", "cp", "demo"].into_iter().chain(given).collect();
    let objects = documents(elsewhere.run(&args).succeeds());
    let cluster = Cluster::with(objects.into_iter().filter(|object| object["metadata"]["name"] != "fleet-kubeconfig"));
    if kept == Kept::Nothing {
        return cluster;
    }
    let release = json!({"chart": "control-plane/v0.6", "version": "v0.6.1", "valuesDigest": "",
        "facts": {"exposure": "NodePort", "server": "https://192.0.2.99:32222", "host": "192.0.2.99"}});
    let record = json!({"format": 1, "owner": {"kind": "control-plane", "name": "demo", "namespace": "fleet"},
        "installUid": "u", "phase": "installed", "release": release, "namespaceCreated": false,
        "written": "2026-01-31T12:00:00Z", "inventory": []});
    let journal = json!({"run": "r", "command": "uninstall", "started": "2026-01-31T12:00:00Z", "installUid": "u",
        "release": release, "steps": []});
    let mut data = json!({"record": STANDARD.encode(record.to_string())});
    if kept == Kept::Journal {
        data["journal"] = STANDARD.encode(journal.to_string()).into();
    }
    cluster.take(
        "/api/v1/namespaces/fleet/secrets/fleetctl.demo",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo", "namespace": "fleet"}, "data": data}),
    );
    cluster
}

/// A workload cluster with an agent whose registration is in this state, for this reason.
fn agents_place(state: &'static str, reason: &'static str) -> impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static {
    let cluster = Cluster::default();
    let ca = STANDARD.encode("-----BEGIN CERTIFICATE-----");
    let init = format!(
        "clusters: [{{name: fleet, cluster: {{server: 'https://127.0.0.1:1', certificate-authority-data: {ca}}}}}]\n\
         users: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]"
    );
    let asked_for = AtomicUsize::new(0);
    move |asked| {
        let said = json!({"state": state, "reason": reason, "message": "no", "at": asked_for.fetch_add(1, Ordering::SeqCst).to_string()});
        let secret = |name: &str, annotations: Value, data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "fleet", "annotations": annotations},
                "data": data})
        };
        match (asked.method.as_str(), asked.path.split('?').next().unwrap()) {
            ("GET", "/api/v1/namespaces/fleet") => {
                (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
            }
            (method, "/api/v1/namespaces/fleet/secrets/fleet-agent-identity" | "/api/v1/namespaces/fleet/secrets")
                if !asked.path.contains("watch=") && method != "POST" =>
            {
                let identity = secret(
                    "fleet-agent-identity",
                    json!({"fleet-scheduler.io/registration": said.to_string()}),
                    json!({"tls.crt": "YQ=="}),
                );
                if asked.path.contains("/secrets/") { (200, identity) } else { list(&[identity]) }
            }
            ("GET", "/api/v1/namespaces/fleet/secrets/fleet-cluster-init-kubeconfig") => {
                (200, secret("fleet-cluster-init-kubeconfig", json!({}), json!({"kubeconfig": STANDARD.encode(&init)})))
            }
            ("GET", "/apis/apps/v1/namespaces/fleet/deployments/fleet-agent") => (
                200,
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "fleet-agent", "namespace": "fleet",
                    "uid": "a", "resourceVersion": "1", "generation": 1,
                    "labels": {"fleet-scheduler.io/install": "west", "app.kubernetes.io/name": "fleet-agent"},
                    "managedFields": [{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]},
                    "spec": {"replicas": 1, "selector": {}, "template": {}}}),
            ),
            _ => cluster.answer(asked),
        }
    }
}

/// What a run printed, each stream by itself.
struct Printed {
    what: String,
    texts: Vec<String>,
}

impl Printed {
    /// Without a terminal.
    fn piped(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command();
        let Ran { stdout, stderr, code } =
            Ran::of(command.args(args).timeout(Duration::from_secs(60)).output().unwrap());
        assert!(![-1, 101, 134].contains(&code), "{args:?} ended by a signal or a panic: {stderr}");
        Self { what: format!("{args:?}, piped"), texts: vec![stdout, stderr] }
    }

    /// On a terminal.
    fn on_terminal(sandbox: &Sandbox, args: &[&str]) -> Self {
        let program = assert_cmd::cargo::cargo_bin!("fleetctl").display().to_string();
        let words = std::iter::once(program.as_str()).chain(args.iter().copied());
        let line = words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
        script.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", sandbox.path()).env("TERM", "xterm");
        let output = script.current_dir(sandbox.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
        assert!(!matches!(output.status.code(), None | Some(101 | 134)), "{args:?}: {text}");
        Self { what: format!("{args:?}, on a terminal"), texts: vec![text] }
    }

    /// Without a terminal, until it is interrupted.
    fn for_a_while(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = Command::new("timeout");
        command
            .args(["--signal=INT", "2", &assert_cmd::cargo::cargo_bin!("fleetctl").display().to_string()])
            .args(args);
        let ran = command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", sandbox.path()).output().unwrap();
        let texts = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        Self { what: format!("{args:?}, for a while"), texts: texts.into() }
    }

    fn is_spoiled(&self) -> bool {
        self.texts.iter().any(|text| text.contains(AFTER))
    }

    /// What of the printed text a terminal would act on, or what deceives its reader, and is not of the program itself.
    fn faults(&self, drawn: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for text in &self.texts {
            for sequence in SEQUENCES.iter().filter(|sequence| sequence.chars().any(acts)) {
                // Where lines are drawn anew, the program itself sends such sequences; but not those.
                if text.contains(&format!("{sequence}{AFTER}")) {
                    faults.push(format!("{sequence:?} has passed"));
                }
            }
            if text.lines().any(|line| line.starts_with(FORGED)) {
                faults.push("a line is forged".to_owned());
            }
            let own = if drawn { String::new() } else { without_styles(text) };
            let mut acting: Vec<char> = own.chars().filter(|c| acts(*c)).collect();
            acting.sort_unstable();
            acting.dedup();
            faults.extend(acting.iter().map(|c| format!("{c:?} has passed")));
        }
        faults.iter().map(|fault| format!("{}: {fault}", self.what)).collect()
    }

    /// The most characters of a line.
    fn widest(&self) -> usize {
        self.texts.iter().flat_map(|text| text.lines()).map(|line| line.chars().count()).max().unwrap_or_default()
    }
}

/// Whether a character is none that is printed as itself, in the order in which it stands, and no end of a line.
fn acts(c: char) -> bool {
    let hidden = matches!(u32::from(c), 0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
        | 0xfdd0..=0xfdef | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe0fff);
    c.is_control() && c != '\n' && c != '\t' || hidden || u32::from(c) & 0xfffe == 0xfffe
}

/// A text without the sequences that set colours and the like, as only the program itself may send them.
fn without_styles(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(at) = rest.find("\u{1b}[") {
        let after = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        plain.push_str(&rest[..at]);
        match after.strip_prefix('m') {
            Some(after) => rest = after,
            None => {
                plain.push('\u{1b}');
                rest = &rest[at + 1..];
            }
        }
    }
    plain + rest
}

/// Whether a command draws lines anew while it runs.
fn draws(args: &[&str]) -> bool {
    matches!(args[0], "drain" | "install" | "uninstall" | "rollback" | "diff") || args.contains(&"--wait")
}

/// Runs commands with and without a terminal. Some of them have to have shown what was spoiled.
fn run(sandbox: &Sandbox, commands: &[&[&str]], faults: &mut Vec<String>) {
    let mut shown = 0;
    for args in commands {
        let (piped, on_terminal) = (Printed::piped(sandbox, args), Printed::on_terminal(sandbox, args));
        shown += usize::from(piped.is_spoiled());
        faults.extend(piped.faults(false).into_iter().chain(on_terminal.faults(draws(args))));
    }
    assert!(shown > 0, "nothing that was spoiled was shown by {commands:?}");
}

#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

const GET: [&[&str]; 26] = [
    &["get", "clusters"],
    &["get", "clusters", "-o", "wide"],
    &["get", "clusters", "-o", "json"],
    &["get", "clusters", "-o", "yaml"],
    &["get", "clusters", "-o", "name"],
    &["get", "clusters", "west"],
    &["get", "clusters", "west", "-o", "yaml"],
    &["get", "schedulegroups"],
    &["get", "schedulegroups", "-o", "json"],
    &["get", "schedulegroups", "-o", "yaml"],
    &["get", "schedulegroups", "-o", "name"],
    &["get", "deployments"],
    &["get", "deployments", "-A"],
    &["get", "deployments", "-o", "json"],
    &["get", "deployments", "-o", "yaml"],
    &["get", "deployments", "-o", "name"],
    &["accept", "west"],
    &["token", "create", "west"],
    &["delete", "cluster", "west", "--yes", "--timeout", "1s"],
    &["delete", "cluster", "west"],
    &["cordon", "cluster", "west"],
    &["uncordon", "cluster", "west"],
    &["taint", "cluster", "west", "key=value:NoSchedule"],
    &["drain", "cluster", "west", "--timeout", "1s"],
    &["rebalance", "--all", "--dry-run"],
    &["simulate"],
];

const STATUS: [&[&str]; 14] = [
    &["status", "demo"],
    &["status", "demo", "-o", "wide"],
    &["status", "demo", "-o", "json"],
    &["status", "demo", "-o", "yaml"],
    &["status"],
    &["status", "demo", "--wait", "--timeout", "1s"],
    &["check", "demo"],
    &["check", "demo", "-o", "short"],
    &["check", "demo", "-o", "json"],
    &["check", "demo", "-o", "yaml"],
    &["check", "demo", "-o", "junit"],
    &["version"],
    &["version", "-o", "json"],
    &["version", "-o", "yaml"],
];

const WRITES: [&[&str]; 12] = [
    &["check", "demo", "--pre"],
    &["check", "demo", "--pre", "-o", "json"],
    &["check", "demo", "--pre", "-o", "junit"],
    &["diff", "cp", "demo", "--skip-preflight", "nodes,storage"],
    &["diff", "cp", "demo", "--skip-preflight", "nodes,storage", "-o", "json"],
    &["diff", "cp", "demo", "--skip-preflight", "nodes,storage", "-o", "yaml"],
    &["rollback", "demo", "--timeout", "1s"],
    &["rollback", "demo", "-o", "json", "--timeout", "1s"],
    &["kubeconfig", "demo"],
    &["install", "cp", "demo", "--skip-preflight", "nodes,storage", "--timeout", "1s"],
    &["install", "cp", "demo", "--skip-preflight", "nodes,storage", "--timeout", "1s", "-o", "json"],
    &["uninstall", "cp", "demo", "--timeout", "1s"],
];

/// Checks that a control plane which cannot be reached does not pass.
const UNREACHED: &str = "access,init-secret,init-token,skew,existing-agent,registered-elsewhere,probe";

const AGENT: [&[&str]; 6] = [
    &["check", "--pre"],
    &["diff", "agent", "west"],
    &["install", "agent", "west", "--timeout", "1s", "--skip-preflight", UNREACHED],
    &["install", "agent", "west", "--timeout", "1s", "--skip-preflight", UNREACHED, "-o", "json"],
    &["uninstall", "agent", "west", "--timeout", "1s"],
    &["uninstall", "agent", "other", "--timeout", "1s"],
];

#[test]
fn text_of_agents_is_shown_escaped() {
    let mut faults = Vec::new();
    for how in Spoiled::EACH {
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &spoiled(how, &hostile(0), fleet));
        run(&sandbox, &GET, &mut faults);
    }
    none(&faults);
}

#[test]
fn text_of_api_servers_pods_and_logs_is_shown_escaped() {
    let mut faults = Vec::new();
    for how in Spoiled::EACH {
        let sandbox = Sandbox::new();
        let hub = spoiled(how, &hostile(0), fleet);
        use_cluster(&sandbox, &spoiled(how, &hostile(0), move |asked| sick(asked, &hub)));
        run(&sandbox, &STATUS, &mut faults);
    }
    none(&faults);
}

#[test]
fn text_met_while_a_control_plane_is_installed_and_removed_is_shown_escaped() {
    let mut faults = Vec::new();
    for how in Spoiled::EACH {
        for kept in [Kept::Nothing, Kept::Record, Kept::Journal] {
            let sandbox = Sandbox::new();
            let cluster = installed(kept);
            use_cluster(&sandbox, &spoiled(how, &hostile(0), move |asked| cluster.answer(asked)));
            run(&sandbox, &WRITES, &mut faults);
        }
    }
    none(&faults);
}

#[test]
fn text_met_by_a_first_install_is_shown_escaped() {
    let mut faults = Vec::new();
    for how in Spoiled::EACH {
        let sandbox = Sandbox::new();
        let cluster = Cluster::default();
        let etcd = "/apis/apps/v1/namespaces/fleet/statefulsets/etcd";
        use_cluster(
            &sandbox,
            &spoiled(how, &hostile(0), move |asked| {
                let path = asked.path.split('?').next().unwrap();
                let (status, answer) = match path {
                    "/api/v1/namespaces/fleet/pods" | "/api/v1/namespaces/fleet/events" => sick(asked, ""),
                    _ => cluster.answer(asked),
                };
                (
                    status,
                    serde_json::from_str(&answer.to_string().replace(r#""uid":"etcd""#, &format!(r#""uid":"{etcd}""#)))
                        .unwrap(),
                )
            }),
        );
        let exposed = ["--set", "exposure.type=ClusterIP", "--set", "exposure.host=192.0.2.1", "--skip-preflight"];
        let install = [&["install", "cp", "demo", "--timeout", "6s"], &exposed[..], &["nodes,storage"]].concat();
        let again = [&install[..], &["-o", "json"]].concat();
        run(
            &sandbox,
            &[&install, &again, &["status", "demo"], &["uninstall", "cp", "demo", "--timeout", "1s"]],
            &mut faults,
        );
    }
    none(&faults);
}

#[test]
fn text_met_in_a_workload_cluster_is_shown_escaped() {
    let mut faults = Vec::new();
    for how in Spoiled::EACH {
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &spoiled(how, &hostile(0), agents_place("Refused", "ClusterNameInUse")));
        run(&sandbox, &AGENT, &mut faults);
        use_cluster(&sandbox, &spoiled(how, &hostile(0), agents_place("Blocked", "LeaveFailed")));
        run(&sandbox, &AGENT[4..], &mut faults);
    }
    none(&faults);
}

/// An API server that refuses everything.
fn refusing(code: u16) -> impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static {
    move |asked| {
        let cause =
            |reason: &str, message: &str| json!({"reason": reason, "field": ".spec.replicas", "message": message});
        let causes = [
            cause("FieldManagerConflict", "conflict with \"kubectl-edit\""),
            cause("FieldValueInvalid", "field is immutable"),
        ];
        let message = format!("{} is refused", asked.path);
        (
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "message": message,
                "code": code, "details": {"name": "x", "kind": "y", "causes": causes}}),
        )
    }
}

#[test]
fn refusals_of_an_api_server_are_shown_escaped_by_every_command() {
    let mut faults = Vec::new();
    for (how, code) in [(Spoiled::All, 403), (Spoiled::Words, 403), (Spoiled::Words, 409), (Spoiled::Words, 422)] {
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &spoiled(how, &hostile(0), refusing(code)));
        let all = [&GET[..], &STATUS, &WRITES, &AGENT].concat();
        let some: Vec<_> = all.iter().copied().step_by(if code == 403 { 1 } else { 4 }).collect();
        run(&sandbox, &some, &mut faults);
    }
    // What is no answer of an API server at all.
    let sandbox = Sandbox::new();
    let text = || Said { status: 418, head: b"content-type: text/plain".to_vec(), body: hostile(0).into_bytes() };
    use_cluster(&sandbox, &serve_as_it_is(move |_| text()));
    run(&sandbox, &[GET[0], STATUS[0], WRITES[0], WRITES[9], AGENT[2]], &mut faults);
    none(&faults);
}

#[test]
fn the_log_of_requests_is_shown_escaped() {
    let mut faults = Vec::new();
    let sandbox = Sandbox::new();
    let hub = spoiled(Spoiled::Words, &hostile(0), fleet);
    use_cluster(&sandbox, &spoiled(Spoiled::Words, &hostile(0), move |asked| sick(asked, &hub)));
    let verbose = ["status", "demo", "--verbose", "--verbose", "--verbose"];
    run(&sandbox, &[&verbose, &[&verbose[..], &["--log-format", "json"]].concat()], &mut faults);
    none(&faults);
}

#[test]
fn text_met_by_a_watch_is_shown_escaped() {
    let mut faults = Vec::new();
    let sandbox = Sandbox::new();
    let hub = spoiled(Spoiled::Words, &hostile(0), fleet);
    let file = sandbox.file("hub", &kubeconfig("demo", &hub));
    use_cluster(&sandbox, &spoiled(Spoiled::Words, &hostile(0), move |asked| sick(asked, &hub)));
    for args in [
        &["get", "clusters", "--watch", "--kubeconfig", &file][..],
        &["get", "clusters", "--watch", "--kubeconfig", &file, "-o", "wide"],
        &["get", "clusters", "--watch", "--kubeconfig", &file, "-o", "yaml"],
        &["status", "demo", "--watch"],
        &["status", "demo", "--watch", "-o", "json"],
    ] {
        let printed = Printed::for_a_while(&sandbox, args);
        assert!(printed.is_spoiled(), "{}: {:?}", printed.what, printed.texts);
        faults.extend(printed.faults(false));
    }
    none(&faults);
}

#[test]
fn names_of_a_kubeconfig_and_what_its_plugin_says_are_shown_escaped() {
    let mut faults = Vec::new();
    let sandbox = Sandbox::new();
    // In escapes, for a kubeconfig with some of these characters as they are is no YAML.
    let quoted = |text: &str| {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    };
    let name = quoted(&hostile(0));
    let plugin = format!(
        "{{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh, args: [-c, {}]}}",
        quoted(&format!(
            "printf '%b' '{}' >&2; exit 1",
            r"\033]0;title\007OWNED\033[2JOWNED\033[32mOWNED\nError: FORGED"
        ))
    );
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: {name}, cluster: {{server: \"https://127.0.0.1:1\"}}}}]\n\
         users: [{{name: {name}, user: {{exec: {plugin}}}}}]\n\
         contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\ncurrent-context: {name}\n"
    );
    with_kubeconfig(&sandbox, &text);
    let commands: [&[&str]; 5] = [
        &["status", "--context", "other"],
        &["get", "clusters"],
        &["install", "cp", "demo"],
        &["version"],
        &["uninstall", "cp", "demo", "-o", "json"],
    ];
    run(&sandbox, &commands, &mut faults);
    // The same where nobody logs in, so that the commands go on.
    with_kubeconfig(&sandbox, &text.replace("https://", "http://"));
    run(&sandbox, &commands, &mut faults);
    // What is completed is typed into a shell.
    for shell in ["bash", "zsh", "fish"] {
        let mut command = sandbox.command();
        command.env("FLEET_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
        let ran = Ran::of(command.args(["--", "fleetctl", "status", "--context", ""]).output().unwrap());
        let printed = Printed { what: format!("completion in {shell}"), texts: vec![ran.stdout] };
        assert!(!printed.is_spoiled(), "{}: {:?}", printed.what, printed.texts);
        faults.extend(printed.faults(false));
    }
    none(&faults);
}

#[test]
fn values_are_printed_escaped_and_mean_the_same() {
    let mut faults = Vec::new();
    let sandbox = Sandbox::new();
    let text = hostile(0);
    let values = sandbox.file("values.yaml", &json!({"podAnnotations": {"a": text}}).to_string());
    let template = ["template", "agent", "west", "--values", &values];
    run(&sandbox, &[&template, &[&template[..], &["-o", "json"]].concat()], &mut faults);
    let objects = documents(sandbox.run(&template).succeeds());
    assert!(objects.iter().any(|object| object.pointer("/spec/template/metadata/annotations/a") == Some(&json!(text))));
    let wrong = sandbox.file("wrong.yaml", &json!({"podAnnotatios": {"a": text}}).to_string());
    run(&sandbox, &[&["lint", "agent", "--values", &wrong]], &mut faults);
    none(&faults);
}

#[test]
fn long_text_of_others_is_cut() {
    let text = hostile(70_000);
    let mut faults = Vec::new();
    let mut short = |server: &str, commands: &[&[&str]]| {
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, server);
        for args in commands.iter().filter(|args| !args.iter().any(|word| matches!(*word, "json" | "yaml"))) {
            let printed = Printed::piped(&sandbox, args);
            faults.extend(printed.faults(false));
            // No line has more than a dozen texts of others.
            if printed.widest() > 12 * 1024 {
                let lines = printed.texts.iter().flat_map(|text| text.lines());
                let widest = lines.max_by_key(|line| line.chars().count()).unwrap_or_default();
                let head: String = widest.chars().take(200).collect();
                faults.push(format!("{}: a line has {} characters: {head}", printed.what, printed.widest()));
            }
        }
    };
    for how in Spoiled::EACH {
        let hub = spoiled(how, &text, fleet);
        short(&hub, &GET);
        short(&spoiled(how, &text, move |asked| sick(asked, &hub)), &STATUS);
        if how != Spoiled::All {
            let cluster = installed(Kept::Record);
            short(&spoiled(how, &text, move |asked| cluster.answer(asked)), &WRITES);
        }
        short(&spoiled(how, &text, agents_place("Refused", "ClusterNameInUse")), &AGENT);
    }
    short(&spoiled(Spoiled::Words, &text, refusing(403)), &[&GET[..], &STATUS, &WRITES, &AGENT].concat());
    none(&faults);
}
