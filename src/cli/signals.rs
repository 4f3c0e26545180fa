//! Ctrl-C and SIGTERM while a run is at work, and what the interrupted command says.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;

/// Returns on SIGINT, SIGTERM or the end of the terminal, or reports that the running undo is completed first; a second signal ends the program
/// at once. `way_back` is the command that would undo the rest: `rollback NAME`.
pub(in crate::cli) async fn wait_for_interrupt(ui: &Ui, display: &Arc<Display>, way_back: Option<String>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let mut hangup = listen_for_hangup();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = wait_for_hangup(hangup.as_mut()) => {}
    }
    let then = if display.is_undoing() { "still undoing the changes of this run" } else { "cleaning up" };
    ui.write_stderr(&format!("Interrupted; {then} (interrupt again to stop at once)"));
    let (ui, display) = (ui.clone(), Arc::clone(display));
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let way_back = way_back.filter(|_| display.is_undoing());
        let rest =
            way_back.map(|command| format!(", and `{} {command}` undoes the rest", ui.program)).unwrap_or_default();
        display.close_step(false);
        ui.write_stderr(&format!("Stopped at once; run the same command again to continue{rest}"));
        #[allow(clippy::exit)] // The user asked twice; nothing that is still under way is worth waiting for.
        std::process::exit(Exit::Interrupted as i32);
    });
}

/// Runs `work` until it ends or a signal stops it, and closes the display either way; after a signal, `release` lets go of
/// what it held, such as the lock.
///
/// For work that can be interrupted at any point because the same command continues with it; `what` is its name, such
/// as `the removal`.
pub(in crate::cli) async fn until_stopped<T, E>(
    ui: &Ui,
    display: &Arc<Display>,
    what: &str,
    work: impl Future<Output = Result<T, E>>,
    release: impl Future<Output = ()>,
) -> Result<Result<T, E>, CliError> {
    let outcome = tokio::select! {
        outcome = work => Some(outcome),
        () = wait_for_interrupt(ui, display, None) => None,
    };
    display.close_step(outcome.as_ref().is_some_and(Result::is_ok));
    let Some(outcome) = outcome else {
        release.await;
        return Err(goes_on(CliError::new(Exit::Interrupted, "Interrupted", format!("{what} was interrupted"))));
    };
    Ok(outcome)
}

/// Adds the hint that an interrupted command can be continued; a refused one has not begun.
pub(in crate::cli) fn goes_on(error: CliError) -> CliError {
    if error.exit == Exit::Refused {
        return error;
    }
    error.hint("run the same command again; it continues where it stopped")
}

/// Listens for SIGHUP, which a terminal sends when it is closed. None where the program was started to ignore it, as `nohup`
/// does, and where the system does not tell.
fn listen_for_hangup() -> Option<Signal> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    if ignores_hangup(&status)? { None } else { signal(SignalKind::hangup()).ok() }
}

async fn wait_for_hangup(hangup: Option<&mut Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether a process ignores SIGHUP, by `/proc/PID/status`: `SigIgn` is a mask in hexadecimal digits, of which the
/// lowest bit is that of signal 1, SIGHUP.
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let last = mask.trim().chars().last()?.to_digit(16)?;
    Some(last & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_is_ignored_is_seen() {
        for (mask, ignores) in [("0000000000001001", true), ("0000000000001000", false)] {
            let status = format!("Name:\tfleetctl\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
            assert_eq!(ignores_hangup(&status), Some(ignores));
        }
        assert_eq!(ignores_hangup("Name:\tfleetctl\n"), None);
    }
}
