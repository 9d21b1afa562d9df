//! Lists an image, or prints a file of it: `cargo run --example list_and_read IMAGE [FILE]`.

use std::error::Error;
use std::io;

use ferofs::read::{FileSource, Image};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let image = Image::open(FileSource::open(args.next().ok_or("no image is given")?, 0)?)?;
    if let Some(path) = args.next() {
        io::copy(&mut image.open_file(path)?, &mut io::stdout())?;
        return Ok(());
    }
    for entry in image.walk() {
        let entry = entry?;
        let inode = entry.inode?;
        println!(
            "{:?} {:04o} {:>10} /{}",
            inode.file_type(),
            inode.permissions(),
            inode.size(),
            entry.path.display()
        );
    }
    Ok(())
}
