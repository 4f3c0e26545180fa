//! Somebody with an init token who asks for a certificate, by the agent's own code.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;
use fleetctl::agent::register::{RegisterError, Validity, request_certificate};
use fleetctl::agent::settings::Cli;
use fleetctl::k8s::connect::daemon_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rcgen::KeyPair;
use tempfile::TempDir;

use crate::support::{Program, Stage};

/// A scheduler that is ready, and the init kubeconfig that it made.
pub(crate) struct ControlPlane {
    pub(crate) scheduler: Program,
    pub(crate) init_file: PathBuf,
    pub(crate) init: Init,
    _dir: TempDir,
}

impl ControlPlane {
    /// Starts it with `config` beside the address.
    pub(crate) async fn start(stage: &Stage, config: &str) -> Self {
        Self::start_with(stage, config, &[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn start_with(stage: &Stage, config: &str, more: &[&str]) -> Self {
        let config = format!("agentEndpoint: {}\n{config}", stage.hub.url);
        let mut scheduler = Program::scheduler_with(&stage.hub.kubeconfig, &config, "one", more);
        scheduler.ready(Duration::from_secs(90)).await;
        let secrets: Api<Secret> = Api::namespaced(stage.hub.client.clone(), "fleet");
        let secret = secrets.get("fleet-cluster-init-kubeconfig").await.expect("the scheduler is ready");
        let dir = tempfile::tempdir().expect("a folder");
        let init_file = dir.path().join("kubeconfig");
        fs_err::write(&init_file, &secret.data.expect("it has data")["kubeconfig"].0).expect("written");
        let init = Init::read_mounted_file(&init_file).expect("it is whole");
        Self { scheduler, init_file, init, _dir: dir }
    }
}

impl ControlPlane {
    /// Kills the scheduler, as a lost machine does; another one leads once its Lease has expired.
    pub(crate) async fn kill_scheduler(&mut self, stage: &Stage) {
        let next = Self::scheduler(stage, &fresh("next"));
        std::mem::replace(&mut self.scheduler, next).kill();
        self.scheduler.ready(Duration::from_secs(90)).await;
    }

    /// Ends the scheduler, which gives up its Lease; the next test starts one of its own.
    pub(crate) async fn stop(&mut self) {
        let ended = std::process::Command::new("kill").arg(self.scheduler.pid().to_string()).status();
        assert!(ended.expect("kill runs").success());
        crate::support::wait("the scheduler has ended", async || self.scheduler.has_ended()).await;
    }

    /// Halts the scheduler where it stands; it is killed before another one starts.
    pub(crate) fn halt_scheduler(&self) {
        let status = std::process::Command::new("kill").args(["-STOP", &self.scheduler.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    fn scheduler(stage: &Stage, identity: &str) -> Program {
        Program::scheduler(&stage.hub.kubeconfig, &format!("agentEndpoint: {}\n", stage.hub.url), identity)
    }
}

/// A name that no other test uses.
pub(crate) fn fresh(prefix: &str) -> String {
    format!("{prefix}-{:08x}", rand::random::<u32>())
}

/// A cluster ID.
pub(crate) fn new_id() -> String {
    let (a, b) = (rand::random::<u32>(), rand::random::<u32>());
    format!("{a:08x}-1111-4222-8333-0000{b:08x}")
}

/// A would-be member.
#[derive(Clone)]
pub(crate) struct Applicant {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) key: String,
}

impl Applicant {
    /// With a name, ID and key of its own.
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key").serialize_pem();
        Self { name: name.to_owned(), id: new_id(), key }
    }

    /// The same with another name.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// The same cluster after its key was lost.
    pub(crate) fn with_new_key(&self) -> Self {
        Self { key: Self::new("x").key, ..self.clone() }
    }

    /// Asks; the certificate, or the reason of the refusal.
    pub(crate) async fn ask(&self, init: &Init) -> Result<String, String> {
        let client = daemon_client::token_client(init).expect("usable");
        self.ask_as(&client).await
    }

    /// Asks with another credential.
    pub(crate) async fn ask_as(&self, client: &Client) -> Result<String, String> {
        let cli = Cli::parse_from(["fleet-agent", "--cluster-name", &self.name]);
        let args = cli.args.expect("they are given");
        let validity = Validity::new(args.certificate_seconds);
        let asked = request_certificate(client, &args, &validity, &self.id, &self.key, async |_, _| {});
        match tokio::time::timeout(Duration::from_secs(60), asked).await {
            Ok(Ok(certificate)) => Ok(certificate.pem),
            Ok(Err(RegisterError::Denied { reason, .. })) => Err(reason),
            Ok(Err(other)) => panic!("{other}"),
            Err(_) => Err("Pending".to_owned()),
        }
    }

    /// Joins; a client with its new identity.
    pub(crate) async fn join(&self, init: &Init) -> Client {
        let certificate = self.ask(init).await.expect("the name is free");
        daemon_client::identity_client(init, &certificate, &self.key).expect("usable")
    }
}
