//! The life of a control plane: installed, installed again, removed, resumed, removed for good, installed anew.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bed::proxy::Proxy;

use serde_json::Value;

use crate::limited::Limited;
use crate::support::{Ran, Site};

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_control_plane_is_installed_removed_resumed_and_removed_for_good() {
    let site = Site::on("host");
    let before = site.dump();

    // The default command, without another flag.
    let first = site.install(&[]);
    let shown = first.succeeds();
    for line in [
        "API server status... Running",
        "kube-controller-manager status... Running",
        "etcd status... Running",
        "scheduler status... Running",
        "Control plane demo is healthy",
        "Cluster definition... installed",
        "SchedulePolicy definition... installed",
        "ScheduleGroup definition... installed",
        "0 workload clusters connected",
        "0 schedule policies defined",
        "KUBECONFIG",
        "--context demo",
    ] {
        assert!(shown.contains(line), "`{line}` is not in:\n{shown}");
    }
    assert!(!first.stderr.contains("warning"), "Pod Security has nothing to warn about:\n{}", first.stderr);
    let file = site.fleet_folder().join("fleet-kubeconfig");
    assert!(shown.contains(&file.display().to_string()));
    assert_eq!((mode(&file), mode(&site.fleet_folder()), mode(&site.home().join(".fleet"))), (0o600, 0o700, 0o700));

    // What is inside, by the control plane's own API.
    assert_eq!(site.hub(&["config", "current-context"]).trim(), "demo");
    let definitions = site.hub(&["get", "crd", "-o", "name"]);
    for name in ["clusters.cluster.", "schedulepolicies.policy.", "schedulegroups.policy."] {
        assert!(definitions.contains(name), "{definitions}");
    }
    assert!(
        site.hub(&["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "name"]).contains("secret/")
    );
    let listed = site.fleetctl(&["get", "clusters", "--context", "demo"]);
    assert_eq!(listed.succeeds(), "No workload clusters are registered.\n");
    assert!(site.fleetctl(&["status"]).succeeds().contains("Control plane demo is healthy"));
    // Looked for where it is not, it is found all the same; its keys and its kubeconfig stay.
    let away = ["uninstall", "cp", "demo", "--delete-data", "--yes", "--namespace", "elsewhere"];
    site.fleetctl(&away).fails(1, &["is in namespace fleet", "uninstall control-plane demo"]);
    assert!(file.exists());
    // From both sides, and from inside only: by its own context, which is no one's kubeconfig but the install's file.
    let view = |args: &[&str]| {
        let ran = site.fleetctl(&[&["status", "-o", "json"], args].concat());
        serde_json::from_str::<serde_json::Value>(ran.succeeds()).unwrap()
    };
    let both = view(&["--wait"]);
    assert_eq!((&both["view"], &both["version"]), (&"both".into(), &"v0.6.1".into()), "{both}");
    assert!(both["checks"].as_array().unwrap().iter().all(|check| check["verdict"] != "failed"), "{both}");
    let inside = view(&["--context", "demo"]);
    assert_eq!((&inside["view"], &inside["kubernetesVersion"]), (&"control-plane".into(), &both["kubernetesVersion"]));
    let labels = site.kubectl(&["get", "namespace", "fleet", "-o", "jsonpath={.metadata.labels}"]);
    assert!(labels.contains(r#""pod-security.kubernetes.io/enforce":"restricted""#), "{labels}");
    let enforced = site.kubectl(&[
        "label",
        "--dry-run=server",
        "--overwrite",
        "namespace",
        "fleet",
        "pod-security.kubernetes.io/enforce=restricted",
    ]);
    assert!(!enforced.contains("Warning"), "{enforced}");

    // Again: nothing is written, and nothing changes.
    let authority = site.secret("fleet-pki")["ca.crt"].clone();
    let proxy = Proxy::start(site.bed, site.cluster).unwrap();
    let mut again = site.command(&["install", "cp", "demo"]);
    again.env("KUBECONFIG", proxy.kubeconfig());
    assert!(site.finish(again).succeeds().contains("Nothing to change"));
    let writes: Vec<_> =
        proxy.writes().into_iter().filter(|seen| !seen.path.contains("selfsubjectaccessreviews")).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(proxy.seen().len() > 5, "the proxy was used");

    what_is_lost_is_found_again(&site);
    a_changed_kubeconfig_runs_nothing(&site);
    assert_eq!(site.secret("fleet-pki")["ca.crt"], authority);

    requests_are_on_record_without_what_they_hold(&site);

    // Removed and resumed: the same authority, the same data.
    site.hub(&["create", "configmap", "keep-me", "--from-literal", "a=b"]);
    let removed = site.fleetctl(&["uninstall", "cp", "demo"]);
    assert!(removed.succeeds().contains("PersistentVolumeClaim fleet/etcd-data-etcd-0"), "{removed:?}");
    assert!(removed.stdout.contains("--delete-data"), "{removed:?}");
    assert!(!site.kubectl(&["-n", "fleet", "get", "all"]).contains("etcd"));
    assert!(site.fleetctl(&["uninstall", "cp", "demo"]).code == Some(0), "safe to repeat");
    told_as_data(&site.install(&["-o", "json"]));
    assert_eq!(site.secret("fleet-pki")["ca.crt"], authority);
    assert_eq!(site.hub(&["get", "configmap", "keep-me", "-o", "jsonpath={.data.a}"]), "b");

    site.assert_no_secret_was_shown();

    // For good: asked for elsewhere than on a terminal only with --yes; then nothing is left.
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data"]).fails(6, &["etcd-data-etcd-0", "--yes"]);
    // Also where neither this machine nor the cluster remembers anything.
    fs::remove_dir_all(site.fleet_folder()).unwrap();
    site.kubectl(&["-n", "fleet", "delete", "secret", RECORD]);
    let removed = site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]);
    removed.succeeds();
    says_that_the_record_is_lost(&removed);
    site.assert_same_as(&before);
    assert!(!site.fleet_folder().exists());

    // Anew, in a namespace that was made for it, by a user with the rights that are printed and no others.
    site.kubectl(&["create", "namespace", "fleet"]);
    let user = Limited::user(&site, site.cluster, site.fleetctl(&["show", "rbac", "demo"]).succeeds());
    user.fleetctl(&["install", "cp", "demo"]).succeeds();
    assert_ne!(site.secret("fleet-pki")["ca.crt"], authority);
    assert!(user.fleetctl(&["status"]).succeeds().contains("Control plane demo is healthy"));
    user.fleetctl(&["etcd", "status", "demo"]).fails(3, &["create pods/portforward in namespace fleet", "--day2"]);
    assert!(site.fleetctl(&["etcd", "status", "demo"]).succeeds().contains("Hashes are of revision "));
    assert!(user.fleetctl(&["diff", "cp", "demo"]).succeeds().contains("Nothing would change"));
    let moved = user.fleetctl(&["diff", "cp", "demo", "--set", "exposure.host=api.example"]);
    assert!(
        moved.code == Some(1) && moved.stdout.contains("\n# the address of the API server changes from"),
        "{moved:?}"
    );
    user.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    assert!(!site.fleet_folder().exists());
    user.forget();
    site.kubectl(&["delete", "namespace", "fleet"]);
    site.assert_same_as(&before);
}

/// The Secret with the record of control plane `demo`.
const RECORD: &str = "fleetctl.demo";

/// Without the folder on this machine, then without the record in the cluster, a control plane goes on as it was.
#[track_caller]
fn what_is_lost_is_found_again(site: &Site) {
    let file = site.hub_kubeconfig();
    let kubeconfig = fs::read_to_string(&file).unwrap();
    fs::remove_dir_all(site.fleet_folder()).unwrap();
    assert!(site.fleetctl(&["status"]).succeeds().contains("Control plane demo is healthy"));
    let written = site.fleetctl(&["kubeconfig", "demo"]);
    assert!(written.succeeds().contains(&file.display().to_string()), "{written:?}");
    assert!(written.stderr.contains("Source: the hosting cluster"), "{written:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), kubeconfig, "the same server, authority and user");
    assert_eq!((mode(&file), mode(&site.fleet_folder())), (0o600, 0o700));
    assert!(site.hub(&["get", "crd", "-o", "name"]).contains("clusters.cluster."));

    site.kubectl(&["-n", "fleet", "delete", "secret", RECORD]);
    let no_record = "the record of this installation is missing";
    assert!(site.fleetctl(&["status"]).succeeds().contains(no_record));
    // What the values hold no more is known by its labels.
    let policies = || site.kubectl(&["-n", "fleet", "get", "networkpolicies", "-o", "name"]);
    assert!(policies().contains("networkpolicy"));
    let again = site.install(&["--set", "networkPolicy.enabled=false"]);
    assert!(again.succeeds().contains("Control plane demo is healthy"), "{again:?}");
    says_that_the_record_is_lost(&again);
    assert_eq!(policies(), "");
    let forgets = "networkPolicy.enabled: false, would become true";
    site.install(&[]).fails(6, &[forgets, "--reuse-values", "--reset-values", "nothing was written"]);
    site.install(&["--reset-values"]).succeeds();
    let status = site.fleetctl(&["status"]);
    assert!(!status.succeeds().contains(no_record), "{status:?}");
    let quiet = site.install(&[]);
    assert!(quiet.succeeds().contains("Nothing to change") && !quiet.stderr.contains("lost"), "{quiet:?}");
}

/// Whoever may write Secrets in the namespace puts a program into the kubeconfig that the cluster keeps.
fn a_changed_kubeconfig_runs_nothing(site: &Site) {
    let mark = site.home().join("ran");
    let good = site.secret("fleet-kubeconfig")["kubeconfig"].clone();
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: [{}], interactiveMode: Never}}",
        mark.display()
    );
    let credential = |line: &&str| line.contains("client-certificate-data") || line.contains("client-key-data");
    let lines: Vec<&str> = good.lines().filter(|line| !credential(line)).collect();
    let changed = format!("{}\n", lines.join("\n")).replace("  user:\n", &format!("  user:\n    {exec}\n"));
    assert!(changed.contains("touch"), "{changed}");
    let patch = serde_json::json!({"stringData": {"kubeconfig": changed}}).to_string();
    site.kubectl(&["-n", "fleet", "patch", "secret", "fleet-kubeconfig", "--type", "merge", "--patch", &patch]);
    let status = site.fleetctl(&["status", "demo"]);
    assert_eq!(status.code, Some(7), "{status:?}");
    for part in ["users[0].user.exec", "the file was changed", "fleetctl upgrade control-plane demo"] {
        assert!(status.stdout.contains(part), "`{part}` is not in {status:?}");
    }
    for command in [
        &["check", "demo"][..],
        &["version"],
        &["uninstall", "cp", "demo", "--delete-data"],
        &["kubeconfig", "demo"],
        &["kubeconfig", "demo", "--merge", "--kubeconfig", site.home().join("merged").to_str().unwrap()],
    ] {
        let ran = site.fleetctl(command);
        assert!(!mark.exists(), "{command:?} ran it: {ran:?}");
    }
    assert!(!site.home().join("merged").exists());
    let mended = site.install(&[]);
    assert!(mended.succeeds().contains("Control plane demo is healthy"), "{mended:?}");
    assert!(site.fleetctl(&["status", "demo"]).succeeds().contains("healthy") && !mark.exists());
}

