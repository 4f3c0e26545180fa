//! Health of a control plane, from both sides: its pods in the hosting cluster, and its own API.

use std::time::{Duration, Instant};

use kube::Client;

use crate::check::inside::{self, CHECKS, HealthFacts};
use crate::check::{self, Report};
use crate::install::admin_access;
use crate::k8s::error_sentences;
use crate::pki::Kubeconfig;

/// Time that one look at the control plane's API may take.
const LOOK: Duration = Duration::from_secs(10);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// Observed facts, and the verdicts of the checks on them.
#[derive(Debug)]
pub struct Health {
    /// The facts.
    pub facts: HealthFacts,
    /// The verdicts.
    pub report: Report,
}

impl Health {
    /// Returns whether no check failed; there may be warnings.
    pub fn is_healthy(&self) -> bool {
        self.report.failures().next().is_none()
    }
}

/// An error of the client and everything behind it, each thing said once.
pub fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for said in error_sentences(error) {
        if text.is_empty() {
            text = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
    }
    text
}

/// A client of the control plane's own API, from its kubeconfig.
///
/// # Errors
/// Reason that the kubeconfig cannot be used, as a sentence.
pub async fn connect_control_plane_api(kubeconfig: &Kubeconfig) -> Result<Client, String> {
    Ok(admin_access::connect_kubeconfig(kubeconfig).await?.client)
}

/// Observes the health once. `agents_call` is the server that agents use, if known. Either side may be missing, with
/// the reason: its checks are then reported as not checked.
///
/// # Errors
/// A hosting cluster that does not let its objects be read; whatever is wrong with the other side is part of the health.
pub async fn observe_health(
    hosting: Result<&Client, String>,
    hub: Result<&Client, String>,
    namespace: &str,
    agents_call: Option<&str>,
) -> Result<Health, kube::Error> {
    let components = async {
        match hosting {
            Ok(client) => inside::read_components(client, namespace).await.map(Ok),
            Err(why) => Ok(Err(why)),
        }
    };
    let inside = async {
        let hub = hub?;
        match tokio::time::timeout(LOOK, inside::read_inside(hub, namespace)).await {
            Ok(Ok(inside)) => Ok(inside),
            Ok(Err(error)) => Err(format_error_chain(&error)),
            Err(_) => Err(format!("the API did not answer within {} s", LOOK.as_secs())),
        }
    };
    let (components, inside) = tokio::join!(components, inside);
    let facts = HealthFacts { components: components?, inside, agents_call: agents_call.map(str::to_owned) };
    let report = check::run_checks(&CHECKS, &facts, &[]);
    Ok(Health { facts, report })
}

/// Returns whether the server has answered, and will not answer otherwise.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Polls until the control plane is healthy, or until `deadline`; after every poll `waiting` gets the first problem, or
/// the error of the poll.
pub async fn wait_until_healthy(
    hosting: &Client,
    hub: Result<&Client, String>,
    namespace: &str,
    agents_call: Option<&str>,
    deadline: Instant,
    waiting: &(dyn Fn(&str) + Sync),
) -> Result<Health, kube::Error> {
    loop {
        let health = match observe_health(Ok(hosting), hub.clone(), namespace, agents_call).await {
            Ok(health) => health,
            // One answer that failed is no reason to give up what is being waited for.
            Err(error) if Instant::now() + PAUSE < deadline && !is_refusal(&error) => {
                waiting(&format_error_chain(&error));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        if health.is_healthy() || Instant::now() + PAUSE > deadline {
            return Ok(health);
        }
        if let Some((judged, problem)) = health.report.failures().next() {
            waiting(&format!("{}: {}", judged.title, problem.what));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
