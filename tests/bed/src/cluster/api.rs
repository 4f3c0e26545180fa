//! The API of a cluster: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as plain processes.

use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;

use super::Cluster;
use crate::cluster::certs::{Authority, CLUSTER, Use, write_service_account_keys};
use crate::cluster::kubeconfig;
use crate::parts::ETCD;

/// Service addresses; every cluster has the same, since none is seen outside its cluster.
const SERVICES: &str = "10.96.0.0/16";
/// The first of them, where pods find the API.
const API_SERVICE: &str = "10.96.0.1";
/// Pod addresses, likewise.
pub(super) const PODS: &str = "10.244.0.0/16";
/// How long a start may take on a machine that is busy with something else.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

impl Cluster {
    fn pki(&self, file: &str) -> String {
        self.dir().join("pki").join(file).display().to_string()
    }

    /// Certificates and kubeconfigs of everyone who talks to this API.
    pub(super) fn write_identities(&self) -> Result<()> {
        let dir = self.dir().join("pki");
        let ca = Authority::in_folder(&dir, CLUSTER)?;
        write_service_account_keys(&dir)?;
        let own = self.ip();
        let names =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
        let names: Vec<_> = names
            .iter()
            .map(ToString::to_string)
            .chain(["localhost", "127.0.0.1", API_SERVICE, &own].map(String::from))
            .collect();
        ca.issue("kube-apiserver", &[], &names, Use::Server)?.write(&dir, "apiserver")?;
        ca.issue("kube-apiserver-kubelet-client", &["system:masters"], &[], Use::Client)?
            .write(&dir, "kubelet-client")?;
        let front = Authority::in_folder(&dir.join("front-proxy"), "front-proxy-ca")?;
        front.issue("front-proxy-client", &[], &[], Use::Client)?.write(&dir, "front-proxy-client")?;
        let server = format!("https://{own}:6443");
        let admin = ca.issue("kubernetes-admin", &["system:masters"], &[], Use::Client)?;
        kubeconfig::write(&self.kubeconfig(), &self.name, &server, &ca.cert, &admin)?;
        let mut users = vec![("kube-controller-manager", "system:kube-controller-manager".to_owned(), vec![])];
        if self.spec.node {
            let node = format!("system:node:{}", self.name);
            users.push(("kube-scheduler", "system:kube-scheduler".to_owned(), vec![]));
            users.push(("kube-proxy", "system:kube-proxy".to_owned(), vec![]));
            users.push(("kubelet", node.clone(), vec!["system:nodes"]));
            ca.issue(&node, &["system:nodes"], &[own, self.name.clone()], Use::Server)?.write(&dir, "kubelet")?;
        }
        for (file, user, groups) in users {
            let client = ca.issue(&user, &groups, &[], Use::Client)?;
            kubeconfig::write(&dir.join(format!("{file}.kubeconfig")), &self.name, &server, &ca.cert, &client)?;
        }
        Ok(())
    }

