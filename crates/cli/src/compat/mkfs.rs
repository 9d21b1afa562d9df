//! `mkfs.erofs [OPTIONS] IMAGE [SOURCE]...`.
//!
//! [`args`] defines the command line, and [`crate::args::features`] the options of `-E`. This
//! module converts both to the options of the library, or to a refusal with its reason; [`sources`]
//! does this for the sources of the image. Callers write values directly after short options
//! (`-C65536`, `-zlz4hc,12`, `-EA,B`), write options after positional arguments, and search the
//! text of `--help`: the tests in `callers` have their command lines.

mod args;
#[cfg(test)]
mod callers;
mod incremental;
mod lists;
mod posix;
mod sources;

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};
use ferofs::NewFile;
use ferofs::build::{
    BlockSize, ChunkOptions, Exclude, FsConfig, Hint, Labels, Options, Params, Settings,
    SettingsError, SourceData, SourceFormat, Timestamp, Warning, XattrOptions, block_size, codec,
    compressor_names,
};

use ferofs::escape::Escaped;

use crate::args::byte_size;
use crate::args::exclude::relative;
use crate::args::image::ImageArgs;
use crate::args::outputs::refuse_as_outputs;
use crate::args::settings::nearest_name;
use crate::args::text_file;
use crate::args::with_negative_values;
use crate::cmd::tips::remove_guesses;
use crate::cmd::write::{PrintOptions, source_date_epoch};
use crate::compat::usage;
use crate::exit::{About, Concerning, FAILURE, Failure, Outcome, print_usage};
use crate::print::output::message;
use args::Args;

/// An argument that cannot be used, and the reason.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}{}{value}: {reason}", if value.is_empty() { "" } else { " " })]
struct Refusal {
    option: &'static str,
    value: String,
    reason: String,
}

impl From<SettingsError> for Refusal {
    fn from(error: SettingsError) -> Self {
        let reason = format!("{}{}", error.problem, nearest_name(&error));
        Self { option: error.option, value: error.value, reason }
    }
}

fn refusal(option: &'static str, value: String, reason: impl Into<String>) -> Refusal {
    Refusal { option, value, reason: reason.into() }
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    // Callers search the help for these words.
    let mut after_help =
        String::from("A tar is taken with --tar=f, --tar=i or --tar=headerball.\n\n");
    after_help += "Available compressors / supported compressors, and their options (lzma also has lc, lp, pb):";
    for name in compressor_names() {
        let Ok(Params { algorithm, level, .. }) = name.parse() else { continue };
        let codec = codec(algorithm);
        let (levels, sizes) = (codec.level_range, codec.dictionary_range);
        after_help +=
            &format!("\n  {name}[,level=<{levels}>] (default={level}) [,dictsize=<{sizes}>]");
    }
    Args::command().after_help(after_help)
}

impl Args {
    /// Parses a command line, the program's name first.
    fn parse_line(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let command = definition();
        let help = usage::help(command.clone());
        let matches =
            with_negative_values(command.override_help(help)).try_get_matches_from(line)?;
        let mut args = Self::from_arg_matches(&matches)?;
        // As erofs-utils: --all-root counts as both --force-uid=0 and --force-gid=0 at its place.
        let last = |id| matches.indices_of(id).and_then(Iterator::max);
        let is_before_root = |id| args.all_root && last(id) < last("all_root");
        let (uid, gid) = (is_before_root("force_uid"), is_before_root("force_gid"));
        args.force_uid = args.force_uid.filter(|_| !uid);
        args.force_gid = args.force_gid.filter(|_| !gid);
        Ok(args)
    }

    fn is_quiet(&self) -> bool {
        self.quiet || self.debug == Some(0)
    }

