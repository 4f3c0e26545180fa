//! Real Kubernetes clusters on one machine, for whoever develops or tests this project: `cargo bed`, and this library.
//!
//! A [`Bed`] belongs to one checkout. Its clusters are those of `tests/bed/clusters.yaml`; their programs are built
//! from source into a cache that all checkouts share, their images come from a registry of the bed's own, and nothing
//! that they do leaves the machine.

mod bench;
pub mod cli;
mod cluster;
mod dev;
mod parts;
mod place;
pub mod proxy;
mod run;
mod say;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;

pub use cluster::Cluster;
pub use cluster::dump::differences;
pub use cluster::faults::NODE;
pub use cluster::process::State;
pub use cluster::spec::ClusterSpec;
pub use cluster::turns::{Turn, Turns};

use cluster::process::Supervisor;
use cluster::spec::Spec;
use cluster::{network, process, registry, teardown};
use parts::cache::Cache;
use parts::{cache, go, images, load, packages, product, schemas};
use place::Place;

/// Service versions whose images the tests install: the default, its successor, two lines between which Kubernetes gets
/// newer, and the newest.
pub const TESTED: [&str; 7] = ["v0.6.1", "v0.7.1", "v0.8.0", "v0.9.0", "v1.0.0", "v1.1.0", "v1.2.0"];

/// The profile of Cargo.toml by which the images of the tests are built: that of the tests, so that all but the last step
/// of a build serves both.
pub const PROFILE: &str = "dev";

/// The clusters of one checkout.
#[derive(Debug, Clone)]
pub struct Bed {
    place: Place,
    cache: Cache,
    spec: Spec,
}

