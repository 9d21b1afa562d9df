//! `fsck.erofs [OPTIONS] IMAGE`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use ferofs::escape::Escaped;
use ferofs::extract::Existing;
use ferofs::{check, extract};

use crate::args::image::ImageArgs;
use crate::cmd::check::{CheckOutcome, open_and_check, print_findings};
use crate::cmd::extract::{FromArgs, execute};
use crate::exit::{About, FAILURE, Failure, Outcome};
use crate::print::output::{message, print_line};
use crate::print::verbosity;

/// Check an EROFS image, or extract it.
#[derive(Parser, Debug)]
#[command(name = "fsck.erofs", version = super::version::FSCK, disable_version_flag = true, args_override_self = true)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Decode all data; with DIR, extract the files to it
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    extract: Option<Option<PathBuf>>,

    #[command(flatten)]
    from: FromArgs,

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

    /// Print the compression ratio; decodes all data
    #[arg(short = 'p')]
    print_ratio: bool,

    /// Accepted without effect: the level of messages
    #[arg(short = 'd', value_name = "LEVEL")]
    debug: Option<u8>,

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
            let flags = yes.map(|flag| (at(flag), true)).into_iter().chain(no.map(|flag| (at(flag), false)));
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
        Err(error) => return Ok(crate::exit::print_usage_as_fsck(&error)),
    };
    if let Some(Some(target)) = &args.extract {
        return args.extract_to(target);
    }
    let content = args.extract.is_some() || args.print_ratio;
    let mut options = check::Options::default();
    options.content = content;
    match open_and_check(&args.image, &options)? {
        CheckOutcome::NotOpened(..) => Ok(FAILURE),
        CheckOutcome::Stopped(image, report, error) => {
            print_findings(&args.image.path, &image, &report);
            message!("{}: {error}", Escaped::path(&args.image.path));
            Ok(FAILURE)
        }
        CheckOutcome::Complete(image, report) => {
            print_findings(&args.image.path, &image, &report);
            if args.print_ratio && report.content_bytes > 0 {
                let image = std::fs::metadata(&*args.image.path).map_or(0, |metadata| metadata.len());
                let ratio = image as f64 * 100.0 / report.content_bytes as f64;
                print_line!("Compression ratio: {image} / {} ({ratio:.2}%)", report.content_bytes)?;
            }
            if !report.is_sound() {
                return Ok(FAILURE);
            }
            // The whole image is checked, but the file of --path or --nid must exist too.
            args.from.find(&image).about(&args.image.path)?;
            Ok(0)
        }
    }
}

impl Args {
    fn parse_line(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let mut args = Self::from_arg_matches(&matches)?;
        args.preserve_options = PreserveOptions::new(&matches);
        Ok(args)
    }

    fn extract_to(&self, target: &Path) -> Outcome {
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
        let image = self.image.open()?;
        let from = self.from.find(&image).about(&self.image.path)?;
        // As erofs-utils: no progress and no summary.
        verbosity::set(true, false);
        execute(&self.image.path, &image, &from, target, &options)
    }
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
            let given = args(&format!("fsck.erofs {line} IMG"));
            let PreserveOptions { owners, permissions } = given.preserve_options;
            assert_eq!((owners.unwrap_or(true), permissions.unwrap_or(true)), expected, "{line}");
        }
    }
}
