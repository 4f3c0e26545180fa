//! Context of the user's kubeconfig for a workload cluster, found by the UID of the cluster's namespace kube-system.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::k8s::Target;

/// How long one cluster may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Contexts that are tried at a time.
const AT_A_TIME: usize = 8;

/// Finds the context for the cluster with this ID.
///
/// # Errors
/// No context leads there; the one that was given leads elsewhere.
pub(super) async fn find_cluster_context(
    global: &Global,
    cluster: &str,
    id: &str,
    given: Option<&str>,
) -> Result<String, CliError> {
    if let Some(context) = given {
        let connected = context_target(global, context).connect_client().await?;
        let found = read_cluster_id(connected.client).await;
        return match found {
            Some(found) if found == id => Ok(context.to_owned()),
            Some(_) => Err(CliError::new(
                Exit::Refused,
                "UnusableContext",
                format!("context `{}` is not for workload cluster {cluster}", visible_cell(context)),
            )
            .cause(format!("the UID of its namespace kube-system is not {}", visible_cell(id)))),
            // Whoever may not read the namespace knows where the context leads.
            None => Ok(context.to_owned()),
        };
    }
    let contexts = order_contexts(context_target(global, "").list_contexts(), cluster, global.context.as_deref());
    let tried = contexts.len();
    let mut answers = stream::iter(contexts)
        .map(|context| {
            let target = context_target(global, &context);
            async move {
                // A log-in plug-in may run before anything is sent.
                let identify = async { read_cluster_id(target.connect_client().await.ok()?.client).await };
                let found = tokio::time::timeout(LIMIT, identify).await.ok()??;
                Some((context, found))
            }
        })
        .buffered(AT_A_TIME);
    while let Some(answer) = answers.next().await {
        if let Some((context, _)) = answer.filter(|(_, found)| !id.is_empty() && found == id) {
            return Ok(context);
        }
    }
    Err(CliError::new(
        Exit::Failed,
        "NoSuchContext",
        format!("none of the {tried} contexts in your kubeconfig is for workload cluster {cluster}"),
    )
    .cause(format!("its ID, the UID of its namespace kube-system, is {}", visible_cell(id)))
    .hint("name a context for that cluster: `--cluster-context CONTEXT`"))
}

fn context_target(global: &Global, context: &str) -> Target {
    Target { kubeconfig: global.kubeconfig.iter().cloned().collect(), context: Some(context.to_owned()) }
}

/// Puts the context that is called like the cluster first, and leaves out that of the control plane.
fn order_contexts(mut contexts: Vec<String>, cluster: &str, control_plane: Option<&str>) -> Vec<String> {
    contexts.retain(|context| Some(context.as_str()) != control_plane);
    contexts.sort_by_key(|context| (context != cluster, !context.contains(cluster)));
    contexts
}

/// The UID of the namespace kube-system; none where it cannot be read.
async fn read_cluster_id(client: kube::Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.get("kube-system").await.ok()?.metadata.uid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_that_is_called_like_the_cluster_is_tried_first() {
        let contexts = ["a", "demo", "admin@west", "west", "z"].map(str::to_owned).to_vec();
        assert_eq!(order_contexts(contexts, "west", Some("demo")), ["west", "admin@west", "a", "z"]);
    }
}
