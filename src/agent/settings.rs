//! Settings of `fleet-agent`: flags and environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::probe::ProbeArgs;
use super::work::namespaces::{ExistingNamespaces, NamespaceRules};
use crate::api::extra_kind::ExtraKind;
use crate::api::names::{ClusterName, DEFAULT_NAMESPACE};
use crate::api::namespace_pattern::NamespacePattern;
use crate::api::registration::IDENTITY_SECRET;
use crate::api::values::agent_certificate_lifetime::DEFAULT_CERTIFICATE_SECONDS;
use crate::api::version::ServiceVersion;
use crate::daemon::log::LogFormat;

/// Registers its workload cluster with a control plane and applies the objects that are placed there.
// A flag may be given again: further arguments of the values win over the chart's.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "fleet-agent",
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// Subcommand
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Arguments of the agent
    #[command(flatten)]
    pub args: Option<Args>,
}

/// Subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Test the connection to the control plane, and report the hop that fails
    Probe(ProbeArgs),
}

/// Arguments of the agent.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Name of this workload cluster in the control plane
    #[arg(long, env = "FLEET_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: ClusterName,

    /// Kubeconfig to register with, from the Secret `fleet-cluster-init-kubeconfig`
    #[arg(long, env = "FLEET_CONTROL_PLANE_KUBECONFIG", default_value = "/etc/fleet/kubeconfig", value_name = "FILE")]
    pub control_plane_kubeconfig: PathBuf,

    /// Namespace that the agent runs in
    #[arg(long, env = "POD_NAMESPACE", default_value = DEFAULT_NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: String,

    /// Secret that keeps the agent's key and certificate
    #[arg(long, default_value = IDENTITY_SECRET, value_name = "NAME")]
    pub identity_secret: String,

    /// Kubeconfig of this workload cluster [default: the pod's service account]
    #[arg(long, env = "FLEET_WORKLOAD_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Unique name of this process, the holder identity in the cluster's Lease
    #[arg(long, env = "POD_UID", value_name = "ID")]
    pub identity: Option<String>,

    /// Service version that this agent was installed as [default: that of the program]
    #[arg(long, env = "FLEET_SERVICE_VERSION", value_name = "VERSION")]
    pub service_version: Option<ServiceVersion>,

    /// Cloud provider to report instead of the detected one
    #[arg(long, value_name = "TEXT")]
    pub provider: Option<String>,

    /// Region to report instead of the detected one
    #[arg(long, value_name = "TEXT")]
    pub region: Option<String>,

    /// Zone to report instead of the detected ones
    #[arg(long, value_name = "TEXT")]
    pub zone: Option<String>,

    /// Name of the underlying cluster to report instead of the detected one
    #[arg(long, value_name = "TEXT")]
    pub kubernetes_cluster: Option<String>,

    /// Kinds to place in addition to the built-in ones
    #[arg(long, value_delimiter = ',', value_name = "GROUP/VERSION/KIND")]
    pub extra_kinds: Vec<ExtraKind>,

    /// Whether roles and their bindings are placed
    #[arg(long)]
    pub allow_rbac_kinds: bool,

    /// Namespaces of this cluster to place nothing in, in addition to those of Kubernetes and of the service; a name
    /// may end with `*`
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE")]
    pub protected_namespaces: Vec<NamespacePattern>,

    /// Whether copies are placed in namespaces that existed before
    #[arg(long, value_enum, default_value = "Allow", value_name = "ANSWER")]
    pub existing_namespaces: ExistingNamespaces,

    /// Validity of the requested certificate, in seconds
    #[arg(long, default_value_t = DEFAULT_CERTIFICATE_SECONDS, value_name = "SECONDS", hide = true)]
    pub certificate_seconds: i32,

    /// Time after which copies without a Schedule are deleted, in seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", hide = true)]
    pub orphan_grace_seconds: u64,

    /// Address of /healthz, /readyz and /metrics
    #[arg(long, env = "FLEET_ADMIN_ADDRESS", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub admin_address: SocketAddr,

    /// Format of log lines
    #[arg(long, env = "FLEET_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
}

impl Args {
    /// Returns the rules about namespaces.
    pub fn namespace_rules(&self) -> NamespaceRules {
        NamespaceRules {
            own: self.namespace.clone(),
            protected: self.protected_namespaces.clone(),
            existing: self.existing_namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of the chart with more behind them.
    fn parse_chart_args(more: &[&str]) -> Args {
        let chart = ["fleet-agent", "--cluster-name=west", "--admin-address=0.0.0.0:8080", "--region=one"];
        Cli::try_parse_from(chart.iter().chain(more)).unwrap().args.unwrap()
    }

    #[test]
    fn the_last_of_repeated_flags_counts() {
        assert_eq!(parse_chart_args(&[]).admin_address, "0.0.0.0:8080".parse().unwrap());
        let more = parse_chart_args(&["--admin-address=127.0.0.1:9090", "--region=two", "--log-format=text"]);
        assert_eq!(more.admin_address, "127.0.0.1:9090".parse().unwrap());
        assert_eq!((more.region.as_deref(), more.cluster_name.as_str()), (Some("two"), "west"));
    }
}
