//! The install of an agent, from preflight to a registered cluster that is Ready; a second run changes only what differs.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::charts::SECRET_VALUES;
use super::control_plane_api::Hub;
use super::error::InstallError;
use super::plan::{FIRST_STAGE, Plan, namespace};
use super::probe::{self, Probed};
use super::registration::{Identity, Seen};
use super::uninstall::{LEAVING, Leave, leave};
use crate::api::labels::{INIT_SECRET, INIT_SECRET_KEY, LABEL_APP_VERSION, LABEL_INSTANCE, LABEL_PART_OF};
use crate::api::registration::{Registration, state};
use crate::api::remedy::{self, Action, Command, Remedy};
use crate::api::util::text::{visible, visible_cell};
use crate::apply;
use crate::apply::Planned;
use crate::chart::Object;
use crate::check::workload::{CHECKS, InitFacts, WantedAgent, WorkloadFacts};
use crate::check::{self};
use crate::install::diff::Comparison;
use crate::install::drive::{InstallFailure, InstallSteps, drive};
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::fleet_home::Home;
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
pub async fn install(
    plan: &Plan,
    client: &Client,
    place: &Place<'_>,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
    interrupted: impl Future<Output = ()>,
) -> Result<Installed, Failure<InstallError>> {
    let deadline = Instant::now() + options.timeout;
    let journal = place.home.agent_journal(&plan.name);
    let engine = options.engine(client, plan.package.owner(), plan.charts(client), deadline, Some(journal), progress);
    let new = |session| Installer::new(plan, client, place, options, session);
    drive(&engine, options, progress, deadline, interrupted, new).await
}

/// Returns the changes that an install of `plan` would make, found by reads and dry runs.
///
/// # Errors
/// Whatever an install would refuse before its first write, and what the server refuses.
pub async fn compare(
    plan: &Plan,
    client: &Client,
    place: &Place<'_>,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
) -> Result<Comparison, InstallError> {
    let deadline = Instant::now() + options.timeout;
    let engine = options.engine(client, plan.package.owner(), plan.charts(client), deadline, None, progress);
    let mut installer = Installer::new(plan, client, place, options, Session::new(&engine, progress, deadline));
    let prepared = installer.prepare().await?;
    installer.session.step("Comparing with the workload cluster");
    let differences = engine.diff(&prepared.whole).await.map_err(installer.session.stopped())?;
    progress.done("");
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
    fn interrupted() -> Self {
        Self::Interrupted
    }

    fn stopped(&self) -> Option<&Stopped> {
        match self {
            Self::Engine(stopped) => Some(stopped),
            _ => None,
        }
    }
}

