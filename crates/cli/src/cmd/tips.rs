//! What an error suggests for words of other tools: options of squashfs-tools, erofs-utils, tar and
//! DwarFS, and names that a command has elsewhere.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands that do not exist, and what does their task.
const COMMANDS: [(&str, &str); 28] = [
    ("add", "ferofs patch add IMAGE DIR"),
    ("append", "ferofs patch add IMAGE DIR"),
    ("apply", "ferofs patch apply IMAGE PATCH"),
    ("compare", "ferofs diff A B"),
    ("convert", "ferofs build FILE IMAGE converts a file: a tar archive or another EROFS image"),
    ("create", "ferofs build DIR IMAGE"),
    ("digest", "ferofs verity digest IMAGE for an image, ferofs cat --sums IMAGE for its files"),
    ("dump", "ferofs inspect IMAGE"),
    ("find", "ferofs ls IMAGE '/etc/*.conf'"),
    ("fsck", "ferofs check IMAGE"),
    ("info", "ferofs inspect IMAGE"),
    ("list", "ferofs ls IMAGE"),
    ("log", "ferofs patch log IMAGE"),
    ("make", "ferofs build DIR IMAGE"),
    ("mkfs", "ferofs build DIR IMAGE"),
    ("mksquashfs", "ferofs build DIR IMAGE"),
    ("pack", "ferofs build DIR IMAGE"),
    ("restore", "ferofs extract IMAGE DIR"),
    ("rollback", "ferofs patch rollback IMAGE"),
    ("seal", "ferofs verity format IMAGE"),
    ("sign", "ferofs verity sign ROOTHASH, ferofs patch sign PATCH, or ferofs delta sign DELTA"),
    ("stat", "ferofs inspect IMAGE"),
    ("test", "ferofs check --deep IMAGE"),
    ("tree", "ferofs ls --recursive IMAGE"),
    ("unpack", "ferofs extract IMAGE DIR"),
    ("unsquashfs", "ferofs extract IMAGE DIR"),
    ("version", "ferofs --version"),
    ("verify", "ferofs verity verify IMAGE ROOTHASH, or ferofs check --deep IMAGE"),
];

/// Commands with commands of their own, and the first ones to call.
const FIRST_COMMANDS: [(&str, &str); 3] = [
    ("delta", "ferofs delta create OLD NEW -o DELTA, then ferofs delta apply OLD DELTA NEW"),
    ("patch", "ferofs patch create OLD NEW -o PATCH, then ferofs patch apply IMAGE PATCH"),
    ("verity", "ferofs verity format IMAGE, then ferofs verity verify IMAGE ROOTHASH"),
];

