//! The `vitreous` command.

fn main() {}
