//! The commands about workload clusters as far as they need no cluster: arguments, values, the dry run.

use crate::install::{documents, find};
use crate::server::kubeconfig;
use crate::{Ran, Sandbox};

#[test]
fn a_dry_run_prints_the_agent_and_asks_no_cluster() {
    let sandbox = Sandbox::new();
    // No kubeconfig exists in this home, so asking a cluster would fail.
    let ran = sandbox.run(&["install", "agent", "west", "--dry-run"]);
    let objects = documents(ran.succeeds());
    for (kind, name) in [
        ("ServiceAccount", "fleet-agent"),
        ("ClusterRole", "fleet-agent"),
        ("Secret", "fleet-agent-identity"),
        ("Deployment", "fleet-agent"),
    ] {
        find(&objects, kind, name);
    }
    let deployment = find(&objects, "Deployment", "fleet-agent");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["args"][0], "--cluster-name=west");
    assert_eq!(deployment["metadata"]["labels"]["app.kubernetes.io/name"], "fleet-agent");
    let init = objects.iter().any(|object| object["metadata"]["name"] == "fleet-cluster-init-kubeconfig");
    assert!(!init, "the init Secret is the operator's");
    assert!(!sandbox.path().join(".fleet").exists(), "a dry run writes no file");
    assert_eq!(sandbox.run(&["template", "agent", "west"]).succeeds(), ran.stdout, "the same objects");
}