impl InstallSteps for Installer<'_> {
    type Installed = Installed;
    type Error = InstallError;

    async fn run(&mut self) -> Result<Installed, InstallError> {
        let Prepared { facts, rendered, objects, copied, whole, server, hub } = self.prepare().await?;
        let unchanged = whole.is_noop();
        let identity = Identity::new(self.client, self.namespace());
        let before = identity.look().await?;
        if !unchanged {
            let first_writes = whole.steps.iter().any(|step| step.stage == FIRST_STAGE && step.action.writes());
            self.session.step(&self.opening(&facts, copied && first_writes));
            self.session.begin(whole).await?;
            self.session.apply(FIRST_STAGE, |_| true).await?;
            self.session.progress.done("");
        }
        self.stages(&rendered, &objects, facts.agents.is_empty(), &identity, &before).await?;
        self.ready(&identity, facts.init().map(Init::hub).as_deref()).await?;
        self.session.commit().await?;
        Ok(Installed { unchanged, control_plane: hub, server })
    }

    async fn end(mut self, error: &InstallError) -> FailureOutcome {
        if self.probing {
            // Its life is limited, so a cluster that no longer answers gets rid of it, too.
            let _ = probe::remove(self.client, self.namespace()).await;
        }
        // What a probe refuses was made for it only moments ago, and nothing runs yet.
        let refused_by_probe = matches!(error, InstallError::Probe(_));
        let rollback = self.options.rollback || refused_by_probe;
        if rollback && self.registers && matches!(self.session.is_recorded().await, Ok(false)) {
            // The control plane's half of what this install did.
            self.session.undoing();
            let left = leave(self.client, self.namespace(), LEAVING).await;
            if let Ok(Leave::Stays(why)) = left {
                let there = remedy::Place::ControlPlane(Hub::access_to(self.place.hub));
                let name = &self.plan.name;
                let delete = Command::at(there, Action::DeleteCluster(name.to_string()));
                let advice = Remedy::new(format!("{why}; if the control plane has a Cluster {name}: "));
                self.session.progress.advise(&advice.command(delete));
            }
        }
        match self.session.abort(rollback).await {
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
    async fn prepare(&mut self) -> Result<Prepared, InstallError> {
        self.session.step("Checking the workload cluster");
        let rendered = self.plan.render()?.objects;
        let source = self.session.in_time(self.source()).await?;
        let facts = self.session.in_time(self.preflight(&rendered, &source)).await?;
        let init = facts.init().cloned();
        let server = init.map_or_else(String::new, |init| init.server);
        self.session.progress.done(&format!(
            "{}, control plane at {}",
            visible_cell(&facts.git_version),
            visible_cell(&server)
        ));

        let first = self.first_objects(source.secret);
        let copied = first.len() > 1;
        let objects = Plan::planned(first, &rendered);
        let whole =
            self.session.engine.plan(&self.plan.release(&server), &objects).await.map_err(self.session.stopped())?;
        if self.options.recorded != Recorded::Reset {
            let forgotten = ValuesForgotten::by(&self.plan.package, &whole.state, self.client, &SECRET_VALUES);
            let forgotten = self.session.in_time::<_, InstallError>(async { Ok(forgotten.await?) }).await?;
            forgotten.map_or(Ok(()), Err)?;
        }
        record_lost(self.session.progress.as_ref(), whole.found_by_labels());
        preview_adoption(self.session.progress.as_ref(), &whole.adopted);
        Ok(Prepared { facts, rendered, objects, copied, whole, server, hub: source.hub })
    }

    fn opening(&self, facts: &WorkloadFacts, copies: bool) -> String {
        let namespace = self.namespace();
        match (facts.namespace_exists, copies) {
            (false, _) => format!("Creating namespace {namespace} and copying the init Secret into it"),
            (true, true) => format!("Copying the init Secret into namespace {namespace}"),
            (true, false) => format!("Using namespace {namespace} and the init Secret in it"),
        }
    }

    /// Finds the Secret to start from: that of the operator, else ours, from the control plane that was named or as it is.
    async fn source(&self) -> Result<Source, InstallError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace());
        let here = secrets.get_opt(INIT_SECRET).await?;
        let owner = self.plan.package.owner();
        let ours = here.as_ref().is_some_and(|secret| owner.labelled(&json!(secret)));
        let Some(hub) = self.place.hub else {
            let facts = InitFacts::of(here.as_ref()).await;
            let hub = match &facts {
                InitFacts::Usable { init, .. } => Hub::of_init(self.place.home, init).await,
                _ => None,
            };
            let secret = here.filter(|_| ours).map(|secret| self.copy(&secret));
            return Ok(Source { facts, secret, hub });
        };
        // Less than is left, so that it is the one that is silent that is blamed.
        let waited = self.session.left().mul_f32(HUB_SHARE);
        let there = tokio::time::timeout(waited, hub.init_secret()).await;
        let there = there.map_err(|_| InstallError::HubSilent { name: hub.name.clone(), waited })?;
        let there = there.map_err(|source| InstallError::Hub { name: hub.name.clone(), source })?;
        let there = there.ok_or_else(|| InstallError::NoInitSecret(hub.name.clone()))?;
        let (facts, secret) = match here.filter(|_| !ours) {
            None => (InitFacts::of(Some(&there)).await, Some(self.copy(&there))),
            // What the operator put there stays; it has to be of the same control plane.
            Some(secret) => match (InitFacts::of(Some(&secret)).await, Init::of(&there).ok()) {
                (InitFacts::Usable { init, .. }, Some(named)) if init.hub() != named.hub() => {
                    (InitFacts::Elsewhere(init.server), None)
                }
                (facts, _) => (facts, None),
            },
        };
        Ok(Source { facts, secret, hub: Some(hub.clone()) })
    }

    /// The Secret as it is applied here: its text, and the labels that say whose it is.
    fn copy(&self, secret: &Secret) -> Value {
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

    async fn preflight(&self, objects: &[Object], source: &Source) -> Result<WorkloadFacts, InstallError> {
        let mut wanted = WantedAgent {
            copies: source.secret.is_some(),
            control_plane: source.hub.as_ref().map(|hub| hub.name.clone()),
            hub: source.hub.as_ref().map(|hub| hub.access.clone()),
            ..self.plan.wanted(objects)
        };
        if wanted.copies {
            wanted.writes.push((String::new(), "namespaces".to_owned(), false));
            wanted.needs.add("secrets", 1);
        }
        let hub = source.hub.as_ref().map(|hub| &hub.client);
        let facts = WorkloadFacts::collect(self.client, hub, source.facts.clone(), wanted).await?;
        let report = check::run(&CHECKS, &facts, &self.options.skip_preflight);
        if report.failures().next().is_some() {
            return Err(InstallError::Preflight(Box::new(report)));
        }
        for (judged, problem) in report.warnings() {
            self.session.progress.advise(&problem.advice(judged.title));
        }
        Ok(facts)
    }

    /// The namespace, which the engine leaves alone where it is an operator's, and the Secret, if it is ours.
    fn first_objects(&self, secret: Option<Value>) -> Vec<Value> {
        std::iter::once(namespace(self.namespace())).chain(secret).collect()
    }

    /// Applies the chart; between what the agent may do and the agent itself, the way to the control plane is tried.
    async fn stages(
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
                self.probe(&deployment.json).await?;
            }
            if starts {
                self.session.step("Registering the cluster");
                self.registers = is_first;
                if before.leaving {
                    self.stay(identity).await?;
                }
            }
            self.session.apply(stage, |_| true).await?;
        }
        let Some(workload) = ObjectRef::of(&deployment.json) else { return Ok(()) };
        let progress = Arc::clone(self.session.progress);
        let heard = |said: &Registration| progress.update(&shown(said));
        let outcome = tokio::select! {
            outcome = self.session.wait_for(&workload) => Ok(outcome),
            said = identity.refused(before.said.as_ref(), heard) => Err(said),
        };
        let refused = match outcome {
            Ok(Ok(())) => {
                self.session.progress.done("connected");
                // What is to be undone if the cluster does not become Ready is not recorded before that.
                if !self.options.rollback {
                    self.session.commit().await?;
                }
                return Ok(());
            }
            Ok(Err(stopped)) => {
                let said = identity.look().await.ok().and_then(|seen| seen.said);
                match said.filter(|said| said.is(state::REFUSED)) {
                    Some(said) => said,
                    None => {
                        let said = identity.look().await.ok().and_then(|seen| seen.said);
                        return Err(InstallError::NotConnected { stopped, said });
                    }
                }
            }
            Err(said) => said,
        };
        if !self.options.rollback {
            // All objects are as they should be: that is recorded, so that an uninstall knows everything.
            self.session.commit().await?;
        }
        Err(InstallError::Refused(refused))
    }

    /// Takes back the request to leave of an uninstall that was interrupted; the agent that heard it has to start anew.
    async fn stay(&self, identity: &Identity) -> Result<(), InstallError> {
        identity.ask_to_leave(false).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace());
        let agents = ListParams::default().labels("app.kubernetes.io/name=fleet-agent");
        pods.delete_collection(&DeleteParams::default(), &agents).await?;
        Ok(())
    }

    async fn probe(&mut self, deployment: &Value) -> Result<(), InstallError> {
        if self.options.skip_preflight.iter().any(|id| id == PROBE) {
            return Ok(());
        }
        self.session.step("Trying the way to the control plane from a pod");
        self.probing = true;
        let probed = probe::run(self.client, deployment, self.session.left().min(probe::LIMIT)).await?;
        self.probing = false;
        match probed {
            Probed::Said(outcome) if outcome.passed => self.session.progress.done("DNS, TCP, TLS and token are fine"),
            Probed::Said(outcome) => return Err(InstallError::Probe(outcome)),
            Probed::Unknown(why) => self.session.progress.warn(&format!("the way could not be tried: {why}")),
        }
        Ok(())
    }

    /// `hub` tells which control plane the agent is to be registered with, at which address.
    async fn ready(&mut self, identity: &Identity, hub: Option<&str>) -> Result<(), InstallError> {
        self.session.step("Waiting until the control plane calls the cluster Ready");
        let progress = Arc::clone(self.session.progress);
        let ready = identity.ready(hub, |said| match said {
            Some(said) => progress.update(&shown(said)),
            None => progress.update("the agent has not seen the new init Secret yet, which takes up to two minutes"),
        });
        if let Ok(said) = tokio::time::timeout(self.session.left(), ready).await {
            self.session.progress.done(&visible_cell(&said.reason));
            return Ok(());
        }
        Err(InstallError::NotReady(identity.look().await.ok().and_then(|seen| seen.said)))
    }
}

/// The agent's word in one line.
pub fn shown(said: &Registration) -> String {
    let message = if said.message.is_empty() { String::new() } else { format!(": {}", visible(&said.message)) };
    format!("{} ({}){message}", visible_cell(&said.state), visible_cell(&said.reason))
}
