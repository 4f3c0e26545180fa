//! Random sequences of what people and accidents do to an installation, checked against a small model.
//!
//! A sequence is decided by its seed alone; a seed that fails is named, and becomes a test of its own.

use fleetctl::apply::{Planned, Removal};
use fleetctl::inventory::Release;
use futures::stream::{self, StreamExt as _};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::actors::{delete, edit};
use super::kill::TOGETHER;
use super::support::{Case, dump, objects, release};

/// The number of sequences that every run tries.
const SOME: u64 = 200;
/// The number that an exhaustive run tries.
const MANY: u64 = 1000;
/// Sequences side by side. They wait for namespaces to go more than they ask.
const ABREAST: usize = 2 * TOGETHER;
/// What happens in one sequence.
const STEPS: usize = 7;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// An install to its end, of one of three sets of values.
    Install(u8),
    /// An install whose process dies after so many writes; with `true` the next write still arrives.
    Kill(u8, usize, bool),
    Rollback,
    /// An uninstall, with data or without; with a number it dies after so many writes.
    Uninstall(bool, Option<usize>),
    /// Somebody changes a field of ours by hand.
    Edit,
    /// Somebody deletes an object of ours.
    Delete,
    /// Two installs at the same moment.
    Both(u8, u8),
}

fn step(random: &mut StdRng) -> Step {
    let values = |random: &mut StdRng| random.random_range(0..3u8);
    match random.random_range(0..14u8) {
        0..=2 => Step::Install(values(random)),
        3..=6 => Step::Kill(values(random), random.random_range(0..18), random.random()),
        7..=8 => Step::Rollback,
        9 => Step::Uninstall(random.random(), None),
        10 => Step::Uninstall(random.random(), Some(random.random_range(0..10))),
        11 => Step::Edit,
        12 => Step::Delete,
        _ => Step::Both(values(random), values(random)),
    }
}

/// What must be true, as far as it is known.
#[derive(Debug, Default, Clone)]
struct Model {
    /// The values that are recorded as installed.
    installed: Option<u8>,
    /// Whether somebody touched the objects since, so that a rollback cannot be judged by them.
    touched: bool,
    /// Whether an uninstall was cut off, after which only an install or another uninstall leads on.
    removing: bool,
    /// The uid of the keys, once they were a part of a whole installation: from then on they go with the data only.
    key: Option<String>,
}

impl Model {
    /// After an install to its end.
    fn installed(&mut self, values: u8) {
        *self = Self { installed: Some(values), key: self.key.take(), ..Self::default() };
    }

    /// After an uninstall to its end.
    fn removed(&mut self) {
        *self = Self { key: self.key.take(), ..Self::default() };
    }
}

fn release_of(values: u8) -> Release {
    Release { values_digest: format!("sha256:{values}"), ..release() }
}

/// Two sets with the same fields, of which each differs between two of them; and one with a field of its own.
fn data_of(values: u8) -> serde_json::Value {
    match values {
        0 => json!({"a": "0", "b": "0"}),
        1 => json!({"a": "1", "b": "0"}),
        _ => json!({"a": "0", "b": "2", "c": "x"}),
    }
}

/// The objects for a set of values: fields that differ, and an object that only some have.
fn objects_of(case: &Case, values: u8) -> Vec<Planned> {
    let mut all = objects(case);
    if values == 2 {
        all.retain(|planned| planned.object["kind"] != "PodDisruptionBudget");
    }
    for planned in &mut all {
        match planned.object["kind"].as_str() {
            Some("ConfigMap") => planned.object["data"] = data_of(values),
            Some("Deployment") if values == 1 => planned.object["spec"]["replicas"] = 2.into(),
            _ => {}
        }
    }
    all
}

async fn recorded(case: &Case) -> Option<u8> {
    let record = case.engine.read_state().await.unwrap().record?;
    (record.phase == fleetctl::inventory::Phase::Installed)
        .then(|| record.release.values_digest.trim_start_matches("sha256:").parse().unwrap())
}

/// Asserts that what is installed is what the record says, to the last field that others left alone.
async fn assert_is(case: &Case, values: Option<u8>, place: &str) {
    let map = case.get("", "ConfigMap", "config").await;
    match values {
        Some(values) => {
            let map = map.unwrap_or_else(|| panic!("{place}: no config"));
            assert_eq!(map["data"], data_of(values), "{place}");
            let deployment =
                case.get("apps", "Deployment", "d").await.unwrap_or_else(|| panic!("{place}: no deployment"));
            assert_eq!(deployment["spec"]["replicas"], if values == 1 { 2 } else { 1 }, "{place}");
            let budget = case.get("policy", "PodDisruptionBudget", "b").await;
            assert_eq!(budget.is_some(), values != 2, "{place}");
        }
        None => assert!(map.is_none(), "{place}: {map:?}"),
    }
}

/// Asserts that the keys are those of before, and remembers those of an installation that is whole.
async fn assert_key(case: &Case, model: &mut Model, place: &str) {
    let key = case.get("", "Secret", "pki").await.filter(|key| key["metadata"]["deletionTimestamp"].is_null());
    let key = key.and_then(|key| key["metadata"]["uid"].as_str().map(str::to_owned));
    if model.key.is_some() {
        assert_eq!(key, model.key, "{place}");
    } else if model.installed.is_some() {
        assert!(key.is_some(), "{place}: no keys");
        model.key = key;
    }
}

/// Runs `work` until it is done or its process is dead; nothing when it died.
async fn cut<T>(case: &Case, after: usize, sent: bool, work: impl Future<Output = T>) -> Option<T> {
    case.traffic.die_after(after, sent);
    tokio::select! {
        done = work => Some(done),
        () = case.traffic.died.notified() => None,
    }
}

