//! The node of a cluster: containerd, kubelet and kube-proxy in the cluster's namespaces.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fs_err as fs;
use serde_json::json;

use super::Cluster;
use super::api::{PATIENCE, PODS, flags};
use crate::cluster::process::State;
use crate::cluster::registry;
use crate::parts::images::PAUSE;
use crate::run;

/// Where pods find DNS.
pub(super) const DNS: &str = "10.96.0.10";
/// Inside the node's mount namespace, where /run is the node's own.
const SOCKET: &str = "/run/containerd/containerd.sock";
const CGROUPS: &str = "/sys/fs/cgroup";

impl Cluster {
    /// What can be made ready while the API starts: cgroups, configuration, containerd.
    pub(super) fn prepare_node(&self) -> Result<()> {
        make_cgroup(&self.place.cgroup(&self.name))?;
        let conf = self.dir().join("conf");
        fs::create_dir_all(conf.join("cni"))?;
        fs::write(conf.join("cni/10-bridge.conflist"), cni().to_string())?;
        registry::point(&conf, &registry::endpoint(self.subnet))?;
        fs::write(conf.join("containerd.toml"), self.containerd(&conf))?;
        fs::write(conf.join("kubelet.yaml"), self.kubelet().to_string())?;
        let config = conf.join("containerd.toml").display().to_string();
        self.start("containerd", Path::new("containerd"), vec!["--config".to_owned(), config])
    }

    /// kubelet and kube-proxy, once the API answers and containerd listens.
    pub(super) fn start_node(&self) -> Result<()> {
        self.wait_containerd()?;
        let part = self.part()?;
        let dir = self.dir();
        let kubeconfig = |user: &str| dir.join("pki").join(format!("{user}.kubeconfig")).display().to_string();
        let mut kubelet = flags(&[
            ("config", &dir.join("conf/kubelet.yaml").display().to_string()),
            ("kubeconfig", &kubeconfig("kubelet")),
            ("hostname-override", &self.name),
            ("node-ip", &self.ip()),
            // 1.25 does not know it in the file.
            ("container-runtime-endpoint", &format!("unix://{SOCKET}")),
        ]);
        if part.minor() == "1.25" {
            // What its image clean-up must spare; later versions ask containerd.
            kubelet.extend(flags(&[("pod-infra-container-image", PAUSE)]));
        }
        self.start("kubelet", &self.program(&part, "kubelet"), kubelet)?;
        let proxy = flags(&[
            ("kubeconfig", &kubeconfig("kube-proxy")),
            ("hostname-override", &self.name),
            ("cluster-cidr", PODS),
            ("proxy-mode", "iptables"),
            // It cannot write these kernel settings inside a network namespace.
            ("conntrack-max-per-core", "0"),
            ("conntrack-tcp-timeout-established", "0s"),
            ("conntrack-tcp-timeout-close-wait", "0s"),
        ]);
        self.start("kube-proxy", &self.program(&part, "kube-proxy"), proxy)
    }

    /// Waits until the node says that it is ready, and says so by a heartbeat other than `stale`.
    pub(super) fn wait_node(&self, stale: Option<&str>) -> Result<()> {
        self.poll(&self.node_path(), PATIENCE, "kubelet", |text| {
            let ready = ready_condition(text);
            ready["status"] == "True" && (stale.is_none() || ready["lastHeartbeatTime"].as_str() != stale)
        })
    }

    /// When the node last said that it is ready; for [`Cluster::wait_node`] after a restart. The API may be down.
    pub(super) fn heartbeat(&self) -> Option<String> {
        let args = ["get", "--raw", &self.node_path(), "--request-timeout=5s"];
        let kubectl = self.cache.program(&self.part().ok()?, "kubectl");
        let mut command = std::process::Command::new(kubectl);
        let text = run::output_of(command.arg("--kubeconfig").arg(self.kubeconfig()).args(args)).ok()?;
        ready_condition(&text)["lastHeartbeatTime"].as_str().map(str::to_owned)
    }

    fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// Waits until containerd takes connections; kubelet ends when it does not.
    pub(super) fn wait_containerd(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let Some(containerd) = self.supervisor().record("containerd")?.process else {
            bail!("containerd of `{}` was not started", self.name)
        };
        // The node's /run, seen through the process that lives in it.
        let socket = PathBuf::from(format!("/proc/{}/root{SOCKET}", containerd.pid));
        // A file alone says nothing: an earlier containerd leaves its own behind.
        while UnixStream::connect(&socket).is_err() {
            if containerd.state() == State::Stopped || Instant::now() > end {
                let log = self.supervisor().log("containerd");
                bail!(
                    "cluster `{}`: containerd is not ready; {} ends:\n{}",
                    self.name,
                    log.display(),
                    self.log_tail("containerd")
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn containerd(&self, conf: &Path) -> String {
        // Layers cannot be stacked on a file system that is itself stacked, as in a CI container; then they are copied.
        let stacked = run::output("stat", &["-f", "-c", "%T", &self.dir().display().to_string()]);
        let snapshotter = if stacked.is_ok_and(|kind| kind.trim() == "overlayfs") { "native" } else { "overlayfs" };
        format!(
            "version = 2
root = \"/var/lib/containerd\"
state = \"/run/containerd\"
[grpc]
  address = \"{SOCKET}\"
[plugins.\"io.containerd.grpc.v1.cri\"]
  sandbox_image = \"{PAUSE}\"
  # Without CAP_SYS_RESOURCE runc dies when it lowers a score.
  restrict_oom_score_adj = true
  [plugins.\"io.containerd.grpc.v1.cri\".containerd]
    snapshotter = \"{snapshotter}\"
  [plugins.\"io.containerd.grpc.v1.cri\".cni]
    bin_dir = \"/usr/lib/cni\"
    conf_dir = \"{conf}/cni\"
  [plugins.\"io.containerd.grpc.v1.cri\".registry]
    config_path = \"{conf}/certs.d\"
",
            conf = conf.display()
        )
    }

    fn kubelet(&self) -> serde_json::Value {
        let pki = self.dir().join("pki");
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": pki.join("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki.join("kubelet.crt"),
            "tlsPrivateKeyFile": pki.join("kubelet.key"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.place.cgroup(&self.name)),
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            // The machine's own resolver is outside, and nothing of the bed goes there.
            "resolvConf": "/dev/null",
            "failSwapOn": false,
            // From 1.35 on a kubelet does not start on a machine with cgroup v1 otherwise; earlier ones do not know it.
            "failCgroupV1": false,
            "localStorageCapacityIsolation": false,
            // The disk is the developer's; the bed neither evicts nor cleans up because it is full.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
            "serializeImagePulls": false,
            "eventRecordQPS": 50,
        });
        if let Some(id) = &self.spec.provider_id {
            config["providerID"] = json!(id);
        }
        config
    }
}

/// Pods hang on a bridge of the node; what they send elsewhere leaves under the node's address.
fn cni() -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "bed",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// The condition Ready of a Node's JSON; null when there is none.
fn ready_condition(node: &str) -> serde_json::Value {
    let node: serde_json::Value = serde_json::from_str(node).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
}

/// The cgroup of a cluster's pods, in every hierarchy.
fn make_cgroup(name: &str) -> Result<()> {
    let root = Path::new(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
        let group = root.join(name);
        fs::create_dir_all(&group)?;
        for controller in controllers.split_whitespace() {
            // One that cannot be handed down (in use elsewhere) is one that the kubelet reports by itself.
            let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
            let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        return Ok(());
    }
    for hierarchy in fs::read_dir(root)?.filter_map(Result::ok).map(|entry| entry.path()) {
        // Names such as `cpu` may be links to `cpu,cpuacct`; the real folder comes by itself.
        if hierarchy.is_symlink() || !hierarchy.join("cgroup.procs").exists() {
            continue;
        }
        let group = hierarchy.join(name);
        fs::create_dir_all(&group)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            // A new cpuset is empty, and nothing can run in an empty one.
            if hierarchy.join(file).exists() {
                fs::write(group.join(file), fs::read_to_string(hierarchy.join(file))?)?;
            }
        }
    }
    Ok(())
}
