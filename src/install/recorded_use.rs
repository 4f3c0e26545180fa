//! Recorded values that a run reuses, and those of them that can grant permissions and that this machine has not
//! recorded itself.

use std::fmt;

use serde_json::Value;

use super::recorded_values::collect_leaves;
use super::release_spec::Package;
use crate::chart;

/// A recorded value that a run uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedValue {
    /// Its path: `apiserver.extraArgs`.
    pub path: String,
    /// The value as JSON, `null` for a default that is deleted. None of a secret.
    pub recorded: Option<String>,
}

impl fmt::Display for UsedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.recorded.as_deref().unwrap_or("(a secret)"))
    }
}

/// A value that may give rights, and that this machine has not recorded as it is in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnconfirmedValue {
    /// Its path.
    pub path: String,
    /// The recorded value as JSON; none where the record has none, or a secret.
    pub recorded: Option<String>,
    /// The value that this machine has installed with, as JSON; none where it has none.
    pub local: Option<String>,
}

impl fmt::Display for UnconfirmedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded = self.recorded.as_deref().unwrap_or("nothing");
        write!(f, "{}: the record has {recorded}", self.path)?;
        self.local.as_deref().map_or(Ok(()), |local| write!(f, "; the last install from this machine used {local}"))
    }
}

/// Recorded values that a run uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedUse {
    /// All that differ from the chart's defaults, in order.
    pub values: Vec<UsedValue>,
    /// Those that must be given again.
    pub unconfirmed: Vec<UnconfirmedValue>,
}

impl RecordedUse {
    /// Finds the recorded values in those of a package. `local` are the values that this machine has installed with.
    ///
    /// Whoever may edit what is in the namespace can write the record. A value that is in `ordinary` gives him nothing that
    /// he could not do himself: the objects that it changes are in the namespace, and his to edit. Any other value is used
    /// only where this machine knows it, or is given it.
    pub fn from_package_values(package: &Package, local: Option<&Value>, ordinary: Ordinary) -> Self {
        let tree = package.tree();
        let defaults = package.chart_default_values();
        let now = tree.to_json();
        let mut found = Self::default();
        for path in tree.recorded_paths() {
            let value = value_covering_path(&now, &path).cloned().unwrap_or(Value::Null);
            if value_covering_path(&defaults, &path).unwrap_or(&Value::Null) == &value {
                continue;
            }
            let recorded = tree.masked_at(&path).map(|value| value.to_string());
            let known = local.and_then(|local| value_covering_path(local, &path));
            if !ordinary.has_value(&path, &value) && known != Some(&value) {
                found.unconfirmed.push(UnconfirmedValue {
                    path: chart::show_path(&path),
                    recorded: recorded.clone(),
                    local: known.map(Value::to_string),
                });
            }
            found.values.push(UsedValue { path: chart::show_path(&path), recorded });
        }
        // What the record has lost would silently fall back to the default of the chart.
        for (path, known) in local.map(collect_leaves).unwrap_or_default() {
            let value = value_covering_path(&now, &path).unwrap_or(&Value::Null);
            if *value != known && !tree.is_given(&path) && !ordinary.has_value(&path, &Value::Null) {
                let (path, local) = (chart::show_path(&path), Some(known.to_string()));
                found.unconfirmed.push(UnconfirmedValue { path, recorded: None, local });
            }
        }
        found
    }

    /// Finds the values of a record that would have to be given again where they cannot be: in an undo, which renders the
    /// recorded release.
    pub fn unconfirmed_in(recorded: &Value, local: Option<&Value>, ordinary: Ordinary) -> Vec<UnconfirmedValue> {
        let unconfirmed = collect_leaves(recorded).into_iter().filter_map(|(path, value)| {
            let known = local.and_then(|local| value_covering_path(local, &path));
            (!ordinary.has_value(&path, &value) && known != Some(&value)).then(|| UnconfirmedValue {
                recorded: Some(value.to_string()),
                local: known.map(Value::to_string),
                path: chart::show_path(&path),
            })
        });
        unconfirmed.collect()
    }
}

/// The values of a chart that give no rights to whoever forges them in a record.
#[derive(Debug, Clone, Copy)]
pub struct Ordinary {
    /// Their paths; what lies below is among them. `*` stands for any one key.
    pub paths: &'static [&'static str],
    /// Single values of other paths, as the text that they are.
    pub values: &'static [(&'static str, &'static str)],
}

impl Ordinary {
    fn has_value(&self, path: &[String], value: &Value) -> bool {
        self.paths.iter().any(|pattern| starts_with_pattern(path, pattern))
            || self.values.iter().any(|(pattern, text)| starts_with_pattern(path, pattern) && value == text)
    }
}

/// Returns whether a path is that of a pattern, or below it.
fn starts_with_pattern(path: &[String], pattern: &str) -> bool {
    let mut path = path.iter();
    pattern.split('.').all(|part| path.next().is_some_and(|key| part == "*" || part == key))
}

/// The value at a path; where something on the way is no mapping, and so stands for all that could be below, that.
fn value_covering_path<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        other => Some(other),
    })
}
