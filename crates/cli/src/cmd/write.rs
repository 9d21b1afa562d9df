//! `ferofs build`: builds an image from a directory, archives, an OCI image layout, or EROFS
//! images.

mod compress;
mod estimate;
mod execute;
mod level;
mod like;
mod metadata;
mod requirement;
mod seal;
mod summary;
mod versions;

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use ferofs::build::{
    BlockSize, ContentOrder, Definitions, HotFiles, Options, Platform, Priorities, Settings,
    SourceData, SourceFormat, Timestamp, Whiteouts, block_size as natural_block_size,
};
use ferofs::escape::Escaped;

use crate::args::SOURCES;
use crate::args::byte_size;
use crate::args::exclude::ExcludeArgs;
use crate::args::outputs::refuse_as_output;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::args::settings::{orders, refused, source_formats};
use crate::args::text_file;
use crate::cmd::mount::memory::read_profile;
use crate::exit::{About, Concerning, Failure, Outcome};
use crate::print::output::{OUTPUT, is_strict};
use compress::CompressArgs;
use execute::refuse_sources_as_output;
pub(crate) use execute::{PrintOptions, execute};
use like::LikeArgs;
use metadata::{MetadataArgs, OwnerArgs};
pub(crate) use metadata::{parse_uuid, source_date_epoch};
pub(crate) use seal::SealArgs;
use versions::Version;

/// Build an image of a directory, archives or images
///
/// Of a directory, tar archives, an OCI image layout, or EROFS images.
///
/// The image gets its name when it is complete and synced to disk. If the build fails, a file that
/// already has this name stays unchanged. A block device is written in place.
#[derive(clap::Args)]
#[command(override_usage = "ferofs build [OPTIONS] SOURCE... IMAGE")]
pub(crate) struct Args {
    /// Sources, then the image: a file, a device, or `-`
    ///
    /// A source is a directory, a tar archive (uncompressed or compressed with gzip, xz, lzma, lzip
    /// or zstd; `-` is standard input), an OCI image layout, an archive of `docker save`, or an
    /// EROFS image. Several archives or several EROFS images are merged as layers: each layer
    /// replaces files of the layers before it. In archives a file `.wh.NAME` removes NAME from the
    /// layers below; in EROFS images the whiteouts of overlayfs do this. The last path is the
    /// image: a file, a block device, or `-` for standard output.
    // One list for sources and image: clap cannot split it, because options may stand between the
    // paths.
    #[arg(required = true, value_name = "SOURCE... IMAGE")]
    paths: Vec<PathBuf>,

    /// Build an image of several directories, each under its own name: SOURCE is NAME=DIR, or DIR,
    /// whose last part is the name. For versions of one tree, see --preset backup
    #[arg(help_heading = SOURCES, hide_short_help = true, long, conflicts_with_all = ["index_only", "aufs"])]
    versions: bool,

