//! `logs`, `exec`, `port-forward`, `top`: finds the workload cluster that runs an object, and hands over to kubectl there
//! with a context of the user's own. It opens no new way into any cluster.

mod find_context;
mod kubectl;
mod selector;

use clap::Args;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};

use crate::api::labels::cluster_of_namespace;
use crate::api::lenient::Lenient;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::util::text::visible_cell;
use crate::api::{Cluster, Schedule};
use crate::cli::args::global::Global;
use crate::cli::commands::why::kind::{no_such_kind_error, parse_kind_and_name};
use crate::cli::commands::why::no_such_object;
use crate::cli::connect::{
    connect_to_control_plane, find_registered_cluster, list_failed, no_such_cluster, request_failed,
};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::placement::facts::ObjectKey;
use crate::placement::live::source_key;
use crate::placement::names::schedule_name;
use selector::{has_own_pods, pods_argument};

/// The object, and the workload cluster to look in.
#[derive(Debug, Args)]
struct PlacedArgs {
    /// The object, such as deployment/web
    #[arg(value_name = "KIND/NAME")]
    object: String,

    /// Workload cluster to use, if the object runs in several
    #[arg(long, value_name = "WORKLOAD_CLUSTER_NAME")]
    cluster: Option<String>,

    /// Context of your kubeconfig for that workload cluster [default: found by the ID of the cluster]
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
}

const LOGS_EXAMPLES: &str = "\
The command finds the workload cluster that runs the object, and the context of your kubeconfig for that cluster. There
it runs `kubectl logs`. Arguments after `--` are passed to kubectl.

Examples:
  fleetctl logs deployment/web -n shop --context demo
  fleetctl logs job/migrate -n shop --context demo --follow
  fleetctl logs deployment/web -n shop --context demo --cluster west -- --since=1h --all-containers";

/// Show the logs of a placed object
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    placed: PlacedArgs,

    /// Continue to print new lines
    #[arg(long, short)]
    follow: bool,

    /// Container to use
    #[arg(long, short, value_name = "CONTAINER")]
    container: Option<String>,

    /// Number of last lines to print
    #[arg(long, value_name = "LINES", allow_negative_numbers = true)]
    tail: Option<i64>,

    /// Print the logs of the previous run of the container
    #[arg(long, short)]
    previous: bool,

    /// Further arguments of `kubectl logs`
    #[arg(last = true, value_name = "KUBECTL_ARGS")]
    rest: Vec<String>,
}

const EXEC_EXAMPLES: &str = "\
The command finds the workload cluster that runs the object, and the context of your kubeconfig for that cluster. There
it runs `kubectl exec`.

Examples:
  fleetctl exec deployment/web -n shop --context demo -- ls /
  fleetctl exec deployment/web -n shop --context demo --stdin --tty -- sh";

/// Run a command in a container of a placed object
#[derive(Debug, Args)]
#[command(after_help = EXEC_EXAMPLES)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    placed: PlacedArgs,

    /// Container to use
    #[arg(long, short, value_name = "CONTAINER")]
    container: Option<String>,

    /// Pass stdin to the container
    #[arg(long, short = 'i')]
    stdin: bool,

    /// Stdin is a terminal
    #[arg(long, short = 't')]
    tty: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const FORWARD_EXAMPLES: &str = "\
The command finds the workload cluster that runs the object, and the context of your kubeconfig for that cluster. There
it runs `kubectl port-forward`.

Examples:
  fleetctl port-forward service/web 8080:80 -n shop --context demo";

/// Forward local ports to a pod of a placed object
#[derive(Debug, Args)]
#[command(after_help = FORWARD_EXAMPLES)]
pub(crate) struct PortForwardArgs {
    #[command(flatten)]
    placed: PlacedArgs,

    /// Ports, as LOCAL:REMOTE
    #[arg(required = true, value_name = "PORTS")]
    ports: Vec<String>,
}

const TOP_EXAMPLES: &str = "\
The command finds the workload cluster that runs the object, and the context of your kubeconfig for that cluster. There
it runs `kubectl top pods`.

Examples:
  fleetctl top deployment/web -n shop --context demo";

/// Show the CPU and memory of the pods of a placed object
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    placed: PlacedArgs,
}

pub(crate) async fn run_logs(ui: &Ui, global: &Global, args: &LogsArgs) -> Result<Exit, CliError> {
    let mut words = vec!["logs".to_owned(), args.placed.object.clone()];
    words.extend(args.follow.then(|| "--follow".to_owned()));
    words.extend(args.previous.then(|| "--previous".to_owned()));
    words.extend(args.container.as_ref().map(|name| format!("--container={name}")));
    words.extend(args.tail.map(|lines| format!("--tail={lines}")));
    words.extend(args.rest.iter().cloned());
    let place = find_place(global, &args.placed).await?;
    kubectl::run_kubectl(ui, global, &place, &words)
}

pub(crate) async fn run_exec(ui: &Ui, global: &Global, args: &ExecArgs) -> Result<Exit, CliError> {
    let mut words = vec!["exec".to_owned(), args.placed.object.clone()];
    words.extend(args.stdin.then(|| "--stdin".to_owned()));
    words.extend(args.tty.then(|| "--tty".to_owned()));
    words.extend(args.container.as_ref().map(|name| format!("--container={name}")));
    words.push("--".to_owned());
    words.extend(args.command.iter().cloned());
    let place = find_place(global, &args.placed).await?;
    kubectl::run_kubectl(ui, global, &place, &words)
}

