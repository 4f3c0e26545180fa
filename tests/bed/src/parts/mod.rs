//! What the bed builds from source: programs, their versions, and the Go module in `tests/bed/go` that pins each.

pub(crate) mod cache;
pub(crate) mod go;
pub(crate) mod images;
pub(crate) mod load;
pub(crate) mod packages;
pub(crate) mod product;
pub(crate) mod schemas;

use anyhow::{Context, Result};

/// One Go module and the programs built from it, all of one version.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The name in the cache, before the version.
    pub name: &'static str,
    /// The version, in the cache's folder name and in the programs themselves.
    pub version: &'static str,
    /// The folder below `tests/bed/go`.
    pub module: &'static str,
    /// Program and package; one command builds them all.
    pub programs: &'static [(&'static str, &'static str)],
}

const KUBE_PROGRAMS: &[(&str, &str)] = &[
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
];

/// The store behind every API: of the clusters here, and in its image that of control planes. The version is that of the
/// table `charts/versions.yaml`.
pub(crate) const ETCD: Part = Part {
    name: "etcd",
    version: "3.5.35",
    module: "etcd",
    programs: &[("etcd", "go.etcd.io/etcd/server/v3"), ("etcdctl", "go.etcd.io/etcd/etcdctl/v3")],
};

/// Cluster DNS. It and [`LOCAL_PATH`] are pinned to libraries of the versions that [`HUB`] is pinned to, so that a build of
/// all of them compiles those once: it takes 14 s of CPU then, and more than a minute alone. It is the newest CoreDNS that
/// needs none of them newer.
pub(crate) const COREDNS: Part =
    Part { name: "coredns", version: "1.13.2", module: "coredns", programs: &[("coredns", ".")] };

/// Dynamic PersistentVolumes on the node's own disk.
pub(crate) const LOCAL_PATH: Part = Part {
    name: "local-path-provisioner",
    version: "0.0.30",
    module: "local-path-provisioner",
    programs: &[("local-path-provisioner", "github.com/rancher/local-path-provisioner")],
};

/// The registry that every image of the bed comes from, where Debian's cannot be had. What follows the version counts what the program here was made
/// of: a cache that has an earlier one builds it anew.
pub(crate) const REGISTRY: Part =
    Part { name: "registry", version: "3.0.0-1", module: "registry", programs: &[("registry", ".")] };

/// Kubernetes' own reader of YAML, as a program: tests hold against it what this project writes.
pub(crate) const YAML_READER: Part =
    Part { name: "yamlread", version: "1.4.0", module: "yamlread", programs: &[("yamlread", ".")] };

/// The engine of Argo CD as a program: what it does with the manifests for it. Built only for the exhaustive tests; it is pinned to
/// libraries of [`HUB`].
pub(crate) const GITOPS: Part =
    Part { name: "gitops", version: "20260914-3", module: "gitops", programs: &[("gitops", ".")] };

/// The engine of Flux as a program, for the same. It is pinned to libraries of its own.
pub(crate) const FLUX: Part = Part { name: "flux", version: "0.78.0-2", module: "flux", programs: &[("flux", ".")] };

/// krew, which installs kubectl's plugins: out of the files of a release. Built only for those.
pub(crate) const KREW: Part =
    Part { name: "krew", version: "0.4.3", module: "krew", programs: &[("krew", "sigs.k8s.io/krew/cmd/krew")] };

/// Helm, which the benchmark of rendering compares with. Built only for that.
pub(crate) const HELM: Part =
    Part { name: "helm", version: "4.3.1", module: "helm", programs: &[("helm", "helm.sh/helm/v4/cmd/helm")] };

/// Kubernetes by minor, what CI runs on: the default version's, and that of control planes. The patch is the last one of that
/// minor whose modules can all be had.
pub(crate) const KUBERNETES: [Part; 2] =
    [Part { name: "kube", version: "1.25.4", module: "kube-1.25", programs: KUBE_PROGRAMS }, HUB];

/// Kubernetes of further minors, for the exhaustive tests alone: built when a cluster of one is asked for.
pub(crate) const FURTHER: &[Part] = &[
    Part { name: "kube", version: "1.29.15", module: "kube-1.29", programs: KUBE_PROGRAMS },
    Part { name: "kube", version: "1.31.4", module: "kube-1.31", programs: KUBE_PROGRAMS },
    Part { name: "kube", version: "1.33.13", module: "kube-1.33", programs: KUBE_PROGRAMS },
    Part { name: "kube", version: "1.35.4", module: "kube-1.35", programs: KUBE_PROGRAMS },
    Part { name: "kube", version: "1.37.2", module: "kube-1.37", programs: KUBE_PROGRAMS },
];

/// The Kubernetes of the API servers that control planes bring, of the version in the table `charts/versions.yaml`.
pub(crate) const HUB: Part = Part { name: "kube", version: "1.36.3", module: "kube-1.36", programs: KUBE_PROGRAMS };

/// Kubernetes of a minor, `1.25`.
pub(crate) fn kubernetes(minor: &str) -> Result<Part> {
    let all = || KUBERNETES.iter().chain(FURTHER);
    all().find(|part| part.minor() == minor).copied().with_context(|| {
        let known = all().map(Part::minor).collect::<Vec<_>>().join(", ");
        format!("Kubernetes {minor} is not among the bed's versions ({known}); add it in tests/bed/src/parts/mod.rs and tests/bed/go")
    })
}

/// Every part, in an order in which what one has compiled serves the next.
pub(crate) fn all() -> Vec<Part> {
    let [old, hub] = KUBERNETES;
    vec![ETCD, hub, COREDNS, LOCAL_PATH, YAML_READER, old, REGISTRY]
}

impl Part {
    /// The folder's name in the cache.
    pub fn key(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// `1.25` of 1.25.4.
    pub fn minor(&self) -> &'static str {
        self.version.rsplit_once('.').map_or(self.version, |(minor, _)| minor)
    }

    /// Build tags. Kubernetes 1.25 has the cloud providers in its tree, which no cluster here has a use for; without them
    /// it compiles in less time.
    pub fn tags(&self) -> &'static str {
        if self.name == "kube" { "providerless" } else { "" }
    }

    /// What the linker writes into the programs. Kubernetes says its version from two packages;
    /// with only one set, a 1.25 server calls itself `v0.0.0-master` at `/version`.
    pub fn linker_flags(&self) -> String {
        let mut flags = "-s -w".to_owned();
        if self.name == "kube" {
            let (major, minor) = self.minor().split_once('.').unwrap_or(("1", "0"));
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                flags += &format!(
                    " -X {package}.gitVersion=v{} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean",
                    self.version
                );
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::{ETCD, HUB};

    #[test]
    fn the_bed_builds_the_images_of_the_table() {
        let table = include_str!("../../../../charts/versions.yaml");
        for image in [
            format!("kube-apiserver, tag: v{}}}", HUB.version),
            format!("kube-controller-manager, tag: v{}}}", HUB.version),
            format!("etcd, tag: {}-0}}", ETCD.version),
        ] {
            assert!(
                table.contains(&format!("{{repository: registry.k8s.io/{image}")),
                "charts/versions.yaml lacks {image}"
            );
        }
    }
}
