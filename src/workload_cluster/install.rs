//! The install of an agent, from preflight to a registered cluster that is Ready; a second run changes only what differs.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::charts::{SECRET_VALUES, former_object};
use super::control_plane_api::Hub;
use super::error::InstallError;
use super::plan::{FIRST_STAGE, Plan, agent_namespace_manifest};
use super::probe::{self, Probed};
use super::registration::{Identity, Seen};
use super::uninstall::{LEAVING, Leave, request_agent_deregistration};
use crate::api::labels::{INIT_SECRET, INIT_SECRET_KEY, LABEL_APP_VERSION, LABEL_INSTANCE, LABEL_PART_OF};
use crate::api::registration::{Registration, state};
use crate::api::remedy::{self, Action, Command, Remedy};
use crate::api::util::text::{visible_cell, visible_line};
use crate::apply;
use crate::apply::Planned;
use crate::chart::Object;
use crate::check::workload::{CHECKS, InitFacts, WantedAgent, WorkloadFacts};
use crate::check::{self};
use crate::install::diff::Comparison;
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::fleet_home::Home;
use crate::install::install_loop::{InstallFailure, InstallSteps, run_until_interrupted};
use crate::install::progress::{Progress, preview_adoption, record_lost};
use crate::install::recorded_values::{Recorded, ValuesForgotten};
use crate::install::session::{InstallOptions, Session, Stopped};
use crate::k8s::ObjectRef;
use crate::k8s::connect::init_kubeconfig::Init;

/// The identifier by which `--skip-preflight` leaves the probe out.
pub const PROBE: &str = "probe";

/// Control plane that an agent goes to and starts from, and the home on this machine.
#[derive(Debug)]
pub struct Place<'a> {
    /// The control plane, if the caller named it: its init Secret is copied where there is none.
    pub hub: Option<&'a Hub>,
    /// The service's home on this machine.
    pub home: &'a Home,
}

/// A finished install.
#[derive(Debug)]
pub struct Installed {
    /// Nothing had to be written to the cluster.
    pub unchanged: bool,
    /// The control plane, where it is known by name.
    pub control_plane: Option<Hub>,
    /// Address of the control plane, as the agent uses it.
    pub server: String,
}

/// Installs `plan`, or brings an earlier install of it up to date.
///
/// # Errors
/// [`InstallError`], with what became of the changes.
pub async fn install_agent(
    plan: &Plan,
    client: &Client,
    place: &Place<'_>,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
    interrupted: impl Future<Output = ()>,
) -> Result<Installed, Failure<InstallError>> {
    let deadline = Instant::now() + options.timeout;
    let journal = place.home.agent_journal(&plan.name);
    let engine = options.build_run_engine(
        client,
        plan.package.owner(),
        plan.build_agent_charts(client),
        deadline,
        Some(journal),
        progress,
    );
    run_until_interrupted(&engine, options, progress, deadline, interrupted, |session| {
        Installer::new(plan, client, place, options, session)
    })
    .await
}

/// Returns the changes that an install of `plan` would make, found by reads and dry runs.
///
/// # Errors
/// Whatever an install would refuse before its first write, and what the server refuses.
pub async fn compare_agent(
    plan: &Plan,
    client: &Client,
    place: &Place<'_>,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
) -> Result<Comparison, InstallError> {
    let deadline = Instant::now() + options.timeout;
    let engine = options.build_run_engine(
        client,
        plan.package.owner(),
        plan.build_agent_charts(client),
        deadline,
        None,
        progress,
    );
    let mut installer = Installer::new(plan, client, place, options, Session::new(&engine, progress, deadline));
    let prepared = installer.prepare_install().await?;
    installer.session.begin_session_step("Comparing with the workload cluster");
    let differences = engine.diff_plan(&prepared.whole).await.map_err(installer.session.map_engine_error())?;
    progress.finish_step("");
    Ok(Comparison::new(prepared.whole, differences, Vec::new()))
}

