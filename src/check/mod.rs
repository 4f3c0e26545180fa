//! The checks behind preflight, health and status.
