//! The check of images: whether the nodes have pulled every image of an installation, as pods have tried it.

use super::{Check, CheckResult, Problem};
use crate::api::remedy::Remedy;

/// Findings of pods about images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullFacts {
    /// Each image with its outcome; sorted by image.
    pub images: Vec<(String, Pulled)>,
}

/// Outcome of the attempts to pull an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulled {
    /// A node has it, and it is for that node.
    Yes,
    /// A node could not get it, or cannot run it.
    No(Problem),
    /// No node has tried, for this reason.
    Unknown(Problem),
}

/// Identifier of the check.
pub const PULLS: &str = "images-reachable";

/// The check of images. An installation whose images cannot be pulled does not come up.
pub const CHECKS: [Check<PullFacts>; 1] = [Check::new_required(PULLS, "images", "images", &[], check_image_pulls)];

fn check_image_pulls(facts: &PullFacts) -> CheckResult {
    let refused =
        find_pull_problems(facts, |pulled| if let Pulled::No(problem) = pulled { Some(problem) } else { None });
    let unknown =
        find_pull_problems(facts, |pulled| if let Pulled::Unknown(problem) = pulled { Some(problem) } else { None });
    let all = facts.images.len();
    if !refused.is_empty() {
        let (what, remedy) = join_pull_problems(&refused);
        return CheckResult::new_failure(format!("{} of {all} cannot be pulled or run: {what}", refused.len()), remedy);
    }
    if !unknown.is_empty() {
        let (what, remedy) = join_pull_problems(&unknown);
        return CheckResult::new_failure(format!("not all of {all} could be tested: {what}"), remedy);
    }
    CheckResult::Passed(format!("the nodes have pulled all {all}"))
}

/// The different problems among those that `find` takes.
fn find_pull_problems(facts: &PullFacts, find: fn(&Pulled) -> Option<&Problem>) -> Vec<&Problem> {
    let mut found: Vec<&Problem> = facts.images.iter().filter_map(|(_, pulled)| find(pulled)).collect();
    found.dedup();
    found
}

/// What problems are, and the remedy of the first: what helps with one helps with the others, as far as it is the same
/// registry.
fn join_pull_problems(problems: &[&Problem]) -> (String, Remedy) {
    let what: Vec<&str> = problems.iter().map(|problem| problem.what.as_str()).collect();
    let remedy = problems.first().map_or_else(Remedy::default, |problem| problem.remedy.clone());
    (what.join("; "), remedy)
}

/// Returns the result of the check where it does not hold: the example of its page.
#[cfg(test)]
pub(super) fn pull_check_examples() -> Vec<super::Judged> {
    let problem = Problem {
        what: "image `mirror.example:5000/registry.k8s.io/etcd:3.5.35-0` cannot be pulled: not found".to_owned(),
        remedy:
            "check the repository and the tag of `mirror.example:5000/registry.k8s.io/etcd:3.5.35-0`, and that the \
                 registry has it for this architecture"
                .into(),
    };
    let images = [
        ("etcd:3.5.35-0", Pulled::No(problem)),
        ("kube-apiserver:v1.36.3", Pulled::Yes),
        ("kube-controller-manager:v1.36.3", Pulled::Yes),
    ];
    let images = images.map(|(name, pulled)| (format!("mirror.example:5000/registry.k8s.io/{name}"), pulled)).into();
    vec![super::evaluate_failing_check(&CHECKS, PULLS, &PullFacts { images })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    fn judged(images: &[Pulled]) -> CheckResult {
        let images = images.iter().enumerate().map(|(n, pulled)| (n.to_string(), pulled.clone())).collect();
        check::run_checks(&CHECKS, &PullFacts { images }, &[]).judged.remove(0).result
    }

    fn pull_problem(what: &str) -> Problem {
        Problem { what: what.to_owned(), remedy: "mend it".into() }
    }

    #[test]
    fn what_cannot_be_pulled_refuses_and_so_does_what_was_not_tried() {
        assert_eq!(judged(&[Pulled::Yes, Pulled::Yes]), CheckResult::Passed("the nodes have pulled all 2".to_owned()));
        let unknown = Pulled::Unknown(pull_problem("no node takes the pod"));
        let untried = judged(&[Pulled::Yes, unknown.clone(), unknown.clone()]);
        assert_eq!(untried, CheckResult::new_failure("not all of 3 could be tested: no node takes the pod", "mend it"));
        let failed = judged(&[unknown, Pulled::No(pull_problem("a")), Pulled::No(pull_problem("b")), Pulled::Yes]);
        assert_eq!(failed, CheckResult::new_failure("2 of 4 cannot be pulled or run: a; b", "mend it"));
    }
}
