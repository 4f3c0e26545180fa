//! `cargo bed`: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    bed::cli::main()
}
