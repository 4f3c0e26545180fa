//! The program `fleet-scheduler`.
