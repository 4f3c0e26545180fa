//! Variables, colour and the log.

use crate::server::{list, serve, use_cluster};
use crate::{Ran, Sandbox};

const PORT: &str = "APISERVER_SERVICE_NODEPORT";

#[test]
fn variables_stand_for_values_and_go_behind_flags() {
    let sandbox = Sandbox::new();
    let dry_run = |port: &str, extra: &[&str]| {
        let args = ["install", "cp", "demo", "--dry-run", "--set", "exposure.type=NodePort"];
        Ran::of(sandbox.command().args(args).args(extra).env(PORT, port).output().unwrap())
    };
    assert!(dry_run("32222", &[]).succeeds().contains("nodePort: 32222"));
    let flag = dry_run("32222", &["--set", "exposure.nodePort=32001"]);
    assert!(flag.succeeds().contains("nodePort: 32001") && !flag.stdout.contains("32222"));
    dry_run("many", &[]).fails(2, &["$APISERVER_SERVICE_NODEPORT", "exposure.nodePort"]);
}

#[test]
fn the_namespace_of_the_environment_goes_behind_the_flag() {
    let sandbox = Sandbox::new();
    let args = ["install", "cp", "demo", "--dry-run"];
    let run = |extra: &[&str]| {
        Ran::of(sandbox.command().args(args).args(extra).env("FLEET_NAMESPACE", "from-env").output().unwrap())
    };
    assert!(run(&[]).succeeds().contains("namespace: from-env"));
    assert!(!run(&["-n", "from-flag"]).succeeds().contains("from-env"));
}

#[test]
fn an_empty_variable_is_as_none() {
    let sandbox = Sandbox::new();
    let server = serve(|_, path| {
        list(&[serde_json::json!({"metadata": {"name": path.split('/').nth(5).unwrap_or_default()},
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": {}, "template": {}}})])
    });
    use_cluster(&sandbox, &server);
    let run = |args: &[&str]| {
        let variables = [("FLEET_CONTEXT", ""), ("FLEET_NAMESPACE", "")];
        Ran::of(sandbox.command().args(args).envs(variables).output().unwrap())
    };
    assert!(run(&["install", "cp", "demo", "--dry-run"]).succeeds().contains("namespace: fleet\n"));
    // Neither a context that is named nor a namespace that is asked for: those of the current context.
    let deployments = run(&["get", "deployments", "-o", "name"]);
    assert_eq!(deployments.succeeds(), "deployment.apps/default\n");
    assert_eq!(run(&["get", "deployments", "-o", "name", "--context", ""]).succeeds(), deployments.stdout);
    assert_eq!(deployments.stderr, "");
}

#[test]
fn an_unknown_variable_is_pointed_out_on_stderr() {
    let sandbox = Sandbox::new();
    let ran = Ran::of(sandbox.command().arg("versions").env("FLEET_NAMESPCE", "x").output().unwrap());
    ran.succeeds();
    assert!(ran.stderr.contains("FLEET_NAMESPCE") && ran.stderr.contains("FLEET_NAMESPACE"), "{ran:?}");
    assert_eq!(sandbox.run(&["versions"]).stderr, "");
}

#[test]
fn colour_is_as_flag_and_environment_say() {
    let sandbox = Sandbox::new();
    let coloured = |args: &[&str], variables: &[(&str, &str)]| {
        let output = sandbox.command().args(["explain", "storage"]).args(args).envs(variables.iter().copied()).output();
        Ran::of(output.unwrap()).succeeds().contains('\u{1b}')
    };
    assert!(!coloured(&[], &[]), "a pipe is no terminal");
    assert!(coloured(&["--color", "always"], &[]) && coloured(&["--color=always"], &[("NO_COLOR", "1")]));
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    sandbox.run(&["versions", "--color", "blue"]).fails(2, &["blue", "always"]);
}

#[test]
fn verbose_shows_requests_on_stderr_and_nothing_of_their_credentials() {
    let sandbox = Sandbox::new();
    let server = serve(|_, _| list(&[]));
    let config = format!(
        "clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: top-secret}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    let file = sandbox.file("config", &config);
    let run = |extra: &[&str]| sandbox.run(&[&["version", "--kubeconfig", &file], extra].concat());
    assert_eq!(run(&[]).stderr, "");
    let path = "/apis/apps/v1/namespaces/fleet/deployments";
    for extra in [&["--verbose"][..], &["--verbose", "--verbose", "--verbose"]] {
        let ran = run(extra);
        ran.succeeds();
        for part in ["GET", path, "status=200", "ms="] {
            assert!(ran.stderr.contains(part), "{part}: {ran:?}");
        }
        assert!(!ran.stderr.contains("top-secret") && !ran.stdout.contains("GET"), "{ran:?}");
    }
    let json = run(&["--verbose", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_str(json.stderr.lines().next().unwrap()).unwrap();
    assert_eq!((&line["path"], &line["status"]), (&path.into(), &200.into()));
    let trace =
        Ran::of(sandbox.command().args(["version", "--kubeconfig", &file]).env("RUST_LOG", "trace").output().unwrap());
    assert!(trace.stderr.contains(path) && !trace.stderr.contains("top-secret"), "{trace:?}");
}
