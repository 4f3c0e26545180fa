//! What the next install makes of what an uninstall has kept: as far as it is refused, no cluster is needed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Sandbox;
use crate::check::empty;
use crate::server::{forbidden, list, not_found, serve, use_cluster};

/// The Secret of a control plane `demo` that was removed.
fn record(release: &Value) -> Value {
    let owner = json!({"kind": "control-plane", "name": "demo", "namespace": "fleet"});
    let record = json!({"format": 1, "owner": owner, "installUid": "u", "phase": "removed", "release": release,
        "namespaceCreated": true, "written": "2026-01-31T12:00:00Z", "inventory": []});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo", "uid": "u", "resourceVersion": "1"},
        "data": {"record": STANDARD.encode(record.to_string())}})
}

#[test]
fn the_node_port_of_an_earlier_install_is_refused_before_any_write_where_another_service_has_it() {
    let direct = json!({"exposure": "NodePort", "server": "https://192.0.2.10:31234", "host": "192.0.2.10"});
    // Something in front of the nodes goes on to call the same node port.
    let fronted = json!({"exposure": "NodePort", "server": "https://api.example:443", "host": "api.example", "nodePort": "31234"});
    for facts in [direct, fronted] {
        let record = record(&release(&facts));
        let server = serve(move |method, path| match path.split('?').next() {
            Some("/api/v1/namespaces/fleet/secrets/fleetctl.demo") => (200, record.clone()),
            Some("/api/v1/services") => list(&[
                json!({"metadata": {"name": "front", "namespace": "web"}, "spec": {"ports": [{"port": 80, "nodePort": 31234}]}}),
            ]),
            _ => empty(method, path),
        });
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &server);
        let said = |more: &[&str]| sandbox.run(&[&["check", "demo", "--pre", "-o", "short"], more].concat()).stdout;
        let refused = "failed node-port: Service web/front uses node port 31234, which is in the kubeconfigs of demo \
                       and of its agents";
        assert!(said(&[]).contains(refused), "{}", said(&[]));
        // The way out that is told; and where no node port is wanted, it is of no matter.
        for other in ["exposure.nodePort=31235", "exposure.type=LoadBalancer"] {
            assert!(!said(&["--set", other]).contains("failed node-port"), "{other}");
        }
    }
}

/// What an install with these facts has recorded.
fn release(facts: &Value) -> Value {
    json!({"chart": "control-plane/v0.6", "version": "v0.6.1", "valuesDigest": "d", "facts": facts})
}

#[test]
fn data_of_an_api_server_more_than_one_minor_older_is_refused_before_any_write() {
    for (version, facts, minor) in [
        ("v0.6.1", json!({}), "v1.25"),
        ("v0.9.0", json!({}), "v1.31"),
        ("v0.6.1", json!({"apiServer": "v1.34"}), "v1.34"),
    ] {
        let mut release = release(&facts);
        release["version"] = version.into();
        let record = record(&release);
        let server = serve(move |method, path| match path.split('?').next() {
            Some("/api/v1/namespaces/fleet/secrets/fleetctl.demo") => (200, record.clone()),
            _ => empty(method, path),
        });
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &server);
        let install = [
            "install",
            "cp",
            "demo",
            "--skip-preflight",
            "nodes,storage,kubernetes-version",
            "--set",
            "exposure.host=192.0.2.10",
        ];
        let ran = sandbox.run(&[&install[..], &["--version", version]].concat());
        assert_eq!(ran.code, 3, "{ran:?}");
        let why = format!("runs Kubernetes {minor} and would change to v1.36, which is more than one minor at a time");
        assert!(ran.stderr.contains(&why) && ran.stderr.contains("nothing was written"), "{ran:?}");
    }
}

