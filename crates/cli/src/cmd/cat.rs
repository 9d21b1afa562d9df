//! `ferofs cat`: writes the data of files to standard output.

use std::io::{self, Write};
use std::path::PathBuf;

use ferofs::escape::Escaped;
use ferofs::read::{FileOffset, FileType};

use crate::args::image::ImageArgs;
use crate::exit::{About, Failure, Outcome};

/// Bytes per read. With 1 MiB, the cost of a call is negligible; more only needs more memory.
const BUFFER_SIZE: usize = 1 << 20;

/// Write the content of files to standard output
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// Paths of the files in the image; symbolic links are followed
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let image = args.image.open()?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; BUFFER_SIZE];
    for path in &args.paths {
        let file = image.resolve(path, true).about(&args.image.path)?;
        if file.file_type() != FileType::Regular {
            return Err(Failure::about(&args.image.path, ferofs::read::Error::NotAFile(path.clone())));
        }
        let mut offset = FileOffset::new(0);
        loop {
            let read = image.read_at(&file, offset, &mut buffer);
            let len = read.map_err(|error| {
                Failure::about(&args.image.path, format!("{}: {error}", Escaped::path(path)))
            })?;
            if len == 0 {
                break;
            }
            out.write_all(&buffer[..len])?;
            offset = FileOffset::new(offset.get() + len as u64);
        }
    }
    out.flush()?;
    Ok(0)
}
