//! Arguments that name an image (file, offset, extra devices, patches), and how commands open it.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_os = "linux")]
use ferofs::patch::{PatchReader, PieceCache};
use ferofs::read::{Cancel, FileSource, Image, OpenOptions, Source};
use ferofs::verity::check_end;
use ferofs_threads::limited_memory;

#[cfg(target_os = "linux")]
use super::other_format::with_other_format;
use super::seal::{OpenSeal, SealArgs};
use super::{IMAGE, byte_size};
use crate::exit::{About, Failure};

// The derived default has no work limit: [`ImageArgs::of`] has one.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ImageArgs {
    /// The image: a file or a block device
    #[arg(id = "image", value_name = "IMAGE")]
    #[cfg_attr(feature = "remote", arg(help = crate::servers::args::IMAGE_HELP))]
    pub(crate) path: ImageName,

    /// Start of the image in its file or block device, in bytes
    #[arg(help_heading = IMAGE, long, value_name = "BYTES", default_value_t = 0, hide_default_value = true, value_parser = byte_size::argument::<u64>)]
    pub(crate) offset: u64,

    /// Extra device of the image: a file or a block device. Give one for each entry of the image's
    /// device table, in the same order
    #[arg(help_heading = IMAGE, hide_short_help = true, long = "device", value_name = "FILE")]
    pub(crate) devices: Vec<PathBuf>,

    /// Multiply the limits on work and memory, which follow from the size of the image, by FACTOR;
    /// 0 removes them. Without limits, a damaged or hostile image can keep the program busy for
    /// years or use all memory
    #[arg(help_heading = IMAGE, hide_short_help = true, long, value_name = "FACTOR", default_value_t = 1)]
    pub(crate) work_limit: u32,

    #[command(flatten)]
    pub(crate) seal: SealArgs,

    #[cfg(feature = "remote")]
    #[command(flatten)]
    pub(crate) servers: crate::servers::args::ServerArgs,
}

impl ImageArgs {
    /// The image with this name, without other options.
    pub(crate) fn of(name: impl Into<ImageName>) -> Self {
        Self { path: name.into(), work_limit: 1, ..Self::default() }
    }

    pub(crate) fn open(&self) -> Result<Image, Failure> {
        let mut options = OpenOptions::default();
        options.work_limit = work_limit(self.work_limit);
        self.open_with(&options)
    }

    /// Opens the image with `options`, and smaller caches if memory is limited.
    pub(crate) fn open_with(&self, options: &OpenOptions) -> Result<Image, Failure> {
        /// Bytes of the engine's limit from which on its caches have their usual sizes.
        const ALL_CACHES: u64 = 32 << 20;
        let mut options = options.clone();
        // Threads get the rest.
        let limit = limited_memory().map(|free| free / 4).filter(|limit| *limit < ALL_CACHES);
        options.engine.memory_limit = limit.and_then(|limit| usize::try_from(limit).ok());
        self.open_patched(&options, &[])
    }

    /// Opens the image with `options`, and applies these patches to it in memory, in this order.
    pub(crate) fn open_patched(
        &self,
        options: &OpenOptions,
        patches: &[PathBuf],
    ) -> Result<Image, Failure> {
        self.open_files(patches)?.decode(options)
    }

    /// Opens the files of the image and of these patches. Decodes nothing.
    pub(crate) fn open_files(&self, patches: &[PathBuf]) -> Result<OpenFiles, Failure> {
        if self.seal.root().is_some() && !(self.devices.is_empty() && patches.is_empty()) {
            return Err(Failure::usage(
                &self.path,
                "--roothash covers neither extra devices nor patches",
            ));
        }
        if self.path.is_remote() {
            return self.open_remote(patches);
        }
        if self.path.is_dir() {
            return Err(Failure::about(&self.path, "is a directory: use ferofs build DIR IMAGE"));
        }
        let seal = self.seal.open(&self.path, self.offset)?;
        let file = FileSource::open(&*self.path, self.offset).without_subject()?;
        self.with_source(
            ImageSource { bytes: Arc::new(file), seal, has_end_to_check: false },
            patches,
        )
    }

    #[cfg(not(feature = "remote"))]
    fn open_remote(&self, _: &[PathBuf]) -> Result<OpenFiles, Failure> {
        Err(Failure::about(&self.path, "this program is built without images on servers"))
    }

    /// As [`Self::open_files`], with the bytes of the image from `source`.
    pub(crate) fn with_source(
        &self,
        source: ImageSource,
        patches: &[PathBuf],
    ) -> Result<OpenFiles, Failure> {
        // Errors of `FileSource::open` name the file already.
        let open = |path: &PathBuf| FileSource::open(path, 0).without_subject();
        Ok(OpenFiles {
            path: self.path.to_path_buf(),
            source,
            extra: self.devices.iter().map(open).collect::<Result<_, _>>()?,
            patches: patches
                .iter()
                .map(|path| Ok((path.clone(), open(path)?)))
                .collect::<Result<_, Failure>>()?,
        })
    }
}

