//! The examples of the pages of `explain` that are whole runs of the program.
//!
//! `UPDATE_EXAMPLES=1` writes what is printed into the pages, as `cargo bed goldens` does.

#[path = "../../src/cli/commands/explain/pages/block.rs"]
mod block;

use std::path::Path;

use serde_json::json;

use block::Block;

use fleetctl::backup::{Identity, Seal};

use crate::backup::make_backup;
use crate::server::{Said, kubeconfig, list, not_found, serve, serve_as_it_is, use_cluster, with_kubeconfig};
use crate::status::{hosting, inside, installed_from_here};
use crate::{Ran, Sandbox};

/// What is there before a run.
type Given = fn(&Sandbox);

fn nothing(_: &Sandbox) {}

/// A backup that was cut off by a full disk.
fn cut_backup(sandbox: &Sandbox) {
    let (archive, _) = make_backup(&Seal::Open);
    std::fs::write(sandbox.path().join("demo.fleet"), &archive[..archive.len() / 2]).unwrap();
}

/// A backup for a recipient.
fn sealed_backup(sandbox: &Sandbox) {
    let (archive, _) = make_backup(&Seal::Recipients(vec![Identity::generate().to_recipient()]));
    std::fs::write(sandbox.path().join("demo.fleet"), archive).unwrap();
}

/// A hosting cluster that is reached by nobody.
fn unreachable(sandbox: &Sandbox) {
    use_cluster(sandbox, "http://127.0.0.1:1");
}

/// A hosting cluster with nothing of ours in it.
fn empty(sandbox: &Sandbox) {
    use_cluster(sandbox, &serve(|_, path| if path.contains('?') { list(&[]) } else { not_found() }));
}

/// A proxy that wants a log-in first.
fn log_in_page(sandbox: &Sandbox) {
    let page = "<!DOCTYPE html><title>Sign in</title><p>Single sign-on is required.</p>";
    let server =
        serve_as_it_is(move |_| Said { status: 200, head: b"content-type: text/html".to_vec(), body: page.into() });
    use_cluster(sandbox, &server);
}

/// A workload cluster with the agent of `east`.
fn other_agent(sandbox: &Sandbox) {
    let labels = json!({"fleet-scheduler.io/install": "east"});
    let agent =
        json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "fleet-agent", "labels": labels}});
    let server = serve(move |_, path| match path.split('?').next() {
        Some(path) if path.ends_with("/deployments/fleet-agent") => (200, agent.clone()),
        _ => not_found(),
    });
    use_cluster(sandbox, &server);
}

/// A cluster whose version is no version of Kubernetes.
fn odd_version(sandbox: &Sandbox) {
    let version = json!({"major": "", "minor": "", "gitVersion": "trunk", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    use_cluster(sandbox, &serve(move |_, path| if path == "/version" { (200, version.clone()) } else { not_found() }));
}

/// A control plane with a Cluster that stays, whatever is done about it.
fn undeletable(sandbox: &Sandbox) {
    let cluster = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "west", "uid": "u"}, "spec": {"name": "west"}});
    let server = serve(move |_, path| match path.split('?').next() {
        Some(path) if path.ends_with("/clusters/west") => (200, cluster.clone()),
        _ => not_found(),
    });
    use_cluster(sandbox, &server);
}

/// A recording of a fleet without clusters.
fn recording(sandbox: &Sandbox, format: u64) {
    let recording = json!({"fleetRecording": format, "fleet": {"clusters": []}});
    sandbox.file("fleet.json", &recording.to_string());
}

/// A hosting cluster with control plane `demo`, of whose etcd so many pods are ready.
fn demo(sandbox: &Sandbox, etcd: usize) {
    let hub = serve(|_, path| inside(path));
    use_cluster(sandbox, &serve(move |_, path| hosting(path, &hub, etcd)));
}