    /// Type of the sources [default: detected from their content]
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "KIND", value_parser = source_formats())]
    from: Option<SourceFormat>,

    /// For an OCI image layout: use the image for this platform [default: the platform of this
    /// machine; if the layout has only one image, that image]
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,

    /// For an OCI image layout: use the image with this name
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "NAME")]
    image_name: Option<String>,

    /// Do not copy file data into the image: the image refers to the data in the sources. The
    /// sources must be tar archives or EROFS images. To mount the image, give the sources as extra
    /// devices in the same order (Linux 5.16)
    #[arg(help_heading = SOURCES, hide_short_help = true, long, conflicts_with_all = ["compress", "preset", "chunk_size"])]
    index_only: bool,

    /// Multiply the limits on the memory for archive headers, attributes, sparse maps and
    /// decompression, and on the size of holes, by N (1 or more). The limits protect against
    /// hostile archives
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "N", default_value = "1")]
    archive_limits: NonZeroU32,

    /// Convert aufs whiteouts (`.wh.NAME`) in an archive to overlayfs whiteouts, instead of
    /// applying them
    #[arg(help_heading = SOURCES, hide_short_help = true, long)]
    aufs: bool,

    #[command(flatten)]
    compress: CompressArgs,

    /// Store the data of identical files once for each file, instead of sharing it
    #[arg(long, hide_short_help = true)]
    no_share: bool,

    /// Store the most-read files of this access profile first, so that they are close together.
    /// `ferofs mount --record-profile` writes an access profile
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with = "index_only")]
    profile: Option<PathBuf>,

    /// Order in which the content of files is stored [default: that of --preset, else tree]
    #[arg(
        long,
        hide_short_help = true,
        value_parser = orders(),
        value_name = "ORDER",
        conflicts_with = "index_only"
    )]
    order: Option<ContentOrder>,

    /// Store content in the order of priorities: each line of FILE is `PATH PRIORITY`, as in
    /// mksquashfs's sort files, with a number from -32768 to 32767. Higher priorities come first;
    /// files without a line have 0, and the line of a directory holds for all below it
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with = "index_only")]
    sort: Option<PathBuf>,

    /// Store the files with the most reads per byte in --profile uncompressed, up to SIZE bytes in
    /// total [default: 0]
    #[arg(long, hide_short_help = true, value_name = "SIZE", requires = "profile", value_parser = byte_size::argument::<u32>)]
    store_hottest: Option<u32>,

    /// Number of worker threads, 1 or more; the image does not depend on it [default: one for each
    /// processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Block size: a power of two from 512 to 64K. Linux mounts block sizes up to its page size
    /// [default: 4096; with --index-only the block size of the sources, which is 512 for archives]
    #[arg(short, long, hide_short_help = true, value_name = "SIZE", value_parser = byte_size::block)]
    block_size: Option<BlockSize>,

    /// Build time, in seconds since 1970 [default: now]
    ///
    /// $SOURCE_DATE_EPOCH is the default, if it is set.
    #[arg(short = 'T', long, value_name = "SECS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// Set the time of every file to SECS, in seconds since 1970 [default of SECS: the time of -T]
    #[arg(long, hide_short_help = true, value_name = "SECS", num_args = 0..=1, require_equals = true, allow_hyphen_values = true)]
    all_time: Option<Option<i64>>,

    /// UUID; `clear` is all zeroes [default: random]
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,

    /// Label, at most 16 bytes [default: empty]
    ///
    /// With 16 bytes, the image needs Linux 6.15.
    #[arg(short = 'L', long)]
    label: Option<OsString>,

    #[command(flatten)]
    excludes: ExcludeArgs,

    /// Define devices, directories, links, owners and modes that the source does not have; may be
    /// given several times
    ///
    /// Each line of FILE is `PATH TYPE MODE UID GID ...`, as in mksquashfs's pseudo files:
    /// `dev/console c 600 0 5 5 1`, `tmp d 1777 0 0`, `bin/su m 4755 0 0`. The types are d
    /// (directory), m (changes mode and owner of a file that exists), b and c (devices; MAJOR MINOR
    /// follow), i (FIFO; with `s` a socket), s (symbolic link; the target follows). Upper case
    /// takes the time, in seconds since 1970, after the type. `PATH h TARGET` is a hard link, `PATH
    /// x NAME=VALUE` an extended attribute. Owners of other options do not apply to these files.
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "FILE")]
    pseudo_file: Vec<PathBuf>,

    /// Leave out other file systems
    ///
    /// Mount points become empty directories.
    #[arg(help_heading = SOURCES, long)]
    one_file_system: bool,

    /// Leave out what cannot be read, with a warning
    ///
    /// Without it, a file or directory that cannot be read ends the build.
    #[arg(help_heading = SOURCES, long)]
    skip_unreadable: bool,

    #[command(flatten)]
    owners: OwnerArgs,

    #[command(flatten)]
    metadata: MetadataArgs,

    /// Build nothing: print what each preset gives
    ///
    /// The size, the build time and the Linux version of each preset, and of -z, -C and -E if they
    /// are given. IMAGE is left out. Up to 64 MiB of content are encoded with each, which takes as
    /// long as building all of these images; of more, a sample of 16 to 64 MiB is.
    #[arg(long, conflicts_with_all = ["verify", "timings", "index_only", "chunk_size", "chunk_device", "verity", "roothash_file"])]
    estimate: bool,

    /// Compare the image with the sources at the end
    ///
    /// All of it is read before the image gets its name.
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    like: LikeArgs,

    #[command(flatten)]
    seal: SealArgs,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Print the summary as one JSON object
    ///
    /// Even if standard output is not a terminal.
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    /// Print how long each activity took, summed over all threads
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    timings: bool,

    /// Print the summary, also without a terminal
    ///
    /// Without it, there is a summary only if standard output is a terminal.
    #[arg(help_heading = OUTPUT, short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Print only errors and warnings
    ///
    /// And the output of --json and --timings; no progress bar and no summary.
    #[arg(help_heading = OUTPUT, short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.estimate {
        // The parser wants at least one path. Messages about options name the source, because there
        // is not an image.
        let Some((source, upper)) = args.paths.split_first() else { return Ok(0) };
        if let Some(image) = args.estimated_image() {
            return Err(Failure::usage(image, "--estimate writes no image: leave this path out"));
        }
        let (options, given) = args.options(source, upper, source)?;
        let Args { quiet, json, .. } = *args;
        return estimate::run(estimate::Request { options, given, quiet, json });
    }
    let Some((image, [source, upper @ ..])) = args.paths.split_last() else {
        let missing = "the image is missing: ferofs build SOURCE... IMAGE";
        <Args as clap::Args>::augment_args(clap::Command::new("ferofs build"))
            .error(ErrorKind::MissingRequiredArgument, missing)
            .exit()
    };
    if image.is_dir() {
        let hint = "is a directory: the image comes last, as in ferofs build DIR IMAGE";
        return Err(Failure::about(image, hint));
    }
    let (mut options, settings) = args.options(source, upper, image)?;
    refuse_sources_as_output(&options, image)?;
    let like = args.like.options(image)?;
    args.overwrite.check(image, OutputKind::Image { offset: options.output.offset })?;
    if let Some(device) = options.data.chunks.as_ref().and_then(|chunks| chunks.device.as_ref()) {
        args.overwrite.check(device, OutputKind::Chunks)?;
    }
    let device = options.data.chunks.as_ref().and_then(|chunks| chunks.device.clone());
    let paths: Vec<&Path> = args.paths.iter().map(PathBuf::as_path).collect();
    device.iter().try_for_each(|device| refuse_as_output(device, &paths))?;
    let others: Vec<PathBuf> = args.paths.iter().cloned().chain(device).collect();
    args.seal.refuse_outputs(&others, args.overwrite)?;
    options.output.others = args.seal.files().cloned().collect();
    let seal = args.seal.apply(&mut options)?;
    let Args { quiet, verbose, json, timings, .. } = *args;
    let printed =
        PrintOptions { quiet, verbose, json, timings, hides: |_| false, settings: Some(&settings) };
    let sealed = seal.as_deref().map(|seal| (seal, &args.seal));
    let code = execute(&options, image, like.as_ref(), sealed, printed)?;
    seal.map_or(Ok(()), |seal| SealArgs::print(&seal, image, !args.json))?;
    Ok(code)
}

