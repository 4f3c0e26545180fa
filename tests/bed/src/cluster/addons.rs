//! What runs inside a cluster from the start: DNS, and storage where the cluster has it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Cluster;
use super::api::PATIENCE;
use crate::cluster::process::{MARK, MARK_UNIT};

const COREDNS: &str = include_str!("../../addons/coredns.yaml");
const LOCAL_PATH: &str = include_str!("../../addons/local-path.yaml");
const STORAGE_CLASS: &str = include_str!("../../addons/storage-class.yaml");

impl Cluster {
    pub(super) fn apply_addons(&self) -> Result<()> {
        let mut objects = COREDNS.to_owned();
        if self.spec.storage {
            objects = [COREDNS, LOCAL_PATH, STORAGE_CLASS].join("\n---\n");
        }
        self.apply(&objects)
    }

    pub(super) fn wait_addons(&self) -> Result<()> {
        self.wait_deployment("kube-system", "coredns")?;
        if self.spec.storage {
            self.wait_deployment("local-path-storage", "local-path-provisioner")?;
        }
        Ok(())
    }

    /// Puts the default StorageClass in place.
    pub(crate) fn apply_storage_class(&self) -> Result<()> {
        self.apply(STORAGE_CLASS)
    }

    fn wait_deployment(&self, namespace: &str, name: &str) -> Result<()> {
        self.poll(&format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"), PATIENCE, "kubelet", |text| {
            let deployment: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            deployment["status"]["readyReplicas"] == 1
        })
        .with_context(|| format!("the Deployment {namespace}/{name} does not become ready"))
    }

    /// Applies a text of several YAML documents as the administrator.
    fn apply(&self, objects: &str) -> Result<()> {
        let kubectl = self.cache.program(&self.part()?, "kubectl");
        let mut child = Command::new(kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["apply", "--server-side", "--validate=false", "-f", "-"])
            // So that whoever removes a cluster whose start was interrupted finds it.
            .env(MARK, &self.place.id)
            .env(MARK_UNIT, &self.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("kubectl has a stdin")?.write_all(objects.as_bytes())?;
        let out = child.wait_with_output()?;
        if !out.status.success() {
            bail!("cluster `{}`: cannot apply the add-ons: {}", self.name, String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(())
    }
}
