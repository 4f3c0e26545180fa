//! An installed control plane becomes the next version in place, with its data and its authority, or stays what it was.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::support::Site;

#[test]
fn an_upgrade_goes_one_line_up_keeps_the_data_and_is_undone_when_it_fails() {
    let site = Site::on("host");
    let before = site.dump();
    site.install(&[]).succeeds();
    let authority = site.secret("fleet-pki")["ca.crt"].clone();
    site.hub(&["create", "configmap", "keep-me", "--from-literal", "a=b"]);
    let scheduler = || {
        let path =
            "jsonpath={.spec.template.spec.containers[0].image} {.metadata.labels.app\\.kubernetes\\.io/version}";
        site.kubectl(&["-n", "fleet", "get", "deployment", "fleet-scheduler", "-o", path])
    };
    let old = scheduler();
    assert!(old.contains(":v0.6.1"), "{old}");

    // What it would not come back from: refused.
    let kept = site.kubectl(&["-n", "fleet", "get", "secret", "fleet-pki", "-o", "json"]);
    site.kubectl(&["-n", "fleet", "delete", "secret", "fleet-pki"]);
    let lost = ["the keys of the control plane are lost", "etcd-data-etcd-0", "restore Secret `fleet-pki`"];
    site.install(&[]).fails(6, &lost);
    site.fleetctl(&["diff", "cp", "demo"]).fails(6, &lost);
    assert!(!site.kubectl(&["-n", "fleet", "get", "secrets", "-o", "name"]).contains("fleet-pki"));
    let mut kept: Value = serde_json::from_str(&kept).unwrap();
    for of_the_server in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        kept["metadata"].as_object_mut().unwrap().remove(of_the_server);
    }
    site.apply(&kept.to_string());
    let adopting = site.install(&["--adopt"]);
    assert!(adopting.succeeds().contains("Control plane demo is healthy"));
    assert!(adopting.stderr.contains("Secret fleet/fleet-pki is created by kubectl"), "{}", adopting.stderr);
    assert_eq!(site.secret("fleet-pki")["ca.crt"], authority);

    // Two lines at once: refused, with the way that works.
    site.install(&["--version", "v0.8"])
        .fails(6, &["more than one line newer", "--version v0.7", "nothing was written"]);

    // One that fails half-way is undone: the former version is healthy, and an install of it has nothing to do.
    let failed = site.install(&["--version", "v0.7", "--image-tag", "v0.7.66", "--rollback"]);
    failed.fails(4, &["fleet-scheduler:v0.7.66", "not found", "were undone"]);
    assert_eq!(scheduler(), old);
    let same = site.fleetctl(&["diff", "cp", "demo"]);
    assert!(same.succeeds().contains("Nothing would change"), "{same:?}");
    assert!(site.install(&[]).succeeds().contains("Control plane demo is healthy"));

    // One line up, in place.
    let upgraded = site.install(&["--version", "v0.7"]);
    assert!(upgraded.succeeds().contains("Control plane demo is healthy"), "{upgraded:?}");
    assert!(scheduler().contains(":v0.7.1"), "{}", scheduler());
    assert_eq!(site.secret("fleet-pki")["ca.crt"], authority);
    assert_eq!(site.hub(&["get", "configmap", "keep-me", "-o", "jsonpath={.data.a}"]), "b");
    assert!(site.install(&["--version", "v0.7"]).succeeds().contains("Nothing to change"));
    stores_secrets_and_schedules_encrypted(&site, "v0.7");
    keeps_its_minor_of_kubernetes(&site, "v0.7");

    // And never down again.
    site.install(&[]).fails(6, &["older than the installed v0.7.1", "--delete-data", "nothing was written"]);
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

/// An API server of the table becomes no other one.
fn keeps_its_minor_of_kubernetes(site: &Site, version: &str) {
    for tag in ["v1.37.2", "v1.35.4"] {
        let both = format!("apiserver.image.tag={tag},controllerManager.image.tag={tag}");
        let other = site.install(&["--version", version, "--set", &both]);
        other.fails(
            3,
            &[
                "runs Kubernetes v1.36 and would change to",
                "not v1.36, the Kubernetes minor of the service version",
                "leave out",
            ],
        );
    }
}

