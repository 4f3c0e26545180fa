//! The install of a control plane, from preflight to a healthy API; a second run changes only what differs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::Client;

use super::endpoint::exposure;
use super::endpoint::exposure::{Decision, Endpoint, Known, NotYet, unknown_endpoint};
use super::error::InstallError;
use super::etcd;
use super::health::{self, Health};
use super::keys::{complete_keys, find_keys};
use super::kubeconfig;
use super::plan::{FIRST_STAGES, Plan};
use super::precheck::{Precheck, precheck_install};
use super::values::{ExposureType, PkiSource};
use super::version::kubernetes_downgrade;
use crate::api::util::text::visible_cell;
use crate::certificates::restart::restart_controller_manager;
use crate::check::hosting::HostingFacts;
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::fleet_home::Home;
use crate::install::install_loop::{InstallFailure, InstallSteps, run_until_interrupted};
use crate::install::progress::Progress;
use crate::install::release_spec::to_planned_objects;
use crate::install::session::{InstallOptions, Session, Stopped};
use crate::inventory::{Phase, State};
use crate::k8s::ObjectRef;
use crate::pki::secrets::ADMIN_KUBECONFIG;
use crate::pki::{self, Files, Kubeconfig, Leaf};

/// A finished install.
#[derive(Debug)]
pub struct Installed {
    /// The last observation.
    pub health: Health,
    /// Endpoint of the API.
    pub endpoint: Endpoint,
    /// The kubeconfig that was written.
    pub kubeconfig: PathBuf,
    /// Whether nothing had to be written to the cluster.
    pub unchanged: bool,
}

/// Installs `plan`, or brings an earlier install of it up to date.
pub async fn install_control_plane(
    plan: &Plan,
    client: &Client,
    home: &Home,
    options: &InstallOptions,
    progress: &Arc<dyn Progress>,
    interrupted: impl Future<Output = ()>,
) -> Result<Installed, Failure<InstallError>> {
    let deadline = Instant::now() + options.timeout;
    let journal = Some(home.journal_path(&plan.name));
    let engine =
        options.build_run_engine(client, plan.package.owner(), plan.build_charts(client), deadline, journal, progress);
    run_until_interrupted(&engine, options, progress, deadline, interrupted, |session| Installer {
        plan,
        client,
        home,
        options,
        session,
        renews_kubeconfig: false,
    })
    .await
}

struct Installer<'a> {
    plan: &'a Plan,
    client: &'a Client,
    home: &'a Home,
    options: &'a InstallOptions,
    session: Session<'a>,
    /// Whether the controller manager, which reads its kubeconfig at start only, gets another one.
    renews_kubeconfig: bool,
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
        self.session.begin_session_step("Checking the hosting cluster");
        let (options, progress) = (self.options, self.session.progress.as_ref());
        let stopped = self.session.map_engine_error();
        let seen =
            precheck_install(self.plan, self.client, self.session.engine, options, progress, |e| stopped(e).into());
        let seen = self.session.in_time(seen).await?;
        let known = seen.known_endpoint(self.plan);
        let Precheck { facts, state, decision } = seen;
        self.session.progress.finish_step(&format!(
            "{}, exposure {} ({})",
            visible_cell(&facts.git_version),
            exposure_type_name(&decision),
            decision.why
        ));

        let stopped = self.session.map_engine_error();
        let found =
            find_keys::find_key_set(self.client, self.plan, self.home, self.session.engine, |e| stopped(e).into());
        let found = self.session.in_time(found).await?;
        let endpoint = self.expose_api(&decision, &facts, &state, &known).await?;
        if let Some(moved) = self.plan.warn_moved_endpoint(&state, &endpoint) {
            self.session.progress.report_advice(&moved);
        }
        let keys = self.prepare_keys(&found, &endpoint)?;
        let rendered = self.plan.render_control_plane(&endpoint, &keys)?;
        let objects = to_planned_objects(&rendered.objects);
        let release = self.plan.control_plane_release(&endpoint);
        let whole = self
            .plan
            .plan_apply(self.session.engine, &release, &objects)
            .await
            .map_err(self.session.map_engine_error())?;
        if let Some(refused) = etcd::members::refuse_replica_change(self.session.engine, &whole)
            .await
            .map_err(self.session.map_engine_error())?
        {
            return Err(refused);
        }
        let (unchanged, found_by_labels) = (whole.is_noop() && self.session.run.is_none(), whole.found_by_labels());
        if !unchanged {
            // Keys that another run has made since they were looked for are not to be replaced by those made here.
            self.session.begin_plan(whole.with_base_state(&state)).await?;
        }
        // Without its store there is no API server: one step for both.
        let recorded = state.record.as_ref().is_some_and(|record| record.phase == Phase::Installed);
        let stood = recorded || found_by_labels > 0;
        self.session.apply_stages(&objects, describe_install_step, |workload| workload == "etcd", stood).await?;
        if self.renews_kubeconfig {
            restart_controller_manager(self.client, &self.plan.package.namespace, &keys).await?;
        }
        let keys = self.keys_of_cluster(keys).await?;
        let health = self.check_health(&endpoint, &keys).await;
        if health.is_err() && self.options.rollback {
            return Err(health.err().unwrap_or(InstallError::Interrupted));
        }
        // All objects are there and their controllers content: that is recorded even if the API is not reached from
        // here, so that the next install mends and an uninstall knows everything.
        self.session.commit_install().await?;
        let kubeconfig = self.write_kubeconfig(&keys)?;
        Ok(Installed { health: health?, endpoint, kubeconfig, unchanged })
    }

    async fn end_failed_run(self, _: &InstallError) -> FailureOutcome {
        let rollback = self.options.rollback;
        let refused = if rollback && self.session.engine.has_begun() { self.downgrade_refused().await } else { None };
        match (self.session.abort_run(rollback && refused.is_none()).await, refused) {
            (FailureOutcome::Left, Some(refused)) => refused,
            (outcome, _) => outcome,
        }
    }
}

