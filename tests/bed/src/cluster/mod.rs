//! One cluster: its names, addresses and files, and how its parts come up together.

mod addons;
mod api;
pub(crate) mod certs;
pub(crate) mod client;
pub(crate) mod dump;
pub(crate) mod faults;
pub(crate) mod kubeconfig;
pub(crate) mod load_balancer;
pub(crate) mod network;
mod node;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod spec;
pub(crate) mod teardown;
pub(crate) mod turns;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;

use crate::cluster::network::address;
use crate::cluster::process::{Record, State, Supervisor};
use crate::cluster::spec::ClusterSpec;
use crate::parts::cache::Cache;
use crate::parts::{self, Part};
use crate::place::Place;
use crate::say::{say, seconds};

/// How the Go programs of a cluster collect garbage: less often than by default, which takes a tenth less CPU (kube-apiserver
/// 1.36 until half a minute after its start: 2.5 s instead of 2.8 s) for half as much memory again, up to a limit.
const GARBAGE_COLLECTION: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "1GiB")];

/// One cluster of the file, started or not.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Its name: of the context, of its node, of its folder.
    pub name: String,
    /// What it is made of.
    pub spec: ClusterSpec,
    pub(crate) place: Place,
    pub(crate) cache: Cache,
    pub(crate) subnet: u8,
    index: u8,
}

impl Cluster {
    pub(crate) fn new(place: &Place, cache: &Cache, subnet: u8, name: &str, index: u8, spec: &ClusterSpec) -> Self {
        Self { name: name.to_owned(), spec: spec.clone(), place: place.clone(), cache: cache.clone(), subnet, index }
    }

    /// Its folder.
    pub fn dir(&self) -> PathBuf {
        self.place.state.join(&self.name)
    }

    /// Its address, reachable from this machine and from the other clusters.
    pub fn ip(&self) -> String {
        address(self.subnet, self.last())
    }

    fn last(&self) -> u8 {
        network::FIRST_CLUSTER + self.index
    }

    /// The addresses that its load balancer gives out: twenty of its own, where it has one.
    pub fn load_balancer_ips(&self) -> Vec<String> {
        let count = if self.spec.load_balancer { 20 } else { 0 };
        (0..count).map(|step| address(self.subnet, 100 + 20 * self.index + step)).collect()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// Its processes.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor { id: self.place.id.clone(), unit: self.name.clone(), dir: self.dir() }
    }

    /// The Kubernetes that it runs.
    pub fn part(&self) -> Result<Part> {
        parts::kubernetes(&self.spec.kubernetes)
    }

    /// Whether it came up completely and nothing of it has ended since.
    pub fn is_up(&self) -> bool {
        let supervisor = self.supervisor();
        self.was_up() && supervisor.components().iter().all(|component| supervisor.state(component) == State::Running)
    }

    fn was_up(&self) -> bool {
        self.dir().join("up").exists()
    }

    /// Brings it up. One that runs is left alone; one that lost a component gets it back; one that was never
    /// complete is made anew.
    pub(crate) fn up(&self, hub: i32, program: &Path) -> Result<()> {
        let began = Instant::now();
        let supervisor = self.supervisor();
        if self.is_up() {
            return Ok(());
        }
        if self.was_up() && supervisor.state("holder") == State::Running {
            self.start_again(&supervisor.components())?;
            say(format!("{}: repaired in {}", self.name, seconds(began.elapsed())));
            return Ok(());
        }
        crate::cluster::teardown::unit(&self.place, &self.name)?;
        fs::create_dir_all(self.dir())?;
        let holder = network::hold(&supervisor, &self.cache)?;
        network::join(hub, holder, self.subnet, self.last())?;
        self.write_identities()?;
        self.start_api()?;
        if self.spec.node {
            self.prepare_node()?;
        }
        self.wait_api()?;
        self.start_controllers()?;
        if self.spec.node {
            self.start_node()?;
            self.apply_addons()?;
        }
        if self.spec.load_balancer {
            self.start_load_balancer(program)?;
        }
        self.wait_ready()?;
        fs::write(self.dir().join("up"), "")?;
        say(format!(
            "{}: Kubernetes {} at {}, ready in {}",
            self.name,
            self.part()?.version,
            self.ip(),
            seconds(began.elapsed())
        ));
        Ok(())
    }

