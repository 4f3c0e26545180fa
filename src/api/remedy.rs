//! A way out of a problem, as data: words, with commands and flags of `fleetctl` among them.
//!
//! Rooms below the command line say which command or flag helps. Only the command line knows how these are written, under
//! which name the program was started, and which flags lead another command to the same cluster.

use std::path::PathBuf;

use super::util::text::visible_lines;

/// Words with commands and flags among them, in the order in which they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remedy(Vec<Part>);

/// A piece of a [`Remedy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words as they are; commands of other programs stand in backticks.
    Text(String),
    /// A command of this program.
    Command(Command),
    /// Flags of this program.
    Flags(Vec<Flag>),
    /// The word `kubectl` with the flags that lead it to a place, without backticks: the text continues with its
    /// arguments.
    Kubectl(Place),
}

/// A command of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command and the name that it is given.
    pub action: Action,
    /// The cluster that it is about.
    pub place: Place,
    /// Further flags.
    pub flags: Vec<Flag>,
}

/// A command with the name of its object. Names are those of a user or of a cluster, and are quoted where a shell needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `install`.
    Install(Subject),
    /// `upgrade`, which takes the recorded values.
    Upgrade(Subject),
    /// `uninstall`.
    Uninstall(Subject),
    /// `diff`, of one installation or of whatever is installed.
    Diff(Option<Subject>),
    /// `template`, which asks no cluster.
    Template(Subject),
    /// `show rbac`.
    ShowRbac(Subject),
    /// `rollback NAME`.
    Rollback(String),
    /// `kubeconfig NAME`.
    Kubeconfig(String),
    /// `status`, of one control plane or of whatever is installed.
    Status(Option<String>),
    /// `delete cluster NAME`.
    DeleteCluster(String),
    /// `get values NAME`.
    GetValues(String),
    /// `versions`.
    Versions,
    /// `why KIND/NAME`.
    Why(String),
    /// `rebalance --continue CAUSE`.
    ContinueRemovals(String),
    /// `restore NAME --release`, which ends the hold of deletions.
    Release(String),
    /// `restore NAME --commit`, which deletes former stores.
    CommitRestore(String),
}

/// An installation of one of the two kinds, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A control plane.
    ControlPlane(String),
    /// An agent.
    Agent(String),
}

/// The cluster that a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// None, or the one that the user chooses.
    Any,
    /// The cluster and the namespace of the run.
    Run,
    /// The cluster of the run; a flag says the namespace where one is needed.
    Cluster,
    /// The API of a control plane.
    ControlPlane(Access),
    /// The cluster of a context with this name.
    Context(&'static str),
}

/// Way to the API of a control plane from this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// By a context of the kubeconfig that kubectl reads.
    Context(String),
    /// By a kubeconfig file, and by a context in it where it needs one.
    Kubeconfig(PathBuf, Option<String>),
    /// A way that is not known.
    Unknown,
}

/// A flag with its value; a value that is `None` is left to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flag {
    /// Takes over objects of other tools.
    Adopt,
    /// The context to act on.
    Context(Option<String>),
    /// The control plane that an agent joins.
    ControlPlane(String),
    /// Removes the data as well.
    DeleteData,
    /// Waits for the lock of another run, as a duration such as `5m`.
    LockWait(&'static str),
    /// The namespace of the components.
    Namespace(Option<String>),
    /// Names a file of patches.
    Patch,
    /// Resets recorded values that are not given.
    ResetValues,
    /// Takes recorded values below those that are given.
    ReuseValues,
    /// Lists all columns.
    Wide,
    /// Sets a value of the chart by its path.
    Set(String, String),
    /// Lets a check only warn.
    SkipPreflight(&'static str),
    /// Takes one field from another manager.
    TakeFields(String),
    /// The service version, a line, or `auto`.
    Version(String),
}

impl Command {
    /// Builds a command about the cluster and namespace of the run.
    pub const fn at_run_place(action: Action) -> Self {
        Self { action, place: Place::Run, flags: Vec::new() }
    }

    /// Builds a command about another place.
    pub const fn at_place(place: Place, action: Action) -> Self {
        Self { action, place, flags: Vec::new() }
    }

    /// Adds one more flag.
    #[must_use]
    pub fn with_flag(mut self, flag: Flag) -> Self {
        self.flags.push(flag);
        self
    }
}

impl Flag {
    /// The flag that sets the value at `path`.
    pub fn set_value(path: &str, value: impl Into<String>) -> Self {
        Self::Set(path.to_owned(), value.into())
    }
}

impl Remedy {
    /// Begins with words.
    pub fn new(text: impl Into<String>) -> Self {
        Self::default().text(text)
    }

    /// Goes on with words.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.0.push(Part::Text(text));
        }
        self
    }

    /// Goes on with a command.
    #[must_use]
    pub fn command(mut self, command: Command) -> Self {
        self.0.push(Part::Command(command));
        self
    }

    /// Goes on with a flag.
    #[must_use]
    pub fn flag(self, flag: Flag) -> Self {
        self.flags(vec![flag])
    }

    /// Goes on with flags that belong together.
    #[must_use]
    pub fn flags(mut self, flags: Vec<Flag>) -> Self {
        self.0.push(Part::Flags(flags));
        self
    }

    /// Goes on with `kubectl` at a place; its arguments follow as text that begins with a space.
    #[must_use]
    pub fn kubectl(mut self, place: Place) -> Self {
        self.0.push(Part::Kubectl(place));
        self
    }

    /// Goes on with another remedy.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the pieces, in the order in which they are read.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Makes control characters of the words visible: they may hold what a cluster says.
    #[must_use]
    pub fn with_visible_text(self) -> Self {
        Self(
            self.0
                .into_iter()
                .map(|part| match part {
                    Part::Text(text) => Part::Text(visible_lines(&text).into_owned()),
                    other => other,
                })
                .collect(),
        )
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&Self> for Remedy {
    fn from(remedy: &Self) -> Self {
        remedy.clone()
    }
}

#[cfg(test)]
impl Remedy {
    /// The commands, in order.
    pub(crate) fn commands(&self) -> Vec<&Command> {
        let mut commands = Vec::new();
        for part in &self.0 {
            if let Part::Command(command) = part {
                commands.push(command);
            }
        }
        commands
    }

    /// The flags that stand alone, in order.
    pub(crate) fn lone_flags(&self) -> Vec<&Flag> {
        let mut lone = Vec::new();
        for part in &self.0 {
            if let Part::Flags(flags) = part {
                lone.extend(flags);
            }
        }
        lone
    }

    /// The words alone.
    pub(crate) fn joined_text(&self) -> String {
        let mut words = String::new();
        for part in &self.0 {
            if let Part::Text(text) = part {
                words += text;
            }
        }
        words
    }
}
