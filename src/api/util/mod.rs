//! Text for terminals and shells, files that are written whole, digests.

pub mod digest;
pub mod file;
pub mod file_fault;
pub mod new_file;
pub mod size;
pub mod text;
