//! Rights that the user lacks, asked of the API server by access reviews, and the judgement on them.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};

use super::CheckResult;
use crate::api::rbac::{Right, Scope};
use crate::api::remedy::{Command, Flag, Remedy};

/// The writes among `writes` (API group, resource, whether it lives in a namespace) that are not allowed, as
/// `create secrets in namespace fleet`.
///
/// # Errors
/// An API server that does not answer a review.
pub async fn list_forbidden_writes(
    client: &Client,
    namespace: &str,
    writes: &[(String, String, bool)],
) -> Result<Vec<String>, kube::Error> {
    let rights = writes.iter().flat_map(|(group, resource, namespaced)| {
        let scope = if *namespaced { Scope::Namespace } else { Scope::Cluster };
        Right::needed_rights(scope, group, resource, &["create", "patch"])
    });
    list_forbidden_rights(client, namespace, &rights.collect::<Vec<_>>()).await
}

/// The rights that the user lacks, as `create pods/portforward in namespace fleet`.
///
/// # Errors
/// An API server that does not answer a review.
pub async fn list_forbidden_rights(
    client: &Client,
    namespace: &str,
    rights: &[Right],
) -> Result<Vec<String>, kube::Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let reviewed = futures::future::try_join_all(rights.iter().map(|right| {
        let (resource, subresource) = match right.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (right.resource.as_str(), None),
        };
        let namespaced = right.scope == Scope::Namespace;
        let attributes = ResourceAttributes {
            group: Some(right.group.clone()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(right.verb.to_owned()),
            namespace: namespaced.then(|| namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None },
            ..SelfSubjectAccessReview::default()
        };
        let (reviews, params) = (&reviews, &params);
        async move {
            let answer = reviews.create(params, &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            let place = if namespaced { format!(" in namespace {namespace}") } else { String::new() };
            Ok::<_, kube::Error>((!allowed).then(|| format!("{} {}{place}", right.verb, right.resource)))
        }
    }))
    .await?;
    Ok(reviewed.into_iter().flatten().collect())
}

/// Judges what is [`list_forbidden_writes`] among the writes of `kinds` kinds; `source` says, in brackets, where the rights that are
/// needed can be read, or nothing.
pub(super) fn evaluate_access(forbidden: &[String], kinds: usize, source: Command) -> CheckResult {
    if forbidden.is_empty() {
        return CheckResult::Passed(format!("you may write all {kinds} required kinds"));
    }
    CheckResult::new_failure(
        format!("you may not {}", forbidden.join(", ")),
        Remedy::new("ask for these rights (")
            .command(source)
            .text(", with the same values, prints all required rights), or use a context that has them (")
            .flag(Flag::Context(None))
            .text(")"),
    )
}
