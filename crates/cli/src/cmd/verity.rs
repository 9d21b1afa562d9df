//! `ferofs verity`: makes hash trees of images, checks images against them, and signs their roots.

mod sidecar;

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

use crate::args::image::refuse_as_outputs;
use crate::args::seal::check_end;
use crate::args::signature::{self, SignArgs};
use crate::exit::{About, Failure, Outcome};
use sidecar::Sidecar;

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
    Sign(RootSignArgs),
    VerifySignature(VerifySignatureArgs),
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
        let mut params = Params::default();
        params.algorithm = HashAlgorithm::from_name(&self.hash).unwrap_or_default();
        params.data_block_size = self.data_block_size;
        params.hash_block_size = self.hash_block_size;
        params.salt.clone_from(&self.salt.0);
        params
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

    /// Write the files in which another program looks for the seal
    #[arg(long, value_enum, value_name = "PROGRAM")]
    sidecar: Option<Sidecar>,

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

/// Sign a root hash
///
/// The signature is PKCS #7, detached, in DER, as systemd and Linux take it: for IMAGE.raw in IMAGE.roothash.p7s, or as dm-verity's
/// root_hash_sig_key_desc. openssl signs. The key may have a password.
#[derive(clap::Args)]
struct RootSignArgs {
    /// The root hash: 64 or 128 hexadecimal digits
    roothash: Digest,

    #[command(flatten)]
    sign: SignArgs,
}

/// Check the signature of a root hash
///
/// The signature must be by one of the certificates, which must be valid now. Certificates with weak keys, and signatures with weak digests,
/// are refused.
#[derive(clap::Args)]
struct VerifySignatureArgs {
    /// The root hash: 64 or 128 hexadecimal digits
    roothash: Digest,

    /// The signature
    signature: PathBuf,

    /// A trusted certificate, in PEM; may be given several times
    #[arg(long, value_name = "FILE", required = true)]
    cert: Vec<PathBuf>,
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
        Verb::Sign(args) => args.sign.sign(&args.roothash.to_string(), &[]).map(|()| 0),
        Verb::VerifySignature(args) => {
            signature::check(&args.roothash.to_string(), &args.signature, &args.cert).map(|()| 0)
        }
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

/// The bytes that a seal of the image covers: those of the image, which may be followed by zeroes and by another seal. Other bytes that
/// follow are no part of the image, and would be lost.
fn sealed_len(path: &Path, file: &FileSource) -> Result<u64, Failure> {
    let end = appended_position(file).about(path)?.min(file.size());
    if Seal::read(file, end).is_ok() {
        return Ok(end);
    }
    let (mut at, mut buffer) = (end, vec![0; 1 << 20]);
    // A device is larger than its image.
    let last = file.size().min(end.saturating_add(SEARCHED));
    while at < last {
        let len = usize::try_from(last - at).map_or(buffer.len(), |len| len.min(buffer.len()));
        file.read_exact_at(at, &mut buffer[..len]).map_err(about(path))?;
        if let Some(used) = buffer[..len].iter().position(|byte| *byte != 0) {
            let pos = at + used as u64;
            let reason = format!(
                "the image ends at byte {end}, but other data follows from byte {pos} on, perhaps of an interrupted command: \
                 truncate the file to {end} bytes"
            );
            return Err(Failure::about(path, reason));
        }
        at += len as u64;
    }
    Ok(end)
}

/// Bytes behind an image in which other data is looked for.
const SEARCHED: u64 = 64 << 20;

fn format(args: &FormatArgs) -> Outcome {
    let image = open(&args.image)?;
    let params = args.params.params();
    // Before a former tree is removed.
    params.check().about(&args.image)?;
    let len = sealed_len(&args.image, &image)?;
    let hash_file = args.hash_file.clone().or_else(|| args.sidecar?.hash_file(&args.image));
    let root_file = args.sidecar.map(|sidecar| sidecar.root_file(&args.image));
    let outputs = hash_file.iter().chain(&args.roothash_file).chain(&root_file);
    refuse_as_outputs(&outputs.map(PathBuf::as_path).collect::<Vec<_>>(), &[&args.image])?;
    if hash_file.is_none() && params.data_block_size.max(params.hash_block_size) > 4096 {
        let reason = "a tree with blocks larger than 4096 bytes needs a file of its own: --hash-file";
        return Err(Failure::about(&args.image, reason));
    }
    if args.sidecar == Some(Sidecar::Containerd) && hash_file.is_some() {
        return Err(Failure::about(
            &args.image,
            "containerd looks for the hash tree in the image, not in --hash-file",
        ));
    }
    let (path, file, len, position) = match &hash_file {
        Some(path) => {
            if !len.is_multiple_of(params.data_block_size.into()) {
                let reason =
                    format!("its size, {len}, is no multiple of the data block size: choose a smaller one");
                return Err(Failure::about(&args.image, reason));
            }
            (path, File::create(path).map_err(about(path))?, len, 0)
        }
        None => {
            let file = File::options().write(true).open(&args.image).map_err(about(&args.image))?;
            let end = len.checked_next_multiple_of(4096).unwrap_or(len);
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
        sidecar::write(path, &root.to_string())?;
    }
    if let Some(sidecar) = args.sidecar {
        sidecar.write(&args.image, root, position)?;
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
    check_end(&verified).about(&args.image)?;
    verify_all(&verified, threads(args.threads)).about(&args.image)?;
    Ok(0)
}

fn digest(args: &DigestArgs) -> Outcome {
    let image = open(&args.image)?;
    let params = args.params.params();
    let len = sealed_len(&args.image, &image)?;
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
