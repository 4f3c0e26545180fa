//! Label selectors, node selectors and tolerations, evaluated as Kubernetes evaluates them.

use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::api::crd::cluster::Taint;
use crate::api::crd::policy::ClusterToleration;

/// Label of a node that is read as the node's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// A selector that no API server would accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that selectors do not have.
    #[error("`{operator}` is not an operator of a label selector; use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Operator that was given.
        operator: String,
    },
    /// `In` or `NotIn` without a value.
    #[error("`{key}` {operator} needs at least one value")]
    NoValues {
        /// The label's key.
        key: String,
        /// The operator.
        operator: String,
    },
}

/// Comparison of a label's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    /// An operator or a number that nothing matches.
    Never,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    key: String,
    test: Test,
}

impl Requirement {
    /// Returns whether a label with this value, or without one, satisfies the condition.
    fn is_satisfied_by(&self, value: Option<&str>) -> bool {
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Gt(than) => parse_label_number(value).is_some_and(|number| number > *than),
            Test::Lt(than) => parse_label_number(value).is_some_and(|number| number < *than),
            Test::Never => false,
        }
    }

    /// Returns the position of a value among those that are asked for; `None` if it does not satisfy the requirement.
    fn rank_value(&self, value: Option<&str>) -> Option<u32> {
        match &self.test {
            Test::In(values) => {
                let at = values.iter().position(|one| Some(one.as_str()) == value)?;
                u32::try_from(at).ok()
            }
            _ => self.is_satisfied_by(value).then_some(0),
        }
    }

    fn compared_values(&self) -> &[String] {
        match &self.test {
            Test::In(values) | Test::NotIn(values) => values,
            _ => &[],
        }
    }

    fn from_label_expression(key: &str, operator: &str, values: &[String]) -> Result<Self, SelectorError> {
        let test = match operator {
            "In" => Test::In(require_values(key, operator, values)?),
            "NotIn" => Test::NotIn(require_values(key, operator, values)?),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            _ => return Err(SelectorError::Operator { operator: operator.to_owned() }),
        };
        Ok(Self { key: key.to_owned(), test })
    }

    fn from_node_expression(key: &str, operator: &str, values: &[String]) -> Self {
        let number = values.first().map(String::as_str);
        let test = match operator {
            "Gt" => parse_label_number(number).map_or(Test::Never, Test::Gt),
            "Lt" => parse_label_number(number).map_or(Test::Never, Test::Lt),
            _ => Self::from_label_expression(key, operator, values).map_or(Test::Never, |requirement| requirement.test),
        };
        Self { key: key.to_owned(), test }
    }
}

/// Returns the values of a requirement that compares with values.
///
/// # Errors
/// There are no values.
fn require_values(key: &str, operator: &str, values: &[String]) -> Result<Vec<String>, SelectorError> {
    match values {
        [] => Err(SelectorError::NoValues { key: key.to_owned(), operator: operator.to_owned() }),
        _ => Ok(values.to_vec()),
    }
}

fn parse_label_number(value: Option<&str>) -> Option<i64> {
    value.and_then(|text| text.parse().ok())
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::In(values) => write!(f, "{key} In [{}]", values.join(", ")),
            Test::NotIn(values) => write!(f, "{key} NotIn [{}]", values.join(", ")),
            Test::Exists => write!(f, "{key} Exists"),
            Test::DoesNotExist => write!(f, "{key} DoesNotExist"),
            Test::Gt(than) => write!(f, "{key} Gt {than}"),
            Test::Lt(than) => write!(f, "{key} Lt {than}"),
            Test::Never => write!(f, "{key} with an operator that matches nothing"),
        }
    }
}

/// A label selector, ready to be evaluated often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    all: Vec<Requirement>,
}

impl Selector {
    /// Reads a label selector.
    ///
    /// # Errors
    /// An operator that selectors do not have, or a missing value.
    pub fn new(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let equal = labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let mut all: Vec<Requirement> = equal.collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref().unwrap_or_default();
            all.push(Requirement::from_label_expression(&expression.key, &expression.operator, values)?);
        }
        Ok(Self { all })
    }

    /// Returns whether the labels that `get` returns by key satisfy every condition.
    pub fn matches_labels<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.first_failing(get).is_none()
    }

    /// Returns the first condition that the labels do not satisfy.
    pub fn first_failing<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> Option<&Requirement> {
        self.all.iter().find(|requirement| !requirement.is_satisfied_by(get(&requirement.key)))
    }

    /// Returns the position of each label's value in the list of its `In`, condition by condition: the rank of an ordered
    /// selector; `None` if one value is not in its list.
    pub fn rank_labels<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> Option<Vec<u32>> {
        self.all.iter().map(|requirement| requirement.rank_value(get(&requirement.key))).collect()
    }
}

