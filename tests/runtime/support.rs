//! A hub from the bed, the real programs as processes, and a wire between them that can be cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bed::proxy::Proxy;
use bed::{Turn, Turns};
use fleetctl::api::lenient::Lenient;
use fleetctl::api::{Cluster, mass_loss};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A cluster that plays the hub, of the Kubernetes of those that control planes bring, and one that plays the workload cluster.
/// A hub has one scheduler, and a workload cluster one agent: tests run side by side where there are several of both.
const PAIRS: [&[&str]; 2] = [&["plane", "api"], &["plane-2", "api-2"]];

/// A hub with three workload clusters.
const FOUR: &[&str] = &["plane", "api", "api-2", "api-old-2"];

static TURNS: Turns = Turns::new();

/// One API server.
pub(crate) struct Server {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    /// `https://ADDRESS:6443`.
    pub(crate) url: String,
}

impl Server {
    async fn of(bed: &bed::Bed, name: &str) -> Self {
        let kubeconfig = bed.kubeconfig(name).expect("the cluster is up");
        let client = client(&kubeconfig).await;
        let url = format!("https://{}:6443", bed.cluster(name).expect("it is in the file").ip());
        Self { kubeconfig, client, url }
    }
}

/// Has the clusters of earlier tests deleted, and what is known of their loss: the next scheduler would see all of them lost
/// at once, and move nothing.
async fn forget_clusters(hub: &Client) {
    let clusters: Api<Lenient<Cluster>> = Api::all(hub.clone());
    // Before the first scheduler the kind does not exist.
    for cluster in clusters.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
        clusters.delete(&cluster.name_any(), &DeleteParams::default()).await.expect("it is deleted");
    }
    let records: Api<ConfigMap> = Api::namespaced(hub.clone(), mass_loss::NAMESPACE);
    let _ = records.delete(mass_loss::NAME, &DeleteParams::default()).await;
}

/// A client of a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    client_of(kubeconfig).await
}

/// A client of a kubeconfig's text.
pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    Client::try_from(config_of(kubeconfig).await).expect("usable")
}

/// What a client is made of, from a kubeconfig's text.
pub(crate) async fn config_of(kubeconfig: Kubeconfig) -> Config {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("usable");
    config.default_retry = false;
    config
}

/// Clusters that one test has for itself.
pub(crate) struct Stage {
    pub(crate) hub: Server,
    bed: bed::Bed,
    turn: Turn,
}

impl Stage {
    /// Waits for its turn and brings the hub up.
    pub(crate) async fn hub() -> Self {
        let turn = tokio::task::spawn_blocking(|| TURNS.take(&PAIRS)).await.expect("no panic");
        let name = turn.clusters[0];
        let bed = up(name).await;
        let hub = Server::of(&bed, name).await;
        forget_clusters(&hub.client).await;
        Self { hub, bed, turn }
    }

    /// The hub with three workload clusters, of which the last is of the oldest Kubernetes.
    pub(crate) async fn with_three_members() -> (Self, Vec<Server>) {
        let turn = tokio::task::spawn_blocking(|| TURNS.take(&[FOUR])).await.expect("no panic");
        let bed = up(turn.clusters[0]).await;
        let mut members = Vec::new();
        for &name in &turn.clusters[1..] {
            members.push(Server::of(&up(name).await, name).await);
        }
        let hub = Server::of(&bed, turn.clusters[0]).await;
        forget_clusters(&hub.client).await;
        (Self { hub, bed, turn }, members)
    }

    /// The workload cluster, too.
    pub(crate) async fn member(&self) -> Server {
        let name = self.turn.clusters[1];
        Server::of(&up(name).await, name).await
    }

    /// A proxy before the hub, with the rights of its administrator.
    pub(crate) fn hub_proxy(&self) -> Proxy {
        Proxy::start(&self.bed, self.turn.clusters[0]).expect("it starts")
    }

    /// A proxy before the workload cluster, with the rights of its administrator.
    pub(crate) fn member_proxy(&self) -> Proxy {
        Proxy::start(&self.bed, self.turn.clusters[1]).expect("it starts")
    }

    fn name(&self) -> &'static str {
        self.turn.clusters[0]
    }
    /// The kubectl of the hub's own version.
    pub(crate) fn kubectl(&self) -> PathBuf {
        self.bed.kubectl_of(self.name()).expect("it is built")
    }

    /// The process of a component of the hub.
    pub(crate) fn pid(&self, component: &str) -> u32 {
        self.bed.pid(self.name(), component).expect("it runs").try_into().expect("a pid")
    }

    /// Does something to a component of the hub.
    pub(crate) async fn to_the_hub(&self, fault: impl FnOnce(&bed::Bed, &str) -> anyhow::Result<()> + Send + 'static) {
        let (bed, name) = (self.bed.clone(), self.name());
        tokio::task::spawn_blocking(move || fault(&bed, name)).await.expect("no panic").expect("the bed can do it");
    }
}