/// Commands, options that they do not have, and what does the same.
const OPTIONS: [(&str, &str, &str); 38] = [
    ("build", "-e", "`--exclude /NAME` leaves a file out; one option for each name"),
    ("build", "--exclude-path", "`--exclude /PATH` leaves a path out"),
    ("build", "-X", "`--exclude-from FILE` takes a pattern a line"),
    ("build", "--dedupe", "`-E dedupe` stores the same data once"),
    (
        "build",
        "--owner",
        "`--force-uid UID --force-gid GID` gives all files to one user, `--all-root` to root",
    ),
    ("build", "-f", "images replace images; `--force` replaces files of other kinds"),
    ("build", "-i -o --input --output", "without options: ferofs build DIR IMAGE"),
    (
        "build",
        "-l --compress-level --level",
        "`-0` to `-9` are levels, and so is the number in `-z zstd,19`",
    ),
    (
        "build",
        "-p --device-table --devtable",
        "`--pseudo-file FILE` has such lines: `dev/console c 600 0 5 5 1`",
    ),
    ("build", "-d", "`--verbose` prints the summary, `--quiet` only errors"),
    (
        "build",
        "--tar",
        "tar archives are recognised by their content; `--index-only` leaves the data in them",
    ),
    ("build", "--clean --incremental", "`ferofs patch add IMAGE SOURCE` adds to an image"),
    ("build", "--blobdev", "`--chunk-device FILE` takes the data"),
    (
        "build",
        "--fs-config-file --ovlfs-strip",
        "mkfs.erofs takes it: `ferofs links DIR` makes that name",
    ),
    (
        "check",
        "--repair",
        "build the image again, or take another copy; `ferofs patch repair` restores one that was patched",
    ),
    ("check", "--extract", "ferofs extract IMAGE DIR; `--deep` only decodes"),
    (
        "check",
        "--check-integrity --checksum",
        "`--roothash HEX` finds each changed byte, `--deep` data that cannot be decoded",
    ),
    ("check", "-a -d -n -p -y", "`check` only reads, and takes the image: ferofs check IMAGE"),
    ("check", "-i --input", "the image needs no option: ferofs check IMAGE"),
    (
        "extract",
        "-C -d -i -o --input --output",
        "the directory follows the image: ferofs extract IMAGE DIR",
    ),
    ("extract", "-f", "`--overwrite` replaces files that exist"),
    ("extract", "-x", "ferofs extract IMAGE DIR, or some files: ferofs extract IMAGE DIR PATTERN"),
    ("extract", "-l -t --list", "ferofs ls -lR IMAGE lists the files"),
    ("extract", "--strip-components", "`--path DIR` starts at a directory of the image"),
    (
        "mount",
        "--overlay",
        "`mount -t overlay -o lowerdir=DIR,upperdir=U,workdir=W overlay TARGET` takes changes over a mounted image",
    ),
    ("mount", "-r --read-only", "mounts are always read-only"),
    ("mount", "-t --types", "no type is needed: ferofs mount IMAGE DIR"),
    ("inspect", "-f", "`--force` replaces a file of another kind"),
    ("inspect", "--cat", "ferofs cat IMAGE PATH"),
    ("inspect", "--ls", "ferofs ls IMAGE PATH"),
    ("inspect", "-e --nid", "`--path PATH` shows the extents of a file"),
    ("inspect", "-s -S", "without an option, all figures of the image are shown"),
    ("ls", "-S --sort", "`ferofs ls -lR IMAGE | sort -nk5` sorts files by size"),
    ("ls", "-r -t", "`ferofs ls -lR IMAGE | sort -k6` sorts files by time"),
    ("ls", "-s --size", "`ferofs du -a IMAGE` shows what files take in the image"),
    ("ls", "-i --inode", "`--json` prints the inode numbers"),
    (
        "mount",
        "--profile",
        "`--pin PROFILE` keeps the data of a profile decoded; `--record-profile FILE` makes one",
    ),
    (
        "pull",
        "--insecure-no-verify",
        "images without a root hash need no option; `--roothash HEX` verifies what is fetched",
    ),
];

