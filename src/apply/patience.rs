//! How long a cause must have been seen before a wait ends early, and what counts as having seen it.

use std::collections::BTreeMap;
use std::time::Instant;

use super::causes::{ContainerKey, Runs};
use super::diagnosis::{CauseId, Diagnosis};
use super::object::ObjectRef;

/// How long causes have been seen. Those that went away start anew.
#[derive(Default)]
pub(super) struct Patience {
    since: BTreeMap<(ObjectRef, CauseId), Instant>,
    /// How many runs of each container had begun at the first look of the wait.
    at_start: Option<BTreeMap<ContainerKey, i64>>,
    /// And at the first look after the turn of what is missing came.
    at_turn: Option<BTreeMap<ContainerKey, i64>>,
}

impl Patience {
    /// What was needed by what is missing now has just come. It gets all the time that it may take, and that it crashed
    /// until now proves nothing.
    pub(super) fn begin_anew(&mut self) {
        self.since.clear();
        self.at_turn = None;
    }

    /// Takes what is known now: the causes, and the runs of the containers of each target that is missing.
    pub(super) fn look(&mut self, latest: &[Diagnosis], runs: &BTreeMap<&ObjectRef, BTreeMap<ContainerKey, Runs>>) {
        let begun = || runs.values().flatten().map(|(key, runs)| (key.clone(), runs.begun)).collect();
        let at_start = self.at_start.get_or_insert_with(begun);
        let at_turn = self.at_turn.get_or_insert_with(begun);
        // A container that sits out a back-off from before may become ready as soon as it is started again: only a run
        // that began since proves anything, or the log of one that still goes on.
        let proven = |cause: &Diagnosis| {
            let log = cause.cause.is_told_by_a_log();
            if !log && cause.cause != CauseId::CrashLoop {
                return true;
            }
            let before = if log { &at_start } else { &at_turn };
            let proves = |(key, runs): (&ContainerKey, &Runs)| {
                runs.ended > before.get(key).copied().unwrap_or(0) || log && runs.begun > runs.ended
            };
            let of_target = cause.chain.first().and_then(|link| runs.get(&link.object));
            of_target.is_some_and(|runs| runs.iter().any(proves))
        };
        // What may heal by itself is not the beginning of what does not.
        let lasts = |cause: &Diagnosis| cause.patience.is_some();
        let now: Vec<_> = latest.iter().filter(|cause| lasts(cause) && proven(cause)).filter_map(cause_of).collect();
        self.since.retain(|known, _| now.contains(known));
        for known in now {
            self.since.entry(known).or_insert_with(Instant::now);
        }
    }

    /// Whether the cause has lasted long enough to end the wait.
    pub(super) fn is_over(&self, diagnosis: &Diagnosis) -> bool {
        let since = cause_of(diagnosis).and_then(|cause| self.since.get(&cause));
        since.zip(diagnosis.patience).is_some_and(|(since, patience)| since.elapsed() >= patience)
    }
}

fn cause_of(diagnosis: &Diagnosis) -> Option<(ObjectRef, CauseId)> {
    diagnosis.chain.first().map(|link| (link.object.clone(), diagnosis.cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::diagnosis::Link;
    use crate::apply::kinds::Kind;

    /// Whether the cause has begun to count after each of these looks at one container; none is the turn of its object.
    fn counts(cause: CauseId, looks: &[Option<(i64, i64)>]) -> Vec<bool> {
        let object = ObjectRef::new(&Kind::known("apps", "Deployment"), Some("n"), "d");
        let chain = vec![Link { object: object.clone(), state: String::new() }];
        let latest = [Diagnosis { cause, chain, remedy: String::new(), logs: Vec::new(), patience: cause.patience() }];
        let mut patience = Patience::default();
        let look = |look: &Option<(i64, i64)>| {
            let Some((begun, ended)) = *look else {
                patience.begin_anew();
                return None;
            };
            let container = ("uid".to_owned(), "c".to_owned());
            patience.look(&latest, &[(&object, [(container, Runs { begun, ended })].into())].into());
            Some(patience.since.contains_key(&(object.clone(), cause)))
        };
        looks.iter().filter_map(look).collect()
    }

    #[test]
    fn the_time_in_which_a_cause_may_heal_is_not_counted() {
        let object = ObjectRef::new(&Kind::known("apps", "StatefulSet"), Some("n"), "s");
        let chain = vec![Link { object, state: String::new() }];
        let cause = CauseId::MountFailed;
        let seen =
            |patience| Diagnosis { cause, chain: chain.clone(), remedy: String::new(), logs: Vec::new(), patience };
        let (heals, stays) = (seen(None), seen(Some(std::time::Duration::ZERO)));
        let mut patience = Patience::default();
        patience.look(std::slice::from_ref(&heals), &BTreeMap::new());
        assert!(patience.since.is_empty() && !patience.is_over(&heals) && !patience.is_over(&stays));
        patience.look(std::slice::from_ref(&stays), &BTreeMap::new());
        assert!(!patience.since.is_empty() && !patience.is_over(&heals) && patience.is_over(&stays));
        patience.look(&[heals], &BTreeMap::new());
        assert!(patience.since.is_empty());
    }

    #[test]
    fn only_a_run_that_began_since_shows_a_crash() {
        let looks = [Some((5, 5)), Some((6, 5)), Some((6, 6))];
        assert_eq!(counts(CauseId::CrashLoop, &looks), [false, false, true]);
        let runs_at_first = [Some((6, 5)), Some((6, 6)), Some((7, 6)), Some((7, 7))];
        assert_eq!(counts(CauseId::CrashLoop, &runs_at_first), [false, false, false, true]);
        let new = [Some((0, 0)), Some((1, 1))];
        assert_eq!(counts(CauseId::CrashLoop, &new), [false, true]);
    }

    #[test]
    fn the_log_of_a_run_that_goes_on_counts_and_that_of_one_from_before_does_not() {
        for cause in [CauseId::NameLookupFailed, CauseId::CertificateUntrusted, CauseId::CertificateExpired] {
            assert_eq!(counts(cause, &[Some((5, 5)), Some((6, 5)), Some((6, 6))]), [false, true, true]);
        }
    }

    #[test]
    fn a_turn_that_comes_pardons_a_crash_and_nothing_else() {
        let looks = [Some((0, 0)), Some((2, 2)), None, Some((2, 2)), Some((3, 3))];
        assert_eq!(counts(CauseId::CrashLoop, &looks), [false, true, false, true]);
        assert_eq!(counts(CauseId::NameLookupFailed, &looks), [false, true, true, true]);
        assert_eq!(counts(CauseId::OutOfMemory, &looks), [true; 4]);
    }
}
