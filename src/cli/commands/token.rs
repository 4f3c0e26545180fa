//! `token create`: an init token for one workload cluster, so that what is copied there lets in nobody else.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::api::bootstrap_token::{NAMESPACE, Token};
use crate::api::labels::{INIT_SECRET, INIT_SECRET_KEY, LABEL_INSTANCE, LABEL_PART_OF};
use crate::api::names::ClusterName;
use crate::api::values::token_lifetime::{CLUSTER_TOKEN_BOUNDS, DEFAULT_CLUSTER_TOKEN};
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::parse_duration;
use crate::cli::connect::{check_server_verified, connect_to_control_plane, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::k8s::connect::init_kubeconfig::{Init, build_init_kubeconfig};
use crate::workload_cluster::control_plane_api::init_secret;

/// Manage bootstrap tokens for single workload clusters
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token for the registration of one workload cluster, and print its Secret
    #[command(after_help = EXAMPLES)]
    Create(CreateTokenArgs),
}

const EXAMPLES: &str = "\
The Secret fleet-cluster-init-kubeconfig of a control plane registers clusters of any name. The Secret that this command
prints registers only this name, and expires ten minutes after its first use. Apply it to the workload cluster, in the
namespace of the agent. Install the agent without `--control-plane`, which would copy the other Secret.

Examples:
  fleetctl token create west --context demo | kubectl --context west apply --filename -
  fleetctl token create west --ttl 2h --context demo > west-token.yaml";

/// Create a token for the registration of one workload cluster, and print its Secret
#[derive(Debug, Args)]
pub(crate) struct CreateTokenArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Validity of the token, from 10m to 720h
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_CLUSTER_TOKEN, value_parser = parse_ttl)]
    ttl: Duration,

    /// Create a token even if the kubeconfig has no CA for the server
    #[arg(long)]
    allow_unverified_server: bool,
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if CLUSTER_TOKEN_BOUNDS.contains(&ttl) { Ok(ttl) } else { Err("expected a time from 10m to 720h".to_owned()) }
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: TokenCommand) -> Result<Exit, CliError> {
    let TokenCommand::Create(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let hub = connect_to_control_plane(global).await?;
    // The Secret tells an agent which control plane to obey.
    check_server_verified(&hub, args.allow_unverified_server)?;
    let client = hub.client;
    let handed_out = init_secret(&client).await;
    let handed_out =
        handed_out.map_err(|error| request_failed("read the init kubeconfig", &error))?.ok_or_else(|| {
            CliError::new(Exit::Failed, "NoInitSecret", format!("this control plane has no Secret {INIT_SECRET}"))
                .hint("check that the context is that of a control plane; its scheduler creates the Secret once the scheduler runs")
        })?;
    let init = Init::from_init_secret(&handed_out).map_err(|error| {
        let message = format!("the Secret {INIT_SECRET} of the control plane cannot be used");
        CliError::new(Exit::Failed, "NoInitSecret", message).cause(error.to_string())
    })?;
    let life = SignedDuration::try_from(args.ttl).unwrap_or(SignedDuration::from_hours(24));
    let token = Token::mint(Timestamp::now() + life, Some(name.clone()));
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let params = PostParams { field_manager: Some("fleetctl".to_owned()), ..PostParams::default() };
    let made = secrets.create(&params, &token.to_secret()).await;
    let made = made.map_err(|error| request_failed("create the token", &error))?;
    ui.write_stdout(&output::format_yaml(&copy_bootstrap_secret(
        &handed_out,
        global.namespace.as_str(),
        &build_init_kubeconfig(&init.server, &init.ca, &token),
    )))?;
    ui.write_stderr(&format!(
        "With this token one agent can register as {name}, once, until {}. It is stored as Secret {NAMESPACE}/{} of the control plane; delete that Secret to revoke it.\n",
        token.expires,
        made.name_any(),
    ));
    Ok(Exit::Ok)
}

/// The Secret for the workload cluster.
fn copy_bootstrap_secret(handed_out: &Secret, namespace: &str, kubeconfig: &str) -> Secret {
    let labels = handed_out.labels().iter();
    let labels = labels.filter(|(label, _)| [LABEL_PART_OF, LABEL_INSTANCE].contains(&label.as_str()));
    Secret {
        metadata: ObjectMeta {
            name: Some(INIT_SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(label, value)| (label.clone(), value.clone())).collect()),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([(INIT_SECRET_KEY.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))])),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_from_ten_minutes_to_thirty_days() {
        assert_eq!(parse_ttl("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_ttl("720h"), Ok(Duration::from_secs(2_592_000)));
        for wrong in ["9m", "721h", "x"] {
            assert!(parse_ttl(wrong).is_err(), "{wrong}");
        }
    }
}
