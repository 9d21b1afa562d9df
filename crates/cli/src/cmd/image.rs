//! How commands open an image: its file, its offset, its extra devices.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs::patch::{Patch, overlay};
use ferofs::read::{FileSource, Image, OpenOptions, Source};

use crate::exit::{About, Failure};

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ImageArgs {
    /// The image: a file or a block device
    #[arg(id = "image", value_name = "IMAGE")]
    pub(crate) path: PathBuf,

    /// Bytes before the image's start in its file
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) offset: u64,

    /// An extra device of a multi-device image; repeat in the order of its device table
    #[arg(long = "device", value_name = "FILE")]
    pub(crate) devices: Vec<PathBuf>,
}

impl ImageArgs {
    /// Opens the image.
    pub(crate) fn open(&self) -> Result<Image, Failure> {
        self.open_with(&OpenOptions::default())
    }

    /// Opens the image with `options`.
    pub(crate) fn open_with(&self, options: &OpenOptions) -> Result<Image, Failure> {
        self.open_patched(options, &[])
    }

    /// Opens the image with `options` and, in memory, these patches over it, one upon the other.
    pub(crate) fn open_patched(&self, options: &OpenOptions, patches: &[PathBuf]) -> Result<Image, Failure> {
        // Errors of opening name the file themselves.
        let source = |path: &PathBuf, start| FileSource::open(path, start).map_err(Failure::from_named);
        let mut extra: Vec<Box<dyn Source>> = Vec::new();
        for path in &self.devices {
            extra.push(Box::new(source(path, 0)?));
        }
        let mut primary: Arc<dyn Source> = Arc::new(source(&self.path, self.offset)?);
        for path in patches {
            let patch = Patch::open(path).about(path)?;
            primary = overlay(primary, &patch, &AtomicBool::new(false)).about(path)?;
        }
        Image::open_with(Box::new(primary), extra, options).about(&self.path)
    }
}
