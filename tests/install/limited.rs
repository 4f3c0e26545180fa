//! A user who may do what `show rbac` prints, and nothing else.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Ran, Site};

/// The name of the user's ServiceAccount and of the bindings.
const NAME: &str = "limited";

/// Such a user of one cluster.
pub(crate) struct Limited<'s> {
    site: &'s Site,
    cluster: &'static str,
    /// What `show rbac` printed.
    roles: String,
    kubeconfig: PathBuf,
}

impl<'s> Limited<'s> {
    /// Grants a new user the roles that `show rbac` printed; their namespaces are there.
    pub(crate) fn user(site: &'s Site, cluster: &'static str, printed: &str) -> Self {
        let kubectl = |args: &[&str]| site.bed.kubectl(cluster, args).unwrap();
        let file = site.home().join("roles.yaml");
        std::fs::write(&file, printed).unwrap();
        let roles = file.display().to_string();
        let applied: Value = serde_json::from_str(&kubectl(&["apply", "-f", &roles, "-o", "json"])).unwrap();
        kubectl(&["-n", "default", "create", "serviceaccount", NAME]);
        let who = format!("--serviceaccount=default:{NAME}");
        // One object is no list.
        for role in applied["items"].as_array().unwrap_or(&vec![applied.clone()]) {
            let (kind, name) = (role["kind"].as_str().unwrap(), role["metadata"]["name"].as_str().unwrap());
            match role["metadata"]["namespace"].as_str() {
                None => kubectl(&["create", "clusterrolebinding", NAME, "--clusterrole", name, &who]),
                Some(namespace) => kubectl(&["-n", namespace, "create", "rolebinding", NAME, "--role", name, &who]),
            };
            assert!(["ClusterRole", "Role"].contains(&kind), "{kind} is not what rights are granted by");
        }
        let token = kubectl(&["-n", "default", "create", "token", NAME]);
        let kubeconfig = site.home().join("limited");
        std::fs::copy(site.bed.kubeconfig(cluster).unwrap(), &kubeconfig).unwrap();
        let set = |args: &[&str]| {
            let mut command = Command::new(site.bed.kubectl_path().unwrap());
            let ended = command.arg("config").args(args).env("KUBECONFIG", &kubeconfig).output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        };
        set(&["set-credentials", NAME, "--token", token.trim()]);
        set(&["set-context", "--current", "--user", NAME]);
        Self { site, cluster, roles, kubeconfig }
    }

    /// Runs `fleetctl` as this user, who knows no other cluster.
    pub(crate) fn fleetctl(&self, args: &[&str]) -> Ran {
        let mut command = self.site.command(args);
        command.env("KUBECONFIG", &self.kubeconfig);
        self.site.finish(command)
    }

    /// Takes the user and the rights away.
    pub(crate) fn forget(self) {
        let kubectl = |args: &[&str]| self.site.bed.kubectl(self.cluster, args).unwrap();
        kubectl(&["delete", "-f", &self.roles]);
        kubectl(&["delete", "clusterrolebinding", NAME, "--ignore-not-found"]);
        kubectl(&["delete", "rolebinding", "--all-namespaces", "--field-selector", &format!("metadata.name={NAME}")]);
        kubectl(&["-n", "default", "delete", "serviceaccount", NAME]);
    }
}
