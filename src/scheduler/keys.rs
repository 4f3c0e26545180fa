//! `fleet-scheduler keys`: completes and renews the Secrets with keys of a control plane inside its hosting cluster, so
//! that certificates end for nobody, and with value `pki.source: InCluster` no private key ever leaves that.
//!
//! It is meant for a Job and a CronJob with the rights of their service account. With `--renew-only` it makes no Secret
//! and no CA: those are the install's. Pods wait for their Secrets by themselves.

use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::Api;

use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::values::lifetime;
use crate::certificates::KeysError;
use crate::certificates::complete::{KeyTarget, KeysDone};
use crate::certificates::renew::renew_certificates;
use crate::daemon::log::{self, LogFormat};
use crate::k8s::connect::daemon_client;
use crate::pki::{Choice, Endpoint, Lifetimes, San};

/// Time between two looks at the Service whose address is awaited.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The control plane and the address of its API.
#[derive(Debug, Clone, Args)]
pub struct KeysArgs {
    /// Name of the control plane
    #[arg(long)]
    pub name: ControlPlaneName,

    /// Namespace of the control plane
    #[arg(long)]
    pub namespace: NamespaceName,

    /// Service version that the Secrets are labelled with
    #[arg(long)]
    pub service_version: String,

    /// Address in kubeconfigs [default: the load balancer's address of Service `apiserver`]
    #[arg(long)]
    pub host: Option<San>,

    /// Port in kubeconfigs
    #[arg(long, default_value_t = 443)]
    pub port: u16,

    /// Additional SAN of the API server's certificate; may be repeated
    #[arg(long = "san")]
    pub sans: Vec<San>,

    /// Only renew certificates in existing Secrets: create no Secret and no CA
    #[arg(long)]
    pub renew_only: bool,

    /// Validity of the certificates that are issued, for tests
    #[arg(long, hide = true, value_parser = parse_test_lifetime)]
    pub leaf_lifetime: Option<Duration>,

    /// Time before its expiry at which a certificate is renewed, for tests
    #[arg(long, hide = true, value_parser = parse_test_lifetime)]
    pub renew_before: Option<Duration>,
}

fn parse_test_lifetime(text: &str) -> Result<Duration, String> {
    lifetime::parse_lifetime(text, Duration::from_secs(1)).map_err(|error| error.to_string())
}

/// Runs `fleet-scheduler keys` with the rights of its pod.
///
/// # Errors
/// No in-cluster configuration, and [`KeysError`].
pub fn main(format: LogFormat, args: &KeysArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let client = daemon_client::in_cluster()?;
        anyhow::Ok(ensure_keys(&client, args).await?)
    })?;
    tracing::info!(made = ?done.made, renewed = ?done.renewed, authorities = ?done.authorities, "all keys and certificates exist");
    Ok(())
}

/// Finds the address of the API server, and renews.
///
/// # Errors
/// [`KeysError`].
pub async fn ensure_keys(client: &Client, args: &KeysArgs) -> Result<KeysDone, KeysError> {
    let host = match &args.host {
        Some(host) => host.clone(),
        None => load_balancer(client, args.namespace.as_str()).await?,
    };
    let usual = Lifetimes::default();
    let target = KeyTarget {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        service_version: args.service_version.clone(),
        endpoint: Endpoint { host, port: args.port },
        sans: args.sans.clone(),
        lifetimes: Lifetimes {
            leaf: args.leaf_lifetime.unwrap_or(usual.leaf),
            renew_before: args.renew_before.unwrap_or(usual.renew_before),
            ..usual
        },
        makes_missing: !args.renew_only,
        choice: Choice::Due,
        new_admin_key: false,
    };
    renew_certificates(client, &target).await
}

/// The address that the API server's Service gets, however long that takes: the Job's deadline ends it.
async fn load_balancer(client: &Client, namespace: &str) -> Result<San, KeysError> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    loop {
        let service = services.get_opt("apiserver").await?;
        let ingress = service.and_then(|service| service.status?.load_balancer?.ingress).unwrap_or_default();
        let address = ingress.into_iter().find_map(|one| one.hostname.filter(|name| !name.is_empty()).or(one.ip));
        match address {
            Some(address) => return address.parse().map_err(KeysError::Address),
            None => tracing::info!("waiting for the address of Service apiserver"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