#[track_caller]
fn says_that_the_record_is_lost(ran: &Ran) {
    for part in ["warning: the record of this installation is lost; ", " objects were found by their labels"] {
        assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
    }
}

/// An install with `-o json`: the result is one document on stdout, each line of stderr an event with its number.
#[track_caller]
fn told_as_data(ran: &Ran) {
    let result: Value = serde_json::from_str(ran.succeeds()).unwrap();
    assert_eq!((result["name"].as_str(), result["unchanged"].as_bool()), (Some("demo"), Some(false)));
    assert!(
        result["checks"].as_array().unwrap().iter().any(|check| check["id"] == "etcd" && check["verdict"] == "passed")
    );
    let events: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let some = |kind: &str, holds: &dyn Fn(&Value) -> bool| events.iter().any(|e| e["type"] == kind && holds(e));
    assert!(some("step", &|e| e["step"] == "Installing the API server"), "{}", ran.stderr);
    assert!(some("step-ended", &|e| e["ok"] == true && e["seconds"].is_number()), "{}", ran.stderr);
    assert!(some("object", &|e| e["object"]["kind"] == "StatefulSet" && e["done"] == "created"), "{}", ran.stderr);
    assert!(some("ready", &|e| e["object"]["name"] == "etcd"), "{}", ran.stderr);
}