/// Commands, options of mksquashfs and unsquashfs with one dash and several letters, and what does
/// the same. The parser would take such a word for several options, and the last letters for a
/// value.
const LONG_OPTIONS: [(&str, &str, &str); 32] = [
    (
        "build",
        "-comp -Xcompression-level -Xhc -Xhelp",
        "`-z` chooses the compressor, as in `-z zstd,15`; xz is called lzma, gzip deflate",
    ),
    ("build", "-no-compression -noD -noDataCompression", "`-z none` stores data uncompressed"),
    (
        "build",
        "-tailends -always-use-fragments",
        "`-E fragments` packs the tails of files together",
    ),
    (
        "build",
        "-no-fragments -no-tailends -noF -noFragmentCompression",
        "`-E ^fragments` packs no tails of files together",
    ),
    ("build", "-no-duplicates", "`--no-share` stores the data of each file"),
    ("build", "-tar", "tar archives are recognised by their content; `-` is standard input"),
    (
        "build",
        "-wildcards",
        "`--exclude` takes patterns: '/*.o' holds at the top, '*.o' everywhere",
    ),
    (
        "build",
        "-ef",
        "`--exclude-from FILE` takes a pattern a line: /NAME at the top, NAME everywhere",
    ),
    ("build", "-regex -max-depth", "`--exclude-regex REGEX` leaves out paths that it matches"),
    ("build", "-one-file-system -one-file-system-x", "`--one-file-system` does this"),
    ("build", "-no-hardlinks", "`--hard-dereference` stores each hard link as a file"),
    ("build", "-pf -xattrs-add", "`--pseudo-file FILE` takes such lines from a file"),
    (
        "build",
        "-root-mode -root-uid -root-gid -root-time -default-mode -default-uid -default-gid",
        "`--pseudo-file FILE` sets owners and modes: `/ m 755 0 0` is a line for the root directory",
    ),
    ("build", "-sort", "`--sort FILE` takes the same lines"),
    ("build", "-xattrs", "extended attributes are stored, unless `--no-xattrs` is given"),
    ("build", "-no-xattrs", "`--no-xattrs`, with two dashes"),
    ("build", "-all-root -root-owned", "`--all-root` gives all files to root"),
    ("build", "-force-uid", "`--force-uid UID` takes a number"),
    ("build", "-force-gid", "`--force-gid GID` takes a number"),
    ("build", "-uid-gid-offset", "`--uid-offset N` and `--gid-offset N` add to owners and groups"),
    (
        "build",
        "-mkfs-time -fstime",
        "`-T SECONDS` sets the build time, `--all-time=SECONDS` those of all files",
    ),
    ("build", "-inode-time -all-time", "`--all-time=SECONDS` sets the times of all files"),
    ("build", "-repro -repro-time", "`-T SECONDS -U UUID` makes the same bytes of the same source"),
    ("build", "-noappend", "an image that exists is replaced; `ferofs patch add` appends"),
    ("build", "-stream", "`-` as the image is standard output"),
    ("build", "-offset", "`--offset BYTES`, with two dashes"),
    ("build", "-nopad", "images end with a block; `--align-size BLOCKS` rounds them up"),
    ("build", "-processors", "`--workers N` sets the number of threads"),
    ("build", "-quiet -progress -no-progress -percentage", "`--quiet` prints only errors"),
    ("build", "-info -info-file", "`--verbose` prints the summary"),
    ("extract", "-dest", "the directory follows the image: ferofs extract IMAGE DIR"),
    ("extract", "-force", "`--overwrite` replaces files that exist"),
];

/// Options of mksquashfs that ferofs does not need or have.
const WITHOUT_COUNTERPART: &str = "-noI -noId -noX -noInodeCompression -noIdTableCompression -noXattrCompression -no-sparse -ignore-zeros \
    -numeric-owner -no-strip -tarstyle -cpiostyle -cpiostyle0 -keep-as-directory -root-becomes -pd -pseudo-dir -pseudo-override -action \
    -action-file -log-action -log-action-file -true-action -true-action-file -false-action -false-action-file -xattrs-exclude \
    -xattrs-include -exit-on-error -force-file-mode -force-dir-mode -exports -no-exports -recover -recovery-path -no-recovery -fix -mem \
    -mem-percent -mem-default -single-reader -small-readers -block-readers -overcommit -throttle -limit -Xbcj -Xdict-size";

/// The error of a word that is an option of mksquashfs or unsquashfs, with what does the same.
/// `program` is the definition of the command line.
pub(crate) fn option_of_squashfs_tools(
    program: &clap::Command,
    args: &[OsString],
) -> Option<clap::Error> {
    let command = args.get(1)?.to_str()?;
    let words = args.get(2..)?.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    let (word, tip) =
        words.into_iter().find_map(|word| Some((word, long_option(command, word)?)))?;
    let mut program = program.clone();
    program.build();
    let definition = program.find_subcommand_mut(command)?;
    let mut error = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(definition);
    error.insert(ContextKind::InvalidArg, ContextValue::String(word.to_owned()));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error.insert(ContextKind::Usage, ContextValue::StyledStr(definition.render_usage()));
    Some(error)
}

fn long_option(command: &str, word: &str) -> Option<&'static str> {
    let has = |words: &str| words.split_whitespace().any(|known| known == word);
    let known = LONG_OPTIONS.iter().find(|(name, words, _)| *name == command && has(words));
    known.map(|(.., tip)| *tip).or_else(|| {
        (command == "build" && has(WITHOUT_COUNTERPART)).then_some(
            "ferofs has no such option; docs/guide/squashfs-tools.md says what it does instead",
        )
    })
}