#[test]
fn an_address_that_is_another_than_before_the_removal_is_told_once() {
    let facts =
        json!({"exposure": "ClusterIP", "server": "https://10.96.0.8:443", "host": "10.96.0.8", "apiServer": "v1.36"});
    let told = |record: Option<Value>, more: &[&str]| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "apiserver", "namespace": "fleet", "uid": "s"},
            "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 443}]}});
        let made = Mutex::new(false);
        let server = serve(move |method, path| match (method, path.split('?').next().unwrap_or_default()) {
            ("GET", "/api/v1/namespaces/fleet/secrets/fleetctl.demo") => {
                record.clone().map_or_else(not_found, |record| (200, record))
            }
            ("POST", "/api/v1/namespaces/fleet/secrets")
            | ("PATCH", "/api/v1/namespaces/fleet/secrets/fleetctl.demo") => {
                let metadata = json!({"name": "fleetctl.demo", "uid": "u", "resourceVersion": "2"});
                (200, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))
            }
            ("POST" | "PATCH", "/api/v1/namespaces" | "/api/v1/namespaces/fleet") => {
                (201, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet", "uid": "n"}}))
            }
            ("PATCH", "/api/v1/namespaces/fleet/services/apiserver") => {
                *made.lock().unwrap() = true;
                (201, service.clone())
            }
            ("GET", "/api/v1/namespaces/fleet/services/apiserver") if *made.lock().unwrap() => (200, service.clone()),
            // Nothing else is let in, so the install ends at the first object after the Service.
            ("PATCH", _) => forbidden(),
            _ => empty(method, path),
        });
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &server);
        let install =
            ["install", "cp", "demo", "--skip-preflight", "nodes,storage", "--set", "exposure.type=ClusterIP"];
        let ran = sandbox.run(&[&install, more].concat());
        assert!(ran.stderr.contains("Finding the address of the API server: https://"), "{ran:?}");
        ran.stderr
    };
    let moved = "warning: the address of the API server changes from https://10.96.0.8:443 to https://10.96.0.9:443";
    let said = told(Some(record(&release(&facts))), &[]);
    assert!(said.matches("the address of the API server changes").count() == 1 && said.contains(moved), "{said}");
    // What it says keeps the address; and who installs for the first time has told nobody another one.
    assert!(said.contains("`--set exposure.host=10.96.0.8`"), "{said}");
    for (record, more) in [(Some(record(&release(&facts))), &["--set", "exposure.host=10.96.0.8"][..]), (None, &[])] {
        let said = told(record, more);
        assert!(!said.contains("address of the API server changes"), "{said}");
    }
}

#[test]
fn a_record_that_names_no_version_and_no_members_opens_no_way_around_what_the_data_is_of() {
    let record = record(&json!({"chart": "", "version": "", "valuesDigest": ""}));
    let labels = json!({"fleet-scheduler.io/install": "demo", "app.kubernetes.io/version": "v0.8.1"});
    let server = serve(move |method, path| match path.split('?').next() {
        Some("/api/v1/namespaces/fleet/secrets/fleetctl.demo") => (200, record.clone()),
        Some("/api/v1/namespaces/fleet/secrets/fleet-pki") => {
            let kept = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "fleet-pki", "labels": labels}});
            (200, kept)
        }
        Some("/api/v1/namespaces/fleet/persistentvolumeclaims") => list(&[json!({
            "metadata": {"name": "etcd-data-etcd-0", "labels": {"fleet-scheduler.io/install": "demo"}},
            "status": {"phase": "Bound"}})]),
        _ => empty(method, path),
    });
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &server);
    for command in ["install", "diff"] {
        let run = |more: &[&str]| {
            let given = [command, "cp", "demo", "--skip-preflight", "nodes", "--skip-preflight", "storage"];
            let minor = ["--skip-preflight", "kubernetes-version"];
            sandbox.run(&[&given[..], &minor, more].concat())
        };
        let stay = "install control-plane demo --version v0.8.1 --reuse-values`";
        run(&["--version", "v0.7"]).fails(6, &["older than the installed v0.8.1", stay, "nothing was written"]);
        let grown = run(&["--version", "v0.8", "--set", "etcd.replicas=3"]);
        grown.fails(
            6,
            &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
        );
    }
}

#[test]
fn the_members_of_a_store_that_stands_without_a_record_are_counted_before_anything_is_written() {
    let labels = json!({"fleet-scheduler.io/install": "demo", "app.kubernetes.io/part-of": "fleet",
        "app.kubernetes.io/version": "v0.8.1"});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 1},
        "metadata": {"name": "etcd", "namespace": "fleet", "uid": "u", "labels": labels}});
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let server = serve(move |method, path| {
        let is_write =
            !matches!(method, "GET" | "POST") || path.contains("/namespaces/fleet/secrets") && method == "POST";
        counted.fetch_add(usize::from(is_write), Ordering::SeqCst);
        match path.split('?').next() {
            Some("/apis/apps/v1/namespaces/fleet/statefulsets") => list(std::slice::from_ref(&set)),
            Some("/apis/apps/v1/namespaces/fleet/statefulsets/etcd") => (200, set.clone()),
            _ => empty(method, path),
        }
    });
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &server);
    // As kubectl has applied it, or a record that is lost.
    for given in [&["install", "cp", "demo"][..], &["install", "cp", "demo", "--adopt"], &["diff", "cp", "demo"]] {
        let lenient = ["nodes", "storage", "kubernetes-version", "names"].map(|check| ["--skip-preflight", check]);
        let values = ["--version", "v0.8", "--set", "etcd.replicas=3"];
        let ran = sandbox.run(&[given, &lenient.concat(), &values].concat());
        ran.fails(
            6,
            &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
        );
    }
    assert_eq!(writes.load(Ordering::SeqCst), 0);
}