/// Nodes that a pod may run on, by its `nodeSelector` and required node affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelector {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<Requirement>,
    /// One of these has to match; absent without required affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terms: Option<Vec<Term>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl Term {
    fn new(term: &NodeSelectorTerm) -> Self {
        Self {
            labels: read_expressions(term.match_expressions.as_deref()),
            fields: read_expressions(term.match_fields.as_deref()),
        }
    }

    /// An empty term matches nothing.
    fn is_term_satisfied<'a>(&self, get: &impl Fn(&str) -> Option<&'a str>, node: &str) -> bool {
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self.labels.iter().all(|r| r.is_satisfied_by(get(&r.key)))
            && self.fields.iter().all(|r| r.is_satisfied_by((r.key == "metadata.name").then_some(node)))
    }
}

fn read_expressions(list: Option<&[k8s_openapi::api::core::v1::NodeSelectorRequirement]>) -> Vec<Requirement> {
    let list = list.unwrap_or_default().iter();
    list.map(|r| Requirement::from_node_expression(&r.key, &r.operator, r.values.as_deref().unwrap_or_default()))
        .collect()
}

impl NodeSelector {
    /// Reads what a pod asks of its node.
    pub fn new(spec: &PodSpec) -> Self {
        let labels = spec.node_selector.iter().flatten();
        let equal = labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.map(|required| required.node_selector_terms.iter().map(Term::new).collect());
        Self { labels: equal.collect(), terms }
    }

    /// Returns whether every node will do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    fn all_requirements(&self) -> impl Iterator<Item = &Requirement> {
        let terms = self.terms.iter().flatten().flat_map(|term| term.labels.iter().chain(&term.fields));
        self.labels.iter().chain(terms)
    }

    /// Number of values that a node is compared with at most.
    pub(crate) fn max_comparisons(&self) -> usize {
        self.all_requirements().map(|requirement| 1 + requirement.compared_values().len()).sum()
    }

    /// Number of bytes that its texts have.
    pub(crate) fn node_selector_bytes(&self) -> usize {
        let bytes = self.all_requirements().map(|requirement| {
            let values = requirement.compared_values().iter().map(|value| value.len() + 24).sum::<usize>();
            requirement.key.len() + 48 + values
        });
        bytes.sum()
    }

    /// Returns whether a node's own name decides, besides its labels.
    pub fn asks_names(&self) -> bool {
        let terms = self.terms.iter().flatten();
        self.label_keys().any(|key| key == HOSTNAME) || terms.into_iter().any(|term| !term.fields.is_empty())
    }

    /// Returns the keys of the labels that are asked for.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.terms.iter().flatten().flat_map(|term| &term.labels);
        self.labels.iter().chain(terms).map(|requirement| requirement.key.as_str())
    }

    /// Returns whether a node of this name, with the labels that `get` returns by key, will do.
    pub fn matches_node<'a>(&self, get: impl Fn(&str) -> Option<&'a str>, node: &'a str) -> bool {
        let get = |key: &str| if key == HOSTNAME { Some(node) } else { get(key) };
        self.labels.iter().all(|r| r.is_satisfied_by(get(&r.key)))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.is_term_satisfied(&get, node)))
    }
}

/// Toleration of a pod or of a policy: it keeps the taints that it matches from keeping something away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

impl Toleration {
    /// Reads the tolerations of a pod.
    pub fn of_pod(spec: &PodSpec) -> Vec<Self> {
        let tolerations = spec.tolerations.iter().flatten().map(|t| Self {
            key: t.key.clone().unwrap_or_default(),
            operator: t.operator.clone().unwrap_or_default(),
            value: t.value.clone().unwrap_or_default(),
            effect: t.effect.clone().unwrap_or_default(),
        });
        tolerations.collect()
    }

    /// Number of bytes that its texts have.
    pub(crate) fn toleration_bytes(&self) -> usize {
        self.key.len() + self.operator.len() + self.value.len() + self.effect.len() + 96
    }

    /// Reads a toleration of a policy.
    pub fn of_policy(toleration: &ClusterToleration) -> Self {
        Self {
            key: toleration.key.clone(),
            operator: toleration.operator.clone(),
            value: toleration.value.clone(),
            effect: toleration.effect.clone().unwrap_or_default(),
        }
    }

    /// Returns the operator if it is one that tolerates nothing here.
    pub fn unknown_operator(&self) -> Option<&str> {
        (!matches!(self.operator.as_str(), "" | "Equal" | "Exists")).then_some(&self.operator)
    }

    /// Returns whether it tolerates a taint: an empty key with `Exists` is every key, an empty effect every effect.
    pub fn tolerates_taint(&self, taint: &Taint) -> bool {
        let key = if self.key.is_empty() { self.operator == "Exists" } else { self.key == taint.key };
        let value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        key && value && (self.effect.is_empty() || self.effect == taint.effect)
    }
}

