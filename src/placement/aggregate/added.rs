//! Status of kinds that an operator added: of one copy its own, of several what kstatus reads.

use serde_json::{Map, Value};

use super::Serving;
use super::conditions;
use super::copy::CopyStatus;
use super::typed;

/// Deepest value of a status that is taken.
const DEPTH: usize = 16;

impl Serving<'_> {
    /// The status of the only copy, with the generations of the source; of several their conditions.
    pub(super) fn aggregate_added_kind(&self, status: &mut Map<String, Value>) {
        if let [copy] = self.copies[..]
            && let Some(own) = copy.status.as_ref().and_then(Value::as_object)
        {
            status.extend(own.iter().map(|(name, value)| (name.clone(), bound_value(value, DEPTH))));
            status.remove("observedGeneration");
            self.translate_generations(copy, status);
        } else {
            let mut all = conditions::merge_conditions(&self.copies);
            conditions::complete_conditions(&mut all, &self.copies, self.source.generation);
            conditions::insert_conditions(status, all);
        }
        // A controller that writes no generation is not waited for.
        let mut observing =
            self.copies.iter().filter(|copy| copy.status_field("observedGeneration").is_some()).peekable();
        if observing.peek().is_some()
            && observing.all(|copy| copy.has_observed())
            && self.copies.iter().all(|copy| copy.status.is_some())
        {
            status.insert("observedGeneration".to_owned(), self.source.generation.into());
        }
    }

    /// Replaces the generations that the conditions of a copy name by those of the source.
    fn translate_generations(&self, copy: &CopyStatus, status: &mut Map<String, Value>) {
        let generation = self.source.generation;
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(observed) = condition.get("observedGeneration").and_then(Value::as_i64) {
                let is_current = copy.applied && observed >= copy.generation;
                condition["observedGeneration"] = if is_current { generation } else { (generation - 1).max(0) }.into();
            }
        }
    }
}

/// Returns a value with its texts visible; what lies deeper than any status does is left out.
fn bound_value(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => typed::read_message(value).into(),
        Value::Object(_) | Value::Array(_) if depth == 0 => Value::Null,
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), bound_value(value, depth - 1))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| bound_value(item, depth - 1)).collect(),
        other => other.clone(),
    }
}
