//! The recorded values of an installation: the next run reuses them, or would reset them silently.

use std::fmt;

use kube::Client;
use serde_json::Value;

use super::release_spec::{Package, remove_at};
use super::renderable::{SecretEntry, secret_values};
use crate::api::labels::LABEL_INSTALL;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::version::ServiceVersion;
use crate::apply::{self, Engine};
use crate::chart::{self, Chart, Versions};
use crate::inventory::{Owner, Phase, Record, Release, State};
use crate::k8s::apply_merge_patch;

/// The fact of a record that says which patches were applied: names of files, and a digest.
pub const PATCHES: &str = "patches";

/// Treatment of recorded values that a run is not given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recorded {
    /// It refuses to reset them.
    #[default]
    Refuse,
    /// It takes them, below those that it is given.
    Reuse,
    /// It resets them to the chart's defaults.
    Reset,
}

/// Reason that a recorded release cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The record.
    #[error("the record cannot be read")]
    Record(#[from] apply::Error),
    /// A Secret that holds a value.
    #[error("a Secret with a recorded value cannot be read")]
    Secret(#[from] kube::Error),
}

/// A recorded release with all its values, the secret ones included.
#[derive(Clone)]
pub struct RecordedRelease {
    /// The service version, as recorded.
    pub version: String,
    /// Installed, or removed with something kept.
    pub phase: Phase,
    /// Values that the user gave: an RFC 7396 patch of the chart's values. None where the record does not keep them.
    pub values: Option<Value>,
    /// Those of them that are read back from Secrets.
    pub secrets: Value,
}

impl fmt::Debug for RecordedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedRelease")
            .field("version", &self.version)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl RecordedRelease {
    /// Reads the record of an installation; none where nothing is installed or kept.
    ///
    /// # Errors
    /// [`ReadError`]: an API that does not answer or refuses, or a record that cannot be read.
    pub async fn read_release(
        client: &Client,
        owner: Owner,
        secrets: &[SecretEntry],
    ) -> Result<Option<Self>, ReadError> {
        let state = Engine::new_reader(client.clone(), owner).read_state().await?;
        match &state.record {
            Some(record) => Ok(Some(Self::from_record(record, client, secrets).await?)),
            None => Ok(None),
        }
    }

    /// Reads the secret values of a record from the Secrets in its inventory.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn from_record(record: &Record, client: &Client, secrets: &[SecretEntry]) -> Result<Self, kube::Error> {
        let mut entries = secrets.to_vec();
        entries.retain(|entry| {
            let inventory = &record.inventory;
            inventory.iter().any(|item| item.object.is_kind("", "Secret") && item.object.name == entry.secret)
        });
        let owner = &record.owner;
        let secrets = secret_values(client, &owner.namespace, (LABEL_INSTALL, &owner.name), &entries).await?;
        let Release { version, values, .. } = &record.release;
        Ok(Self { version: version.clone(), phase: record.phase, values: values.clone(), secrets })
    }

    /// The values for a chart, whose own images are not those of the recorded version: what had chosen that version, such as
    /// `--image-tag`, does not choose the next one.
    pub fn values_for(&self, chart: &Chart) -> Value {
        let mut values = self.values.clone().unwrap_or_default();
        forget_version(&mut values, chart, &self.version);
        apply_merge_patch(&mut values, &self.secrets);
        values
    }

    /// The same for a version of that chart, and the paths of the images that were locked to digests which are those of
    /// another tag: they are left out, for they would bring the images of the recorded version with them.
    pub fn values_for_version(&self, chart: &Chart, version: &ServiceVersion) -> (Value, Vec<String>) {
        let mut values = self.values_for(chart);
        let unlocked = forget_locks(&mut values, chart, &self.version, version);
        (values, unlocked)
    }
}

/// The default version of the line that follows that of a recorded one; of the newest line, the recorded version itself
/// or its default, whichever is newer. None where this program does not know the line.
pub fn next_version(table: &Versions, recorded: &str) -> Option<String> {
    let recorded: ServiceVersion = recorded.parse().ok()?;
    // The table has the newest line first.
    let place = table.rows().iter().position(|row| row.version == recorded.service_line())?;
    let newest = &table.rows()[place.saturating_sub(1)].default;
    Some(if place == 0 && recorded > *newest { recorded.to_string() } else { newest.to_string() })
}

/// Recorded values that an install would reset to the defaults of the chart. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.format_headline())]
pub struct ValuesForgotten {
    /// Each of them; none where the record does not keep values.
    pub values: Vec<Forgotten>,
    /// Known facts of the installation where its record does not keep values, one clause each.
    pub found: Vec<String>,
}

/// A recorded value that is not given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// Its path: `exposure.nodePort`.
    pub path: String,
    /// The recorded value as JSON; none of a secret.
    pub recorded: Option<String>,
    /// The value that it would become, as JSON; none where it would not be there.
    pub now: Option<String>,
}

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded = self.recorded.as_deref().unwrap_or("(a secret)");
        write!(f, "{}: {recorded}, would become {}", self.path, self.now.as_deref().unwrap_or("unset"))
    }
}

impl ValuesForgotten {
    fn format_headline(&self) -> String {
        match self.values.len() {
            0 => "the record does not contain the values of the last install, and the given values differ from them"
                .to_owned(),
            1 => "a value of the last install is not given now and would be reset".to_owned(),
            n => format!("{n} values of the last install are not given now and would be reset"),
        }
    }

    /// Returns the values that would be reset, or the known facts of the installation, one clause each.
    pub fn format_clauses(&self) -> Vec<String> {
        if self.values.is_empty() { self.found.clone() } else { self.values.iter().map(ToString::to_string).collect() }
    }

