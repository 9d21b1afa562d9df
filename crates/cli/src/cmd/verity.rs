//! `ferofs verity`: makes hash trees of images, and checks images against them.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Subcommand;
use ferofs::read::{FileSource, Source, Uuid};
use ferofs::verity::{
    Digest, HashAlgorithm, Params, Seal, appended_position, fsverity_digest, make_tree, verify_all,
};

use crate::exit::{About, Failure, Outcome};

/// Seal images with hash trees, as dm-verity and fs-verity read them
///
/// The root of a hash tree is a digest of the whole image. Whoever has the root from a trusted place can verify each block of the
/// image when it is read: `ferofs mount`, `ls`, `cat`, `check`, `extract` and `inspect` do with --roothash, Linux does with
/// dm-verity. The format is that of veritysetup.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Format(FormatArgs),
    Verify(VerifyArgs),
    Digest(DigestArgs),
    Show(ShowArgs),
}

/// How a hash tree is made.
#[derive(clap::Args)]
struct ParamsArgs {
    /// Hash algorithm
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = ["sha256", "sha512"])]
    hash: String,

    /// Bytes that are hashed before each block, as hexadecimal digits. Without a salt, the tree is that of fs-verity, too
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true)]
    salt: Bytes,

    /// Bytes of a block of the image
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    data_block_size: u32,

    /// Bytes of a block of the hash tree
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    hash_block_size: u32,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl ParamsArgs {
    fn params(&self) -> Params {
        Params {
            algorithm: HashAlgorithm::from_name(&self.hash).unwrap_or_default(),
            data_block_size: self.data_block_size,
            hash_block_size: self.hash_block_size,
            salt: self.salt.0.clone(),
        }
    }
}

/// Make the hash tree of an image, and print its root hash
///
/// The tree follows the image in its file, or goes to --hash-file. A tree that follows the image already is replaced. If the image does not
/// end at a block of 4 KiB, zeroes are added.
#[derive(clap::Args)]
struct FormatArgs {
    /// The image
    image: PathBuf,

    /// Write the hash tree to this file instead
    #[arg(long, value_name = "FILE")]
    hash_file: Option<PathBuf>,

    #[command(flatten)]
    params: ParamsArgs,

    /// UUID of the seal [default: from the root hash]
    #[arg(long)]
    uuid: Option<Uuid>,

    /// Also write the root hash to this file
    #[arg(long, value_name = "FILE")]
    roothash_file: Option<PathBuf>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Check each block of an image against a root hash
#[derive(clap::Args)]
struct VerifyArgs {
    /// The image
    image: PathBuf,

    /// The root hash: 64 or 128 hexadecimal digits
    roothash: Digest,

    #[command(flatten)]
    place: PlaceArgs,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

/// Print the digests of an image, without writing anything
///
/// The first line is the root hash of dm-verity, the second the digest of fs-verity, as `fsverity digest` prints it. The whole file is
/// hashed, or the part before a hash tree that follows the image.
#[derive(clap::Args)]
struct DigestArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    params: ParamsArgs,
}

/// Show the parameters of a hash tree. They are not verified
#[derive(clap::Args)]
struct ShowArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where the hash tree is.
#[derive(clap::Args)]
struct PlaceArgs {
    /// File with the hash tree [default: the image itself]
    #[arg(long, value_name = "FILE")]
    hash_file: Option<PathBuf>,

    /// Position of the hash tree's superblock in its file, in bytes [default: after the image's last block; 0 with --hash-file]
    #[arg(long, value_name = "BYTES")]
    hash_offset: Option<u64>,
}

impl PlaceArgs {
    /// The file with the tree, and the seal.
    fn open(&self, image: &Path) -> Result<(FileSource, Seal), Failure> {
        let path = self.hash_file.as_deref().unwrap_or(image);
        let file = open(path)?;
        let position = match (self.hash_offset, &self.hash_file) {
            (Some(position), _) => position,
            (None, Some(_)) => 0,
            (None, None) => appended_position(&file).about(path)?,
        };
        let seal = Seal::read(&file, position).about(path)?;
        Ok((file, seal))
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // veritysetup's name for no salt.
        let text = if text == "-" { "" } else { text };
        if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("not pairs of hexadecimal digits");
        }
        let pairs = text.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16));
        bytes.collect::<Result<_, _>>().map(Self).map_err(|_| "not pairs of hexadecimal digits")
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Verb::Format(args) => format(args),
        Verb::Verify(args) => verify(args),
        Verb::Digest(args) => digest(args),
        Verb::Show(args) => show(args),
    }
}

fn open(path: &Path) -> Result<FileSource, Failure> {
    FileSource::open(path, 0).map_err(Failure::without_subject)
}

