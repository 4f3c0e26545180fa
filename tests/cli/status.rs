//! `status`: what is seen from where, in every format, for ever and until it is healthy.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::server::{
    Answer, admin_kubeconfig, forbidden, kubeconfig, list, not_found, serve, use_cluster, with_kubeconfig,
};
use crate::{Ran, Running, Sandbox};

/// An address where nobody answers.
const NOBODY: &str = "http://127.0.0.1:1";

/// The control plane's own API, with a ready and an unready workload cluster and a policy.
pub(crate) fn inside(path: &str) -> Answer {
    let definition = |plural: &str, kind: &str| {
        let group = if plural == "clusters" { "cluster.fleet-scheduler.io" } else { "policy.fleet-scheduler.io" };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "names": {"kind": kind, "plural": plural}, "scope": "Cluster", "versions": []},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    };
    let definitions = [
        definition("clusters", "Cluster"),
        definition("schedulepolicies", "SchedulePolicy"),
        definition("schedulegroups", "ScheduleGroup"),
    ];
    let cluster = |name: &str, ready: &str, reason: &str| {
        json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"name": name, "kubernetesversion": "1.29"},
            "status": {"observed": {"agentVersion": "v0.6.1"}, "conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": ""}]}})
    };
    let path = path.split('?').next().unwrap();
    match path {
        "/version" => (
            200,
            json!({"major": "1", "minor": "25", "gitVersion": "v1.25.4", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => list(&definitions),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.cluster.fleet-scheduler.io" => {
            (200, definitions[0].clone())
        }
        "/api/v1/namespaces/fleet/secrets/fleet-cluster-init-kubeconfig" => {
            (200, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-cluster-init-kubeconfig"}}))
        }
        "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters" => {
            list(&[cluster("west", "True", "ClusterReady"), cluster("east", "False", "ClusterHeartbeatLost")])
        }
        "/apis/policy.fleet-scheduler.io/v1alpha1/schedulepolicies" => list(&[
            json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy", "metadata": {"name": "p"}, "spec": {"namespaceSelector": {}}}),
        ]),
        "/apis/apps/v1/namespaces/fleet/statefulsets" => list(&[]),
        _ => not_found(),
    }
}

/// A hosting cluster with control plane `demo`, whose API is at `hub`. `etcd` says how many of its pods are ready.
pub(crate) fn hosting(path: &str, hub: &str, etcd: usize) -> Answer {
    let workload = |kind: &str, name: &str, ready: usize| {
        json!({"apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "fleet", "uid": name, "generation": 1, "labels": {"fleet-scheduler.io/install": "demo"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "serviceName": name, "template": {}},
            "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": ready, "updatedReplicas": ready, "availableReplicas": ready}})
    };
    let path = path.split('?').next().unwrap();
    match path.strip_prefix("/apis/apps/v1/namespaces/fleet/") {
        Some("statefulsets") => return list(&[workload("StatefulSet", "etcd", etcd)]),
        Some("deployments") => return list(&[]),
        Some("statefulsets/etcd") => return (200, workload("StatefulSet", "etcd", etcd)),
        Some(deployment) => {
            let name = deployment.trim_start_matches("deployments/");
            return (200, workload("Deployment", name, 1));
        }
        None => {}
    }
    let pending = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "etcd-0", "namespace": "fleet", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "etcd", "controller": true}]},
        "spec": {"containers": [{"name": "etcd"}]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "etcd", "ready": false, "image": "etcd:3.5.21", "imageID": "", "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "etcd:3.5.21: not found"}}}]}});
    match path {
        "/api/v1/namespaces/fleet/secrets/fleet-kubeconfig" => (
            200,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-kubeconfig", "labels": {"fleet-scheduler.io/install": "demo"}},
                "data": {"kubeconfig": STANDARD.encode(admin_kubeconfig("demo", hub))}}),
        ),
        "/api/v1/namespaces/fleet/pods" => list(if etcd == 0 { std::slice::from_ref(&pending) } else { &[] }),
        "/api/v1/namespaces/fleet/secrets"
        | "/api/v1/namespaces/fleet/events"
        | "/api/v1/namespaces/fleet/persistentvolumeclaims" => list(&[]),
        _ => not_found(),
    }
}

