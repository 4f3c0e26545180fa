//! Patches as sources of fields: which of them decide a field, and what it was without them.

use serde::Serialize;
use serde_json::Value;

use crate::chart::diagnostic::{Diagnostics, Place};
use crate::chart::inspect::explain::{ExplainError, Explanation, each_leaf, find_value_at, parse_path};
use crate::chart::mask::mask_secret_data;
use crate::chart::render::Object;
use crate::chart::yaml::node::show_path;

use super::Patches;

/// A patch that changes a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchedBy {
    /// Place in the patch that changes the field.
    pub place: Place,
    /// Value before the patch; `None` where the field was not there.
    pub before: Option<Value>,
}

impl Patches {
    /// Adds the patches that change a field to its explanation by the templates; `objects` are those without patches.
    ///
    /// # Errors
    /// A field that is not there with the patches either, and patches that cannot be applied.
    pub fn explain_patches(
        &self,
        explained: Result<Vec<Explanation>, ExplainError>,
        objects: &[Object],
        field: &str,
    ) -> Result<Vec<Explanation>, ExplainError> {
        let Some((id, Some(path))) = field.split_once('#').map(|(id, path)| (id, parse_path(path))) else {
            return explained;
        };
        let Some(object) = objects.iter().find(|object| object.id().eq_ignore_ascii_case(id)) else { return explained };
        let mut versions = vec![object.clone()];
        let mut places = Vec::new();
        for patch in self.documents.iter().filter(|patch| patch.target.is_for_object(object)) {
            let before = &versions[versions.len() - 1];
            let json =
                self.apply_patch(patch, before).map_err(|problems| ExplainError::Render(Diagnostics(problems)))?;
            versions.push(Object { json, ..before.clone() });
            places.push(patch);
        }
        let last = &versions[versions.len() - 1].json;
        let mut explained = match explained {
            // The patches may add it.
            Err(ExplainError::NoField { .. }) if find_value_at(last, &path).is_some() => Vec::new(),
            other => other?,
        };
        let known: Vec<Vec<String>> = explained.iter().filter_map(|field| parse_path(&field.path)).collect();
        let mut fresh = Vec::new();
        if let Some(value) = find_value_at(last, &path) {
            each_leaf(value, &mut path.clone(), &mut |leaf, value| {
                if !known.iter().any(|known| leaf.starts_with(known)) {
                    fresh.push((leaf.to_vec(), value.clone()));
                }
            });
        }
        explained.extend(fresh.into_iter().map(|(leaf, value)| Explanation {
            object: object.id(),
            path: show_path(&leaf),
            value,
            template: None,
            parts: Vec::new(),
            presence: Vec::new(),
            patches: Vec::new(),
        }));
        for field in &mut explained {
            let path = parse_path(&field.path).unwrap_or_default();
            for (step, patch) in versions.windows(2).zip(&places) {
                let [before, after] = [&step[0], &step[1]].map(|object| mask_secret_data(&object.json));
                let (before, now) = (find_value_at(&before, &path), find_value_at(&after, &path));
                if before != now {
                    let place = self.find_patch_place(patch, &step[1].json, &path);
                    field.patches.push(PatchedBy { place, before: before.cloned() });
                    field.value = now.cloned().unwrap_or_default();
                }
            }
        }
        Ok(explained)
    }
}
