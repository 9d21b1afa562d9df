//! Builds an image from entries in memory: `cargo run --example build_from_memory IMAGE`. Linux
//! mounts it: `mount -o loop IMAGE DIR`.

use std::error::Error;

use ferofs::build::{Attributes, Builder, Compression, Content, Rdev};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("no image is given")?;
    let mut builder = Builder::new();
    builder.options().data.compression = Some(Compression::lz4(0)?);
    let numbers: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    builder
        .file(
            "bin/hello",
            Content::bytes("#!/bin/sh\necho hello\n"),
            Attributes::default().mode(0o755),
        )
        .file(
            "share/numbers",
            Content::bytes(numbers),
            Attributes::default().xattr("user.kind", "numbers"),
        )
        .symlink("hello", "bin/hello", Attributes::default())
        .char_device("dev/null", Rdev { major: 1, minor: 3 }, Attributes::default().mode(0o666));
    let summary = builder.build(path)?;
    println!("{} files, {} bytes", summary.files, summary.bytes_out);
    Ok(())
}
