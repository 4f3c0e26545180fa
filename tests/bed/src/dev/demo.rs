//! `cargo bed demo`: a control plane in one real cluster, two workload clusters registered with it, and a Deployment that
//! runs on both, from nothing.
//!
//! All of it runs one Kubernetes, that of the control plane's own API server, with the newest service version: what
//! `--version auto` gives on a current cluster. A second one would take as long to build as all the rest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use fs_err as fs;

use crate::dev::picture;
use crate::dev::steps::Steps;
use crate::parts::product::{DAEMONS, executables};
use crate::run::{cargo, output_of};
use crate::say::say;
use crate::{Bed, PROFILE};

/// The hosting cluster, and a workload cluster.
const HOST: &str = "current";
const MEMBER: &str = "member-2";
/// The service version that `--version auto` takes there.
const VERSION: &str = "v1.2.0";

/// The steps, in order. With `picture` what the commands print is also drawn into that file.
pub(crate) fn run(bed: &Bed, picture: Option<&Path>) -> Result<()> {
    let mut steps = Steps::with_clusters();
    crate::require_root()?;
    let fleetctl = steps.run("build Kubernetes and, beside it, this project", || {
        std::thread::scope(|scope| {
            // Neither keeps two cores busy all the time: a program is linked on one.
            let clusters = scope.spawn(|| bed.build_for(&[HOST, MEMBER]));
            let fleetctl = build(bed).and_then(|fleetctl| bed.compile(PROFILE).map(|()| fleetctl));
            clusters.join().map_err(|_| anyhow!("the build of Kubernetes panicked"))??;
            fleetctl
        })
    })?;
    steps.run("push the images of this project", || bed.images(PROFILE, &[VERSION.to_owned()]).map(drop))?;
    steps.run(&format!("start the clusters `{HOST}` and `{MEMBER}`"), || bed.up(&[HOST, MEMBER]))?;

    let home = bed.home();
    fs::create_dir_all(&home)?;
    let kubeconfigs = [bed.kubeconfig(HOST)?, bed.kubeconfig(MEMBER)?];
    let file = home.join(".fleet/demo/fleet-kubeconfig");
    let all = std::env::join_paths(kubeconfigs.iter().chain([&file])).context("paths without a colon")?;
    let mut shown = Transcript { picture: picture.is_some(), text: String::new() };
    let folder = fleetctl.parent().context("a program lies in a folder")?.to_owned();
    let kubectl = bed.kubectl_path()?.parent().context("a program lies in a folder")?.to_owned();
    let (path, folder) = (vec![folder, kubectl], bed.checkout().to_owned());
    let environment = Environment { path, home: home.clone(), kubeconfig: all, folder };
    steps.run("install a control plane", || {
        shown.command(&environment, "fleetctl install control-plane demo --context current --version auto")?;
        shown.command(&environment, "kubectl --context current --namespace fleet get pods")?;
        shown.command(&environment, "kubectl --context demo get customresourcedefinitions")
    })?;
    steps.run("register two workload clusters", || {
        shown.command(
            &environment,
            "fleetctl install agent member-2 --context member-2 --control-plane demo --version auto",
        )?;
        // The hosting cluster can carry workloads too. Its agent keeps out of the control plane's namespace.
        shown.command(
            &environment,
            "fleetctl install agent current --context current --namespace fleet-agent --control-plane demo --version auto",
        )?;
        shown.command(&environment, "kubectl --context demo get clusters")?;
        shown.command(&environment, "fleetctl get clusters --context demo")
    })?;
    steps.run("place a Deployment onto both", || {
        shown.command(&environment, "kubectl --context demo apply -f examples/place-workloads/spread.yaml")?;
        shown.command(&environment, "kubectl --context demo apply -f examples/place-workloads/shop.yaml")?;
        let rollout = "kubectl --context demo -n shop rollout status deployment/web --timeout=120s";
        shown.command(&environment, rollout)?;
        shown.command(&environment, "fleetctl get deployments --context demo -n shop")?;
        shown.command(&environment, "kubectl --context member-2 -n shop get pods")?;
        shown.command(&environment, "fleetctl why deployment/web -n shop --context demo")
    })?;
    if let Some(file) = picture {
        let text = shown.text.replace(&home.display().to_string(), "/home/jane");
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, picture::svg("fleetctl on a real Kubernetes cluster", &text))?;
    }
    steps.summary();
    say(format!(
        "\nLook around:\n  export KUBECONFIG={}\n  kubectl --context demo get clusters\n  kubectl --context {HOST} get pods --all-namespaces\n  \
         HOME={} {} status --context {HOST}\nStop, and leave nothing:\n  cargo bed down",
        environment.kubeconfig.display(),
        home.display(),
        fleetctl.display(),
    ));
    Ok(())
}

pub(crate) fn build(bed: &Bed) -> Result<PathBuf> {
    let mut cargo = cargo(bed.checkout());
    cargo.args(["build", "--package", "fleetctl", "--bin", "fleetctl", "--message-format=json-render-diagnostics"]);
    executables(&output_of(cargo.args(DAEMONS))?).pop().context("cargo built no fleetctl")
}

/// What the commands of the demo find.
struct Environment {
    path: Vec<PathBuf>,
    home: PathBuf,
    kubeconfig: OsString,
    /// Where they run.
    folder: PathBuf,
}

/// What was typed and printed, for the picture.
struct Transcript {
    picture: bool,
    text: String,
}

impl Transcript {
    /// Runs a command line as a user would type it; with a picture to draw, its output is shown when it has ended.
    fn command(&mut self, environment: &Environment, line: &str) -> Result<()> {
        say(format!("$ {line}"));
        let system = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(environment.path.iter().cloned().chain(std::env::split_paths(&system)))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} 2>&1")]).stdin(Stdio::null()).current_dir(&environment.folder);
        shell.env("PATH", path).env("HOME", &environment.home).env("KUBECONFIG", &environment.kubeconfig);
        let ended = if self.picture {
            let output = shell.output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            say(text.trim_end());
            self.text.push_str(&format!("$ {line}\n{text}\n"));
            output.status
        } else {
            shell.status()?
        };
        if !ended.success() {
            bail!("`{line}` ended with {ended}");
        }
        Ok(())
    }
}
