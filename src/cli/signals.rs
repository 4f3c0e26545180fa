//! Ctrl-C and SIGTERM while a run is at work.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::output::error::Exit;
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
        let status = |mask: &str| format!("Name:\tfleetctl\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert_eq!(ignores_hangup(&status("0000000000001001")), Some(true));
        assert_eq!(ignores_hangup(&status("0000000000001000")), Some(false));
        assert_eq!(ignores_hangup("Name:\tfleetctl\n"), None);
    }
}
