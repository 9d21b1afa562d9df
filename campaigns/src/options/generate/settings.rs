//! Random settings of commands: command-line arguments, each with its effect on the tree and the
//! files that it needs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use ferofs_tests::model::Model;
use ferofs_tests::rng::Rng;

use crate::options::effect::Effect;

/// A setting, which an edit can leave out separately.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) words: Vec<OsString>,
    pub(crate) effect: Effect,
    /// A file that the command reads: name and content.
    pub(crate) file: Option<(&'static str, Vec<u8>)>,
}

/// The settings of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(pub(crate) Vec<Setting>);

/// The command-line interface of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// `ferofs build`
    Build,
    /// `mkfs.erofs`
    Mkfs,
}

/// A fixed UUID and time, for images that must be equal for any number of workers.
pub(crate) const UUID: &str = "11111111-2222-3333-4444-555555555555";
const TIME: &str = "1650000000";
const LABEL: &[u8] = b"system_u:object_r:bin_t:s0";

impl Settings {
    /// All arguments, in order.
    pub(crate) fn words(&self) -> Vec<OsString> {
        self.0.iter().flat_map(|setting| setting.words.iter().cloned()).collect()
    }

    /// Whether an argument is, or starts with, this text.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.0
            .iter()
            .flat_map(|setting| &setting.words)
            .any(|own| own.as_encoded_bytes().starts_with(word.as_bytes()))
    }

    /// The value of an option, if it is an argument of its own.
    pub(crate) fn value(&self, option: &str) -> Option<String> {
        let setting = self
            .0
            .iter()
            .find(|setting| setting.words.first().is_some_and(|word| word == option))?;
        Some(setting.words.get(1)?.to_string_lossy().into_owned())
    }

    /// A setting with these arguments.
    pub(crate) fn add(&mut self, words: &[&str]) {
        self.with(words, Effect::None);
    }

    fn with(&mut self, words: &[&str], effect: Effect) {
        let words = words.iter().map(OsString::from).collect();
        self.0.push(Setting { words, effect, file: None });
    }

    fn reading(&mut self, words: &[&str], effect: Effect, name: &'static str, content: Vec<u8>) {
        let words = words.iter().map(OsString::from).collect();
        self.0.push(Setting { words, effect, file: Some((name, content)) });
    }
}

fn algorithm(rng: &mut Rng) -> &'static str {
    match rng.below(100) {
        0..20 => "lz4",
        20..38 => {
            rng.pick(&["lz4hc", "lz4hc,1", "lz4hc,3", "lz4hc,9", "lz4hc,level=9", "lz4hc,12", "lz4hc,0"])
        }
        38..62 => rng.word(
            "zstd zstd,1 zstd,3 zstd,3 zstd,6 zstd,12 zstd,15 zstd,19 zstd,22 \
             zstd,level=3,dictsize=1024 zstd,dictsize=65536 zstd,9,dictsize=1048576",
        ),
        62..80 => rng.word("deflate deflate,1 deflate,6 deflate,6 deflate,9 deflate,12 deflate,0"),
        80..94 => rng.word(
            "lzma lzma,0 lzma,1 lzma,6 lzma,9 lzma,100 lzma,109 lzma,1,dictsize=4096 lzma,dictsize=65536",
        ),
        _ => rng.pick(&["lz4:zstd,3", "lz4hc,9:lz4", "deflate:lzma,1", "zstd:lz4", "lz4:zstd:deflate:lzma"]),
    }
}

/// Compression settings, which `build`, `mkfs.erofs` and `patch` have in common.
fn encoding(settings: &mut Settings, rng: &mut Rng) {
    settings.add(&["-z", algorithm(rng)]);
    if rng.chance(60) {
        settings.add(&[
            "-C",
            rng.pick(&[
                "8192", "16384", "16384", "65536", "131072", "524288", "1048576", "4096", "12288",
            ]),
        ]);
    }
}

fn features(settings: &mut Settings, rng: &mut Rng) {
    // Some images have most features, as these must go together.
    let each = rng.pick(&[15, 30, 60]);
    for feature in ["ztailpacking", "dedupe", "48bit", "dot-omitted", "holes"] {
        if rng.chance(each) {
            settings.add(&["-E", feature]);
        }
    }
    if rng.chance(12) {
        settings.add(&["-E", "legacy-compress"]);
    }
    if rng.chance(35) {
        let kind = rng
            .word("fragments fragments fragments=65536 fragments=1048576 all-fragments all-fragments=65536");
        settings.add(&["-E", kind]);
        if rng.chance(25) {
            settings.add(&["-E", rng.pick(&["fragdedupe", "fragdedupe=inode", "fragdedupe=full"])]);
        }
    }
}