/// Puts a control plane's kubeconfig where its install writes it.
pub(crate) fn installed_from_here(sandbox: &Sandbox, name: &str, hub: &str) {
    std::fs::create_dir_all(sandbox.path().join(".fleet").join(name)).unwrap();
    sandbox.file(&format!(".fleet/{name}/fleet-kubeconfig"), &admin_kubeconfig(name, hub));
}

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn verdicts(document: &Value) -> Vec<(&str, &str)> {
    let checks = document["checks"].as_array().unwrap().iter();
    checks.map(|check| (check["id"].as_str().unwrap(), check["verdict"].as_str().unwrap())).collect()
}

#[test]
fn with_both_sides_in_reach_every_format_tells_the_same() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| inside(path));
    use_cluster(&sandbox, &serve(move |_, path| hosting(path, &hub, 1)));
    let plain = sandbox.run(&["status"]);
    let shown = plain.succeeds();
    for line in [
        "API server status... Running √",
        "Control plane demo is healthy √",
        "Cluster definition... installed √",
        "Cluster west connected and ready √",
        "Cluster east ClusterHeartbeatLost ‼",
        "All custom resource definitions are installed √",
        "the record of this installation is missing ‼",
    ] {
        assert!(shown.contains(line), "`{line}` is not in:\n{shown}");
    }
    assert!(shown.starts_with("Checking the components of the control plane\n"), "{shown}");

    let wide = sandbox.run(&["status", "demo", "-o", "wide"]);
    let shown = wide.succeeds();
    for line in [
        "Control plane demo in namespace fleet, Kubernetes v1.25.4",
        "Sources: the hosting cluster and the control plane's API",
        "√ etcd (etcd): Running",
        "passed with",
        "east      False   ClusterHeartbeatLost   1.29          v0.6.1",
    ] {
        assert!(shown.contains(line), "`{line}` is not in:\n{shown}");
    }

    let json = sandbox.run(&["status", "-o", "json"]);
    json.succeeds();
    let json = document(&json);
    assert_eq!((&json["name"], &json["view"], &json["healthy"]), (&"demo".into(), &"both".into(), &true.into()));
    assert_eq!((&json["exitCode"], &json["policies"]), (&0.into(), &1.into()));
    let east = json!({"name": "east", "ready": false, "reason": "ClusterHeartbeatLost", "kubernetesVersion": "1.29", "agentVersion": "v0.6.1"});
    assert_eq!(json["clusters"][0], east, "in the order of their names");
    assert_eq!(json["components"][2], json!({"name": "etcd", "state": "Running", "wanted": 1, "ready": 1}));
    assert!(verdicts(&json).contains(&("clusters", "warned")), "{json}");
    let yaml = sandbox.run(&["status", "-o", "yaml"]);
    assert!(yaml.succeeds().contains("view: both\n"), "{yaml:?}");
}