/// Each page with the exit code of its reason, what is there, and the command.
const RUNS: [(&str, i32, Given, &str); 55] = [
    ("ValuesNeedCluster", 2, nothing, "fleetctl upgrade control-plane demo --dry-run"),
    ("AutoNeedsCluster", 2, nothing, "fleetctl install control-plane demo --version auto --dry-run"),
    ("BadKubeconfig", 1, |sandbox| with_kubeconfig(sandbox, "clusters: [\n"), "fleetctl status demo"),
    ("ChartMissing", 2, nothing, "fleetctl show images --set etcd.replicas=3"),
    ("ClustersRegistered", 6, |sandbox| demo(sandbox, 1), "fleetctl uninstall control-plane demo --delete-data --yes"),
    ("EmptyFlag", 2, nothing, "fleetctl install control-plane demo --image-repository '' --dry-run"),
    ("BadRecipient", 2, nothing, "fleetctl backup demo --to demo.fleet --recipient age1jyp0n2e9p"),
    ("BadTarget", 2, cut_backup, "fleetctl backup demo --to demo.fleet --no-keys"),
    ("KeysMissing", 6, sealed_backup, "fleetctl backup verify demo.fleet"),
    ("SealUndecided", 2, nothing, "fleetctl backup demo --to demo.fleet"),
    ("SnapshotDamaged", 1, cut_backup, "fleetctl backup verify demo.fleet"),
    ("ExposureUndecided", 2, nothing, "fleetctl template control-plane demo"),
    (
        "FolderInUse",
        6,
        |sandbox| {
            std::fs::create_dir(sandbox.path().join("out")).unwrap();
            sandbox.file("out/00-serviceaccount-fleet-agent.yaml", "mine\n");
        },
        "fleetctl template agent west --output-dir out",
    ),
    (
        "FolderNotSafe",
        6,
        |sandbox| {
            use std::os::unix::fs::PermissionsExt as _;
            let folder = sandbox.path().join("out");
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        },
        "fleetctl template control-plane demo --set exposure.type=ClusterIP --set exposure.host=demo.example.org --output-dir out",
    ),
    ("InvalidAccessKey", 2, nothing, "fleetctl install control-plane demo --cloud-access-key key.json --dry-run"),
    ("InvalidName", 2, nothing, "fleetctl install control-plane My_Name --dry-run"),
    (
        "InvalidPatch",
        2,
        |sandbox| drop(sandbox.file("patch.yaml", "kind: Deployment\nmetadata: {name: agent}\nspec: {replicas: 2}\n")),
        "fleetctl template agent west --patch patch.yaml",
    ),
    (
        "InvalidManifest",
        2,
        |sandbox| {
            recording(sandbox, 1);
            sandbox.file("app.yaml", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: web}\n");
        },
        "fleetctl simulate -f app.yaml --fleet fleet.json",
    ),
    ("BadRecording", 2, |sandbox| recording(sandbox, 2), "fleetctl simulate --fleet fleet.json"),
    ("InvalidScale", 2, |sandbox| recording(sandbox, 1), "fleetctl simulate --scale web=3 --fleet fleet.json"),
    ("InvalidValues", 2, nothing, "fleetctl install control-plane demo --set etcd.replica=3 --dry-run"),
    ("Io", 1, nothing, "fleetctl versions > /dev/full"),
    (
        "KubeconfigChanged",
        1,
        |sandbox| {
            installed_from_here(sandbox, "demo", "https://192.0.2.10:6443");
            let file = ".fleet/demo/fleet-kubeconfig";
            let text = std::fs::read_to_string(sandbox.path().join(file)).unwrap();
            sandbox.file(file, &text.replace("token: hub", "exec: {command: sh}"));
        },
        "fleetctl kubeconfig demo",
    ),
    (
        "KubeconfigLocked",
        6,
        |sandbox| {
            installed_from_here(sandbox, "demo", "https://192.0.2.10:6443");
            with_kubeconfig(sandbox, "");
            sandbox.file(".kube/config.lock", "");
        },
        "fleetctl kubeconfig demo --merge",
    ),
    (
        "KubeconfigRefused",
        6,
        |sandbox| with_kubeconfig(sandbox, &kubeconfig("demo", "https://192.0.2.10:6443")),
        "fleetctl kubeconfig demo --remove",
    ),
    (
        "KeysInGit",
        2,
        nothing,
        "fleetctl template cp demo --for flux --set exposure.type=LoadBalancer --set exposure.host=demo.example.org",
    ),
    ("KubernetesVersion", 3, nothing, "fleetctl template agent west --kube-version 1.31"),
    (
        "LocalFile",
        1,
        |sandbox| drop(sandbox.file(".fleet", "")),
        "fleetctl template control-plane demo --set exposure.type=ClusterIP --set exposure.host=demo.example.org",
    ),
    ("NoHome", 1, nothing, "HOME=. fleetctl kubeconfig demo"),
    ("NoKubeconfig", 1, nothing, "fleetctl status demo"),
    ("NoKubeconfigFound", 1, nothing, "fleetctl kubeconfig demo"),
    ("NoName", 2, nothing, "fleetctl install control-plane --dry-run"),
    ("NoSuchCheck", 2, nothing, "fleetctl install control-plane demo --skip-preflight storrage"),
    ("NoSuchCluster", 1, empty, "fleetctl get clusters wets"),
    ("NoSuchContext", 2, unreachable, "fleetctl status demo --context hostin"),
    ("NoSuchField", 2, nothing, "fleetctl template control-plane demo --explain 'statefulset/etcd#spec.replica'"),
    ("NoSuchFolder", 2, nothing, "fleetctl kubectl-install --bin-dir bin"),
    ("NoSuchId", 2, nothing, "fleetctl explain crashloop"),
    ("NoSuchKind", 2, nothing, "fleetctl template agent west --include-kind Deploymnt"),
    ("NoSuchObject", 2, nothing, "fleetctl template agent west --show-only deployment/agent"),
    ("NoSuchPreset", 2, nothing, "fleetctl show presets huge"),
    ("NoSuchVersion", 2, nothing, "fleetctl show values control-plane --version v3.0"),
    ("NotAControlPlane", 1, |sandbox| use_cluster(sandbox, &serve(|_, _| not_found())), "fleetctl get clusters"),
    ("NotGone", 4, undeletable, "fleetctl delete cluster west --yes --timeout 1s"),
    ("NotInstalled", 7, empty, "fleetctl status demo"),
    ("NotKubernetes", 1, log_in_page, "fleetctl get clusters"),
    (
        "ServerNotVerified",
        6,
        |sandbox| with_kubeconfig(sandbox, &kubeconfig("hosting", "http://192.0.2.10:6443")),
        "fleetctl install control-plane demo",
    ),
    ("OnlyWithPre", 2, nothing, "fleetctl check demo --version v0.6"),
    ("OtherAgent", 6, other_agent, "fleetctl uninstall agent west"),
    (
        "OtherKeys",
        6,
        |sandbox| installed_from_here(sandbox, "demo", "https://192.0.2.10:6443"),
        "fleetctl template control-plane demo --set exposure.type=ClusterIP --set exposure.host=demo.example.org",
    ),
    ("RequestFailed", 1, unreachable, "fleetctl status demo"),
    ("Unhealthy", 7, |sandbox| demo(sandbox, 0), "fleetctl status demo --wait --timeout 3s --quiet > /dev/null"),
    ("UnknownVersion", 3, odd_version, "fleetctl install control-plane demo --version auto"),
    (
        "UnusableContext",
        1,
        |sandbox| {
            let text = kubeconfig("hosting", "https://192.0.2.10:6443").replace("user: {}", "user: {tokenFile: gone}");
            with_kubeconfig(sandbox, &text);
        },
        "fleetctl status demo",
    ),
    ("Usage", 2, nothing, "fleetctl instal control-plane demo"),
];