/// The part of the time that is left in which the control plane has to give the init Secret.
const HUB_SHARE: f32 = 0.9;

struct Installer<'a> {
    plan: &'a Plan,
    client: &'a Client,
    place: &'a Place<'a>,
    options: &'a InstallOptions,
    session: Session<'a>,
    /// The probe's pod may be there.
    probing: bool,
    /// The agent is new here, and runs: the control plane may know the cluster by it.
    registers: bool,
}

impl<'a> Installer<'a> {
    fn new(
        plan: &'a Plan,
        client: &'a Client,
        place: &'a Place<'a>,
        options: &'a InstallOptions,
        session: Session<'a>,
    ) -> Self {
        Self { plan, client, place, options, session, probing: false, registers: false }
    }
}

/// The Secret that the agent will start from, and whether we put it there.
struct Source {
    facts: InitFacts,
    /// The object to apply, if it is ours.
    secret: Option<Value>,
    hub: Option<Hub>,
}

/// Result of the preparation: the facts that were found, and the plan that follows from them.
struct Prepared {
    facts: WorkloadFacts,
    /// The rendered objects of the chart.
    rendered: Vec<Object>,
    /// The objects to apply: the namespace, perhaps the init Secret, and those of the chart.
    objects: Vec<Planned>,
    /// The init Secret is among them.
    copied: bool,
    /// The engine's plan for these objects.
    whole: apply::Plan,
    server: String,
    hub: Option<Hub>,
}

impl InstallFailure for InstallError {
    fn from_interruption() -> Self {
        Self::Interrupted
    }

    fn as_stopped(&self) -> Option<&Stopped> {
        match self {
            Self::Engine(stopped) => Some(stopped),
            _ => None,
        }
    }
}

impl InstallSteps for Installer<'_> {
    type Installed = Installed;
    type Error = InstallError;

    async fn run_steps(&mut self) -> Result<Installed, InstallError> {
        let Prepared { facts, rendered, objects, copied, whole, server, hub } = self.prepare_install().await?;
        let unchanged = whole.is_noop();
        let identity = Identity::new(self.client, self.namespace());
        let before = identity.observe_identity().await?;
        if !unchanged {
            let first_writes = whole.steps.iter().any(|step| step.stage == FIRST_STAGE && step.action.is_write());
            self.session.begin_session_step(&self.first_step_title(&facts, copied && first_writes));
            self.session.begin_plan(whole).await?;
            self.session.apply_wanted_objects(FIRST_STAGE, |_| true).await?;
            self.session.progress.finish_step("");
        }
        self.apply_chart_stages(&rendered, &objects, facts.agents.is_empty(), &identity, &before).await?;
        self.wait_until_ready(&identity, facts.init().map(Init::control_plane_digest).as_deref()).await?;
        self.session.commit_install().await?;
        Ok(Installed { unchanged, control_plane: hub, server })
    }

    async fn end_failed_run(mut self, error: &InstallError) -> FailureOutcome {
        if self.probing {
            // Its life is limited, so a cluster that no longer answers gets rid of it, too.
            let _ = probe::remove_probe_pod(self.client, self.namespace()).await;
        }
        // What a probe refuses was made for it only moments ago, and nothing runs yet.
        let refused_by_probe = matches!(error, InstallError::Probe(_));
        let rollback = self.options.rollback || refused_by_probe;
        if rollback && self.registers && matches!(self.session.is_recorded().await, Ok(false)) {
            // The control plane's half of what this install did.
            self.session.report_undo_begin();
            let left = request_agent_deregistration(self.client, self.namespace(), LEAVING).await;
            if let Ok(Leave::Stays(why)) = left {
                let there = remedy::Place::ControlPlane(Hub::access_to(self.place.hub));
                let name = &self.plan.name;
                let delete = Command::at_place(there, Action::DeleteCluster(name.to_string()));
                let advice = Remedy::new(format!("{why}; if the control plane has a Cluster {name}, delete it: "));
                self.session.progress.report_advice(&advice.command(delete));
            }
        }
        match self.session.abort_run(rollback).await {
            FailureOutcome::RolledBack if refused_by_probe => FailureOutcome::NothingWritten,
            outcome => outcome,
        }
    }
}

