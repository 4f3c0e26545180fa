//! Checks of what acts on the API server of a control plane: pure judgements, each with what to type.

use super::{OwnApi, Served, Webhook};
use crate::api::admission;
use crate::api::first_of::first_of;
use crate::api::remedy::{Action, Command, Flag, Place, Remedy, Subject};
use crate::api::shell::foreign_word;
use crate::check::CheckResult;
use crate::check::inside::{HOSTING, HealthFacts};

/// Number of objects that are named at most.
const NAMED: usize = 3;
/// The check that says whether the control plane's own API was looked at.
const INSIDE: &str = "definition-cluster";
/// The component whose arguments say which admission plugins are on.
const API_SERVER: &str = "apiserver";

/// What acts on the API server, or the result where that is not known.
fn require_own_api(facts: &HealthFacts) -> Result<&OwnApi, CheckResult> {
    let Ok(inside) = &facts.inside else { return Err(CheckResult::Skipped(INSIDE)) };
    match &inside.own_api.unread {
        Some(why) => Err(CheckResult::new_warning(
            format!("not checked: {why}"),
            "use the kubeconfig of an administrator of the control plane",
        )),
        None => Ok(&inside.own_api),
    }
}

/// A command that deletes an object from the control plane.
fn add_delete_command(remedy: Remedy, kind: &str, name: &str) -> Remedy {
    let arguments = format!(" delete {} {}`", kind.to_lowercase(), foreign_word(name));
    remedy.text("`").kubectl(Place::Context("CONTROL_PLANE")).text(arguments)
}

/// Judges admission webhooks that have to answer, while they are called.
pub(in crate::check::inside) fn check_webhooks(facts: &HealthFacts) -> CheckResult {
    let found = match require_own_api(facts) {
        Ok(found) => &found.webhooks,
        Err(result) => return result,
    };
    let stored = found.len();
    if stored == 0 {
        return CheckResult::Passed("none can reject a request".to_owned());
    }
    let Ok(components) = &facts.components else { return CheckResult::Skipped(HOSTING) };
    let arguments = components.get(API_SERVER).map(|component| component.arguments.as_slice()).unwrap_or_default();
    let called =
        found.iter().filter(|webhook| !admission::is_disabled(arguments.iter().map(String::as_str), webhook.plugin));
    let called: Vec<&Webhook> = called.collect();
    let Some(first) = called.first() else {
        let are = if stored == 1 { "1 configuration is" } else { &format!("{stored} configurations are") };
        return CheckResult::Passed(format!("{are} stored for workload clusters and not called here"));
    };
    let named = called.iter().map(|one| format!("{} {} ({})", one.kind, one.configuration, one.requests));
    let named = first_of(named, NAMED, "; ");
    let off = Command::at_run_place(Action::Upgrade(Subject::ControlPlane("NAME".to_owned())))
        .with_flag(Flag::Version("INSTALLED".to_owned()))
        .with_flag(Flag::set_value("apiserver.allowAdmissionWebhooks", "false"));
    let remedy = Remedy::new("turn webhooks off in this control plane: ").command(off).text("; or delete the object: ");
    CheckResult::new_failure(
        format!("the API server calls webhooks whose Services have no pod in the control plane: {named}"),
        add_delete_command(remedy, first.kind, &first.configuration),
    )
}

fn format_served_names(found: &[Served]) -> String {
    first_of(found.iter().map(|one| format!("{} (Service {})", one.name, one.service)), NAMED, ", ")
}

/// Judges definitions of which objects cannot be listed.
pub(in crate::check::inside) fn conversion_webhooks(facts: &HealthFacts) -> CheckResult {
    let Ok(inside) = &facts.inside else { return CheckResult::Skipped(INSIDE) };
    let Some(first) = inside.conversions.first() else {
        return CheckResult::Passed("none prevents listing".to_owned());
    };
    let patch = r#"--type=merge --patch='{"spec":{"conversion":{"strategy":"None","webhook":null}}}'"#;
    CheckResult::new_failure(
        format!(
            "objects of these CustomResourceDefinitions cannot be listed, and no namespace can be deleted, because their conversion webhook does not run in the control plane: {}",
            format_served_names(&inside.conversions)
        ),
        Remedy::new("set their conversion strategy to None: `")
            .kubectl(Place::Context("CONTROL_PLANE"))
            .text(format!(" patch customresourcedefinition {} {patch}`", foreign_word(&first.name))),
    )
}

/// Judges APIServices whose Service does not answer.
pub(in crate::check::inside) fn api_services(facts: &HealthFacts) -> CheckResult {
    let found = match require_own_api(facts) {
        Ok(found) => &found.api_services,
        Err(result) => return result,
    };
    let Some(first) = found.first() else { return CheckResult::Passed("all answer".to_owned()) };
    let remedy = Remedy::new("delete it from the control plane, and apply it to the workload clusters directly: ");
    CheckResult::new_failure(
        format!("no namespace can be deleted, because these APIServices do not answer: {}", format_served_names(found)),
        add_delete_command(remedy, "APIService", &first.name),
    )
}

/// Judges admission policies that may refuse requests of the service itself.
pub(in crate::check::inside) fn admission_policies(facts: &HealthFacts) -> CheckResult {
    let found = match require_own_api(facts) {
        Ok(found) => &found.policies,
        Err(result) => return result,
    };
    let Some(first) = found.first() else {
        return CheckResult::Passed("none matches requests of the scheduler and the agents".to_owned());
    };
    let named = found.iter().map(|one| format!("{} {} (policy {}, {})", one.kind, one.name, one.policy, one.matches));
    let remedy = Remedy::new(
        "exclude them with `excludeResourceRules` in the policy's `matchConstraints`: groups `*.fleet-scheduler.io`, \
         `coordination.k8s.io` and `certificates.k8s.io`, resources `*/*`; or delete the binding: ",
    );
    CheckResult::new_failure(
        format!(
            "admission policies match requests of the scheduler and the agents and may deny them: {}",
            first_of(named, NAMED, "; ")
        ),
        add_delete_command(remedy, first.kind, &first.name),
    )
}
