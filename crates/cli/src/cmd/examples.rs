//! Examples of each command, for its help and its manual page.

use clap::Command;

/// A command line, and what it does.
type Example = (&'static str, &'static str);

/// The pages of commands, by the names of their manual pages, with the pages to see, too.
static PAGES: [(&str, &[Example], &str); 50] = [
    (
        "ferofs",
        &[
            ("ferofs build DIR image.erofs", "make an image of a directory"),
            ("ferofs mount image.erofs /mnt", "mount it, as root or as a user"),
            ("ferofs ls -lh image.erofs /etc", "list files without a mount"),
            ("ferofs extract image.erofs DIR", "unpack it"),
        ],
        "ferofs-build(1), ferofs-mount(1), mkfs.erofs(1), fsck.erofs(1)",
    ),
    (
        "ferofs-build",
        &[
            ("ferofs build DIR image.erofs", "LZ4, for Linux 6.1"),
            ("ferofs build --preset fast a.tar image.erofs", "for Linux 5.4, larger"),
            ("ferofs build -T 0 -U clear --all-time DIR image.erofs", "same bytes each time"),
        ],
        "ferofs-mount(1), ferofs-check(1), ferofs-patch-create(1), mkfs.erofs(1)",
    ),
    (
        "ferofs-check",
        &[
            ("ferofs check image.erofs", "the structure, fast"),
            ("ferofs check --deep *.erofs", "all data, too, of several images"),
        ],
        "ferofs-inspect(1), ferofs-verity(1), fsck.erofs(1)",
    ),
    (
        "ferofs-diff",
        &[
            ("ferofs diff old.erofs new.erofs", "what changed"),
            ("ferofs diff --ignore times DIR image.erofs", "a directory and its image"),
        ],
        "ferofs-check(1), ferofs-patch-create(1)",
    ),
    (
        "ferofs-inspect",
        &[
            ("ferofs inspect image.erofs", "sizes by type"),
            ("ferofs inspect --html p.html image.erofs", "as a page"),
            ("ferofs inspect --compare old.erofs image.erofs", "what grew"),
        ],
        "ferofs-du(1), ferofs-ls(1), dump.erofs(1)",
    ),
    (
        "ferofs-extract",
        &[
            ("ferofs extract image.erofs DIR", "all files"),
            ("ferofs extract image.erofs DIR '/etc/*.conf'", "only these"),
            ("ferofs extract --tar - image.erofs | tar -tv", "as an archive"),
        ],
        "ferofs-cat(1), ferofs-ls(1), ferofs-mount(1)",
    ),
    (
        "ferofs-ls",
        &[
            ("ferofs ls -la image.erofs /etc", "with owners and times"),
            ("ferofs ls -lh image.erofs '/usr/lib/*.so*'", "files that match"),
            ("ferofs ls -R image.erofs", "all paths"),
            ("ferofs ls -lR image.erofs | sort -nk5", "by size"),
        ],
        "ferofs-cat(1), ferofs-du(1), ferofs-inspect(1)",
    ),
    (
        "ferofs-cat",
        &[
            ("ferofs cat image.erofs /etc/os-release", "one file"),
            ("ferofs cat image.erofs '/etc/apt/*.list'", "all that match"),
            ("ferofs cat --sums image.erofs | (cd DIR && sha256sum -c)", "compare a tree"),
        ],
        "ferofs-extract(1), ferofs-ls(1), sha256sum(1)",
    ),
    (
        "ferofs-du",
        &[
            ("ferofs du image.erofs", "the directories below the root"),
            ("ferofs du -d 2 image.erofs /usr", "two levels below /usr"),
            ("ferofs du -b image.erofs | sort -n", "by size"),
        ],
        "ferofs-inspect(1), ferofs-ls(1), du(1)",
    ),
    (
        "ferofs-mount",
        &[
            ("ferofs mount image.erofs /mnt", "by the kernel or FUSE"),
            ("ferofs mount --patch p image.erofs /mnt", "with a patch"),
            ("ferofs mount --roothash-file hash image.erofs /mnt", "verify what is read"),
            ("ferofs mount --record-profile p image.erofs /mnt", "list what is read"),
            ("ferofs mount --pin p image.erofs /mnt", "keep that decoded"),
        ],
        "ferofs-umount(1), ferofs-stats(1), mount.erofs(8), fstab(5)",
    ),
    (
        "ferofs-umount",
        &[
            ("ferofs umount /mnt", "if nobody uses it"),
            ("ferofs umount --lazy /mnt", "even if programs use it"),
        ],
        "ferofs-mount(1), umount(8)",
    ),
    ("ferofs-stats", &[("ferofs stats /mnt", "what the FUSE daemon has read")], "ferofs-mount(1)"),
    (
        "ferofs-delta",
        &[
            ("ferofs delta create old.erofs new.erofs -o d", "what leads to the new one"),
            ("ferofs delta apply old.erofs d new.erofs", "make it"),
        ],
        "ferofs-delta-create(1), ferofs-delta-apply(1), ferofs-patch(1)",
    ),
    (
        "ferofs-delta-create",
        &[
            ("ferofs delta create old.erofs new.erofs -o d", "slow and small"),
            ("ferofs delta create --level 12 old.erofs new.erofs -o d", "fast"),
        ],
        "ferofs-delta-apply(1), ferofs-delta-show(1)",
    ),
    (
        "ferofs-delta-apply",
        &[
            ("ferofs delta apply /dev/slot-a d /dev/slot-b", "into the other slot"),
            ("ferofs delta apply old.erofs - new.erofs < d", "as it arrives"),
            ("ferofs delta apply --resume old.erofs d new.erofs", "after an interruption"),
        ],
        "ferofs-delta-create(1), ferofs-verity-verify(1)",
    ),
    (
        "ferofs-delta-show",
        &[("ferofs delta show d", "the digests of both images")],
        "ferofs-delta-apply(1)",
    ),
    (
        "ferofs-delta-sign",
        &[("ferofs delta sign d --key k.pem --cert c.pem -o d.p7s", "sign a delta")],
        "ferofs-delta-apply(1), openssl-smime(1)",
    ),
    (
        "ferofs-patch",
        &[
            ("ferofs patch create old.erofs DIR -o p", "what leads to the new tree"),
            ("ferofs patch apply image.erofs p", "change an image in place"),
            ("ferofs patch rollback image.erofs", "go back"),
        ],
        "ferofs-patch-create(1), ferofs-patch-apply(1), ferofs-patch-rollback(1)",
    ),
    (
        "ferofs-patch-create",
        &[
            ("ferofs patch create old.erofs DIR -o p", "to the tree of a directory"),
            ("ferofs patch create old.erofs new.erofs -o p", "to another image"),
        ],
        "ferofs-patch-apply(1), ferofs-patch-show(1)",
    ),
    (
        "ferofs-patch-compose",
        &[("ferofs patch compose base.erofs 1 2 3 -o p", "one patch for three")],
        "ferofs-patch-create(1)",
    ),
    (
        "ferofs-patch-add",
        &[("ferofs patch add image.erofs DIR", "add files in place")],
        "ferofs-patch-rollback(1)",
    ),
    (
        "ferofs-patch-show",
        &[("ferofs patch show --files p", "each changed file")],
        "ferofs-patch-create(1)",
    ),
    (
        "ferofs-patch-apply",
        &[
            ("ferofs patch apply image.erofs p", "in place"),
            ("ferofs patch apply image.erofs - < p", "from a pipe"),
        ],
        "ferofs-patch-rollback(1), ferofs-patch-repair(1)",
    ),
    (
        "ferofs-patch-sign",
        &[("ferofs patch sign p --key k.pem --cert c.pem -o p.p7s", "sign a patch")],
        "ferofs-patch-apply(1), openssl-smime(1)",
    ),
    (
        "ferofs-patch-log",
        &[("ferofs patch log image.erofs", "the states of an image")],
        "ferofs-patch-rollback(1)",
    ),
    (
        "ferofs-patch-rollback",
        &[("ferofs patch rollback --to 0 image.erofs", "as it was built")],
        "ferofs-patch-log(1)",
    ),
    (
        "ferofs-patch-repair",
        &[("ferofs patch repair image.erofs", "restore the superblock")],
        "ferofs-check(1)",
    ),
    (
        "ferofs-patch-squash",
        &[("ferofs patch squash image.erofs new.erofs", "without the history")],
        "ferofs-build(1)",
    ),
    (
        "ferofs-verity",
        &[
            ("ferofs verity format image.erofs", "make the tree, print the root hash"),
            ("ferofs verity verify image.erofs HEX", "compare each block with it"),
        ],
        "ferofs-verity-format(1), ferofs-build(1), veritysetup(8)",
    ),
    (
        "ferofs-verity-format",
        &[
            ("ferofs verity format image.erofs", "after the image"),
            ("ferofs verity format --hash-file tree image.erofs", "in a file of its own"),
        ],
        "ferofs-verity-verify(1), veritysetup(8)",
    ),
    (
        "ferofs-push",
        &[("ferofs push image.erofs oci://HOST/NAME:TAG", "to a registry")],
        "ferofs-pull(1), ferofs-convert(1)",
    ),
    (
        "ferofs-pull",
        &[
            ("ferofs pull oci://HOST/NAME:TAG image.erofs", "from a registry"),
            ("ferofs pull https://HOST/image.erofs image.erofs", "from a web server"),
        ],
        "ferofs-push(1), ferofs-mount(1)",
    ),
    (
        "ferofs-convert",
        &[("ferofs convert oci://A/NAME:TAG oci://B/NAME:erofs", "for containerd")],
        "ferofs-push(1), ferofs-pull(1)",
    ),
    (
        "ferofs-cache",
        &[
            ("ferofs cache ls", "what was fetched"),
            ("ferofs cache gc --cache-size 10G", "keep ten gigabytes"),
        ],
        "ferofs-mount(1), ferofs-pull(1)",
    ),
    ("ferofs-cache-ls", &[("ferofs cache ls", "images, and their sizes")], "ferofs-cache(1)"),
    (
        "ferofs-cache-gc",
        &[
            ("ferofs cache gc --cache-size 10G", "remove what was not used for longest"),
            ("ferofs cache gc --all", "remove what no mount uses"),
        ],
        "ferofs-cache(1)",
    ),
    ("ferofs-cache-verify", &[("ferofs cache verify", "remove wrong bytes")], "ferofs-cache(1)"),
    (
        "ferofs-verity-digest",
        &[("ferofs verity digest image.erofs", "the root hash, without a tree")],
        "ferofs-verity-format(1), fsverity(1)",
    ),
    (
        "ferofs-verity-show",
        &[("ferofs verity show image.erofs", "the root hash and the position of its tree")],
        "ferofs-verity-verify(1), veritysetup(8)",
    ),
    (
        "ferofs-verity-verify",
        &[("ferofs verity verify image.erofs HEX", "read and verify all blocks")],
        "ferofs-verity-format(1), ferofs-check(1)",
    ),
    (
        "ferofs-verity-sign",
        &[("ferofs verity sign HEX --key key.pem --cert cert.pem -o h.p7s", "by openssl")],
        "ferofs-verity-verify-signature(1), openssl-smime(1)",
    ),
    (
        "ferofs-verity-verify-signature",
        &[("ferofs verity verify-signature HEX h.p7s --cert c.pem", "exit code 0 if right")],
        "ferofs-verity-sign(1), openssl-smime(1)",
    ),
    (
        "ferofs-links",
        &[("ferofs links /usr/local/bin", "mkfs.erofs, fsck.erofs and so on")],
        "mkfs.erofs(1), fsck.erofs(1), dump.erofs(1), erofsfuse(1), mount.erofs(8)",
    ),
    (
        "ferofs-completions",
        &[
            ("ferofs completions bash > FILE", "for bash-completion"),
            ("ferofs completions zsh mkfs.erofs > FILE", "for a name of erofs-utils"),
        ],
        "ferofs-links(1)",
    ),
    (
        "ferofs-man",
        &[("ferofs man /usr/local/share/man/man1", "all pages")],
        "ferofs-completions(1)",
    ),
    (
        "mkfs.erofs",
        &[
            ("mkfs.erofs -zlz4hc,9 -C65536 image.erofs DIR", "compressed"),
            ("mkfs.erofs --tar=f image.erofs layer.tar", "of a tar archive"),
        ],
        "fsck.erofs(1), dump.erofs(1), ferofs-build(1)",
    ),
    (
        "fsck.erofs",
        &[
            ("fsck.erofs image.erofs", "the exit code says whether it is sound"),
            ("fsck.erofs --extract=DIR image.erofs", "unpack it"),
        ],
        "mkfs.erofs(1), ferofs-check(1), ferofs-extract(1)",
    ),
    (
        "dump.erofs",
        &[
            ("dump.erofs -s image.erofs", "the superblock"),
            ("dump.erofs --path=/etc/hostname -e image.erofs", "a file and its extents"),
        ],
        "ferofs-inspect(1), fsck.erofs(1)",
    ),
    (
        "erofsfuse",
        &[("erofsfuse image.erofs /mnt", "mount through FUSE"), ("fusermount3 -u /mnt", "unmount")],
        "ferofs-mount(1), fusermount3(1)",
    ),
    (
        "mount.erofs",
        &[
            ("mount -t erofs.ferofs image.erofs /mnt", "mount(8) starts mount.erofs"),
            ("mount.erofs -u /mnt", "unmount"),
        ],
        "ferofs-mount(1), mount(8), fstab(5)",
    ),
];

