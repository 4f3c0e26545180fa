//! What values and locks choose: the service version, where each value comes from, and digests of images.

use serde_json::Value;

use crate::Sandbox;
use crate::install::{documents, find};

#[test]
fn the_version_of_a_values_file_chooses_the_line_below_the_flag() {
    let sandbox = Sandbox::new();
    let values = sandbox.file("my.yaml", "version: v0.8\nreplicas: 2\n");
    let image = |args: &[&str]| {
        let ran = sandbox.run(&[&["template", "agent", "west", "--values", &values], args].concat());
        let objects = documents(ran.succeeds());
        find(&objects, "Deployment", "fleet-agent")["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(image(&[]), "fleetscheduler/fleet-agent:v0.8.0");
    assert_eq!(image(&["--version", "v1.1"]), "fleetscheduler/fleet-agent:v1.1.0");
    assert_eq!(image(&["--set", "version=v0.9"]), "fleetscheduler/fleet-agent:v0.9.0");
    assert_eq!(image(&["--set", "version=auto", "--kube-version", "1.31"]), "fleetscheduler/fleet-agent:v1.2.0");
    let shown = sandbox.run(&["show", "images", "agent", "-o", "name", "--values", &values]);
    assert_eq!(shown.succeeds(), "fleetscheduler/fleet-agent:v0.8.0\n");
    let lint = sandbox.run(&["lint", "agent", "--values", &values]);
    assert!(lint.succeeds().contains("agent v0.8"), "{lint:?}");
    // A number is taken as it was written.
    let number = sandbox.file("number.yaml", "version: 1.0\n");
    let lint = sandbox.run(&["lint", "--values", &number]);
    assert!(lint.succeeds().contains("control-plane v1.0"), "{lint:?}");
    for (text, part) in [("version: v9.9\n", "v9.9"), ("version: latest\n", "latest"), ("version: [1]\n", "a list")] {
        let wrong = sandbox.file("wrong.yaml", text);
        sandbox.run(&["template", "agent", "west", "--values", &wrong]).fails(2, &["wrong.yaml:1:10", part]);
    }
    let tag = ["template", "agent", "west", "--values", &values, "--image-tag", "v0.7.1"];
    sandbox.run(&tag).fails(2, &["my.yaml:1:10", "`version: v0.8", "--image-tag v0.7.1"]);
}

#[test]
fn values_from_standard_input_are_read_once_for_version_and_values() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    let ran = crate::Ran::of(
        command
            .args(["template", "agent", "--values", "-"])
            .write_stdin("version: v0.9\nname: east\n")
            .output()
            .unwrap(),
    );
    assert!(ran.succeeds().contains("fleet-agent:v0.9.0") && ran.stdout.contains("--cluster-name=east"), "{ran:?}");
}

#[test]
fn show_values_with_values_names_the_origin_of_each_and_hides_secrets() {
    let sandbox = Sandbox::new();
    sandbox.file("my.yaml", "etcd:\n  replicas: 3\ncloud: {accessKey: '{\"k\": \"hunter2\"}'}\n");
    let args = ["show", "values", "--version", "v1.1", "--preset", "ha", "--values", "my.yaml", "--set", "spread=None"];
    let ran = sandbox.run(&args);
    let text = ran.succeeds();
    for part in [
        "  replicas: 3  # my.yaml:2:13\n",
        "spread: None  # --set:1:8\n",
        "# preset ha:",
        "# charts/control-plane/v0.6/values.yaml:",
        "# charts/versions.yaml:",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    assert!(serde_saphyr::from_str::<Value>(text).is_ok());
    sandbox.run(&["show", "values", "--set", "etcd.replica=1"]).fails(2, &["replica"]);
}

#[test]
fn images_are_locked_to_digests_and_the_lock_is_held_to() {
    let sandbox = Sandbox::new();
    let names = sandbox.run(&["show", "images", "cp", "-o", "name", "--version", "v1.1"]).succeeds().to_owned();
    let digest = format!("sha256:{}", "ab".repeat(32));
    let lines: String = names.lines().map(|name| format!("{name}@{digest}\n")).collect();
    sandbox.file("digests.txt", &lines);
    let args = ["show", "images", "cp", "--version", "v1.1", "--digests", "digests.txt"];
    let lock = sandbox.run(&args).succeeds().to_owned();
    sandbox.file("images.lock", &lock);
    assert!(lock.contains(&format!("registry.k8s.io/etcd:3.5.35-0: {digest}")), "{lock}");
    let shown = |args: &[&str]| {
        let locked = ["show", "images", "cp", "-o", "name", "--version", "v1.1", "--image-lock", "images.lock"];
        sandbox.run(&[&locked, args].concat())
    };
    let images = shown(&[]);
    assert_eq!(images.succeeds().lines().count(), names.lines().count());
    assert!(images.stdout.lines().all(|image| image.ends_with(&format!("@{digest}"))), "{images:?}");
    let mirrored = shown(&["--image-registry", "mirror.example:5000"]);
    assert!(mirrored.succeeds().lines().all(|image| image.starts_with("mirror.example:5000/") && image.contains('@')));
    shown(&["--set", "etcd.image.tag=3.5.99"])
        .fails(2, &["the digest of `registry.k8s.io/etcd:3.5.99` is missing in images.lock"]);
    let other =
        ["template", "cp", "demo", "--without-keys", "--set", "exposure.type=ClusterIP", "--image-lock", "images.lock"];
    let other = [&other[..], &["--set", "exposure.host=x.example"]].concat();
    sandbox.run(&other).fails(2, &["the digest of `fleetscheduler/fleet-scheduler:v0.6.1` is missing"]);
    let right = sandbox.run(&[&other[..], &["--version", "v1.1"]].concat());
    assert!(right.succeeds().contains(&format!("etcd:3.5.35-0@{digest}")), "{right:?}");
    let first = names.lines().next().unwrap();
    sandbox.file("digests.txt", &lines.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>());
    sandbox.run(&args).fails(2, &[&format!("the digest of `{first}` is missing"), "crane digest"]);
    sandbox.file("images.lock", "images: {a: b}\n");
    shown(&[]).fails(2, &["images.lock:1:13", "show images"]);
}

#[test]
fn templates_are_printed_by_the_paths_that_explain_names() {
    let sandbox = Sandbox::new();
    let explain = ["template", "cp", "demo", "--version", "v1.1", "--explain", "statefulset/etcd#spec.replicas"];
    let text = sandbox.run(&explain).succeeds().to_owned();
    let place = text.lines().find_map(|line| line.strip_prefix("  template ")).unwrap();
    let (path, rest) = place.split_once(':').unwrap();
    assert_eq!(path, "charts/control-plane/v1.1/templates/statefulset-etcd.yaml", "the line that is rendered");
    let number: usize = rest.split(':').next().unwrap().parse().unwrap();
    let shown = sandbox.run(&["show", "templates", "cp", "templates/statefulset-etcd.yaml", "--version", "v1.1"]);
    assert_eq!(shown.succeeds().lines().nth(number - 1).unwrap().trim(), "replicas: {{ values.etcd.replicas }}");
    let all = sandbox.run(&["show", "templates", "--version", "v1.1"]);
    for part in
        ["### charts/control-plane/v1.1/templates/poddisruptionbudgets.yaml, as in v1.0\n", "bootstrap/rbac.yaml"]
    {
        assert!(all.succeeds().contains(part), "{part}");
    }
    sandbox
        .run(&["show", "templates", "agent", "deploymnt-agent.yaml"])
        .fails(2, &["no template", "deployment-agent.yaml"]);
}