/// The error of a command line, with suggestions for words of other tools, and none for commands
/// that only ferofs itself calls.
pub(crate) fn with_tips(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    // What -h stands for in `ls` and `du`.
    if matches!(error.get(ContextKind::SuggestedArg), Some(ContextValue::String(name)) if name == "--short-help")
    {
        error.remove(ContextKind::SuggestedArg);
    }
    if let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let commands = super::Cli::command();
        names.retain(|name| {
            commands.find_subcommand(name).is_none_or(|command| !command.is_hide_set())
        });
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    let command = args.get(1).and_then(|command| command.to_str()).unwrap_or_default();
    if let Some(tip) = tip(&error, command, args) {
        error.remove(ContextKind::SuggestedSubcommand);
        if error.remove(ContextKind::SuggestedArg).is_some() {
            show_whole_usage(&mut error, args, super::Cli::command());
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    } else {
        remove_guesses(&mut error, args, super::Cli::command);
    }
    error
}

fn tip(error: &clap::Error, command: &str, args: &[OsString]) -> Option<&'static str> {
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(name, _)| *name == command).map(|(_, tip)| *tip)
    };
    let word = text_of(error, ContextKind::InvalidArg);
    match error.kind() {
        // `convert` exists, and takes two names of registries.
        ErrorKind::MissingRequiredArgument if command == "convert" => find(&COMMANDS),
        ErrorKind::InvalidSubcommand if args.get(2).is_none_or(|next| next != command) => {
            find(&COMMANDS).or_else(|| {
                error
                    .get(ContextKind::SuggestedSubcommand)
                    .is_none()
                    .then(|| find(&FIRST_COMMANDS))
                    .flatten()
            })
        }
        ErrorKind::ValueValidation
            if word == "[ROOTHASH]"
                && args.get(2).is_some_and(|verb| verb == "verify")
                && args.iter().any(is_root_hash) =>
        {
            Some("the root hash comes last: ferofs verity verify IMAGE ROOTHASH")
        }
        ErrorKind::ValueValidation
            if word.to_lowercase().contains("roothash") && !word.contains("file") =>
        {
            Some("`--roothash-file FILE` takes the root hash of a file")
        }
        ErrorKind::ValueValidation if word.contains("<SECS>") => {
            Some("`date -d 2026-01-31 +%s` prints the seconds since 1970")
        }
        ErrorKind::UnknownArgument
            if matches!(command, "delta" | "patch") && !word.starts_with('-') =>
        {
            Some("`-o FILE` names the output of `create`")
        }
        ErrorKind::UnknownArgument => OPTIONS
            .iter()
            .find(|(name, words, _)| {
                *name == command && words.split(' ').any(|known| known == word)
            })
            .map(|(.., tip)| *tip),
        _ => None,
    }
}

/// Removes what the parser of `program` suggests for every unknown option, where it does not help:
/// an option with other letters, and to take the word for a value, unless a file has that name.
pub(crate) fn remove_guesses(
    error: &mut clap::Error,
    args: &[OsString],
    program: impl FnOnce() -> clap::Command,
) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let word = text_of(error, ContextKind::InvalidArg).to_owned();
    let similar = text_of(error, ContextKind::SuggestedArg).to_owned();
    // A third of the letters may be wrong, or missing at the end.
    let is_misspelt = similar.starts_with(&word)
        || word.starts_with(&similar)
        || strsim::normalized_damerau_levenshtein(&word, &similar) >= 0.66;
    if !similar.is_empty() && !is_misspelt {
        error.remove(ContextKind::SuggestedArg);
        show_whole_usage(error, args, program());
    }
    if !args.iter().any(|arg| arg.to_string_lossy().starts_with(&word) && Path::new(arg).exists()) {
        error.remove(ContextKind::Suggested);
    }
}

/// The parser shows the usage with the option that it suggests.
fn show_whole_usage(error: &mut clap::Error, args: &[OsString], mut program: clap::Command) {
    program.build();
    let mut definition = &mut program;
    for name in args.iter().skip(1) {
        if definition.find_subcommand(name).is_none() {
            break;
        }
        let Some(next) = definition.find_subcommand_mut(name) else { return };
        definition = next;
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(definition.render_usage()));
}

fn is_root_hash(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.parse::<ferofs::verity::Digest>().is_ok())
}

fn text_of(error: &clap::Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}
