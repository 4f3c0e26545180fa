//! The program `fleet-agent`: arguments in, exit code out, nothing else.

fn main() {}
