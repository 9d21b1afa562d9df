//! The options of signatures: those that make one, and those that check one.

use std::io::Write;
use std::path::{Path, PathBuf};

use ferofs::NewFile;
use ferofs::signature;

use crate::args::outputs::refuse_as_output;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{About, Concerning, Failure};

/// The key that signs.
#[derive(clap::Args)]
pub(crate) struct SignArgs {
    /// The private key, RSA or ECDSA, in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The certificate of the key, in PEM
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,

    /// Write the signature to this file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    overwrite: OverwriteArgs,
}

impl SignArgs {
    /// Writes a signature of `text`. The output may not be one of `inputs`.
    pub(crate) fn sign(&self, text: &str, inputs: &[&Path]) -> Result<(), Failure> {
        refuse_as_output(&self.output, &[inputs, &[&self.key, &self.cert]].concat())?;
        self.overwrite.check(&self.output, OutputKind::Signature)?;
        let signature = signature::sign(text, &self.key, &self.cert).without_subject()?;
        let mut output = NewFile::create(&self.output).without_subject()?;
        output.write_all(&signature).concerning(&self.output)?;
        output.finish().without_subject()
    }
}

/// The signature that an input must have.
#[derive(clap::Args)]
pub(crate) struct RequiredSignature {
    /// Change nothing unless this is a signature of the input by one of the certificates of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    signature: Option<PathBuf>,

    /// A trusted certificate, in PEM; may be given several times
    #[arg(long, value_name = "FILE", requires = "signature")]
    cert: Vec<PathBuf>,
}

impl RequiredSignature {
    /// Whether a signature is asked for.
    pub(crate) const fn is_given(&self) -> bool {
        self.signature.is_some()
    }

    /// Fails if a signature is asked for, and is none of `text`.
    pub(crate) fn check(&self, text: &str) -> Result<(), Failure> {
        let Some(signature) = &self.signature else { return Ok(()) };
        signature::check(text, signature, &self.cert).without_subject()
    }
}
