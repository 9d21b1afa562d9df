//! `ferofs-minimal-example IMAGE FILE`: writes a file of an image to standard output. The image is
//! read to memory first, as a program that embeds one or downloads it would have it.

use std::error::Error;
use std::io::Write;

use ferofs_read::Image;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, file] = args.as_slice() else {
        return Err("usage: ferofs-minimal-example IMAGE FILE".into());
    };
    let bytes: Vec<u8> = std::fs::read(image)?;
    let image = Image::open(bytes)?;
    let content = image.read(file)?;
    std::io::stdout().write_all(&content)?;
    Ok(())
}
