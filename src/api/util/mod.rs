//! Text for terminals and shells, files that are written whole, digests.

pub mod digest;
pub mod file;
pub mod file_fault;
pub mod size;
pub mod text;
#[cfg(test)]
pub(crate) mod thread_cpu_time;
pub mod unfinished_file;
