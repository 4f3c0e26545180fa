//! The health checks: pure judgements over what was read of a control plane.

use super::{HOSTING, HealthFacts, Member, OWN_API, own_api};
use crate::api::first_of::first_of;
use crate::api::labels::INIT_SECRET;
use crate::api::mass_removal::RemovalRecord;
use crate::api::remedy::{Action, Command, Flag, Place, Remedy, Subject};
use crate::check::{Check, CheckResult};

fn component_check(facts: &HealthFacts, name: &str) -> CheckResult {
    let Ok(components) = &facts.components else { return CheckResult::Skipped(HOSTING) };
    match components.get(name) {
        Some(component) if component.is_rolled_out() => CheckResult::Passed(component.describe_state()),
        Some(component) if component.is_running() => CheckResult::new_warning(
            component.describe_state(),
            "wait for the rollout, or see the causes below; the old pods are still available",
        ),
        Some(component) => {
            CheckResult::new_failure(component.describe_state(), "see the causes below, or the events of its pods")
        }
        None => CheckResult::new_failure("not checked", "report this as a bug of fleetctl"),
    }
}

fn definition_check(facts: &HealthFacts, kind: &str) -> CheckResult {
    match &facts.inside {
        Err(error) => {
            CheckResult::new_failure(format!("unknown: {error}"), "check that the API server is reachable from here")
        }
        Ok(inside) => match (inside.definitions.get(kind), &inside.bootstrap_trouble) {
            (Some(true), _) => CheckResult::Passed("installed".to_owned()),
            (_, Some(trouble)) => {
                CheckResult::new_failure(format!("not installed: {trouble}"), "see the log of fleet-scheduler")
            }
            _ => CheckResult::new_failure("not installed", "see the log of fleet-scheduler, which installs it"),
        },
    }
}

/// The health checks of a control plane, in the order in which they are shown.
pub const CHECKS: [Check<HealthFacts>; 16] = [
    Check::new_advisory(HOSTING, "hosting cluster", "components", &[], check_hosting_side),
    Check::new_required("apiserver", "API server", "components", &[], |f| component_check(f, "apiserver")),
    Check::new_required("controller-manager", "kube-controller-manager", "components", &[], |f| {
        component_check(f, "kube-controller-manager")
    }),
    Check::new_required("etcd", "etcd", "components", &[], |f| component_check(f, "etcd")),
    Check::new_required("scheduler", "scheduler", "components", &[], |f| component_check(f, "fleet-scheduler")),
    Check::new_required("definition-cluster", "Cluster", "definitions", &[], |f| definition_check(f, "Cluster")),
    Check::new_required("definition-schedulepolicy", "SchedulePolicy", "definitions", &[], |f| {
        definition_check(f, "SchedulePolicy")
    }),
    Check::new_required("definition-schedulegroup", "ScheduleGroup", "definitions", &[], |f| {
        definition_check(f, "ScheduleGroup")
    }),
    Check::new_required("init-secret", "agents' init Secret", "definitions", &["definition-cluster"], init_secret),
    Check::new_advisory("hub-webhooks", "admission webhooks", OWN_API, &[], own_api::check_webhooks),
    Check::new_advisory("hub-conversions", "conversion webhooks", OWN_API, &[], own_api::conversion_webhooks),
    Check::new_advisory("hub-apiservices", "APIServices", OWN_API, &[], own_api::api_services),
    Check::new_advisory("hub-admission-policies", "admission policies", OWN_API, &[], own_api::admission_policies),
    Check::new_advisory("clusters", "workload clusters", "fleet", &["definition-cluster"], check_clusters),
    Check::new_advisory("copies", "copies without a Schedule", "fleet", &["definition-cluster"], check_copies),
    Check::new_advisory("policies", "schedule policies", "fleet", &["definition-schedulepolicy"], check_policies),
];

fn check_hosting_side(facts: &HealthFacts) -> CheckResult {
    match &facts.components {
        Ok(_) => CheckResult::Passed("answers".to_owned()),
        Err(why) => CheckResult::new_failure(
            format!("not checked: {why}"),
            Remedy::new("give ").flag(Flag::Context(None)).text(" of the hosting cluster"),
        ),
    }
}

