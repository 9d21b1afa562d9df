//! Arguments that name an image (file, offset, extra devices, patches), and how commands open it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs::build::host::open::follow_links;
use ferofs::patch::PatchReader;
use ferofs::read::{FileSource, Image, OpenOptions, Source};
use ferofs::verity::check_end;

use super::byte_size;
use super::fetch::{FetchArgs, RemoteBytes};
use super::image_name::ImageName;
use super::seal::{OpenSeal, SealArgs};
use crate::exit::{About, Failure};

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ImageArgs {
    /// The image: a file or a block device, or the address of an image on a server (https://)
    #[arg(id = "image", value_name = "IMAGE")]
    pub(crate) path: ImageName,

    /// Start of the image in its file or block device, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = byte_size::argument::<u64>)]
    pub(crate) offset: u64,

    /// Extra device of the image: a file or a block device. Give one for each entry of the image's device table, in the
    /// same order
    #[arg(long = "device", value_name = "FILE")]
    pub(crate) devices: Vec<PathBuf>,

    /// Multiply the limits on work and memory, which follow from the size of the image, by FACTOR; 0 removes them. Without
    /// limits, a damaged or hostile image can keep the program busy for years or use all memory
    #[arg(long, value_name = "FACTOR", default_value_t = 1)]
    pub(crate) work_limit: u32,

    #[command(flatten)]
    pub(crate) seal: SealArgs,

    #[command(flatten)]
    pub(crate) fetch: FetchArgs,
}

impl ImageArgs {
    /// Opens the image.
    pub(crate) fn open(&self) -> Result<Image, Failure> {
        let mut options = OpenOptions::default();
        options.work_limit = work_limit(self.work_limit);
        self.open_with(&options)
    }

    /// Opens the image with `options`.
    pub(crate) fn open_with(&self, options: &OpenOptions) -> Result<Image, Failure> {
        self.open_patched(options, &[])
    }

    /// Opens the image with `options`, and applies these patches to it in memory, in this order.
    pub(crate) fn open_patched(&self, options: &OpenOptions, patches: &[PathBuf]) -> Result<Image, Failure> {
        self.open_files(patches)?.decode(options)
    }

    /// Opens the files of the image and of these patches. Decodes nothing.
    pub(crate) fn open_files(&self, patches: &[PathBuf]) -> Result<OpenFiles, Failure> {
        // Errors of `FileSource::open` name the file already.
        let source = |path: &PathBuf, start| FileSource::open(path, start).map_err(Failure::without_subject);
        if self.seal.root.is_some() && !(self.devices.is_empty() && patches.is_empty()) {
            return Err(Failure::about(&self.path, "--roothash covers neither extra devices nor patches"));
        }
        if self.is_remote() {
            self.check_remote()?;
            return self.open_files_with(self.fetch.open_source(self.path.given(), &self.seal)?, patches);
        }
        Ok(OpenFiles {
            seal: self.seal.open(&self.path, self.offset)?,
            path: self.path.to_path_buf(),
            extra: self.devices.iter().map(|path| source(path, 0)).collect::<Result<_, _>>()?,
            primary: Arc::new(source(&self.path.to_path_buf(), self.offset)?),
            has_end_to_check: false,
            patches: patches
                .iter()
                .map(|path| Ok((path.clone(), source(path, 0)?)))
                .collect::<Result<_, Failure>>()?,
        })
    }

