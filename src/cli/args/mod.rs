//! Arguments that several commands take.

pub(in crate::cli) mod agent;
pub(in crate::cli) mod chart_choice;
pub(in crate::cli) mod control_plane;
pub(in crate::cli) mod environment;
pub(in crate::cli) mod global;
pub(in crate::cli) mod images;
pub(in crate::cli) mod installation;
pub(in crate::cli) mod lock;
pub(in crate::cli) mod object_name;
pub(in crate::cli) mod own_image;
pub(in crate::cli) mod package;
pub(in crate::cli) mod patches;
pub(in crate::cli) mod recorded;
pub(in crate::cli) mod timeouts;
pub(in crate::cli) mod values;