    /// Converts the arguments to options of the library. Reads only the file of --compress-hints.
    fn options(&self) -> Result<Options, Refusal> {
        self.refuse_unsupported()?;
        let mut settings = Settings::default();
        self.extended.iter().try_for_each(|list| settings.set("-E", list))?;
        settings.features.set_bits(self.zfeature_bits.unwrap_or(0))?;
        let mut options = self.sources()?;
        if let Some(size) = self.block_size {
            let reason = "not a power of two from 512 to 65536";
            options.image.block_size = BlockSize::from_bytes(size)
                .ok_or_else(|| refusal("-b", size.to_string(), reason))?;
        }
        if let Some(size) = self.pcluster_size
            && (size == 0 || !size.is_multiple_of(options.image.block_size.bytes64()))
        {
            let reason = "not a multiple of the block size";
            return Err(refusal("-C", size.to_string(), reason));
        }
        self.compression(&mut settings, options.image.block_size)?;
        self.xattrs(&mut options)?;
        self.uuid_and_label(&mut options)?;
        self.ownership(&mut options);
        self.times(&mut options);
        self.excludes(&mut options)?;
        options.inodes.keep_mtime = !self.ignore_mtime;
        if settings.methods.is_empty() {
            // As erofs-utils: without a compressor, options about compression are ignored.
            settings.features.ignore_compression();
        }
        settings.apply(&mut options)?;
        // Images for the tools of erofs-utils, whose versions before 1.10 extract holes wrongly.
        // Their mkfs.erofs makes none.
        options.data.chunk_holes = settings.features.holes;
        if let Some(compression) = &mut options.data.compression {
            compression.holes = settings.features.holes;
        }
        // As erofs-utils: an archive of 0 bytes is an archive without members.
        options.source.allow_empty_archives = true;
        options.source.hard_dereference = self.hard_dereference;
        options.source.archive_limit_factor = self.archive_limits;
        options.source.skip_unreadable = self.skip_unreadable;
        self.chunks(settings.features.chunk_entry, &mut options)?;
        options.output.offset = self.offset;
        options.data.alignment = self.dsunit.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        options.output.size_alignment = match self.fsalignblks {
            Some(unit) => {
                unit.checked_next_power_of_two().and_then(NonZeroU32::new).ok_or_else(|| {
                    refusal("--fsalignblks", unit.to_string(), "more than 2147483648")
                })?
            }
            None => NonZeroU32::MIN,
        };
        options.run.workers = self.workers.and_then(NonZeroUsize::new);
        Ok(options)
    }

    /// Refuses options of erofs-utils that ferofs does not support, or not together with the other
    /// options.
    fn refuse_unsupported(&self) -> Result<(), Refusal> {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        if let Some(value) = &self.s3 {
            return Err(refusal(
                "--s3",
                value.clone(),
                "ferofs does not read object stores; give a directory or a tar archive",
            ));
        }
        if let Some(value) = &self.gzinfo {
            return Err(refusal(
                "--gzinfo",
                text(value),
                "an index for random access to gzip data is not supported",
            ));
        }
        if let Some(zone) = self.metadata_zone.as_ref().filter(|zone| {
            zone.as_str() != "0"
                && (zone.is_empty() || zone.bytes().any(|kind| !b"id".contains(&kind)))
        }) {
            return Err(refusal("--MZ", zone.clone(), "not 0, or i and d"));
        }
        if let (Some(dir), None) = (&self.product_out, &self.fs_config_file) {
            let reason = "ferofs does not include Android's table of owners and modes; give --fs-config-file";
            return Err(refusal("--product-out", dir.to_string_lossy().into_owned(), reason));
        }
        let written_from_image =
            [("--block-list-file", &self.block_list_file), ("--vmdk-desc", &self.vmdk_desc)];
        for (option, file) in written_from_image {
            if let (Some(file), "-") = (file, self.image.to_string_lossy().as_ref()) {
                let reason = "reads the image again, which is not possible on standard output";
                return Err(refusal(option, file.to_string_lossy().into_owned(), reason));
            }
        }
        Ok(())
    }