pub(crate) async fn run_port_forward(ui: &Ui, global: &Global, args: &PortForwardArgs) -> Result<Exit, CliError> {
    let mut words = vec!["port-forward".to_owned(), args.placed.object.clone()];
    words.extend(args.ports.iter().cloned());
    let place = find_place(global, &args.placed).await?;
    kubectl::run_kubectl(ui, global, &place, &words)
}

pub(crate) async fn run_top(ui: &Ui, global: &Global, args: &TopArgs) -> Result<Exit, CliError> {
    let (kind, _) = parse_object(&args.placed)?;
    if !has_own_pods(kind) {
        return Err(no_own_pods(kind, &args.placed));
    }
    let place = find_place(global, &args.placed).await?;
    let pods = place.pods.clone().ok_or_else(|| no_own_pods(kind, &args.placed))?;
    kubectl::run_kubectl(ui, global, &place, &["top".to_owned(), "pods".to_owned(), pods])
}

fn no_own_pods(kind: &Placeable, args: &PlacedArgs) -> CliError {
    let refused = CliError::usage("NoSuchKind", format!("`{}` has no pods of its own", visible_cell(&args.object)));
    if kind.kind == "CronJob" {
        return refused.hint("top works with kinds that have their own pods; name one of its Jobs");
    }
    refused.hint("top works with kinds that have their own pods, such as deployment/web")
}

/// Where an object runs, and how the user reaches that cluster.
struct Place {
    /// Namespace of the object; the same in both clusters.
    namespace: String,
    /// Its pods, as `kubectl top pods` takes them; absent where it has none of its own.
    pods: Option<String>,
    /// Context of the user's kubeconfig for the workload cluster.
    context: String,
}

/// The kind and the name of the object.
fn parse_object(args: &PlacedArgs) -> Result<(&'static Placeable, &str), CliError> {
    parse_kind_and_name(&Kinds::default(), &args.object).map_err(|why| no_such_kind_error(&args.object, why))
}

async fn find_place(global: &Global, args: &PlacedArgs) -> Result<Place, CliError> {
    let (kind, name) = parse_object(args)?;
    let plane = connect_to_control_plane(global).await?;
    let namespace = if global.namespace_given { global.namespace.to_string() } else { plane.namespace.clone() };
    let key = ObjectKey::new(kind.group, kind.kind, if kind.namespaced { &namespace } else { "" }, name);
    let source = read_source(&plane.client, kind, &key).await?;
    let clusters = find_clusters(&plane.client, &key).await?;
    let cluster = choose_cluster(global, args, &key, clusters)?;
    let api: Api<Lenient<Cluster>> = Api::all(plane.client.clone());
    let Some(Lenient(registered)) = find_registered_cluster(&api, &cluster).await? else {
        return Err(no_such_cluster(&cluster, global));
    };
    let id = registered.spec.cluster_id.unwrap_or_default();
    let context = find_context::find_cluster_context(global, &cluster, &id, args.cluster_context.as_deref()).await?;
    Ok(Place { namespace, pods: pods_argument(kind, &source), context })
}

/// The object in the control plane's API.
async fn read_source(client: &Client, kind: &Placeable, key: &ObjectKey) -> Result<DynamicObject, CliError> {
    let api: Api<DynamicObject> = kind.objects_api(client, Some(key.namespace()));
    let found = api.get_opt(key.name()).await;
    let found = found.map_err(|error| request_failed(&format!("cannot read {}", key.format_title()), &error))?;
    found.ok_or_else(|| no_such_object(key))
}

/// The workload clusters that hold a copy of the object, in order.
async fn find_clusters(client: &Client, key: &ObjectKey) -> Result<Vec<String>, CliError> {
    let schedules: Api<Lenient<Schedule>> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={}", schedule_name(key)));
    let found = schedules.list(&named).await.map_err(|error| list_failed("schedules", &error))?;
    let mut clusters: Vec<String> = found
        .items
        .iter()
        .filter(|Lenient(one)| source_key(&one.spec.source_ref) == *key)
        .filter_map(|Lenient(one)| cluster_of_namespace(&one.namespace()?).map(str::to_owned))
        .collect();
    clusters.sort();
    Ok(clusters)
}

fn choose_cluster(
    global: &Global,
    args: &PlacedArgs,
    key: &ObjectKey,
    mut clusters: Vec<String>,
) -> Result<String, CliError> {
    let title = key.format_title();
    let why = format!("explain it: `fleetctl why {}{}`", args.object, global.tail_flags());
    if clusters.is_empty() {
        return Err(CliError::new(Exit::Failed, "NotPlaced", format!("{title} runs in no workload cluster")).hint(why));
    }
    let listed = visible_cell(&clusters.join(", ")).into_owned();
    match &args.cluster {
        Some(wanted) if clusters.contains(wanted) => Ok(wanted.clone()),
        Some(wanted) => Err(CliError::new(
            Exit::Failed,
            "NotPlaced",
            format!("{title} does not run in workload cluster {}", visible_cell(wanted)),
        )
        .cause(format!("it runs in: {listed}"))
        .hint(why)),
        None if clusters.len() == 1 => Ok(clusters.remove(0)),
        None => Err(CliError::new(
            Exit::Usage,
            "AmbiguousName",
            format!("{title} runs in several workload clusters: {listed}"),
        )
        .hint(format!("choose one: `--cluster {}`", clusters[0]))),
    }
}
