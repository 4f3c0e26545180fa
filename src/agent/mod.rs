//! `fleet-agent`: registers a workload cluster with a control plane, and keeps it registered.
//!
//! The agent opens all connections. The agent registers with an init token, gets its own certificate, renews a
//! Lease, reports its inventory, applies copies, and deregisters when it is uninstalled.
//!
//! In the workload cluster it needs: `get` on the namespace `kube-system`; `list` and `watch` on nodes and pods; `get`
//! on `/readyz` and `/version` and on the ConfigMap `kube-system/cluster-autoscaler-status`; in its own namespace
//! `create` on Secrets, and `get`, `update` and `patch` on the Secret `fleet-agent-identity`; and to read and write the kinds
//! of [`crate::api::placeable`].
//!
//! The state of its registration is reported in an annotation of that Secret, see [`crate::api::registration`]; an
//! uninstall sets the annotation `fleet-scheduler.io/leave: "true"` there and waits for the state `Left`.

pub mod api_health;
pub mod heartbeat;
pub mod identity;
pub mod inventory;
pub mod probe;
pub mod readyz;
pub mod register;
mod session;
pub mod settings;
pub mod status_writer;
pub mod work;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use rand::RngExt as _;

use crate::api::labels::{AGENT_LEASE, cluster_namespace};
use crate::api::protocol::NEW_KEY_NEEDED;
use crate::api::readiness_log::AGENT;
use crate::api::registration::{LEAVE_FAILED, Registration, gone, state as phase};
use crate::daemon::admin::Admin;
use crate::daemon::log::{self, LogFormat};
use crate::daemon::metrics::Metrics;
use crate::daemon::stop::Stop;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect::connect_error::classify_hop;
use crate::k8s::connect::daemon_client;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::connect::init_kubeconfig::Init;
use identity::{Certificate, Identity, IdentityStore};
use inventory::watch::Observed;
use readyz::State;
use register::{RegisterError, Validity};
use session::{Session, SessionEnd};
use settings::{Args, Cli, Command};

/// Reason of an agent that is blocked because its init token is not accepted.
const TOKEN_EXPIRED: &str = "InitTokenExpired";

/// Runs until SIGTERM or SIGINT, or probes once. Returns false where the probe failed.
///
/// # Errors
/// A failed start.
pub fn run_agent_daemon(cli: Cli) -> anyhow::Result<bool> {
    if let Some(Command::Probe(args)) = &cli.command {
        log::start_logging(LogFormat::Text);
        return probe::run_probe_command(args);
    }
    let args = cli.args.context("the name of the workload cluster is missing (FLEET_CLUSTER_NAME)")?;
    log::start_logging(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve_agent(args));
    runtime.shutdown_timeout(Duration::from_millis(500));
    result.map(|()| true)
}

