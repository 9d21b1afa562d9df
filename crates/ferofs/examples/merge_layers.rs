//! Merges layers into one image, the lowest first: `cargo run --example merge_layers IMAGE
//! LAYER...`. A layer is an EROFS image or a tar archive; whiteouts in it remove files of lower
//! layers. A file that names the layers is added.

use std::error::Error;
use std::path::PathBuf;

use ferofs::build::{Attributes, Builder, Content, SourceFormat, Whiteouts};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let image = args.next().ok_or("no image is given")?;
    let layers: Vec<PathBuf> = args.collect();
    let mut builder = Builder::new();
    builder.options().source.whiteouts = Whiteouts::Apply;
    for layer in &layers {
        builder.layer(SourceFormat::detect(layer)?, layer);
    }
    let names: Vec<String> = layers.iter().map(|layer| layer.display().to_string()).collect();
    builder.file("layers.txt", Content::bytes(names.join("\n")), Attributes::default());
    let summary = builder.build(image)?;
    println!("{} layers, {} files", layers.len(), summary.files);
    Ok(())
}
