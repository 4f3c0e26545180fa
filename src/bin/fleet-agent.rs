//! The program `fleet-agent`: arguments in, exit code out, nothing else.

use std::process::ExitCode;

use clap::Parser as _;
use fleetctl::agent;

fn main() -> ExitCode {
    match agent::run_agent_daemon(agent::settings::Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
