//! The checks behind preflight, health and status: identifiers, dependencies and pure evaluation.
//!
//! A check evaluates facts that were collected before (`F`), so it needs no cluster. Checks may depend on one another;
//! a check whose dependency failed is skipped, not failed.

pub mod access;
mod autopilot;
mod clock;
pub mod hosting;
pub mod inside;
pub mod installed;
pub mod pod_references;
pub mod pulls;
pub mod quota;
pub mod secret_readers;
pub mod sidecars;
pub mod support;
pub mod workload;

use std::collections::BTreeSet;

use crate::api::remedy::Remedy;
use crate::api::util::text::visible_list;

/// Consequence of a check that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing may be written.
    Error,
    /// It is reported, and the run continues.
    Warning,
}

/// Outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// It holds, with what was seen.
    Passed(String),
    /// It does not hold. In a report this means that nothing may be written.
    Failed(Problem),
    /// It does not hold; a warning, and never a reason to stop.
    Warned(Problem),
    /// It could not be evaluated, for the reason that the named check gives.
    Skipped(&'static str),
}

impl CheckResult {
    /// A problem at the check's own severity.
    pub fn new_failure(what: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Failed(Problem { what: what.into(), remedy: remedy.into() })
    }

    /// A problem that is only warned about.
    pub fn new_warning(what: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Warned(Problem { what: what.into(), remedy: remedy.into() })
    }

    /// The result, escaped for output: it contains text from API servers, agents and foreign objects.
    fn with_escaped_text(self) -> Self {
        match self {
            Self::Passed(seen) => Self::Passed(visible_list(&seen).into_owned()),
            Self::Failed(problem) => Self::Failed(problem.escape_problem_text()),
            Self::Warned(problem) => Self::Warned(problem.escape_problem_text()),
            Self::Skipped(needed) => Self::Skipped(needed),
        }
    }
}

/// The problem and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Problem that was found, naming the object.
    pub what: String,
    /// The remedy.
    pub remedy: Remedy,
}

impl Problem {
    fn escape_problem_text(self) -> Self {
        Self { what: visible_list(&self.what).into_owned(), remedy: self.remedy.with_visible_text() }
    }

    /// The problem of the check `title` with its remedy, as one sentence.
    pub fn format_advice(&self, title: &str) -> Remedy {
        Remedy::new(format!("{title}: {}; ", self.what)).and(self.remedy.clone())
    }
}

/// Finds why keys that this machine makes could not be used in a cluster: clocks that differ too much. A warning of the
/// check is none.
pub async fn find_clock_fault(client: &kube::Client) -> Option<Problem> {
    match clock::evaluate_issuer_clock(clock::read_clock_ahead(client).await).with_escaped_text() {
        CheckResult::Failed(problem) => Some(problem),
        _ => None,
    }
}

/// One check over facts of type `F`.
#[derive(Debug)]
pub struct Check<F> {
    /// Stable identifier, as `--skip-preflight` takes it.
    pub id: &'static str,
    /// Subject of the check, as a noun phrase.
    pub title: &'static str,
    /// The group of checks that it is shown with.
    pub category: &'static str,
    /// Consequence when it does not hold.
    pub severity: Severity,
    /// Checks that must hold before this one can be judged.
    pub needs: &'static [&'static str],
    /// Reads that it needs, if the facts come from several reads that end at different times.
    pub reads: &'static [&'static str],
    /// The judgement: a pure function of the facts.
    pub evaluate: fn(&F) -> CheckResult,
}

impl<F> Check<F> {
    /// A check that refuses when it does not hold.
    pub const fn new_required(
        id: &'static str,
        title: &'static str,
        category: &'static str,
        needs: &'static [&'static str],
        evaluate: fn(&F) -> CheckResult,
    ) -> Self {
        Self { id, title, category, severity: Severity::Error, needs, reads: &[], evaluate }
    }

    /// A check that warns when it does not hold.
    pub const fn new_advisory(
        id: &'static str,
        title: &'static str,
        category: &'static str,
        needs: &'static [&'static str],
        evaluate: fn(&F) -> CheckResult,
    ) -> Self {
        Self { id, title, category, severity: Severity::Warning, needs, reads: &[], evaluate }
    }

    /// The same check, to be judged as soon as these reads have ended.
    #[must_use]
    pub const fn after_reads(self, reads: &'static [&'static str]) -> Self {
        Self { reads, ..self }
    }
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The check's identifier.
    pub id: &'static str,
    /// Subject of the check.
    pub title: &'static str,
    /// The group that it is shown with.
    pub category: &'static str,
    /// The outcome.
    pub result: CheckResult,
}

