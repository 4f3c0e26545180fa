//! Edits of taints as kubectl writes them: `KEY=VALUE:EFFECT`, `KEY:EFFECT`, and the same with `-` at the end to remove.

use std::str::FromStr;

use crate::api::crd::cluster::{TAINT_EFFECTS, Taint};
use crate::api::names::is_label_key;
use crate::api::names::is_label_value;

/// One change to the taints of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaintEdit {
    /// Sets a taint.
    Set(Taint),
    /// Removes the taints of a key: those of one effect, or all.
    Remove {
        /// Key.
        key: String,
        /// Effect; all effects where it is absent.
        effect: Option<String>,
    },
}

impl FromStr for TaintEdit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (spec, is_removal) = text.strip_suffix('-').map_or((text, false), |spec| (spec, true));
        let (name, effect) = match spec.split_once(':') {
            Some((name, effect)) => (name, Some(effect)),
            None => (spec, None),
        };
        let (key, value) = name.split_once('=').unwrap_or((name, ""));
        if !is_label_key(key) {
            return Err(format!("`{key}` is not a valid taint key: use a name such as `example.com/maintenance`"));
        }
        if !is_label_value(value) {
            return Err(format!(
                "`{value}` is not a valid taint value: use at most 63 letters, digits, `-`, `_` and `.`"
            ));
        }
        if let Some(effect) = effect.filter(|effect| !TAINT_EFFECTS.contains(effect)) {
            return Err(format!("`{effect}` is not a taint effect: use {}", TAINT_EFFECTS.join(", ")));
        }
        match (is_removal, effect) {
            (true, effect) => Ok(Self::Remove { key: key.to_owned(), effect: effect.map(str::to_owned) }),
            (false, Some(effect)) => {
                Ok(Self::Set(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() }))
            }
            (false, None) => {
                Err("the effect is missing: write KEY=VALUE:EFFECT, or KEY- to remove the taint".to_owned())
            }
        }
    }
}

/// A change that cannot be made to the taints that the cluster has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// The taint exists with another value.
    #[error("taint `{key}:{effect}` already has the value `{value}`")]
    HasOtherValue {
        /// Key.
        key: String,
        /// Effect.
        effect: String,
        /// The present value.
        value: String,
    },
    /// The taint to remove does not exist.
    #[error("taint `{0}` does not exist")]
    NotFound(String),
}

/// Returns the taints after the edits, in the order in which they were there; new ones follow.
pub(crate) fn apply_edits(taints: &[Taint], edits: &[TaintEdit], overwrite: bool) -> Result<Vec<Taint>, EditError> {
    let mut edited = taints.to_vec();
    for edit in edits {
        match edit {
            TaintEdit::Set(taint) => set_taint(&mut edited, taint, overwrite)?,
            TaintEdit::Remove { key, effect } => {
                let before = edited.len();
                edited.retain(|one| one.key != *key || effect.as_ref().is_some_and(|effect| one.effect != *effect));
                if edited.len() == before {
                    let effect = effect.as_ref().map(|effect| format!(":{effect}")).unwrap_or_default();
                    return Err(EditError::NotFound(format!("{key}{effect}")));
                }
            }
        }
    }
    Ok(edited)
}

fn set_taint(taints: &mut Vec<Taint>, taint: &Taint, overwrite: bool) -> Result<(), EditError> {
    match taints.iter_mut().find(|one| one.key == taint.key && one.effect == taint.effect) {
        None => taints.push(taint.clone()),
        Some(present) if present.value == taint.value => {}
        Some(present) if overwrite => present.value.clone_from(&taint.value),
        Some(present) => {
            return Err(EditError::HasOtherValue {
                key: present.key.clone(),
                effect: present.effect.clone(),
                value: present.value.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() }
    }

    #[test]
    fn edits_are_read_as_kubectl_writes_them() {
        for (text, set) in [
            ("gpu=yes:NoSchedule", taint("gpu", "yes", "NoSchedule")),
            ("example.com/gpu:NoExecute", taint("example.com/gpu", "", "NoExecute")),
        ] {
            assert_eq!(text.parse(), Ok(TaintEdit::Set(set)), "{text}");
        }
        for (text, effect) in
            [("gpu-", None), ("gpu:NoSchedule-", Some("NoSchedule")), ("gpu=yes:NoSchedule-", Some("NoSchedule"))]
        {
            let removed = TaintEdit::Remove { key: "gpu".to_owned(), effect: effect.map(str::to_owned) };
            assert_eq!(text.parse(), Ok(removed), "{text}");
        }
        for wrong in ["", "-", "gpu", "gpu=yes", "gpu:Never", "gpu=a b:NoSchedule", "/x:NoSchedule", "a/b/c:NoSchedule"]
        {
            assert!(wrong.parse::<TaintEdit>().is_err(), "{wrong}");
        }
    }

    fn apply_edit_text(old: &[Taint], edit: &str, overwrite: bool) -> Result<Vec<Taint>, EditError> {
        apply_edits(old, &[edit.parse().unwrap()], overwrite)
    }

    #[test]
    fn a_taint_is_set_changed_and_removed() {
        let old = [taint("a", "", "NoSchedule"), taint("b", "1", "NoExecute")];
        assert_eq!(apply_edit_text(&old, "a:NoSchedule", false), Ok(old.to_vec()), "nothing to change");
        assert_eq!(apply_edit_text(&old, "c=2:NoSchedule", false).unwrap()[2], taint("c", "2", "NoSchedule"));
        let other =
            EditError::HasOtherValue { key: "b".to_owned(), effect: "NoExecute".to_owned(), value: "1".to_owned() };
        assert_eq!(apply_edit_text(&old, "b=2:NoExecute", false), Err(other));
        assert_eq!(apply_edit_text(&old, "b=2:NoExecute", true).unwrap()[1], taint("b", "2", "NoExecute"));
        for edit in ["b-", "b:NoExecute-"] {
            assert_eq!(apply_edit_text(&old, edit, false), Ok(vec![old[0].clone()]), "{edit}");
        }
        let missing = EditError::NotFound("b:NoSchedule".to_owned());
        assert_eq!(apply_edit_text(&old, "b:NoSchedule-", false), Err(missing));
    }
}
