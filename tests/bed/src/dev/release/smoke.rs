//! Runs what was built: by this machine's own means, or by an emulator where there is one.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run;

/// An architecture, what emulates it, and where its C library is: Debian's packages qemu-user-static and libc6-arm64-cross.
const EMULATED: [(&str, &str, &str); 1] = [("arm64", "qemu-aarch64-static", "/usr/aarch64-linux-gnu")];

/// What every program of a release has to answer alike: the second is data of the library, the third goes through all of
/// the packager and has no key in it, which would be another each time.
const ALIKE: [&[&str]; 3] = [
    &["--version"],
    &["versions"],
    &[
        "template",
        "control-plane",
        "demo",
        "--for",
        "argocd",
        "--version",
        "v1.2",
        "--set",
        "pki.source=InCluster",
        "--set",
        "exposure.type=LoadBalancer",
    ],
];

/// How a program runs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Native,
    /// By the emulator of [`EMULATED`] at this index.
    Emulated(usize),
}

impl Way {
    /// The way for a program of an architecture, such as `arm64`; none where this machine has none.
    pub(super) fn of(program: &Path, architecture: &str) -> Option<Self> {
        let emulated = EMULATED.iter().position(|(emulated, ..)| *emulated == architecture).map(Self::Emulated);
        let runs =
            |way: &Self| way.command(program).arg("--version").output().is_ok_and(|ended| ended.status.success());
        [Some(Self::Native), emulated].into_iter().flatten().find(runs)
    }

    /// The program, without arguments.
    pub(super) fn command(self, program: &Path) -> Command {
        match self {
            Self::Native => Command::new(program),
            Self::Emulated(at) => {
                let (_, emulator, libraries) = EMULATED[at];
                let mut command = Command::new(emulator);
                command.args(["-L", libraries]).arg(program);
                command
            }
        }
    }

    /// What is added to the output of a program that ran this way.
    pub(super) fn remark(self) -> String {
        match self {
            Self::Native => String::new(),
            Self::Emulated(at) => format!(" (run by {})", EMULATED[at].1),
        }
    }
}

/// Runs the programs, and gives what each says of its version. All have to answer as the first does; one that cannot be run
/// here answers nothing.
pub(super) fn alike(programs: &[(&Path, Option<Way>)]) -> Result<Vec<Option<String>>> {
    let mut first: Option<(&Path, Vec<String>)> = None;
    let mut said = Vec::new();
    for (program, way) in programs {
        let Some(way) = way else {
            said.push(None);
            continue;
        };
        let answers: Vec<String> =
            ALIKE.iter().map(|words| run::output_of(way.command(program).args(*words))).collect::<Result<_>>()?;
        said.push(Some(format!("{}{}", answers[0].trim(), way.remark())));
        let Some((other, expected)) = &first else {
            first = Some((program, answers));
            continue;
        };
        for ((words, answer), expected) in ALIKE.iter().zip(&answers).zip(expected) {
            if answer != expected {
                bail!("`{}` of {} is not as of {}", words.join(" "), program.display(), other.display());
            }
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_that_answer_differently_are_refused_and_one_that_does_not_run_says_nothing() {
        let folder = tempfile::TempDir::new().unwrap();
        let program = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs_err::write(&file, text).unwrap();
            fs_err::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
            file
        };
        let (one, other) = (program("one", "#!/bin/sh\necho $1"), program("other", "#!/bin/sh\necho ${1#versions}"));
        let broken = program("broken", "\x7fELF");
        assert_eq!(Way::of(&one, "amd64"), Some(Way::Native));
        assert_eq!(Way::of(&broken, "amd64"), None);
        let said = alike(&[(&broken, None), (&one, Some(Way::Native)), (&one, Some(Way::Native))]).unwrap();
        assert_eq!(said, [None, Some("--version".to_owned()), Some("--version".to_owned())]);
        let error = alike(&[(&one, Some(Way::Native)), (&other, Some(Way::Native))]).unwrap_err().to_string();
        assert!(error.starts_with("`versions` of ") && error.contains("/other is not as of "), "{error}");
    }
}
