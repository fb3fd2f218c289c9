//! Comparison with the libraries that define the checkpoints. `make.py` made the fixtures; no Python is needed here.

mod adapters;
mod common;
mod initial;
mod peer;
mod refusals;
mod saving;
mod training;