#[test]
fn what_acts_on_the_control_planes_api_server_is_named_with_what_to_type() {
    let sandbox = Sandbox::new();
    let rule = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]);
    let hub = serve(move |_, path| match path.split('?').next().unwrap().trim_start_matches("/apis/") {
        "admissionregistration.k8s.io/v1/validatingwebhookconfigurations" => list(&[json!({
            "metadata": {"name": "everything"},
            "webhooks": [{"name": "a.example.com", "clientConfig": {"service": {"namespace": "n", "name": "s"}}, "rules": rule}],
        })]),
        "admissionregistration.k8s.io/v1/validatingadmissionpolicies" => {
            list(&[json!({"metadata": {"name": "all"}, "spec": {"matchConstraints": {"resourceRules": rule}}})])
        }
        "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings" => {
            list(&[json!({"metadata": {"name": "deny"}, "spec": {"policyName": "all", "validationActions": ["Deny"]}})])
        }
        "apiregistration.k8s.io/v1/apiservices" => list(&[
            json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}}),
            json!({"metadata": {"name": "v1.x.example"}, "spec": {"service": {"namespace": "n", "name": "s"}}}),
        ]),
        _ => inside(path),
    });
    // The API server of this control plane has no arguments, as one of an earlier version.
    use_cluster(&sandbox, &serve(move |_, path| hosting(path, &hub, 1)));
    let ran = sandbox.run(&["status"]);
    let shown = ran.succeeds();
    let block = shown.split_once("Checking webhooks and APIServices of the control plane\n").expect("the block").1;
    for part in [
        "ValidatingWebhookConfiguration everything (every request of every kind) ‼",
        "--set apiserver.allowAdmissionWebhooks=false`",
        "v1.x.example (Service n/s) ‼",
        "delete apiservice v1.x.example`",
        "ValidatingAdmissionPolicyBinding deny (policy all, leases.coordination.k8s.io) ‼",
    ] {
        assert!(block.contains(part), "`{part}` is not in:\n{shown}");
    }
    assert!(!block.contains("v1.apps"), "{shown}");
}

#[test]
fn a_component_that_does_not_run_comes_with_its_cause_and_exit_code_7() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| inside(path));
    use_cluster(&sandbox, &serve(move |_, path| hosting(path, &hub, 0)));
    let ran = sandbox.run(&["status"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let causes = ran.stdout.find("What keeps components from running").expect(&ran.stdout);
    assert!(ran.stdout[..causes].contains("etcd status... ErrImagePull (pod etcd-0) ×"), "{ran:?}");
    for part in
        ["StatefulSet fleet/etcd: 0 of 1 pods ready → Pod fleet/etcd-0: ", "etcd:3.5.21", "`fleetctl explain image-"]
    {
        assert!(ran.stdout[causes..].contains(part), "`{part}` is not in:\n{}", ran.stdout);
    }
    let json = sandbox.run(&["status", "-o", "json"]);
    assert_eq!((json.code, &document(&json)["healthy"]), (7, &false.into()));
    assert_eq!(document(&json)["causes"][0]["chain"][0]["object"]["name"], "etcd");
}

#[test]
fn with_the_control_planes_api_down_the_hosting_cluster_is_judged() {
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &serve(|_, path| hosting(path, NOBODY, 1)));
    let ran = sandbox.run(&["status"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    for line in [
        "Source: the hosting cluster only, because the control plane's API does not answer: ",
        "etcd status... Running √",
        "Cluster definition... unknown: ",
        "* workload clusters... not checked, because of `definition-cluster` ‼",
    ] {
        assert!(ran.stdout.contains(line), "`{line}` is not in:\n{}", ran.stdout);
    }
    let json = document(&sandbox.run(&["status", "-o", "json"]));
    assert_eq!((&json["view"], json.get("clusters")), (&"hosting-cluster".into(), None));
}

#[test]
fn without_the_hosting_cluster_the_control_plane_is_judged_from_inside() {
    let hub = serve(|_, path| inside(path));
    let from_inside = |sandbox: &Sandbox, args: &[&str], why: &str| {
        let ran = sandbox.run(&[&["status"], args].concat());
        let shown = ran.succeeds();
        for line in [
            "Source: the control plane's API only, without the hosting cluster: ",
            why,
            "API server status... not checked, because of `hosting-cluster` ‼",
            "Control plane demo answers; its components were not checked ‼",
            "Cluster west connected and ready √",
            "All custom resource definitions are installed √",
            "certificates... not checked, because of `hosting-cluster` ‼",
        ] {
            assert!(shown.contains(line), "`{line}` is not in:\n{shown}");
        }
        let json = sandbox.run(&[&["status", "-o", "json"], args].concat());
        json.succeeds();
        let json = document(&json);
        assert_eq!((&json["view"], json.get("components")), (&"control-plane".into(), None));
        let skipped: Vec<_> = verdicts(&json).into_iter().filter(|(_, verdict)| *verdict == "skipped").collect();
        assert_eq!(skipped.len(), 11, "{skipped:?}");
    };
    // Its kubeconfig is on this machine, and the hosting cluster does not answer, or not to us; named or the only one.
    for (server, why) in [(NOBODY.to_owned(), "onnect"), (serve(|_, _| forbidden()), "you may not")] {
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &server);
        installed_from_here(&sandbox, "demo", &hub);
        from_inside(&sandbox, &["demo"], why);
        from_inside(&sandbox, &[], why);
        // A context that was named may host another one.
        sandbox.run(&["status", "--context", "hosting"]).fails(1, &["cannot read the hosting cluster"]);
    }
    // No kubeconfig at all but that one.
    let sandbox = Sandbox::new();
    installed_from_here(&sandbox, "demo", &hub);
    from_inside(&sandbox, &["demo"], "no kubeconfig was found");
    from_inside(&sandbox, &["--context", "demo"], "`demo` is the control plane's own context");
    // Its own context is one of the user's kubeconfig, under whatever name.
    let sandbox = Sandbox::new();
    with_kubeconfig(&sandbox, &kubeconfig("demo@here", &hub));
    from_inside(&sandbox, &["demo"], "`demo@here` is the control plane's own context");
}

#[test]
fn where_nothing_answers_both_ways_are_named() {
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, NOBODY);
    sandbox.run(&["status", "demo"]).fails(1, &["cannot read the hosting cluster"]);
    installed_from_here(&sandbox, "demo", "http://127.0.0.1:2");
    let both = [
        "cannot read the hosting cluster",
        "the API of control plane demo, with ",
        ".fleet/demo/fleet-kubeconfig, does not answer either",
    ];
    sandbox.run(&["status", "demo"]).fails(1, &both);
    // Which of two is meant is not guessed.
    installed_from_here(&sandbox, "other", "http://127.0.0.1:2");
    let ran = sandbox.run(&["status"]);
    ran.fails(1, &["cannot read the hosting cluster"]);
    assert!(!ran.stderr.contains("the API of control plane"), "{ran:?}");
    sandbox.run(&["status", "--context", "nowhere"]).fails(2, &["nowhere", "hosting"]);
}