    /// The ways on: to keep the values, to give them again, or to reset them.
    pub fn remedy(&self, what: Subject) -> Remedy {
        if self.values.is_empty() {
            return Remedy::new("compare what would change: ")
                .command(Command::at_run_place(Action::Diff(Some(what))).with_flag(Flag::ResetValues))
                .text(", with the values that you want; then install with the same flags");
        }
        let keeps = if self.values.iter().any(|value| value.path == PATCHES) {
            Remedy::new("patches are not recorded: give them again with ").flag(Flag::Patch).text("; for the values, ")
        } else {
            Remedy::default()
        };
        keeps
            .flag(Flag::ReuseValues)
            .text(" keeps them, ")
            .flag(Flag::ResetValues)
            .text(" resets them; ")
            .command(Command::at_run_place(Action::Upgrade(what)))
            .text(" always keeps them")
    }

    /// Finds the recorded values that an install of `package` would reset; none where nothing is installed or nothing
    /// would be reset.
    ///
    /// # Errors
    /// An API that does not answer or refuses, where a secret value must be read.
    pub async fn find_forgotten_values(
        package: &Package,
        state: &State,
        client: &Client,
        secrets: &[SecretEntry],
    ) -> Result<Option<Self>, kube::Error> {
        let Some(record) = state.record.as_ref().filter(|record| record.phase == Phase::Installed) else {
            return Ok(None);
        };
        let mut ungiven = secrets.to_vec();
        ungiven.retain(|entry| {
            let path: Vec<String> = entry.value.split('/').skip(1).map(str::to_owned).collect();
            !package.tree().is_given(&path)
        });
        let recorded = RecordedRelease::from_record(record, client, &ungiven).await?;
        Ok(Self::compare_release(package, &record.release, &recorded))
    }

    pub(crate) fn compare_release(package: &Package, release: &Release, recorded: &RecordedRelease) -> Option<Self> {
        let tree = package.tree();
        if recorded.values.is_none() {
            let found = release.facts.iter().map(|(fact, value)| format!("{fact} is {value}")).collect();
            return (release.values_digest != package.values_digest()).then_some(Self { values: Vec::new(), found });
        }
        let now = tree.to_json();
        let mut values = Vec::new();
        for (path, value) in collect_leaves(&recorded.values_for(package.chart())) {
            let becomes = path.iter().try_fold(&now, |now, key| now.get(key)).unwrap_or(&Value::Null);
            if tree.is_given(&path) || *becomes == value {
                continue;
            }
            let secret = path.iter().try_fold(&recorded.secrets, |secrets, key| secrets.get(key)).is_some();
            values.push(Forgotten {
                path: chart::show_path(&path),
                recorded: (!secret).then(|| if value.is_null() { "unset".to_owned() } else { value.to_string() }),
                now: (!becomes.is_null()).then(|| becomes.to_string()),
            });
        }
        if let Some(patches) = release.facts.get(PATCHES).filter(|_| package.patches().is_empty()) {
            values.push(Forgotten { path: PATCHES.to_owned(), recorded: Some(patches.clone()), now: None });
        }
        (!values.is_empty()).then_some(Self { values, found: Vec::new() })
    }
}

/// Removes the tags that only say which version was chosen.
fn forget_version(values: &mut Value, chart: &Chart, recorded: &str) {
    let Some(row) = chart.version_row() else { return };
    let Ok(version) = recorded.parse::<ServiceVersion>() else { return };
    for (name, path) in chart.image_paths() {
        if !row.image_tag(&name, &version).is_some_and(|(_, is_own)| is_own) {
            continue;
        }
        let path: Vec<String> = path.split('.').chain(["tag"]).map(str::to_owned).collect();
        let tag = path.iter().try_fold(&*values, |values, key| values.get(key)).and_then(Value::as_str);
        if tag.is_some_and(|tag| tag.parse::<ServiceVersion>().is_ok_and(|tag| tag == version)) {
            remove_at(values, &path);
        }
    }
}

/// Removes the tags that a lock has put a digest behind, where the image has another tag in `next`. Returns the paths
/// of the images.
fn forget_locks(values: &mut Value, chart: &Chart, recorded: &str, next: &ServiceVersion) -> Vec<String> {
    let Ok(recorded) = recorded.parse::<ServiceVersion>() else { return Vec::new() };
    let former = chart::embedded_versions().rows().iter().find(|row| row.version == recorded.service_line());
    let (Some(row), Some(former)) = (chart.version_row(), former) else { return Vec::new() };
    let mut unlocked = Vec::new();
    for (name, image) in chart.image_paths() {
        let before = former.image_tag(&name, &recorded).map(|(tag, _)| tag);
        let after = row.image_tag(&name, next).map(|(tag, _)| tag);
        let path: Vec<String> = image.split('.').chain(["tag"]).map(str::to_owned).collect();
        let tag = path.iter().try_fold(&*values, |values, key| values.get(key)).and_then(Value::as_str);
        let locked = tag.and_then(|tag| tag.split_once('@')).map(|(tag, _)| tag.to_owned());
        if before != after && locked.is_some() && locked == before {
            remove_at(values, &path);
            unlocked.push(image);
        }
    }
    unlocked
}

/// The leaves of a tree of mappings with their paths; an empty mapping says nothing.
pub(super) fn collect_leaves(value: &Value) -> Vec<(Vec<String>, Value)> {
    fn collect_leaves_below(value: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
        let Value::Object(map) = value else {
            found.push((path.clone(), value.clone()));
            return;
        };
        for (key, below) in map {
            path.push(key.clone());
            collect_leaves_below(below, path, found);
            path.pop();
        }
    }
    let mut found = Vec::new();
    collect_leaves_below(value, &mut Vec::new(), &mut found);
    found
}
