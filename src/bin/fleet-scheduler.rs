//! The program `fleet-scheduler`: arguments in, exit code out, nothing else.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fleetctl::scheduler;
use fleetctl::scheduler::keys::{self, KeysArgs};
use fleetctl::scheduler::probe::{self, ProbeArgs};
use fleetctl::scheduler::receive::{self, ReceiveArgs};
use fleetctl::scheduler::store_folder::{self, StoreArgs};
use fleetctl::scheduler::version_guard::{self, GuardArgs};

/// Runs the inside of a control plane: its definitions, the registration of workload clusters, their health.
#[derive(Debug, Parser)]
#[command(name = "fleet-scheduler", version, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    args: scheduler::settings::Args,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the Secrets with keys of a control plane that its namespace lacks, and renew certificates that are due
    Keys(KeysArgs),
    /// Let an API server start only on objects that are stored by its own Kubernetes minor or by the one before
    Guard(GuardArgs),
    /// Read everything that an API server serves, and compare it with its etcd, for a rehearsal of a backup
    Probe(ProbeArgs),
    /// Take one file at a port of the loopback address, for a restore or a rehearsal
    Receive(ReceiveArgs),
    /// Prepare and swap the folders of a member of etcd, for a restore
    Store(StoreArgs),
}

fn main() -> ExitCode {
    let Program { args, command } = Program::parse();
    let ended = match command {
        None => scheduler::run_scheduler(args),
        Some(Command::Keys(given)) => keys::main(args.log_format, &given),
        Some(Command::Guard(given)) => version_guard::main(args.log_format, &given),
        Some(Command::Probe(given)) => probe::main(args.log_format, &given),
        Some(Command::Receive(given)) => receive::main(args.log_format, &given),
        Some(Command::Store(given)) => store_folder::main(args.log_format, &given),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
