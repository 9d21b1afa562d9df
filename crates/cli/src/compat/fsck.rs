//! `fsck.erofs [OPTIONS] IMAGE`.
//!
//! As erofs-utils, prints only what is wrong, and more with `-d3` and above.

mod digests;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use ferofs::escape::Escaped;
use ferofs::extract::Existing;
use ferofs::read::walk::Walk;
use ferofs::read::{FileOffset, Image, Inode, OpenOptions};
use ferofs::{check, extract};

use super::dump;
use crate::args::image::{ImageArgs, work_limit};
use crate::args::with_negative_values;
use crate::cmd::check::{CheckOutcome, check_opened, print_findings};
use crate::cmd::extract::{FromArgs, execute};
use crate::cmd::tips::remove_guesses;
use crate::exit::{About, Concerning, FAILURE, Failure, Outcome};
use crate::print::output::message;

/// The level of `-d` from which on warnings are printed, and the default.
const WARNINGS: u8 = 2;
/// The level of `-d` from which on the result of a successful check is printed.
const INFORMATION: u8 = 3;

/// Check an EROFS image, or extract it.
#[derive(Parser, Debug)]
#[command(name = "fsck.erofs", version = super::version::FSCK.as_str(), disable_version_flag = true, args_override_self = true, mut_arg("offset", |arg| arg.hide_short_help(true)))]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Decode all data; with DIR, extract the files to it
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    extract: Option<Option<PathBuf>>,

    #[command(flatten)]
    from: FromArgs,

    /// Do not verify the superblock's checksum
    #[arg(long)]
    no_sbcrc: bool,

    /// Verify the digests that `mkfs.erofs --xattr-inode-digest` stored; decodes all data
    #[arg(long)]
    xattr_inode_digest: bool,

    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,

    /// Allow extracting to the root directory
    #[arg(long)]
    force: bool,

    /// Set owners and permissions (default for root)
    #[arg(long)]
    preserve: bool,

    /// Do not set owners, and apply the umask to permissions (default for other users)
    #[arg(long)]
    no_preserve: bool,

    /// Set owners
    #[arg(long)]
    preserve_owner: bool,

    /// Do not set owners
    #[arg(long)]
    no_preserve_owner: bool,

    /// Set permissions without applying the umask
    #[arg(long)]
    preserve_perms: bool,

    /// Apply the umask to permissions
    #[arg(long)]
    no_preserve_perms: bool,

    /// Set extended attributes
    #[arg(long, overrides_with = "no_xattrs")]
    xattrs: bool,

    /// Do not set extended attributes (default)
    #[arg(long)]
    no_xattrs: bool,

    /// With -d3 and above, print the compression ratio of all files
    #[arg(short = 'p')]
    print_ratio: bool,

    /// Level of messages, 0 to 9; from 3 on, print the result of a successful check
    #[arg(short = 'd', value_name = "LEVEL", default_value_t = WARNINGS, value_parser = clap::value_parser!(u8).range(0..=9))]
    debug: u8,

    /// Accepted without effect: the program repairs nothing
    #[arg(short = 'a', visible_short_alias = 'A')]
    automatic: bool,

    /// Accepted without effect: the program asks no questions
    #[arg(short = 'y')]
    yes: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[arg(skip)]
    preserve_options: PreserveOptions,
}

/// Whether to set owners and permissions; `None`: the default for this user.
#[derive(Clone, Copy, Debug, Default)]
struct PreserveOptions {
    owners: Option<bool>,
    permissions: Option<bool>,
}