/// A failure of the system concerning `path`.
fn about(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::about(path, error)
}

fn threads(option: Option<NonZeroUsize>) -> usize {
    option.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// The bytes that a seal of the image covers: all of its file, or what is before a seal that follows the image.
fn sealed_len(file: &FileSource) -> u64 {
    let appended = appended_position(file).ok().filter(|position| Seal::read(file, *position).is_ok());
    appended.unwrap_or_else(|| file.size())
}

fn format(args: &FormatArgs) -> Outcome {
    let image = open(&args.image)?;
    let (len, params) = (sealed_len(&image), args.params.params());
    // Before a former tree is removed.
    params.check().about(&args.image)?;
    let (path, file, len, position) = match &args.hash_file {
        Some(path) => {
            crate::args::image::refuse_as_output(path, &[&args.image])?;
            (path, File::create(path).map_err(about(path))?, len, 0)
        }
        None => {
            let file = File::options().write(true).open(&args.image).map_err(about(&args.image))?;
            let unit = u64::from(params.data_block_size.max(params.hash_block_size)).max(4096);
            let end = len.checked_next_multiple_of(unit).unwrap_or(len);
            if file.metadata().map_err(about(&args.image))?.is_file() {
                // Removes a former tree, and adds zeroes up to the end of the block.
                file.set_len(len).and_then(|()| file.set_len(end)).map_err(about(&args.image))?;
            }
            (&args.image, file, end, end)
        }
    };
    // The size may have changed.
    let image = open(&args.image)?;
    let sealed = Seal::write(&image, len, params, args.uuid, threads(args.params.threads), &file, position);
    let (seal, root) = sealed.about(path)?;
    file.sync_all().map_err(about(path))?;
    if let Some(path) = &args.roothash_file {
        std::fs::write(path, root.to_string()).map_err(about(path))?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::json!({
            "roothash": root.to_string(),
            "hashoffset": position,
            "datablocks": seal.superblock.data_blocks,
            "uuid": seal.superblock.uuid.to_string(),
        });
        writeln!(out, "{text}")?;
    } else {
        writeln!(out, "{root}")?;
    }
    Ok(0)
}

fn verify(args: &VerifyArgs) -> Outcome {
    let image = open(&args.image)?;
    let (file, seal) = args.place.open(&args.image)?;
    let verified = seal.verified(image, file, args.roothash).about(&args.image)?;
    verify_all(&verified, threads(args.threads)).about(&args.image)?;
    Ok(0)
}

fn digest(args: &DigestArgs) -> Outcome {
    let image = open(&args.image)?;
    let params = args.params.params();
    let len = sealed_len(&image);
    let block = u64::from(params.data_block_size);
    if block == 0 || !len.is_multiple_of(block) {
        let reason = format!("its size, {len}, is not a multiple of the data block size, {block}");
        return Err(Failure::about(&args.image, reason));
    }
    let root = make_tree(&image, len / block, &params, threads(args.params.threads), |_, _| Ok(()));
    let root = root.about(&args.image)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "dm-verity: {root}")?;
    match fsverity_digest(&params, len, root) {
        Ok(digest) => writeln!(out, "fs-verity: {}:{digest}", params.algorithm.name())?,
        Err(error) => writeln!(out, "fs-verity: none ({error})")?,
    }
    Ok(0)
}

fn show(args: &ShowArgs) -> Outcome {
    let (_, seal) = args.place.open(&args.image)?;
    let superblock = &seal.superblock;
    let params = &superblock.params;
    let salt = ferofs::read::Hex(&params.salt).to_string();
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::json!({
            "uuid": superblock.uuid.to_string(),
            "hash": params.algorithm.name(),
            "data_block_size": params.data_block_size,
            "hash_block_size": params.hash_block_size,
            "data_blocks": superblock.data_blocks,
            "salt": salt,
            "hash_offset": seal.position,
            "bytes": seal.byte_len().about(&args.image)?,
        });
        writeln!(out, "{text}")?;
        return Ok(0);
    }
    writeln!(out, "uuid             {}", superblock.uuid)?;
    writeln!(out, "hash             {}", params.algorithm.name())?;
    writeln!(out, "data block size  {}", params.data_block_size)?;
    writeln!(out, "hash block size  {}", params.hash_block_size)?;
    writeln!(out, "data blocks      {}", superblock.data_blocks)?;
    writeln!(out, "salt             {}", if salt.is_empty() { "-" } else { &salt })?;
    writeln!(out, "hash offset      {}", seal.position)?;
    writeln!(out, "bytes            {}", seal.byte_len().about(&args.image)?)?;
    Ok(0)
}
