//! Turns at clusters: tests of one program that change the same cluster run one after another, others side by side.

use std::io::Write as _;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The variable with the file into which a program of tests writes how long each of them waited for a turn.
pub(crate) const WAITS: &str = "FLEETBED_WAITS";

/// The clusters that tests of this program have for themselves at the moment.
#[derive(Debug, Default)]
pub struct Turns {
    taken: Mutex<Vec<&'static str>>,
    freed: Condvar,
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
        Self { taken: Mutex::new(Vec::new()), freed: Condvar::new() }
    }

    /// Waits until one of the choices is free as a whole, and takes the first that is. Nobody holds one cluster and waits
    /// for another, so nobody waits for ever.
    pub fn take(&'static self, choices: &[&'static [&'static str]]) -> Turn {
        let began = Instant::now();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let free = |choice: &&&[&'static str]| !choice.iter().any(|cluster| taken.contains(cluster));
            if let Some(clusters) = choices.iter().find(free) {
                taken.extend(*clusters);
                record_wait(began.elapsed(), clusters);
                return Turn { turns: self, clusters };
            }
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
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
        let mut taken = self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|cluster| !self.clusters.contains(cluster));
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
        assert!(TURNS.taken.lock().unwrap().is_empty());
    }
}