#[test]
fn a_wait_ends_well_as_soon_as_the_control_plane_is_healthy() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| inside(path));
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    use_cluster(
        &sandbox,
        &serve(move |_, path| {
            let begins = path.starts_with("/apis/apps/v1/namespaces/fleet/statefulsets?");
            let look = if begins { counted.fetch_add(1, Ordering::SeqCst) + 1 } else { counted.load(Ordering::SeqCst) };
            // Not there at first, then not healthy.
            if look == 1 {
                if begins { list(&[]) } else { not_found() }
            } else {
                hosting(path, &hub, usize::from(look > 2))
            }
        }),
    );
    let ran = sandbox.run(&["status", "demo", "--wait", "--timeout", "30s", "-o", "json"]);
    ran.succeeds();
    assert_eq!(document(&ran)["healthy"], true);
    assert_eq!(looks.load(Ordering::SeqCst), 3);
    for part in
        ["Waiting until the control plane is healthy", "not installed", "StatefulSet fleet/etcd: 0 of 1 pods ready"]
    {
        assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
    }
}

#[test]
fn a_wait_whose_time_is_up_says_what_is_still_wrong() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| inside(path));
    use_cluster(&sandbox, &serve(move |_, path| hosting(path, &hub, 0)));
    let ran = sandbox.run(&["status", "--wait", "--timeout", "1s"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stdout.contains("Control plane demo is not healthy ×"), "{ran:?}");
    for part in [
        "control plane demo is not healthy after 1 s",
        "etcd (etcd): ErrImagePull",
        "StatefulSet fleet/etcd: 0 of 1",
        "hint: ",
    ] {
        assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
    }
    let json = sandbox.run(&["status", "--wait", "--timeout", "1s", "-o", "json"]);
    let error: Value = serde_json::from_str(json.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&error["error"]["exitCode"], &error["error"]["reason"]), (&7.into(), &"Unhealthy".into()));
    // Nothing to wait for.
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, NOBODY);
    sandbox
        .run(&["status", "--wait", "--timeout", "1s"])
        .fails(7, &["Connection refused", "nothing answered within 1 s"]);
    sandbox.run(&["status", "--wait", "--context", "nowhere"]).fails(2, &["nowhere"]);
    sandbox.run(&["status", "--timeout", "1s"]).fails(2, &["--wait"]);
    sandbox.run(&["status", "--wait", "--watch"]).fails(2, &["--watch"]);
}