/// An error that is the caller's to mend before anything can work; the command line ends with exit code 2 for it.
#[derive(Debug)]
pub struct Unfit(pub String);

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl Bed {
    /// The bed of this checkout.
    pub fn here() -> Result<Self> {
        Self::at(Place::here()?)
    }

    /// A second bed of this checkout, apart from the one that somebody may be working with. The command line finds it
    /// when `FLEETBED_NAME` is its name.
    pub fn second(name: &str) -> Result<Self> {
        Self::at(Place::named(name)?)
    }

    fn at(place: Place) -> Result<Self> {
        let spec = Spec::read(&place)?;
        Ok(Self { cache: Cache::here()?, spec, place })
    }

    /// Eight digits that are in the name of everything that this bed makes on the machine.
    pub fn id(&self) -> &str {
        &self.place.id
    }

    /// Brings the named clusters up, at once, and returns when all are ready. Building what the cache lacks is part
    /// of it. Clusters that run are left alone, so a test can call this first thing.
    pub fn up(&self, names: &[&str]) -> Result<()> {
        require_root()?;
        // What runs is left alone, so this need not wait for whoever starts another cluster.
        if self.are_up(names)? {
            return Ok(());
        }
        let _lock = self.lock()?;
        let specs = names.iter().map(|name| self.spec.get(name)).collect::<Result<Vec<_>>>()?;
        self.packages(specs.iter().any(|(_, spec)| spec.node))?;
        self.make_state_folder()?;
        if self.are_up(names)? {
            return Ok(());
        }
        network::allow_watches()?;
        let clusters = names.iter().map(|name| self.cluster(name)).collect::<Result<Vec<_>>>()?;
        self.build_for(names)?;
        let hub = self.start_hub()?;
        if clusters.iter().any(|cluster| cluster.spec.node) {
            self.start_registry()?;
        }
        let program = if clusters.iter().any(|cluster| cluster.spec.load_balancer) {
            self.own_program()?
        } else {
            PathBuf::new()
        };
        in_parallel(&clusters, |cluster| cluster.up(hub, &program))
    }

    /// Builds what the cache lacks of these clusters, and starts nothing.
    pub(crate) fn build_for(&self, names: &[&str]) -> Result<()> {
        let specs = names.iter().map(|name| Ok(self.spec.get(name)?.1)).collect::<Result<Vec<_>>>()?;
        let nodes = specs.iter().any(|spec| spec.node);
        self.packages(nodes)?;
        let mut parts: Vec<parts::Part> = Vec::new();
        for part in specs.iter().map(|spec| spec.parts()).collect::<Result<Vec<_>>>()?.concat() {
            if !parts.iter().any(|known| known.key() == part.key()) {
                parts.push(part);
            }
        }
        go::build(&self.place, &self.cache, &parts)?;
        if nodes { images::build(&self.cache, &parts) } else { Ok(()) }
    }

    /// Whether the clusters run, all of them.
    fn are_up(&self, names: &[&str]) -> Result<bool> {
        let mut up = !names.is_empty() && self.place.state.is_dir();
        for name in names {
            self.spec.get(name)?;
            up = up && self.cluster(name)?.is_up();
        }
        Ok(up)
    }

    /// Builds the images of this project's own programs with a profile of Cargo.toml and pushes them, under each tag,
    /// to the bed's registry, which is started if need be. Returns their names.
    pub fn images(&self, profile: &str, tags: &[String]) -> Result<Vec<String>> {
        require_root()?;
        self.packages(true)?;
        // This takes minutes at first, and nobody else need wait for it.
        let programs = product::compile(&self.place, profile)?;
        let (_lock, endpoint) = self.open_registry()?;
        product::push(&self.place, &programs, tags, &endpoint)
    }

    /// Builds the programs of those images, and no image.
    pub(crate) fn compile(&self, profile: &str) -> Result<()> {
        product::compile(&self.place, profile).map(drop)
    }

    /// Puts the images of a docker-archive into the bed's registry, which is started if need be; returns their names.
    pub fn load(&self, archive: &Path) -> Result<Vec<String>> {
        require_root()?;
        self.packages(true)?;
        let (_lock, endpoint) = self.open_registry()?;
        load::archive(archive, &endpoint)
    }

    fn open_registry(&self) -> Result<(cache::Lock, String)> {
        let lock = self.lock()?;
        self.make_state_folder()?;
        go::build(&self.place, &self.cache, &[parts::REGISTRY])?;
        self.start_hub()?;
        Ok((lock, self.start_registry()?))
    }

    /// Fills the cache: all programs, all schemas, all images.
    pub fn build(&self) -> Result<()> {
        require_root()?;
        self.packages(true)?;
        go::build(&self.place, &self.cache, &parts::all())?;
        images::build(&self.cache, &parts::all())?;
        schemas::fetch(&self.cache)?;
        go::forget(&self.cache)
    }

    /// Removes the cache and returns its size in bytes. Clusters must be down: their programs are in there.
    pub fn clean(&self) -> Result<u64> {
        if !process::all_marked().is_empty() {
            bail!("clusters run from the cache; stop them with `cargo bed down` in every checkout that has some");
        }
        self.cache.clean()
    }

    /// The OpenAPI v3 documents of a Kubernetes minor (`1.25`), one file a group and version, as its API serves them.
    /// They are fetched if the cache lacks them.
    pub fn openapi(&self, minor: &str) -> Result<PathBuf> {
        schemas::fetch(&self.cache)?;
        let dir = self.cache.openapi(minor);
        if !dir.is_dir() {
            bail!("Kubernetes {minor} is not among the versions in tests/bed/src/parts/schemas.rs");
        }
        Ok(dir)
    }

    /// A program that does with manifests what Argo CD does, by its engine: `gitops --kubeconfig F --application NAME diff|sync
    /// MANIFESTS` prints a JSON object a line. It is built if the cache lacks it.
    pub fn gitops(&self) -> Result<PathBuf> {
        go::build(&self.place, &self.cache, &[parts::GITOPS])?;
        Ok(self.cache.program(&parts::GITOPS, "gitops"))
    }

    /// The same of Flux: `flux --kubeconfig F --name KUSTOMIZATION [--former MANIFESTS] apply|diff|prune MANIFESTS`.
    pub fn flux(&self) -> Result<PathBuf> {
        go::build(&self.place, &self.cache, &[parts::FLUX])?;
        Ok(self.cache.program(&parts::FLUX, "flux"))
    }

    /// A program that reads YAML as Kubernetes does: a JSON string a line on standard input, each a YAML document, gives
    /// the document as JSON, or `"error: …"`. It is built if the cache lacks it.
    pub fn yaml_reader(&self) -> Result<PathBuf> {
        go::build(&self.place, &self.cache, &[parts::YAML_READER])?;
        Ok(self.cache.program(&parts::YAML_READER, "yamlread"))
    }

    /// The folder with `etcd` and `etcdctl` of the version that control planes have, built if the cache lacks them.
    pub fn etcd(&self) -> Result<PathBuf> {
        go::build(&self.place, &self.cache, &[parts::ETCD])?;
        Ok(self.cache.programs(&parts::ETCD))
    }

    /// Sees to it that zsh and fish are there, and `script`, which gives them a terminal.
    pub fn shells(&self) -> Result<()> {
        let _alone = self.cache.lock("packages")?;
        packages::shells()
    }

    /// Sees to it that the programs of the system are there, one run at a time: apt refuses a second one.
    fn packages(&self, nodes: bool) -> Result<()> {
        let _alone = self.cache.lock("packages")?;
        packages::ensure(nodes)
    }

    /// Helm, for comparisons. It is built if the cache lacks it.
    pub(crate) fn helm(&self) -> Result<PathBuf> {
        go::build(&self.place, &self.cache, &[parts::HELM])?;
        Ok(self.cache.program(&parts::HELM, "helm"))
    }

    /// The folder of the cache for development tools that are no part of a cluster.
    pub(crate) fn tools(&self) -> PathBuf {
        self.cache.root().join("tools")
    }

    /// A home directory for programs that the bed itself runs; it goes with the bed.
    pub(crate) fn home(&self) -> PathBuf {
        self.place.state.join("home")
    }

    /// The root of the checkout that this bed belongs to.
    pub fn checkout(&self) -> &Path {
        &self.place.checkout
    }

    /// The address of the bed's registry, `IP:PORT`; clusters pull from it whatever name an image has.
    pub fn registry(&self) -> Result<String> {
        Ok(registry::endpoint(self.place.known_subnet()?))
    }

    fn start_hub(&self) -> Result<i32> {
        let subnet = self.place.known_subnet()?;
        let hub = network::hold(&self.hub(), &self.cache)?;
        network::build_hub(&self.place, hub, subnet)?;
        Ok(hub)
    }

    fn start_registry(&self) -> Result<String> {
        let subnet = self.place.known_subnet()?;
        registry::up(&self.place, &self.cache, &self.hub(), subnet)?;
        Ok(registry::endpoint(subnet))
    }

    /// The program `bed`, for the parts that go on when this process ends. A test that uses the library is another
    /// program, so it has cargo build the real one.
    fn own_program(&self) -> Result<PathBuf> {
        let own = std::env::current_exe()?;
        let built = if own.file_name().is_some_and(|name| name == "bed") {
            own
        } else {
            let mut cargo = run::cargo(&self.place.checkout);
            cargo.args(["build", "--quiet", "--package", "bed", "--bin", "bed", "--message-format=json"]);
            product::executables(&run::output_of(&mut cargo)?).pop().context("cargo built no `bed`")?
        };
        // A copy: a build that replaces the program later does not matter then.
        let (staged, kept) = (self.place.state.join("bed.part"), self.place.state.join("bed"));
        fs::copy(built, &staged)?;
        fs::rename(staged, &kept)?;
        Ok(kept)
    }

    /// Takes the named clusters away, or with no name the whole bed, and leaves nothing of it on the machine.
    pub fn down(&self, names: &[&str]) -> Result<()> {
        require_root()?;
        let _lock = self.lock()?;
        if names.is_empty() {
            return teardown::bed(&self.place);
        }
        for name in names {
            self.spec.get(name)?;
            teardown::unit(&self.place, name)?;
        }
        Ok(())
    }

    /// What of this bed is on the machine, a line each; empty after [`Bed::down`].
    pub fn remains(&self) -> Vec<String> {
        teardown::remains(&self.place)
    }

    /// A cluster of the file, running or not.
    pub fn cluster(&self, name: &str) -> Result<Cluster> {
        let (index, spec) = self.spec.get(name)?;
        let subnet = self.place.known_subnet()?;
        Ok(Cluster::new(&self.place, &self.cache, subnet, name, index, spec))
    }

    /// All clusters of the file.
    pub fn clusters(&self) -> Result<Vec<Cluster>> {
        self.spec.names().map(|name| self.cluster(name)).collect()
    }

    /// A running cluster's kubeconfig; its only context has the cluster's name and is the administrator's.
    pub fn kubeconfig(&self, name: &str) -> Result<PathBuf> {
        let file = self.cluster(name)?.kubeconfig();
        if !file.exists() {
            bail!("cluster `{name}` is not up; start it with `cargo bed up {name}`");
        }
        Ok(file)
    }

    /// Runs kubectl, of the cluster's own version, as its administrator, and returns what it printed.
    pub fn kubectl(&self, name: &str, args: &[&str]) -> Result<String> {
        let kubeconfig = self.kubeconfig(name)?;
        let mut command = std::process::Command::new(self.kubectl_of(name)?);
        run::output_of(command.arg("--kubeconfig").arg(kubeconfig).args(args))
            .with_context(|| format!("in cluster `{name}`"))
    }

    /// The kubectl of the oldest Kubernetes that is built.
    pub fn kubectl_path(&self) -> Result<PathBuf> {
        let built = parts::KUBERNETES.iter().find(|part| self.cache.has(part));
        let part = built.context("no kubectl is built yet; run `cargo bed build`")?;
        Ok(self.cache.program(part, "kubectl"))
    }

    /// The kubectl of a cluster's own version.
    pub fn kubectl_of(&self, name: &str) -> Result<PathBuf> {
        Ok(self.cache.program(&self.cluster(name)?.part()?, "kubectl"))
    }

    /// The contexts of several kubeconfig files as one file, written to `HOME/.kube/config` of a user.
    pub fn merge_kubeconfigs(&self, files: &[PathBuf], home: &Path) -> Result<()> {
        let mut view = std::process::Command::new(self.kubectl_path()?);
        view.args(["config", "view", "--flatten"]).env("KUBECONFIG", std::env::join_paths(files)?);
        let folder = home.join(".kube");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("config"), run::output_of(&mut view)?)?;
        Ok(())
    }

    /// The address of a cluster's node, for its API (port 6443) and its NodePorts.
    pub fn node_ip(&self, name: &str) -> Result<String> {
        Ok(self.cluster(name)?.ip())
    }

    /// One run of the bed at a time changes this checkout's clusters.
    fn lock(&self) -> Result<cache::Lock> {
        self.cache.lock(&format!("bed-{}", self.place.id))
    }

    fn hub(&self) -> Supervisor {
        Supervisor { id: self.place.id.clone(), unit: "hub".to_owned(), dir: self.place.state.join("hub") }
    }

    fn make_state_folder(&self) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(&self.place.state)?;
        // Keys of administrators are in there.
        fs::set_permissions(&self.place.state, std::fs::Permissions::from_mode(0o700))?;
        self.place.subnet(&self.cache)?;
        Ok(())
    }
}

fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let how = "the bed makes namespaces, mounts and cgroups, so it needs root: run it as root, or with `sudo -E env PATH=\"$PATH\" cargo bed …`";
    Err(Unfit(how.to_owned()).into())
}

/// Runs `work` for each at the same time; of several errors, all are told.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let errors: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| bail!("a thread of the bed panicked")).err()
        };
        threads.into_iter().filter_map(join).collect()
    });
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.into_iter().next().unwrap_or_else(|| anyhow::anyhow!("no error"))),
        _ => bail!("{}", errors.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\n\n")),
    }
}
