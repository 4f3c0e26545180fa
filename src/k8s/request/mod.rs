//! TODO.

pub(crate) mod api_error;
pub(super) mod call;
pub(super) mod log;
pub mod pages;
pub(crate) mod request_error;
pub(super) mod response_limit;
pub(super) mod retry;
pub(super) mod send;
pub(crate) mod server;
pub(crate) mod server_clock;