    /// Starts components that were started before, those first that others need, and waits until the cluster is
    /// ready again. What runs goes on.
    pub(crate) fn start_again(&self, components: &[String]) -> Result<()> {
        let supervisor = self.supervisor();
        let missing: Vec<_> = components.iter().filter(|name| supervisor.state(name) != State::Running).collect();
        let start = |names: &[&str]| -> Result<()> {
            let chosen = missing.iter().filter(|missing| names.contains(&missing.as_str()));
            chosen.into_iter().try_for_each(|name| supervisor.start(name, supervisor.record(name)?))
        };
        let stale = if missing.iter().any(|name| *name == "kubelet") { self.heartbeat() } else { None };
        start(&["etcd", "kube-apiserver", "containerd"])?;
        self.wait_api()?;
        if self.spec.node {
            self.wait_containerd()?;
        }
        start(&missing.iter().map(|name| name.as_str()).collect::<Vec<_>>())?;
        if self.spec.node {
            self.wait_node(stale.as_deref())?;
        }
        self.wait_ready()
    }

    /// Waits until it answers, and its node and add-ons are ready.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        self.wait_api()?;
        if self.spec.node {
            self.wait_node(None)?;
            self.wait_addons()?;
        }
        Ok(())
    }

    /// Starts one of its components inside its namespaces.
    fn start(&self, component: &str, program: &Path, args: Vec<String>) -> Result<()> {
        let mut argv = vec![program.display().to_string()];
        argv.extend(args);
        let env = GARBAGE_COLLECTION.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        self.supervisor()
            .start(component, Record { argv, env, inside: true, process: None })
            .with_context(|| format!("in cluster `{}`", self.name))
    }

    /// The loop that gives addresses to Services; it runs outside, as the machine's cloud would.
    fn start_load_balancer(&self, program: &Path) -> Result<()> {
        let argv = [&program.display().to_string(), "load-balancer", &self.name].map(str::to_owned).into();
        self.supervisor().start("load-balancer", Record { argv, env: BTreeMap::new(), inside: false, process: None })
    }

    /// A program of the cache, by the path that it has inside the cluster's namespaces.
    fn program(&self, part: &Part, name: &str) -> PathBuf {
        self.dir().join("cache/bin").join(part.key()).join(name)
    }

    /// The end of a component's log, for errors.
    fn log_tail(&self, component: &str) -> String {
        let text = fs::read_to_string(self.supervisor().log(component)).unwrap_or_default();
        let short = |line: &str| line.chars().take(240).collect::<String>();
        crate::run::last_lines(&text, 6).lines().map(short).collect::<Vec<_>>().join("\n")
    }

    /// Waits for an answer of the API; on failure the error ends with the log of whoever should have given it.
    fn poll(&self, path: &str, limit: Duration, blame: &str, done: impl FnMut(&str) -> bool + Send) -> Result<()> {
        let kubeconfig = self.kubeconfig();
        crate::cluster::client::block_on(|| async move {
            let client = crate::cluster::client::client(&kubeconfig).await?;
            // Nobody starts it again.
            let ended = || self.supervisor().state(blame) == State::Stopped;
            crate::cluster::client::poll(&client, path, limit, ended, done).await
        })
        .with_context(|| {
            let log = self.supervisor().log(blame);
            format!(
                "cluster `{name}`: {blame} is not ready; {} ends:\n{}\n\
                 `cargo bed down {name}` takes away what is there of it, `cargo bed up {name}` starts it again\n",
                log.display(),
                self.log_tail(blame),
                name = self.name,
            )
        })
    }
}