#[test]
fn the_keys_of_another_control_plane_on_this_machine_do_not_replace_lost_ones() {
    let made = Sandbox::new();
    let given = ["exposure.type=NodePort", "exposure.host=192.0.2.10", "exposure.port=32222"];
    let elsewhere = [&["template", "cp", "demo"][..], &given.map(|value| ["--set", value]).concat()].concat();
    made.run(&elsewhere).succeeds();
    let operators = std::fs::read_to_string(made.path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-kubeconfig", "namespace": "fleet",
            "labels": {"fleet-scheduler.io/install": "demo", "app.kubernetes.io/part-of": "fleet"}},
        "data": {"kubeconfig": STANDARD.encode(operators)}});
    let server = serve(move |method, path| match path.split('?').next() {
        Some("/api/v1/namespaces/fleet/secrets") => list(std::slice::from_ref(&secret)),
        Some("/api/v1/namespaces/fleet/persistentvolumeclaims") => list(&[json!({
            "metadata": {"name": "etcd-data-etcd-0", "namespace": "fleet", "labels": {"fleet-scheduler.io/install": "demo"}},
            "status": {"phase": "Bound"}})]),
        _ => empty(method, path),
    });
    for own in [false, true] {
        let sandbox = Sandbox::new();
        let keys_of = if own { &made } else { &sandbox };
        sandbox.run(&elsewhere).succeeds();
        let folder = |of: &Sandbox| of.path().join(".fleet/demo/pki");
        if own {
            std::fs::remove_dir_all(folder(&sandbox)).unwrap();
            std::fs::rename(folder(keys_of), folder(&sandbox)).unwrap();
        }
        use_cluster(&sandbox, &server);
        let lenient = ["nodes", "storage", "kubernetes-version"].map(|check| ["--skip-preflight", check]);
        let ran = sandbox
            .run(&[&["diff", "cp", "demo", "--set", "exposure.host=192.0.2.10"][..], &lenient.concat()].concat());
        let lost = ran.stderr.contains("the keys of the control plane are lost, but its data still exists");
        assert_eq!(lost, !own, "{ran:?}");
    }
}

/// Argo CD has applied it, over what an uninstall keeps of it or where none ever was.
#[test]
fn what_others_applied_is_known_by_its_managers_and_not_by_what_is_kept_of_it() {
    for record in [None, Some(record(&release(&json!({}))))] {
        let sandbox = Sandbox::new();
        let entry = |manager: &str, operation: &str, subresource: &str| {
            json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "apps/v1",
                "time": "2026-01-31T12:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {}})
        };
        let labels = json!({"fleet-scheduler.io/install": "demo", "app.kubernetes.io/version": "v0.7.1"});
        let managers = [entry("argocd\u{1b}[2J", "Apply", ""), entry("kube-controller-manager", "Update", "status")];
        let deployment = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "apiserver", "namespace": "fleet", "uid": "u", "labels": labels, "managedFields": managers}});
        let server = serve(move |_, path| match path.split_once('?').unwrap_or((path, "")) {
            (path, _) if path.ends_with("/secrets/fleetctl.demo") => {
                record.clone().map_or_else(not_found, |record| (200, record))
            }
            (path, _) if path.ends_with("/deployments/apiserver") => (200, deployment.clone()),
            (path, query) if path.ends_with("/fleet/deployments") && query.contains("control-plane") => {
                list(std::slice::from_ref(&deployment))
            }
            _ => not_found(),
        });
        use_cluster(&sandbox, &server);
        for command in [&["upgrade", "cp", "demo"][..], &["get", "values", "demo"]] {
            let refused = sandbox.run(command);
            refused.fails(6, &["was applied by argocd\\u{1b}[2J", "template control-plane demo", "--adopt"]);
        }
        let rollback = sandbox.run(&["rollback", "demo"]);
        assert!(rollback.succeeds().contains("It was applied by argocd\\u{1b}[2J"), "{rollback:?}");
    }
}

