//! The sources of `mkfs.erofs`: a directory, an OCI image layout, EROFS images, or a tar archive;
//! with `--tar` and without a source, the archive is standard input.

use std::path::Path;

use ferofs::build::{Options, SourceData, SourceFormat, Whiteouts};

use super::args::Args;
use super::{Refusal, refusal};

impl Args {
    /// The options of the library with the sources set. Detects the type of a source by its first
    /// bytes.
    pub(super) fn sources(&self) -> Result<Options, Refusal> {
        let (first, upper) = match self.sources.split_first() {
            Some((first, upper)) => (first.as_path(), upper),
            None if self.tar.is_some() => (Path::new("-"), [].as_slice()),
            None => {
                let reason =
                    "missing; give a directory, or --tar=f for a tar archive on standard input";
                return Err(refusal("SOURCE", String::new(), reason));
            }
        };
        for (option, mode) in [("--clean", &self.clean), ("--incremental", &self.incremental)] {
            if let Some(mode) =
                mode.as_ref().filter(|mode| !matches!(mode.as_str(), "data" | "rvsp" | "0"))
            {
                return Err(refusal(option, mode.clone(), "not data, rvsp or 0"));
            }
        }
        let mut options = Options::new(first);
        options.source.format = match (&self.tar, &self.oci) {
            (Some(_), _) => SourceFormat::Tar,
            (None, Some(text)) => self.oci_layout(text, first, &mut options)?,
            // As erofs-utils: a directory or an archive is an OCI image layout only with --oci.
            (None, None) if first.is_dir() => SourceFormat::Directory,
            (None, None) => match SourceFormat::detect(first) {
                Ok(SourceFormat::Oci) => SourceFormat::Tar,
                Ok(format) => format,
                Err(error) => {
                    return Err(refusal(
                        "SOURCE",
                        first.to_string_lossy().into_owned(),
                        error.to_string(),
                    ));
                }
            },
        };
        if let (Some(second), false) = (upper.first(), options.source.format == SourceFormat::Image)
        {
            let reason = "several sources are only possible if all of them are EROFS images";
            return Err(refusal("SOURCE", second.to_string_lossy().into_owned(), reason));
        }
        self.refuse_for_incremental(options.source.format)?;
        options.source.upper_layers = upper.to_vec();
        options.source.data = self.source_data(options.source.format)?;
        if options.source.data == SourceData::Reserved {
            // Somebody fills the reserved blocks later, so each file needs whole blocks of its own.
            (options.data.share_identical, options.inodes.inline_data) = (false, false);
        }
        let merged = !options.source.upper_layers.is_empty();
        options.source.whiteouts =
            if self.aufs || merged { Whiteouts::Overlay } else { Whiteouts::Keep };
        // As erofs-utils, whose archives have no whiteouts of overlayfs otherwise.
        options.source.overlay_whiteouts =
            options.source.format != SourceFormat::Tar || self.aufs || merged;
        options.source.strip_overlay = match self.ovlfs_strip.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(refusal("--ovlfs-strip", other.to_owned(), "not 0 or 1")),
        };
        if let Some(order) = self.sort.as_deref().filter(|order| !matches!(*order, "path" | "none"))
        {
            return Err(refusal("--sort", order.to_owned(), "not path or none"));
        }
        // The compression itself is detected, so these options only matter for their FILE.
        for (option, copy) in [("--ungzip", &self.ungzip), ("--unxz", &self.unxz)] {
            if let Some(copy) = copy.as_ref().filter(|copy| !copy.is_empty()) {
                if options.source.format != SourceFormat::Tar {
                    let copy = copy.to_string_lossy().into_owned();
                    return Err(refusal(option, copy, "the source is not a tar archive"));
                }
                options.source.plain_copy = Some(copy.into());
            }
        }
        Ok(options)
    }

    /// Parses `--oci` and checks that the source is an OCI image layout on disk.
    fn oci_layout(
        &self,
        text: &str,
        source: &Path,
        options: &mut Options,
    ) -> Result<SourceFormat, Refusal> {
        let refuse = |reason: &str| refusal("--oci", text.to_owned(), reason);
        for (number, part) in text.split(',').enumerate() {
            match part.split_once('=') {
                None if part == "f" && number == 0 => {}
                Some(("platform", platform)) => {
                    options.source.oci.platform = Some(platform.parse().map_err(refuse)?);
                }
                _ => {
                    let reason = "takes only f and platform=OS/ARCH: all layers of a layout on disk are copied; ferofs \
                                  does not download images from registries";
                    return Err(refuse(reason));
                }
            }
        }
        // With erofs-utils, SOURCE may be an image in a registry.
        if !matches!(SourceFormat::detect(source), Ok(SourceFormat::Oci)) {
            return Err(refuse(
                "not an OCI image layout on disk; ferofs does not download images from registries",
            ));
        }
        Ok(SourceFormat::Oci)
    }

    /// Where the data of files goes. As with erofs-utils, a merged image refers to the data in its
    /// sources, unless `--clean` is given.
    fn source_data(&self, format: SourceFormat) -> Result<SourceData, Refusal> {
        let refers = match self.tar.as_deref() {
            None => format == SourceFormat::Image && self.clean.is_none(),
            Some(mode) => matches!(mode, "i" | "0") && self.clean.as_deref() != Some("rvsp"),
        };
        if refers {
            let reason = "the data stays in the sources; to copy it, use --tar=f or --clean=data";
            return match (self.compressors()?.0, self.chunksize) {
                (Some(names), _) => Err(refusal("-z", names, reason)),
                (None, Some(size)) => Err(refusal("--chunksize", size.to_string(), reason)),
                (None, None) => Ok(SourceData::External),
            };
        }
        let reserves = self.clean.as_deref() == Some("rvsp");
        match (self.tar.as_deref(), format) {
            (_, SourceFormat::Tar) if reserves => match self.compressors()?.0 {
                Some(names) => {
                    Err(refusal("-z", names, "--clean=rvsp reserves space for uncompressed data"))
                }
                None => Ok(SourceData::Reserved),
            },
            (_, SourceFormat::Image) if reserves => {
                let reason = "space can only be reserved for the data of a tar archive; to copy the data, use --clean=data";
                Err(refusal("--clean", "rvsp".into(), reason))
            }
            // As erofs-utils: the data of directories is always copied.
            (None | Some("f"), _) => Ok(SourceData::Copied),
            (Some("headerball"), _) => Ok(SourceData::Absent),
            (Some(other), _) => {
                let reason = if other.contains(',') {
                    "a file for the block map is not supported"
                } else {
                    "not f, i or headerball"
                };
                Err(refusal("--tar", other.to_owned(), reason))
            }
        }
    }
}
