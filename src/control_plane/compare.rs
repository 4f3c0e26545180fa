//! What an install would change, found out without changing anything: the same plan, compared by server-side dry run.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::Api;

use super::exposure::{self, Endpoint};
use super::install::{InstallError, unknown};
use super::keys;
use super::plan::Plan;
use super::survey::{Survey, survey};
use crate::apply;
use crate::install::compare::Comparison;
use crate::install::home::Home;
use crate::install::package;
use crate::install::progress::Progress;
use crate::install::run::{InstallOptions, Stopped};
use crate::pki::{self, Files};

/// Compares `plan` with the cluster, by reads and dry runs.
///
/// # Errors
/// Whatever an install would refuse before its first write, and what the server refuses.
pub async fn compare(
    plan: &Plan,
    client: &Client,
    home: &Home,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
) -> Result<Comparison, InstallError> {
    let engine = options.engine(client, plan.package.owner(), Instant::now() + options.timeout, None, progress);
    let stopped = |step: &'static str| {
        move |source: apply::Error| InstallError::from(Stopped { step: step.to_owned(), source: Box::new(source) })
    };
    let looking = "Checking the hosting cluster";
    progress.step(looking);
    let seen = survey(plan, client, &engine, &options.skip_preflight, progress.as_ref(), stopped(looking)).await?;
    progress.done(&seen.facts.git_version);
    let comparing = "Comparing with the hosting cluster";
    progress.step(comparing);
    let mut notes = Vec::new();
    let endpoint = endpoint(plan, client, &seen, &mut notes).await?;
    let found = keys::find(client, plan, home, &engine, |source| stopped(comparing)(source)).await?;
    let keys = known_keys(plan, found, &endpoint, &mut notes)?;
    let rendered = plan.render(&endpoint, &keys)?;
    let planned = engine
        .plan(&plan.release(&endpoint), &package::planned(&rendered.objects))
        .await
        .map_err(stopped(comparing))?;
    let differences = engine.diff(&planned).await.map_err(stopped(comparing))?;
    progress.done("");
    Ok(Comparison::new(planned, differences, notes))
}

/// Where the API is reached, or where it is not known yet a name that no DNS has.
async fn endpoint(
    plan: &Plan,
    client: &Client,
    seen: &Survey,
    notes: &mut Vec<String>,
) -> Result<Endpoint, InstallError> {
    let wanted = &plan.values.exposure;
    let kind = seen.decision.kind;
    let services: Api<Service> = Api::namespaced(client.clone(), plan.package.namespace.as_str());
    let service = services.get_opt("apiserver").await?;
    let found = service.and_then(|service| {
        exposure::endpoint(kind, wanted, &service, &seen.facts.nodes, seen.known_host().as_deref()).ok()
    });
    Ok(found.unwrap_or_else(|| {
        notes.push("the address of the API server is decided at install; it is shown as a name".to_owned());
        Endpoint { node_port: exposure::wanted_node_port(kind, wanted), ..unknown(kind) }
    }))
}

/// The keys that an install would find, completed as it would complete them; placeholders where it would make all.
fn known_keys(plan: &Plan, found: Files, endpoint: &Endpoint, notes: &mut Vec<String>) -> Result<Files, InstallError> {
    if !pki::Authorities::any_in(&found) {
        notes.push("keys and certificates are made at install; they are shown as placeholders".to_owned());
        return Ok(pki::placeholders());
    }
    let completed = keys::complete(&found, plan, endpoint, Timestamp::now())?;
    if !completed.issued.is_empty() {
        notes.push(format!("{} certificates would be issued anew", completed.issued.len()));
    }
    Ok(completed.files)
}
