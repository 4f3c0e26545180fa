//! What the members of one etcd report, side by side, and where they differ.
