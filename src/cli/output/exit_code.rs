//! The exit codes: the meaning of each, and what to do.

/// The exit codes that are promised to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// It failed.
    Failed = 1,
    /// Wrong arguments or values.
    Usage = 2,
    /// Preflight refused; nothing was written.
    Preflight = 3,
    /// A wait ran out of time.
    TimedOut = 4,
    /// Left part-done, or leftovers were found.
    PartDone = 5,
    /// Refused because it could destroy something.
    Refused = 6,
    /// The installation is not healthy.
    Unhealthy = 7,
    /// Ended by a signal.
    Interrupted = 130,
}

/// Each exit code with its meaning and what to do, as docs/exit-codes.md prints it.
pub(crate) const EXIT_CODES: [(Exit, &str, &str); 9] = [
    (Exit::Ok, "done", "nothing; warnings do not change this code"),
    (Exit::Failed, "failed", "read the error; most have a hint"),
    (Exit::Usage, "wrong arguments or values", "correct the command line or the values; nothing was written"),
    (Exit::Preflight, "preflight refused; nothing was written", "`fleetctl check --pre` lists every reason"),
    (Exit::TimedOut, "timed out", "run the same command again; it continues where it stopped"),
    (Exit::PartDone, "only a part was done, or orphaned objects were found", "the error says how to continue or undo"),
    (Exit::Refused, "refused for safety", "the error names the flag that overrides the refusal"),
    (Exit::Unhealthy, "not healthy", "`fleetctl check NAME` lists every check with its remedy"),
    (Exit::Interrupted, "interrupted", "run the same command again, or `fleetctl rollback NAME`"),
];
