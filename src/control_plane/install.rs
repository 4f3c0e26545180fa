//! The install of a control plane, from preflight to a healthy API; a second run changes only what differs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::Api;

use super::exposure::{self, Decision, Endpoint, NotYet};
use super::health::{self, Health};
use super::home::Home;
use super::keys::{self, ADMIN_KUBECONFIG};
use super::plan::{FIRST_STAGES, Plan};
use super::progress::{self, Progress};
use super::survey::{Survey, survey};
use super::upgrade::UpgradeRefused;
use super::values::ExposureType;
use crate::api::version::KubeMinor;
use crate::apply::{self, Engine, ObjectRef, Phase, Planned, Run, WaitOptions, WaitTarget};
use crate::chart::{Diagnostics, Object};
use crate::check::Report;
use crate::check::hosting::HostingFacts;
use crate::pki::{self, Files, FolderError, PkiError};

/// What a caller can choose about one run.
#[derive(Debug, Clone, Default)]
pub struct InstallOptions {
    /// Undo this run if it fails.
    pub rollback: bool,
    /// Checks that only warn.
    pub skip_preflight: Vec<String>,
    /// Time for everything together.
    pub timeout: Duration,
    /// Take over objects of our names that kubectl or Helm made.
    pub adopt: bool,
    /// Fields to take from other managers.
    pub take_fields: Vec<String>,
    /// How long to wait for another run.
    pub lock_wait: Duration,
}

/// A finished install.
#[derive(Debug)]
pub struct Installed {
    /// What was seen at the end.
    pub health: Health,
    /// Where the API is reached.
    pub endpoint: Endpoint,
    /// The kubeconfig that was written.
    pub kubeconfig: PathBuf,
    /// Nothing had to be written to the cluster.
    pub unchanged: bool,
}

