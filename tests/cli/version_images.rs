//! Images that are not those of the service version: said wherever values are read, and an error where the line differs.

use crate::Sandbox;
use crate::show::{CHARTS, LINES};

const OLD: &str = "scheduler:\n  image:\n    tag: v0.6.1\n";

#[test]
fn values_that_one_line_shows_are_the_defaults_of_every_newer_line() {
    let sandbox = Sandbox::new();
    for chart in CHARTS {
        for (number, old) in LINES.iter().enumerate() {
            let shown = sandbox.run(&["show", "values", chart, "--version", old]);
            let file = sandbox.file("shown.yaml", shown.succeeds());
            for new in &LINES[number..] {
                let images = |more: &[&str]| {
                    let args = [&["show", "images", chart, "--version", new, "-o", "json"], more].concat();
                    sandbox.run(&args).succeeds().to_owned()
                };
                assert_eq!(images(&["--values", &file]), images(&[]), "{chart}: {old} to {new}");
                let lint = sandbox.run(&["lint", chart, "--version", new, "--values", &file, "-o", "json"]);
                assert!(lint.succeeds().contains("\"problems\": []"), "{chart}: {old} to {new}: {lint:?}");
            }
        }
    }
}

#[test]
fn a_tag_of_another_line_is_an_error_from_whichever_source() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("old.yaml", OLD);
    let sources: [(&[&str], &str); 3] = [
        (&["--values", &file], "old.yaml:3:10"),
        (&["--set", "scheduler.image.tag=v0.6.1"], "--set:1:21"),
        (&["--set-json", r#"scheduler={"image":{"tag":"v0.6.1"}}"#], "--set-json:1:11"),
    ];
    for (source, place) in sources {
        for command in [&["template", "cp", "demo"][..], &["install", "cp", "demo", "--dry-run"]] {
            let ran = sandbox.run(&[command, &["--version", "v0.7"], source].concat());
            let way_out = [
                "belongs to service version v0.6, but the selected version is v0.7",
                place,
                "--version v0.6.1",
                "leave out",
            ];
            ran.fails(2, &way_out);
        }
        let lint = sandbox.run(&[&["lint", "--version", "v0.7"], source].concat());
        assert_eq!(lint.code, 2, "{lint:?}");
        assert!(lint.stdout.contains("error[other-version]"), "{lint:?}");
        assert_eq!(sandbox.run(&[&["lint", "--version", "v0.6"], source].concat()).code, 0);
    }
    let flag = sandbox.run(&["template", "cp", "demo", "--version", "v0.7", "--image-tag", "v0.6.1"]);
    flag.fails(2, &["are of different versions"]);
    // Without a version, the tag of the values does not choose one.
    sandbox
        .run(&["template", "agent", "west", "--set", "image.tag=v0.7.1"])
        .fails(2, &["but the selected version is v0.6", "--version v0.7.1"]);
}

#[test]
fn another_image_than_the_rows_is_said() {
    let sandbox = Sandbox::new();
    let lint = |more: &[&str]| {
        let lint = sandbox.run(&[&["lint", "--version", "v0.9"], more].concat());
        lint.succeeds().to_owned()
    };
    let text = lint(&["--set", "apiserver.image.tag=v1.25.4,controllerManager.image.tag=v1.25.4"]);
    assert!(text.contains("warning[other-image]") && text.contains("of service version v0.9: `v1.36.3`"), "{text}");
    assert!(lint(&["--set", "scheduler.image.tag=v0.9.1"]).contains("other-image"));
    let digest = format!("sha256:{}", "a".repeat(64));
    assert!(lint(&["--set", &format!("etcd.image.tag={digest}")]).contains("is only a digest"));
    assert!(!lint(&["--set", &format!("etcd.image.tag=3.5.35-0@{digest}")]).contains("warning"));
    assert!(!lint(&["--set", "etcd.image.repository=mirror.example/etcd"]).contains("warning"));
    let dry = sandbox.run(&["install", "cp", "demo", "--dry-run", "--set", "etcd.image.tag=3.5.6-0"]);
    assert!(dry.stderr.contains("other-image"), "{dry:?}");
}
