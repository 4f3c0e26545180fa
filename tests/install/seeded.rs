//! What commonly breaks an install, seeded one at a time on real nodes: each is named by the id of its cause, long before
//! the time-out. Pod Security's refusal needs no node and is tested with the engine.
//!
//! They are spread over the clusters: what an API server, a kubelet and etcd say of a fault is to be known whatever their minor is.

#![expect(clippy::print_stderr, reason = "how long each cause took is worth reading")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use fleetctl::pki::{self, Authorities, Files, Leaf, Lifetimes};
use jiff::Timestamp;

use crate::support::{Ran, Site, eventually};

/// Seconds after which an install gives up if it finds no cause.
const TIMEOUT: u64 = 600;
/// Seconds within which a cause has to be told, on a machine that runs other tests as well; alone it takes up to 30.
const TOLD: u64 = TIMEOUT / 4;

/// Mends a fault when the test ends, however it ends.
struct Mend<F: FnMut()>(F);

impl<F: FnMut()> Drop for Mend<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Installs with a long time-out; the cause must be told early, with its id and what to do.
#[track_caller]
fn named(site: &Site, args: &[&str], cause: &str) {
    let ran = site.install(&[&["--timeout", &format!("{TIMEOUT}s")], args, site.version()].concat());
    tells(&ran, cause);
}

#[track_caller]
fn tells(ran: &Ran, cause: &str) {
    ran.fails(4, &[&format!("the cause is `{cause}`"), "hint: "]);
    let (_, after) = ran.stderr.split_once("gave up after ").unwrap();
    let seconds: u64 = after.split_whitespace().next().unwrap().parse().unwrap();
    eprintln!("{cause}: told after {seconds} s, {:.0} s after the start", ran.took.as_secs_f64());
    assert!(seconds <= TOLD, "{}", ran.stderr);
}

#[test]
fn no_storage_class() {
    let site = Site::on("host");
    site.bed.remove_storage_class(site.cluster).unwrap();
    named(&site, &["--skip-preflight", "storage"], "no-default-storage-class");
}

#[test]
fn no_load_balancer() {
    let site = Site::on("current");
    let args = ["--set", "exposure.type=LoadBalancer", "--skip-preflight", "load-balancer"];
    named(&site, &args, "load-balancer-unanswered");
}

#[test]
fn a_bad_image() {
    let site = Site::on("host");
    named(&site, &["--image-tag", "v0.6.66"], "image-not-found");
}

#[test]
fn a_full_quota() {
    let site = Site::on("current");
    site.kubectl(&["create", "namespace", "fleet"]);
    site.bed.fill_quota(site.cluster, "fleet", &["pods"]).unwrap();
    site.install(site.version()).fails(3, &["quota"]);
    named(&site, &["--skip-preflight", "quota,pod-security"], "quota-exceeded");
    site.kubectl(&["delete", "namespace", "fleet"]);
}

#[test]
fn a_taint() {
    let site = Site::on("current");
    site.kubectl(&["taint", "nodes", "--all", "example.com/broken=yes:NoSchedule", "--overwrite"]);
    let _untaint = Mend(|| drop(site.kubectl(&["taint", "nodes", "--all", "example.com/broken-"])));
    named(&site, &["--skip-preflight", "nodes"], "unschedulable");
}

#[test]
fn a_dns_that_is_down() {
    let site = Site::on("current");
    let scale = |replicas: &str| {
        site.kubectl(&["-n", "kube-system", "scale", "deployment", "coredns", "--replicas", replicas]);
    };
    scale("0");
    eventually("the end of CoreDNS", || {
        !site.kubectl(&["-n", "kube-system", "get", "pods", "-o", "name"]).contains("coredns")
    });
    let _up = Mend(|| {
        scale("1");
        site.kubectl(&["-n", "kube-system", "rollout", "status", "deployment", "coredns", "--timeout=120s"]);
    });
    named(&site, &[], "name-lookup-failed");
}

