//! The documents: README.md and the pages of docs.
//!
//! - `names`: links, paths, commands, options, tests and modules that they name exist.
//! - `commands`: the commands of README.md and of the guide run, and print the messages that the pages show.
//! - `migration`: the tables for users of other tools have each option of these tools.

mod commands;
mod migration;
mod names;
