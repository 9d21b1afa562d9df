//! The options of `ferofs build` that seal the image: --verity and --roothash-file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::NewFile;
use ferofs::build::Options;
use ferofs::seal::BuildSeal;
use ferofs::verity::Params;

use crate::args::outputs::refuse_as_outputs;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{About, Concerning, Failure};
use crate::print::output::{message, print_line};

#[derive(clap::Args)]
pub(crate) struct SealArgs {
    /// Make a hash tree, and print the root hash
    ///
    /// While the image is written: see `ferofs verity`. The tree follows the image, or goes to
    /// FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    verity: Option<Option<PathBuf>>,

    /// Also write the root hash to this file
    #[arg(long, value_name = "FILE", requires = "verity")]
    roothash_file: Option<PathBuf>,
}

impl SealArgs {
    /// Lets the build make the seal, if the options ask for one.
    pub(super) fn apply(&self, options: &mut Options) -> Result<Option<Arc<BuildSeal>>, Failure> {
        let Some(file) = &self.verity else { return Ok(None) };
        let threads = options.run.worker_count();
        let seal = match file {
            Some(path) => BuildSeal::in_file(Params::default(), None, threads, path),
            None => BuildSeal::appended(Params::default(), None, threads),
        };
        let seal = Arc::new(seal.without_subject()?);
        options.output.sealer = Some(seal.clone());
        Ok(Some(seal))
    }

    /// Fails if the files of the seal would replace the image, a source, or files of other kinds.
    pub(super) fn refuse_outputs(
        &self,
        paths: &[PathBuf],
        overwrite: OverwriteArgs,
    ) -> Result<(), Failure> {
        self.verity
            .iter()
            .flatten()
            .try_for_each(|tree| overwrite.check(tree, OutputKind::HashTree))?;
        self.roothash_file
            .iter()
            .try_for_each(|file| overwrite.check(file, OutputKind::RootHash))?;
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        refuse_as_outputs(&self.files().map(PathBuf::as_path).collect::<Vec<_>>(), &paths)
    }

    /// The files of the seal.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.verity.iter().flatten().chain(&self.roothash_file)
    }

    /// Gives the files their names.
    pub(super) fn finish(&self, seal: &BuildSeal) -> Result<(), Failure> {
        seal.finish().without_subject()?;
        let Some(built) = seal.built() else { return Ok(()) };
        if let Some(path) = &self.roothash_file {
            let mut file = NewFile::create(path).without_subject()?;
            write!(file, "{}", built.root).concerning(path)?;
            file.finish().without_subject()?;
        }
        Ok(())
    }

    /// Prints the root hash if `is_text`; on standard error if the image went to standard output.
    pub(super) fn print(seal: &BuildSeal, image: &Path, is_text: bool) -> Result<(), Failure> {
        let Some(built) = seal.built() else { return Ok(()) };
        if image == Path::new("-") {
            message!("root hash {}", built.root);
        } else if is_text {
            print_line!("{}", built.root)?;
        }
        Ok(())
    }
}
