//! `accept`: accepts the registration of a workload cluster with a control plane that has manual registration. It accepts
//! exactly what it has shown: this cluster, with this agent and key.

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::api::Cluster;
use crate::api::labels::ANNOTATION_KEY_FINGERPRINT;
use crate::api::lenient::Lenient;
use crate::api::names::ClusterName;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::connect::{control_plane_client, find_registered_cluster, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::{Question, Ui};
use crate::cli::output::values_error::wrong_name;

/// Digits of a fingerprint that tell a key from others.
const FEWEST_DIGITS: usize = 8;

/// Accept the registration of a workload cluster with the control plane of `--context`
#[derive(Debug, Args)]
#[command(
    after_help = "Needed only with `scheduler.registration: Manual`. The command first shows the cluster ID (the UID of
namespace kube-system) and the fingerprint of the agent's key. The agent writes the same fingerprint to its log.

Examples:
  fleetctl accept west --context demo
  fleetctl accept west --key 0a1b2c3d4e5f6071 --context demo"
)]
pub(crate) struct AcceptArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Accept without a prompt if the fingerprint of the agent's key begins with these digits, eight or more
    #[arg(long, value_name = "FINGERPRINT", value_parser = parse_fingerprint)]
    key: Option<String>,

    /// Accept any key of the agent without a prompt
    #[arg(long, conflicts_with = "key")]
    yes: bool,
}

fn parse_fingerprint(text: &str) -> Result<String, String> {
    let text = text.to_lowercase();
    if text.len() >= FEWEST_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text)
    } else {
        Err(format!("expected {FEWEST_DIGITS} hexadecimal digits or more"))
    }
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &AcceptArgs) -> Result<Exit, CliError> {
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let clusters: Api<Lenient<Cluster>> = Api::all(control_plane_client(global).await?);
    let Some(Lenient(cluster)) = find_registered_cluster(&clusters, name.as_str()).await? else {
        return Err(CliError::new(
            Exit::Failed,
            "NoSuchCluster",
            format!("workload cluster `{name}` has no pending registration"),
        )
        .hint(format!("list pending registrations: `fleetctl get clusters -o wide{}`", global.tail_flags())));
    };
    if cluster.spec.accepted {
        ui.write_stdout(&format!("Workload cluster {name} is already accepted.\n"))?;
        return Ok(Exit::Ok);
    }
    let key = cluster.annotations().get(ANNOTATION_KEY_FINGERPRINT).map_or("", String::as_str);
    ui.write_stderr(&describe_pending_cluster(&cluster, key));
    match &args.key {
        Some(wanted) if !key.starts_with(wanted.as_str()) => {
            return Err(CliError::new(
                Exit::Refused,
                "OtherAgent",
                format!("the key fingerprint of the agent that registers as {name} does not begin with {wanted}…"),
            )
            .hint("compare it with the fingerprint in the agent's log in that cluster; this registration may come from somebody else")
            .hint(format!("to reject it: `fleetctl delete cluster {name}{}`", global.tail_flags())));
        }
        Some(_) => {}
        None if args.yes => {}
        None => ui.confirm_by_name(Question::Accept, "workload cluster", name.as_str())?,
    }
    // With the version that was shown: another agent that has come since is not accepted in its place.
    let change = json!({
        "metadata": { "resourceVersion": cluster.resource_version() },
        "spec": { "accepted": true },
    });
    let accepted = clusters.patch(name.as_str(), &PatchParams::default(), &Patch::Merge(&change)).await;
    match accepted {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            return Err(CliError::new(
                Exit::Refused,
                "OtherAgent",
                format!("Cluster {name} has changed since it was shown, and was not accepted"),
            )
            .hint("run the same command again to see the change"));
        }
        Err(error) => return Err(request_failed(&format!("cannot accept Cluster {name}"), &error)),
    }
    ui.write_stdout(&format!("Accepted workload cluster {name}.\n"))?;
    Ok(Exit::Ok)
}

/// Describes the cluster with the pending registration, as text.
fn describe_pending_cluster(cluster: &Cluster, key: &str) -> String {
    let [id, key] = [cluster.spec.cluster_id.as_deref().unwrap_or_default(), key]
        .map(|text| if text.is_empty() { "none".into() } else { visible_cell(text) });
    let made = cluster.creation_timestamp().map(|made| made.0);
    let age = made.map_or(String::new(), |made| {
        let minutes = (Timestamp::now().as_second() - made.as_second()).max(0) / 60;
        format!(", requested {minutes} min ago")
    });
    format!(
        "Workload cluster {}{age}\n  cluster ID (UID of its namespace kube-system): {id}\n  key of its agent (SHA-256): {key}",
        visible_cell(&cluster.name_any()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_eight_digits_or_more() {
        assert_eq!(parse_fingerprint("0A1B2C3D").as_deref(), Ok("0a1b2c3d"));
        for wrong in ["", "0a1b2c3", "0a1b2c3g", "0a1b2c3d "] {
            assert!(parse_fingerprint(wrong).is_err(), "{wrong}");
        }
    }
}
