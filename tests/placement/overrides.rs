//! Edits of copies.

use fleetctl::placement::field_path::{FieldPath, PathError};
use serde_json::{Value, json};

use crate::support::check;

fn edit(case: &Value) -> Result<Value, PathError> {
    let path = FieldPath::parse(case["fieldPath"].as_str().unwrap())?;
    path.check_allowed()?;
    let mut object = case["object"].clone();
    path.set_field(&mut object, case["value"].clone())?;
    Ok(object)
}

#[test]
fn override_cases() {
    check("override.json", 13, |_, case| match edit(case) {
        Ok(object) => json!({ "object": object }),
        Err(error) => json!({ "error": error.code() }),
    });
}