/// The run as a person sees it who is called ann, on a server of the documentation's network.
fn run(code: i32, given: Given, command: &str) -> String {
    let sandbox = Sandbox::new();
    given(&sandbox);
    let program = assert_cmd::cargo::cargo_bin!("fleetctl");
    let mut shell = assert_cmd::Command::new("bash");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    shell.env_clear().envs([("PATH", path.as_str()), ("COLUMNS", "100"), ("LC_ALL", "C.UTF-8")]);
    let ran =
        Ran::of(shell.env("HOME", sandbox.path()).current_dir(sandbox.path()).args(["-c", command]).output().unwrap());
    assert_eq!(ran.code, code, "{command}: {ran:?}");
    let text = format!("$ {command}\n{}{}", ran.stdout, ran.stderr);
    let text = text.replace(&sandbox.path().display().to_string(), "/home/ann");
    let mut parts = text.split("http://127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        text + "https://192.0.2.10:6443" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    text.trim_end().to_owned()
}

#[test]
fn a_run_on_a_page_gives_what_the_page_says() {
    for (id, code, given, command) in RUNS {
        Block::read_page_block(id).assert_shows(Some(&run(code, given, command)));
    }
}

#[test]
fn every_run_on_a_page_is_repeated_here() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explain");
    for entry in std::fs::read_dir(pages).unwrap() {
        let path = entry.unwrap().path();
        let id = path.file_stem().unwrap().to_str().unwrap();
        assert!(!Block::read_page_block(id).is_run() || RUNS.iter().any(|(known, ..)| *known == id), "{id}");
    }
}
