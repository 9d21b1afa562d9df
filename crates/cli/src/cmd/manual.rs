//! `ferofs man`: manual pages, generated from the definitions of `--help` and from the examples.

use std::io::Write;
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use ferofs::NewFile;

use super::examples;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{About, Concerning, Failure, Outcome};

/// Write manual pages to a directory
///
/// One for each command and subcommand, and for the names of erofs-utils.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The directory; it is created if it does not exist
    dir: PathBuf,

    #[command(flatten)]
    overwrite: OverwriteArgs,
}

/// The version of a page, at its lower edge.
const SOURCE: &str = concat!("ferofs ", env!("CARGO_PKG_VERSION"));

/// Pages and their files.
type Pages = Vec<(PathBuf, Vec<u8>)>;

/// Runs `ferofs man`; `command` is the definition of the whole command line, and `others` are those
/// of other names of the program, with the sections of their pages.
pub(crate) fn man(args: &ManArgs, mut command: Command, others: Vec<(Command, &str)>) -> Outcome {
    command.build();
    std::fs::create_dir_all(&args.dir).concerning(&args.dir)?;
    let mut pages = Pages::new();
    add_pages(&mut pages, args, "ferofs", &command)?;
    for (mut command, section) in others {
        command.build();
        let name = command.get_name().to_owned();
        pages.push((args.dir.join(format!("{name}.{section}")), page(&name, section, command)?));
    }
    // Nothing is written if something else would be lost.
    for (path, _) in &pages {
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Failure::about(
                path,
                "not a regular file: a manual page cannot replace it",
            ));
        }
        args.overwrite.check(path, OutputKind::ManPage)?;
    }
    for (path, page) in pages {
        let mut file = NewFile::create(&path).without_subject()?;
        file.write_all(&page).concerning(&path)?;
        file.finish().without_subject()?;
    }
    Ok(0)
}

/// Adds the page `name` of `command`, and those of its subcommands: `ferofs-patch-create` is the
/// page of `ferofs patch create`.
fn add_pages(
    pages: &mut Pages,
    args: &ManArgs,
    name: &str,
    command: &Command,
) -> Result<(), Failure> {
    pages.push((args.dir.join(format!("{name}.1")), page(name, "1", command.clone())?));
    let subcommands =
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for sub in subcommands {
        add_pages(pages, args, &format!("{name}-{}", sub.get_name()), sub)?;
    }
    Ok(())
}

/// The page `name`, in the order of man-pages(7).
fn page(name: &str, section: &str, mut command: Command) -> Result<Vec<u8>, Failure> {
    // Of all options, the synopsis would be longer than a screen.
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let (has_arguments, has_subcommands) =
        (command.get_arguments().next().is_some(), command.has_subcommands());
    let more = command.get_after_help().map(ToString::to_string);
    let files = files(&command);
    // The generator leaves out the text of options that `-h` does not show.
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    let command = command.display_name(name).override_usage(usage);
    let man = Man::new(command).title(name).section(section).source(SOURCE).manual("ferofs");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_arguments {
        man.render_options_section(&mut page)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    if let Some(more) = more {
        roff.control("SH", ["NOTES"]).text([roman(more)]);
    }
    let (examples, see_also) = examples::of_page(name).unwrap_or_default();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (line, what) in examples {
        roff.control("TP", []).text([bold(*line)]).text([roman(*what)]);
    }
    add_list(&mut roff, "EXIT STATUS", exit_status(name));
    add_list(&mut roff, "FILES", &files);
    let others = if name == "ferofs" { "" } else { "ferofs(1)" };
    let pages: Vec<&str> =
        [others, see_also].into_iter().filter(|pages| !pages.is_empty()).collect();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// Adds a section with terms and what they mean, if there are any.
fn add_list(roff: &mut Roff, title: &str, list: &[(&str, &str)]) {
    if list.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (term, meaning) in list {
        roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
    }
}

/// The exit codes of the command with this page.
fn exit_status(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "ferofs-check" => &[
            ("0", "The image is sound."),
            ("4", "It is damaged, or not an EROFS image."),
            ("8", "It could not be read, or the check stopped at a limit."),
            ("16", "Wrong usage."),
        ],
        "ferofs-diff" => &[("0", "No differences."), ("1", "Differences."), ("2", "An error.")],
        "mkfs.erofs" | "fsck.erofs" => {
            &[("0", "Done; fsck.erofs: the image is sound."), ("1", "Anything else.")]
        }
        _ => &[
            ("0", "Done."),
            ("1", "It failed, or some files failed."),
            ("2", "Wrong usage, or standard output could not be written."),
        ],
    }
}

/// Files that the command uses beside those that the command line names.
fn files(command: &Command) -> Vec<(&'static str, &'static str)> {
    let known = [
        (
            "dir",
            "/etc/fstab",
            "Images that are mounted at the start of the system: the type erofs.ferofs.",
        ),
        (
            "dir",
            "/run/ferofs",
            "How images were mounted, for mount.erofs --reattach; $XDG_RUNTIME_DIR/ferofs for users.",
        ),
        (
            "cache_dir",
            "/var/cache/ferofs",
            "What was fetched from servers by root; ~/.cache/ferofs for users.",
        ),
        (
            "auth_file",
            "~/.docker/config.json",
            "Credentials of registries, beside podman's auth.json.",
        ),
        ("netrc", "~/.netrc", "Users and passwords of web servers, with --netrc."),
        ("paths", "$TMPDIR", "Archives from pipes and compressed archives, unpacked (/tmp)."),
    ];
    let is_mount = matches!(command.get_name(), "mount" | "umount" | "mount.erofs" | "erofsfuse");
    let is_build = command.get_name() == "build";
    let has = |id: &str| match id {
        "dir" => is_mount,
        "paths" => is_build,
        id => command.get_arguments().any(|arg| arg.get_id() == id),
    };
    known
        .into_iter()
        .filter(|(id, ..)| has(id))
        .map(|(_, file, use_of_it)| (file, use_of_it))
        .collect()
}
