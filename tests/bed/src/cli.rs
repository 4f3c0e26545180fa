//! The command line of `cargo bed`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::say::{print, say};
use crate::{Bed, Unfit};

/// Real Kubernetes clusters on this machine, for this checkout
#[derive(Debug, Parser)]
#[command(name = "cargo bed", bin_name = "cargo bed", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start clusters and wait until they are ready; whatever is missing is built or installed first
    Up {
        /// Names from tests/bed/clusters.yaml; without any, `host`
        names: Vec<String>,
    },
    /// Stop clusters and leave nothing of them on this machine
    Down {
        /// Without any, the whole bed
        names: Vec<String>,
    },
    /// Print the path of a cluster's kubeconfig
    Kubeconfig {
        /// The cluster
        name: String,
    },
    /// Run kubectl, of the cluster's own version, as its administrator
    Kubectl {
        /// The cluster
        name: String,
        /// What kubectl is told
        #[arg(last = true)]
        args: Vec<String>,
    },
}

/// Runs the command line; 0 for success, 2 for what the caller has to mend first, 1 for everything else.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            say(format!("error: {error:#}"));
            ExitCode::from(if error.is::<Unfit>() { 2 } else { 1 })
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    let bed = Bed::here()?;
    match task {
        Task::Up { names } => bed.up(&or_host(&names))?,
        Task::Down { names } => bed.down(&words(&names))?,
        Task::Kubeconfig { name } => print(bed.kubeconfig(&name)?.display().to_string()),
        Task::Kubectl { name, args } => return kubectl(&bed, &name, &args),
    }
    Ok(ExitCode::SUCCESS)
}

fn kubectl(bed: &Bed, name: &str, args: &[String]) -> Result<ExitCode> {
    let kubectl = bed.kubectl_of(name)?;
    let error = Command::new(&kubectl).arg("--kubeconfig").arg(bed.kubeconfig(name)?).args(args).exec();
    bail!("cannot run {}: {error}", kubectl.display())
}

fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn or_host(names: &[String]) -> Vec<&str> {
    if names.is_empty() { vec!["host"] } else { words(names) }
}
