//! Copies that an earlier registration of a cluster left there.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt as _};

use crate::api::first_of::first_of;
use crate::api::labels::LABEL_PLACED_BY;
use crate::api::rbac::{Right, Scope};
use crate::check::CheckResult;

/// Most copies of a kind that are counted.
const COUNTED: u32 = 500;

/// Copies that were found, of the kinds that matter to whoever lost them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierCopies {
    /// PersistentVolumeClaims, each as `shop/data`.
    pub claims: Vec<String>,
    /// Number of Deployments and StatefulSets.
    pub workloads: usize,
    /// Whether there are more than were counted.
    pub are_more: bool,
}

impl EarlierCopies {
    /// Lists them. A kind that may not be listed counts as absent: an agent keeps what contains data in any case.
    pub async fn list_copies(client: &Client) -> Self {
        let (claims, deployments, sets) = tokio::join!(
            list_marked::<PersistentVolumeClaim>(client),
            list_marked::<Deployment>(client),
            list_marked::<StatefulSet>(client),
        );
        Self {
            claims: claims.0,
            workloads: deployments.0.len() + sets.0.len(),
            are_more: claims.1 || deployments.1 || sets.1,
        }
    }

    /// Returns the rights that [`Self::list_copies`] needs; without them less is checked.
    pub fn copy_rights() -> Vec<Right> {
        [
            Right::optional_rights(Scope::Cluster, "", "persistentvolumeclaims", &["list"]),
            Right::optional_rights(Scope::Cluster, "apps", "statefulsets", &["list"]),
        ]
        .concat()
    }

    /// Evaluates whether copies are left, where no agent manages them.
    pub fn evaluate_copies(&self, is_managed: bool) -> CheckResult {
        if is_managed {
            return CheckResult::Passed("managed by an agent".to_owned());
        }
        if self.claims.is_empty() && self.workloads == 0 {
            return CheckResult::Passed("none".to_owned());
        }
        let at_least = if self.are_more { "at least " } else { "" };
        let claims = match self.claims.len() {
            0 => String::new(),
            1 => format!(" and the PersistentVolumeClaim {}", self.claims[0]),
            count => format!(" and {count} PersistentVolumeClaims ({})", first_of(&self.claims, 3, ", ")),
        };
        CheckResult::new_failure(
            format!("an earlier agent left {at_least}{} Deployments and StatefulSets{claims}", self.workloads),
            "if the cluster joins the control plane that placed them, the agent adopts the copies that are still \
             placed here; ten minutes later it deletes the others, except those with data. To keep everything, remove \
             the label fleet-scheduler.io/placed-by from the objects first",
        )
    }
}

/// Returns the marked objects of a kind, and whether there are more.
async fn list_marked<K>(client: &Client) -> (Vec<String>, bool)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let marked = ListParams::default().labels(LABEL_PLACED_BY).limit(COUNTED);
    let Ok(list) = Api::<K>::all(client.clone()).list_metadata(&marked).await else { return (Vec::new(), false) };
    let has_more = list.metadata.continue_.as_ref().is_some_and(|more| !more.is_empty());
    let title =
        |object: &PartialObjectMeta<K>| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    (list.items.iter().map(title).collect(), has_more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_nobody_manages_are_named() {
        let left = EarlierCopies { claims: vec!["shop/data".to_owned()], workloads: 2, are_more: false };
        assert!(matches!(left.evaluate_copies(true), CheckResult::Passed(_)));
        assert!(matches!(EarlierCopies::default().evaluate_copies(false), CheckResult::Passed(_)));
        let CheckResult::Failed(problem) = left.evaluate_copies(false) else { panic!("it is told") };
        assert_eq!(
            problem.what,
            "an earlier agent left 2 Deployments and StatefulSets and the PersistentVolumeClaim shop/data"
        );
    }
}