impl Args {
    /// The image that the command line names although an estimate writes none: the last path, which
    /// is not a source then.
    fn estimated_image(&self) -> Option<&Path> {
        let (last, sources) = self.paths.split_last()?;
        let first = sources.first()?;
        let is_layer = first.is_file() && last.exists();
        (!self.versions && !is_layer).then_some(last.as_path())
    }

    /// A directory cannot be one of several sources. Often, some of them were meant for an option.
    fn several_sources(&self, first: &Path, second: &Path, image: &Path) -> Failure {
        let [first, second, image] = [first, second, image].map(Escaped::path);
        let reason = format!(
            "a directory can only be the only source, but {first} and {second} were taken for sources, {image} for the image"
        );
        Failure::complete(reason).with_hint(if self.excludes.is_given() {
            "give --exclude before each pattern"
        } else {
            "`tar -c A B | ferofs build - IMAGE` joins directories, --versions stores them side by side"
        })
    }

    fn options(
        &self,
        source: &Path,
        upper: &[PathBuf],
        image: &Path,
    ) -> Result<(Options, Settings), Failure> {
        let mut versions = Vec::new();
        if self.versions {
            let sources = std::iter::once(source).chain(upper.iter().map(PathBuf::as_path));
            versions = sources.map(Version::parse).collect::<Result<Vec<_>, _>>()?;
        }
        let directories: Vec<PathBuf> =
            versions.iter().map(|version| version.directory.clone()).collect();
        let (source, upper) = match directories.split_first() {
            Some((first, others)) => (first.as_path(), others),
            None => (source, upper),
        };
        let mut options = Options::new(source);
        options.source.version_names = versions.into_iter().map(|version| version.name).collect();
        let selects_image = self.platform.is_some() || self.image_name.is_some();
        options.source.format = match self.from {
            Some(format) => format,
            None if selects_image && source == Path::new("-") => SourceFormat::Oci,
            None => SourceFormat::detect(source).without_subject()?,
        };
        if selects_image && options.source.format != SourceFormat::Oci {
            let reason = "--platform and --image-name select an image of an OCI image layout or of an archive of docker save, and this is \
                          neither";
            return Err(Failure::usage(source, reason));
        }
        if !self.versions
            && let Some(second) = upper.first()
        {
            let is_directory = options.source.format == SourceFormat::Directory;
            if is_directory || upper.iter().any(|path| path.is_dir()) {
                return Err(self.several_sources(source, second, image));
            }
        }
        options.source.upper_layers = upper.to_vec();
        options.source.whiteouts = match (self.aufs, upper) {
            (true, _) => Whiteouts::Overlay,
            (false, []) => Whiteouts::Keep,
            _ => Whiteouts::Apply,
        };
        options.image.block_size = match self.block_size {
            Some(size) => size,
            None if self.index_only => {
                natural_block_size(options.source.format, source).without_subject()?
            }
            None => BlockSize::DEFAULT,
        };
        if self.index_only {
            options.source.data = SourceData::External;
        }
        options.source.oci.platform = self.platform.clone();
        options.source.oci.name = self.image_name.clone();
        options.data.share_identical = !self.no_share;
        options.data.hot_files = self.hot_files()?;
        if let Some(file) = &self.sort {
            let text =
                text_file::read(file).map_err(|e| Failure::about(file, format!("read: {e}")))?;
            options.data.priorities = Priorities::parse(&text).concerning(file)?;
        }
        options.run.workers = self.workers;
        options.run.strict = is_strict();
        options.image.build_time = self.time;
        options.attributes.all_time = all_time(self.all_time, self.time)?;
        options.image.uuid = self.uuid;
        options.image.label = self.label.clone().map(OsString::into_vec).unwrap_or_default();
        options.source.excludes = self.excludes.excludes()?;
        for file in &self.pseudo_file {
            let text =
                text_file::read(file).map_err(|e| Failure::about(file, format!("read: {e}")))?;
            let definitions = Definitions::parse(&text).concerning(file)?;
            options.source.definitions.extend(definitions);
        }
        options.source.archive_limit_factor = self.archive_limits;
        options.source.one_file_system = self.one_file_system;
        options.source.skip_unreadable = self.skip_unreadable;
        self.owners.apply(&mut options);
        options.output.verify = self.verify;
        self.metadata.apply(&mut options)?;
        let may_default = !self.index_only && !self.metadata.has_chunks();
        let mut settings = self.compress.settings(options.image.block_size, may_default)?;
        settings.order = self.order.or(settings.order);
        settings.apply(&mut options).map_err(refused)?;
        Ok(match options.data.chunks.as_ref().map(|chunks| chunks.size) {
            Some(size) => (options, settings.in_chunks(size)),
            None => (options, settings),
        })
    }

    fn hot_files(&self) -> Result<Option<HotFiles>, Failure> {
        let Some(path) = &self.profile else { return Ok(None) };
        let profile = read_profile(path)?;
        Ok(Some(HotFiles::new(profile, self.store_hottest.unwrap_or(0).into())))
    }
}

/// The time of all files: of `--all-time=SECS`, or of `-T` with `--all-time` alone.
pub(super) fn all_time(
    option: Option<Option<i64>>,
    time: Option<i64>,
) -> Result<Option<Timestamp>, Failure> {
    let Some(seconds) = option else { return Ok(None) };
    let missing =
        || Failure::usage("--all-time".as_ref(), "no time: give --all-time=SECS, or -T too");
    let secs = seconds.or(time).ok_or_else(missing)?;
    Ok(Some(Timestamp { secs, nanos: 0 }))
}