/// Writes a Secret and a Schedule into the control plane and reads both where etcd has them: encrypted, by the key of the
/// control plane.
fn stores_secrets_and_schedules_encrypted(site: &Site, line: &str) {
    let name = line.replace('.', "-");
    site.hub(&["create", "secret", "generic", &name, "--from-literal", "a=canary-at-rest"]);
    // The scheduler may find that nothing asked for it; etcd has it until its finalizer goes.
    let schedule = serde_json::json!({
        "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["example.com/read"]},
        "spec": {"hash": "0", "manifest": "{\"data\": \"canary-at-rest\"}",
            "sourceRef": {"kind": "Secret", "name": name, "uid": "0", "version": "v1"}},
    });
    let file = site.home().join("schedule.json");
    std::fs::write(&file, schedule.to_string()).unwrap();
    site.hub(&["create", "-f", &file.display().to_string()]);
    for kind in ["secrets", "cluster.fleet-scheduler.io/schedules"] {
        let key = format!("/registry/{kind}/default/{name}");
        let get = ["-n", "fleet", "exec", "etcd-0", "--", "etcdctl", "get", "--write-out=json", &key];
        let read: Value = serde_json::from_str(&site.kubectl(&get)).unwrap();
        let stored = STANDARD.decode(read["kvs"][0]["value"].as_str().unwrap()).unwrap();
        assert!(stored.starts_with(b"k8s:enc:secretbox:v1:key1:"), "{key} in {line}: {stored:?}");
        assert!(!String::from_utf8_lossy(&stored).contains("canary"), "{key} in {line}");
    }
    let patch = r#"{"metadata": {"finalizers": null}}"#;
    site.hub(&["patch", "schedule", &name, "--type=merge", "-p", patch]);
    site.hub(&["delete", "schedule,secret", &name, "--ignore-not-found"]);
}

/// The values of an installation with many, which every line knows.
const GIVEN: &str = "\
exposure: {type: NodePort, nodePort: 32345, extraSANs: [fleet.example.com]}
etcd: {storage: {size: 2Gi}, extraArgs: [--log-level=warn]}
apiserver: {extraArgs: [--v=1]}
scheduler: {registration: Manual, initTokenTTL: 10d, agentCertificateTTL: 60d}
networkPolicy: {enabled: false}
nodeSelector: {kubernetes.io/os: linux}
priorityClassName: system-cluster-critical
imagePullPolicy: IfNotPresent
cloud: {projectId: fleet-1}
";

mod exhaustive {
    use super::*;