/// `status --watch`, and the documents that it prints.
fn watching(sandbox: &Sandbox) -> (Running, impl Iterator<Item = serde_json::Result<Value>>) {
    let (running, stdout) = Running::start(sandbox, &["status", "--watch", "-o", "json"]);
    (running, serde_json::Deserializer::from_reader(stdout).into_iter())
}

#[test]
fn a_watch_shows_each_change_once_where_watching_is_forbidden_too_and_ends_by_the_signal() {
    let sandbox = Sandbox::new();
    let may = |path: &str, answer: Answer| if path.contains("watch=") { forbidden() } else { answer };
    let hub = serve(move |_, path| may(path, inside(path)));
    let ready = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&ready);
    let answer = move |path: &str| hosting(path, &hub, usize::from(state.load(Ordering::SeqCst)));
    use_cluster(&sandbox, &serve(move |_, path| may(path, answer(path))));
    let (mut child, mut documents) = watching(&sandbox);
    assert_eq!(documents.next().unwrap().unwrap()["healthy"], true);
    ready.store(false, Ordering::SeqCst);
    let second = documents.next().unwrap().unwrap();
    assert_eq!((&second["healthy"], &second["components"][2]["ready"]), (&false.into(), &0.into()));
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.0.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    // 130 in a shell.
    assert_eq!(child.0.wait().unwrap().signal(), Some(2));
    assert!(documents.next().is_none());
}

#[test]
fn a_watch_looks_again_when_something_changes_and_not_before() {
    let never = || -> Answer {
        loop {
            std::thread::park();
        }
    };
    let sandbox = Sandbox::new();
    let hub = serve(move |_, path| if path.contains("watch=") { never() } else { inside(path) });
    let looks = Arc::new(AtomicUsize::new(0));
    let quiet = Arc::new(std::sync::OnceLock::new());
    let (counted, told, watched) = (Arc::clone(&looks), Arc::clone(&quiet), AtomicBool::new(false));
    let answer = move |path: &str| {
        if path.contains("watch=") {
            if !path.contains("/statefulsets?") || watched.swap(true, Ordering::SeqCst) {
                return never();
            }
            // The second look, when the watches have begun, is the last one; then longer than the time between two looks
            // without a watch.
            while counted.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            std::thread::sleep(std::time::Duration::from_secs(4));
            told.set(counted.load(Ordering::SeqCst)).unwrap();
            let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "etcd", "namespace": "fleet", "resourceVersion": "2"}});
            return (200, json!({"type": "MODIFIED", "object": object}));
        }
        if path.contains("/statefulsets?") && path.contains("labelSelector") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        hosting(path, &hub, usize::from(told.get().is_none()))
    };
    use_cluster(&sandbox, &serve(move |_, path| answer(path)));
    let (_child, mut documents) = watching(&sandbox);
    assert_eq!(documents.next().unwrap().unwrap()["healthy"], true);
    assert_eq!(documents.next().unwrap().unwrap()["healthy"], false);
    assert_eq!(*quiet.get().expect("the change was told"), 2, "nothing had changed since the second look");
}

