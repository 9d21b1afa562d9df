//! The trees that the cells read. They are the same on every machine: names, content and times
//! follow from a seed.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ferofs_tests::{Content, Rng, tar};

use crate::trees;

/// The seed of everything. Another one changes all accepted values.
const SEED: u64 = 23;
/// The time of each file, in seconds since 1970: an image also stores times.
const TIME: u64 = 1_700_000_000;
/// Words in the language of the generated sources.
const WORDS: usize = 3000;
/// Words that a source file uses: a file repeats its own names.
const WORDS_OF_FILE: usize = 150;
/// Instructions that generated code consists of, in bytes of at most this length.
const INSTRUCTIONS: usize = 600;

/// Small files of [`small`]: enough that the work for a name dominates the work for a command.
const SMALL_FILES: usize = 10_000;
/// Bytes of the file of [`large`]: many times what Linux reads ahead.
const LARGE: usize = 16 << 20;
/// Source files of [`mixed`].
const SOURCES: usize = 260;
/// Programs of [`mixed`].
const PROGRAMS: usize = 6;

/// Makes all trees below `dir`: `mixed`, `new` (an update of it), `copies`, `small`, `large` and
/// the archive `mixed.tar`.
pub(super) fn make(dir: &Path) -> Result<()> {
    mixed(&dir.join("mixed"))?;
    mixed(&dir.join("new"))?;
    update(&dir.join("new"))?;
    copies(&dir.join("copies"))?;
    small(&dir.join("small"))?;
    large(&dir.join("large"))?;
    set_times(dir)?;
    archive(&dir.join("mixed"), &dir.join("mixed.tar"))
}

/// The paths of the files of `tree` relative to it, in the order of the tree.
pub(super) fn files(tree: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    trees::each_file(tree, &mut |path, _| {
        files.push(path.strip_prefix(tree)?.display().to_string());
        Ok(())
    })?;
    Ok(files)
}

/// Sources, programs, one large file of mixed content, and data that does not compress: 5 MB.
fn mixed(tree: &Path) -> Result<()> {
    let rng = Rng::new(SEED).fork(b"mixed");
    let words = words(&mut rng.fork(b"words"));
    for number in 0..SOURCES {
        let mut rng = rng.fork(format!("source {number}").as_bytes());
        let len = 1000 + rng.below(4000) + rng.below(8) * rng.below(2500);
        let text = source(len as usize, &words, &mut rng);
        write(tree, &format!("src/part{:02}/file{number:03}.c", number / 20), &text)?;
    }
    for number in 0..PROGRAMS {
        let mut rng = rng.fork(format!("program {number}").as_bytes());
        write(
            tree,
            &format!("bin/program{number}"),
            &program(180_000 + number * 30_000, &words, &mut rng),
        )?;
    }
    let mut rng = rng.fork(b"others");
    write(tree, "share/noise.bin", &Content::Noise.bytes(600_000, &mut rng))?;
    write(tree, "share/large.txt", &source(1_200_000, &words, &mut rng))
}

/// Five versions of a set of files: each changes some bytes of some of them.
fn copies(tree: &Path) -> Result<()> {
    let rng = Rng::new(SEED).fork(b"copies");
    let words = words(&mut rng.fork(b"words"));
    for number in 0..24 {
        let mut rng = rng.fork(format!("file {number}").as_bytes());
        let mut bytes = match number % 3 {
            0 => program(30_000, &words, &mut rng),
            _ => source(20_000, &words, &mut rng),
        };
        for version in 0..5 {
            write(tree, &format!("v{version}/file{number:02}"), &bytes)?;
            // The first third of the files has no changes; of the others, data is also moved.
            if number >= 8 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes.splice(at..at, source(90, &words, &mut rng));
            }
        }
    }
    Ok(())
}

/// Many files of up to 300 bytes.
fn small(tree: &Path) -> Result<()> {
    let rng = Rng::new(SEED).fork(b"small");
    let words = words(&mut rng.fork(b"words"));
    let mut rng = rng.fork(b"files");
    for number in 0..SMALL_FILES {
        let len = 1 + rng.below(300) as usize;
        let text: Vec<u8> =
            words[rng.below(2000) as usize..].iter().flatten().copied().take(len).collect();
        write(tree, &format!("d{:02}/file-{number:05}.txt", number / 250), &text)?;
    }
    Ok(())
}

/// One large file.
fn large(tree: &Path) -> Result<()> {
    let mut rng = Rng::new(SEED).fork(b"large");
    let words = words(&mut rng);
    write(tree, "large.txt", &source(LARGE, &words, &mut rng))
}

