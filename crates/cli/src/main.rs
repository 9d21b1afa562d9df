//! The ferofs command.
fn main() {}
