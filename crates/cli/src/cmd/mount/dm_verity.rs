//! The dm-verity device of a sealed image, which lets Linux verify each block that it reads.
//! veritysetup of cryptsetup makes it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferofs::read::FileSource;
use ferofs::verity::appended_position;

use crate::args::seal::SealArgs;
use crate::exit::{About, Concerning, Failure};

/// A device below `/dev/mapper`. Dropping it removes the device when nothing uses it any more: at
/// once, or when the image is unmounted.
#[derive(Debug)]
pub(crate) struct VerityDevice {
    name: String,
}

impl VerityDevice {
    /// Makes the device of `image` with the seal that the options name; `None` without a seal.
    ///
    /// # Errors
    /// There is no veritysetup, or the system has no dm-verity, or the image does not have this
    /// seal.
    pub(crate) fn open(
        image: &Path,
        offset: u64,
        seal: &SealArgs,
    ) -> Result<Option<Self>, Failure> {
        let Some(root) = seal.root() else { return Ok(None) };
        if offset > 0 {
            return Err(Failure::about(image, "dm-verity needs an image that starts its file"));
        }
        let position = match (&seal.hash_file, seal.hash_offset) {
            (_, Some(position)) => position,
            (Some(_), None) => 0,
            (None, None) => {
                let file = FileSource::open(image, 0).without_subject()?;
                appended_position(&file).about(image)?
            }
        };
        let hash_file = seal.hash_file.as_deref().unwrap_or(image);
        // Another process cannot have this name at the same time.
        let name = format!("ferofs-{}-{}", &root.to_string()[..16], std::process::id());
        let mut open = veritysetup();
        // A path can start with `-`.
        open.arg("open").arg(format!("--hash-offset={position}")).arg("--");
        open.arg(image).arg(&name).arg(hash_file).arg(root.to_string());
        run(&mut open).concerning(image)?;
        Ok(Some(Self { name }))
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }
}

impl Drop for VerityDevice {
    fn drop(&mut self) {
        // The device stays if this fails, and does no harm.
        let _ = run(veritysetup().args(["close", "--deferred", &self.name]));
    }
}

fn veritysetup() -> Command {
    let mut command = Command::new("veritysetup");
    // Not in the path of all users.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(path) = std::env::join_paths(dirs) {
        command.env("PATH", path);
    }
    command
}

fn run(command: &mut Command) -> io::Result<()> {
    let Output { status, stderr, .. } = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(
            "dm-verity needs veritysetup (package cryptsetup-bin), or mount with --fuse",
        ),
        _ => error,
    })?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(io::Error::other(format!("veritysetup: {}", lines.join(" "))))
}
