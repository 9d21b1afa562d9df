//! What reading costs: I/O, decoded bytes, memory, allocations, and time against liblz4 alone.
//!
//! `cargo bench -p ferofs --bench read -- IMAGE [TREE]...`: IMAGE has one large file, `file`; every file of each TREE is
//! read in directory order. `cargo xtask bench read` makes both. Speeds are of processor time, as the machine may have
//! other work.
#![allow(unsafe_code, missing_docs)]

#[path = "read/costs.rs"]
mod costs;
#[path = "read/counting.rs"]
mod counting;
#[path = "read/speed.rs"]
mod speed;
#[path = "read/strategies.rs"]
mod strategies;
#[path = "read/tree.rs"]
mod tree;

use std::error::Error;

use ferofs::read::{BOOKKEEPING, EngineOptions, Image, Inode, OpenOptions, Source};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const MIB: f64 = 1_048_576.0;
const PAGE: u64 = 4096;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let Some(path) = args.first() else {
        // `cargo test --benches` and `cargo bench` without an image have nothing to measure.
        println!("skipped: no image was named");
        return Ok(());
    };
    println!("{:<62}{:>12}{:>14}", "", "measured", "goal");
    costs::io(path)?;
    costs::sequential(path)?;
    println!("{:<62}{:>12}", "bookkeeping for an extent in flight, bytes", BOOKKEEPING.0);
    println!("{:<62}{:>12}", "bookkeeping for a request, bytes, on its stack", BOOKKEEPING.1);
    speed::against_liblz4(path)?;
    for tree in &args[1..] {
        tree::read_all(tree)?;
    }
    strategies::side_by_side(path)
}

/// A line of the table.
fn row(what: &str, measured: f64, goal: Goal) {
    let (text, reached) = match goal {
        Goal::AtMost(most) => (format!("<= {most}"), measured <= most),
        Goal::AtLeast(least) => (format!(">= {least}"), measured >= least),
        Goal::None => (String::new(), true),
    };
    let missed = if reached { "" } else { "  missed" };
    println!("{what:<62}{measured:>12.3}{text:>14}{missed}");
}

enum Goal {
    AtMost(f64),
    AtLeast(f64),
    None,
}

fn open(source: impl Source + 'static, engine: EngineOptions) -> Outcome<(Image, Inode)> {
    let mut options = OpenOptions::default();
    options.engine = engine;
    let image = Image::open_with(Box::new(source), Vec::new(), &options)?;
    let inode = image.resolve("file".as_ref(), true)?;
    Ok((image, inode))
}