fn init_secret(facts: &HealthFacts) -> CheckResult {
    let Some(server) = facts.inside.as_ref().ok().and_then(|inside| inside.init_secret.as_ref()) else {
        let remedy = "see the log of fleet-scheduler, which creates it";
        return CheckResult::new_failure(format!("Secret {INIT_SECRET} is missing"), remedy);
    };
    match &facts.agents_call {
        Some(wanted) if server != wanted => CheckResult::new_failure(
            format!("Secret {INIT_SECRET} still has the server {server}, not {wanted}"),
            "fleet-scheduler sees its new configuration within two minutes; after that, see its log",
        ),
        _ => CheckResult::Passed(format!("Secret {INIT_SECRET} exists")),
    }
}

/// Number of clusters that are named at most, of those that are not ready.
const NAMED: usize = 5;

fn check_clusters(facts: &HealthFacts) -> CheckResult {
    let members = facts.inside.as_ref().map(|inside| inside.members.as_slice()).unwrap_or_default();
    if members.is_empty() {
        return CheckResult::new_failure(
            "0 workload clusters connected",
            Remedy::new("register one with ").command(Command::at_place(
                Place::Context("CONTEXT"),
                Action::Install(Subject::Agent("NAME".to_owned())),
            )),
        );
    }
    if let Some(loss) = facts.inside.as_ref().ok().and_then(|inside| inside.mass_loss.as_ref()) {
        let named = first_of(loss.clusters.iter().cloned(), NAMED, ", ");
        return CheckResult::new_failure(
            format!(
                "no move has begun since {}: {} of {} workload clusters were lost at once: {named}",
                loss.since,
                loss.clusters.len(),
                members.len()
            ),
            "find out why their agents do not reach the control plane; moves begin again when fewer than three \
             clusters are lost, or when at least as many clusters are Ready as are lost",
        );
    }
    let unready: Vec<_> = members.iter().filter(|member| !member.ready).collect();
    if unready.is_empty() {
        return CheckResult::Passed(format!("{} connected and ready", members.len()));
    }
    let named = first_of(unready.iter().map(|member| format!("{} ({})", member.name, member.reason)), NAMED, ", ");
    let are_all_named = unready.len() <= NAMED;
    CheckResult::new_failure(
        format!("{} of {} workload clusters not ready: {named}", unready.len(), members.len()),
        if are_all_named { Remedy::default() } else { Remedy::new("list all with ").flag(Flag::Wide).text("; ") }
            .text("read the log of the agent: `kubectl --context CONTEXT -n fleet logs -l app.kubernetes.io/name=fleet-agent`"),
    )
}

/// Returns what is said of removals that the scheduler holds back; `None` where there are none.
fn judge_held_removals(record: &RemovalRecord) -> Option<CheckResult> {
    let causes: Vec<_> = record.frozen_causes().collect();
    let (cause, first) = causes.first()?;
    let held = causes.iter().map(|(cause, frozen)| {
        let copies = frozen.copies.iter().map(|(cluster, count)| format!("{count} on {cluster}"));
        let copies = first_of(copies, NAMED, ", ");
        format!("{cause} would remove {} copies ({copies}; held since {})", frozen.count(), frozen.since)
    });
    let held = first_of(held, NAMED, "; ");
    let named = first_of(first.first.iter().cloned(), NAMED, ", ");
    Some(CheckResult::new_failure(
        format!("the scheduler holds back these removals, because there are too many: {held}; first: {named}"),
        Remedy::new("undo the edit, or allow the removals with ")
            .command(Command::at_place(Place::Context("CONTROL_PLANE"), Action::ContinueRemovals((*cause).clone()))),
    ))
}

