//! Talking to a cluster's API from code that is not async, wherever it is called from.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::say::seconds;

/// Runs a future to its end on a thread of its own: a test may itself be running inside a runtime, which would
/// refuse to start a second one.
pub(crate) fn block_on<T: Send, F: Future<Output = Result<T>>>(future: impl FnOnce() -> F + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(future())
        });
        thread.join().unwrap_or_else(|_| bail!("a call to the API panicked"))
    })
}

/// A client for a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}

/// GETs a path until `done` accepts the answer, or fails with the last answer once the time is over, or `in_vain` says that
/// nothing can come of it.
pub(crate) async fn poll(
    client: &Client,
    path: &str,
    limit: Duration,
    in_vain: impl Fn() -> bool,
    mut done: impl FnMut(&str) -> bool,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = match tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await {
            Ok(Ok(text)) if done(&text) => return Ok(()),
            Ok(Ok(text)) => text,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 5 s".to_owned(),
        };
        if began.elapsed() > limit || in_vain() {
            let answer: String = answer.chars().take(600).collect();
            return Err(anyhow::anyhow!(answer))
                .with_context(|| format!("GET {path} is not as expected after {}", seconds(began.elapsed())));
        }
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
}