async fn up(name: &'static str) -> bed::Bed {
    tokio::task::spawn_blocking(move || {
        let bed = bed::Bed::here().expect("the bed is readable");
        bed.up(&[name]).expect("the bed's clusters come up");
        bed
    })
    .await
    .expect("no panic")
}

/// The chart's bootstrap objects, as the packager puts them into the mounted ConfigMap.
fn render_bootstrap(folder: &Path, namespace: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/control-plane/v0.6/bootstrap");
    for entry in fs_err::read_dir(source).expect("the chart is there") {
        let file = entry.expect("readable").path();
        let text = fs_err::read_to_string(&file).expect("text").replace("{{ release.namespace }}", namespace);
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        let name = file.file_name().expect("a file").to_owned();
        fs_err::write(folder.join(name), serde_json::to_string(&objects).expect("JSON")).expect("written");
    }
}

/// A running program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) dir: TempDir,
    admin: Option<SocketAddr>,
}

impl Drop for Program {
    #[expect(clippy::print_stderr, reason = "a test that fails shows what its programs said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("the last that it logged:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        // Gently first: a scheduler that is killed leaves a Lease behind that the next test would have to wait out.
        let _ = Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts `fleet-scheduler` against the API that `kubeconfig` leads to.
    pub(crate) fn scheduler(kubeconfig: &Path, config: &str, identity: &str) -> Self {
        Self::scheduler_with(kubeconfig, config, identity, &[])
    }

    /// The same with further arguments.
    pub(crate) fn scheduler_with(kubeconfig: &Path, config: &str, identity: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = scheduler_command(&dir, kubeconfig, config, identity);
        command.args(more);
        Self::start(command, dir)
    }

