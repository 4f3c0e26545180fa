//! The ways to reach a control plane, and the access key of a cloud.

use std::sync::atomic::{AtomicBool, Ordering};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::support::Site;

/// The names and addresses of a PEM certificate.
fn names(pem: &str) -> Vec<String> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    let extension = certificate.subject_alternative_name().unwrap().unwrap();
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => bytes.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
        other => format!("{other:?}"),
    };
    extension.value.general_names.iter().map(text).collect()
}

/// Whether any process has the text among its arguments.
fn on_any_command_line(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().chars().all(|c| c.is_ascii_digit()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[test]
fn a_load_balancer_gives_the_address_and_the_access_key_stays_secret() {
    let site = Site::on("host");
    let canary = format!("canary-{}", std::process::id());
    let key = site.home().join("key.json");
    std::fs::write(&key, format!(r#"{{"type": "service_account", "private_key": "{canary}"}}"#)).unwrap();
    let done = AtomicBool::new(false);
    let (ran, seen) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = false;
            while !done.load(Ordering::Relaxed) {
                seen |= on_any_command_line(&canary) || on_any_command_line("PRIVATE KEY-----");
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            seen
        });
        let ran = site.install(&[
            "--set",
            "exposure.type=LoadBalancer",
            "--set",
            "exposure.extraSANs={fleet.example,192.0.2.9}",
            "--cloud-access-key",
            &key.display().to_string(),
            "--cloud-project-id",
            "project-1",
        ]);
        done.store(true, Ordering::Relaxed);
        (ran, watcher.join().unwrap())
    });
    ran.succeeds();
    assert!(!seen, "key material was on a command line");
    let address = site.kubectl(&[
        "-n",
        "fleet",
        "get",
        "service",
        "apiserver",
        "-o",
        "jsonpath={.status.loadBalancer.ingress[0].ip}",
    ]);
    assert!(
        site.hub(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]).contains(&address)
    );
    let certified = names(&site.secret("apiserver-certs")["apiserver.crt"]);
    for name in [address.as_str(), "fleet.example", "192.0.2.9", "apiserver.fleet.svc", "localhost"] {
        assert!(certified.iter().any(|found| found == name), "{name} is not in {certified:?}");
    }
    assert!(site.secret("fleet-cloud-credentials")["access-key.json"].contains(&canary));
    assert!(!ran.stdout.contains(&canary) && !ran.stderr.contains(&canary));
    assert!(!site.secret("fleetctl.demo").values().any(|text| text.contains(&canary)), "the record holds no values");
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

mod exhaustive {
    use super::*;

    /// Every run has a load balancer and node ports.
    #[test]
    fn a_cluster_ip_is_reached_from_inside_only_and_is_installed_all_the_same() {
        let site = Site::on("current");
        let ran = site.install(&[&["--set", "exposure.type=ClusterIP"], site.version()].concat());
        assert!(ran.succeeds().contains("scheduler status... Running"), "{ran:?}");
        let server = site.kubectl(&["-n", "fleet", "get", "service", "apiserver", "-o", "jsonpath={.spec.clusterIP}"]);
        assert!(names(&site.secret("apiserver-certs")["apiserver.crt"]).contains(&server));
        // From here nobody can tell which workload clusters would be orphaned.
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).fails(6, &["--force", "registered"]);
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes", "--force"]).succeeds();
    }
}
