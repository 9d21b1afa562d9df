//! What an image is made of: a directory, or a tar with `--tar`, which is on standard input if no source is given.

use std::path::Path;

use ferofs::build::{Options, SourceData, SourceFormat, Whiteouts};

use super::args::Args;
use super::{Refusal, refusal};

impl Args {
    /// The library's options with the sources filled in. Files are looked at, but not opened.
    pub(super) fn sources(&self) -> Result<Options, Refusal> {
        let (first, upper) = match self.sources.split_first() {
            Some((first, upper)) => (first.as_path(), upper),
            None if self.tar.is_some() => (Path::new("-"), [].as_slice()),
            None => {
                let reason = "give a directory, or --tar=f for a tar on standard input";
                return Err(refusal("SOURCE", String::new(), reason));
            }
        };
        for (option, mode) in [("--clean", &self.clean), ("--incremental", &self.incremental)] {
            if let Some(mode) = mode.as_ref().filter(|mode| !matches!(mode.as_str(), "data" | "rvsp" | "0")) {
                return Err(refusal(option, mode.clone(), "there are data, rvsp and 0"));
            }
        }
        let mut options = Options::new(first);
        options.source.format = match (&self.tar, &self.oci) {
            (Some(_), _) => SourceFormat::Archive,
            (None, Some(text)) => self.layout(text, first, &mut options)?,
            // Not more than erofs-utils: a directory is that, even if it is a layout.
            (None, None) if first.is_dir() => SourceFormat::Directory,
            (None, None) => match SourceFormat::detect(first) {
                Ok(SourceFormat::Image) => SourceFormat::Image,
                Ok(_) => SourceFormat::Archive,
                Err(error) => {
                    return Err(refusal("SOURCE", first.to_string_lossy().into_owned(), error.to_string()));
                }
            },
        };
        if let (Some(second), false) = (upper.first(), options.source.format == SourceFormat::Image) {
            let reason = "several sources are merged if all of them are EROFS images";
            return Err(refusal("SOURCE", second.to_string_lossy().into_owned(), reason));
        }
        self.refuse_for_incremental(options.source.format)?;
        options.source.upper_layers = upper.to_vec();
        options.source.data = self.source_data(options.source.format)?;
        if options.source.data == SourceData::Reserved {
            // Room that is shared, or behind an inode, is not what anybody fills.
            (options.data.share_identical, options.inodes.inline_data) = (false, false);
        }
        let merged = !options.source.upper_layers.is_empty();
        options.source.whiteouts = if self.aufs || merged { Whiteouts::Overlay } else { Whiteouts::Keep };
        options.source.strip_overlay = match self.ovlfs_strip.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(refusal("--ovlfs-strip", other.to_owned(), "neither 0 nor 1")),
        };
        if let Some(order) = self.sort.as_deref().filter(|order| !matches!(*order, "path" | "none")) {
            return Err(refusal("--sort", order.to_owned(), "neither path nor none"));
        }
        // How an archive is compressed is seen by its first bytes.
        for (option, copy) in [("--ungzip", &self.ungzip), ("--unxz", &self.unxz)] {
            if let Some(copy) = copy.as_ref().filter(|copy| !copy.is_empty()) {
                if options.source.format != SourceFormat::Archive {
                    let copy = copy.to_string_lossy().into_owned();
                    return Err(refusal(option, copy, "there is no archive that could be written"));
                }
                options.source.plain_copy = Some(copy.into());
            }
        }
        Ok(options)
    }

    /// `--oci`, of an image layout on disk.
    fn layout(&self, text: &str, source: &Path, options: &mut Options) -> Result<SourceFormat, Refusal> {
        let refuse = |reason: &str| refusal("--oci", text.to_owned(), reason);
        for (number, part) in text.split(',').enumerate() {
            match part.split_once('=') {
                None if part == "f" && number == 0 => {}
                Some(("platform", platform)) => {
                    options.source.oci.platform = Some(platform.parse().map_err(refuse)?);
                }
                _ => return Err(refuse("there are f and platform=OS/ARCH, for image layouts on disk")),
            }
        }
        // Options are told from what they are about: a reference is no path that is there.
        if !matches!(SourceFormat::detect(source), Ok(SourceFormat::Oci)) {
            return Err(refuse("ferofs asks no registries; fetch the image, and give its layout on disk"));
        }
        Ok(SourceFormat::Oci)
    }

    /// Where content goes. Merged images point to it unless a clean build is asked for, as with erofs-utils.
    fn source_data(&self, format: SourceFormat) -> Result<SourceData, Refusal> {
        let refers = match self.tar.as_deref() {
            None => format == SourceFormat::Image && self.clean.is_none(),
            Some(mode) => mode == "i" && self.clean.as_deref() != Some("rvsp"),
        };
        if refers {
            let value = |value: &Option<String>| value.clone().unwrap_or_default();
            let reason = "content stays in the sources as it is; copy it with --tar=f or --clean=data";
            return match (&self.compressor, self.chunksize) {
                (Some(_), _) => Err(refusal("-z", value(&self.compressor), reason)),
                (None, Some(size)) => Err(refusal("--chunksize", size.to_string(), reason)),
                (None, None) => Ok(SourceData::External),
            };
        }
        let reserves = self.clean.as_deref() == Some("rvsp");
        match (self.tar.as_deref(), format) {
            (_, SourceFormat::Archive) if reserves => match &self.compressor {
                Some(name) => {
                    Err(refusal("-z", name.clone(), "--clean=rvsp reserves room for plain content"))
                }
                None => Ok(SourceData::Reserved),
            },
            (_, SourceFormat::Image) if reserves => {
                let reason = "room is reserved for the content of a tar; take content over with --clean=data";
                Err(refusal("--clean", "rvsp".into(), reason))
            }
            // Of directories nothing but all content is taken, as by erofs-utils.
            (None | Some("f"), _) => Ok(SourceData::Copied),
            (Some("headerball"), _) => Ok(SourceData::Absent),
            (Some(other), _) => {
                let reason = if other.contains(',') {
                    "maps of blocks are not written"
                } else {
                    "there are f, i and headerball"
                };
                Err(refusal("--tar", other.to_owned(), reason))
            }
        }
    }
}
