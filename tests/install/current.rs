//! Kubernetes newer than the default version supports: what `--version auto` takes, and what others who apply manifests do.

use crate::published::{self, PLACED, PLACED_THERE};
use crate::support::{Site, bed, eventually};

/// Installs a control plane and an agent by `--version auto` in one cluster, has them run what is placed, and removes both.
/// `minor` is the Kubernetes of the cluster, `version` the newest service version that supports it.
fn auto_installs_what_runs_placed_work(cluster: &'static str, minor: &str, version: &str) {
    let site = Site::on(cluster);
    let _ = site.bed.kubectl(site.cluster, &["delete", "namespace", "fleet-agent", "shop", "--ignore-not-found"]);
    let before = site.dump();
    let kinds = format!("placement.extraKinds={PLACED}");
    let installed = site.install(&["--version", "auto", "--set-json", &kinds]);
    assert!(installed.succeeds().contains("Control plane demo is healthy"), "{installed:?}");
    let chosen = format!("service version {version}");
    assert!(installed.stderr.contains(&chosen), "{installed:?}");
    // The name of the workload cluster, the namespace of its agent, and the cluster itself.
    let west = ["west", "--namespace", "fleet-agent", "--context", site.cluster];
    let kinds = format!("placement.extraKinds={PLACED_THERE}");
    let values = ["--control-plane", "demo", "--version", "auto", "--set-json", &kinds];
    let agent = site.both(&[&["install", "agent"], &west[..], &values].concat());
    assert!(agent.succeeds().contains("west is registered with control plane demo and Ready"), "{agent:?}");
    assert!(agent.stderr.contains(&chosen), "{agent:?}");
    let reported = ["get", "cluster", "west", "-o", "jsonpath={.spec.kubernetesversion}"];
    assert_eq!(site.hub(&reported), minor);

    published::acts_on_nothing(&site);

    // What the example of the documentation places.
    let example = |file: &str| format!("{}/examples/place-workloads/{file}", env!("CARGO_MANIFEST_DIR"));
    let (policy, shop) = (example("policy.yaml"), example("shop.yaml"));
    site.hub(&["apply", "-f", &policy]);
    site.hub(&["apply", "-f", &shop]);
    site.hub(&["-n", "shop", "rollout", "status", "deployment/web", "--timeout=120s"]);
    let running = ["-n", "shop", "get", "pods", "-o", "jsonpath={.items[*].status.phase}"];
    assert_eq!(site.kubectl(&running), "Running Running");
    site.hub(&["delete", "-f", &shop, "-f", &policy]);
    eventually("the end of what was placed", || !site.kubectl(&["get", "namespaces", "-o", "name"]).contains("/shop"));

    site.both(&[&["uninstall", "agent"], &west[..]].concat()).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

#[test]
fn auto_installs_on_a_current_kubernetes_and_an_agent_of_that_line_runs_what_is_placed() {
    auto_installs_what_runs_placed_work("current", "1.36", "v1.2.0");
}

mod exhaustive {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::process::Command;

    use serde_json::Value;

    use super::*;

    #[test]
    fn auto_installs_on_the_other_minors() {
        for (cluster, minor, version) in [
            ("minor-29", "1.29", "v1.1.0"),
            ("minor-31", "1.31", "v1.2.0"),
            ("minor-33", "1.33", "v1.2.0"),
            ("minor-35", "1.35", "v1.2.0"),
            ("minor-37", "1.37", "v1.2.0"),
        ] {
            auto_installs_what_runs_placed_work(cluster, minor, version);
            // Other tests take those two.
            if !["minor-31", "minor-37"].contains(&cluster) {
                bed().down(&[cluster]).unwrap();
            }
        }
    }

    /// A minor newer than that of the version can be asked for in a first install; what it has stored is not given to an older one.
    /// It takes an API server newer than that of the table, which nothing else of the bed builds.
    #[test]
    fn the_kubernetes_of_a_control_plane_is_not_taken_back_by_a_minor() {
        let site = Site::on("minor-37");
        let newer = ["--set", "apiserver.image.tag=v1.37.2", "--set", "controllerManager.image.tag=v1.37.2"];
        site.install(&[&["--version", "auto"], &newer[..]].concat()).succeeds();
        let version = site.hub(&["version", "-o", "json"]);
        assert!(version.contains("v1.37.2"), "{version}");
        let running = site.dump();
        let back = [
            "upgrade",
            "cp",
            "demo",
            "--yes",
            "--version",
            "v1.2",
            "--set",
            "apiserver.image=null",
            "--set",
            "controllerManager.image=null",
        ];
        let said = ["has run Kubernetes v1.37; Kubernetes v1.36 cannot read everything", "nothing was written"];
        site.fleetctl(&back).fails(6, &said);
        let reset = ["check", "--pre", "demo", "--version", "v1.2", "--reset-values"];
        site.fleetctl(&reset).fails(3, &said);
        let grown = ["check", "--pre", "demo", "--version", "v1.2", "--reuse-values", "--set", "etcd.replicas=3"];
        site.fleetctl(&grown)
            .fails(3, &["the number of etcd members cannot change from 1 to 3", "nothing was written"]);
        // Nor does it go back to an older line.
        let jump =
            ["check", "--pre", "demo", "--version", "v1.0", "--reuse-values", "--skip-preflight", "kubernetes-version"];
        site.fleetctl(&jump).fails(3, &["older than the installed v1.2.0"]);
        site.assert_same_as(&running);
        // Nor with the data that an uninstall keeps.
        site.fleetctl(&["uninstall", "cp", "demo"]).succeeds();
        let kept = site.dump();
        site.install(&["--version", "auto"]).fails(6, &said);
        site.assert_same_as(&kept);
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    }

    /// A repository of manifests, and what the engine that applies them says of each object: its state, and why.
    struct Repository<'s> {
        site: &'s Site,
        /// `argocd` or `flux`.
        engine: &'static str,
        manifests: PathBuf,
    }

    impl<'s> Repository<'s> {
        fn of(engine: &'static str, site: &'s Site) -> Self {
            Self { site, engine, manifests: site.home().join("manifests.yaml") }
        }

        /// Commits the output of a service version.
        fn commit(&self, version: &str) {
            let values =
                ["--set", "pki.source=InCluster", "--set", "exposure.type=NodePort", "--set", "exposure.port=32222"];
            let host = format!("exposure.host={}", self.site.bed.node_ip(self.site.cluster).unwrap());
            let output = ["template", "cp", "demo", "--for", self.engine, "--version", version, "--set", &host];
            let rendered = self.site.fleetctl(&[&output[..], &values].concat());
            assert_eq!(self.site.fleetctl(&[&output[..], &values].concat()).stdout, rendered.succeeds());
            if self.engine == "flux" && self.manifests.exists() {
                std::fs::rename(&self.manifests, self.former()).unwrap();
            }
            std::fs::write(&self.manifests, &rendered.stdout).unwrap();
        }

        /// What was committed before: Argo CD finds what is left of that by labels, Flux remembers it.
        fn former(&self) -> PathBuf {
            self.manifests.with_file_name("former.yaml")
        }

        /// Runs the engine for an Application or Kustomization that has the name of the control plane, which is the worst one
        /// that it can have.
        fn run(&self, verb: &str) -> BTreeMap<String, String> {
            let (program, name) = match self.engine {
                "argocd" => (self.site.bed.gitops(), "--application"),
                _ => (self.site.bed.flux(), "--name"),
            };
            let mut command = Command::new(program.unwrap());
            command.arg("--kubeconfig").arg(&self.site.kubeconfig).args([name, "demo"]);
            if self.former().exists() && verb == "apply" {
                command.arg("--former").arg(self.former());
            }
            command.arg(verb).arg(&self.manifests);
            let output = command.output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
            let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .map(|line| {
                    (line["object"].as_str().unwrap().to_owned(), format!("{} {}", line["state"], line["message"]))
                })
                .collect()
        }

        /// Generations of all that a sync could change.
        fn generations(&self) -> String {
            let path = "jsonpath={.items[*].metadata.generation}";
            self.site.kubectl(&["get", "deployments,statefulsets,secrets,services", "-n", "fleet", "-o", path])
        }

        /// Kustomize, by which Flux reads a folder, takes every object of one.
        fn kustomize(&self) {
            let folder = self.site.home().join("flux");
            let into = folder.display().to_string();
            let values =
                ["--set", "pki.source=InCluster", "--set", "exposure.type=LoadBalancer", "--output-dir", &into];
            let files = self
                .site
                .fleetctl(&[&["template", "cp", "demo", "--for", "flux", "--version", "v1.2"], &values[..]].concat());
            let names = files.succeeds().lines().map(|file| format!("- {}\n", file.rsplit('/').next().unwrap()));
            let list = format!(
                "kind: Kustomization\ncommonLabels: {{team: platform}}\nresources:\n{}",
                names.collect::<String>()
            );
            std::fs::write(folder.join("kustomization.yaml"), list).unwrap();
            let built = self.site.kubectl(&["kustomize", &into]);
            assert_eq!(built.matches("\nkind: ").count(), files.stdout.lines().count(), "{built}");
            assert!(!built.contains("PRIVATE KEY"));
        }
    }

    #[test]
    fn argocd_applies_upgrades_and_prunes_and_keeps_keys_and_data() {
        let site = Site::on("current");
        let before = site.dump();
        let repository = Repository::of("argocd", &site);
        repository.kustomize();
        repository.commit("v1.1");
        let done = repository.run("sync");
        assert!(done.len() > 20 && done.values().all(|state| state.starts_with(r#""Synced""#)), "{done:#?}");
        site.fleetctl(&["kubeconfig", "demo"]).succeeds();
        let status = site.fleetctl(&["status", "demo", "--wait"]);
        assert!(status.succeeds().contains("objects... applied by argocd-controller"), "{status:?}");

        // Nothing differs, and nothing is the Application's that is not in the repository: neither claims nor keys.
        let compared = repository.run("diff");
        assert!(compared.values().all(|state| state.starts_with(r#""in sync""#)), "{compared:#?}");
        let generations = repository.generations();
        repository.run("sync");
        assert_eq!(repository.generations(), generations, "a sync of the same changes nothing");

        // The next line, by a commit.
        let keys = site.secret("fleet-pki");
        repository.commit("v1.2");
        let compared = repository.run("diff");
        assert!(compared.values().any(|state| state.starts_with(r#""out of sync""#)), "{compared:#?}");
        repository.run("sync");
        let status = site.fleetctl(&["status", "demo", "--wait"]);
        assert!(status.succeeds().contains("those of service version v1.2.0"), "{status:?}");
        assert_eq!(site.secret("fleet-pki"), keys);

        // All of it goes but the namespace, the keys and the data.
        let whole = std::fs::read_to_string(&repository.manifests).unwrap();
        let namespace = whole.split("\n---\n").find(|object| object.contains("kind: Namespace")).unwrap();
        std::fs::write(&repository.manifests, namespace).unwrap();
        repository.run("sync");
        let left =
            site.kubectl(&["-n", "fleet", "get", "deployments,statefulsets,persistentvolumeclaims", "-o", "name"]);
        assert_eq!(left.trim(), "persistentvolumeclaim/etcd-data-etcd-0");
        assert_eq!(site.secret("fleet-pki"), keys);

        // And comes back as it was. It is not for fleetctl to remove while it is applied from elsewhere; what is kept of it is.
        std::fs::write(&repository.manifests, &whole).unwrap();
        repository.run("sync");
        site.fleetctl(&["status", "demo", "--wait"]).succeeds();
        let uninstall = || site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--force", "--yes"]);
        uninstall().fails(6, &["were not created by an install", "argocd-controller"]);
        assert_eq!(site.secret("fleet-pki"), keys);
        std::fs::write(&repository.manifests, namespace).unwrap();
        repository.run("sync");
        uninstall().succeeds();
        let left = site.kubectl(&["-n", "fleet", "get", "secrets,persistentvolumeclaims", "-o", "name"]);
        assert_eq!(left, "");
        site.kubectl(&["delete", "namespace", "fleet"]);
        site.assert_same_as(&before);
    }

    #[test]
    fn flux_applies_upgrades_and_prunes_and_keeps_keys_and_data() {
        let site = Site::on("current");
        let before = site.dump();
        let repository = Repository::of("flux", &site);
        let all = |done: &BTreeMap<String, String>, state: &str| {
            done.len() > 20 && done.values().all(|one| one.starts_with(&format!("\"{state}\"")))
        };
        repository.commit("v1.1");
        let done = repository.run("apply");
        assert!(all(&done, "created"), "{done:#?}");
        site.fleetctl(&["kubeconfig", "demo"]).succeeds();
        let status = site.fleetctl(&["status", "demo", "--wait"]);
        assert!(status.succeeds().contains("objects... applied by kustomize-controller"), "{status:?}");

        // Nothing differs, and what is applied again changes nothing.
        let compared = repository.run("diff");
        assert!(all(&compared, "unchanged"), "{compared:#?}");
        let generations = repository.generations();
        let done = repository.run("apply");
        assert!(all(&done, "unchanged"), "{done:#?}");
        assert_eq!(repository.generations(), generations);

        // The next line, by a commit.
        let keys = site.secret("fleet-pki");
        repository.commit("v1.2");
        let done = repository.run("apply");
        assert!(done.values().any(|state| state.starts_with(r#""configured""#)), "{done:#?}");
        let status = site.fleetctl(&["status", "demo", "--wait"]);
        assert!(status.succeeds().contains("those of service version v1.2.0"), "{status:?}");
        assert_eq!(site.secret("fleet-pki"), keys);

        // All of it goes but the namespace, the keys and the data, and comes back as it was.
        repository.run("prune");
        let left =
            site.kubectl(&["-n", "fleet", "get", "deployments,statefulsets,persistentvolumeclaims", "-o", "name"]);
        assert_eq!(left.trim(), "persistentvolumeclaim/etcd-data-etcd-0");
        assert_eq!(site.secret("fleet-pki"), keys);
        repository.run("apply");
        site.fleetctl(&["status", "demo", "--wait"]).succeeds();
        assert_eq!(site.secret("fleet-pki"), keys);

        repository.run("prune");
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--force", "--yes"]).succeeds();
        let left = site.kubectl(&["-n", "fleet", "get", "secrets,persistentvolumeclaims", "-o", "name"]);
        assert_eq!(left, "");
        site.kubectl(&["delete", "namespace", "fleet"]);
        site.assert_same_as(&before);
    }
}