/// All results of a run, in the order of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Results, one for each check.
    pub judged: Vec<Judged>,
}

impl Report {
    /// The checks that refuse, with their problems.
    pub fn failures(&self) -> impl Iterator<Item = (&Judged, &Problem)> {
        self.judged.iter().filter_map(|judged| match &judged.result {
            CheckResult::Failed(problem) => Some((judged, problem)),
            _ => None,
        })
    }

    /// The results, ordered by failed, warning, skipped and passed; otherwise in the order of the checks.
    pub fn worst_first(&self) -> Vec<&Judged> {
        let mut judged: Vec<&Judged> = self.judged.iter().collect();
        judged.sort_by_key(|judged| match judged.result {
            CheckResult::Failed(_) => 0,
            CheckResult::Warned(_) => 1,
            CheckResult::Skipped(_) => 2,
            CheckResult::Passed(_) => 3,
        });
        judged
    }

    /// The checks that warn, with their problems.
    pub fn warnings(&self) -> impl Iterator<Item = (&Judged, &Problem)> {
        self.judged.iter().filter_map(|judged| match &judged.result {
            CheckResult::Warned(problem) => Some((judged, problem)),
            _ => None,
        })
    }
}

/// Judges `facts`; a check named in `lenient` only warns.
pub fn run_checks<F>(checks: &[Check<F>], facts: &F, lenient: &[String]) -> Report {
    Judging::new(checks, lenient).evaluate_rest(facts)
}

/// A run of checks over facts that are still being read: each is judged in its turn, as soon as it can be.
#[derive(Debug)]
pub struct Judging<'c, F> {
    checks: &'c [Check<F>],
    lenient: &'c [String],
    report: Report,
}

impl<'c, F> Judging<'c, F> {
    /// A run without results; a failure of a check in `lenient` is only a warning.
    pub fn new(checks: &'c [Check<F>], lenient: &'c [String]) -> Self {
        Self { checks, lenient, report: Report::default() }
    }

    /// Evaluates the next checks, up to the first one with a read that is not in `ended`, and returns their results.
    pub fn go_on(&mut self, facts: &F, ended: &BTreeSet<&'static str>) -> &[Judged] {
        let before = self.report.judged.len();
        let left = self.checks.get(before..).unwrap_or_default();
        for check in left.iter().take_while(|check| check.reads.iter().all(|read| ended.contains(read))) {
            self.evaluate_check(check, facts);
        }
        self.report.judged.get(before..).unwrap_or_default()
    }

    /// Evaluates the remaining checks, with final facts.
    pub fn evaluate_rest(mut self, facts: &F) -> Report {
        for check in self.checks.get(self.report.judged.len()..).unwrap_or_default() {
            self.evaluate_check(check, facts);
        }
        self.report
    }

    fn evaluate_check(&mut self, check: &Check<F>, facts: &F) {
        let judged = &mut self.report.judged;
        let warns = check.severity == Severity::Warning || self.lenient.iter().any(|id| id == check.id);
        let blocking = check.needs.iter().copied().find(|needed| {
            let mut blocked =
                judged.iter().filter(|done| matches!(done.result, CheckResult::Failed(_) | CheckResult::Skipped(_)));
            blocked.any(|done| done.id == *needed)
        });
        let result = match blocking {
            Some(needed) => CheckResult::Skipped(needed),
            None => match (check.evaluate)(facts).with_escaped_text() {
                CheckResult::Failed(problem) if warns => CheckResult::Warned(problem),
                result => result,
            },
        };
        judged.push(Judged { id: check.id, title: check.title, category: check.category, result });
    }
}

/// The report of checks without facts, skipped because of another check.
pub fn report_unseen_checks<F>(checks: &[Check<F>], because: &'static str) -> Report {
    let skipped = checks.iter().map(|check| Judged {
        id: check.id,
        title: check.title,
        category: check.category,
        result: CheckResult::Skipped(because),
    });
    Report { judged: skipped.collect() }
}

/// The only check that fails: its id, what is wrong and the remedy.
#[cfg(test)]
fn only_failure<F>(checks: &[Check<F>], facts: &F) -> (&'static str, String, Remedy) {
    let report = run_checks(checks, facts, &[]);
    let failures: Vec<_> = report.failures().collect();
    assert_eq!(failures.len(), 1, "{report:?}");
    (failures[0].0.id, failures[0].1.what.clone(), failures[0].1.remedy.clone())
}