    fn compression(&self, settings: &mut Settings, block: BlockSize) -> Result<(), Refusal> {
        let (compressors, metadata) = self.compressors()?;
        if let Some(path) = &self.compress_hints {
            let refuse =
                |reason: String| refusal("--compress-hints", path.display().to_string(), reason);
            let text = text_file::read_text(path)
                .map_err(|error| refuse(format!("cannot be read: {error}")))?;
            for hint in Hint::parse(&text, block) {
                match hint {
                    Ok(hint) => settings.hints.push(hint),
                    // As erofs-utils: files are encoded as if the line was missing.
                    Err(error) if error.is_size && self.is_quiet() => {}
                    Err(error) if error.is_size => {
                        message!("{}: {error}; the default is used", Escaped::path(path));
                    }
                    Err(_) if compressors.is_none() => {}
                    Err(error) => return Err(refuse(error.to_string())),
                }
            }
        }
        // As erofs-utils: without a compressor, -C, --zD and hints are ignored.
        let Some(compressors) = compressors else { return Ok(()) };
        settings.set("-z", &compressors)?;
        metadata.map_or(Ok(()), |value| settings.set("-m", &value))?;
        let saturated = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        settings.cluster = self.pcluster_size.map(saturated);
        settings.max_extent = self.max_extent_bytes.map(saturated);
        settings.directories =
            self.compress_directories.as_deref().is_some_and(|value| value != "0");
        Ok(())
    }

    /// The compressors of all `-z`, and the value of `-m` with the name of its compressor. As
    /// erofs-utils: without `-z`, the compressor of `-m` compresses data, too, and without any
    /// compressor `-m` has no effect.
    fn compressors(&self) -> Result<(Option<String>, Option<String>), Refusal> {
        let mut names: Vec<&str> = self
            .compressor
            .iter()
            .flat_map(|list| list.split(':'))
            .filter(|name| !name.is_empty())
            .collect();
        let metadata = match self.metadata.as_deref().map(|text| (text, text.split_once(':'))) {
            None => None,
            Some((text, None)) => Some(text.to_owned()),
            Some((text, Some((size, name)))) => match (name.is_empty(), name.parse::<usize>()) {
                (true, _) | (_, Ok(0)) => Some(size.to_owned()),
                (_, Ok(number)) => {
                    let reason = "-z has no compressor of this number; the first one is 0";
                    let name =
                        names.get(number).ok_or_else(|| refusal("-m", text.to_owned(), reason))?;
                    Some(format!("{size}:{name}"))
                }
                (_, Err(_)) if names.is_empty() => {
                    names.push(name);
                    Some(size.to_owned())
                }
                (_, Err(_)) => Some(text.to_owned()),
            },
        };
        if let (true, Some(size)) = (names.is_empty(), &metadata)
            && byte_size::parse::<u32>(size).is_none()
        {
            return Err(refusal("-m", size.clone(), "not a number of bytes"));
        }
        let metadata = metadata.filter(|_| !names.is_empty());
        Ok(((!names.is_empty()).then(|| names.join(":")), metadata))
    }