impl Installer<'_> {
    fn namespace(&self) -> &str {
        self.plan.package.namespace.as_str()
    }

    /// Looks, checks and plans; writes nothing.
    async fn prepare_install(&mut self) -> Result<Prepared, InstallError> {
        self.session.begin_session_step("Checking the workload cluster");
        let rendered = self.plan.render_agent()?.objects;
        let source = self.session.in_time(self.find_init_source()).await?;
        let facts = self.session.in_time(self.run_preflight(&rendered, &source)).await?;
        let init = facts.init().cloned();
        let server = init.map_or_else(String::new, |init| init.server);
        self.session.progress.finish_step(&format!(
            "{}, control plane at {}",
            visible_cell(&facts.git_version),
            visible_cell(&server)
        ));

        let first = self.first_objects(source.secret);
        let copied = first.len() > 1;
        let objects = Plan::plan_agent_objects(first, &rendered);
        let whole = self
            .session
            .engine
            .plan_install(&self.plan.agent_release(&server), &objects)
            .await
            .map_err(self.session.map_engine_error())?;
        if self.options.recorded != Recorded::Reset {
            let forgotten =
                ValuesForgotten::find_forgotten_values(&self.plan.package, &whole.state, self.client, &SECRET_VALUES);
            let forgotten = self.session.in_time::<_, InstallError>(async { Ok(forgotten.await?) }).await?;
            forgotten.map_or(Ok(()), Err)?;
        }
        record_lost(self.session.progress.as_ref(), whole.found_by_labels());
        preview_adoption(self.session.progress.as_ref(), &whole.adopted);
        self.report_renamed_objects(&whole);
        Ok(Prepared { facts, rendered, objects, copied, whole, server, hub: source.hub })
    }

    /// Reports the objects of the whole cluster that an earlier version gave names without the namespace: the objects under
    /// the new names take their place.
    fn report_renamed_objects(&self, whole: &apply::Plan) {
        let namespace = &self.plan.package.namespace;
        for step in &whole.steps {
            let former = former_object(&step.target, namespace);
            if let Some(former) = former.filter(|former| whole.prune.iter().any(|item| item.object == *former)) {
                let message = format!(
                    "{former} is replaced by {}, which other agents in the cluster do not share",
                    step.target.name
                );
                self.session.progress.report_warning(&message);
            }
        }
    }

    fn first_step_title(&self, facts: &WorkloadFacts, copies: bool) -> String {
        let namespace = self.namespace();
        match (facts.namespace_exists, copies) {
            (false, _) => format!("Creating namespace {namespace} and copying the init Secret into it"),
            (true, true) => format!("Copying the init Secret into namespace {namespace}"),
            (true, false) => format!("Using namespace {namespace} and the init Secret in it"),
        }
    }

    /// Finds the Secret to start from: that of the operator, else ours, from the control plane that was named or as it is.
    async fn find_init_source(&self) -> Result<Source, InstallError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace());
        let here = secrets.get_opt(INIT_SECRET).await?;
        let owner = self.plan.package.owner();
        let ours = here.as_ref().is_some_and(|secret| owner.has_owner_labels(&json!(secret)));
        let Some(hub) = self.place.hub else {
            let facts = InitFacts::evaluate_init_secret(here.as_ref()).await;
            let hub = match &facts {
                InitFacts::Usable { init, .. } => Hub::of_init(self.place.home, init).await,
                _ => None,
            };
            let secret = here.filter(|_| ours).map(|secret| self.build_secret_copy(&secret));
            return Ok(Source { facts, secret, hub });
        };
        // Less than is left, so that it is the one that is silent that is blamed.
        let waited = self.session.remaining_time().mul_f32(HUB_SHARE);
        let there = tokio::time::timeout(waited, hub.init_secret()).await;
        let there = there.map_err(|_| InstallError::HubSilent { name: hub.name.clone(), waited })?;
        let there = there.map_err(|source| InstallError::Hub { name: hub.name.clone(), source })?;
        let there = there.ok_or_else(|| InstallError::NoInitSecret(hub.name.clone()))?;
        let (facts, secret) = match here.filter(|_| !ours) {
            None => (InitFacts::evaluate_init_secret(Some(&there)).await, Some(self.build_secret_copy(&there))),
            // What the operator put there stays; it has to be of the same control plane.
            Some(secret) => {
                match (InitFacts::evaluate_init_secret(Some(&secret)).await, Init::from_init_secret(&there).ok()) {
                    (InitFacts::Usable { init, .. }, Some(named))
                        if init.control_plane_digest() != named.control_plane_digest() =>
                    {
                        (InitFacts::Elsewhere(init.server), None)
                    }
                    (facts, _) => (facts, None),
                }
            }
        };
        Ok(Source { facts, secret, hub: Some(hub.clone()) })
    }

    /// The Secret as it is applied here: its text, and the labels that say its owner.
    fn build_secret_copy(&self, secret: &Secret) -> Value {
        let labels = secret.metadata.labels.iter().flatten();
        let labels: serde_json::Map<String, Value> = labels
            .filter(|(key, _)| [LABEL_INSTANCE, LABEL_APP_VERSION, LABEL_PART_OF].contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        let text = secret.data.as_ref().and_then(|data| data.get(INIT_SECRET_KEY));
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": INIT_SECRET, "namespace": self.namespace(), "labels": labels},
            "type": "Opaque",
            "data": {INIT_SECRET_KEY: text},
        })
    }

    async fn run_preflight(&self, objects: &[Object], source: &Source) -> Result<WorkloadFacts, InstallError> {
        let mut wanted = WantedAgent {
            copies: source.secret.is_some(),
            control_plane: source.hub.as_ref().map(|hub| hub.name.clone()),
            hub: source.hub.as_ref().map(|hub| hub.access.clone()),
            ..self.plan.build_wanted_agent(objects)
        };
        if wanted.copies {
            wanted.writes.push((String::new(), "namespaces".to_owned(), false));
            wanted.needs.add_objects("secrets", 1);
        }
        let hub = source.hub.as_ref().map(|hub| &hub.client);
        let facts = WorkloadFacts::from_workload_cluster(self.client, hub, source.facts.clone(), wanted).await?;
        let report = check::run_checks(&CHECKS, &facts, &self.options.skip_preflight);
        if report.failures().next().is_some() {
            return Err(InstallError::Preflight(Box::new(report)));
        }
        for (judged, problem) in report.warnings() {
            self.session.progress.report_advice(&problem.format_advice(judged.title));
        }
        Ok(facts)
    }

    /// The namespace, which the engine leaves alone where it is an operator's, and the Secret, if it is ours.
    fn first_objects(&self, secret: Option<Value>) -> Vec<Value> {
        std::iter::once(agent_namespace_manifest(self.namespace())).chain(secret).collect()
    }

    /// Applies the chart; between the agent's roles and the agent itself it tests the connection to the control plane.
    async fn apply_chart_stages(
        &mut self,
        rendered: &[Object],
        objects: &[Planned],
        is_first: bool,
        identity: &Identity,
        before: &Seen,
    ) -> Result<(), InstallError> {
        let mut stages: Vec<u32> = objects.iter().map(|planned| planned.stage).filter(|s| *s > FIRST_STAGE).collect();
        stages.dedup();
        let Some(deployment) = rendered.iter().find(|object| object.kind() == "Deployment") else { return Ok(()) };
        for stage in stages {
            let starts = objects.iter().any(|p| p.stage == stage && p.object["kind"] == "Deployment");
            if starts && is_first && self.session.run.is_some() {
                self.probe_control_plane(&deployment.json).await?;
            }
            if starts {
                self.session.begin_session_step("Registering the cluster");
                self.registers = is_first;
                if before.leaving {
                    self.withdraw_leave_request(identity).await?;
                }
            }
            self.session.apply_wanted_objects(stage, |_| true).await?;
        }
        let Some(workload) = ObjectRef::of(&deployment.json) else { return Ok(()) };
        let progress = Arc::clone(self.session.progress);
        let refusal = identity.wait_until_refused(before.said.as_ref(), |said| {
            progress.update_step(&format_registration(said));
        });
        let outcome = tokio::select! {
            outcome = self.session.wait_for(&workload) => Ok(outcome),
            said = refusal => Err(said),
        };
        let refused = match outcome {
            Ok(Ok(())) => {
                self.session.progress.finish_step("connected");
                // What is to be undone if the cluster does not become Ready is not recorded before that.
                if !self.options.rollback {
                    self.session.commit_install().await?;
                }
                return Ok(());
            }
            Ok(Err(stopped)) => {
                let said = identity.observe_identity().await.ok().and_then(|seen| seen.said);
                match said.filter(|said| said.is_in_state(state::REFUSED)) {
                    Some(said) => said,
                    None => {
                        let said = identity.observe_identity().await.ok().and_then(|seen| seen.said);
                        return Err(InstallError::NotConnected { stopped, said });
                    }
                }
            }
            Err(said) => said,
        };
        if !self.options.rollback {
            // All objects are as they should be: that is recorded, so that an uninstall knows everything.
            self.session.commit_install().await?;
        }
        Err(InstallError::Refused(refused))
    }

    /// Withdraws the deregistration request of an interrupted uninstall; an agent that has read it must restart.
    async fn withdraw_leave_request(&self, identity: &Identity) -> Result<(), InstallError> {
        identity.ask_to_leave(false).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace());
        let agents = ListParams::default().labels("app.kubernetes.io/name=fleet-agent");
        pods.delete_collection(&DeleteParams::default(), &agents).await?;
        Ok(())
    }

    async fn probe_control_plane(&mut self, deployment: &Value) -> Result<(), InstallError> {
        if self.options.skip_preflight.iter().any(|id| id == PROBE) {
            return Ok(());
        }
        self.session.begin_session_step("Testing the connection to the control plane from a pod");
        self.probing = true;
        let probed = probe::run_probe(self.client, deployment, self.session.remaining_time().min(probe::LIMIT)).await?;
        self.probing = false;
        match probed {
            Probed::Said(outcome) if outcome.passed => {
                self.session.progress.finish_step("DNS, TCP, TLS and token work");
            }
            Probed::Said(outcome) => return Err(InstallError::Probe(outcome)),
            Probed::Unknown(why) => {
                self.session.progress.report_warning(&format!("the connection could not be tested: {why}"));
            }
        }
        Ok(())
    }

    /// `hub` tells which control plane the agent is to be registered with, at which address.
    async fn wait_until_ready(&mut self, identity: &Identity, hub: Option<&str>) -> Result<(), InstallError> {
        self.session.begin_session_step("Waiting until the control plane reports the cluster as Ready");
        let progress = Arc::clone(self.session.progress);
        let ready = identity.wait_until_cluster_ready(hub, |said| match said {
            Some(said) => progress.update_step(&format_registration(said)),
            None => {
                progress.update_step("the agent has not read the new init Secret yet; this takes up to two minutes");
            }
        });
        if let Ok(said) = tokio::time::timeout(self.session.remaining_time(), ready).await {
            self.session.progress.finish_step(&visible_cell(&said.reason));
            return Ok(());
        }
        Err(InstallError::NotReady(identity.observe_identity().await.ok().and_then(|seen| seen.said)))
    }
}

/// The agent's word in one line.
pub fn format_registration(said: &Registration) -> String {
    let message = if said.message.is_empty() { String::new() } else { format!(": {}", visible_line(&said.message)) };
    format!("{} ({}){message}", visible_cell(&said.state), visible_cell(&said.reason))
}
