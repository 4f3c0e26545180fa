//! The questions of the scheduler, one after the other, and how far the answer to one is.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::watch::Change;
use crate::k8s::backoff::Backoff;

/// Longest text that is answered, in bytes.
const LONGEST: usize = 128;

/// What a Schedule still waits for before a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Work on its copy that is due or in progress.
    Work,
    /// A write of its status that begins after the look.
    Write,
    /// The end of that write.
    Written,
}

/// Progress of one answer.
#[derive(Debug, Default)]
enum AnswerStage {
    #[default]
    Idle,
    /// Copies and Schedules are being listed.
    Looking(String),
    /// Schedules are waited for, by name.
    Waiting(String, BTreeMap<String, Missing>),
    /// The answer is being written.
    Answering,
}

/// The questions of the scheduler and how far their answers are.
#[derive(Debug)]
pub struct Answers {
    asked: Option<String>,
    answered: Option<String>,
    stage: AnswerStage,
    /// Time of the next attempt after one that failed.
    retry_at: Option<Instant>,
    backoff: Backoff,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            asked: None,
            answered: None,
            stage: AnswerStage::Idle,
            retry_at: None,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
        }
    }
}

impl Answers {
    /// Takes the annotation of the Cluster; nonsense is not answered.
    pub fn take_ask(&mut self, change: Change<Option<String>>) {
        let text = match change {
            Change::All(all) => all.into_iter().next().flatten(),
            Change::One(text) => text,
            Change::Gone(_) => None,
        };
        self.asked = text.filter(|text| !text.is_empty() && text.len() <= LONGEST && !text.contains(char::is_control));
    }

    /// Returns the time of the next attempt, if one waits for it.
    pub fn next_time(&self) -> Option<Instant> {
        self.retry_at.filter(|_| matches!(self.stage, AnswerStage::Idle))
    }

    /// Begins a look if a question is open. Returns whether it did.
    pub fn begin_look(&mut self, now: Instant) -> bool {
        let is_early = self.retry_at.is_some_and(|at| at > now);
        let is_idle = matches!(self.stage, AnswerStage::Idle);
        let open = self.asked.clone().filter(|asked| self.answered.as_ref() != Some(asked));
        let Some(text) = open.filter(|_| is_idle && !is_early) else { return false };
        (self.stage, self.retry_at) = (AnswerStage::Looking(text), None);
        true
    }

    /// Ends a look: the Schedules are waited for.
    pub fn end_look(&mut self, names: impl Iterator<Item = String>) {
        if let AnswerStage::Looking(text) = std::mem::take(&mut self.stage) {
            self.stage = AnswerStage::Waiting(text, names.map(|name| (name, Missing::Work)).collect());
        }
    }

    /// Ends an attempt that failed.
    pub fn record_failure(&mut self, now: Instant) {
        (self.stage, self.retry_at) = (AnswerStage::Idle, Some(now + self.backoff.next_wait()));
    }

    /// Records that a write of a status begins.
    pub fn record_write_begin(&mut self, name: &str) {
        self.replace_missing(name, Missing::Write, Some(Missing::Written));
    }

    /// Records the end of a write of a status.
    pub fn record_write_end(&mut self, name: &str, is_written: bool) {
        self.replace_missing(name, Missing::Written, (!is_written).then_some(Missing::Write));
    }

    fn replace_missing(&mut self, name: &str, from: Missing, to: Option<Missing>) {
        let AnswerStage::Waiting(_, open) = &mut self.stage else { return };
        if open.get(name) != Some(&from) {
            return;
        }
        match to {
            Some(to) => open.insert(name.to_owned(), to),
            None => open.remove(name),
        };
    }

    /// Takes the state of each Schedule that is waited for: `None` if it is gone or nothing is due and its status is
    /// stored. Returns the text to answer when none is left.
    pub fn take_states(&mut self, state: impl Fn(&str) -> Option<Missing>) -> Option<String> {
        let AnswerStage::Waiting(text, open) = &mut self.stage else { return None };
        open.retain(|name, missing| match (*missing, state(name)) {
            (_, None) => false,
            (Missing::Work, Some(now)) => {
                *missing = now;
                true
            }
            (Missing::Write | Missing::Written, Some(_)) => true,
        });
        if !open.is_empty() {
            return None;
        }
        let text = std::mem::take(text);
        self.stage = AnswerStage::Answering;
        Some(text)
    }