impl PreserveOptions {
    /// The last option on the command line wins, for owners and for permissions separately.
    fn new(line: &ArgMatches) -> Self {
        let at = |flag: &str| {
            let given = line.value_source(flag) == Some(ValueSource::CommandLine);
            line.index_of(flag).filter(|_| given)
        };
        let last = |yes: [&'static str; 2], no: [&'static str; 2]| {
            let flags = yes
                .map(|flag| (at(flag), true))
                .into_iter()
                .chain(no.map(|flag| (at(flag), false)));
            flags.filter_map(|(at, keep)| Some((at?, keep))).max().map(|(_, keep)| keep)
        };
        Self {
            owners: last(["preserve", "preserve_owner"], ["no_preserve", "no_preserve_owner"]),
            permissions: last(["preserve", "preserve_perms"], ["no_preserve", "no_preserve_perms"]),
        }
    }
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs `fsck.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args = match Args::parse_line(args) {
        Ok(args) => args,
        Err(mut error) => {
            remove_guesses(&mut error, args, definition);
            return Ok(crate::exit::print_usage(&error, FAILURE));
        }
    };
    let image = args.open();
    if let (Ok(_), true) = (&image, args.informs()) {
        for (number, device) in args.image.devices.iter().enumerate() {
            inform(&format!(
                "erofs_io: successfully to open blob{number} {}",
                Escaped::path(device)
            ));
        }
        inform(&format!("erofs_io: successfully to open {}", Escaped::path(&args.image.path)));
    }
    if let Some(Some(target)) = &args.extract {
        return args.extract_to(&image?, target);
    }
    let mut options = check::Options::default();
    options.content = args.extract.is_some();
    match check_opened(image, &options) {
        CheckOutcome::NotOpened(..) => Ok(FAILURE),
        CheckOutcome::Stopped(image, report, error) => {
            print_findings(&args.image.path, &image, &report);
            message!("{}: {error}", Escaped::path(&args.image.path));
            Ok(FAILURE)
        }
        CheckOutcome::Complete(image, report) => {
            print_findings(&args.image.path, &image, &report);
            if !report.is_sound() {
                return Ok(FAILURE);
            }
            // The whole image is checked, but the file of --path or --nid must exist too.
            args.from.find(&image).about(&args.image.path)?;
            args.verify_digests(&image)?;
            args.print_success(&image, "No errors found")?;
            Ok(0)
        }
    }
}

impl Args {
    fn parse_line(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = with_negative_values(Self::command()).try_get_matches_from(line)?;
        let mut args = Self::from_arg_matches(&matches)?;
        args.preserve_options = PreserveOptions::new(&matches);
        let PreserveOptions { owners, permissions } = args.preserve_options;
        let given = [
            ("--force", args.force),
            ("--overwrite", args.overwrite),
            ("--[no-]preserve[-owner|-perms]", owners.is_some() || permissions.is_some()),
        ];
        if let (None | Some(None), Some((option, _))) =
            (&args.extract, given.iter().find(|(_, given)| *given))
        {
            let problem = format!("{option} needs --extract=DIR");
            return Err(Self::command().error(ErrorKind::MissingRequiredArgument, problem));
        }
        Ok(args)
    }

    fn open(&self) -> Result<Image, Failure> {
        let mut options = OpenOptions::default();
        options.work_limit = work_limit(self.image.work_limit);
        options.verify_checksum = !self.no_sbcrc;
        self.image.open_with(&options)
    }

    const fn informs(&self) -> bool {
        self.debug >= INFORMATION
    }

    fn verify_digests(&self, image: &Image) -> Result<(), Failure> {
        if !self.xattr_inode_digest {
            return Ok(());
        }
        let unsigned = digests::verify(image, self.informs()).concerning(&self.image.path)?;
        for nid in unsigned.into_iter().filter(|_| self.debug >= WARNINGS) {
            message!("nid {}: no digest, skipped", nid.get());
        }
        Ok(())
    }

    fn print_success(&self, image: &Image, result: &str) -> Result<(), Failure> {
        if self.informs() {
            inform(&format!("erofs: {result}"));
            if self.print_ratio {
                let ratio =
                    compression_ratio(image, self.extract.is_some()).about(&self.image.path)?;
                inform(&format!("erofs: Compression ratio: {ratio}(%)"));
            }
        }
        Ok(())
    }

    fn extract_to(&self, image: &Image, target: &Path) -> Outcome {
        if target.as_os_str().is_empty() {
            return Err(Failure::about(Path::new("--extract"), "needs a directory after the ="));
        }
        if target == Path::new("/") && !self.force {
            return Err(Failure::about(Path::new("--extract=/"), "needs --force"));
        }
        let mut options = extract::Options::default();
        options.existing = if self.overwrite { Existing::Replace } else { Existing::Refuse };
        options.permissions = self.preserve_options.permissions.unwrap_or(options.owners);
        options.owners = self.preserve_options.owners.unwrap_or(options.owners);
        options.xattrs = self.xattrs;
        let from = self.from.find(image).about(&self.image.path)?;
        self.verify_digests(image)?;
        // As erofs-utils: no progress and no summary.
        crate::print::output::set(true, false);
        let code = execute(&self.image.path, image, &from, target, &options)?;
        if code == 0 {
            self.print_success(image, "Extracted filesystem successfully")?;
        }
        Ok(code)
    }
}

/// Prints information as erofs-utils, which print all messages to standard error.
fn inform(text: &str) {
    // An error here cannot be reported: standard error is the stream for reports.
    let _ = writeln!(io::stderr(), "<I> {text}");
}

/// The percentage of all blocks of content that the files take on the disk, as erofs-utils counts
/// them: data that two files share counts twice, and a file with two names too, unless it is
/// `extracted`.
fn compression_ratio(image: &Image, extracted: bool) -> ferofs::Result<String> {
    let block = image.superblock().block_size.bytes64();
    let (mut stored, mut content) = (0u64, 0u64);
    let mut add = |inode: &Inode| -> ferofs::Result<()> {
        let mut bytes = 0u64;
        if inode.layout().is_compressed() {
            let extents = image.extents(inode, FileOffset::new(0))?;
            let form = dump::ExtentForm::of(inode, &extents);
            for extent in extents {
                bytes = bytes.saturating_add(dump::placed(image, form, &extent?).2);
            }
        } else {
            bytes = inode.size();
        }
        stored = stored.saturating_add(bytes.div_ceil(block));
        Ok(())
    };
    if let Some(packed) = image.superblock().packed {
        add(&image.inode(packed)?)?;
    }
    for entry in Walk::new(image) {
        let entry = entry?;
        if entry.first || !extracted {
            let inode = entry.inode?;
            add(&inode)?;
            content = content.saturating_add(inode.size().div_ceil(block));
        }
    }
    Ok(dump::percent(stored, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::parse_line(line.split_whitespace()).unwrap()
    }

    #[test]
    fn parses_the_command_lines_of_known_callers() {
        assert_eq!(args("fsck.erofs IMG").extract, None);
        assert_eq!(args("fsck.erofs --extract IMG").extract, Some(None));
        let to = args("fsck.erofs --extract=DIR --no-preserve --xattrs --path=/a IMG");
        assert_eq!(to.extract, Some(Some("DIR".into())));
        assert!(to.no_preserve && to.xattrs);
        assert!(args("fsck.erofs -p -a -A -y -d9 IMG").print_ratio);
        assert!(args("fsck.erofs --no-sbcrc --xattr-inode-digest IMG").no_sbcrc);
        assert_eq!(args("fsck.erofs --extract=DIR --nid=0x24 IMG").from.nid, Some(36));
    }

    #[test]
    fn the_last_preserve_option_wins() {
        for (line, expected) in [
            ("", (true, true)),
            ("--no-preserve", (false, false)),
            ("--no-preserve --preserve-perms", (false, true)),
            ("--preserve-perms --no-preserve", (false, false)),
            ("--no-preserve-owner --preserve", (true, true)),
            ("--preserve --no-preserve-owner", (false, true)),
            ("--no-preserve --preserve", (true, true)),
        ] {
            let given = args(&format!("fsck.erofs --extract=DIR {line} IMG"));
            let PreserveOptions { owners, permissions } = given.preserve_options;
            assert_eq!((owners.unwrap_or(true), permissions.unwrap_or(true)), expected, "{line}");
        }
    }

    #[test]
    fn options_about_extraction_need_a_directory() {
        for line in [
            "--force",
            "--overwrite",
            "--preserve",
            "--no-preserve-owner --extract",
            "--no-preserve-perms",
        ] {
            let parsed = Args::parse_line(format!("fsck.erofs {line} IMG").split_whitespace());
            assert!(parsed.unwrap_err().to_string().contains("needs --extract=DIR"), "{line}");
        }
    }
}
