//! `show`: values, schemas, documentation, images and presets of every line.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Sandbox;

pub(crate) const LINES: [&str; 7] = ["v0.6", "v0.7", "v0.8", "v0.9", "v1.0", "v1.1", "v1.2"];
pub(crate) const CHARTS: [&str; 2] = ["control-plane", "agent"];

fn json(sandbox: &Sandbox, args: &[&str]) -> Value {
    serde_json::from_str(sandbox.run(args).succeeds()).unwrap()
}

#[test]
fn the_shown_values_of_every_line_are_valid_values_and_change_nothing() {
    let sandbox = Sandbox::new();
    for line in LINES {
        for chart in CHARTS {
            let shown = sandbox.run(&["show", "values", chart, "--version", line]);
            let first = shown.succeeds().lines().next().unwrap().to_owned();
            assert_eq!(first, format!("# yaml-language-server: $schema={chart}.schema.json"));
            let file = sandbox.file("shown.yaml", &shown.stdout);
            let lint = ["lint", chart, "--version", line, "--values", &file, "-o", "json"];
            let with = json(&sandbox, &lint);
            assert_eq!(with[0]["problems"], serde_json::json!([]), "{chart} {line}");
            let images = |more: &[&str]| {
                let args = [&["show", "images", chart, "--version", line, "-o", "json"], more].concat();
                sandbox.run(&args).succeeds().to_owned()
            };
            assert_eq!(images(&["--values", &file]), images(&[]));
        }
    }
    let dry_run = |more: &[&str]| {
        let args = [&["install", "cp", "demo", "--dry-run"], more].concat();
        sandbox.run(&args).succeeds().to_owned()
    };
    let shown = sandbox.run(&["show", "values"]);
    let file = sandbox.file("shown.yaml", shown.succeeds());
    assert_eq!(dry_run(&["--values", &file]), dry_run(&[]), "the same objects as without");
}

#[test]
fn the_schema_of_a_line_is_closed_and_knows_no_newer_values() {
    let sandbox = Sandbox::new();
    for chart in CHARTS {
        for line in LINES {
            let schema = json(&sandbox, &["show", "schema", chart, "--version", line]);
            assert_eq!(schema["additionalProperties"], false, "{chart} {line}");
            assert_eq!(schema.to_string().contains("x-since"), line >= "v0.8", "{chart} {line}");
        }
    }
}

#[test]
fn the_readme_of_a_line_lists_its_values_images_and_kubernetes_versions() {
    let sandbox = Sandbox::new();
    let readme = sandbox.run(&["show", "readme", "--version", "v1.1"]);
    for part in [
        "# control-plane v1.1",
        "Kubernetes v1.29 to v1.31",
        "| `registry.k8s.io/etcd:3.5.35-0` | `etcd.image` |",
        "| `etcd.replicas` | `1` |",
        "- `ha`: A control plane that survives",
    ] {
        assert!(readme.succeeds().contains(part), "{part}\n{}", readme.stdout);
    }
    let old = sandbox.run(&["show", "readme", "--version", "v0.6"]);
    assert!(!old.succeeds().contains("etcd.replicas") && !old.stdout.contains("- `ha`"), "{}", old.stdout);
}

#[test]
fn every_image_of_every_line_moves_to_the_mirror_with_its_policy_and_secrets() {
    let sandbox = Sandbox::new();
    for line in LINES {
        let plain = json(&sandbox, &["show", "images", "--version", line, "-o", "json"]);
        let flags = ["--image-registry", "mirror.example:5000", "--image-pull-policy", "Always"];
        let flags = [&flags[..], &["--image-pull-secret", "one", "--image-pull-secret", "two"]].concat();
        let moved = json(&sandbox, &[&["show", "images", "--version", line, "-o", "json"], &flags[..]].concat());
        let (plain, moved) = (plain.as_array().unwrap(), moved.as_array().unwrap());
        assert_eq!(plain.len(), 5, "etcd, two of Kubernetes, scheduler, agent");
        let expected: BTreeSet<String> =
            plain.iter().map(|image| format!("mirror.example:5000/{}", image["image"].as_str().unwrap())).collect();
        let found: BTreeSet<String> = moved.iter().map(|image| image["image"].as_str().unwrap().to_owned()).collect();
        assert_eq!(found, expected, "{line}");
        for user in moved.iter().flat_map(|image| image["usedBy"].as_array().unwrap()) {
            assert_eq!(user["pullPolicy"], "Always", "{line} {user}");
            assert_eq!(user["pullSecrets"], serde_json::json!(["one", "two"]), "{line} {user}");
        }
    }
    let names = sandbox.run(&["show", "images", "-o", "name"]);
    assert!(names.succeeds().lines().all(|line| line.contains(':') && !line.contains(' ')), "{names:?}");
    sandbox
        .run(&["show", "images", "--set", "etcd.image.tag=1"])
        .fails(2, &["name the chart that the values are for", "control-plane"]);
}

#[test]
fn presets_are_listed_with_the_lines_that_take_them_and_printed_as_they_are() {
    let sandbox = Sandbox::new();
    let table = sandbox.run(&["show", "presets"]);
    let row = table.succeeds().lines().find(|row| row.starts_with("ha ")).unwrap();
    assert!(row.contains("v0.8 to v1.2"), "{row}");
    let ha = sandbox.run(&["show", "presets", "ha"]);
    let file = sandbox.file("ha.yaml", ha.succeeds());
    sandbox.run(&["lint", "--version", "v1.1", "--values", &file]).succeeds();
    sandbox.run(&["show", "presets", "hq"]).fails(2, &["no preset `hq`", "airgap, ha, hardened, nodeport, small"]);
    sandbox.run(&["show", "values", "agents"]).fails(2, &["`agents` is not a chart", "control-plane"]);
    sandbox.run(&["show", "values", "--version", "v9.9"]).fails(2, &["v9.9", "versions"]);
}

#[test]
fn images_are_copied_to_a_mirror_by_the_tools_for_it() {
    let sandbox = Sandbox::new();
    let images = |more: &[&str]| {
        let args = [&["show", "images", "cp", "--version", "v1.1"], more].concat();
        sandbox.run(&args)
    };
    let mirror = ["--image-registry", "mirror.example:5000"];
    let lines = images(&[&mirror[..], &["--format", "skopeo"]].concat());
    let etcd = "registry.k8s.io/etcd:3.5.35-0";
    let line = format!("skopeo copy --all --preserve-digests docker://{etcd} docker://mirror.example:5000/{etcd}\n");
    assert!(lines.succeeds().contains(&line) && lines.stdout.lines().count() == 4, "{lines:?}");
    let digest = format!("sha256:{}", "0a".repeat(32));
    let all = images(&["-o", "name"]).succeeds().lines().map(|image| format!("{image} {digest}\n")).collect::<String>();
    let digests = sandbox.file("digests.txt", &all);
    let lock = images(&["--digests", &digests]).succeeds().to_owned();
    let lock = sandbox.file("images.lock", &lock);
    let lines = images(&[&mirror[..], &["--image-lock", &lock, "-o", "crane"]].concat());
    let line = format!("crane copy registry.k8s.io/etcd@{digest} mirror.example:5000/{etcd}\n");
    assert!(lines.succeeds().contains(&line), "{lines:?}");
    let file = images(&[&mirror[..], &["-o", "hauler"]].concat());
    assert!(file.succeeds().contains(&format!("- name: {etcd}\n")) && !file.stdout.contains("mirror"), "{file:?}");
    images(&["-o", "crane"]).fails(2, &["need `--image-registry MIRROR`", "--image-registry mirror.example:5000"]);
}