    /// Returns the Schedules of which a status must be written.
    pub fn unwritten(&self) -> Vec<String> {
        let AnswerStage::Waiting(_, open) = &self.stage else { return Vec::new() };
        open.iter().filter(|(_, missing)| **missing == Missing::Write).map(|(name, _)| name.clone()).collect()
    }

    /// Records that an answer was written.
    pub fn record_answer(&mut self, text: String) {
        (self.answered, self.stage, self.retry_at) = (Some(text), AnswerStage::Idle, None);
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Change<Option<String>> {
        Change::One(Some(text.to_owned()))
    }

    fn state_after_look(name: &str) -> Option<Missing> {
        match name {
            "a" => Some(Missing::Write),
            "b" => Some(Missing::Work),
            _ => None,
        }
    }

    #[test]
    fn an_answer_waits_for_work_and_writes_that_begin_after_the_look() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        assert!(!answers.begin_look(now), "nobody asked");
        answers.take_ask(asked("one"));
        assert!(answers.begin_look(now) && !answers.begin_look(now));
        // A write that began before the look says nothing.
        answers.record_write_begin("a");
        answers.end_look(["a", "b", "c"].map(str::to_owned).into_iter());
        answers.record_write_end("a", true);
        assert_eq!(answers.take_states(state_after_look), None);
        assert_eq!(answers.unwritten(), ["a"]);
        answers.record_write_begin("a");
        answers.record_write_end("a", false);
        assert_eq!(answers.unwritten(), ["a"], "a write that failed is no write");
        answers.record_write_begin("a");
        assert!(answers.unwritten().is_empty());
        assert_eq!(answers.take_states(state_after_look), None);
        answers.record_write_end("a", true);
        // Asked again meanwhile: this question is answered first.
        answers.take_ask(asked("two"));
        assert!(!answers.begin_look(now));
        assert_eq!(answers.take_states(|_| None).as_deref(), Some("one"));
        assert_eq!(answers.take_states(|_| None), None, "once");
        answers.record_answer("one".to_owned());
        assert!(answers.begin_look(now));
        answers.end_look(std::iter::empty());
        assert_eq!(answers.take_states(|_| None).as_deref(), Some("two"));
        answers.record_answer("two".to_owned());
        // The same question again, as after a watch that began anew.
        answers.take_ask(Change::All(vec![Some("two".to_owned())]));
        assert!(!answers.begin_look(now));
    }

    #[test]
    fn a_status_that_changes_all_the_time_holds_no_answer_up() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.take_ask(asked("one"));
        assert!(answers.begin_look(now));
        answers.end_look(std::iter::once("a".to_owned()));
        assert_eq!(answers.take_states(|_| Some(Missing::Write)), None);
        answers.record_write_begin("a");
        answers.record_write_end("a", true);
        assert_eq!(answers.take_states(|_| Some(Missing::Write)).as_deref(), Some("one"));
    }

    #[test]
    fn a_failed_attempt_is_repeated_after_a_while_for_the_last_question() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.take_ask(asked("one"));
        assert!(answers.begin_look(now));
        answers.record_failure(now);
        answers.take_ask(asked("two"));
        let again = answers.next_time().unwrap();
        assert!(again > now && !answers.begin_look(now) && answers.begin_look(again));
        answers.end_look(std::iter::empty());
        assert_eq!(answers.take_states(|_| None).as_deref(), Some("two"));
    }

    #[test]
    fn nonsense_is_not_answered() {
        let mut answers = Answers::default();
        for text in [String::new(), "x".repeat(LONGEST + 1), "a\u{1b}[2J".to_owned()] {
            answers.take_ask(asked(&text));
            assert!(!answers.begin_look(Instant::now()), "{text:?}");
        }
        answers.take_ask(Change::Gone(Some("gone".to_owned())));
        assert!(!answers.begin_look(Instant::now()));
    }
}
