//! The program `fleet-scheduler`: arguments in, exit code out, nothing else.

use std::process::ExitCode;

use clap::Parser as _;
use fleetctl::scheduler;

fn main() -> ExitCode {
    match scheduler::run(scheduler::settings::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