/// Returns the result of one check.
#[cfg(test)]
fn result_of_check<F>(checks: &[Check<F>], id: &str, facts: &F) -> CheckResult {
    run_checks(checks, facts, &[]).judged.into_iter().find(|judged| judged.id == id).unwrap().result
}

/// Returns facts that differ in what `change` does.
#[cfg(test)]
fn change_facts<F>(mut facts: F, change: impl FnOnce(&mut F)) -> F {
    change(&mut facts);
    facts
}

/// Returns the result of a check for facts for which it does not hold.
#[cfg(test)]
fn evaluate_failing_check<F>(checks: &[Check<F>], id: &str, facts: &F) -> Judged {
    let judged = run_checks(checks, facts, &[]).judged.into_iter().find(|judged| judged.id == id).unwrap();
    assert!(matches!(judged.result, CheckResult::Failed(_) | CheckResult::Warned(_)), "{judged:?}");
    judged
}

/// Returns the result of each check for facts for which it does not hold: the examples of its page.
#[cfg(test)]
pub(crate) fn example_results() -> Vec<Judged> {
    [inside::examples(), installed::examples(), hosting::examples(), workload::examples(), pulls::pull_check_examples()]
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKS: [Check<bool>; 2] = [
        Check::new_required("first", "the first", "order", &[], |good| {
            if *good { CheckResult::Passed(String::new()) } else { CheckResult::new_failure("it is not", "mend it") }
        }),
        Check::new_required("second", "the second", "order", &["first"], |_| CheckResult::Passed("seen".to_owned())),
    ];

    #[test]
    fn what_cannot_be_judged_is_skipped_not_failed() {
        let report = run_checks(&CHECKS, &false, &[]);
        assert_eq!(report.failures().count(), 1);
        assert_eq!(report.judged[1].result, CheckResult::Skipped("first"));
    }

    fn pass_any<F>(_: &F) -> CheckResult {
        CheckResult::Passed(String::new())
    }

    fn judged_ids(judged: &[Judged]) -> Vec<&'static str> {
        judged.iter().map(|judged| judged.id).collect()
    }

    #[test]
    fn a_check_is_judged_in_its_turn_once_its_reads_have_ended() {
        let checks = [
            Check::new_required("a", "a", "k", &[], pass_any).after_reads(&["slow"]),
            Check::new_required("b", "b", "k", &[], pass_any),
            Check::new_required("c", "c", "k", &[], pass_any).after_reads(&["slow", "slower"]),
        ];
        let mut judging = Judging::new(&checks, &[]);
        assert!(judging.go_on(&(), &BTreeSet::new()).is_empty());
        assert_eq!(judged_ids(judging.go_on(&(), &["slow"].into())), ["a", "b"]);
        assert!(judging.go_on(&(), &["slow"].into()).is_empty());
        assert_eq!(judged_ids(&judging.evaluate_rest(&()).judged), ["a", "b", "c"]);
    }

    fn judged_check(id: &'static str, result: CheckResult) -> Judged {
        Judged { id, title: id, category: "k", result }
    }

    #[test]
    fn the_worst_comes_first_and_what_is_alike_stays_in_order() {
        let problem = Problem { what: "w".to_owned(), remedy: "r".into() };
        let report = Report {
            judged: vec![
                judged_check("good", CheckResult::Passed("seen".to_owned())),
                judged_check("warning", CheckResult::Warned(problem.clone())),
                judged_check("first failure", CheckResult::Failed(problem.clone())),
                judged_check("unseen", CheckResult::Skipped("good")),
                judged_check("second failure", CheckResult::Failed(problem.clone())),
            ],
        };
        let order: Vec<&str> = report.worst_first().into_iter().map(|judged| judged.id).collect();
        assert_eq!(order, ["first failure", "second failure", "warning", "unseen", "good"]);
    }

    #[test]
    fn a_lenient_check_warns_and_those_that_need_it_are_still_judged() {
        let report = run_checks(&CHECKS, &false, &["first".to_owned()]);
        assert_eq!((report.failures().count(), report.warnings().count()), (0, 1));
        assert_eq!(report.judged[1].result, CheckResult::Passed("seen".to_owned()));
    }
}
