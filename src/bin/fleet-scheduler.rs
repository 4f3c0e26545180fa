//! The program `fleet-scheduler`: arguments in, exit code out, nothing else.

fn main() {}
