//! Admission plugins of an API server, as its arguments name them.

/// The plugin that calls the webhooks of a MutatingWebhookConfiguration.
pub const MUTATING_WEBHOOK: &str = "MutatingAdmissionWebhook";
/// The plugin that calls the webhooks of a ValidatingWebhookConfiguration.
pub const VALIDATING_WEBHOOK: &str = "ValidatingAdmissionWebhook";
/// Both plugins that call webhooks.
pub const WEBHOOK_PLUGINS: [&str; 2] = [MUTATING_WEBHOOK, VALIDATING_WEBHOOK];

/// Plugins that the chart disables in every case: they judge by what only a workload cluster knows, or set finalizers that
/// nothing in a control plane removes.
pub const UNUSED_PLUGINS: [&str; 8] = [
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "PersistentVolumeClaimResize",
    "Priority",
    "RuntimeClass",
];

fn parse_plugin_list<'a>(argument: &'a str, flag: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    argument.strip_prefix(flag).into_iter().flat_map(|list| list.split(',')).map(str::trim)
}

/// Returns the plugins that one argument enables.
pub fn enabled_plugins(argument: &str) -> impl Iterator<Item = &str> {
    parse_plugin_list(argument, "--enable-admission-plugins=")
}

/// Returns whether some of the arguments disable a plugin. A flag that is given twice adds to the list.
pub fn is_disabled<'a>(mut arguments: impl Iterator<Item = &'a str>, plugin: &str) -> bool {
    arguments.any(|argument| parse_plugin_list(argument, "--disable-admission-plugins=").any(|one| one == plugin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_disabled_by_any_of_the_arguments() {
        let arguments = ["kube-apiserver", "--disable-admission-plugins=A,B", "--disable-admission-plugins=C"];
        assert_eq!(
            ["A", "B", "C", "D"].map(|plugin| is_disabled(arguments.into_iter(), plugin)),
            [true, true, true, false]
        );
    }

    #[test]
    fn plugins_are_enabled_by_their_own_flag_alone() {
        assert_eq!(enabled_plugins("--enable-admission-plugins=A, B").collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(enabled_plugins("--disable-admission-plugins=A").next(), None);
    }
}
