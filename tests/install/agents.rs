//! Workload clusters: registered by the operator's own steps or the short way, refused, disconnected, forgotten.

use std::process::Command;

use bed::proxy::Proxy;

use crate::limited::Limited;
use crate::member::{COLUMNS, Member, rewrite};
use crate::support::{Ran, Site, eventually};

#[test]
fn the_operators_steps_register_a_cluster_and_an_uninstall_leaves_no_trace() {
    let site = Site::with("host", "member-1");
    site.install(&[]).succeeds();
    let member = Member::beside(&site, "member-1");
    let before = member.dump();

    // The steps of the specification, with metadata in the Secret that tools of others left.
    site.hub(&[
        "-n",
        "fleet",
        "annotate",
        "secret",
        "fleet-cluster-init-kubeconfig",
        "example.org/seen-by=a-tool",
        "kubectl.kubernetes.io/last-applied-configuration={}",
    ]);
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/register-clusters.sh"));
    script.args(["demo", member.name]).env("AGENT_FLAGS", "--version v0.6.1");
    let ran = site.finish(member.prepared(script));
    let shown = ran.succeeds();
    let header = shown.lines().find(|line| line.starts_with("NAME ")).expect("a plain listing");
    assert_eq!(header.split_whitespace().collect::<Vec<_>>(), COLUMNS, "{shown}");
    let row = member.row();
    assert_eq!((row["K8S-VERSION"].as_str(), row["K8S-CLUSTER"].as_str()), ("1.25", member.name), "{row:?}");
    assert_eq!((row["READY"].as_str(), row["STANDBY"].as_str()), ("True", "False"), "{row:?}");
    for part in ["CLUSTER NAME", "ClusterReady", "NODES", "AVAILABLE", "NODES' TAINTS"] {
        assert!(shown.contains(part), "{shown}");
    }
    let pods =
        member.kubectl(&["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=fleet-agent", "-o", "name"]);
    assert_eq!(pods.lines().count(), 1, "the probe is gone and the agent is there: {pods}");

    // What another install would change: nothing, or what is asked for.
    let diff =
        |more: &[&str]| member.fleetctl(&[&["diff", "agent", member.name, "--context", member.name], more].concat());
    assert!(diff(&[]).succeeds().contains("Nothing would change"));
    let differs = diff(&["--set", "cluster.region=eu-1"]);
    assert!(differs.code == Some(1) && differs.stdout.contains("~ Deployment fleet/fleet-agent"), "{differs:?}");
    let asked = ["install", "agent", member.name, "--context", member.name, "--set", "cluster.region=eu-1"];
    let dry_run = member.fleetctl(&[&asked[..], &["--dry-run=server"]].concat());
    assert_eq!(dry_run.succeeds(), differs.stdout, "the same as `diff`, and no failure");

    // Again: nothing is written.
    let proxy = Proxy::start(site.bed, member.name).unwrap();
    let mut again = member.prepared(site.command(&["install", "agent", member.name]));
    again.env("KUBECONFIG", proxy.kubeconfig());
    assert!(site.finish(again).succeeds().contains("Nothing to change"));
    let writes: Vec<_> =
        proxy.writes().into_iter().filter(|seen| !seen.path.contains("selfsubjectaccessreviews")).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(proxy.seen().len() > 5, "the proxy was used");

    // Other views, by name and by label.
    let list = |args: &[&str]| member.fleetctl(&[&["get", "clusters", "--context", "demo"], args].concat());
    assert!(list(&["-o", "wide"]).succeeds().contains("ClusterReady"));
    assert_eq!(list(&["-o", "name"]).succeeds(), "cluster.cluster.fleet-scheduler.io/member-1\n");
    assert!(list(&[member.name, "-o", "yaml"]).succeeds().contains("kubernetesversion"));
    let selected = list(&["-l", "fleet-scheduler.io/cluster.version=1.25", "-o", "name"]);
    assert!(selected.succeeds().contains(member.name), "{selected:?}");
    assert_eq!(list(&["-l", "fleet-scheduler.io/cluster.version=9.9", "-o", "name"]).succeeds(), "");
    list(&["nobody"]).fails(1, &["nobody"]);
    assert!(site.fleetctl(&["status"]).succeeds().contains("Cluster member-1 connected and ready"));
    comes_back_where_it_was(&site, &member, &pods);

    // Of another name it is not removed; of its own it leaves both sides as they were.
    let wrong = member.fleetctl(&["uninstall", "agent", "other", "--context", member.name]);
    wrong.fails(6, &["`member-1`, not `other`"]);
    let lost = member.uninstall(&["--namespace", "elsewhere"]);
    lost.fails(1, &["is in namespace fleet", "`fleetctl uninstall agent member-1 --context member-1`"]);
    member.uninstall(&[]).succeeds();
    // Its namespace there is emptied by the control plane in its own time.
    eventually("the end of the member's namespace in the control plane", || {
        !site.hub(&["get", "clusters,namespaces", "-o", "name"]).contains(member.name)
    });
    assert!(member.kubectl(&["get", "secret", "-n", "fleet", "-o", "name"]).contains("fleet-cluster-init-kubeconfig"));

    // Once more, by a user with the rights that are printed and no others, who knows nothing of the control plane.
    let printed = member.fleetctl(&["show", "rbac", "agent", member.name]);
    let user = Limited::user(&site, member.name, printed.succeeds());
    let by_user = |command: &str| user.fleetctl(&[command, "agent", member.name]);
    let differs = by_user("diff");
    assert!(differs.code == Some(1) && differs.stdout.contains("+ Deployment fleet/fleet-agent"), "{differs:?}");
    by_user("install").succeeds();
    assert_eq!(member.row()["READY"], "True");
    assert!(by_user("diff").succeeds().contains("Nothing would change"));
    by_user("uninstall").succeeds();
    user.forget();

    member.kubectl(&["delete", "namespace", "fleet"]);
    member.assert_same_as(&before);
    assert!(member.uninstall(&[]).succeeds().contains("nothing to remove"), "safe to repeat");
    assert!(list(&[]).succeeds().contains("No workload clusters"));
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

/// The control plane is removed and installed again over its data, and the agent, whose pod is `pod`, finds it by itself.
fn comes_back_where_it_was(site: &Site, member: &Member<'_>, pod: &str) {
    let address = || site.hub(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let before = address();
    let removed = site.fleetctl(&["uninstall", "cp", "demo"]);
    removed.succeeds();
    let loses = format!("lose their control plane: {}", member.name);
    assert!(removed.stderr.contains(&loses), "{removed:?}");
    site.install(&[]).succeeds();
    assert_eq!(address(), before);

    // What its data says of the cluster is what was so before; a heartbeat is new.
    let namespace = format!("fleet-c-{}", member.name);
    let heartbeat = || site.hub(&["-n", &namespace, "get", "lease", "fleet-agent", "-o", "jsonpath={.spec.renewTime}"]);
    let last = heartbeat();
    eventually("the agent's return", || heartbeat() != last && member.row()["READY"] == "True");
    let selector = "app.kubernetes.io/name=fleet-agent";
    assert_eq!(member.kubectl(&["-n", "fleet", "get", "pods", "-l", selector, "-o", "name"]), pod);

    // Now that the port is asked for, it is asked for every time.
    assert!(site.fleetctl(&["diff", "cp", "demo"]).succeeds().contains("Nothing would change"));
    assert!(site.install(&[]).succeeds().contains("Nothing to change"));
}

#[test]
fn what_is_missing_refused_or_unreachable_is_said_and_nothing_is_left() {
    let site = Site::with("host", "member-1");
    site.install(&[]).succeeds();
    let member = Member::beside(&site, "member-1");
    let before = member.dump();

    // Without the namespace, and then without the Secret: the two commands.
    let create = "kubectl --context member-1 create namespace fleet";
    let copy = "-n fleet get secret fleet-cluster-init-kubeconfig -o yaml | kubectl --context member-1 apply -f -";
    member.install(&[]).fails(3, &["namespace fleet does not exist", create, copy, "--control-plane"]);
    member.assert_same_as(&before);
    member.kubectl(&["create", "namespace", "fleet"]);
    member.install(&[]).fails(3, &["Secret fleet-cluster-init-kubeconfig does not exist", copy]);
    member.kubectl(&["delete", "namespace", "fleet"]);
    member.assert_same_as(&before);

    // A Secret that is damaged, and one that leads to a closed port: the hop is named, and what tried it is gone.
    member.copy_secret(|secret| rewrite(secret, |text| text.replace("token:", "tokken:")));
    member.install(&[]).fails(3, &["cannot be used", "copy it again"]);
    member.kubectl(&["delete", "namespace", "fleet"]);
    let host = site.bed.node_ip(site.cluster).unwrap();
    member.copy_secret_to_a_closed_port();
    let with_secret = member.dump();
    member.install(&[]).fails(3, &["cannot be reached from inside the workload cluster", "TCP", &format!("{host}:9")]);
    member.assert_same_as(&with_secret);
    // A quota without room is seen before any pod is tried.
    member.kubectl(&["-n", "fleet", "create", "quota", "full", "--hard=pods=0"]);
    let counted = ["-n", "fleet", "get", "quota", "full", "-o", "jsonpath={.status.hard.pods}"];
    eventually("the quota is counted", || member.kubectl(&counted) == "0");
    member.install(&[]).fails(3, &["ResourceQuota full has 0 pods left, 1 needed", "explain quota"]);
    member.kubectl(&["-n", "fleet", "delete", "quota", "full"]);
    member.assert_same_as(&with_secret);
    member.kubectl(&["delete", "namespace", "fleet"]);

    // The name is that of another cluster: seen before anything is written where the control plane can be asked, else
    // refused by the control plane, whose words are shown.
    let other = r#"{"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "member-1"},
        "spec": {"name": "member-1", "clusterID": "11111111-2222-3333-4444-555555555555"}}"#;
    let file = site.home().join("other.json");
    std::fs::write(&file, other).unwrap();
    site.hub(&["apply", "-f", &file.display().to_string()]);
    member.copy_secret(|_| {});
    let with_secret = member.dump();
    member.install(&[]).fails(3, &["another cluster is already registered as member-1", "delete cluster member-1"]);
    member.assert_same_as(&with_secret);
    let stranger = |more: &[&str]| member.stranger(&[&["install", "agent", member.name], more].concat());
    let refused = stranger(&["--rollback"]);
    refused.fails(1, &["ClusterNameInUse", "another cluster is registered as member-1", "were undone"]);
    member.assert_same_as(&with_secret);
    stranger(&[]).fails(1, &["ClusterNameInUse", "uninstall agent member-1"]);

    // The remedy that is named: the other one is forgotten, and the same install goes on.
    member.fleetctl(&["delete", "cluster", "member-1", "--context", "demo"]).fails(6, &["--yes"]);
    member.fleetctl(&["delete", "cluster", "member-1", "--context", "demo", "--yes"]).succeeds();
    stranger(&[]).succeeds();
    assert_eq!(member.row()["READY"], "True");

    // With the control plane away the agent cannot leave: nothing is removed but by force, and the other half follows.
    site.kubectl(&["-n", "fleet", "scale", "deployment", "apiserver", "--replicas=0"]);
    eventually("the end of the API server", || {
        site.kubectl(&["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=apiserver", "-o", "name"]).is_empty()
    });
    let down = site.fleetctl(&["status"]);
    assert_eq!(down.code, Some(7), "{down:?}");
    for part in ["Source: the hosting cluster only", "API server status... scaled to zero", "etcd status... Running"] {
        assert!(down.stdout.contains(part), "`{part}` is not in:\n{}", down.stdout);
    }
    member
        .uninstall(&[])
        .fails(6, &["could not be deregistered", "fleet-c-member-1", "--force", "delete cluster member-1"]);
    assert!(member.kubectl(&["-n", "fleet", "get", "deployments", "-o", "name"]).contains("fleet-agent"));
    let forced = member.uninstall(&["--force"]);
    assert!(forced.succeeds().contains("delete cluster member-1"), "{forced:?}");
    member.assert_same_as(&with_secret);
    site.kubectl(&["-n", "fleet", "scale", "deployment", "apiserver", "--replicas=1"]);
    site.fleetctl(&["status", "--wait"]).succeeds();
    member.fleetctl(&["delete", "cluster", "member-1", "--context", "demo", "--yes"]).succeeds();
    assert!(!site.hub(&["get", "clusters,namespaces", "-o", "name"]).contains(member.name));
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

#[test]
fn the_short_way_registers_a_cluster_of_the_newest_line_and_takes_its_namespace_back() {
    let site = Site::with("current", "member-2");
    site.install(&["--version", "v1.2", "--set", "scheduler.registration=Manual"]).succeeds();
    let member = Member::beside(&site, "member-2");
    let before = member.dump();
    member.install(&["--control-plane", "demo"]).fails(3, &["v0.6 supports Kubernetes v1.24, v1.25", "--version v1.2"]);
    member.assert_same_as(&before);

    let differs = member.fleetctl(&[
        "diff",
        "agent",
        member.name,
        "--context",
        member.name,
        "--control-plane",
        "demo",
        "--version",
        "auto",
    ]);
    assert!(differs.code == Some(1) && differs.stdout.contains("+ Deployment fleet/fleet-agent"), "{differs:?}");
    member.assert_same_as(&before);

    // It waits to be let in, and nobody does: a rollback, and an uninstall, take back what was asked for.
    let unknown = || !site.hub(&["get", "clusters", "-o", "name"]).contains(member.name);
    let newest = ["--control-plane", "demo", "--version", "auto"];
    let rolled_back = member.install(&[&newest[..], &["--timeout", "60s", "--rollback"]].concat());
    rolled_back.fails(4, &["accept member-2", "were undone"]);
    assert!(unknown());
    member.assert_same_as(&before);
    let install = [&["install", "agent", member.name, "--context", member.name], &newest[..]].concat();
    let begin = || member.prepared(site.command(&install)).spawn().unwrap();
    let child = begin();
    eventually("the request", || !unknown());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let interrupted = child.wait_with_output().unwrap();
    let said = String::from_utf8(interrupted.stderr).unwrap();
    assert_eq!(interrupted.status.code(), Some(130), "{said}");
    assert!(said.contains("run the same install again") && said.contains("uninstall agent member-2"), "{said}");
    assert!(!unknown(), "it waits");
    member.uninstall(&[]).succeeds();
    assert!(unknown());
    member.assert_same_as(&before);

    // It waits to be let in, and is.
    let child = begin();
    eventually("the request", || !unknown());
    let accept = |more: &[&str]| member.fleetctl(&[&["accept", member.name, "--context", "demo"], more].concat());
    accept(&[]).fails(6, &["cluster ID", "accepting a cluster needs confirmation", "--key FINGERPRINT"]);
    accept(&["--key", "0123456789abcdef"]).fails(6, &["does not begin with 0123456789abcdef…"]);
    let shown = accept(&[]).stderr;
    let key = shown.split("key of its agent (SHA-256): ").nth(1).unwrap().split_whitespace().next().unwrap();
    // The agent says so itself.
    eventually("the key in the agent's log", || member.agent_log().contains(key));
    assert!(accept(&["--key", &key[..12]]).succeeds().contains("Accepted"));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("Creating namespace fleet and copying the init Secret"), "{stderr}");
    assert_eq!((member.row()["READY"].as_str(), member.row()["K8S-VERSION"].as_str()), ("True", "1.36"));

    // It says that it is of the line that was installed, which is not the line of this tree.
    let asked = site.fleetctl(&["version", "-o", "json"]);
    asked.succeeds();
    let versions: serde_json::Value = serde_json::from_str(&asked.stdout).unwrap();
    assert_eq!(versions["agents"], serde_json::json!([{"name": member.name, "version": "v1.2.0"}]), "{asked:?}");
    assert_eq!(versions["skew"], serde_json::json!([]), "{asked:?}");

    // Without the control plane's name it is the same install: what was copied stays ours.
    // What is told next works just so, whether the user's kubeconfigs know the control plane or not.
    for known in [true, false] {
        let run = |command: Command| {
            let mut command = member.prepared(command);
            if !known {
                command.env("KUBECONFIG", site.bed.kubeconfig(member.name).unwrap());
            }
            site.finish(command)
        };
        let again = ["install", "agent", member.name, "--context", member.name, "--version", "auto"];
        let again = run(site.command(&again));
        assert!(again.succeeds().contains("Nothing to change"), "{again:?}");
        let told: Vec<&str> = again.stdout.lines().filter(|line| line.contains("ctl get clusters ")).collect();
        assert!(told.len() == 2 && told.iter().all(|line| line.contains("--context demo") == known), "{again:?}");
        for line in told {
            let mut shell = Command::new("bash");
            shell.args(["-c", line]);
            assert!(run(shell).succeeds().contains(member.name), "{line}");
        }
    }
    follows_to_another_port(&site, &member);
    member.install(&["--version", "v0.9", "--skip-preflight", "kubernetes-version"]).fails(3, &["v0.9", "v1.2"]);

    member.uninstall(&[]).succeeds();
    member.assert_same_as(&before);
    assert!(!site.hub(&["get", "clusters,namespaces", "-o", "name"]).contains(member.name));
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

/// The control plane gets another port, and what is told brings the agent there: the install has ended by then, and no
/// sooner do agents start from the new address.
fn follows_to_another_port(site: &Site, member: &Member<'_>) {
    let server = || site.hub(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let former = server();
    let (host, port) = former.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let other = format!("{host}:{}", if port == 30000 { port + 1 } else { port - 1 });
    let node_port = format!("exposure.nodePort={}", other.rsplit_once(':').unwrap().1);
    let set = ["--version", "v1.2", "--set", "scheduler.registration=Manual", "--set", &node_port];

    let moves = format!("the address of the API server changes from {former} to {other}");
    let differs = site.fleetctl(&[&["diff", "cp", "demo"], &set[..]].concat());
    assert_eq!(differs.code, Some(1), "{differs:?}");
    for part in ["~ Service fleet/apiserver", "~ Secret fleet/fleet-kubeconfig", &format!("# {moves}")] {
        assert!(differs.stdout.contains(part), "{part}: {differs:?}");
    }
    let moved = site.install(&set);
    moved.succeeds();
    assert_eq!(server(), other);
    let told = moved.stderr.lines().find(|line| line.contains(&moves)).unwrap_or_else(|| panic!("{moved:?}"));
    let told = told.split('`').find(|part| part.starts_with("fleetctl install agent ")).unwrap();
    let command = told.replace("CLUSTER", member.name).replace("WORKLOAD", member.name);
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{command} --version auto")]);
    let followed = site.finish(member.prepared(shell));
    followed.succeeds();
    assert!(followed.stderr.contains(&format!("control plane at {other}")), "{followed:?}");
    assert_eq!(member.row()["READY"], "True");
    let again = member.install(&["--control-plane", "demo", "--version", "auto"]);
    assert!(again.succeeds().contains("Nothing to change"), "{again:?}");
}

/// A control plane of the newest line, and an install of two agents of one cluster.
fn two_agents<'s>(site: &'s Site, member: &'s Member<'s>) -> impl Fn(&[&str]) -> Ran + use<'s> {
    site.install(&["--version", "auto"]).succeeds();
    member.copy_secret(|_| {});
    move |more| member.install(&[&["--version", "auto", "--set", "replicas=2"], more].concat())
}

/// A Deployment that an annotation places on a cluster, in a namespace of its own.
fn placed_on(cluster: &str, namespace: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: {namespace}
  annotations: {{fleet-scheduler.io/cluster: {cluster}}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: httpd, image: 'busybox:1.35', command: [httpd, -f, -p, '8080']}}]
