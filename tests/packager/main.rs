//! What the charts render, held against Kubernetes itself: its reader of YAML, its schemas of every minor, and servers.

#[path = "../../src/chart/tests/hostile.rs"]
mod hostile;
mod openapi;
mod reader;
mod server;
mod support;
