//! The program `fleetctl`: arguments in, exit code out, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleetctl::cli::main()
}