    /// Six upgrades; every run has one, and the values of every line are compared without a cluster.
    #[test]
    fn the_values_of_the_first_install_last_through_every_line() {
        let site = Site::on("host");
        let before = site.dump();
        let file = site.home().join("my-values.yaml");
        std::fs::write(&file, GIVEN).unwrap();
        let key = site.home().join("key.json");
        std::fs::write(&key, r#"{"private_key": "canary-of-the-cloud"}"#).unwrap();
        let (file, key) = (file.display().to_string(), key.display().to_string());
        let first =
            site.install(&["--values", &file, "--cloud-access-key", &key, "--set", "namespace.podSecurity=baseline"]);
        first.succeeds();
        let given = site.fleetctl(&["get", "values", "demo"]).succeeds().to_owned();
        for value in ["nodePort: 32345", "initTokenTTL: 10d", "podSecurity: baseline", "projectId: fleet-1"] {
            assert!(given.contains(value), "{given}");
        }
        let record = site.secret("fleetctl.demo");
        assert!(!format!("{record:?}{given}").contains("canary-of-the-cloud"), "{given}");

        // Without them nothing is written, whoever asks.
        let version = || {
            let path = "jsonpath={.metadata.resourceVersion}";
            site.kubectl(&["-n", "fleet", "get", "secret", "fleetctl.demo", "-o", path])
        };
        let untouched = version();
        let forgets = ["exposure.nodePort: 32345, would become unset", "cloud.accessKey: (a secret)", "--reuse-values"];
        let refused = site.install(&[]);
        refused.fails(6, &[&forgets[..], &["15 values", "--reset-values", "nothing was written"]].concat());
        let checked = site.fleetctl(&["check", "--pre", "demo"]);
        assert_eq!(checked.code, Some(3), "{checked:?}");
        assert!(checked.stdout.contains("would be reset: ") && checked.stdout.contains("exposure.nodePort: 32345"));
        site.fleetctl(&["diff", "cp", "demo"]).fails(6, &forgets);
        assert_eq!(version(), untouched);
        let asked = site.install(&["--reuse-values"]);
        asked.fails(6, &["exposure.nodePort=32345\n", "cloud.accessKey=(a secret)\n", "give `--yes`"]);
        let same = site.install(&["--reuse-values", "--yes"]);
        assert!(same.succeeds().contains("Nothing to change"), "{same:?}");

        // Through every line, as documented; the cluster is older than the newer lines support.
        let outside = ["--skip-preflight", "kubernetes-version"];
        let lines = ["v0.7.1", "v0.8.0", "v0.9.0", "v1.0.0", "v1.1.0", "v1.2.0"];
        let mut from = "v0.6.1";
        let api_server = || {
            let path = "jsonpath={.items[*].spec.template.spec.containers[0].image}";
            let hub = ["deployment/apiserver", "deployment/kube-controller-manager", "statefulset/etcd"];
            site.kubectl(&[&["-n", "fleet", "get"], &hub[..], &["-o", path]].concat())
        };
        let first_api_server = api_server();
        stores_secrets_and_schedules_encrypted(&site, from);
        for to in lines {
            let upgraded = site.fleetctl(&[&["upgrade", "control-plane", "demo", "--yes"], &outside[..]].concat());
            assert!(upgraded.succeeds().contains("Control plane demo is healthy"), "{upgraded:?}");
            assert!(upgraded.stderr.contains(&format!("from service version {from} to {to}")), "{upgraded:?}");
            assert_eq!(site.fleetctl(&["get", "values", "demo"]).succeeds(), given, "{to}");
            let status = site.fleetctl(&["status", "demo"]).succeeds().to_owned();
            assert!(status.contains(&format!("of service version {to}, as installed")), "{status}");
            assert!(status.contains(&format!("those of service version {to}")), "{status}");
            assert_eq!(api_server(), first_api_server, "{to}");
            stores_secrets_and_schedules_encrypted(&site, to);
            from = to;
        }
        let path = "jsonpath={.spec.ports[0].nodePort}";
        assert_eq!(site.kubectl(&["-n", "fleet", "get", "service", "apiserver", "-o", path]), "32345");
        assert!(site.secret("fleet-cloud-credentials")["access-key.json"].contains("canary-of-the-cloud"));

        // One value more keeps the others; one that is null goes back to the default.
        let newest = ["upgrade", "cp", "demo", "--yes", "--version", "v1.2"];
        let more = site
            .fleetctl(&[&newest[..], &outside, &["--set", "spread=None", "--set", "cloud.projectId=null"]].concat());
        more.succeeds();
        let now = site.fleetctl(&["get", "values", "demo", "--all", "-o", "json"]);
        let now: Value = serde_json::from_str(now.succeeds()).unwrap();
        assert_eq!((&now["spread"], &now["exposure"]["nodePort"]), (&Value::from("None"), &Value::from(32345)));
        assert_eq!(now["cloud"], serde_json::json!({"accessKey": "********"}));
        let history = site.fleetctl(&["history", "demo", "-o", "json"]);
        let history: Value = serde_json::from_str(history.succeeds()).unwrap();
        let runs: Vec<String> = history
            .as_array()
            .unwrap()
            .iter()
            .map(|run| [&run["command"], &run["version"], &run["outcome"]].map(|part| part.as_str().unwrap()).join(" "))
            .collect();
        let upgrades = lines.map(|line| format!("upgrade {line} succeeded"));
        let expected: Vec<String> = [&["install v0.6.1 succeeded".to_owned()][..], &upgrades, &upgrades[5..]].concat();
        assert_eq!(runs, expected);

        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
        site.assert_same_as(&before);
    }

    /// The API server that earlier builds made in some lines, as values. An older one than 1.29 does not serve what control
    /// planes are made of, so this takes an image that nothing else of the bed needs.
    const EARLIER: [&str; 4] = ["--set", "apiserver.image.tag=v1.31.4", "--set", "controllerManager.image.tag=v1.31.4"];

    /// The one of the table.
    const NEWEST: [&str; 4] = ["--set", "apiserver.image.tag=v1.36.3", "--set", "controllerManager.image.tag=v1.36.3"];

    #[test]
    fn an_api_server_skips_no_minor_of_kubernetes() {
        let site = Site::on("minor-31");
        let before = site.dump();
        let install = |more: &[&str]| site.install(&[&["--version", "v1.0"], more].concat());
        install(&EARLIER).succeeds();
        site.hub(&["create", "configmap", "keep-me", "--from-literal", "a=b"]);
        let api_server = || {
            let path = "jsonpath={.spec.template.spec.containers[0].image} {.metadata.resourceVersion}";
            site.kubectl(&["-n", "fleet", "get", "deployment", "apiserver", "-o", path])
        };
        let old = api_server();
        assert!(old.contains(":v1.31.4 "), "{old}");

        // That of the table is five minors further, whatever command leads to it.
        let skipped =
            ["runs Kubernetes v1.31 and would change to v1.36", "newest patch of v1.32", "nothing was written"];
        install(&["--reset-values"]).fails(3, &skipped);
        site.fleetctl(&["diff", "cp", "demo", "--version", "v1.0", "--reset-values"]).fails(3, &skipped);
        site.fleetctl(&[&["upgrade", "cp", "demo", "--yes"], &NEWEST[..]].concat()).fails(3, &skipped);
        assert_eq!(api_server(), old);

        // A line up with the same API server is no change of it.
        let upgraded = site.fleetctl(&["upgrade", "cp", "demo", "--yes"]);
        assert!(upgraded.succeeds().contains("Control plane demo is healthy"), "{upgraded:?}");
        assert!(api_server().contains(":v1.31.4 "), "{}", api_server());

        // Its data is still that of 1.31 when nothing but that is left.
        site.fleetctl(&["uninstall", "cp", "demo"]).succeeds();
        site.install(&["--version", "v1.1", "--reset-values"]).fails(3, &skipped);
        site.install(&["--version", "v1.1", "--reuse-values", "--yes"]).succeeds();
        assert_eq!(site.hub(&["get", "configmap", "keep-me", "-o", "jsonpath={.data.a}"]), "b");
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
        site.assert_same_as(&before);
    }
}