async fn serve_agent(args: Args) -> anyhow::Result<()> {
    let stop = Stop::default();
    stop.on_signals().context("cannot listen for signals")?;
    let metrics = Metrics::default();
    metrics.set_gauge("fleet_build_info", "The running version.", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let state = Arc::new(State::default());
    let admin = Admin::bind_address(args.admin_address)
        .await
        .with_context(|| format!("cannot listen on {}", args.admin_address))?;
    let address = admin.local_address()?;
    tokio::spawn(admin.serve_admin(AGENT, state.clone(), metrics.clone(), stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), cluster = %args.cluster_name, admin = %address, "starting");

    let local = local_client(&args).await?;
    let observed = Observed::default();
    tokio::spawn(inventory::watch::watch_inventory(local.clone(), observed.clone()));
    let store = IdentityStore::new(local.clone(), &args.namespace, &args.identity_secret);
    let holder = args.identity.clone().unwrap_or_else(|| format!("{:016x}", rand::rng().random::<u64>()));
    let validity = Validity::new(args.certificate_seconds);
    let agent = Agent { args, local, store, state, metrics, observed, holder, validity, stop: stop.clone() };
    tokio::select! {
        () = agent.run() => {}
        // The session observes the signal itself, and releases its Lease.
        () = async { stop.wait_for_stop().await; tokio::time::sleep(Duration::from_secs(4)).await } => {}
    }
    tracing::info!("stopped");
    Ok(())
}

async fn local_client(args: &Args) -> anyhow::Result<Client> {
    if let Some(file) = &args.kubeconfig {
        return Ok(daemon_client::build_daemon_client(file).await?);
    }
    daemon_client::in_cluster().context("not in a pod with a service account, and no --kubeconfig is given")
}

/// The agent, with its clients and settings.
struct Agent {
    args: Args,
    local: Client,
    store: IdentityStore,
    state: Arc<State>,
    metrics: Metrics,
    observed: Observed,
    /// Identity in the Lease.
    holder: String,
    validity: Validity,
    stop: Stop,
}

/// Failure that keeps the agent from connecting.
struct Blocked {
    reason: String,
    message: String,
    /// An early retry may help.
    retry_soon: bool,
}

impl Blocked {
    fn new(reason: &str, message: &(impl ToString + ?Sized)) -> Self {
        Self { reason: reason.to_owned(), message: message.to_string(), retry_soon: true }
    }

    /// Returns the failure of a call to the control plane, with the hop.
    fn control_plane(error: &CallError) -> Self {
        Self::new("ControlPlaneUnreachable", &format!("{}: {error}", classify_hop(error).as_str()))
    }

    fn from_local_error(error: &CallError) -> Self {
        Self::new("WorkloadClusterUnreachable", &format!("{}: {error}", classify_hop(error).as_str()))
    }

    /// Returns the state to report after the `last` one. A request that was pending still is: the control plane may have
    /// created a Cluster for it, which an uninstall has to know.
    fn registration_state(&self, last: Option<&Registration>) -> &'static str {
        let requested = last.is_some_and(|last| last.is_in_state(phase::REGISTERING));
        match self {
            Self { retry_soon: false, .. } => phase::REFUSED,
            // An uninstall waits for this answer.
            Self { reason, .. } if reason == LEAVE_FAILED || !requested => phase::BLOCKED,
            Self { .. } => phase::REGISTERING,
        }
    }
}

