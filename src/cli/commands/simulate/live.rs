//! The state of a live control plane, as far as decisions depend on it.

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::api::mass_loss::{self, MassLossRecord};
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::cli::args::global::Global;
use crate::cli::commands::why::fleet::{list_lenient, list_objects, read_scheduler_facts};
use crate::cli::connect::{connect_to_control_plane, list_failed, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::placement::simulate::{FleetState, SourceObject};

/// Lists at the same time.
const AT_ONCE: usize = 4;

/// Reads everything that decisions depend on. Kinds that the user may not list are left out, with a warning.
pub(in crate::cli) async fn read_live_state(ui: &Ui, global: &Global) -> Result<FleetState, CliError> {
    let client = connect_to_control_plane(global).await?.client;
    let said = read_scheduler_facts(&client).await?.ok_or_else(cannot_read)?;
    let lists = tokio::try_join!(
        list_lenient::<SchedulePolicy>(&client, "schedulepolicies"),
        list_lenient::<Cluster>(&client, "clusters"),
        list_lenient::<ScheduleGroup>(&client, "schedulegroups"),
        list_lenient::<Schedule>(&client, "schedules"),
        list_lenient::<ClusterReport>(&client, "clusterreports"),
    );
    let (policies, clusters, groups, schedules, reports) = match lists {
        Ok(lists) => lists,
        Err((_, kube::Error::Api(status))) if status.code == 403 => return Err(cannot_read()),
        Err((what, error)) => return Err(list_failed(what, &error)),
    };
    let mut objects = Vec::new();
    let kinds: Vec<&'static Placeable> = said.kinds.iter().collect();
    let lists = kinds.into_iter().map(|kind| {
        let client = client.clone();
        async move { (kind, list_objects(&client, kind, None, None).await) }
    });
    let mut lists = stream::iter(lists).buffered(AT_ONCE);
    while let Some((kind, list)) = lists.next().await {
        match list {
            Err((_, kube::Error::Api(status))) if status.code == 403 => {
                ui.warn(&format!("you may not list {}: they are left out", kind.plural));
            }
            Err((what, error)) => return Err(list_failed(what, &error)),
            // What cannot be read cannot be placed.
            Ok(list) => objects.extend(list.iter().filter_map(|object| SourceObject::from_manifest(object).ok())),
        }
    }
    Ok(FleetState {
        denies_direct: said.denies_direct,
        own_namespace: said.namespace,
        frozen: is_frozen(&client).await?,
        added_kinds: list_added_kinds(&said.kinds),
        clusters,
        reports,
        policies,
        groups,
        schedules,
        objects,
    })
}

/// Returns whether most clusters were lost at once, as the scheduler has recorded it; a user who may not read it sees a fleet
/// that moves.
async fn is_frozen(client: &Client) -> Result<bool, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), mass_loss::NAMESPACE);
    match maps.get_opt(mass_loss::NAME).await {
        Ok(map) => Ok(map.and_then(|map| MassLossRecord::from_text(map.data?.get(mass_loss::KEY)?)).is_some()),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(request_failed("cannot find out whether most clusters are lost", &error)),
    }
}

fn list_added_kinds(kinds: &Kinds) -> Vec<(String, bool)> {
    let added = kinds.added_placeables().iter();
    added.map(|kind| (format!("{}/{}/{}", kind.group, kind.version, kind.kind), kind.namespaced)).collect()
}

fn cannot_read() -> CliError {
    CliError::new(Exit::Failed, "Forbidden", "you may not read what placement depends on: clusters, policies, copies")
        .hint("the ClusterRoles view and fleet:reader, both bound for the whole control plane, give that right")
        .hint("or simulate with a recording that somebody else made: `--fleet FILE`")
}
