//! `ferofs links`: creates symbolic links to this program with the names of erofs-utils.

use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::exit::{Concerning, Outcome};
use crate::print::output::name as shown;

/// The names of the programs of erofs-utils that this program replaces.
pub(crate) const NAMES: [&str; 5] =
    ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"];

/// Create links with the names of erofs-utils
///
/// Symbolic links to this program.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory in which to create the links; it is created if it does not exist
    dir: PathBuf,

    /// Replace existing files with these names
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let program = std::env::current_exe()?;
    std::fs::create_dir_all(&args.dir).concerning(&args.dir)?;
    for name in NAMES {
        let link = args.dir.join(name);
        let created = symlink(&program, &link).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists
                if std::fs::read_link(&link).is_ok_and(|to| to == program) =>
            {
                Ok(())
            }
            io::ErrorKind::AlreadyExists if args.force => {
                std::fs::remove_file(&link)?;
                symlink(&program, &link)
            }
            io::ErrorKind::AlreadyExists => Err(io::Error::other(
                "exists and is not a link to this program: --force replaces it",
            )),
            _ => Err(error),
        });
        created.concerning(&link)?;
        io::stdout().write_all(&shown(link.as_os_str().as_bytes(), io::stdout().is_terminal()))?;
        writeln!(io::stdout())?;
    }
    Ok(0)
}