/// Why an install ended without success.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Preflight refused; nothing was written.
    #[error("preflight refused the install")]
    Preflight(Box<Report>),
    /// What is installed cannot become the wanted version; nothing was written.
    #[error("refused to change the version")]
    Upgrade {
        /// Why.
        #[source]
        refused: UpgradeRefused,
        /// What the hosting cluster runs.
        cluster: Option<KubeMinor>,
    },
    /// The hosting cluster does not answer or refuses a read.
    #[error("cannot read the hosting cluster")]
    Cluster(#[from] kube::Error),
    /// The engine stopped.
    #[error("{step}")]
    Engine {
        /// The step during which it stopped.
        step: String,
        /// Why.
        #[source]
        source: Box<apply::Error>,
    },
    /// The chart cannot be rendered with these values.
    #[error("the chart cannot be rendered")]
    Render(#[from] Diagnostics),
    /// The address of the API server did not become known.
    #[error("timed out waiting for the condition: {0}")]
    NoAddress(NotYet),
    /// The keys in the cluster are damaged.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// A local file cannot be written.
    #[error("a local file cannot be used")]
    Local(#[from] FolderError),
    /// The control plane runs, but its API is not reached from here.
    #[error("the control plane runs, but its API at {url} cannot be reached from here")]
    Unreachable {
        /// The server URL of the kubeconfig.
        url: String,
        /// What the last try gave.
        why: String,
    },
    /// Everything is there, and not healthy.
    #[error("the control plane is not healthy")]
    Unhealthy(Box<Health>),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

/// What became of the changes of a failed run.
#[derive(Debug)]
pub enum Aftermath {
    /// Nothing had been written.
    NothingWritten,
    /// What was written stays; another install resumes it.
    Left,
    /// Everything was undone.
    RolledBack,
    /// Undoing failed as well.
    RollbackFailed(Box<apply::Error>),
}

/// A failed install: why, and what it left.
#[derive(Debug)]
pub struct Failure {
    /// The first error, which is the one to mend.
    pub error: InstallError,
    /// What became of the changes.
    pub aftermath: Aftermath,
}

/// Installs `plan`, or brings an earlier install of it up to date.
pub async fn install(
    plan: &Plan,
    client: &Client,
    home: &Home,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
    interrupted: impl Future<Output = ()>,
) -> Result<Installed, Failure> {
    let deadline = Instant::now() + options.timeout;
    let engine = Engine::new(
        client.clone(),
        plan.owner(),
        apply::Options {
            deadline: Some(deadline),
            journal: Some(home.journal(&plan.name)),
            adopt: options.adopt,
            take_fields: options.take_fields.clone(),
            lock_wait: options.lock_wait,
            ..apply::Options::default()
        },
        progress::events(progress),
    );
    let mut flow = Flow {
        plan,
        client,
        home,
        options,
        progress,
        engine: &engine,
        deadline,
        begun: false,
        run: None,
        step: String::new(),
    };
    let outcome = tokio::select! {
        outcome = flow.run() => outcome,
        () = interrupted => Err(InstallError::Interrupted),
    };
    let (run, begun) = (flow.run, flow.begun);
    match outcome {
        Ok(installed) => Ok(installed),
        Err(error) => Err(Failure { aftermath: wind_up(&engine, run, begun, options.rollback).await, error }),
    }
}

/// Ends a run that failed: undoes it if that was asked for, else lets go of the lock.
///
/// `begun` without a run means that it was cut off between its first write and its return: the journal knows.
async fn wind_up(engine: &Engine, run: Option<Run>, begun: bool, rollback: bool) -> Aftermath {
    if !begun {
        return Aftermath::NothingWritten;
    }
    if !rollback {
        if let Some(run) = run {
            // The lock expires by itself where the server is not there to take it back.
            let _ = run.release().await;
        }
        return Aftermath::Left;
    }
    let undone = match run {
        Some(run) => run.rollback().await,
        None => engine.with_deadline(None).rollback().await,
    };
    match undone {
        Ok(undone) => match undone.problems.into_iter().next() {
            None => Aftermath::RolledBack,
            Some(problem) => Aftermath::RollbackFailed(Box::new(problem)),
        },
        Err(failed) => Aftermath::RollbackFailed(Box::new(failed)),
    }
}

struct Flow<'a> {
    plan: &'a Plan,
    client: &'a Client,
    home: &'a Home,
    options: &'a InstallOptions,
    progress: &'a Arc<dyn Progress>,
    engine: &'a Engine,
    deadline: Instant,
    begun: bool,
    run: Option<Run>,
    step: String,
}

impl Flow<'_> {
    fn step(&mut self, title: &str) {
        title.clone_into(&mut self.step);
        self.progress.step(title);
    }

    fn stopped(&self) -> impl FnOnce(apply::Error) -> InstallError + use<> {
        let step = self.step.clone();
        move |source| InstallError::Engine { step, source: Box::new(source) }
    }

    async fn run(&mut self) -> Result<Installed, InstallError> {
        self.step("Checking the hosting cluster");
        let (lenient, progress) = (&self.options.skip_preflight, self.progress.as_ref());
        let seen = survey(self.plan, self.client, self.engine, lenient, progress, self.stopped()).await?;
        let known_host = seen.known_host();
        let Survey { facts, state, decision } = seen;
        self.progress.done(&format!("{}, exposure {} ({})", facts.git_version, name(&decision), decision.why));

        let endpoint = self.expose(&decision, &facts, known_host.as_deref()).await?;
        let keys = self.keys(&endpoint).await?;
        let rendered = self.plan.render(&endpoint, &keys)?;
        let planned = Plan::planned(&rendered.objects);
        let release = self.plan.release(&endpoint);
        let whole = self.engine.plan(&release, &planned).await.map_err(self.stopped())?;
        let unchanged = whole.is_noop() && self.run.is_none();
        if !unchanged {
            self.begun = true;
            match &mut self.run {
                Some(run) => run.extend(whole),
                None => self.engine.begin(whole).await.map(|run| self.run = Some(run)),
            }
            .map_err(self.stopped())?;
        }
        let upgrade = state.record.as_ref().is_some_and(|record| record.phase == Phase::Installed);
        self.stages(&rendered.objects, &planned, upgrade).await?;
        let health = self.health(&endpoint, &keys).await;
        if health.is_err() && self.options.rollback {
            return Err(health.err().unwrap_or(InstallError::Interrupted));
        }
        // All objects are there and their controllers content: that is recorded even if the API is not reached from
        // here, so that the next install mends and an uninstall knows everything.
        if let Some(run) = self.run.take() {
            run.commit().await.map_err(self.stopped())?;
        }
        let kubeconfig = self.write_kubeconfig(&keys)?;
        Ok(Installed { health: health?, endpoint, kubeconfig, unchanged })
    }

    /// Makes namespace and Service, and waits until it is known where the API will be reached.
    async fn expose(
        &mut self,
        decision: &Decision,
        facts: &HostingFacts,
        known: Option<&str>,
    ) -> Result<Endpoint, InstallError> {
        let wanted = &self.plan.values.exposure;
        let mut provisional = unknown(decision.kind);
        provisional.node_port = exposure::wanted_node_port(decision.kind, wanted);
        let rendered = self.plan.render(&provisional, &pki::placeholders())?;
        let first = rendered.objects.iter().filter(|object| FIRST_STAGES.contains(&object.stage_name.as_str()));
        let part = self.engine.plan_part(&Plan::planned(first)).await.map_err(self.stopped())?;
        if part.writes() > 0 {
            let existed = facts.namespace.exists;
            let namespace = &self.plan.namespace;
            self.step(&if existed {
                format!("Using namespace {namespace}")
            } else {
                format!("Creating namespace {namespace}")
            });
            self.begun = true;
            let run = self.engine.begin(part).await.map_err(self.stopped())?;
            self.run.insert(run).apply().await.map_err(self.stopped())?;
            self.progress.done("");
        }
        self.step("Finding the address of the API server");
        let services: Api<Service> = Api::namespaced(self.client.clone(), self.plan.namespace.as_str());
        loop {
            let service = services.get("apiserver").await?;
            match exposure::endpoint(decision.kind, wanted, &service, &facts.nodes, known) {
                Ok(endpoint) => {
                    self.progress.done(&endpoint.url());
                    return Ok(endpoint);
                }
                Err(missing @ NotYet::NoNodeAddress { .. }) => return Err(InstallError::NoAddress(missing)),
                Err(missing) if Instant::now() + Duration::from_secs(1) > self.deadline => {
                    return Err(InstallError::NoAddress(missing));
                }
                Err(missing) => self.progress.update(&missing.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Finds the keys or makes them; in this order: those of the cluster, those that `template` made here, new ones.
    async fn keys(&mut self, endpoint: &Endpoint) -> Result<Files, InstallError> {
        let name = &self.plan.name;
        let mut found = keys::from_cluster(self.client, self.plan.namespace.as_str(), name.as_str()).await?;
        if !pki::Authorities::any_in(&found) {
            found = keys::from_folder(&self.home.keys(name))?;
        }
        let completed = keys::complete(&found, self.plan, endpoint, Timestamp::now())?;
        if !completed.unchanged() {
            self.step(if completed.new_authorities { "Generating certificates" } else { "Renewing certificates" });
            self.progress.done(&format!("{} issued", completed.issued.len()));
        }
        Ok(completed.files)
    }

    /// Applies stage after stage and waits for what each starts, with one step a component.
    ///
    /// What runs already is changed one component at a time, each healthy before the next; a new control plane is
    /// healthy sooner when a stage's components start together.
    async fn stages(&mut self, objects: &[Object], planned: &[Planned], one_by_one: bool) -> Result<(), InstallError> {
        let stages: BTreeSet<u32> = planned.iter().map(|planned| planned.stage).collect();
        for stage in stages {
            let workloads: Vec<ObjectRef> = planned
                .iter()
                .zip(objects)
                .filter(|(planned, object)| planned.stage == stage && is_awaited(object.kind()))
                .filter_map(|(planned, _)| ObjectRef::of(&planned.object))
                .collect();
            for (index, workload) in workloads.iter().enumerate() {
                let step = format!("Installing {}", title(&workload.name));
                if self.step != step {
                    self.step(&step);
                }
                if index == 0 {
                    let later = |object: &ObjectRef| one_by_one && workloads[1..].contains(object);
                    self.apply(stage, |object| !later(object)).await?;
                } else if one_by_one {
                    self.apply(stage, |object| object == workload).await?;
                }
                self.wait_for(workload).await?;
                // Without its store there is no API server: one step for both.
                if workload.name != "etcd" {
                    self.progress.done("Running");
                }
            }
            if workloads.is_empty() {
                self.apply(stage, |_| true).await?;
            }
        }
        Ok(())
    }

    async fn apply(&mut self, stage: u32, wanted: impl Fn(&ObjectRef) -> bool) -> Result<(), InstallError> {
        let stopped = self.stopped();
        match &mut self.run {
            Some(run) => run.apply_part(stage, wanted).await.map_err(stopped),
            None => Ok(()),
        }
    }

    async fn wait_for(&mut self, workload: &ObjectRef) -> Result<(), InstallError> {
        let stopped = self.stopped();
        let applied = self.run.as_ref().and_then(|run| run.applied().get(workload));
        let generation = applied.and_then(|applied| applied.generation);
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        let target = WaitTarget::new(&workload.group, &workload.kind, workload.namespace.as_deref(), &workload.name);
        let targets: Vec<WaitTarget> = target.map(|target| WaitTarget { generation, ..target }).into_iter().collect();
        self.engine.wait(&targets, WaitOptions { timeout, ..WaitOptions::default() }).await.map_err(stopped)
    }

    fn write_kubeconfig(&mut self, keys: &Files) -> Result<PathBuf, InstallError> {
        let folder = self.home.control_plane(&self.plan.name);
        let text = keys.get(ADMIN_KUBECONFIG).unwrap_or_default();
        Ok(pki::write_file(&folder, "fleet-kubeconfig", text)?)
    }

    async fn health(&mut self, endpoint: &Endpoint, keys: &Files) -> Result<Health, InstallError> {
        self.step("Checking the control plane");
        let hub = health::hub(keys.get(ADMIN_KUBECONFIG).unwrap_or_default()).await;
        let hub = hub.map_err(|why| InstallError::Unreachable { url: endpoint.url(), why })?;
        let progress = Arc::clone(self.progress);
        let waiting = move |text: &str| progress.update(text);
        // An address that is known only inside the hosting cluster is tried once: this may run inside.
        let once = endpoint.kind == ExposureType::ClusterIp
            && health::look(None, Ok(&hub), self.plan.namespace.as_str()).await?.facts.inside.is_err();
        let deadline = if once { Instant::now() } else { self.deadline };
        let found = health::wait(self.client, &hub, self.plan.namespace.as_str(), deadline, &waiting).await?;
        match (&found.facts.inside, found.is_healthy()) {
            (_, true) => {
                self.progress.done("healthy");
                Ok(found)
            }
            // Inside only: from here nobody but the hosting cluster's pods reaches it, which is what was asked for.
            (Err(_), _) if endpoint.kind == ExposureType::ClusterIp => {
                self.progress.done("running; its API is reached from inside the hosting cluster only");
                Ok(found)
            }
            (Err(why), _) => Err(InstallError::Unreachable { url: endpoint.url(), why: why.clone() }),
            (Ok(_), _) => Err(InstallError::Unhealthy(Box::new(found))),
        }
    }
}

/// An endpoint before anything is known, for renderings of which only the shape matters.
pub fn unknown(kind: ExposureType) -> Endpoint {
    Endpoint { kind, host: "decided-at-install.invalid".to_owned(), port: 443, node_port: None, sans: Vec::new() }
}

fn name(decision: &Decision) -> &'static str {
    match decision.kind {
        ExposureType::Auto => "Auto",
        ExposureType::LoadBalancer => "LoadBalancer",
        ExposureType::NodePort => "NodePort",
        ExposureType::ClusterIp => "ClusterIP",
    }
}

/// The kinds that an install waits for.
pub(super) fn is_awaited(kind: &str) -> bool {
    matches!(kind, "StatefulSet" | "Deployment")
}

/// What the step that installs a workload is called in front of people.
fn title(workload: &str) -> &str {
    match workload {
        "etcd" | "apiserver" => "the API server",
        "kube-controller-manager" => "the controller manager",
        "fleet-scheduler" => "the scheduler",
        other => other,
    }
}
