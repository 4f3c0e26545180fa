//! Ctrl-C and SIGTERM while a run is at work.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::output::error::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;

/// Returns on SIGINT or SIGTERM, or reports that the running undo is completed first; a second signal ends the program
/// at once. `way_back` is the command that would undo the rest: `rollback NAME`.
pub(in crate::cli) async fn wait_for_interrupt(ui: &Ui, display: &Arc<Display>, way_back: Option<String>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let then = if display.is_undoing() { "still undoing the changes of this run" } else { "releasing the lock" };
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
