//! One request and its answer: deadlines, retries, pages, the limit of an answer's size, and errors with their cause.

pub(crate) mod api_error;
mod call;
mod first_words;
pub(crate) mod foreign;
pub(super) mod log;
pub mod pages;
pub(super) mod read_layer;
pub(crate) mod request_error;
pub(super) mod response_limit;
pub(super) mod retry;
mod send;
pub(crate) mod server;
pub(crate) mod server_clock;
pub(crate) mod transport_error;