/// Image settings: content, inodes, attributes, times, owners, position.
pub(crate) fn image(interface: Interface, model: &Model, rng: &mut Rng) -> Settings {
    let mut settings = Settings::default();
    let build = interface == Interface::Build;
    match rng.below(100) {
        0..74 => compressed(&mut settings, interface, rng),
        74..82 if build => {
            if rng.chance(30) {
                settings.add(&[
                    rng.pick(&["-0", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9"])
                ]);
            } else {
                settings.add(&[
                    "--preset",
                    rng.pick(&["default", "fast", "small", "smallest", "android", "backup"]),
                ]);
            }
            if rng.chance(30) {
                settings.add(&["-C", rng.pick(&["4096", "16K", "128KiB"])]);
            }
            if rng.chance(30) {
                features(&mut settings, rng);
            }
        }
        82..92 => chunks(&mut settings, interface, rng),
        _ => {
            for feature in ["48bit", "dot-omitted"] {
                if rng.chance(40) {
                    settings.add(&["-E", feature]);
                }
            }
        }
    }
    if rng.chance(12) {
        let size = rng.pick(&["512", "4096", "16384", "65536"]);
        let other = ["4096:lz4", "65536:zstd", "32768:lzma,1", "4096:deflate"];
        settings.add(&["-m", if rng.chance(50) { size } else { rng.pick(&other) }]);
    }
    if rng.chance(12) {
        settings.add(&[if build {
            "--compress-directories"
        } else {
            rng.pick(&["--zD", "--zD=1", "--zD=0"])
        }]);
    }
    if rng.chance(18) {
        settings.add(&["-b", rng.pick(&["512", "1024", "2048", "2048", "4096", "16384", "65536"])]);
    }
    inodes(&mut settings, interface, rng);
    attributes(&mut settings, interface, rng);
    owners(&mut settings, rng);
    times(&mut settings, interface, rng);
    exclusions(&mut settings, interface, model, rng);
    place(&mut settings, interface, rng);
    behaviour(&mut settings, interface, rng);
    settings
}

fn compressed(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if interface == Interface::Build && rng.chance(60) {
        // Without the clusters and fragments of the default preset.
        settings.add(&["--preset", "fast"]);
    }
    encoding(settings, rng);
    features(settings, rng);
    if rng.chance(8) {
        settings.add(&["--max-extent-bytes", rng.pick(&["4096", "10000", "65536", "3000000"])]);
    }
    if rng.chance(8) {
        let number =
            if settings.value("-z").is_some_and(|list| list.contains(':')) { "1 " } else { "" };
        let lines = format!("16384 {number}n1\n65536 n[2-5]$\n4096 .\n");
        settings.reading(&["--compress-hints", "hints"], Effect::None, "hints", lines.into_bytes());
    }
    if interface == Interface::Build && rng.chance(8) {
        settings.add(&["--no-share"]);
    }
    if interface == Interface::Build && rng.chance(15) {
        settings.add(&["--order", rng.pick(&["tree", "similar", "similar", "auto"])]);
    }
    if interface == Interface::Build && rng.chance(8) {
        settings.add(&["--compress-large", rng.pick(&["lzma,1", "zstd,1", "lz4"])]);
    }
    if interface == Interface::Build && rng.chance(8) {
        let lines =
            b"# ferofs access profile 1\n3 0 4096 /n1\n2 0 9999999 /n2\n1 100 4000 /n0\n".to_vec();
        settings.reading(&["--profile", "profile"], Effect::None, "profile", lines);
        if rng.chance(60) {
            settings.add(&["--store-hottest", rng.pick(&["4096", "100000"])]);
        }
    }
    if interface == Interface::Mkfs && rng.chance(5) {
        settings.add(&["--zfeature-bits", rng.pick(&["2", "4", "16", "18", "64", "128"])]);
    }
}

fn chunks(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    let size = rng.pick(&["4096", "65536", "1048576", "16384"]);
    settings
        .add(&[if interface == Interface::Build { "--chunk-size" } else { "--chunksize" }, size]);
    if rng.chance(40) {
        settings.add(&["-E", rng.pick(&["force-chunk-indexes", "force-inode-blockmap", "48bit"])]);
    }
    if rng.chance(25) {
        settings.add(&[
            if interface == Interface::Build { "--chunk-device" } else { "--blobdev" },
            "device",
        ]);
    }
    if interface == Interface::Mkfs && rng.chance(20) {
        settings.add(&["--dsunit", rng.pick(&["1", "8", "512"])]);
    }
}

fn inodes(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if rng.chance(10) {
        match (interface, rng.below(3)) {
            (Interface::Build, 0) => {
                settings.with(&["--inodes", "compact"], Effect::TimesMayDiffer)
            }
            (Interface::Build, 1) => settings.add(&["--inodes", "smallest"]),
            (Interface::Build, _) => settings.add(&["--inodes", "extended"]),
            (Interface::Mkfs, 0) => {
                settings.with(&["-E", "force-inode-compact"], Effect::TimesMayDiffer)
            }
            (Interface::Mkfs, _) => settings.add(&["-E", "force-inode-extended"]),
        }
    }
    if rng.chance(8) {
        match interface {
            Interface::Build => settings.add(&["--no-inline-data"]),
            Interface::Mkfs => {
                settings.add(&["-E", rng.pick(&["noinline_data", "^inline_data", "inline_data"])])
            }
        }
    }
    if rng.chance(6) {
        settings.with(&["--hard-dereference"], Effect::Dereference);
    }
    if interface == Interface::Build && rng.chance(6) {
        settings.add(&["--for-updates"]);
    }
    if rng.chance(10) {
        settings.add(&["-E", rng.pick(&["nosbcrc", "sbcrc", "^sbcrc"])]);
    }
}

fn attributes(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if rng.chance(5) {
        settings.with(
            &[if interface == Interface::Build { "--no-xattrs" } else { "-x-1" }],
            Effect::NoXattrs,
        );
    } else if rng.chance(12) {
        settings.add(&["-x", rng.pick(&["0", "1", "2", "50"])]);
    }
    if rng.chance(10) {
        settings.add(&[
            "--xattr-prefix",
            rng.pick(&["user.number.", "trusted.overlay.", "trusted.overlay", "user.num"]),
        ]);
        if rng.chance(30) {
            settings.add(&["--xattr-prefix", "security.im"]);
        }
        if rng.chance(30) {
            settings.add(&["-E", rng.pick(&["plain-xattr-prefixes", "^plain-xattr-prefixes"])]);
        }
    }
    if rng.chance(8) {
        settings.add(&["-E", rng.pick(&["xattr-name-filter", "^xattr-name-filter"])]);
    }
    if rng.chance(5) {
        let option = if interface == Interface::Build {
            "--inode-digests=user.sha"
        } else {
            "--xattr-inode-digest=user.sha"
        };
        settings.with(&[option], Effect::FileDigest(b"user.sha"));
    }
    if rng.chance(5) {
        let lines = b"/.* system_u:object_r:bin_t:s0\n".to_vec();
        let label = Effect::Label(b"security.selinux", LABEL);
        settings.reading(&["--file-contexts", "contexts"], label, "contexts", lines);
        if rng.chance(40) {
            settings.add(&["--mount-point", rng.pick(&["/", "/system"])]);
        }
    }
    if interface == Interface::Mkfs && rng.chance(5) {
        settings.add(&["--root-xattr-isize", rng.pick(&["16", "100", "4000"])]);
    }
}

fn owners(settings: &mut Settings, rng: &mut Rng) {
    if rng.chance(4) {
        settings.with(&["--all-root"], Effect::Uid(0));
        settings.with(&[], Effect::Gid(0));
    }
    for (option, effect) in
        [("--force-uid", Effect::Uid as fn(u32) -> Effect), ("--force-gid", Effect::Gid)]
    {
        if rng.chance(4) {
            let id = rng.pick(&[0, 1000, 65_535, 65_536]);
            settings.with(&[option, &id.to_string()], effect(id));
        }
    }
    for (option, effect) in
        [("--uid-offset", Effect::AddUid as fn(u32) -> Effect), ("--gid-offset", Effect::AddGid)]
    {
        if rng.chance(4) {
            let id = rng.pick(&[0, 7, 100_000]);
            settings.with(&[option, &id.to_string()], effect(id));
        }
    }
}

fn times(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if interface == Interface::Build {
        if rng.chance(8) {
            settings.with(&["-T", TIME, "--all-time"], Effect::AllTime(1_650_000_000));
        }
        if rng.chance(8) {
            settings.with(&["--clamp-time", "1600000000"], Effect::Clamp(1_600_000_000));
        }
        return;
    }
    match rng.below(30) {
        0 => settings.with(&["-T", TIME], Effect::AllTime(1_650_000_000)),
        1 => settings.with(&["-T", TIME, "--all-time"], Effect::AllTime(1_650_000_000)),
        2 | 3 => settings.add(&["-T", TIME, "--mkfs-time"]),
        4 => settings.with(&["--ignore-mtime"], Effect::TimesMayDiffer),
        5 => settings.add(&["--preserve-mtime"]),
        _ => {}
    }
}

fn exclusions(settings: &mut Settings, interface: Interface, model: &Model, rng: &mut Rng) {
    let names: Vec<_> = model.names.keys().filter(|name| !name.is_empty()).collect();
    if rng.chance(5) && !names.is_empty() {
        let name = names[rng.len(names.len())].clone();
        let words = match interface {
            Interface::Build => vec!["--exclude".into(), pattern(&name)],
            Interface::Mkfs => vec!["--exclude-path".into(), OsString::from_vec(name.clone())],
        };
        settings.0.push(Setting { words, effect: Effect::Exclude(name), file: None });
    }
    if rng.chance(5) {
        settings.with(&["--exclude-regex", "n3"], Effect::ExcludeText("n3"));
    }
}

/// The pattern that matches only this path. A path that is not text is not a pattern.
fn pattern(path: &[u8]) -> OsString {
    let Ok(text) = std::str::from_utf8(path) else { return OsString::from_vec(path.to_vec()) };
    let mut pattern = String::from("/");
    for letter in text.chars() {
        if "\\*?[]{}".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.into()
}

fn place(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if rng.chance(4) {
        settings.add(&["--offset", rng.pick(&["4096", "65536", "1048576"])]);
    }
    if rng.chance(5) {
        let option = if interface == Interface::Build { "--align-size" } else { "--fsalignblks" };
        settings.add(&[option, rng.pick(&["1", "8", "64"])]);
    }
    if rng.chance(12) {
        settings.add(&["-L", rng.pick(&["", "label", "sixteen bytes ok"])]);
    }
    if rng.chance(12) {
        settings.add(&["-U", UUID]);
    } else if interface == Interface::Mkfs && rng.chance(10) {
        settings.add(&["-U", rng.pick(&["clear", "random"])]);
    }
    if interface == Interface::Mkfs && rng.chance(4) {
        settings.add(&["--block-list-file", "blocks"]);
    }
}

/// Settings that do not change the image.
fn behaviour(settings: &mut Settings, interface: Interface, rng: &mut Rng) {
    if rng.chance(50) {
        workers(settings, rng);
    }
    if rng.chance(4) {
        settings.add(&["--skip-unreadable"]);
    }
    match interface {
        Interface::Build => {
            settings.add(&["-q"]);
            for (option, percent) in [("--verify", 15), ("--json", 4), ("--timings", 4)] {
                if rng.chance(percent) {
                    settings.add(&[option]);
                }
            }
        }
        Interface::Mkfs => {
            settings.add(if rng.chance(50) { &["--quiet"] } else { &["-d", "0"] });
            for (option, percent) in [
                (rng.pick(&["--MZ", "--MZ=i", "--MZ=d", "--MZ=0"]), 8),
                ("--async-queue-limit=10", 3),
                (rng.pick(&["--clean=data", "--clean=0", "--clean"]), 6),
            ] {
                if rng.chance(percent) {
                    settings.add(&[option]);
                }
            }
        }
    }
}

/// A number of workers.
pub(crate) fn workers(settings: &mut Settings, rng: &mut Rng) {
    settings.add(&["--workers", rng.pick(&["1", "2", "3", "8"])]);
}

/// Settings of `patch create`, `patch add` and `patch squash`.
pub(crate) fn patch(command: &str, model: &Model, rng: &mut Rng) -> Settings {
    let mut settings = Settings::default();
    if rng.chance(35) {
        encoding(&mut settings, rng);
    }
    if rng.chance(40) {
        workers(&mut settings, rng);
    }
    if command == "squash" {
        return settings;
    }
    if rng.chance(20) {
        settings.add(&["--keep-features"]);
    }
    if rng.chance(30) {
        settings.add(&["--verify"]);
    }
    if rng.chance(30) {
        settings.add(&["-T", TIME]);
    }
    if rng.chance(10) {
        settings.add(&["--json"]);
    }
    if rng.chance(15) {
        settings.add(&["--loose-parents"]);
    }
    if command == "create" {
        if rng.chance(15) {
            settings.add(&["--portable"]);
        }
        let names: Vec<_> = model.names.keys().filter(|name| !name.is_empty()).collect();
        if rng.chance(8) && !names.is_empty() {
            let name = names[rng.len(names.len())].clone();
            let words = vec!["--exclude".into(), pattern(&name)];
            settings.0.push(Setting { words, effect: Effect::Exclude(name), file: None });
        }
    }
    if rng.chance(8) {
        settings.with(&["--all-root"], Effect::Uid(0));
        settings.with(&[], Effect::Gid(0));
    }
    if rng.chance(8) {
        settings.with(&["--all-time=1650000000"], Effect::AllTime(1_650_000_000));
    }
    settings
}

/// Settings of `extract` to a directory; `check` compares what they leave.
pub(crate) fn extract(rng: &mut Rng) -> Settings {
    let mut settings = Settings::default();
    settings.add(&["-q"]);
    if rng.chance(50) {
        workers(&mut settings, rng);
    }
    if rng.chance(15) {
        settings.with(&["--no-xattrs"], Effect::NoXattrs);
    }
    if rng.chance(10) {
        settings.with(&["--exclude", "n3*"], Effect::ExcludeStart("n3"));
    }
    settings
}
