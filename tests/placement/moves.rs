//! Moves of groups: the cases of the move machine, and what it promises over random sequences.

mod cases;
mod checks;
mod promises;
mod world;
