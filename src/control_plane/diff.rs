//! Compares an install with the cluster without changing anything: the same plan, compared by server-side dry run.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::Client;
use kube::api::Api;

use super::endpoint::exposure;
use super::endpoint::exposure::{Endpoint, unknown_endpoint};
use super::error::InstallError;
use super::etcd;
use super::keys::{complete_keys, find_keys};
use super::plan::Plan;
use super::precheck::{Precheck, precheck_install};
use super::values::PkiSource;
use crate::api::remedy::Remedy;
use crate::install::diff::Comparison;
use crate::install::fleet_home::Home;
use crate::install::progress::Progress;
use crate::install::release_spec;
use crate::install::session::{InstallOptions, Session};
use crate::pki::{self, Files};

/// Compares `plan` with the cluster, by reads and dry runs.
///
/// # Errors
/// Whatever an install would refuse before its first write, and what the server refuses.
pub async fn compare_control_plane(
    plan: &Plan,
    client: &Client,
    home: &Home,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
) -> Result<Comparison, InstallError> {
    let deadline = Instant::now() + options.timeout;
    let engine =
        options.build_run_engine(client, plan.package.owner(), plan.build_charts(client), deadline, None, progress);
    let mut session = Session::new(&engine, progress, deadline);
    session.begin_session_step("Checking the hosting cluster");
    let stopped = session.map_engine_error();
    let seen = precheck_install(plan, client, &engine, options, progress.as_ref(), |e| stopped(e).into());
    let seen = session.in_time(seen).await?;
    progress.finish_step(&seen.facts.git_version);
    session.begin_session_step("Comparing with the hosting cluster");
    let mut notes = Vec::new();
    let endpoint = session.in_time(preview_endpoint(plan, client, &seen, &mut notes)).await?;
    let stopped = session.map_engine_error();
    let found = session.in_time(find_keys::find_key_set(client, plan, home, &engine, |e| stopped(e).into())).await?;
    let keys = known_keys(plan, found, &endpoint, &mut notes)?;
    let rendered = plan.render_control_plane(&endpoint, &keys)?;
    let whole = plan
        .plan_apply(
            &engine,
            &plan.control_plane_release(&endpoint),
            &release_spec::to_planned_objects(&rendered.objects),
        )
        .await;
    let whole = whole.map_err(session.map_engine_error())?;
    if let Some(refused) =
        etcd::members::refuse_replica_change(&engine, &whole).await.map_err(session.map_engine_error())?
    {
        return Err(refused);
    }
    let differences = engine.diff_plan(&whole).await.map_err(session.map_engine_error())?;
    progress.finish_step("");
    Ok(Comparison::new(whole, differences, notes))
}

/// Returns the endpoint of the API; while it is not known yet, one whose host is a name that no DNS has.
async fn preview_endpoint(
    plan: &Plan,
    client: &Client,
    seen: &Precheck,
    notes: &mut Vec<Remedy>,
) -> Result<Endpoint, InstallError> {
    let wanted = &plan.values.exposure;
    let (kind, known) = (seen.decision.kind, seen.known_endpoint(plan));
    let services: Api<Service> = Api::namespaced(client.clone(), plan.package.namespace.as_str());
    let node_port = exposure::rendered_node_port(kind, wanted, &known);
    let service = with_node_port(services.get_opt("apiserver").await?, node_port);
    let found =
        service.and_then(|service| exposure::find_endpoint(kind, wanted, &service, &seen.facts.nodes, &known).ok());
    notes.extend(found.as_ref().and_then(|endpoint| plan.warn_moved_endpoint(&seen.state, endpoint)));
    Ok(found.unwrap_or_else(|| {
        notes.push("the address of the API server is determined at install; a placeholder name is shown".into());
        Endpoint { node_port, ..unknown_endpoint(kind) }
    }))
}

/// Returns the Service as an install makes it before it looks for the address; none where there is no Service yet and
/// only the cluster knows its port.
fn with_node_port(service: Option<Service>, node_port: Option<u16>) -> Option<Service> {
    let Some(node_port) = node_port else { return service };
    let mut service = service.unwrap_or_default();
    let ports = service.spec.get_or_insert_default().ports.get_or_insert_default();
    if ports.is_empty() {
        ports.push(ServicePort { port: 443, ..ServicePort::default() });
    }
    ports[0].node_port = Some(i32::from(node_port));
    Some(service)
}

/// The keys that an install would find, completed as it would complete them; placeholders where it would make all.
fn known_keys(plan: &Plan, found: Files, endpoint: &Endpoint, notes: &mut Vec<Remedy>) -> Result<Files, InstallError> {
    if plan.values.pki.source != PkiSource::Installer {
        return Ok(found);
    }
    if !pki::Authorities::any_in(&found) {
        notes.push("keys and certificates are created at install; placeholders are shown".into());
        return Ok(pki::placeholder_files());
    }
    let completed = complete_keys::complete_key_set(&found, plan, endpoint, Timestamp::now())?;
    if !completed.issued.is_empty() {
        notes.push(format!("{} certificates would be reissued", completed.issued.len()).into());
    }
    Ok(completed.files)
}