/// Returns the first taint that keeps away what has these tolerations: `NoSchedule` or `NoExecute`.
pub fn find_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        .find(|taint| !tolerations.iter().any(|t| t.tolerates_taint(taint)))
}

/// Returns whether a taint with this effect is not tolerated.
pub fn has_untolerated(taints: &[Taint], tolerations: &[Toleration], effect: &str) -> bool {
    let mut of_effect = taints.iter().filter(|taint| taint.effect == effect);
    of_effect.any(|taint| !tolerations.iter().any(|t| t.tolerates_taint(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selector(value: Value) -> Result<Selector, SelectorError> {
        Selector::new(&serde_json::from_value(value).unwrap())
    }

    fn expression(operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": "k", "operator": operator, "values": values }] })
    }

    #[test]
    fn label_selectors_follow_kubernetes() {
        for (operator, values, has, has_not) in [
            ("In", &["a", "b"][..], true, false),
            ("NotIn", &["a"], true, true),
            ("NotIn", &["b"], false, true),
            ("Exists", &[], true, false),
            ("DoesNotExist", &[], false, true),
        ] {
            let selector = selector(expression(operator, values)).unwrap();
            assert_eq!(
                (selector.matches_labels(|key| (key == "k").then_some("b")), selector.matches_labels(|_| None)),
                (has, has_not),
                "{operator} {values:?}"
            );
        }
        assert!(selector(json!({})).unwrap().matches_labels(|_| None), "an empty selector matches everything");
        assert!(selector(expression("In", &[])).is_err());
        assert!(selector(expression("Gt", &["1"])).is_err(), "only nodes are compared by number");
    }

    #[test]
    fn a_rank_has_one_number_an_expression() {
        let ordered = json!({ "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["x", "y"] },
            { "key": "b", "operator": "In", "values": ["1", "2"] },
        ] });
        let ordered = selector(ordered).unwrap();
        assert_eq!(ordered.rank_labels(|key| Some(if key == "a" { "y" } else { "1" })), Some(vec![1, 0]));
        assert_eq!(ordered.rank_labels(|key| (key == "a").then_some("y")), None);
    }

    fn nodes(affinity: Value) -> NodeSelector {
        let terms = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": affinity } });
        let spec = json!({ "containers": [], "affinity": { "nodeAffinity": terms } });
        NodeSelector::new(&serde_json::from_value(spec).unwrap())
    }

    fn find_generation(key: &str) -> Option<&'static str> {
        (key == "gen").then_some("4")
    }

    fn generation_term(operator: &str, value: &str) -> Value {
        json!({ "matchExpressions": [{ "key": "gen", "operator": operator, "values": [value] }] })
    }

    #[test]
    fn node_terms_are_alternatives_and_an_empty_one_matches_nothing() {
        assert!(nodes(json!([generation_term("Gt", "3")])).matches_node(find_generation, "n"));
        assert!(!nodes(json!([generation_term("Gt", "4")])).matches_node(find_generation, "n"));
        assert!(
            nodes(json!([generation_term("Gt", "4"), generation_term("Lt", "5")])).matches_node(find_generation, "n")
        );
        assert!(!nodes(json!([{}])).matches_node(find_generation, "n"));
        assert!(!nodes(json!([generation_term("Gt", "x")])).matches_node(find_generation, "n"));
        let field = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] });
        assert!(nodes(json!([field])).matches_node(|_| None, "n"));
        assert!(!nodes(json!([field])).matches_node(|_| None, "m"));
        let host = json!({ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": ["n"] }] });
        assert!(nodes(json!([host])).matches_node(|_| None, "n"), "the hostname is the node's name");
    }

    fn make_toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration {
            key: key.to_owned(),
            operator: operator.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        }
    }

    #[test]
    fn tolerations_follow_kubernetes() {
        let taint = Taint { key: "k".to_owned(), value: "v".to_owned(), effect: "NoSchedule".to_owned() };
        for (toleration, expected) in [
            (make_toleration("", "Exists", "", ""), true),
            (make_toleration("", "Equal", "v", ""), false),
            (make_toleration("k", "", "v", ""), true),
            (make_toleration("k", "Equal", "w", ""), false),
            (make_toleration("k", "Exists", "", "NoExecute"), false),
            (make_toleration("k", "Exists", "", "NoSchedule"), true),
            (make_toleration("k", "Lt", "v", ""), false),
        ] {
            assert_eq!(toleration.tolerates_taint(&taint), expected, "{toleration:?}");
        }
        assert_eq!(make_toleration("k", "Lt", "v", "").unknown_operator(), Some("Lt"));
    }
}