fn check_copies(facts: &HealthFacts) -> CheckResult {
    let Ok(inside) = &facts.inside else { return CheckResult::new_failure("not checked", Remedy::default()) };
    let counts = inside.members.iter().filter_map(|member| Some((&member.name, member.copies_without_schedule?)));
    let with_copies: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    let total: i64 = with_copies.iter().map(|(_, count)| i64::from(*count)).sum();
    let named = first_of(with_copies.iter().map(|(name, count)| format!("{name} ({count})")), NAMED, ", ");
    let uncounted = inside.members.iter().filter(|member| member.copies_without_schedule.is_none());
    let uncounted: Vec<&String> = uncounted.map(|member| &member.name).collect();
    let unknown = match uncounted.len() {
        0 => String::new(),
        _ => format!("; not counted in {}", first_of(uncounted.into_iter().cloned(), NAMED, ", ")),
    };
    let data = describe_data(&inside.members);
    let release = Command::at_place(Place::Any, Action::Release("NAME".to_owned()));
    match (&inside.hold, total) {
        (None, 0) => CheckResult::Passed(format!("none{unknown}")),
        (None, _) => CheckResult::new_failure(
            format!("{total}, deletions not held: {named}{unknown}{data}"),
            "an agent deletes such a copy ten minutes after it first sees it, unless the copy contains data; to keep a \
             copy, apply its source again so that it is placed in that cluster; delete unneeded data in the \
             workload cluster",
        ),
        (Some(hold), 0) => CheckResult::new_failure(
            format!("none, and deletions are {hold}{unknown}"),
            Remedy::new("end the hold with ").command(release),
        ),
        (Some(hold), _) => CheckResult::new_failure(
            format!("{total}, deletions {hold}: {named}{unknown}{data}"),
            Remedy::new("apply the sources of the copies that you need, then let agents delete the other copies with ")
                .command(release),
        ),
    }
}

/// Returns which copies without a Schedule contain data, as an addition to their number.
fn describe_data(members: &[Member]) -> String {
    let data = members.iter().map(|member| {
        let (name, data) = (member.name.clone(), &member.data_without_schedule);
        let named: Vec<String> = data.first.iter().map(|object| format!("{object} in {name}")).collect();
        let count = usize::try_from(data.count).unwrap_or(0).max(named.len());
        (count, named)
    });
    let (counts, named): (Vec<usize>, Vec<Vec<String>>) = data.unzip();
    let (count, named): (usize, Vec<String>) = (counts.iter().sum(), named.concat());
    match count {
        0 => String::new(),
        1 => format!("; 1 contains data: {}", named.concat()),
        _ => {
            let shown = named.len().min(NAMED);
            let more = if count > shown { format!(" and {} more", count - shown) } else { String::new() };
            format!("; {count} contain data: {}{more}", named[..shown].join(", "))
        }
    }
}