    /// Whether the image is on a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.path.is_remote()
    }

    /// Whether the arguments have a password, a token or a signature.
    pub(crate) fn has_secrets(&self) -> bool {
        self.is_remote() && (self.path.has_secret() || self.fetch.remote.has_secrets())
    }

    /// Fails for options that an image on a server cannot have.
    pub(crate) fn check_remote(&self) -> Result<(), Failure> {
        if self.offset != 0 || self.seal.hash_file.is_some() {
            let reason = "an image on a server has neither --offset nor --hash-file";
            return Err(Failure::about(&self.path, reason));
        }
        Ok(())
    }

    /// As [`Self::open_files`], for an image on a server.
    pub(crate) fn open_files_with(
        &self,
        image: RemoteBytes,
        patches: &[PathBuf],
    ) -> Result<OpenFiles, Failure> {
        // Errors of `FileSource::open` name the file already.
        let source = |path: &PathBuf| FileSource::open(path, 0).map_err(Failure::without_subject);
        Ok(OpenFiles {
            seal: None,
            path: self.path.to_path_buf(),
            extra: self.devices.iter().map(source).collect::<Result<_, _>>()?,
            primary: image.source,
            has_end_to_check: image.is_verified,
            patches: patches
                .iter()
                .map(|path| Ok((path.clone(), source(path)?)))
                .collect::<Result<_, Failure>>()?,
        })
    }
}

/// Open files that are not decoded yet, so that a process can drop its privileges before it decodes them.
pub(crate) struct OpenFiles {
    path: PathBuf,
    primary: Arc<dyn Source>,
    seal: Option<OpenSeal>,
    /// The primary device verifies itself, and may be only a part of an image.
    has_end_to_check: bool,
    extra: Vec<FileSource>,
    patches: Vec<(PathBuf, FileSource)>,
}

impl OpenFiles {
    /// Opens the image in these files with `options`.
    pub(crate) fn decode(self, options: &OpenOptions) -> Result<Image, Failure> {
        let mut primary: Arc<dyn Source> = match self.seal {
            Some(seal) => Arc::new(seal.verified(self.primary)?),
            None => self.primary,
        };
        if self.has_end_to_check {
            check_end(&primary).about(&self.path)?;
        }
        for (path, file) in self.patches {
            let mut patches = PatchReader::new(Arc::new(file)).about(&path)?;
            (primary, _) = patches.overlay(primary, &AtomicBool::new(false)).about(&path)?;
        }
        let extra = self.extra.into_iter().map(|file| Box::new(file) as Box<dyn Source>).collect();
        Image::open_with(Box::new(primary), extra, options).about(&self.path)
    }
}

/// Converts the value of `--work-limit`: 0 means no limit.
pub(crate) const fn work_limit(option: u32) -> Option<u32> {
    if option == 0 { None } else { Some(option) }
}

/// Fails if `output` is one of the input files, which writing it would destroy.
pub(crate) fn refuse_as_output(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    match FileIdentity::of(output) {
        Some(own) if inputs.iter().any(|input| FileIdentity::of(input).as_ref() == Some(&own)) => {
            Err(Failure::about(output, "the output file is also an input or another output"))
        }
        _ => Ok(()),
    }
}

/// Fails if one of the outputs is one of the inputs, or two outputs are the same file.
pub(crate) fn refuse_as_outputs(outputs: &[&Path], inputs: &[&Path]) -> Result<(), Failure> {
    outputs.iter().enumerate().try_for_each(|(number, output)| {
        refuse_as_output(output, inputs)?;
        refuse_as_output(output, &outputs[..number])
    })
}

/// Whether writing `output` makes or changes a file below the directory `dir`, which has no symbolic links.
pub(crate) fn writes_below(output: &Path, dir: &Path) -> bool {
    real_parent(&follow_links(output)).is_some_and(|parent| parent.starts_with(dir))
}

/// The directory of `path`, without symbolic links.
fn real_parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::canonicalize(parent).ok()
}

/// Tells regular files apart, also those that do not exist yet, and block devices.
#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    Inode(u64, u64),
    Device(u64),
    /// The directory, without symbolic links, and the name.
    Name(PathBuf),
}

impl FileIdentity {
    /// `None` for what is no file, or cannot become one.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(metadata) = std::fs::metadata(path) {
            return match metadata.file_type() {
                kind if kind.is_file() => Some(Self::Inode(metadata.dev(), metadata.ino())),
                kind if kind.is_block_device() => Some(Self::Device(metadata.rdev())),
                _ => None,
            };
        }
        let path = follow_links(path);
        Some(Self::Name(real_parent(&path)?.join(path.file_name()?)))
    }
}
