//! Stopping: one signal that every task can wait for.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Signal that the program has to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop {
    sender: watch::Sender<bool>,
    receiver: watch::Receiver<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(false);
        Self { sender, receiver }
    }
}

impl Stop {
    /// Stops everything that waits.
    pub fn request_stop(&self) {
        self.sender.send_replace(true);
    }

    /// Returns whether it is time to stop.
    pub fn is_stopped(&self) -> bool {
        *self.receiver.borrow()
    }

    /// Waits until it is time to stop.
    pub async fn wait_for_stop(&self) {
        let mut receiver = self.receiver.clone();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = receiver.wait_for(|stopped| *stopped).await;
    }

    /// Stops on SIGTERM or SIGINT from now on.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let stop = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => tracing::info!("SIGTERM received, stopping"),
                _ = int.recv() => tracing::info!("SIGINT received, stopping"),
            }
            stop.request_stop();
        });
        Ok(())
    }
}