/// The examples of the page `name`, and the other pages to see.
pub(super) fn of_page(name: &str) -> Option<(&'static [Example], &'static str)> {
    let page = PAGES.iter().find(|(page, ..)| *page == name)?;
    Some((page.1, page.2))
}

/// Adds examples to the help of each command, and to `-h` how to see the rest.
pub(crate) fn with_examples(command: Command) -> Command {
    add(command, &[])
}

fn add(command: Command, above: &[&str]) -> Command {
    let name = command.get_name().to_owned();
    let words: Vec<&str> = above.iter().copied().chain([name.as_str()]).collect();
    let page = words.join("-");
    let examples = of_page(&page).map_or(&[][..], |(examples, _)| examples);
    let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (number, (line, what)) in examples.iter().enumerate() {
        text += if number == 0 { "Examples:\n" } else { "" };
        text += &format!("  {line:<width$}  # {what}\n");
    }
    if let Some(more) = command.get_after_help() {
        text += &format!("\n{more}\n");
    }
    let rest = format!("`{} --help` lists all options.", words.join(" "));
    command
        .after_help(format!("{text}{rest}"))
        .after_long_help(text)
        .mut_subcommands(|command| add(command, &words))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cmd::Cli;

    #[cfg(feature = "remote")]
    #[test]
    fn each_example_is_a_command_line() {
        for (page, examples, _) in PAGES.iter().filter(|(page, ..)| page.starts_with("ferofs")) {
            for (line, _) in *examples {
                // What the shell takes ends the line.
                let line = line.split(['|', '<', '>']).next().unwrap().replace('\'', "");
                let words = line
                    .split_whitespace()
                    .map(|word| if word == "HEX" { "00".repeat(32) } else { word.into() });
                let words: Vec<String> =
                    words.filter(|word| word != "--roothash-file" && word != "hash").collect();
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{page}: {line}: {}", parsed.err().unwrap());
            }
        }
    }

    /// The names of the manual pages of a command, and of all below it.
    fn paths(command: &Command) -> Vec<String> {
        let below = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set() && below.get_name() != "help");
        let below = below.flat_map(paths).map(|name| format!("{}-{name}", command.get_name()));
        std::iter::once(command.get_name().to_owned()).chain(below).collect()
    }

    #[test]
    fn each_page_has_examples_and_a_command() {
        let mut command = Cli::command();
        command.build();
        for path in paths(&command) {
            assert!(of_page(&path).is_some(), "{path} has no examples");
        }
        for (page, ..) in PAGES.iter().filter(|(page, ..)| page.starts_with("ferofs-")) {
            let mut found = Some(&command);
            for name in page.replace("verify-sig", "verify sig").split('-').skip(1) {
                found = found.and_then(|command| command.find_subcommand(name.replace(' ', "-")));
            }
            assert!(found.is_some() || !cfg!(feature = "remote"), "{page}");
        }
        for (page, examples, _) in &PAGES {
            let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
            let longest = examples
                .iter()
                .map(|(_, what)| "  ".len() + width + "  # ".len() + what.len())
                .max();
            assert!(longest.is_none_or(|longest| longest <= 80), "{page}: {longest:?}");
        }
    }
}
