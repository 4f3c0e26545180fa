//! The engine: plan, apply, wait, record, roll back, prune. Knows objects, not what they are for.
