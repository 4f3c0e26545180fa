//! Variables that stand for flags and values. Precedence: defaults of the chart < environment < `--values` < `--set` <
//! flags of their own; for global flags: environment < flag.

use clap::Command;

use crate::chart::ValuesBuilder;
use crate::chart::values::suggest;

/// The variables that stand for a value of a control plane, with its path.
const VALUES: [(&str, &str); 5] = [
    ("FLEET_NODE_IP", "exposure.extraSANs"),
    ("EXTRA_API_SERVER_ENDPOINTS", "exposure.extraSANs"),
    ("APISERVER_SERVICE_NODEPORT", "exposure.nodePort"),
    ("APISERVER_ENDPOINT_PATCH", "exposure.agentEndpoint"),
    ("FLEET_API_PUBLIC_HOST_OVERRIDE", "exposure.host"),
];

/// The variables that stand for a global flag.
pub(crate) const CONTEXT: &str = "FLEET_CONTEXT";
pub(crate) const NAMESPACE: &str = "FLEET_NAMESPACE";

/// The tree of commands in which an empty variable counts as unset, as scripts leave it.
pub(crate) fn without_empty(tree: Command) -> Command {
    let flags = [("context", CONTEXT), ("namespace", NAMESPACE)].into_iter();
    let empty = flags.filter(|(_, name)| std::env::var_os(name).is_some_and(|value| value.is_empty()));
    empty.fold(tree, |tree, (flag, _)| tree.mut_arg(flag, |arg| arg.env(None::<&str>)))
}

/// Text about the variables at the end of `--help`.
pub(crate) const HELP: &str = "\
Environment variables (flags take precedence; for values, --values and --set do too):
  FLEET_CONTEXT, FLEET_NAMESPACE   as --context and --namespace
  FLEET_NODE_IP                    exposure.extraSANs: one more address in certificates
  EXTRA_API_SERVER_ENDPOINTS       exposure.extraSANs: several, separated by commas
  APISERVER_SERVICE_NODEPORT       exposure.nodePort
  APISERVER_ENDPOINT_PATCH         exposure.agentEndpoint: HOST:PORT for agents
  FLEET_API_PUBLIC_HOST_OVERRIDE   exposure.host: for the operator's kubeconfig
  KUBECONFIG, RUST_LOG, NO_COLOR, CLICOLOR_FORCE";

fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Lays the values that the environment gives over the defaults; files and flags go before them.
pub(crate) fn apply_variables(builder: ValuesBuilder) -> ValuesBuilder {
    build_values_documents(read_variable)
        .into_iter()
        .fold(builder, |builder, (name, text)| builder.file_result(&name, Ok(text.into_bytes())))
}

/// A document of values for each variable that is set, under a name that an error can show; lists are put together.
fn build_values_documents(set: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut sans: Vec<String> = Vec::new();
    let mut from: Vec<&str> = Vec::new();
    for (name, path) in VALUES {
        let Some(value) = set(name) else { continue };
        let key = path.trim_start_matches("exposure.");
        if key == "extraSANs" {
            sans.extend(value.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
            from.push(name);
            continue;
        }
        // A number stays one; whatever else stands there is text, which the schema judges.
        let value = if key == "nodePort" && value.bytes().all(|byte| byte.is_ascii_digit()) {
            value
        } else {
            serde_json::Value::from(value).to_string()
        };
        found.push((format!("${name}"), format!("{{\"exposure\": {{\"{key}\": {value}}}}}")));
    }
    if !sans.is_empty() {
        let name = from.iter().map(|name| format!("${name}")).collect::<Vec<_>>().join(" and ");
        found.push((name, serde_json::json!({"exposure": {"extraSANs": sans}}).to_string()));
    }
    found
}

/// Returns a remark on each variable named `FLEET_…` that nothing reads.
pub(crate) fn find_unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_meant_for_us(name)).filter_map(|name| describe_unknown_variable(&name)).collect()
}

/// Variables that Kubernetes puts into pods for a Service `fleet-…` are not meant for us.
fn is_meant_for_us(name: &str) -> bool {
    name.starts_with("FLEET_") && !name.contains("_SERVICE_") && !name.contains("_PORT")
}

fn describe_unknown_variable(name: &str) -> Option<String> {
    let known: Vec<&str> = VALUES.iter().map(|(known, _)| *known).chain([CONTEXT, NAMESPACE]).collect();
    if known.contains(&name) {
        return None;
    }
    let near =
        suggest::find_nearest_word(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Some(format!("the variable `{name}` is set, but nothing reads it{near}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_variable(name: &str) -> Option<String> {
        let value = match name {
            "FLEET_NODE_IP" => "192.0.2.1",
            "EXTRA_API_SERVER_ENDPOINTS" => "a.example, b.example",
            "APISERVER_SERVICE_NODEPORT" => "32222",
            "FLEET_API_PUBLIC_HOST_OVERRIDE" => "a\"b",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn variables_become_values_with_their_name_as_origin() {
        assert_eq!(
            build_values_documents(example_variable),
            [
                ("$APISERVER_SERVICE_NODEPORT".to_owned(), r#"{"exposure": {"nodePort": 32222}}"#.to_owned()),
                ("$FLEET_API_PUBLIC_HOST_OVERRIDE".to_owned(), r#"{"exposure": {"host": "a\"b"}}"#.to_owned()),
                (
                    "$FLEET_NODE_IP and $EXTRA_API_SERVER_ENDPOINTS".to_owned(),
                    r#"{"exposure":{"extraSANs":["192.0.2.1","a.example","b.example"]}}"#.to_owned()
                ),
            ]
        );
    }

    #[test]
    fn an_unknown_variable_is_pointed_out_with_the_nearest_known() {
        assert!(describe_unknown_variable("FLEET_NAMESPCE").unwrap().contains("did you mean `FLEET_NAMESPACE`?"));
        assert_eq!(describe_unknown_variable("FLEET_CONTEXT"), None);
        assert!(!is_meant_for_us("FLEET_SCHEDULER_SERVICE_HOST") && !is_meant_for_us("FLEET_X_PORT_443_TCP"));
    }
}