async fn install(case: &Case, values: u8) -> Result<(), fleetctl::apply::Error> {
    case.install_as(&release_of(values), &objects_of(case, values)).await
}

async fn act(case: Case, step: Step, model: &mut Model, place: &str) -> Case {
    match step {
        Step::Install(values) => {
            install(&case, values).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            let again = case.engine.plan_install(&release_of(values), &objects_of(&case, values)).await.unwrap();
            assert!(again.is_noop(), "{place}: {:?}", again.steps.iter().map(|s| s.action).collect::<Vec<_>>());
            model.installed(values);
            assert_is(&case, Some(values), place).await;
        }
        Step::Kill(values, after, sent) => {
            let before = case.engine.read_state().await.unwrap().record.map(|record| record.written);
            let done = cut(&case, after, sent, install(&case, values)).await;
            let case = case.reborn().await;
            if let Some(result) = done {
                result.unwrap_or_else(|e| panic!("{place}: {e}"));
                model.installed(values);
                return case;
            }
            // The last write makes the record new and closes the journal: dead after it, it is done all the same.
            let state = case.engine.read_state().await.unwrap();
            let is_new = state.record.as_ref().map(|record| &record.written) != before.as_ref();
            if state.journal.is_none() && is_new && recorded(&case).await == Some(values) {
                model.installed(values);
            } else if state.journal.is_some_and(|journal| journal.command == "install") && model.removing {
                // The journal of the cut-off uninstall became this install's; what it had deleted stays so.
                model.touched = true;
                model.removing = false;
            }
            return case;
        }
        Step::Rollback => {
            let result = case.engine.rollback_interrupted_run().await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(result.problems.is_empty(), "{place}: {:?}", result.problems);
            let state = case.engine.read_state().await.unwrap();
            assert!(state.journal.is_none() && state.lock.is_none(), "{place}");
            assert_eq!(recorded(&case).await, model.installed, "{place}");
            if !model.touched && !model.removing {
                assert_is(&case, model.installed, place).await;
            }
            model.touched |= model.removing;
            model.removing = false;
        }
        Step::Uninstall(delete_data, after) => {
            let removal = Removal { delete_data, skip_search: true, ..Removal::default() };
            if delete_data {
                model.key = None;
            }
            let Some(after) = after else {
                case.engine.uninstall(removal).await.unwrap_or_else(|e| panic!("{place}: {e}"));
                model.removed();
                assert_is(&case, None, place).await;
                if delete_data {
                    let left = dump(&case).await;
                    assert!(left.is_empty(), "{place}: {:?}", left.keys());
                }
                return case;
            };
            let done = cut(&case, after, false, case.engine.uninstall(removal)).await;
            let case = case.reborn().await;
            if done.is_some_and(|result| result.is_ok())
                || recorded(&case).await.is_none() && case.engine.read_state().await.unwrap().journal.is_none()
            {
                model.removed();
            } else {
                model.removing = true;
                // From its first deletion on there is no whole installation any more.
                model.installed = recorded(&case).await;
            }
            return case;
        }
        Step::Edit => {
            if case.get("", "ConfigMap", "config").await.is_some() {
                edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "edited"}})).await;
                model.touched = true;
            }
        }
        Step::Delete => {
            if case.get("", "ConfigMap", "config").await.is_some() {
                delete(&case, "", "ConfigMap", "config").await;
                model.touched = true;
            }
        }
        Step::Both(one, two) => {
            // This process and process 1 of this host live, so their locks are respected.
            let here = |pid: u32| move |options: &mut fleetctl::apply::Options| options.holder.pid = pid;
            let second = Case::again(&case.namespace, tempfile::tempdir().unwrap(), here(1)).await;
            let case = Case::again(&case.namespace.clone(), case.folder, here(std::process::id())).await;
            let (a, b) = futures::join!(install(&case, one), install(&second, two));
            let mut won = Vec::new();
            for (result, values) in [(a, one), (b, two)] {
                match result {
                    Ok(()) => won.push(values),
                    Err(error) => {
                        assert!(matches!(error.reason(), "PlanOutdated" | "LockLost" | "Locked"), "{place}: {error}");
                    }
                }
            }
            let now = recorded(&case).await;
            assert!(won.is_empty() || now.is_some_and(|now| won.contains(&now)), "{place}: {now:?} of {won:?}");
            // Neither may leave the other's work half done: one more install is whole.
            let values = now.unwrap_or(one);
            let case = case.reborn().await;
            install(&case, values).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            model.installed(values);
            assert_is(&case, Some(values), place).await;
            return case;
        }
    }
    case
}

async fn sequence(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut case = Case::new("seq").await;
    let mut model = Model::default();
    let mut told = Vec::new();
    for _ in 0..STEPS {
        let next = step(&mut random);
        told.push(next);
        let place = format!("seed {seed}, {told:?}");
        case = act(case, next, &mut model, &place).await;
        assert_key(&case, &mut model, &place).await;
    }
    let place = format!("seed {seed}, {told:?}, then uninstall");
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await;
    let removed = removed.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert!(removed.leftovers.is_empty() && removed.kept.is_empty(), "{place}: {removed:?}");
    let left = dump(&case).await;
    assert!(left.is_empty(), "{place}: {:?}", left.keys());
}

async fn sequences(seeds: std::ops::Range<u64>) {
    stream::iter(seeds).for_each_concurrent(ABREAST, sequence).await;
}

#[tokio::test]
async fn any_sequence_of_installs_accidents_and_removals_leaves_what_the_model_says() {
    if let Some(seed) = std::env::var("FLEET_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return sequence(seed).await;
    }
    sequences(0..SOME).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn hundreds_of_sequences_leave_what_the_model_says() {
        sequences(SOME..MANY).await;
    }
}