/// Installs, and puts another client certificate for etcd into the API server's Secret before its pod is made.
fn with_certificate(site: &Site, make: impl FnOnce(&Files) -> (String, pki::SecretText)) -> Ran {
    let began = Instant::now();
    let mut command =
        site.command(&[&["install", "cp", "demo", "--timeout", &format!("{TIMEOUT}s")], site.version()].concat());
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    eventually("the StatefulSet etcd", || {
        site.bed
            .kubectl(site.cluster, &["-n", "fleet", "get", "statefulset", "etcd", "--ignore-not-found", "-o", "name"])
            .is_ok_and(|found| !found.is_empty())
    });
    let mut kept = Files::new();
    for (name, text) in site.secret("fleet-pki") {
        kept.insert(name, text);
    }
    let (certificate, key) = make(&kept);
    let folder = tempfile::tempdir().unwrap();
    let (certificate_file, key_file) = (folder.path().join("crt"), folder.path().join("key"));
    std::fs::write(&certificate_file, certificate).unwrap();
    std::fs::write(&key_file, key.expose()).unwrap();
    let made = site.kubectl(&[
        "create",
        "secret",
        "generic",
        "new",
        "--dry-run=client",
        "-o",
        "jsonpath={.data}",
        &format!("--from-file=apiserver-etcd-client.crt={}", certificate_file.display()),
        &format!("--from-file=apiserver-etcd-client.key={}", key_file.display()),
    ]);
    let patch = format!(r#"{{"data":{made}}}"#);
    site.kubectl(&["-n", "fleet", "patch", "secret", "apiserver-certs", "--type", "merge", "-p", &patch]);
    Ran::of(child.wait_with_output().unwrap(), began)
}

#[test]
fn a_certificate_of_a_wrong_authority() {
    let site = Site::on("current");
    let ran = with_certificate(&site, |_| {
        let now = Timestamp::now();
        let stranger = Authorities::generate_authorities(now, &Lifetimes::default()).unwrap();
        let leaf = Leaf::ApiServerEtcdClient.to_spec(Vec::new());
        pki::issue_leaf(&stranger, &leaf, now, &Lifetimes::default()).unwrap()
    });
    tells(&ran, "certificate-untrusted");
    // What the hint says.
    site.install(site.version()).succeeds();
}

#[test]
fn a_port_that_is_taken() {
    let site = Site::on("current");
    site.kubectl(&["create", "service", "nodeport", "taken", "--tcp=80:80", "--node-port=32111"]);
    let _free = Mend(|| drop(site.kubectl(&["delete", "service", "taken"])));
    let port = ["--set", "exposure.type=NodePort", "--set", "exposure.nodePort=32111"];
    let port = [&port[..], site.version()].concat();
    site.install(&port).fails(3, &["(node-port)", "default/taken", "hint: "]);
    let skipped = site.install(&[&port[..], &["--skip-preflight", "node-port"]].concat());
    skipped.fails(1, &["Finding the address of the API server failed", "32111", "already allocated"]);
}

#[test]
fn too_little_memory() {
    let site = Site::on("host");
    // The node has to have the program in its cache, as after a pull. One that has not reads it within the limit, page by
    // page, and that is slow before it is deadly. The version is told after all that is done before any server's start.
    let images = site.fleetctl(&["show", "images"]);
    let is_server = |word: &&str| word.contains("kube-apiserver:");
    let image = images.succeeds().split_whitespace().find(is_server).unwrap();
    let version = ["--restart=Never", "--command", "--", "kube-apiserver", "--version"];
    site.kubectl(&[&["run", "warm", "--image", image], &version[..]].concat());
    site.kubectl(&["wait", "pod/warm", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"]);
    site.kubectl(&["delete", "pod", "warm"]);
    let memory =
        ["--set", "apiserver.resources.requests.memory=16Mi", "--set", "apiserver.resources.limits.memory=16Mi"];
    named(&site, &memory, "out-of-memory");
}

#[test]
fn a_node_that_is_stopped() {
    let site = Site::on("host");
    site.bed.stop(site.cluster, "kubelet").unwrap();
    let _up = Mend(|| site.bed.restart(site.cluster, "kubelet").unwrap());
    eventually("the node's absence", || {
        !site
            .kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].status}"])
            .contains("True")
    });
    let refused = site.install(&[]);
    refused.fails(3, &["(nodes)", "the only node is not ready", "hint: "]);
    let skipped = site.install(&["--skip-preflight", "nodes", "--set", "exposure.type=NodePort"]);
    skipped.fails(4, &["no usable node has an address", "--set exposure.host=HOST", "hint: see which nodes are ready"]);
    assert!(refused.took < Duration::from_secs(10), "{:?}", refused.took);
}

mod exhaustive {
    use super::*;

    /// Told like that of a wrong authority, which every run has.
    #[test]
    fn a_certificate_that_has_expired() {
        let site = Site::on("current");
        let ran = with_certificate(&site, |kept| {
            let authorities = Authorities::from_map(kept).unwrap();
            let past = Timestamp::now() - jiff::SignedDuration::from_hours(24 * 365 * 3);
            let leaf = Leaf::ApiServerEtcdClient.to_spec(Vec::new());
            pki::issue_leaf(&authorities, &leaf, past, &Lifetimes::default()).unwrap()
        });
        tells(&ran, "certificate-expired");
        site.install(site.version()).succeeds();
    }

    /// Told like an image that is missing, which every run has.
    #[test]
    fn a_bad_pull_secret() {
        let site = Site::on("host");
        let _open = Mend(|| site.bed.unlock_registry(site.cluster).unwrap());
        site.bed.lock_registry(site.cluster).unwrap();
        // A tag that no node has, so that it has to be pulled.
        let tag = ["--image-tag", "v0.6.67"];
        site.kubectl(&["create", "namespace", "fleet"]);
        let checked = site.fleetctl(&[&["check", "demo", "--pre", "--pull-images"], &tag[..]].concat());
        assert_eq!(checked.code, Some(3), "{checked:?}");
        assert!(checked.stdout.contains("create an image pull Secret for the registry of"), "{checked:?}");
        named(&site, &tag, "image-pull-denied");
    }
}
