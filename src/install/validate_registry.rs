//! Check that a Secret for registries is of use: a configuration that names a helper program of some machine holds no
//! login.

use serde_json::Value;

use crate::api::values::pod_values::SecretValue;
use crate::chart::{Diagnostic, ValuesTree};

/// The warning about `registryCredentials` that no node can log in with; it shows no part of them.
pub fn check_registry_credentials(credentials: Option<&SecretValue>, tree: &ValuesTree) -> Option<Diagnostic> {
    let config: Value = serde_json::from_str(&credentials?.0).ok()?;
    let logins = config.get("auths").and_then(Value::as_object);
    for entry in logins.into_iter().flatten().map(|(_, entry)| entry) {
        if ["auth", "password", "identitytoken"].iter().any(|key| entry.get(key).is_some()) {
            return None;
        }
    }
    let helper = ["credsStore", "credHelpers"].into_iter().find(|key| config.get(key).is_some());
    let message = match helper {
        Some(key) => format!("`registryCredentials` contain no login: `{key}` names a program that nodes do not have"),
        None => "`registryCredentials` contain no login".to_owned(),
    };
    let warning = Diagnostic::warning("registry-credentials", message)
        .help("create a configuration with the login in a new folder DIR: `docker --config DIR login REGISTRY`");
    Some(tree.locate_diagnostic(&["registryCredentials"], warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::ValuesBuilder;

    fn render_credentials_warning(text: &str) -> Option<String> {
        let tree = ValuesBuilder::new(None).build(|| Value::Null).unwrap();
        let warning = check_registry_credentials(Some(&SecretValue(text.to_owned())), &tree);
        warning.map(|warning| warning.render_diagnostic(false))
    }

    #[test]
    fn credentials_without_a_login_are_pointed_out_and_never_shown() {
        let tree = ValuesBuilder::new(None).build(|| Value::Null).unwrap();
        assert_eq!(check_registry_credentials(None, &tree), None);
        assert_eq!(render_credentials_warning(r#"{"auths": {"a.example": {"auth": "c2VjcmV0"}}}"#), None);
        for (text, key) in [
            (r#"{"auths": {"a.example": {}}, "credsStore": "desktop"}"#, "`credsStore`"),
            (r#"{"credHelpers": {"a.example": "x"}}"#, "`credHelpers`"),
        ] {
            assert!(render_credentials_warning(text).unwrap().contains(key), "{key}");
        }
        let empty = render_credentials_warning(r#"{"auths": {}, "note": "canary"}"#).unwrap();
        assert!(empty.contains("contain no login") && !empty.contains("canary"), "{empty}");
    }
}