    /// The same with a wall clock that is so many seconds ahead.
    pub(crate) fn scheduler_ahead(kubeconfig: &Path, config: &str, identity: &str, seconds: u32) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = scheduler_command(&dir, kubeconfig, config, identity);
        command.env("LD_PRELOAD", build_clock_ahead(dir.path(), seconds));
        Self::start(command, dir)
    }

    /// Starts `fleet-agent` for the workload cluster that `local` leads to, with the init kubeconfig `init`.
    pub(crate) fn agent(local: &Path, init: &Path, name: &str, identity: &str) -> Self {
        Self::agent_with(local, init, name, identity, &[])
    }

    /// The same with further arguments.
    pub(crate) fn agent_with(local: &Path, init: &Path, name: &str, identity: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-agent"));
        command.args(["--cluster-name", name, "--identity", identity]).args(more);
        command.arg("--control-plane-kubeconfig").arg(init).arg("--kubeconfig").arg(local);
        Self::start(command, dir)
    }

    /// Starts a program whose arguments are complete but for the admin port, with its log in the folder.
    pub(crate) fn start(mut command: Command, dir: TempDir) -> Self {
        let log = fs_err::File::create(dir.path().join("log")).expect("a log");
        // A flag of the test's own wins.
        command.env("FLEET_ADMIN_ADDRESS", "127.0.0.1:0").stdout(Stdio::null()).stderr(log.into_parts().0);
        Self { child: command.spawn().expect("the program starts"), dir, admin: None }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Its process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        fs_err::read_to_string(self.dir.path().join("log")).expect("a log")
    }

    /// Path and answer of its admin port.
    pub(crate) async fn ask(&mut self, path: &str) -> (u16, String) {
        if self.admin.is_none() {
            self.admin = self.log().lines().find_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                line["admin"].as_str()?.parse().ok()
            });
        }
        let Some(address) = self.admin else { return (0, String::new()) };
        get(address, path).await.unwrap_or((0, String::new()))
    }

    /// Waits until `/readyz` says 200.
    pub(crate) async fn ready(&mut self, limit: Duration) -> Duration {
        let started = Instant::now();
        loop {
            let (code, body) = self.ask("/readyz").await;
            if code == 200 {
                return started.elapsed();
            }
            assert!(started.elapsed() < limit, "not ready in {limit:?}: {body}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kills it, as a lost node would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Sends SIGTERM; returns how long it took to end, and whether with success.
    pub(crate) async fn terminate(mut self) -> (Duration, bool) {
        let started = Instant::now();
        let status = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(status.success());
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return (started.elapsed(), status.success());
            }
            assert!(started.elapsed() < Duration::from_secs(30), "does not end\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The command of a scheduler, with its files in a folder.
fn scheduler_command(dir: &TempDir, kubeconfig: &Path, config: &str, identity: &str) -> Command {
    fs_err::create_dir(dir.path().join("bootstrap")).expect("a folder");
    render_bootstrap(&dir.path().join("bootstrap"), "fleet");
    fs_err::write(dir.path().join("config.yaml"), config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-scheduler"));
    command.arg("--kubeconfig").arg(kubeconfig).args(["--identity", identity]);
    command.arg("--bootstrap-dir").arg(dir.path().join("bootstrap"));
    command.arg("--config").arg(dir.path().join("config.yaml"));
    command
}

/// What a program reads in place of the wall clock. Time namespaces move the other clocks only.
const CLOCK_AHEAD: &str = "
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += SECONDS;
    return failed;
}
";

/// Builds a library that sets the wall clock of a program so many seconds ahead, with the compiler that links Rust.
fn build_clock_ahead(dir: &Path, seconds: u32) -> PathBuf {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    fs_err::write(&source, CLOCK_AHEAD).expect("written");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE"]).arg(format!("-DSECONDS={seconds}"));
    let built = command.arg("-o").arg(&library).arg(&source).status().expect("cc runs");
    assert!(built.success(), "cc: {built}");
    library
}

/// Longest time that is waited for anything. On an idle machine everything takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(300);

/// Waits up to [`LIMIT`] for something to become true; shows and returns how long it took.
#[expect(clippy::print_stderr, reason = "a test that fails shows what it waited for")]
pub(crate) async fn wait(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if holds().await {
            eprintln!("{:7.1} s  {what}", started.elapsed().as_secs_f64());
            return started.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{LIMIT:?} were not enough: {what}");
}

/// Waits until there is none of something any more; shows what is left after [`LIMIT`].
pub(crate) async fn wait_until_none<T: serde::Serialize>(what: &str, mut list: impl AsyncFnMut() -> Vec<T>) {
    let started = Instant::now();
    let mut left = list().await;
    while !left.is_empty() {
        let shown = || serde_json::to_string_pretty(&left).expect("it is written as JSON");
        assert!(started.elapsed() < LIMIT, "{what} are left after {LIMIT:?}: {}", shown());
        tokio::time::sleep(Duration::from_millis(200)).await;
        left = list().await;
    }
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let code = text.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Ok((code, body))
}

/// What a wire does with the bytes that are on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// It passes them on.
    Whole,
    /// It refuses new connections and drops those that are.
    Cut,
    /// What the program says is held up; answers come through.
    Mute,
    /// What the server answers is held up; requests get through.
    Deaf,
}

/// A stretch of network between a program and an API server.
pub(crate) struct Wire {
    /// Where it begins: an address of this machine that the server's certificate has.
    pub(crate) url: String,
    link: watch::Sender<Link>,
}

/// Passes bytes on while the link lets them, until one end closes. What is held up goes on when it heals.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut link: watch::Receiver<Link>,
    held: Link,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if link.wait_for(|link| *link != held).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

impl Wire {
    /// A wire to the server at `url`.
    pub(crate) async fn to(url: &str, whole: bool) -> Self {
        let target = url.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (sender, link) = watch::channel(if whole { Link::Whole } else { Link::Cut });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, mut link) = (target.clone(), link.clone());
                tokio::spawn(async move {
                    if *link.borrow() == Link::Cut {
                        return;
                    }
                    let Ok(far) = TcpStream::connect(target).await else { return };
                    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                    tokio::select! {
                        () = carry(from_near, to_far, link.clone(), Link::Mute) => {}
                        () = carry(from_far, to_near, link.clone(), Link::Deaf) => {}
                        _ = link.wait_for(|link| *link == Link::Cut) => {}
                    }
                });
            }
        });
        Self { url: format!("https://127.0.0.1:{port}"), link: sender }
    }

    /// Cuts it, or joins it again.
    pub(crate) fn set(&self, whole: bool) {
        self.turn(if whole { Link::Whole } else { Link::Cut });
    }

    /// Changes what it does.
    pub(crate) fn turn(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// A copy of an init kubeconfig for the server at `url` that goes through this wire.
    pub(crate) fn init(&self, original: &Path, url: &str, into: &Path) -> PathBuf {
        let text = fs_err::read_to_string(original).expect("text");
        let file = into.join("init");
        fs_err::write(&file, text.replace(url, &self.url)).expect("written");
        file
    }

    /// A copy of a kubeconfig that goes through this wire.
    pub(crate) fn kubeconfig(&self, original: &Path, into: &Path) -> PathBuf {
        let mut kubeconfig = Kubeconfig::read_from(original).expect("a kubeconfig");
        for cluster in &mut kubeconfig.clusters {
            cluster.cluster.as_mut().expect("a cluster").server = Some(self.url.clone());
        }
        let file = into.join("kubeconfig");
        fs_err::write(&file, serde_saphyr::to_string(&kubeconfig).expect("YAML")).expect("written");
        file
    }
}