#[test]
fn image_flags_reach_the_agent_and_choose_the_version() {
    let sandbox = Sandbox::new();
    let image = |args: &[&str]| {
        let ran = sandbox.run(&[&["install", "agent", "west", "--dry-run"], args].concat());
        let objects = documents(ran.succeeds());
        let agent = find(&objects, "Deployment", "fleet-agent").clone();
        agent["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image(&[]), "fleetscheduler/fleet-agent:v0.6.1");
    assert_eq!(image(&["--image-tag", "v0.6.0"]), "fleetscheduler/fleet-agent:v0.6.0");
    assert_eq!(image(&["--image-repository", "mirror.example/x", "--version", "v1.1"]), "mirror.example/x:v1.1.0");
    let refused = |args: &[&str], parts: &[&str]| {
        sandbox.run(&[&["install", "agent", "west", "--dry-run"], args].concat()).fails(2, parts);
    };
    refused(&["--image-tag", "latest"], &["latest", "--version"]);
    refused(&["--version", "v9.9"], &["v9.9", "versions"]);
    refused(&["--version", "auto"], &["auto", "--dry-run"]);
    refused(&["--image-repository", ""], &["--image-repository"]);
    refused(&["--set", "replicas=2"], &["replicas", "v0.8"]);
    refused(&["--set", "cluster.regoin=x"], &["regoin", "region"]);
}

#[test]
fn the_name_comes_from_the_argument_or_the_values_and_is_checked() {
    let sandbox = Sandbox::new();
    let values = sandbox.file("v.yaml", "name: from-values\ncluster:\n  region: eu-1\n");
    let named = sandbox.run(&["install", "agent", "--values", &values, "--dry-run"]);
    assert!(named.succeeds().contains("--cluster-name=from-values"), "{named:?}");
    assert!(named.stdout.contains("--region=eu-1"), "{named:?}");
    sandbox.run(&["install", "agent", "--dry-run"]).fails(2, &["has no name", "install agent NAME", "name:"]);
    for command in
        [&["install", "agent"][..], &["uninstall", "agent"], &["delete", "cluster"], &["accept"], &["token", "create"]]
    {
        sandbox.run(&[command, &["My_Cluster"]].concat()).fails(2, &["My_Cluster", "`my-cluster`"]);
        let long = "x".repeat(51);
        sandbox.run(&[command, &[long.as_str()]].concat()).fails(2, &["51 characters", "50"]);
    }
}

#[test]
fn what_an_agent_will_obey_is_not_taken_from_whoever_answers() {
    let sandbox = Sandbox::new();
    let demo = kubeconfig("demo", "http://192.0.2.10:6443")
        .replace("name: c,", "name: d,")
        .replace("cluster: c,", "cluster: d,");
    let demo = sandbox.file("demo", &demo);
    let west = sandbox.file("west", &kubeconfig("west", "https://192.0.2.11:6443"));
    let run = |args: &[&str]| {
        Ran::of(sandbox.command().env("KUBECONFIG", format!("{west}:{demo}")).args(args).output().unwrap())
    };
    let refused =
        ["the server of context `demo` cannot be verified", "its server is not https", "--allow-unverified-server"];
    run(&["token", "create", "west", "--context", "demo"]).fails(6, &refused);
    run(&["install", "agent", "west", "--context", "west", "--control-plane", "demo"]).fails(6, &refused);
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_before_a_cluster_is_looked_for() {
    let sandbox = Sandbox::new();
    sandbox.run(&["install", "agent", "west", "--skip-preflight", "skw"]).fails(2, &["skw", "skew", "probe"]);
    sandbox.run(&["install", "agent", "west", "--timeout", "soon"]).fails(2, &["soon", "5m"]);
    sandbox.run(&["install", "agent", "west"]).fails(1, &["no kubeconfig was found", "KUBECONFIG"]);
    sandbox.run(&["template", "agent", "west", "--kube-version", "1.31"]).fails(3, &["v0.6.1", "v1.31", "versions"]);
    let limit = sandbox.run(&["install", "agent", "west", "--set", "resources.limits.memory=16Mi"]);
    limit.fails(
        2,
        &["limit-below-request", "--set:1:25", "is lower than the request `32Mi`", "= help: raise the limit"],
    );
    sandbox.run(&["get", "clusters", "west", "--selector", "a=b"]).fails(2, &["--selector"]);
    sandbox.run(&["get", "clusters", "-o", "table"]).fails(2, &["wide", "json", "yaml", "name"]);
    for list in ["clusters", "schedulegroups", "deployments"] {
        sandbox.run(&["get", list]).fails(1, &["no kubeconfig was found"]);
    }
}

#[test]
fn a_control_plane_that_is_not_known_here_is_named() {
    let sandbox = Sandbox::new();
    let config = sandbox.file(
        "config",
        "apiVersion: v1\nkind: Config\ncurrent-context: west\nclusters: [{name: west, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         contexts: [{name: west, context: {cluster: west, user: u}}]\nusers: [{name: u, user: {}}]\n",
    );
    let args = ["install", "agent", "west", "--kubeconfig", &config, "--control-plane", "demo"];
    sandbox.run(&args).fails(2, &["no context `demo`", "west"]);
    sandbox.run(&["get", "clusters", "--kubeconfig", &config, "--context", "demo"]).fails(2, &["no context `demo`"]);
}

#[test]
fn help_shows_the_two_commands_that_come_before_an_agent() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["install", "agent", "--help"]);
    for part in [
        "kubectl --context west create namespace fleet",
        "get secret fleet-cluster-init-kubeconfig -o yaml |",
        "kubectl --context west apply -f -",
        "--control-plane",
        "fleetscheduler/fleet-agent",
        "--rollback",
    ] {
        assert!(help.succeeds().contains(part), "`{part}` is not in:\n{}", help.stdout);
    }
    let get = sandbox.run(&["get", "--help"]);
    for part in ["clusters", "schedulegroups", "deployments"] {
        assert!(get.succeeds().contains(part), "{get:?}");
    }
}

#[test]
fn a_control_plane_that_is_silent_is_blamed_and_not_the_workload_cluster() {
    let sandbox = Sandbox::new();
    // Connections are taken by the system, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = format!("http://{}", silent.local_addr().unwrap());
    let workload = crate::server::serve(|_, _| crate::server::not_found());
    let cluster = |name: &str, server: &str| format!("{{name: {name}, cluster: {{server: \"{server}\"}}}}");
    let context = |name: &str| format!("{{name: {name}, context: {{cluster: {name}, user: u}}}}");
    let config = format!(
        "apiVersion: v1\nkind: Config\nusers: [{{name: u, user: {{}}}}]\nclusters: [{}, {}]\ncontexts: [{}, {}]\ncurrent-context: west\n",
        cluster("west", &workload),
        cluster("demo", &hub),
        context("west"),
        context("demo")
    );
    crate::server::with_kubeconfig(&sandbox, &config);
    let args = ["install", "agent", "west", "--control-plane", "demo", "--timeout", "2s"];
    let ran = sandbox.run(&args);
    ran.fails(
        4,
        &[
            "control plane demo did not answer within 1 s",
            "kubectl get --raw /readyz --context demo",
            "nothing was written",
        ],
    );
    assert!(!ran.stderr.contains("Checking the workload cluster failed"), "{ran:?}");
}
