//! Objects and policies of files: `-f FILE`, `-f FOLDER` or `-f -`.

use std::path::{Path, PathBuf};

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::api::SchedulePolicy;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::util::text::visible_cell;
use crate::chart::manifests::{ManifestObject, Manifests};
use crate::chart::values::suggest;
use crate::chart::{Diagnostic, Diagnostics, read_file};
use crate::cli::output::error::CliError;
use crate::placement::policy_fault::find_policy_fault;
use crate::placement::simulate::SourceObject;

/// Most files of a folder that are read.
const MOST_FILES: usize = 10_000;
/// Names of the files of a folder that are read end in one of these.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// What the files hold.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) objects: Vec<SourceObject>,
    pub(super) policies: Vec<SchedulePolicy>,
}

/// Reads files and folders; an object without a namespace is in `namespace`.
pub(super) fn read_given(paths: &[String], kinds: &Kinds, namespace: &str) -> Result<Given, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if path != "-" && Path::new(path).is_dir() {
            list_files(Path::new(path), &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    let read = files.into_iter().map(|name| {
        let bytes = read_file(&name);
        (if name == "-" { "stdin".to_owned() } else { name }, bytes)
    });
    let manifests = Manifests::read_manifest_files(read).map_err(wrong_manifests)?;
    if manifests.objects.is_empty() {
        let problem = Diagnostic::error("manifest-form", "the files of -f contain no object");
        return Err(wrong_manifests(Diagnostics(vec![problem.help("name files that end in .yaml, .yml or .json")])));
    }
    let (mut given, mut problems) = (Given::default(), Vec::new());
    for manifest in &manifests.objects {
        if let Err(problem) = read_object(&manifests, manifest, kinds, namespace, &mut given) {
            problems.push(problem);
        }
    }
    if problems.is_empty() { Ok(given) } else { Err(wrong_manifests(Diagnostics(problems))) }
}

/// The error of files that hold something else than objects that can be placed, and policies.
fn wrong_manifests(problems: Diagnostics) -> CliError {
    let headline = match problems.0.len() {
        1 => "the files of -f have an error".to_owned(),
        count => format!("the files of -f have {count} errors"),
    };
    let mut error = CliError::usage("InvalidManifest", headline);
    error.problems = Some(Box::new(problems));
    error.hint_of_reason()
}

/// Adds the files below a folder in the order of their paths; hidden ones are left out.
fn list_files(folder: &Path, files: &mut Vec<String>) -> Result<(), CliError> {
    let listed = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>());
    let mut paths = listed.map_err(|error| {
        let headline = format!("cannot list the folder {}", folder.display());
        CliError::usage("InvalidManifest", headline).because(&error)
    })?;
    paths.sort();
    for path in paths {
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // A link to a folder above would lead in a circle.
        let is_link = path.is_symlink();
        let is_manifest = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
        if is_hidden || files.len() >= MOST_FILES {
            continue;
        }
        if path.is_dir() && !is_link {
            list_files(&path, files)?;
        } else if is_manifest && path.is_file() {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

fn manifest_text<'a>(manifest: &'a ManifestObject, pointer: &str) -> Option<&'a str> {
    manifest.json.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Reads one object into what was given.
#[expect(clippy::result_large_err, reason = "one of each file that is wrong")]
fn read_object(
    manifests: &Manifests,
    manifest: &ManifestObject,
    kinds: &Kinds,
    namespace: &str,
    given: &mut Given,
) -> Result<(), Diagnostic> {
    let api_version = required_text(manifests, manifest, "apiVersion")?;
    let kind = required_text(manifests, manifest, "kind")?;
    required_text(manifests, manifest, "metadata.name")?;
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if (group, kind) == ("policy.fleet-scheduler.io", "SchedulePolicy") {
        given.policies.push(read_policy(manifests, manifest, kinds)?);
        return Ok(());
    }
    let Some(found) = kinds.find_placeable(group, kind) else {
        let known: Vec<&str> = kinds.iter().map(|kind| kind.kind).chain(["SchedulePolicy"]).collect();
        let message =
            format!("objects of the kind `{}` in {} cannot be placed", visible_cell(kind), visible_cell(api_version));
        let place = manifests.place_of(manifest, &["kind".to_owned()]);
        let problem = Diagnostic::error("manifest-kind", message).at(place);
        let of_kind = kinds.iter().find(|one| one.kind == kind);
        return Err(match (of_kind, suggest::find_nearest_word(kind, known.iter().copied())) {
            (Some(one), _) => problem.help(format!("write `apiVersion: {}`", one.api_version())),
            (None, Some(meant)) if meant != kind => problem.help(format!("did you mean `{meant}`?")),
            _ => problem.help(
                "leave the file out, or add the kind to the control plane and the agents: value `placement.extraKinds`",
            ),
        });
    };
    let mut json = manifest.json.clone();
    set_namespace(&mut json, found, namespace);
    let object = SourceObject::from_manifest(&json);
    let object = object.map_err(|error| {
        let help = "see what the API server reports: `kubectl apply --dry-run=server -f FILE`";
        Diagnostic::error("manifest-object", error.to_string()).at(manifests.place_of(manifest, &[])).help(help)
    })?;
    given.objects.push(object);
    Ok(())
}

fn set_namespace(json: &mut Value, kind: &Placeable, namespace: &str) {
    let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    // Nothing of the state of another control plane counts here.
    metadata.remove("creationTimestamp");
    if !kind.namespaced {
        metadata.remove("namespace");
    } else if metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// The text of a field without which there is no object.
#[expect(clippy::result_large_err, reason = "one of each file that is wrong")]
fn required_text<'m>(manifests: &Manifests, manifest: &'m ManifestObject, field: &str) -> Result<&'m str, Diagnostic> {
    manifest_text(manifest, &format!("/{}", field.replace('.', "/"))).ok_or_else(|| {
        Diagnostic::error("manifest-form", format!("the object has no `{field}`"))
            .at(manifests.place_of(manifest, &[]))
            .help("write `apiVersion`, `kind` and `metadata.name` as for `kubectl apply`")
    })
}

/// Reads a policy as strictly as the API server does.
#[expect(clippy::result_large_err, reason = "one of each file that is wrong")]
fn read_policy(manifests: &Manifests, manifest: &ManifestObject, kinds: &Kinds) -> Result<SchedulePolicy, Diagnostic> {
    let definition = serde_json::to_value(SchedulePolicy::crd()).unwrap_or_default();
    let schema =
        definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").cloned().unwrap_or_default();
    let spec = &manifest.json["spec"];
    if let Some(path) = find_unknown_field(&schema, spec, &mut vec!["spec".to_owned()]) {
        let why = format!("there is no field `{}`", path.join("."));
        return Err(invalid_policy(manifests, manifest, &path, &why));
    }
    if let Ok(validator) = jsonschema::validator_for(&schema)
        && let Some(error) = validator.iter_errors(spec).next()
    {
        let below = error.instance_path().to_string();
        let path: Vec<String> = format!("spec{below}").split('/').map(str::to_owned).collect();
        return Err(invalid_policy(manifests, manifest, &path, &format!("{}: {error}", path.join("."))));
    }
    let mut policy: SchedulePolicy = serde_json::from_value(manifest.json.clone())
        .map_err(|error| invalid_policy(manifests, manifest, &[], &error.to_string()))?;
    (policy.metadata.creation_timestamp, policy.status) = (None, None);
    let spread = policy.spec.spread_constraints.as_ref();
    let shares = spread.map(|spread| spread.percentage_split.as_slice()).unwrap_or_default();
    let sum: i32 = shares.iter().map(|share| share.percentage).fold(0, i32::saturating_add);
    if !shares.is_empty() && sum != 100 {
        let path = ["spec", "spreadConstraints"].map(str::to_owned);
        let why = format!("the percentages add up to {sum}, not to 100");
        return Err(invalid_policy(manifests, manifest, &path, &why));
    }
    if let Some(by) = &policy.spec.group_by
        && (by.label_key.is_some() == by.namespace || by.across_namespaces && by.label_key.is_none())
    {
        let why = "groupBy needs exactly one of `labelKey` and `namespace: true`; `acrossNamespaces` needs `labelKey`";
        return Err(invalid_policy(manifests, manifest, &["spec", "groupBy"].map(str::to_owned), why));
    }
    match find_policy_fault(kinds, &policy) {
        Some((reason, why)) => {
            Err(invalid_policy(manifests, manifest, &["spec".to_owned()], &format!("{reason}: {why}")))
        }
        None => Ok(policy),
    }
}

fn invalid_policy(manifests: &Manifests, manifest: &ManifestObject, path: &[String], why: &str) -> Diagnostic {
    let name = manifest_text(manifest, "/metadata/name").unwrap_or_default();
    let message = format!("SchedulePolicy `{}` is not valid: {why}", visible_cell(name));
    Diagnostic::error("manifest-policy", message)
        .at(manifests.place_of(manifest, path))
        .help("see the fields: `kubectl explain schedulepolicy.spec`, and docs/placement.md")
}

/// Finds the first field of a value that a schema does not have.
fn find_unknown_field(schema: &Value, value: &Value, path: &mut Vec<String>) -> Option<Vec<String>> {
    let children: Vec<(String, Option<&Value>, &Value)> = match value {
        Value::Object(fields) => {
            let known = schema.get("properties")?.as_object()?;
            fields.iter().map(|(key, value)| (key.clone(), known.get(key), value)).collect()
        }
        Value::Array(items) => {
            let schema = schema.get("items")?;
            items.iter().enumerate().map(|(at, item)| (at.to_string(), Some(schema), item)).collect()
        }
        _ => return None,
    };
    for (key, schema, value) in children {
        path.push(key);
        let found = match schema {
            Some(schema) => find_unknown_field(schema, value, path),
            None => Some(path.clone()),
        };
        path.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}