impl Agent {
    /// Runs session after session, until it is time to stop.
    async fn run(&self) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        while !self.stop.is_stopped() {
            let blocked = match Box::pin(self.run_session()).await {
                Ok(SessionEnd::Restart) => {
                    backoff.reset();
                    continue;
                }
                Ok(SessionEnd::Stopped) => return,
                Ok(SessionEnd::Left) => {
                    self.state.set_blocked("Left", "this cluster was deregistered");
                    tokio::select! {
                        () = self.store.leave_withdrawn() => {}
                        () = self.stop.wait_for_stop() => return,
                    }
                    // An uninstall that did not wait for our answer, or a new install.
                    tracing::info!("registering again: the deregistration request was withdrawn");
                    let _ = self.store.mark_unaccepted().await;
                    continue;
                }
                Err(blocked) => blocked,
            };
            if self.state.set_blocked(&blocked.reason, &blocked.message) {
                tracing::warn!(reason = blocked.reason, detail = blocked.message, "not connected");
                // For an install that waits; without the Secret it is in the log and in /readyz.
                let last = self.store.last_report().await.unwrap_or_default();
                let state = blocked.registration_state(last.as_ref());
                let _ = self.store.report_registration(state, &blocked.reason, &blocked.message).await;
            }
            let wait = if blocked.retry_soon { backoff.next_wait() } else { Duration::from_secs(30) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.wait_for_stop() => {}
            }
        }
    }

    /// Runs one session, from the current files and Secret until one of them changes.
    async fn run_session(&self) -> Result<SessionEnd, Blocked> {
        let id = self.cluster_id().await?;
        let identity = self.store.load_identity().await.map_err(|e| Blocked::from_local_error(&e))?;
        let init = Init::read_mounted_file(&self.args.control_plane_kubeconfig)
            .map_err(|e| Blocked::new("InitSecretMissing", &e))?;
        let now = Timestamp::now().as_second();
        let certificate = match &identity.certificate {
            Some(certificate)
                if identity.issuer == init.control_plane_digest()
                    && certificate.is_valid(now)
                    && self.is_own(certificate, &identity, &id) =>
            {
                certificate.clone()
            }
            // The key is proof enough, and a request may be pending.
            _ if identity.leave => return self.withdraw_registration(&init, &identity, &id).await,
            old => {
                if old.as_ref().is_some_and(|c| !c.is_valid(now)) {
                    tracing::warn!(reason = "CertificateExpired", "requesting a new certificate with the init token");
                }
                self.obtain_certificate(&init, &identity, &id).await?
            }
        };
        let session = Session {
            args: self.args.clone(),
            local: self.local.clone(),
            store: self.store.clone(),
            state: self.state.clone(),
            metrics: self.metrics.clone(),
            observed: self.observed.clone(),
            holder: self.holder.clone(),
            validity: self.validity.clone(),
            stop: self.stop.clone(),
            init,
            identity,
            certificate,
            cluster_id: id,
        };
        Box::pin(session.run()).await.map_err(|e| Blocked::control_plane(&e))
    }

    /// Returns true where a certificate is of the user that this agent would request. One of another cluster name, or of an
    /// agent that is older than user names with keys, has no rights.
    fn is_own(&self, certificate: &Certificate, identity: &Identity, id: &str) -> bool {
        register::user_of(&self.args, id, &identity.key).is_ok_and(|user| certificate.is_issued_to(&user))
    }

    /// Returns the UID of the namespace `kube-system`: as old as the cluster, and different in every one.
    async fn cluster_id(&self) -> Result<String, Blocked> {
        let api: Api<Namespace> = Api::all(self.local.clone());
        let found = call_with_timeout(api.get("kube-system")).await.map_err(|e| Blocked::from_local_error(&e))?;
        found.uid().ok_or_else(|| Blocked::new("ClusterIdUnknown", "the namespace kube-system has no UID"))
    }

    /// Deregisters without a certificate that the control plane accepts.
    async fn withdraw_registration(&self, init: &Init, identity: &Identity, id: &str) -> Result<SessionEnd, Blocked> {
        let control_plane = daemon_client::token_client(init).map_err(|e| Blocked::new(LEAVE_FAILED, &e))?;
        let withdrawn = tokio::select! {
            withdrawn = register::request_withdrawal(&control_plane, &self.args, &self.validity, id, &identity.key) => withdrawn,
            // That request cannot be withdrawn. Where it is executed all the same, we register once more.
            () = self.store.leave_withdrawn() => return Ok(SessionEnd::Restart),
        };
        let failure = match withdrawn {
            Ok(()) => None,
            Err(RegisterError::Call(error)) if error.status_code() == Some(401) => {
                Some("401: the control plane accepts neither this agent's certificate nor the init token".to_owned())
            }
            Err(RegisterError::Call(error)) => Some(format!("{}: {error}", classify_hop(&error).as_str())),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = failure {
            return Err(Blocked::new(LEAVE_FAILED, &why));
        }
        let _ = self
            .store
            .report_registration(phase::LEFT, "Withdrawn", "the control plane has no record of this cluster")
            .await;
        Ok(SessionEnd::Left)
    }

    /// Registers with the init token. Where that is expired, a certificate that was refused before may be accepted again.
    async fn obtain_certificate(&self, init: &Init, identity: &Identity, id: &str) -> Result<Certificate, Blocked> {
        match self.register_with_token(init, identity, id).await {
            Err(blocked) if blocked.reason == TOKEN_EXPIRED => {
                self.reuse_certificate(init, identity).await.ok_or(blocked)
            }
            answer => answer,
        }
    }

    /// Returns the stored certificate, if the control plane accepts it.
    async fn reuse_certificate(&self, init: &Init, identity: &Identity) -> Option<Certificate> {
        let certificate = identity.certificate.clone().filter(|c| c.is_valid(Timestamp::now().as_second()))?;
        let control_plane = daemon_client::identity_client(init, &certificate.pem, &identity.key).ok()?;
        let leases: Api<Lease> = Api::namespaced(control_plane, &cluster_namespace(self.args.cluster_name.as_str()));
        call_with_timeout(leases.get_metadata_opt(AGENT_LEASE)).await.ok()?;
        self.store.save_certificate(&identity.key, &certificate, &init.control_plane_digest()).await.ok()?;
        tracing::info!("the init token has expired, but the control plane accepts the certificate again");
        Some(certificate)
    }

    async fn register_with_token(&self, init: &Init, identity: &Identity, id: &str) -> Result<Certificate, Blocked> {
        let control_plane = daemon_client::token_client(init).map_err(|e| Blocked::new("InitSecretInvalid", &e))?;
        let (args, validity, key) = (&self.args, &self.validity, &identity.key);
        // Certificates of this key may be anywhere: unless the control plane has it on record, it is replaced.
        let rejoins = identity.certificate.is_some();
        let requested = async {
            if rejoins {
                register::request_rejoin(&control_plane, args, validity, id, key, async |reason, message| {
                    self.report_waiting(reason, &message).await;
                })
                .await
            } else {
                register::request_certificate(&control_plane, args, validity, id, key, async |reason, message| {
                    self.report_waiting(reason, &message).await;
                })
                .await
            }
        };
        let changed = async {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if Init::read_mounted_file(&self.args.control_plane_kubeconfig)
                    .is_ok_and(|now| now.content_digest() != init.content_digest())
                {
                    return Blocked::new("InitSecretChanged", "starting again with the new init Secret");
                }
                if self.store.load_identity().await.is_ok_and(|identity| identity.leave) {
                    return Blocked::new(
                        "Leaving",
                        "an uninstall is in progress; the agent withdraws its registration",
                    );
                }
            }
        };
        let answer = tokio::select! {
            answer = requested => answer,
            blocked = changed => return Err(blocked),
        };
        if let Err(RegisterError::Denied { reason, message, .. }) = &answer
            && rejoins
            && reason == NEW_KEY_NEEDED
        {
            self.store.replace_key(key).await.map_err(|e| Blocked::from_local_error(&e))?;
            return Err(Blocked::new(NEW_KEY_NEEDED, message));
        }
        let certificate = answer.map_err(|error| match error {
            RegisterError::Denied { reason, message, .. } => {
                // A deregistration that was withdrawn and executed later: nothing of this cluster is left there.
                let retry_soon = reason == gone::CLUSTER_LEFT;
                Blocked { reason, message, retry_soon }
            }
            RegisterError::Call(e) if e.status_code() == Some(401) => Blocked {
                reason: TOKEN_EXPIRED.to_owned(),
                message: "the control plane does not accept the init token; copy the Secret fleet-cluster-init-kubeconfig again"
                    .to_owned(),
                retry_soon: false,
            },
            RegisterError::Call(e) => Blocked::control_plane(&e),
            other => Blocked::new("RegistrationFailed", &other),
        })?;
        self.store
            .save_certificate(&identity.key, &certificate, &init.control_plane_digest())
            .await
            .map_err(|e| Blocked::from_local_error(&e))?;
        tracing::info!(until = certificate.until, "registered");
        Ok(certificate)
    }

    /// Reports why the registration is not finished yet.
    async fn report_waiting(&self, reason: &'static str, message: &str) {
        if self.state.set_blocked(reason, message) {
            tracing::info!(reason, detail = message, "registering");
            let _ = self.store.report_registration(phase::REGISTERING, reason, message).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use clap::Parser as _;
    use http::{Method, Request, Response, header};
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use crate::k8s::test_api;

    /// Returns a control plane that refuses the init token, and answers with `code` to reads of a Lease by certificate.
    async fn control_plane(code: u16) -> Init {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let init = format!(
            "clusters: [{{name: fleet, cluster: {{server: 'https://{}', certificate-authority-data: ''}}}}]\nusers: [{{name: u, user: {{token: t}}}}]",
            listener.local_addr().unwrap()
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(move |request| std::future::ready(answer_lease_read(code, &request)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        let mut init = Init::parse(&init).unwrap();
        // Without TLS, so that the test needs no certificate.
        init.server = init.server.replace("https://", "http://");
        init
    }

    fn answer_lease_read(code: u16, request: &Request<Incoming>) -> http::Result<Response<Full<Bytes>>> {
        let reads = request.method() == Method::GET && request.uri().path().ends_with("/leases/fleet-agent");
        let by_token = request.headers().contains_key(header::AUTHORIZATION);
        let code = if reads && !by_token { code } else { 401 };
        let lease = json!({ "apiVersion": "v1", "kind": "Lease", "metadata": { "name": "fleet-agent" } });
        let body = if code == 200 { lease } else { test_api::failure(code) };
        let response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
        response.body(Full::new(Bytes::from(body.to_string())))
    }

    /// Returns an agent of the cluster `west`, and what it saved last.
    fn agent() -> (Agent, Arc<Mutex<Value>>) {
        let saved: Arc<Mutex<Value>> = Arc::default();
        let there = Arc::clone(&saved);
        let local = test_api::api(move |_, brought| {
            *there.lock().unwrap() = brought["data"].clone();
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "fleet-agent-identity" } })
        });
        let agent = Agent {
            args: Cli::parse_from(["fleet-agent", "--cluster-name", "west"]).args.unwrap(),
            store: IdentityStore::new(local.clone(), "fleet", "fleet-agent-identity"),
            local,
            state: Arc::default(),
            metrics: Metrics::default(),
            observed: Observed::default(),
            holder: "me".to_owned(),
            stop: Stop::default(),
            validity: Validity::new(7_776_000),
        };
        (agent, saved)
    }

    #[tokio::test]
    async fn an_expired_token_reuses_a_certificate() {
        let pair = KeyPair::generate().unwrap();
        let pem = CertificateParams::default().self_signed(&pair).unwrap().pem();
        let certificate = Certificate::parse(&pem).unwrap();
        for (code, accepted) in [(200, true), (404, true), (401, false), (403, false), (503, false)] {
            let (init, (agent, saved)) = (control_plane(code).await, agent());
            let mut identity = Identity {
                key: pair.serialize_pem(),
                certificate: Some(certificate.clone()),
                issuer: String::new(),
                leave: false,
                drain: false,
            };
            let answer = agent.obtain_certificate(&init, &identity, "0a1b2c3d-1111-2222-3333-444455556666").await;
            assert_eq!(answer.as_ref().is_ok_and(|c| *c == certificate), accepted, "{code}");
            assert!(accepted || answer.is_err_and(|blocked| blocked.reason == TOKEN_EXPIRED), "{code}");
            assert_eq!(!saved.lock().unwrap().is_null(), accepted, "{code}");
            // An expired one is of no use.
            identity.certificate = Some(Certificate { until: 0, ..certificate.clone() });
            assert!(agent.obtain_certificate(&init, &identity, "0a1b2c3d-1111-2222-3333-444455556666").await.is_err());
        }
    }

    #[test]
    fn a_pending_request_stays_reported() {
        let [requested, connected] = [phase::REGISTERING, phase::CONNECTED].map(|state| Registration {
            state: state.to_owned(),
            reason: String::new(),
            message: String::new(),
            at: String::new(),
        });
        let unreachable = Blocked::new("ControlPlaneUnreachable", "tcp: refused");
        assert_eq!(unreachable.registration_state(Some(&requested)), phase::REGISTERING);
        assert_eq!(unreachable.registration_state(Some(&connected)), phase::BLOCKED);
        assert_eq!(unreachable.registration_state(None), phase::BLOCKED);
        assert_eq!(Blocked::new(LEAVE_FAILED, "tcp: refused").registration_state(Some(&requested)), phase::BLOCKED);
        let denied = Blocked { retry_soon: false, ..Blocked::new("ClusterNameInUse", "another has it") };
        assert_eq!(denied.registration_state(Some(&requested)), phase::REFUSED);
    }
}