#[test]
fn what_does_not_exist_is_said_and_is_no_failure_to_remove() {
    let site = Site::on("host");
    site.fleetctl(&["status"]).fails(7, &["no control plane is installed in namespace fleet"]);
    site.fleetctl(&["status", "other"]).fails(7, &["control plane `other` is not installed"]);
    assert!(site.fleetctl(&["uninstall", "cp", "demo"]).succeeds().contains("nothing to remove"));
    // A local folder of that name may belong to a control plane in another cluster.
    fs::create_dir_all(site.fleet_folder()).unwrap();
    let away = site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]);
    assert!(away.succeeds().contains(&format!("The folder {} is kept", site.fleet_folder().display())), "{away:?}");
    assert!(site.fleet_folder().exists());
    site.fleetctl(&["install", "cp", "demo", "--context", "nowhere"]).fails(2, &["nowhere", site.cluster]);
    site.fleetctl(&["get", "clusters", "--context", site.cluster]).fails(1, &["no resource `clusters`"]);
}

/// The audit log has who made a Secret, and nothing of the Secret.
fn requests_are_on_record_without_what_they_hold(site: &Site) {
    site.hub(&["create", "secret", "generic", "recorded", "--from-literal", "password=CANARY-OF-THE-AUDIT"]);
    let log = site.kubectl(&["-n", "fleet", "logs", "-l", "app.kubernetes.io/name=apiserver", "--tail=-1"]);
    let of_secret = |line: &&str| line.contains("/api/v1/namespaces/default/secrets") && line.contains("\"create\"");
    let record = log.lines().find(of_secret).unwrap_or_else(|| panic!("it is not on record:\n{log}"));
    let record: Value = serde_json::from_str(record).unwrap();
    assert!(record["user"]["username"].as_str().unwrap().starts_with("fleet-admin:"), "{record}");
    assert_eq!(record["level"], "Metadata");
    assert!(!log.contains("CANARY-OF-THE-AUDIT") && !log.contains("Q0FOQVJZ"));
    let heartbeats = log.lines().filter(|line| line.contains("/leases/") && line.contains("\"fleet:scheduler\""));
    assert!(heartbeats.count() <= 2, "the scheduler's Lease is renewed without a line each:\n{log}");
    site.hub(&["delete", "secret", "recorded"]);
}