/// Where the bytes of an image come from, and what verifies them.
pub(crate) struct ImageSource {
    pub(crate) bytes: Arc<dyn Source>,
    /// A hash tree to verify the bytes with.
    pub(crate) seal: Option<OpenSeal>,
    /// The bytes are verified already, and may be only a part of an image.
    pub(crate) has_end_to_check: bool,
}

/// Open files that are not decoded yet, so that a process can drop its privileges before it decodes
/// them.
pub(crate) struct OpenFiles {
    path: PathBuf,
    source: ImageSource,
    extra: Vec<FileSource>,
    patches: Vec<(PathBuf, FileSource)>,
}

impl OpenFiles {
    /// Opens the image in these files with `options`.
    pub(crate) fn decode(self, options: &OpenOptions) -> Result<Image, Failure> {
        let ImageSource { bytes, seal, has_end_to_check } = self.source;
        let primary: Arc<dyn Source> = match seal {
            Some(seal) => Arc::new(seal.verified(bytes)?),
            None => bytes,
        };
        if has_end_to_check {
            check_end(&primary).about(&self.path)?;
        }
        #[cfg(target_os = "linux")]
        let primary = patched(primary, self.patches)?;
        let extra = self.extra.into_iter().map(|file| Box::new(file) as Box<dyn Source>).collect();
        #[cfg(target_os = "linux")]
        let bytes = Arc::clone(&primary);
        let image = Image::open_with(Box::new(primary), extra, options).about(&self.path);
        #[cfg(target_os = "linux")]
        let image = image.map_err(|failure| with_other_format(failure, &*bytes));
        image
    }
}

/// Applies patches to the image in memory.
#[cfg(target_os = "linux")]
fn patched(
    mut image: Arc<dyn Source>,
    patches: Vec<(PathBuf, FileSource)>,
) -> Result<Arc<dyn Source>, Failure> {
    // One for all patches, so that the number of patches does not count.
    let cache = PieceCache::default();
    for (path, file) in patches {
        let mut patches = PatchReader::new(Arc::new(file)).about(&path)?;
        (image, _) = patches.overlay(image, &cache, &Cancel::default()).about(&path)?;
    }
    Ok(image)
}

/// Converts the value of `--work-limit`: 0 means no limit.
pub(crate) const fn work_limit(option: u32) -> Option<u32> {
    if option == 0 { None } else { Some(option) }
}

/// The schemes of addresses: other names are files.
const SCHEMES: [&str; 4] = ["https://", "http://", "s3://", "oci://"];

/// The name of an image as it was given, and as messages show it: the address of an image on a
/// server may have a password. It dereferences to the name for messages.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageName {
    /// The name as it was given, to open the image.
    pub(crate) given: PathBuf,
    shown: PathBuf,
}

impl ImageName {
    /// Whether this is the address of an image on a server.
    pub(crate) fn is_remote(&self) -> bool {
        scheme(&self.given).is_some()
    }
}

/// The scheme of an address; `None` for a file.
fn scheme(name: &Path) -> Option<&'static str> {
    let name = name.as_os_str().as_encoded_bytes();
    SCHEMES.into_iter().find(|scheme| name.starts_with(scheme.as_bytes()))
}

/// The name as messages show it.
fn without_secrets(given: &Path) -> PathBuf {
    let Some(scheme) = scheme(given) else { return given.to_owned() };
    #[cfg(feature = "remote")]
    if let Ok(location) = ferofs_serve::Location::parse(&given.to_string_lossy()) {
        return location.to_string().into();
    }
    // An address that cannot be used may have a password, too.
    format!("{scheme}...").into()
}

impl From<OsString> for ImageName {
    fn from(given: OsString) -> Self {
        let given = PathBuf::from(given);
        Self { shown: without_secrets(&given), given }
    }
}

impl From<PathBuf> for ImageName {
    fn from(given: PathBuf) -> Self {
        given.into_os_string().into()
    }
}

impl From<&str> for ImageName {
    fn from(given: &str) -> Self {
        OsString::from(given).into()
    }
}

impl Deref for ImageName {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.shown
    }
}

impl fmt::Debug for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_no_password() {
        let is_built = cfg!(feature = "remote");
        for (given, shown) in [
            (
                "https://me:secret@h/a?key=secret",
                if is_built { "https://h/a?..." } else { "https://..." },
            ),
            ("https://me:secret@/a", "https://..."),
            ("dir/me:secret@h", "dir/me:secret@h"),
        ] {
            let name = ImageName::from(given);
            assert_eq!((&*name.given, &*name), (Path::new(given), Path::new(shown)));
            assert_eq!(format!("{name:?}"), format!("{shown:?}"));
        }
    }

    #[test]
    fn addresses_have_a_scheme() {
        for name in ["https://h/a", "http://h/a", "s3://b/k", "oci://h/a"] {
            assert!(ImageName::from(name).is_remote(), "{name}");
        }
        for name in ["image.erofs", "/https://h/a", "https:/h/a", "ftp://h/a", "HTTPS://h/a"] {
            assert!(!ImageName::from(name).is_remote(), "{name}");
        }
    }
}
