//! Parses the command line. Nothing is opened here.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

use ferofs::verity::Digest;
use lexopt::prelude::*;

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Version,
    Apply {
        image: PathBuf,
        patch: PathBuf,
        grow_over: bool,
        signature: Option<SignatureArgs>,
    },
    Rollback {
        image: PathBuf,
        to: Option<u64>,
        grow_over: bool,
    },
    Repair {
        image: PathBuf,
    },
    Delta(DeltaArgs),
    DeltaShow {
        delta: PathBuf,
    },
    Check {
        image: PathBuf,
        deep: bool,
    },
    Verify {
        image: PathBuf,
        seal: SealArgs,
    },
    Mount(MountArgs),
    /// The same as [`Self::Mount`], for the process that answers requests. Its standard input is
    /// the FUSE device.
    Serve(MountArgs),
}

/// The arguments of `delta`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeltaArgs {
    pub(crate) old: PathBuf,
    pub(crate) delta: PathBuf,
    pub(crate) new: PathBuf,
    pub(crate) resume: bool,
    pub(crate) force: bool,
    pub(crate) signature: Option<SignatureArgs>,
}

/// The signature that an input must have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SignatureArgs {
    pub(crate) file: PathBuf,
    pub(crate) certs: Vec<PathBuf>,
}

/// The root hash of an image, and where its hash tree is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SealArgs {
    pub(crate) root: Digest,
    /// `None`: the image itself.
    pub(crate) hash_file: Option<PathBuf>,
    /// `None`: after the image's last block, or at the start of the hash file.
    pub(crate) hash_offset: Option<u64>,
}

/// The arguments of `mount`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountArgs {
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) patches: Vec<PathBuf>,
    pub(crate) seal: Option<SealArgs>,
    pub(crate) low_memory: bool,
}

/// The options of all commands.
#[derive(Default)]
struct Options {
    root: Option<Digest>,
    hash_file: Option<PathBuf>,
    hash_offset: Option<u64>,
    patches: Vec<PathBuf>,
    signature: Option<PathBuf>,
    certs: Vec<PathBuf>,
    to: Option<u64>,
    grow_over: bool,
    deep: bool,
    resume: bool,
    force: bool,
    low_memory: bool,
}

impl Options {
    /// The signature that the input must have, if the options ask for one.
    fn signature(&mut self) -> Result<Option<SignatureArgs>, lexopt::Error> {
        match (self.signature.take(), std::mem::take(&mut self.certs)) {
            (None, certs) if certs.is_empty() => Ok(None),
            (Some(file), certs) if !certs.is_empty() => Ok(Some(SignatureArgs { file, certs })),
            _ => Err("--signature and --cert need each other".into()),
        }
    }

    /// The seal, if the options have a root hash.
    fn seal(self) -> Result<Option<SealArgs>, lexopt::Error> {
        let Self { root, hash_file, hash_offset, .. } = self;
        match root {
            Some(root) => Ok(Some(SealArgs { root, hash_file, hash_offset })),
            None if hash_file.is_some() || hash_offset.is_some() => {
                Err("--hash-file and --hash-offset need --roothash".into())
            }
            None => Ok(None),
        }
    }
}

/// The options that each command takes.
fn allowed(command: &str) -> Option<&'static [&'static str]> {
    Some(match command {
        "apply" => &["grow-over", "signature", "cert"],
        "rollback" => &["to", "grow-over"],
        "repair" | "delta-show" => &[],
        "delta" => &["resume", "force", "signature", "cert"],
        "check" => &["deep"],
        "verify" => &["hash-file", "hash-offset"],
        "mount" | "serve" => &["roothash", "hash-file", "hash-offset", "patch", "low-memory"],
        _ => return None,
    })
}

/// Parses `args`, without the name of the program.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let command = match parser.next()? {
        Some(Value(name)) => name.string()?,
        Some(Long("help") | Short('h')) => return Ok(Command::Help),
        Some(Long("version") | Short('V')) => return Ok(Command::Version),
        Some(other) => return Err(other.unexpected()),
        None => return Err("no command: see --help".into()),
    };
    let allowed = allowed(&command).ok_or_else(|| format!("no command {command:?}: see --help"))?;
    let mut options = Options::default();
    let mut values = Vec::new();
    while let Some(arg) = parser.next()? {
        let name = match arg {
            Value(value) => {
                values.push(value);
                continue;
            }
            Long("help") | Short('h') => return Ok(Command::Help),
            Long(name) if allowed.contains(&name) => name.to_owned(),
            other => return Err(other.unexpected()),
        };
        match name.as_str() {
            "roothash" => options.root = Some(parser.value()?.parse()?),
            "hash-file" => options.hash_file = Some(parser.value()?.into()),
            "hash-offset" => options.hash_offset = Some(parser.value()?.parse()?),
            "patch" => options.patches.push(parser.value()?.into()),
            "signature" => options.signature = Some(parser.value()?.into()),
            "cert" => options.certs.push(parser.value()?.into()),
            "to" => options.to = Some(parser.value()?.parse()?),
            "grow-over" => options.grow_over = true,
            "deep" => options.deep = true,
            "resume" => options.resume = true,
            "force" => options.force = true,
            _ => options.low_memory = true,
        }
    }
    let mut values = values.into_iter();
    let mut next =
        |name: &str| values.next().ok_or_else(|| format!("{command}: no {name}: see --help"));
    let image = PathBuf::from(next("IMAGE")?);
    let parsed = match command.as_str() {
        "apply" => {
            let (patch, signature) = (next("PATCH")?.into(), options.signature()?);
            Command::Apply { image, patch, grow_over: options.grow_over, signature }
        }
        "rollback" => Command::Rollback { image, to: options.to, grow_over: options.grow_over },
        "repair" => Command::Repair { image },
        "delta" => {
            let delta = next("DELTA")?.into();
            let (new, signature) = (next("NEW")?.into(), options.signature()?);
            let (resume, force) = (options.resume, options.force);
            Command::Delta(DeltaArgs { old: image, delta, new, resume, force, signature })
        }
        "delta-show" => Command::DeltaShow { delta: image },
        "check" => Command::Check { image, deep: options.deep },
        "verify" => {
            let root = next("ROOTHASH")?.parse()?;
            let seal =
                SealArgs { root, hash_file: options.hash_file, hash_offset: options.hash_offset };
            Command::Verify { image, seal }
        }
        name => {
            let dir = next("DIR")?.into();
            let (low_memory, patches) = (options.low_memory, std::mem::take(&mut options.patches));
            let seal = options.seal()?;
            if seal.is_some() && !patches.is_empty() {
                return Err("--roothash does not cover patches".into());
            }
            let args = MountArgs { image, dir, patches, seal, low_memory };
            if name == "mount" { Command::Mount(args) } else { Command::Serve(args) }
        }
    };
    match values.next() {
        Some(more) => Err(lexopt::Error::UnexpectedArgument(more)),
        None => Ok(parsed),
    }
}
