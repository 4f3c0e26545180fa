//! A long operation on an installation, of several stages, as the Secret of its record has it; and whether it blocks another
//! run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lock::Holder;
use super::record::State;
use super::release::AWAITED_BACKUP;
use crate::api::util::text::visible_cell;

/// An operation as the Secret of the record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Its command, such as `restore`.
    pub command: String,
    /// Random id: hexadecimal digits.
    pub run: String,
    /// The stage that was begun last.
    pub stage: String,
    /// Whether other commands have to wait.
    pub open: bool,
    /// Time at which it began, RFC 3339.
    pub started: String,
    /// User who began it, and the host.
    pub by: String,
    /// What the command has to remember. Never a secret.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub facts: Value,
}

impl Operation {
    /// A new operation of this process.
    pub fn new(command: &str, run: String, stage: &str, facts: Value) -> Self {
        let holder = Holder::from_this_process();
        Self {
            command: command.to_owned(),
            run,
            stage: stage.to_owned(),
            open: true,
            started: holder.since,
            by: format!("{}@{}", holder.user, holder.host),
            facts,
        }
    }
}

impl State {
    /// Returns the open operation that refuses a run ([`super::Error::OperationOpen`]): any but the one with the run
    /// `goes_on_with`, which this run continues.
    pub(super) fn blocking_operation(&self, goes_on_with: Option<&str>) -> Option<&Operation> {
        self.operation.as_ref().filter(|operation| operation.open && goes_on_with != Some(operation.run.as_str()))
    }

    /// Notes an operation that begins or continues. What a release waited for is the operation's from now on.
    pub(super) fn note_operation(&mut self, operation: &Operation) {
        self.operation = Some(operation.clone());
        if let Some(record) = &mut self.record {
            record.release.facts.remove(AWAITED_BACKUP);
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [command, stage, started, by] =
            [&self.command, &self.stage, &self.started, &self.by].map(|text| visible_cell(text));
        write!(f, "a {command}, in stage {stage}, begun at {started} by {by}")
    }
}