    /// etcd and the server, at once: the server waits for its store by itself.
    pub(super) fn start_api(&self) -> Result<()> {
        // The store of a bed may be lost with the machine, so it need not wait for the disk.
        let etcd = flags(&[
            ("name", "bed"),
            ("data-dir", "/var/lib/etcd"),
            ("listen-client-urls", "http://127.0.0.1:2379"),
            ("advertise-client-urls", "http://127.0.0.1:2379"),
            ("listen-peer-urls", "http://127.0.0.1:2380"),
            ("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
            ("initial-cluster", "bed=http://127.0.0.1:2380"),
            ("log-level", "warn"),
            ("unsafe-no-fsync", "true"),
        ]);
        self.start("etcd", &self.program(&ETCD, "etcd"), etcd)?;
        let own = self.ip();
        let mut server = flags(&[
            ("advertise-address", &own),
            ("secure-port", "6443"),
            ("allow-privileged", "true"),
            ("authorization-mode", "Node,RBAC"),
            ("client-ca-file", &self.pki("ca.crt")),
            ("enable-admission-plugins", "NodeRestriction"),
            ("enable-bootstrap-token-auth", "true"),
            ("etcd-servers", "http://127.0.0.1:2379"),
            ("kubelet-certificate-authority", &self.pki("ca.crt")),
            ("kubelet-client-certificate", &self.pki("kubelet-client.crt")),
            ("kubelet-client-key", &self.pki("kubelet-client.key")),
            // `kubectl logs` and `exec` would otherwise look the node's name up in DNS.
            ("kubelet-preferred-address-types", "InternalIP"),
            ("proxy-client-cert-file", &self.pki("front-proxy-client.crt")),
            ("proxy-client-key-file", &self.pki("front-proxy-client.key")),
            ("requestheader-allowed-names", "front-proxy-client"),
            ("requestheader-client-ca-file", &self.pki("front-proxy/ca.crt")),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-username-headers", "X-Remote-User"),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            ("service-account-key-file", &self.pki("sa.pub")),
            ("service-account-signing-key-file", &self.pki("sa.key")),
            ("service-cluster-ip-range", SERVICES),
            ("tls-cert-file", &self.pki("apiserver.crt")),
            ("tls-private-key-file", &self.pki("apiserver.key")),
        ]);
        if self.spec.control_plane {
            // Webhooks are off unless a value says otherwise.
            let always = self.read_chart_flag("apiserver", "disable-admission-plugins")?;
            server.push(format!("{always},MutatingAdmissionWebhook,ValidatingAdmissionWebhook"));
        }
        self.start("kube-apiserver", &self.program(&self.part()?, "kube-apiserver"), server)
    }

    /// Waits until the server is ready, its built-in roles included.
    pub(super) fn wait_api(&self) -> Result<()> {
        self.poll("/readyz", PATIENCE, "kube-apiserver", |text| text == "ok")
    }

    /// The controllers, and the scheduler where there is something to schedule on.
    pub(super) fn start_controllers(&self) -> Result<()> {
        let part = self.part()?;
        let own = self.pki("kube-controller-manager.kubeconfig");
        let mut manager = flags(&[
            ("kubeconfig", &own),
            ("authentication-kubeconfig", &own),
            ("authorization-kubeconfig", &own),
            ("bind-address", "127.0.0.1"),
            ("cluster-signing-cert-file", &self.pki("ca.crt")),
            ("cluster-signing-key-file", &self.pki("ca.key")),
            ("leader-elect", "false"),
            // Quotas on kinds that are defined later take effect after this.
            ("resource-quota-sync-period", "30s"),
            ("root-ca-file", &self.pki("ca.crt")),
            ("service-account-private-key-file", &self.pki("sa.key")),
            ("use-service-account-credentials", "true"),
        ]);
        manager.push(if self.spec.control_plane {
            self.read_chart_flag("controller-manager", "controllers")?
        } else {
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned()
        });
        self.start("kube-controller-manager", &self.program(&part, "kube-controller-manager"), manager)?;
        if self.spec.node {
            let own = self.pki("kube-scheduler.kubeconfig");
            let mut scheduler = flags(&[
                ("kubeconfig", &own),
                ("authentication-kubeconfig", &own),
                ("authorization-kubeconfig", &own),
                ("bind-address", "127.0.0.1"),
                ("leader-elect", "false"),
            ]);
            if self.spec.kubernetes == "1.25" {
                // Told of a claim before its own index of claims has it, 1.25 fails with `running PreFilter plugin
                // "VolumeBinding": %!w(<nil>)` and looks at the pod again only after five minutes, which is as long as an
                // install waits.
                scheduler.extend(flags(&[("pod-max-in-unschedulable-pods-duration", "20s")]));
            }
            self.start("kube-scheduler", &self.program(&part, "kube-scheduler"), scheduler)?;
        }
        Ok(())
    }

    /// A flag of a component of a control plane, with the value that the chart gives it whatever its values are.
    fn read_chart_flag(&self, component: &str, flag: &str) -> Result<String> {
        let file = format!("charts/control-plane/v0.6/templates/deployment-{component}.yaml");
        let text = fs::read_to_string(self.place.checkout.join(&file))?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("- --{flag}=")));
        // What depends on values follows in a tag.
        let line = line.with_context(|| format!("{file} has no --{flag}"))?.split("{%").next().unwrap_or_default();
        Ok(format!("--{flag}={line}"))
    }
}

/// `--name=value`, for each.
pub(super) fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
