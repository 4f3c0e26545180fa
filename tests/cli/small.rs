//! Small things about values and flags that users of Helm and kubectl bring along.

use crate::Sandbox;

#[test]
fn nothing_and_a_comma_at_the_end_set_nothing() {
    let sandbox = Sandbox::new();
    for set in ["", "networkPolicy.enabled=false,"] {
        sandbox.run(&["lint", "--set", set]).succeeds();
    }
    assert_eq!(sandbox.run(&["lint", "--set", ","]).code, 2);
}

#[test]
fn wrong_settings_are_errors_with_their_place_and_what_to_write() {
    let sandbox = Sandbox::new();
    for (flag, argument, parts) in [
        ("--set-json", "etcd.quotaBytes=1e9", &["--set-json:1:17", "is not written as an integer"][..]),
        ("--set-json", r#"etcd={"quotaBytes": 1e9}"#, &["--set-json:1:6", "expected an integer"]),
        ("--set", "nodeSelector.kubernetes.io/os=linux", &["nodeSelector.kubernetes\\.io/os`", "needs `\\` before it"]),
        ("--set", "tolerations=null", &["for an empty list, write `[]`, or `{}` in `--set`"]),
    ] {
        let lint = sandbox.run(&["lint", flag, argument]);
        assert_eq!(lint.code, 2, "{lint:?}");
        for part in parts {
            assert!(lint.stdout.contains(part), "{part}: {}", lint.stdout);
        }
    }
    sandbox.run(&["lint", "--set", "nodeSelector.kubernetes\\.io/os=linux,tolerations={}"]).succeeds();
    let deep = format!("{}a=1", "a.".repeat(8_000));
    assert!(sandbox.run(&["lint", "--set", &deep]).stdout.contains("deeper than 64 levels"));
}

#[test]
fn a_new_key_overrides_nothing() {
    let sandbox = Sandbox::new();
    let field = "statefulset/etcd#spec.template.spec.nodeSelector.disk";
    let ran = sandbox.run(&["template", "cp", "demo", "--set", "nodeSelector.disk=fast", "--explain", field]);
    assert!(ran.succeeds().contains("values.nodeSelector.disk from --set:1:19"), "{ran:?}");
    assert!(!ran.stdout.contains("instead of --set"), "{}", ran.stdout);
}

#[test]
fn objects_are_named_as_kubectl_takes_them() {
    let sandbox = Sandbox::new();
    let agent = |more: &[&str]| sandbox.run(&[&["template", "agent", "west"], more].concat());
    let whole = agent(&["-s", "deployment/fleet-agent"]).succeeds().to_owned();
    for name in
        ["deploy/fleet-agent", "deployments/fleet-agent", "apps/Deployment/fleet-agent", "Deployment/fleet-agent"]
    {
        assert_eq!(agent(&["-s", name]).succeeds(), whole, "{name}");
    }
    assert_eq!(agent(&["-s", "deploy/fleet-agent,sa/fleet-agent"]).succeeds().matches("\nkind: ").count(), 2);
    assert!(agent(&["--include-kind", "sa"]).succeeds().contains("kind: ServiceAccount"));
    agent(&["-s", "batch/Deployment/fleet-agent"]).fails(2, &["no rendered object or template is named"]);
    agent(&["--include-kind", "StatefulSet"]).fails(2, &["no rendered object is a StatefulSet", "Deployment"]);
}

#[test]
fn images_are_chosen_by_tag_where_no_cluster_is_asked() {
    let sandbox = Sandbox::new();
    let images = sandbox.run(&["show", "images", "cp", "--image-tag", "v0.7.0", "-o", "name"]);
    assert!(images.succeeds().contains("fleetscheduler/fleet-scheduler:v0.7.0\n"), "{images:?}");
    let agent = ["--image-tag", "v1.1.0", "--image-repository", "mirror.example/agent"];
    let images = sandbox.run(&[&["show", "images", "agent", "-o", "name"][..], &agent].concat());
    assert_eq!(images.succeeds(), "mirror.example/agent:v1.1.0\n");
    let lint = sandbox.run(&["lint", "--image-tag", "v0.8.0"]);
    assert!(lint.succeeds().contains("control-plane v0.8"), "{lint:?}");
    sandbox.run(&["lint", "--image-tag", "latest"]).fails(2, &["does not name a service version"]);
    sandbox.run(&["show", "images", "--image-tag", "v0.7.0"]).fails(2, &["name the chart"]);
}

#[test]
fn a_second_file_of_a_glob_is_not_taken_for_a_name() {
    let sandbox = Sandbox::new();
    let (one, two) = (sandbox.file("one.yaml", "{}\n"), sandbox.file("two.yaml", "{}\n"));
    sandbox.run(&["lint", "-f", &one, &two]).fails(2, &["repeat the flag for each values file"]);
    let named = sandbox.run(&["template", "cp", "-f", "one.yaml", "two.yaml"]);
    named.fails(2, &["two.yaml", "repeat the flag for each file"]);
    sandbox.run(&["template", "cp", "demo", "-f", &one, &two]).fails(2, &["--values", "two.yaml"]);
}

#[test]
fn the_codes_of_wrong_values_are_explained() {
    let sandbox = Sandbox::new();
    for code in ["unknown-key", "wrong-type", "set-syntax", "other-version"] {
        let page = sandbox.run(&["explain", code]);
        assert!(page.succeeds().contains(code), "{page:?}");
    }
    sandbox.run(&["list"]).fails(2, &["'fleetctl status'"]);
    let credentials = sandbox.file("r.yaml", "registryCredentials: '{\"credsStore\": \"desktop\"}'\n");
    assert!(sandbox.run(&["lint", "--values", &credentials]).succeeds().contains("contain no login"));
}