    /// `entry` is the size of chunk indexes in bytes that is asked for.
    fn chunks(&self, entry: Option<u8>, options: &mut Options) -> Result<(), Refusal> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let Some(size) = self.chunksize else {
            let Some(device) = &self.blobdev else { return Ok(()) };
            return Err(refusal("--blobdev", path(device), "needs --chunksize"));
        };
        if !size.is_power_of_two() || size < options.image.block_size.bytes64() {
            let reason = "not a power of two, or smaller than a block";
            return Err(refusal("--chunksize", size.to_string(), reason));
        }
        if let (Some(4), Some(device)) = (entry, &self.blobdev) {
            let reason = "chunk indexes of 4 bytes name no device; remove -E force-inode-blockmap";
            return Err(refusal("--blobdev", path(device), reason));
        }
        let mut chunks = ChunkOptions::new(size);
        chunks.force_indexes = entry == Some(8);
        chunks.device.clone_from(&self.blobdev);
        options.data.chunks = Some(chunks);
        Ok(())
    }

    fn xattrs(&self, options: &mut Options) -> Result<(), Refusal> {
        let xattrs = &mut options.xattrs;
        xattrs.root_min = self.root_xattr_isize;
        match self.xattr_tolerance {
            Some(..0) if self.file_contexts.is_some() => {
                return Err(refusal("-x", "-1".into(), "leaves out the labels of --file-contexts"));
            }
            Some(..0) => xattrs.keep = false,
            limit => {
                xattrs.inline_limit = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX))
            }
        }
        // The format has these prefixes already.
        let is_new =
            |prefix: &&String| !["user.", "trusted.", "security."].contains(&prefix.as_str());
        for prefix in self.xattr_prefix.iter().filter(is_new) {
            let parsed = XattrOptions::prefix(prefix.as_bytes());
            let reason = "not a prefix of attribute names, for example trusted.overlay.";
            xattrs
                .prefixes
                .push(parsed.ok_or_else(|| refusal("--xattr-prefix", prefix.clone(), reason))?);
        }
        if let Some(name) = &self.xattr_inode_digest {
            let parsed = XattrOptions::digest_name(name.as_bytes());
            let reason = "not the name of an extended attribute";
            xattrs.digest =
                Some(parsed.ok_or_else(|| refusal("--xattr-inode-digest", name.clone(), reason))?);
        }
        Ok(())
    }

    fn uuid_and_label(&self, options: &mut Options) -> Result<(), Refusal> {
        options.image.uuid = match self.uuid.as_deref() {
            None | Some("random") => None,
            Some(text) => {
                let uuid = crate::cmd::write::parse_uuid(text);
                Some(uuid.map_err(|reason| refusal("-U", text.to_owned(), reason.to_string()))?)
            }
        };
        if let Some(label) = &self.label {
            options.image.label = label.as_bytes().to_vec();
            if options.image.label.len() > 16 {
                let label = label.to_string_lossy().into_owned();
                return Err(refusal("-L", label, "labels have at most 16 bytes"));
            }
        }
        Ok(())
    }

    fn ownership(&self, options: &mut Options) {
        let root = self.all_root.then_some(0);
        options.attributes.force_uid = self.force_uid.or(root);
        options.attributes.force_gid = self.force_gid.or(root);
        options.attributes.uid_offset = self.uid_offset;
        options.attributes.gid_offset = self.gid_offset;
    }

    fn times(&self, options: &mut Options) {
        options.image.build_time = self.time;
        let all = self.time.filter(|_| !self.mkfs_time);
        options.attributes.all_time = all.map(|secs| Timestamp { secs, nanos: 0 });
    }

    fn excludes(&self, options: &mut Options) -> Result<(), Refusal> {
        for path in &self.exclude_path {
            options.source.excludes.push(Exclude::Path(relative(path)));
        }
        for text in &self.exclude_regex {
            let regex = posix::regex(text);
            let reason = "not a POSIX extended regular expression";
            let regex = regex.ok_or_else(|| refusal("--exclude-regex", text.clone(), reason))?;
            options.source.excludes.push(Exclude::Regex(regex));
        }
        Ok(())
    }

    /// Completes `options` with values from files and from the environment.
    fn read_files(&self, options: &mut Options) -> Result<(), Failure> {
        // As erofs-utils: an index of an archive always has blocks of 512 bytes, also with -b,
        // because members start at multiples of 512.
        let index = options.source.data == SourceData::External
            && options.source.format == SourceFormat::Tar;
        if index || (options.source.data, self.block_size) == (SourceData::External, None) {
            options.image.block_size =
                block_size(options.source.format, &options.source.path).without_subject()?;
        }
        let mount_point = self.mount_point.as_bytes();
        // Labels and configurations are looked up by paths without double slashes.
        let names: Vec<&[u8]> =
            mount_point.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        options.attributes.target.mount_point = names.join(&b'/');
        // As erofs-utils: $SOURCE_DATE_EPOCH has priority over -T, also for the times of files.
        if let Some(epoch) = source_date_epoch()? {
            options.image.build_time = Some(epoch);
            options.attributes.newest_time = Some(epoch);
            options.attributes.all_time = None;
        }
        if let Some(path) = &self.file_contexts {
            let text = text_file::read_text(path).concerning(path)?;
            options.attributes.target.labels = Some(Labels::parse(&text).concerning(path)?);
        }
        if let Some(path) = &self.fs_config_file {
            let text = text_file::read(path).concerning(path)?;
            options.attributes.target.fs_config = Some(FsConfig::parse(&text).concerning(path)?);
        }
        Ok(())
    }
}

