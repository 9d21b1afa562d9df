//! `ferofs verity`: makes hash trees of images, checks images against them, and signs their roots.

mod format;
pub(super) mod sidecar;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use ferofs::read::{FileSource, Source as _};
use ferofs::signature;
use ferofs::verity::{
    Digest, Seal, TreeLayout, appended_position, check_end, fsverity_digest, make_tree, verify_all,
};

use crate::args::byte_size;
use crate::args::seal::RootArgs;
use crate::args::signature::SignArgs;
use crate::args::threads;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, wants_summary};
use crate::print::output::{json_text, print_line};
use crate::print::progress::CountedSource;
use format::{FormatArgs, sealed_len};
use format::{ParamsArgs, open};

/// Seal images with hash trees of dm-verity and fs-verity
///
/// The root of a hash tree is a digest of the whole image. Whoever has the root from a trusted
/// place can verify each block of the image when it is read: `ferofs mount`, `ls`, `cat`, `check`,
/// `extract` and `inspect` do with --roothash, Linux does with dm-verity. The format is that of
/// veritysetup.
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

/// Check each block of an image against a root hash
// clap would print the group before the image.
#[derive(clap::Args)]
#[command(
    override_usage = "ferofs verity verify [OPTIONS] <IMAGE> <ROOTHASH|--roothash-file <FILE>>"
)]
struct VerifyArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    root: RootArgs,

    #[command(flatten)]
    place: PlaceArgs,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Print the digests of an image, without writing anything
///
/// The first line is the root hash of dm-verity, the second the digest of fs-verity, as `fsverity
/// digest` prints it. The whole file is hashed, or the part before a hash tree that follows the
/// image.
#[derive(clap::Args)]
struct DigestArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    params: ParamsArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Show the root hash and the parameters of a hash tree
///
/// The root hash is that of the tree as it is in the file. Neither the tree nor the image is
/// verified: only a root hash from a place that you trust tells whether they are the right ones.
#[derive(clap::Args)]
struct ShowArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,

    /// Print one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// Sign a root hash
///
/// The signature is PKCS #7, detached, in DER, as systemd and Linux take it: for IMAGE.raw in
/// IMAGE.roothash.p7s, or as dm-verity's root_hash_sig_key_desc. openssl signs. The key may have a
/// password.
#[derive(clap::Args)]
struct RootSignArgs {
    #[command(flatten)]
    root: RootArgs,

    #[command(flatten)]
    sign: SignArgs,
}

/// Check the signature of a root hash
///
/// The signature must be by one of the certificates, which must be valid now. Certificates with
/// weak keys, and signatures with weak digests, are refused.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
struct VerifySignatureArgs {
    #[command(flatten)]
    root: RootArgs,

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

    /// Position of the hash tree's superblock in its file, in bytes [default: after the image's
    /// last block; 0 with --hash-file]
    #[arg(long, value_name = "BYTES", value_parser = byte_size::argument::<u64>)]
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

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Verb::Format(args) => format::run(args),
        Verb::Verify(args) => verify(args),
        Verb::Digest(args) => digest(args),
        Verb::Show(args) => show(args),
        Verb::Sign(args) => args.sign.sign(&args.root.root()?.to_string(), &[]).map(|()| 0),
        Verb::VerifySignature(args) => {
            let text = args.root.root()?.to_string();
            signature::check(&text, &args.signature, &args.cert)
                .map_err(Failure::without_subject)?;
            Ok(0)
        }
    }
}

fn verify(args: &VerifyArgs) -> Outcome {
    args.shown.apply();
    let image = open(&args.image)?;
    let (file, seal) = args.place.open(&args.image)?;
    let image = CountedSource::new(image, "verified");
    let verified = seal.verified(image, file, args.root.root()?).about(&args.image)?;
    check_end(&verified).about(&args.image)?;
    verify_all(&verified, threads(args.threads)).about(&args.image)?;
    if wants_summary() {
        print_line!("{} blocks agree with the root hash", seal.superblock.data_blocks)?;
    }
    Ok(0)
}

fn digest(args: &DigestArgs) -> Outcome {
    args.shown.apply();
    let image = open(&args.image)?;
    let params = args.params.params();
    let len = sealed_len(&args.image, &image)?;
    let block = u64::from(params.data_block_size);
    if block == 0 || !len.is_multiple_of(block) {
        let reason = format!("its size, {len}, is not a multiple of the data block size, {block}");
        return Err(Failure::about(&args.image, reason));
    }
    let image = CountedSource::new(image, "hashed");
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

/// The root hash of a tree as it is in its file: the digest of its first block, or of the only data
/// block.
fn stated_root(image: &Path, file: &FileSource, seal: &Seal) -> Result<Digest, Failure> {
    let mut params = seal.superblock.params.clone();
    let layout = TreeLayout::new(seal.superblock.data_blocks, &params).about(image)?;
    let read = |file: &FileSource, position: u64, len: u32| {
        let mut block = vec![0; len as usize];
        file.read_exact_at(position, &mut block)
            .map(|()| block)
            .map_err(|e| Failure::about(image, e))
    };
    let block = if layout.is_empty() {
        read(&open(image)?, 0, params.data_block_size)?
    } else {
        params.data_block_size = params.hash_block_size;
        read(file, seal.tree_start(), params.hash_block_size)?
    };
    let root = params.digests(&block).into_iter().next();
    root.ok_or_else(|| Failure::about(image, "the hash tree has no root"))
}

fn show(args: &ShowArgs) -> Outcome {
    let (file, seal) = args.place.open(&args.image)?;
    let root = stated_root(&args.image, &file, &seal)?.to_string();
    let superblock = &seal.superblock;
    let params = &superblock.params;
    let salt = ferofs::read::Hex(&params.salt).to_string();
    let mut out = std::io::stdout().lock();
    if args.json {
        let object = serde_json::json!({
            "root_hash": root,
            "uuid": superblock.uuid.to_string(),
            "hash": params.algorithm.name(),
            "data_block_size": params.data_block_size,
            "hash_block_size": params.hash_block_size,
            "data_blocks": superblock.data_blocks,
            "salt": salt,
            "hash_offset": seal.position,
            "bytes": seal.byte_len().about(&args.image)?,
        });
        writeln!(out, "{}", json_text(&object))?;
        return Ok(0);
    }
    writeln!(out, "root hash        {root}")?;
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