"
    )
}

mod exhaustive {
    use super::*;

    /// Two control planes and two agents; `tests/engine/two_agents.rs` has two agents in every run, on an API without nodes.
    #[test]
    fn two_fleets_share_a_workload_cluster_and_the_removal_of_one_leaves_the_other_whole() {
        let site = Site::with("current", "member-2");
        let member = Member::beside(&site, "member-2");
        let fleets = [("demo", "fleet"), ("two", "fleet-two")];
        let hub = |plane: &str, args: &[&str]| {
            let file = site.home().join(".fleet").join(plane).join("fleet-kubeconfig").display().to_string();
            let mut kubectl = Command::new(site.bed.kubectl_path().unwrap());
            kubectl.args(["--kubeconfig", &file, "--context", plane]).args(args);
            site.finish(kubectl).succeeds().to_owned()
        };
        let install = |(plane, namespace): (&str, &str), more: &[&str]| {
            let agent = ["install", "agent", member.name, "--context", member.name, "-n", namespace];
            member.fleetctl(&[&agent[..], &["--control-plane", plane, "--version", "auto"], more].concat())
        };
        let place = |plane: &str, namespace: &str| {
            let file = site.home().join(format!("{namespace}.yaml"));
            std::fs::write(&file, placed_on(member.name, namespace)).unwrap();
            hub(plane, &["apply", "-f", &file.display().to_string()]);
        };
        for (plane, namespace) in fleets {
            site.fleetctl(&["install", "cp", plane, "-n", namespace, "--version", "auto"]).succeeds();
        }
        for fleet in fleets {
            install(fleet, &["--set", "replicas=2"]).succeeds();
        }
        let ready = "jsonpath={.items[*].status.readyReplicas}";
        for (plane, namespace) in fleets {
            assert_eq!(member.kubectl(&["-n", namespace, "get", "deployments", "-o", ready]).trim(), "2");
            place(plane, &format!("shop-{plane}"));
            hub(plane, &["-n", &format!("shop-{plane}"), "rollout", "status", "deployment/web", "--timeout=120s"]);
        }
        // Where they meet, the second is told so.
        place("demo", "shared");
        hub("demo", &["-n", "shared", "rollout", "status", "deployment/web", "--timeout=120s"]);
        place("two", "shared");
        let reasons = r#"jsonpath={.items[*].status.conditions[?(@.type=="Applied")].reason}"#;
        eventually("AlreadyExists", || {
            hub("two", &["get", "schedules", "-A", "-o", reasons]).contains("AlreadyExists")
        });

        let uids = |namespace: &str| {
            member.kubectl(&["-n", namespace, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"])
        };
        let of_two = || [uids("fleet-two"), uids("shop-two")];
        let before = of_two();
        assert_eq!(before.iter().map(|uids| uids.split(' ').count()).sum::<usize>(), 3, "{before:?}");
        install(fleets[0], &["--set", "replicas=1"]).succeeds();
        assert_eq!(of_two(), before, "an upgrade of the other");
        hub("two", &["delete", "namespace", "shared"]);
        hub("demo", &["delete", "namespace", "shared", "shop-demo"]);
        eventually("the end of what one fleet placed", || {
            let left = member.kubectl(&["get", "namespaces", "-o", "name"]);
            !left.contains("/shared") && !left.contains("/shop-demo")
        });
        member.uninstall(&[]).succeeds();
        assert_eq!(of_two(), before, "a removal of the other");
        assert_eq!(
            hub("two", &["-n", "shop-two", "get", "deployment/web", "-o", "jsonpath={.status.readyReplicas}"]),
            "1"
        );
        hub("two", &["delete", "namespace", "shop-two"]);
        eventually("the end of the other's", || {
            !member.kubectl(&["get", "namespaces", "-o", "name"]).contains("/shop-two")
        });
        member.uninstall(&["-n", "fleet-two"]).succeeds();
        for (plane, namespace) in fleets {
            site.fleetctl(&["uninstall", "cp", plane, "-n", namespace, "--delete-data", "--yes"]).succeeds();
        }
    }

    #[test]
    fn a_rollback_takes_back_what_connects_and_does_not_become_ready() {
        let site = Site::with("current", "member-2");
        let member = Member::beside(&site, "member-2");
        let install = two_agents(&site, &member);
        install(&[]).succeeds();
        let names = |kind: &str| member.kubectl(&["-n", "fleet", "get", kind, "-o", "name"]);

        // The agent goes, and then whoever could call its cluster Ready again.
        member.kubectl(&["-n", "fleet", "delete", "deployment", "fleet-agent"]);
        eventually("the loss of the agent", || member.row()["READY"] == "False");
        let scale = |count: &str| site.kubectl(&["-n", "fleet", "scale", "deployment", "fleet-scheduler", count]);
        scale("--replicas=0");
        let failed = install(&["--timeout", "90s", "--rollback"]);
        failed.fails(4, &["does not report the cluster as Ready", "were undone"]);
        assert!(!names("deployments").contains("fleet-agent"), "{}", names("deployments"));

        // Without the option it stays, and the same install goes on.
        install(&["--timeout", "90s"]).fails(4, &["does not report the cluster as Ready"]);
        assert!(names("deployments").contains("fleet-agent"));
        scale("--replicas=1");
        install(&[]).succeeds();
        member.uninstall(&[]).succeeds();
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    }
}