/// Changes a tree like an update of a program: some files change in a few places, some come, some
/// go.
fn update(tree: &Path) -> Result<()> {
    let mut rng = Rng::new(SEED).fork(b"update");
    for (number, name) in files(tree)?.iter().enumerate().filter(|(number, _)| number % 5 == 0) {
        let path = tree.join(name);
        let mut bytes = fs::read(&path)?;
        match number % 4 {
            0 => fs::remove_file(&path)?,
            _ => {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes.splice(at..at, Content::Text.bytes(200, &mut rng));
                fs::write(&path, bytes)?;
            }
        }
    }
    for number in 0..10 {
        write(tree, &format!("src/new/file{number}.c"), &Content::Text.bytes(3000, &mut rng))?;
    }
    Ok(())
}

/// The words of a language, as names in programs are.
fn words(rng: &mut Rng) -> Vec<Vec<u8>> {
    const PARTS: [&str; 24] = [
        "get", "set", "_", "buf", "len", "page", "node", "list", "lock", "map", "err", "in", "re",
        "al", "ex", "ter", "con", "io", "id", "st", "un", "_t", "ctx", "de",
    ];
    let word = |_| {
        let parts = 1 + rng.below(4);
        let text: String =
            (0..parts).map(|_| PARTS[rng.below(PARTS.len() as u64) as usize]).collect();
        format!(
            "{text}{}",
            if rng.below(6) == 0 { rng.below(64).to_string() } else { String::new() }
        )
    };
    (0..WORDS).map(word).map(String::into_bytes).collect()
}

/// A number under `bound`; small ones are more frequent, like the words of a language.
fn skewed(bound: usize, rng: &mut Rng) -> usize {
    let at = rng.below(bound as u64);
    (rng.below(at + 1)) as usize
}

/// Text like the source of a program: lines with indents, frequent words, and words that only this
/// file has.
fn source(len: usize, words: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    const SIGNS: [&str; 8] = [" ", " = ", "(", ", ", "->", " + ", ".", " == "];
    const ENDS: [&str; 5] = [";\n", ");\n", ") {\n", ";\n\n", "}\n"];
    let own: Vec<usize> = (0..WORDS_OF_FILE).map(|_| skewed(words.len(), rng)).collect();
    let mut text = Vec::with_capacity(len + 100);
    while text.len() < len {
        if rng.below(3) == 0 {
            repeat(&mut text, 150, rng);
        }
        text.resize(text.len() + skewed(5, rng), b'\t');
        for _ in 0..=skewed(9, rng) {
            text.extend_from_slice(&words[own[skewed(own.len(), rng)]]);
            text.extend_from_slice(SIGNS[skewed(SIGNS.len(), rng)].as_bytes());
        }
        text.extend_from_slice(ENDS[skewed(ENDS.len(), rng)].as_bytes());
    }
    text.truncate(len);
    text
}

/// Bytes like an ELF program: code of recurring instructions with addresses in them, a table of
/// addresses, and strings.
fn program(len: usize, words: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut code = Rng::new(SEED).fork(b"instructions");
    let instructions: Vec<Vec<u8>> = (0..INSTRUCTIONS)
        .map(|_| Content::Noise.bytes(2 + code.below(5) as usize, &mut code))
        .collect();
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".to_vec();
    bytes.resize(4096, 0);
    while bytes.len() < len * 6 / 10 {
        if rng.below(8) == 0 {
            repeat(&mut bytes, 60, rng);
        }
        bytes.extend_from_slice(&instructions[skewed(INSTRUCTIONS, rng)]);
        if rng.below(6) == 0 {
            // A call: its address is relative, so that each place has another one.
            let to = skewed(len, rng) as i32 - bytes.len() as i32;
            bytes.push(0xe8);
            bytes.extend_from_slice(&to.to_le_bytes());
        }
    }
    let mut address = 0x40_0000_u64;
    while bytes.len() < len * 8 / 10 {
        address += 16 * (1 + rng.below(20));
        bytes.extend_from_slice(&address.to_le_bytes());
    }
    while bytes.len() < len {
        bytes.extend_from_slice(&words[skewed(words.len(), rng)]);
        bytes.push(0);
    }
    bytes.truncate(len);
    bytes
}

/// Appends a copy of up to `longest` bytes from any place before.
fn repeat(bytes: &mut Vec<u8>, longest: usize, rng: &mut Rng) {
    let from = skewed(bytes.len().max(1), rng);
    let len = (8 + skewed(longest, rng)).min(bytes.len() - from);
    bytes.extend_from_within(from..from + len);
}

fn write(tree: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = tree.join(name);
    fs::create_dir_all(path.parent().unwrap_or(tree))?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())
}

/// Sets the time of `path` and of everything below it.
fn set_times(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            set_times(&entry?.path())?;
        }
    }
    File::open(path)?.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(TIME))?;
    Ok(())
}

/// An archive of the files of `tree`.
fn archive(tree: &Path, archive: &Path) -> Result<()> {
    let member = |name: &String| Ok(tar::file(name, &fs::read(tree.join(name))?));
    let members: Vec<Vec<u8>> = files(tree)?.iter().map(member).collect::<Result<_>>()?;
    Ok(fs::write(archive, tar::archive(&members))?)
}