/// Serves the record of an installation with these values, as somebody may have written it who may edit Secrets, and notes
/// every request that would change something.
fn recorded_with(sandbox: &Sandbox, kind: &str, name: &str, values: &Value) -> Arc<Mutex<Vec<String>>> {
    let owner = json!({"kind": kind, "name": name, "namespace": "fleet"});
    let release = json!({"chart": format!("{kind}/v0.6"), "version": "v0.6.1", "valuesDigest": "d", "values": values});
    let record = json!({"format": 1, "owner": owner, "installUid": "u", "phase": "installed", "release": release,
        "namespaceCreated": true, "written": "2026-01-31T12:00:00Z", "inventory": []});
    let record = STANDARD.encode(record.to_string());
    let writes: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&writes);
    let server = serve(move |method, path| {
        if method != "GET" && !path.contains("selfsubject") && !path.contains("dryRun=All") {
            seen.lock().unwrap().push(format!("{method} {path}"));
        }
        let path = path.split('?').next().unwrap_or_default();
        match path.strip_prefix("/api/v1/namespaces/fleet/secrets/fleetctl.") {
            Some(name) => (
                200,
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"record": record},
                "metadata": {"name": format!("fleetctl.{name}"), "uid": "u", "resourceVersion": "1"}}),
            ),
            None => empty(method, path),
        }
    });
    use_cluster(sandbox, &server);
    writes
}

#[test]
fn recorded_values_are_shown_and_asked_for_before_they_are_used() {
    let sandbox = Sandbox::new();
    let values = json!({"exposure": {"annotations": {"disk": "fast\u{1b}[2J"}, "host": "192.0.2.10"}});
    let writes = recorded_with(&sandbox, "control-plane", "demo", &values);
    let upgrade = ["upgrade", "cp", "demo", "--version", "v0.6.1"];
    let install = ["install", "cp", "demo", "--version", "v0.6.1", "--reuse-values"];
    let shown = "These values come from the record of control plane demo:\n  \
                 exposure.annotations.disk=\"fast\\u001b[2J\"\n  exposure.host=\"192.0.2.10\"\n";
    for command in [&upgrade[..], &install] {
        let asked = sandbox.run(command);
        asked.fails(
            6,
            &[shown, "using recorded values needs confirmation, but there is no terminal to ask on", "give `--yes`"],
        );
        let said = sandbox.run(&[command, &["--yes"]].concat());
        assert!(said.stderr.contains(shown) && !said.stderr.contains("needs confirmation"), "{said:?}");
        // What is given again is not asked for.
        let given = ["--set", "exposure.host=192.0.2.10", "--set", "exposure.annotations.disk=fast"];
        let said = sandbox.run(&[command, &given].concat());
        assert!(!said.stderr.contains("come from the record") && !said.stderr.contains("confirmed"), "{said:?}");
        // A comparison shows them and asks nothing.
        let dry = sandbox.run(&[command, &["--dry-run=server"]].concat());
        assert!(dry.stderr.contains(shown) && !dry.stderr.contains("confirmed"), "{dry:?}");
    }
    assert_eq!(*writes.lock().unwrap(), [""; 0]);
    let sandbox = Sandbox::new();
    recorded_with(&sandbox, "control-plane", "demo", &json!({}));
    let said = sandbox.run(&upgrade);
    assert!(!said.stderr.contains("come from the record") && !said.stderr.contains("confirmed"), "{said:?}");
}

#[test]
fn a_forged_record_gives_the_agent_no_rights() {
    let sandbox = Sandbox::new();
    let values = json!({"placement": {"allowRBACKinds": true}, "cluster": {"region": "eu-1"}});
    let writes = recorded_with(&sandbox, "agent", "west", &values);
    let refusal = "placement.allowRBACKinds: the record has true";
    for command in [
        &["upgrade", "agent", "west", "--version", "v0.6.1", "--yes"][..],
        &["upgrade", "agent", "west", "--yes"],
        &["install", "agent", "west", "--reuse-values", "--yes"],
    ] {
        let refused = sandbox.run(command);
        refused.fails(6, &[refusal, "`--set-json placement.allowRBACKinds=true`", "nothing was written"]);
        let last: Value =
            serde_json::from_str(sandbox.run(&[command, &["-o", "json"]].concat()).stderr.lines().last().unwrap())
                .unwrap();
        assert_eq!(last["error"]["reason"], "RightsNotConfirmed");
    }
    // Given again, either way, it is the operator's word.
    for value in ["true", "false", "null"] {
        let set = format!("placement.allowRBACKinds={value}");
        let said = sandbox.run(&["upgrade", "agent", "west", "--version", "v0.6.1", "--yes", "--set", &set]);
        assert!(said.code != 0 && !said.stderr.contains("can grant permissions"), "{said:?}");
    }
    // A comparison names it and writes nothing.
    let dry = sandbox.run(&["diff", "agent", "west", "--version", "v0.6.1", "--reuse-values"]);
    assert!(dry.stderr.contains("requires these values again: placement.allowRBACKinds"), "{dry:?}");
    assert_eq!(*writes.lock().unwrap(), [""; 0]);
}
