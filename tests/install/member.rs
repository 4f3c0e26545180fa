//! A workload cluster of the tests beside the hosting cluster, and the program as its operator runs it.

use std::collections::BTreeMap;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::support::{Ran, Site, assert_becomes};

/// What `kubectl get clusters` prints as its first line.
pub(crate) const COLUMNS: [&str; 8] =
    ["NAME", "K8S-VERSION", "K8S-CLUSTER", "REGION", "ZONE", "READY", "IDLE", "STANDBY"];

/// A workload cluster beside a hosting cluster with a control plane `demo`.
pub(crate) struct Member<'s> {
    pub(crate) site: &'s Site,
    pub(crate) name: &'static str,
}

impl<'s> Member<'s> {
    /// The workload cluster of a site that was made [with](Site::with) it, without any trace of an agent.
    pub(crate) fn beside(site: &'s Site, name: &'static str) -> Self {
        assert!(site.has(name), "{name} may be another test's");
        let member = Self { site, name };
        member.clean();
        member
    }

    pub(crate) fn clean(&self) {
        for args in [
            &["delete", "namespace", "fleet", "fleet-two", "--ignore-not-found", "--wait=true"][..],
            // What a test that failed had placed here.
            &["delete", "namespace", "-l", "fleet-scheduler.io/placed-by", "--wait=true"],
            &["delete", "clusterrole,clusterrolebinding", "fleet-agent", "fleet-agent-fleet-two", "--ignore-not-found"],
            &[
                "-n",
                "kube-system",
                "delete",
                "role,rolebinding",
                "fleet-agent",
                "fleet-agent-fleet-two",
                "--ignore-not-found",
            ],
        ] {
            let _ = self.site.bed.kubectl(self.name, args);
        }
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.site.bed.kubectl(self.name, args).unwrap()
    }

    /// The agent's log; nothing while its cluster has not yet been told that its container runs.
    pub(crate) fn agent_log(&self) -> String {
        let log = ["-n", "fleet", "logs", "-l", "app.kubernetes.io/name=fleet-agent", "--tail=-1"];
        self.site.bed.kubectl(self.name, &log).unwrap_or_default()
    }

    pub(crate) fn dump(&self) -> BTreeMap<String, Value> {
        self.site.bed.dump(self.name).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_same_as(&self, before: &BTreeMap<String, Value>) {
        assert_becomes(before, || self.dump());
    }

    /// A command that finds all three clusters by their contexts, kubectl, and `kubectl fleet`.
    pub(crate) fn prepared(&self, mut command: Command) -> Command {
        let files =
            [self.site.kubeconfig.clone(), self.site.bed.kubeconfig(self.name).unwrap(), self.site.hub_kubeconfig()];
        command.env("KUBECONFIG", std::env::join_paths(files).unwrap()).env("PATH", self.site.path(&[]));
        command.env("HOME", self.site.home()).env("LC_ALL", "C.UTF-8");
        command
    }

    pub(crate) fn fleetctl(&self, args: &[&str]) -> Ran {
        self.site.finish(self.prepared(self.site.command(args)))
    }

    /// A run of somebody who has no control plane's kubeconfig on this machine.
    pub(crate) fn stranger(&self, args: &[&str]) -> Ran {
        let mut command = self.prepared(self.site.command(args));
        let home = self.site.home().join("stranger");
        let _ = std::fs::create_dir(&home);
        command.env("HOME", home).env("KUBECONFIG", self.site.bed.kubeconfig(self.name).unwrap());
        self.site.finish(command)
    }

    pub(crate) fn install(&self, more: &[&str]) -> Ran {
        self.fleetctl(&[&["install", "agent", self.name, "--context", self.name], more].concat())
    }

    pub(crate) fn uninstall(&self, more: &[&str]) -> Ran {
        self.fleetctl(&[&["uninstall", "agent", self.name, "--context", self.name], more].concat())
    }

    /// Makes the namespace and copies the init Secret into it, changed by `change`.
    pub(crate) fn copy_secret(&self, change: impl Fn(&mut Value)) {
        let secret = self.site.hub(&["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "json"]);
        let mut secret: Value = serde_json::from_str(&secret).unwrap();
        change(&mut secret);
        let file = self.site.home().join("secret.json");
        std::fs::write(&file, secret.to_string()).unwrap();
        self.kubectl(&["create", "namespace", "fleet"]);
        self.kubectl(&["apply", "-f", &file.display().to_string()]);
    }

    /// Copies the init Secret with the address of the control plane changed to a port of its node where nobody listens.
    pub(crate) fn copy_secret_to_a_closed_port(&self) {
        let host = self.site.bed.node_ip(self.site.cluster).unwrap();
        let server = self.site.hub(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
        let port = server.rsplit(':').next().unwrap().trim();
        let (open, closed) = (format!("{host}:{port}"), format!("{host}:9"));
        self.copy_secret(|secret| rewrite(secret, |text| text.replace(&open, &closed)));
    }

    /// The row of this cluster in the plain listing, by column.
    pub(crate) fn row(&self) -> BTreeMap<&'static str, String> {
        let paths = COLUMNS.map(|column| match column {
            "NAME" => ".metadata.name".to_owned(),
            "K8S-VERSION" => ".spec.kubernetesversion".to_owned(),
            "K8S-CLUSTER" => ".spec.kubernetescluster".to_owned(),
            "REGION" | "ZONE" => format!(".spec.{}", column.to_lowercase()),
            flag => {
                let type_ = format!("{}{}", &flag[..1], flag[1..].to_lowercase());
                format!(".status.conditions[?(@.type==\"{type_}\")].status")
            }
        });
        let template: String = paths.map(|path| format!("{{{path}}}|")).concat();
        let shown = self.site.hub(&["get", "cluster", self.name, "-o", &format!("jsonpath={template}")]);
        COLUMNS.into_iter().zip(shown.split('|').map(str::to_owned)).collect()
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.clean();
        }
    }
}

/// Changes the kubeconfig in an init Secret.
pub(crate) fn rewrite(secret: &mut Value, change: impl Fn(String) -> String) {
    let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap()).unwrap();
    let text = change(String::from_utf8(text).unwrap());
    secret["data"]["kubeconfig"] = Value::String(STANDARD.encode(text));
}