impl Installer<'_> {
    /// Returns the reason that the changes cannot be undone, or that this is unknown; none if they can be undone.
    async fn downgrade_refused(&self) -> Option<FailureOutcome> {
        let engine = self.session.engine.with_deadline(None);
        let found = match engine.read_state().await {
            Ok(state) => {
                kubernetes_downgrade::from_journal(
                    &engine,
                    &self.plan.package.namespace,
                    &engine.discard_untrusted_steps(state),
                )
                .await
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(refused) => refused.map(|refused| FailureOutcome::NotUndone(refused.to_string())),
            Err(error) => Some(FailureOutcome::RollbackFailed(Box::new(error))),
        }
    }

    /// Makes namespace and Service, and waits until it is known where the API will be reached.
    async fn expose_api(
        &mut self,
        decision: &Decision,
        facts: &HostingFacts,
        state: &State,
        known: &Known,
    ) -> Result<Endpoint, InstallError> {
        let wanted = &self.plan.values.exposure;
        let mut provisional = unknown_endpoint(decision.kind);
        provisional.node_port = exposure::rendered_node_port(decision.kind, wanted, known);
        let rendered = self.plan.render_control_plane(&provisional, &pki::placeholder_files())?;
        let first = rendered.objects.iter().filter(|object| FIRST_STAGES.contains(&object.stage_name.as_str()));
        let service = rendered.objects.iter().find(|object| object.stage_name == FIRST_STAGES[1]);
        let exposure = service.and_then(|object| u32::try_from(object.stage).ok()).unwrap_or_default();
        let part =
            self.session.engine.plan_part(&to_planned_objects(first)).await.map_err(self.session.map_engine_error())?;
        let mut of_service = Vec::new();
        if part.count_writes() > 0 {
            let existed = facts.namespace.exists;
            let namespace = &self.plan.package.namespace;
            self.session.begin_session_step(&if existed {
                format!("Using namespace {namespace}")
            } else {
                format!("Creating namespace {namespace}")
            });
            let stages = part.stages();
            self.session.begin_plan(part.with_base_state(state)).await?;
            let (of_namespace, later): (Vec<u32>, _) = stages.into_iter().partition(|stage| *stage < exposure);
            of_service = later;
            for stage in of_namespace {
                self.session.apply_wanted_objects(stage, |_| true).await?;
            }
            self.session.progress.finish_step("");
        }
        self.session.begin_session_step("Finding the address of the API server");
        for stage in of_service {
            self.session.apply_wanted_objects(stage, |_| true).await?;
        }
        let object = ObjectRef {
            group: String::new(),
            kind: "Service".to_owned(),
            namespace: Some(self.plan.package.namespace.to_string()),
            name: "apiserver".to_owned(),
        };
        loop {
            let live = self.session.engine.read_object(&object).await.map_err(self.session.map_engine_error())?;
            let service: Service = serde_json::from_value(live).unwrap_or_default();
            match exposure::find_endpoint(decision.kind, wanted, &service, &facts.nodes, known) {
                Ok(endpoint) => {
                    self.session.progress.finish_step(&endpoint.url());
                    return Ok(endpoint);
                }
                Err(missing @ NotYet::NoNodeAddress { .. }) => return Err(InstallError::NoAddress(missing)),
                // What gives it its address, and what keeps it from that, is told as of everything else that is awaited.
                Err(_) if decision.kind == ExposureType::LoadBalancer => self.session.wait_for(&object).await?,
                Err(missing) if Instant::now() + Duration::from_secs(1) > self.session.deadline => {
                    return Err(InstallError::NoAddress(missing));
                }
                Err(missing) => self.session.progress.update_step(&missing.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Completes the keys that were found.
    fn prepare_keys(&mut self, found: &Files, endpoint: &Endpoint) -> Result<Files, InstallError> {
        if self.plan.values.pki.source != PkiSource::Installer {
            return Ok(found.clone());
        }
        let completed = complete_keys::complete_key_set(found, self.plan, endpoint, Timestamp::now())?;
        let mut renewed = completed.issued.iter().map(|(leaf, _)| leaf).chain(&completed.rewritten);
        self.renews_kubeconfig = !completed.new_authorities && renewed.any(|leaf| *leaf == Leaf::ControllerManager);
        self.session.has_new_certificates = !completed.issued.is_empty() && !completed.new_authorities;
        if !completed.issued.is_empty() {
            self.session.begin_session_step(if completed.new_authorities {
                "Generating certificates"
            } else {
                "Renewing certificates"
            });
            self.session.progress.finish_step(&format!("{} issued", completed.issued.len()));
        }
        Ok(completed.files)
    }

    /// The keys that a Job in the hosting cluster has generated so far, if it generates them.
    async fn keys_of_cluster(&self, keys: Files) -> Result<Files, InstallError> {
        if self.plan.values.pki.source != PkiSource::InCluster {
            return Ok(keys);
        }
        let (namespace, name) = (self.plan.package.namespace.as_str(), self.plan.name.as_str());
        Ok(find_keys::from_cluster(self.client, namespace, name).await?)
    }

    fn write_kubeconfig(&mut self, keys: &Files) -> Result<PathBuf, InstallError> {
        let placed = kubeconfig::place_kubeconfig(self.home, &self.plan.name, &parse_admin_kubeconfig(keys)?)?;
        if let Some(warning) = placed.replaced_file_warning() {
            self.session.progress.report_warning(&warning);
        }
        Ok(placed.file)
    }

    async fn check_health(&mut self, endpoint: &Endpoint, keys: &Files) -> Result<Health, InstallError> {
        self.session.begin_session_step("Checking the control plane");
        let hub = health::connect_control_plane_api(&parse_admin_kubeconfig(keys)?).await;
        let hub = hub.map_err(|why| InstallError::Unreachable { url: endpoint.url(), why })?;
        let progress = Arc::clone(self.session.progress);
        // An address that is known only inside the hosting cluster is tried once: this may run inside.
        let once = endpoint.kind == ExposureType::ClusterIp
            && health::observe_health(
                Err("not checked".to_owned()),
                Ok(&hub),
                self.plan.package.namespace.as_str(),
                None,
            )
            .await?
            .facts
            .inside
            .is_err();
        let deadline = if once { Instant::now() } else { self.session.deadline };
        let (namespace, agents_call) = (self.plan.package.namespace.as_str(), self.plan.agents_call(endpoint));
        let found =
            health::wait_until_healthy(self.client, Ok(&hub), namespace, Some(&agents_call), deadline, &|text| {
                progress.update_step(text);
            })
            .await?;
        match (&found.facts.inside, found.is_healthy()) {
            (_, true) => {
                self.session.progress.finish_step("healthy");
                Ok(found)
            }
            // Inside only: from here nobody but the hosting cluster's pods reaches it, which is what was asked for.
            (Err(_), _) if endpoint.kind == ExposureType::ClusterIp => {
                self.session
                    .progress
                    .finish_step("running; its API can be reached only from inside the hosting cluster");
                Ok(found)
            }
            (Err(why), _) => Err(InstallError::Unreachable { url: endpoint.url(), why: why.clone() }),
            (Ok(_), _) => Err(InstallError::Unhealthy(Box::new(found))),
        }
    }
}

fn exposure_type_name(decision: &Decision) -> &'static str {
    match decision.kind {
        ExposureType::Auto => "Auto",
        ExposureType::LoadBalancer => "LoadBalancer",
        ExposureType::NodePort => "NodePort",
        ExposureType::ClusterIp => "ClusterIP",
    }
}

/// Prefix of the name of the Job that makes keys.
const KEYS: &str = "fleet-keys";

fn describe_install_step(workload: &str) -> String {
    match step_title(workload) {
        KEYS => "Generating keys and certificates".to_owned(),
        title => format!("Installing {title}"),
    }
}

/// Returns the name under which users see the step that installs a workload.
fn step_title(workload: &str) -> &str {
    match workload {
        "etcd" | "apiserver" => "the API server",
        "kube-controller-manager" => "the controller manager",
        "fleet-scheduler" => "the scheduler",
        // A digest follows.
        job if job.starts_with(KEYS) => KEYS,
        other => other,
    }
}
/// The operator's kubeconfig of a completed key set.
fn parse_admin_kubeconfig(keys: &Files) -> Result<Kubeconfig, InstallError> {
    Ok(Kubeconfig::parse(ADMIN_KUBECONFIG, keys.get(ADMIN_KUBECONFIG).unwrap_or_default())?)
}
