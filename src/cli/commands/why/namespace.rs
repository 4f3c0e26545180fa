//! What of a namespace is placed where, and what is not placed: objects for a reason of their own, and kinds that are not
//! placed at all.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use kube::Client;

use super::fleet::Known;
use super::followers::Followers;
use super::report::Report;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::SCHEDULED;
use crate::api::first_of::first_of;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::k8s::other_kinds::{self, OtherKind};
use crate::placement::explain::{self, UnplacedKinds};
use crate::placement::facts::{Facts, Never};
use crate::placement::matching::Match;
use crate::placement::names::GroupKey;

/// Most objects that a line names.
const NAMED: usize = 5;

/// Requests at once.
const IN_FLIGHT: usize = 16;

/// Adds to the report of a Namespace what of its objects each cluster has, and what is not placed.
pub(super) async fn report_namespace(
    client: &Client,
    known: &Known,
    followers: &Followers,
    report: &mut Report,
) -> Result<(), CliError> {
    let mut placed: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for facts in followers.all_facts() {
        let mut is_placed = false;
        for (cluster, _) in known.schedules_of_object(&facts.key) {
            *placed.entry(cluster).or_default().entry(facts.key.kind()).or_default() += 1;
            is_placed = true;
        }
        if !is_placed && let Some(reason) = find_unplaced_reason(known, followers, facts) {
            reasons.entry(reason).or_default().push(format!("{} {}", facts.key.kind(), facts.key.name()));
        }
    }
    report.placed = !report.copies.is_empty();
    report
        .why
        .extend(placed.iter().map(|(cluster, kinds)| format!("{cluster} has {} of it", explain::format_counts(kinds))));
    if placed.is_empty() {
        report.why.push("it is placed with the objects in it, and none of these is placed".to_owned());
    }
    let reasons = reasons.into_iter();
    report.notes.extend(reasons.map(|(why, names)| format!("not placed: {}: {why}", first_of(names, NAMED, ", "))));
    report.notes.extend(list_other_kinds(client, known, followers.namespace()).await?);
    Ok(())
}

/// Returns why an object has no copy; `None` for what every cluster or a controller makes itself.
fn find_unplaced_reason(known: &Known, followers: &Followers, facts: &Facts) -> Option<String> {
    let found = known.policies.match_object(facts, &known.labels_of_namespace(&facts.key));
    if followers.is_following(&facts.key, &found) {
        let is_to_be = followers.plan.followers.get(&facts.key).is_some_and(|one| !one.places.is_empty());
        return Some(if is_to_be { "it has no copy yet" } else { followers.format_wait(&facts.key) }.to_owned());
    }
    Some(match found {
        Match::Never(Never::EveryCluster | Never::Owned) => return None,
        Match::Never(never) => never.format_never_reason().to_owned(),
        Match::Nowhere { .. } => "its annotation fleet-scheduler.io/cluster is empty".to_owned(),
        Match::Annotation { .. } => "no cluster that its annotation names takes it".to_owned(),
        Match::Nothing { .. } => "no policy matches it".to_owned(),
        Match::Policy { policy, .. } => {
            let name = known.group_name(&GroupKey::new(facts, policy), policy);
            let status = known.groups.get(&name).and_then(|group| group.status.as_ref());
            let decided = status.and_then(|status| condition::find_condition(&status.conditions, SCHEDULED));
            decided.map_or_else(
                || "it has no copy yet".to_owned(),
                |decided| format!("{}: {}", decided.reason, decided.message),
            )
        }
    })
}

/// Returns what there is of kinds that are not placed, by the value that places them, and what the user may not list.
async fn list_other_kinds(client: &Client, known: &Known, namespace: &str) -> Result<Vec<String>, CliError> {
    let others = other_kinds::discover_other_kinds(client, &known.kinds).await;
    let others = others.map_err(|error| request_failed("cannot read which kinds the control plane serves", &error))?;
    let lists = stream::iter(others.into_iter().map(|other| async move {
        let list = other.list_uncontrolled(client, Some(namespace)).await;
        (other, list)
    }));
    let lists: Vec<_> = lists.buffered(IN_FLIGHT).collect().await;
    let (mut found, mut hidden) = (UnplacedKinds::new(), Vec::new());
    for (OtherKind { resource, value }, list) in lists {
        match list {
            Ok(list) if list.is_empty() => {}
            Ok(list) => *found.entry(value).or_default().entry(resource.kind).or_default() += list.len(),
            Err(kube::Error::Api(status)) if status.code == 403 => hidden.push(resource.plural),
            Err(error) => return Err(request_failed(&format!("cannot list {}", resource.plural), &error)),
        }
    }
    let lines = explain::format_unplaced_kinds(&found);
    let mut lines: Vec<String> = lines.map(|line| format!("not placed: {line}")).collect();
    if !hidden.is_empty() {
        lines.push(format!("you have no right to list {}", first_of(hidden, NAMED, ", ")));
    }
    Ok(lines)
}