impl Args {
    /// The files of the finished image and of its extra devices, which `option` needs.
    fn files(&self, options: &Options, option: &'static str) -> Result<ImageArgs, Refusal> {
        let mut devices: Vec<PathBuf> = self.blobdev.iter().cloned().collect();
        if options.source.data == SourceData::External {
            devices
                .push(options.source.plain_copy.as_ref().unwrap_or(&options.source.path).clone());
            devices.extend(options.source.upper_layers.iter().cloned());
        }
        if devices.iter().any(|device| device.as_os_str() == "-") {
            let reason = "needs the file of each extra device; give the archive as a file, not on standard input";
            return Err(refusal(option, String::new(), reason));
        }
        Ok(ImageArgs { offset: self.offset, devices, ..ImageArgs::of(self.image.clone()) })
    }
}

/// As erofs-utils: excludes and hints that match nothing are usual.
pub(super) fn hides(warning: &Warning) -> bool {
    matches!(warning, Warning::UnusedExclude { .. } | Warning::UnusedHint { .. })
}

/// Also no warnings about the ends of archives.
fn hides_when_quiet(warning: &Warning) -> bool {
    hides(warning)
        || matches!(
            warning,
            Warning::NoEndOfArchive { .. }
                | Warning::SingleZeroBlock { .. }
                | Warning::EmptyArchive { .. }
                | Warning::BytesAfterGzip { .. }
        )
}

/// Runs `mkfs.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args = match Args::parse_line(args) {
        Ok(args) => args,
        Err(mut error) => {
            remove_guesses(&mut error, args, definition);
            // As erofs-utils: every error has exit code 1.
            return Ok(print_usage(&error, FAILURE));
        }
    };
    if args.image.is_dir() {
        let reason = "is a directory: the image comes first, as in mkfs.erofs IMAGE DIR";
        return Err(Failure::about(&args.image, reason));
    }
    let mut options = args.options().concerning(&args.image)?;
    args.read_files(&mut options)?;
    if args.incremental.is_some() {
        return args.add_to_image(options);
    }
    let outputs = args.blobdev.iter().chain(&args.block_list_file).chain(&args.vmdk_desc);
    refuse_as_outputs(&outputs.map(PathBuf::as_path).collect::<Vec<_>>(), &[&args.image])?;
    options.output.others = args.block_list_file.iter().chain(&args.vmdk_desc).cloned().collect();
    let mut descriptor = None;
    if let Some(path) = &args.vmdk_desc {
        let files = args.files(&options, "--vmdk-desc").concerning(&args.image)?;
        // Created before the build, so that an unwritable path fails early.
        let file = NewFile::create(path).without_subject()?;
        descriptor = Some((path, files, file));
    }
    let quiet = args.is_quiet();
    let printed = PrintOptions {
        quiet,
        verbose: false,
        json: false,
        timings: false,
        hides: if quiet { hides_when_quiet } else { hides },
        settings: None,
    };
    let code = crate::cmd::write::execute(&options, &args.image, None, None, printed)?;
    if let Some(path) = &args.block_list_file {
        let image = args.files(&options, "--block-list-file").concerning(&args.image)?.open()?;
        let mut list = std::io::BufWriter::new(NewFile::create(path).without_subject()?);
        lists::write_block_list(&image, &options.attributes.target.mount_point, &mut list)
            .about(path)?;
        let list = list.into_inner().map_err(|e| Failure::about(path, e.into_error()))?;
        list.finish().without_subject()?;
    }
    if let Some((path, files, mut file)) = descriptor {
        lists::write_descriptor(&files.open()?, &files, &mut file).concerning(path)?;
        file.finish().without_subject()?;
    }
    Ok(code)
}