#[test]
fn a_context_of_another_control_plane_is_not_taken_for_the_one_that_is_named() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| {
        let (code, mut answer) = inside(path);
        if path.ends_with("/secrets/fleet-cluster-init-kubeconfig") {
            answer["metadata"]["labels"] = json!({"app.kubernetes.io/instance": "other"});
        }
        (code, answer)
    });
    with_kubeconfig(&sandbox, &kubeconfig("here", &hub));
    let expected = ["control plane `demo` is not installed", "`here` is the context of control plane `other`"];
    sandbox.run(&["status", "demo"]).fails(7, &expected);
    sandbox.run(&["check", "demo"]).fails(7, &expected);
    let unnamed = sandbox.run(&["status"]);
    assert!(unnamed.succeeds().contains("Control plane other answers"), "{unnamed:?}");
}

#[test]
fn what_is_told_to_do_leads_to_the_place_that_was_looked_at() {
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &serve(|_, path| if path.contains('?') { list(&[]) } else { not_found() }));
    let flags = " --context hosting --namespace two";
    let args: Vec<&str> = ["status", "demo"].into_iter().chain(flags.split_whitespace()).collect();
    sandbox.run(&args).fails(7, &[&format!("`fleetctl install control-plane demo{flags}`")]);
    let hub = serve(|_, path| inside(path));
    use_cluster(&sandbox, &serve(move |_, path| hosting(path, &hub, 1)));
    let ran = sandbox.run(&["status", "demo", "--context", "hosting"]);
    assert!(ran.succeeds().contains("`fleetctl install control-plane demo --context hosting`"), "{ran:?}");
}

#[test]
fn what_an_agent_says_of_itself_cannot_move_the_cursor() {
    let sandbox = Sandbox::new();
    let hub = serve(|_, path| {
        let (code, mut answer) = inside(path);
        if path.contains("/v1alpha1/clusters") {
            answer["items"][0]["status"]["observed"]["agentVersion"] = json!("v0.6.1\u{1b}[2J\nfine");
        }
        (code, answer)
    });
    use_cluster(
        &sandbox,
        &serve(move |_, path| {
            let (code, mut answer) = hosting(path, &hub, 1);
            if path.starts_with("/apis/apps/v1/namespaces/fleet/deployments?") {
                let labels = json!({"app.kubernetes.io/name": "fleet-scheduler", "fleet-scheduler.io/install": "demo"});
                answer["items"] = json!([{"metadata": {"name": "fleet-scheduler", "labels": labels}}]);
            }
            (code, answer)
        }),
    );
    for (args, before) in [(&["status", "-o", "wide"][..], ""), (&["version"], "agent west ")] {
        let ran = sandbox.run(args);
        let line = format!(r"{before}v0.6.1\u{{1b}}[2J\nfine");
        assert!(ran.succeeds().lines().any(|shown| shown.ends_with(&line)), "{line}: {ran:?}");
    }
}

#[test]
fn on_a_terminal_the_requests_are_shown_above_the_line_that_is_drawn_again() {
    let sandbox = Sandbox::new();
    let slow = serve(|_, path| {
        // Long enough that the line has been drawn.
        std::thread::sleep(Duration::from_millis(300));
        inside(path)
    });
    let file = sandbox.file("config", &kubeconfig("demo", &slow));
    let program = assert_cmd::cargo::cargo_bin!("fleetctl").display();
    let line = format!("'{program}' status demo --kubeconfig '{file}' --wait --timeout 3s --verbose");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    script.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", sandbox.path()).env("TERM", "vt100");
    let shown = String::from_utf8(script.output().unwrap().stdout).unwrap();
    let shown = anstream::adapter::strip_str(&shown).to_string();
    let lines: Vec<&str> = shown.split(['\r', '\n']).collect();
    let drawn = |line: &&&str| line.contains("Waiting until the control plane is healthy");
    assert!(lines.iter().filter(drawn).count() > 2, "{shown}");
    let requests: Vec<&&str> = lines.iter().filter(|line| line.contains("request method=")).collect();
    assert!(requests.len() > 2 && requests.iter().all(|line| line.starts_with("20")), "{shown}");
}
