//! Turns at clusters: tests of one program that change the same cluster run one after another, others side by side.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The variable with the file into which a program of tests writes how long each of them waited for a turn.
pub(crate) const WAITS: &str = "FLEETBED_WAITS";

/// The clusters that tests of this program have for themselves at the moment.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: Vec<&'static str>,
    /// Those who have no choice and wait, by the order in which they came: others would take one of their clusters for ever,
    /// now this, now that.
    promised: BTreeMap<u64, &'static [&'static str]>,
    /// How many have asked.
    asked: u64,
}

/// Clusters that nobody else has until this is dropped.
#[must_use = "others take the clusters when it is dropped"]
#[derive(Debug)]
pub struct Turn {
    turns: &'static Turns,
    /// In the order in which they were asked for.
    pub clusters: &'static [&'static str],
}

impl Turns {
    /// All clusters are free.
    pub const fn new() -> Self {
        let state = State { taken: Vec::new(), promised: BTreeMap::new(), asked: 0 };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Waits until one of the choices is free as a whole, and takes the first that is. Nobody holds one cluster and waits
    /// for another, and whoever has one choice comes before those who came later, so nobody waits for ever.
    pub fn take(&'static self, choices: &[&'static [&'static str]]) -> Turn {
        let began = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state.asked;
        state.asked += 1;
        if let [only] = choices {
            state.promised.insert(own, only);
        }
        loop {
            let promised = state.promised.range(..own).flat_map(|(_, clusters)| *clusters);
            let others: Vec<&str> = promised.chain(&state.taken).copied().collect();
            let is_free = |choice: &&&[&'static str]| !choice.iter().any(|cluster| others.contains(cluster));
            if let Some(clusters) = choices.iter().find(is_free) {
                state.promised.remove(&own);
                state.taken.extend(*clusters);
                record_wait(began.elapsed(), clusters);
                return Turn { turns: self, clusters };
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes down that a test waited, for the summary of `cargo bed test`. libtest gives a test's name to its thread.
fn record_wait(took: Duration, clusters: &[&str]) {
    let (Some(file), thread) = (std::env::var_os(WAITS), std::thread::current()) else { return };
    if took >= Duration::from_secs(1)
        && let Some(test) = thread.name()
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(file)
    {
        let line = format!("{test}\t{}\t{}\n", took.as_secs_f64(), clusters.join(" and "));
        let _ = file.write_all(line.as_bytes());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken.retain(|cluster| !self.clusters.contains(cluster));
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_taken_as_a_whole_when_it_is_free() {
        static TURNS: Turns = Turns::new();
        const FIRST: &[&str] = &["a", "member"];
        const SECOND: &[&str] = &["b", "member"];
        let first = TURNS.take(&[FIRST, SECOND]);
        assert_eq!(first.clusters, FIRST);
        assert_eq!(TURNS.take(&[&["a"], &["b"]]).clusters, ["b"], "it is free again at once");
        let waiting = std::thread::spawn(|| TURNS.take(&[FIRST, SECOND]).clusters);
        drop(first);
        assert_eq!(waiting.join().unwrap(), FIRST);
        assert!(TURNS.state.lock().unwrap().taken.is_empty());
    }

    #[test]
    fn whoever_has_no_choice_comes_before_those_who_came_later() {
        static TURNS: Turns = Turns::new();
        const ALL: &[&str] = &["a", "b"];
        let first = TURNS.take(&[&["a"]]);
        let all = std::thread::spawn(|| TURNS.take(&[ALL]).clusters);
        while TURNS.state.lock().unwrap().promised.is_empty() {
            std::thread::yield_now();
        }
        let (ended, next) = std::sync::mpsc::channel();
        let later = std::thread::spawn(move || {
            let turn = TURNS.take(&[&["b"], &["c"]]);
            ended.send(turn.clusters).unwrap();
        });
        assert_eq!(next.recv().unwrap(), ["c"], "b is promised");
        drop(first);
        assert_eq!(all.join().unwrap(), ALL);
        later.join().unwrap();
        let state = TURNS.state.lock().unwrap();
        assert!(state.taken.is_empty() && state.promised.is_empty());
    }

    #[test]
    fn those_who_have_the_same_one_choice_take_it_in_turn() {
        static TURNS: Turns = Turns::new();
        const ONLY: &[&str] = &["a"];
        let first = TURNS.take(&[ONLY]);
        let (took, next) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let took = took.clone();
                std::thread::spawn(move || took.send(TURNS.take(&[ONLY]).clusters).unwrap())
            })
            .collect();
        while TURNS.state.lock().unwrap().promised.len() < waiting.len() {
            std::thread::yield_now();
        }
        drop(first);
        for _ in &waiting {
            let limit = Duration::from_secs(60);
            assert_eq!(next.recv_timeout(limit).expect("nobody waits for itself"), ONLY);
        }
    }
}
