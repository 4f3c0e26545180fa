//! What follows, where it goes, and why.

use std::collections::{BTreeMap, BTreeSet};

use fleetctl::placement::facts::{Facts, ObjectKey, Relations};
use fleetctl::placement::follow::{
    Because, EditedRelations, FollowCopy, FollowGroup, FollowInput, FollowPlan, Follower, MissingFollower, Place,
    SourceRecord, find_edited_relations, plan_followers,
};
use fleetctl::placement::matching::Policies;
use serde_json::{Map, Value, json};

use crate::support::{check, facts, policies};

/// A source as it is read from its manifest.
pub(crate) struct Source {
    pub(crate) facts: Facts,
    relations: Relations,
    edited: EditedRelations,
}

impl Source {
    pub(crate) fn new(manifest: &Value) -> Self {
        let facts = facts(manifest);
        let relations = Relations::from_manifest(&facts.key, manifest);
        Self { facts, relations, edited: EditedRelations::new() }
    }

    pub(crate) fn record(&self, targets: &[&str], copies: BTreeMap<String, FollowCopy>) -> SourceRecord<'_> {
        SourceRecord {
            facts: &self.facts,
            relations: &self.relations,
            edited: &self.edited,
            targets: targets.iter().map(|name| (*name).to_owned()).collect(),
            copies,
            recorded: BTreeSet::new(),
            is_quiet: true,
        }
    }
}

pub(crate) fn plan(policies: &Policies, records: &[SourceRecord<'_>]) -> FollowPlan {
    let (namespaces, groups_elsewhere) = (BTreeMap::new(), BTreeSet::new());
    plan_followers(&FollowInput { policies, namespaces: &namespaces, records, groups_elsewhere: &groups_elsewhere })
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn read_copy(value: &Value) -> FollowCopy {
    let is = |name: &str| value.get(name).and_then(Value::as_bool) == Some(true);
    let uses = value.get("uses").map(|uses| texts(uses).into_iter().map(ObjectKey::from).collect());
    FollowCopy { follows: is("follows"), unsettled: is("unsettled"), uses }
}

fn print_because(because: &Because) -> String {
    match because {
        Because::Object(key) => key.to_string(),
        Because::Policy => "policy".to_owned(),
        Because::Annotation => "annotation".to_owned(),
    }
}

fn print_place(place: &Place) -> Value {
    let because: BTreeSet<String> = place.because.iter().map(print_because).collect();
    let mut value = json!({ "state": place.state.code(), "because": because });
    if let Some(policy) = &place.policy {
        value["policy"] = json!(policy);
    }
    if place.only_pull_secrets {
        value["only"] = json!("imagePullSecrets");
    }
    value
}

fn print_follower((key, follower): (&ObjectKey, &Follower)) -> Value {
    let places: Map<String, Value> =
        follower.places.iter().map(|(cluster, place)| (cluster.clone(), print_place(place))).collect();
    let mut value = json!({ "object": key.as_str(), "places": places });
    if let Some(waits) = follower.waits {
        value["waits"] = json!(waits.code());
    }
    value
}

fn print_group(group: &FollowGroup) -> Value {
    let keys = |keys: &[ObjectKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut value = json!({
        "name": group.name,
        "key": group.key.as_str(),
        "decided": keys(&group.decided),
        "followers": keys(&group.followers),
    });
    if let Some(only) = &group.only {
        value["only"] = json!(only);
    }
    value
}

fn print_missing(missing: &MissingFollower) -> Value {
    json!({
        "user": missing.user.as_str(),
        "object": missing.object.as_str(),
        "cluster": missing.cluster,
        "why": missing.why.code(),
    })
}

fn run(_: &str, case: &Value) -> Value {
    let policies = case.get("policies").map(policies).unwrap_or_default();
    let clusters: Vec<(String, BTreeMap<String, String>)> = case["clusters"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cluster| {
            (cluster["name"].as_str().unwrap().to_owned(), serde_json::from_value(cluster["labels"].clone()).unwrap())
        })
        .collect();
    let mut sources: Vec<Source> = Vec::new();
    for manifest in case["objects"].as_array().unwrap() {
        let mut source = Source::new(manifest);
        let clusters = clusters.iter().map(|(name, labels)| (name.as_str(), labels));
        source.edited = find_edited_relations(manifest, &source.facts, &policies, clusters);
        sources.push(source);
    }
    let mut records = Vec::new();
    for source in &sources {
        let key = source.facts.key.as_str();
        let copies = case.get("copies").and_then(|all| all.get(key)).and_then(Value::as_object);
        let copies = copies.into_iter().flatten().map(|(cluster, copy)| (cluster.clone(), read_copy(copy))).collect();
        let quiet = case.get("quiet").and_then(|all| all.get(source.facts.key.namespace()));
        records.push(SourceRecord {
            is_quiet: quiet.and_then(Value::as_bool) != Some(false),
            ..source.record(&case.get("targets").map(|all| texts(&all[key])).unwrap_or_default(), copies)
        });
    }
    let namespaces: BTreeMap<String, BTreeMap<String, String>> =
        case.get("namespaces").map(|all| serde_json::from_value(all.clone()).unwrap()).unwrap_or_default();
    let groups_elsewhere = BTreeSet::new();
    let plan = plan_followers(&FollowInput {
        policies: &policies,
        namespaces: &namespaces,
        records: &records,
        groups_elsewhere: &groups_elsewhere,
    });
    json!({
        "groups": plan.groups.iter().map(print_group).collect::<Vec<_>>(),
        "followers": plan.followers.iter().map(print_follower).collect::<Vec<_>>(),
        "missing": plan.missing.iter().map(print_missing).collect::<Vec<_>>(),
    })
}

/// The last case names the kinds of its policy, where the page's does not: what has no namespace is matched only so.
#[test]
fn follow_cases() {
    check("follow.json", 24, run);
}