fn check_policies(facts: &HealthFacts) -> CheckResult {
    let Ok(inside) = &facts.inside else { return CheckResult::new_failure("not checked", Remedy::default()) };
    if let Some(held) = judge_held_removals(&inside.removals) {
        return held;
    }
    let (policies, groups) = (inside.policies, &inside.groups);
    if !groups.unplaced.is_empty() {
        let reasons: Vec<String> = groups.unplaced.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let count: usize = groups.unplaced.values().sum();
        let defined = if policies == 1 { "1 schedule policy" } else { &format!("{policies} schedule policies") };
        let have = if count == 1 { "has" } else { "have" };
        let what =
            format!("{defined} defined; {count} of {} groups {have} no placement: {}", groups.all, reasons.join(", "));
        return CheckResult::new_failure(
            what,
            Remedy::new("ask why with ")
                .command(Command::at_place(Place::Context("CONTROL_PLANE"), Action::Why("KIND/NAME".to_owned())))
                .text("; list them with `")
                .kubectl(Place::Context("CONTROL_PLANE"))
                .text(" get schedulegroups`"),
        );
    }
    let unplaced = match &inside.unplaced_kinds {
        kinds if kinds.is_empty() => String::new(),
        kinds => format!("; not placed: {}", first_of(kinds.iter().cloned(), NAMED, "; ")),
    };
    match (policies, groups.all) {
        (0, 0) => CheckResult::new_failure(
            "0 schedule policies defined",
            "without a SchedulePolicy, only objects with their own annotation are placed",
        ),
        (n, 0) => CheckResult::Passed(format!("{n} defined{unplaced}")),
        (n, 1) => CheckResult::Passed(format!("{n} defined, 1 group placed{unplaced}")),
        (n, all) => CheckResult::Passed(format!("{n} defined, {all} groups placed{unplaced}")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::api::crd::cluster::DataWithoutSchedule;
    use crate::api::deletion_hold::DeletionHold;
    use crate::api::labels::ANNOTATION_HOLD_DELETIONS;
    use crate::check::inside::{
        COMPONENTS, Component, DEFINITIONS, Groups, Inside, Member, OwnApi, PolicyBinding, Served, View, Webhook,
    };
    use crate::check::{CheckResult, Judged, change_facts, evaluate_failing_check, result_of_check, run_checks};

    const ARGUMENTS: [&str; 2] =
        ["kube-apiserver", "--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook"];

    fn webhook(configuration: &str) -> Webhook {
        Webhook {
            kind: "ValidatingWebhookConfiguration",
            plugin: "ValidatingAdmissionWebhook",
            configuration: configuration.to_owned(),
            requests: "CREATE, UPDATE of ingresses.networking.k8s.io".to_owned(),
        }
    }

    fn served(name: &str, service: &str) -> Served {
        Served { name: name.to_owned(), service: service.to_owned() }
    }

    fn binding() -> PolicyBinding {
        PolicyBinding {
            kind: "ValidatingAdmissionPolicyBinding",
            name: "deny-all".to_owned(),
            policy: "deny-all".to_owned(),
            matches: "leases.coordination.k8s.io".to_owned(),
        }
    }

    fn hold(value: &str) -> Option<DeletionHold> {
        let annotations = Some([(ANNOTATION_HOLD_DELETIONS.to_owned(), value.to_owned())].into());
        DeletionHold::from_metadata(&ObjectMeta { annotations, ..ObjectMeta::default() })
    }

    fn healthy() -> HealthFacts {
        let running = Component {
            installed: true,
            wanted: 1,
            ready: 1,
            updated: true,
            trouble: None,
            arguments: ARGUMENTS.map(str::to_owned).into(),
        };
        let inside = Inside {
            definitions: DEFINITIONS.iter().map(|kind| ((*kind).to_owned(), true)).collect(),
            members: vec![Member {
                name: "m".to_owned(),
                ready: true,
                reason: "ClusterReady".to_owned(),
                kubernetes_version: "1.29".to_owned(),
                agent_version: "v0.6.1".to_owned(),
                copies_without_schedule: Some(0),
                data_without_schedule: DataWithoutSchedule::default(),
            }],
            policies: 1,
            unplaced_kinds: Vec::new(),
            groups: Groups::default(),
            own_api: OwnApi::default(),
            conversions: Vec::new(),
            init_secret: Some("https://hub:1".to_owned()),
            bootstrap_trouble: None,
            kubernetes_version: Some("v1.25.4".to_owned()),
            mass_loss: None,
            removals: RemovalRecord::default(),
            hold: None,
        };
        HealthFacts {
            components: Ok(COMPONENTS.iter().map(|(name, _)| (*name, running.clone())).collect()),
            inside: Ok(inside),
            agents_call: None,
        }
    }

    fn change_inside(change: impl FnOnce(&mut Inside)) -> HealthFacts {
        change_facts(healthy(), |facts| change(facts.inside.as_mut().unwrap()))
    }

    fn without_definition(kind: &str) -> HealthFacts {
        change_inside(|inside| inside.definitions.retain(|known, _| known != kind))
    }

    /// Facts with a component that waits.
    fn with_trouble(workload: &'static str, trouble: &str) -> HealthFacts {
        let component = Component {
            installed: true,
            wanted: 1,
            ready: 0,
            updated: true,
            trouble: Some(trouble.to_owned()),
            arguments: Vec::new(),
        };
        change_facts(healthy(), |facts| drop(facts.components.as_mut().unwrap().insert(workload, component)))
    }

    pub(in crate::check) fn examples() -> Vec<Judged> {
        let unready = change_inside(|inside| {
            inside.members[0].ready = false;
            inside.members[0].reason = "AgentSilent".to_owned();
        });
        [
            (HOSTING, change_facts(healthy(), |facts| facts.components = Err("no route to host".to_owned()))),
            ("apiserver", with_trouble("apiserver", "CrashLoopBackOff (pod apiserver-6d4b9c7f5-x2x7k)")),
            (
                "controller-manager",
                with_trouble("kube-controller-manager", "ImagePullBackOff (pod kube-controller-manager-0)"),
            ),
            ("etcd", with_trouble("etcd", "Pending (pod etcd-0)")),
            ("scheduler", with_trouble("fleet-scheduler", "CrashLoopBackOff (pod fleet-scheduler-5c9d8b6f4-q8w2z)")),
            ("definition-cluster", without_definition("Cluster")),
            ("definition-schedulepolicy", without_definition("SchedulePolicy")),
            ("definition-schedulegroup", without_definition("ScheduleGroup")),
            ("init-secret", change_inside(|inside| inside.init_secret = None)),
            ("clusters", unready),
            (
                "copies",
                change_inside(|inside| {
                    inside.members[0].copies_without_schedule = Some(12);
                    inside.members[0].data_without_schedule =
                        DataWithoutSchedule::from_names(&["PersistentVolumeClaim shop/data".to_owned()]);
                    inside.hold = hold("2027-03-12T10:15:00Z");
                }),
            ),
            ("policies", change_inside(|inside| inside.policies = 0)),
            (
                "hub-webhooks",
                change_facts(healthy(), |facts| {
                    facts.components.as_mut().unwrap().get_mut("apiserver").unwrap().arguments.clear();
                    facts.inside.as_mut().unwrap().own_api.webhooks = vec![webhook("ingress-nginx-admission")];
                }),
            ),
            (
                "hub-conversions",
                change_inside(|inside| inside.conversions = vec![served("widgets.example.com", "operators/widgets")]),
            ),
            (
                "hub-apiservices",
                change_inside(|inside| {
                    inside.own_api.api_services = vec![served("v1beta1.metrics.k8s.io", "kube-system/metrics-server")];
                }),
            ),
            ("hub-admission-policies", change_inside(|inside| inside.own_api.policies = vec![binding()])),
        ]
        .map(|(id, facts)| evaluate_failing_check(&CHECKS, id, &facts))
        .into()
    }

    #[test]
    fn a_healthy_control_plane_passes_every_check() {
        let report = run_checks(&CHECKS, &healthy(), &[]);
        assert!(report.judged.iter().all(|j| matches!(j.result, CheckResult::Passed(_))), "{report:?}");
    }

    #[test]
    fn no_clusters_and_no_policies_are_warnings_not_failures() {
        let mut facts = healthy();
        facts.inside = facts.inside.map(|inside| Inside { members: Vec::new(), policies: 0, ..inside });
        let report = run_checks(&CHECKS, &facts, &[]);
        assert_eq!((report.failures().count(), report.warnings().count()), (0, 2));
    }

    #[test]
    fn kinds_that_are_not_placed_are_said_and_are_no_problem() {
        let mut facts = healthy();
        let inside = facts.inside.as_mut().unwrap();
        inside.groups.all = 2;
        inside.unplaced_kinds = vec!["9 Role: the value `placement.allowRBACKinds` places these kinds".to_owned()];
        let report = run_checks(&CHECKS, &facts, &[]);
        let said = report.judged.iter().find(|judged| judged.id == "policies").map(|judged| &judged.result);
        let expected = "1 defined, 2 groups placed; not placed: 9 Role: the value `placement.allowRBACKinds` places \
                        these kinds";
        assert_eq!(said, Some(&CheckResult::Passed(expected.to_owned())));
    }

    #[test]
    fn groups_without_a_place_are_counted_by_reason() {
        let mut facts = healthy();
        let inside = facts.inside.as_mut().unwrap();
        inside.groups = Groups { all: 5, unplaced: [("NoFit".to_owned(), 2), ("NoCandidates".to_owned(), 1)].into() };
        let report = run_checks(&CHECKS, &facts, &[]);
        let said: Vec<_> = report.warnings().map(|(judged, problem)| (judged.id, problem.what.as_str())).collect();
        assert_eq!(
            said,
            [("policies", "1 schedule policy defined; 3 of 5 groups have no placement: 1 NoCandidates, 2 NoFit")]
        );
    }

    /// What the check of copies says about members with these counts.
    fn judge_copies(counts: &[Option<i32>], held: bool) -> String {
        let facts = change_inside(|inside| {
            let members = counts.iter().enumerate().map(|(at, count)| Member {
                name: format!("m-{at}"),
                copies_without_schedule: *count,
                ..inside.members[0].clone()
            });
            inside.members = members.collect();
            inside.hold = hold("2027-03-12T10:15:00Z").filter(|_| held);
        });
        match result_of_check(&CHECKS, "copies", &facts) {
            CheckResult::Warned(problem) => format!("! {}", problem.what),
            CheckResult::Passed(what) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn copies_without_a_schedule_are_named_with_what_becomes_of_them() {
        assert_eq!(judge_copies(&[Some(0), Some(0)], false), "none");
        assert_eq!(judge_copies(&[Some(0), None], false), "none; not counted in m-1");
        assert_eq!(judge_copies(&[Some(0), Some(2)], false), "! 2, deletions not held: m-1 (2)");
        let since = "held since 2027-03-12T10:15:00Z";
        assert_eq!(
            judge_copies(&[Some(3), Some(9), None], true),
            format!("! 12, deletions {since}: m-0 (3), m-1 (9); not counted in m-2")
        );
        assert_eq!(judge_copies(&[Some(0)], true), format!("! none, and deletions are {since}"));
        let many = judge_copies(&[Some(i32::MAX); 500], true);
        assert!(many.ends_with(&format!("m-4 ({}) and 495 more", i32::MAX)), "{many}");
    }

    #[test]
    fn webhooks_hurt_where_they_are_called_alone() {
        let mut facts = healthy();
        facts.inside.as_mut().unwrap().own_api.webhooks = vec![webhook("a"), webhook("b")];
        let stored = "2 configurations are stored for workload clusters and not called here";
        assert_eq!(result_of_check(&CHECKS, "hub-webhooks", &facts), CheckResult::Passed(stored.to_owned()));

        // One of the two plugins is on.
        let server = facts.components.as_mut().unwrap().get_mut("apiserver").unwrap();
        server.arguments = vec!["--disable-admission-plugins=MutatingAdmissionWebhook".to_owned()];
        let CheckResult::Warned(problem) = result_of_check(&CHECKS, "hub-webhooks", &facts) else {
            panic!("{:?}", result_of_check(&CHECKS, "hub-webhooks", &facts))
        };
        assert!(problem.what.contains("ValidatingWebhookConfiguration a (CREATE, UPDATE of"), "{problem:?}");

        // Whether they are called is not known.
        facts.components = Err("no route to host".to_owned());
        assert_eq!(result_of_check(&CHECKS, "hub-webhooks", &facts), CheckResult::Skipped(HOSTING));
        facts.inside.as_mut().unwrap().own_api = OwnApi::default();
        assert!(matches!(result_of_check(&CHECKS, "hub-webhooks", &facts), CheckResult::Passed(_)));
    }

    #[test]
    fn what_acts_on_the_api_server_and_cannot_be_listed_is_no_failure() {
        let mut facts = healthy();
        facts.inside.as_mut().unwrap().own_api.unread = Some("forbidden".to_owned());
        let report = run_checks(&CHECKS, &facts, &[]);
        let warned: Vec<_> = report.warnings().map(|(judged, _)| judged.id).collect();
        assert_eq!(warned, ["hub-webhooks", "hub-apiservices", "hub-admission-policies"]);
        facts.inside = Err("connection refused".to_owned());
        let report = run_checks(&CHECKS, &facts, &[]);
        let skipped = report.judged.iter().filter(|judged| judged.category == OWN_API);
        assert!(skipped.into_iter().all(|judged| judged.result == CheckResult::Skipped("definition-cluster")));
    }

    #[test]
    fn agents_are_to_start_from_the_address_that_was_installed() {
        let mut facts = healthy();
        for (wanted, failed) in [("https://hub:1", 0), ("https://hub:2", 1)] {
            facts.agents_call = Some(wanted.to_owned());
            let report = run_checks(&CHECKS, &facts, &[]);
            let said: Vec<_> = report.failures().map(|(judged, problem)| (judged.id, problem.what.as_str())).collect();
            assert_eq!(said.len(), failed, "{said:?}");
            let stale =
                |(id, what): &(&str, &str)| *id == "init-secret" && what.contains("still has the server https://hub:1");
            assert!(said.iter().all(stale), "{said:?}");
        }
    }

    #[test]
    fn of_very_many_clusters_that_are_not_ready_the_first_are_named_and_the_rest_counted() {
        let mut facts = healthy();
        let inside = facts.inside.as_mut().unwrap();
        let lost = Member { ready: false, ..inside.members[0].clone() };
        inside.members = (0..500).map(|at| Member { name: format!("m-{at}"), ..lost.clone() }).collect();
        let report = run_checks(&CHECKS, &facts, &[]);
        let said: Vec<_> = report.warnings().map(|(_, problem)| problem.what.as_str()).collect();
        let [said] = said[..] else { panic!("{said:?}") };
        assert!(said.starts_with("500 of 500 workload clusters not ready: m-0 ("), "{said}");
        assert!(said.contains("m-4 (") && !said.contains("m-5 (") && said.ends_with(" and 495 more"), "{said}");
    }

    #[test]
    fn a_component_that_is_not_ready_fails_with_what_its_pod_says() {
        let mut facts = healthy();
        let components = facts.components.as_mut().unwrap();
        let etcd = components.get_mut("etcd").unwrap();
        etcd.ready = 0;
        etcd.trouble = Some("Pending (pod etcd-0)".to_owned());
        let report = run_checks(&CHECKS, &facts, &[]);
        let failed: Vec<_> = report.failures().map(|(j, p)| (j.id, p.what.as_str())).collect();
        assert_eq!(failed, [("etcd", "Pending (pod etcd-0)")]);
    }

    #[test]
    fn a_change_that_is_not_rolled_out_warns_while_the_pods_of_before_serve() {
        let mut facts = healthy();
        let components = facts.components.as_mut().unwrap();
        let server = components.get_mut("apiserver").unwrap();
        server.updated = false;
        server.trouble = Some("CrashLoopBackOff (pod apiserver-1)".to_owned());
        assert!(server.is_running() && !server.is_rolled_out());
        let report = run_checks(&CHECKS, &facts, &[]);
        let warned: Vec<_> = report.warnings().map(|(judged, problem)| (judged.id, problem.what.as_str())).collect();
        let said = "Running, but a change is not rolled out: CrashLoopBackOff (pod apiserver-1)";
        assert_eq!(warned, [("apiserver", said)]);
        assert!(report.failures().next().is_none());
    }

    #[test]
    fn without_the_hosting_cluster_what_is_inside_is_judged_and_the_components_are_skipped() {
        let mut facts = healthy();
        facts.components = Err("no route to host".to_owned());
        let report = run_checks(&CHECKS, &facts, &[]);
        assert_eq!((facts.view(), report.failures().count(), report.warnings().count()), (View::ControlPlane, 0, 1));
        let skipped: Vec<_> =
            report.judged.iter().filter(|j| j.result == CheckResult::Skipped(HOSTING)).map(|j| j.id).collect();
        assert_eq!(skipped, ["apiserver", "controller-manager", "etcd", "scheduler"]);
        assert!(
            report.judged.iter().any(|j| j.id == "definition-cluster" && matches!(j.result, CheckResult::Passed(_)))
        );
    }

    #[test]
    fn an_unreachable_api_fails_its_definitions_and_skips_what_needs_them() {
        let mut facts = healthy();
        facts.inside = Err("connection refused".to_owned());
        let report = run_checks(&CHECKS, &facts, &[]);
        assert_eq!((facts.view(), report.failures().count()), (View::HostingCluster, 3));
        assert!(report.judged.iter().any(|j| j.id == "clusters" && matches!(j.result, CheckResult::Skipped(_))));
    }
}
