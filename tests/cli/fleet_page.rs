//! Pages of a fleet in a browser: nothing on them is blocked or missing, and a thousand clusters open at once.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::Sandbox;
use crate::server::{list, not_found, serve, use_cluster};

/// Nodes of each cluster, and Deployments for each cluster.
const NODES: usize = 20;
const DEPLOYMENTS: usize = 3;

fn cluster(at: usize) -> Value {
    let nodes = |cpu: usize| -> Value {
        let node = |name| (format!("node-{name}"), json!({ "cpu": cpu.to_string(), "memory": "64Gi", "pods": "110" }));
        (0..NODES).map(node).collect::<serde_json::Map<_, _>>().into()
    };
    let ready = if at.is_multiple_of(7) { "False" } else { "True" };
    json!({
        "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": format!("cluster-{at:04}"), "uid": format!("cluster-{at}") },
        "spec": { "name": format!("cluster-{at:04}"), "accepted": true },
        "status": {
            "capacityResources": nodes(16), "availableResources": nodes(2 + at % 14),
            "conditions": [{ "type": "Ready", "status": ready, "reason": "ClusterReady", "message": "" }],
        },
    })
}

fn deployment(at: usize) -> Value {
    // One in nine has no place anywhere.
    let cpu = if at.is_multiple_of(9) { "400" } else { "1" };
    let containers = json!([{ "name": "c", "image": "web:1", "resources": { "requests": { "cpu": cpu } } }]);
    json!({
        "metadata": { "name": format!("web-{at}"), "namespace": "shop", "uid": format!("web-{at}"), "generation": 1,
            "creationTimestamp": "2026-01-02T00:00:00Z" },
        "spec": { "replicas": 2, "template": { "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": containers } } },
    })
}

/// The pages of a fleet of so many clusters: `get.html` as it is, and `simulate.html` without one of them.
fn write_pages(sandbox: &Sandbox, count: usize) {
    let policy = json!({
        "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": { "name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "namespaceSelector": {}, "clusterSelector": {}, "resourceSelectors": { "labelSelectors": [{}],
            "kinds": [{ "group": "apps", "kind": "Deployment" }] } },
    });
    let server = serve(move |_, path| match path.split('?').next().unwrap().rsplit('/').next().unwrap() {
        "clusters" => list(&(0..count).map(cluster).collect::<Vec<_>>()),
        "schedulepolicies" => list(std::slice::from_ref(&policy)),
        "namespaces" => list(&[json!({ "metadata": { "name": "shop" } })]),
        "deployments" => list(&(0..count * DEPLOYMENTS).map(deployment).collect::<Vec<_>>()),
        "fleet-brake" => not_found(),
        _ => list(&[]),
    });
    use_cluster(sandbox, &server);
    sandbox.file("get.html", sandbox.run(&["get", "clusters", "-o", "html"]).succeeds());
    let simulated = sandbox.run(&["simulate", "--without-cluster", "cluster-0001", "-o", "html"]);
    sandbox.file("simulate.html", simulated.succeeds());
}

/// Opens a file; returns the page as the browser holds it, and what it said on its console.
fn open_in_browser(file: &Path) -> (String, Vec<String>) {
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    let ran = browser.arg(format!("file://{}", file.display())).output().expect("Debian's package `chromium` is there");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    (
        String::from_utf8(ran.stdout).unwrap(),
        said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
    )
}

/// Milliseconds until a page is loaded and laid out, by the clock of the browser.
fn time_page(sandbox: &Sandbox, name: &str) -> f64 {
    let frame = format!(
        "<!doctype html><iframe id=page src={name} width=1200 height=900></iframe><script>const began = performance.now();\
         page.onload = () => document.title = performance.now() - began</script>"
    );
    let (dom, _) = open_in_browser(Path::new(&sandbox.file("frame.html", &frame)));
    let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).expect("it was loaded").0;
    title.parse().unwrap()
}

/// `cargo test --test cli a_browser_shows -- --ignored --nocapture` prints how long each page takes.
#[test]
#[ignore = "needs Debian's package `chromium`"]
#[expect(clippy::print_stdout, reason = "times are printed and not judged")]
fn a_browser_shows_the_page_of_a_fleet_whole() {
    for count in [3, 1_000] {
        let sandbox = Sandbox::new();
        write_pages(&sandbox, count);
        for name in ["get.html", "simulate.html"] {
            let file = sandbox.path().join(name);
            let (dom, said) = open_in_browser(&file);
            assert!(said.is_empty(), "something on it is blocked: {said:?}");
            assert_eq!(dom.matches("<tr><td>cluster-").count(), count, "a row for each cluster");
            assert!(dom.matches("</rect></svg><small>").count() >= count, "a bar for each cluster");
            let placed = dom.contains("<summary>0 → ");
            assert_eq!(placed, name == "simulate.html", "what would come to a cluster");
            let bytes = std::fs::metadata(&file).unwrap().len();
            assert!(bytes <= 3 << 20, "{bytes} bytes");
            println!("{count} clusters, {name}: {bytes} bytes, opens in {:.0} ms", time_page(&sandbox, name));
        }
    }
}
